"""podman with an OCI runtime: containers over an unpacked image, each with an overlay of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from sandyard.errors import HostError, ProviderError
from sandyard.providers import programs
from sandyard.providers.declaration import Declaration
from sandyard.providers.provider import CreateRequest, Output, Provider

LABEL = "sandyard.bench"
WORKDIR = "/var/tmp"  # noqa: S108 - of the sandbox
_CALL_S = 60
_GONE = 125


class PodmanProvider(Provider):
    """Containers through podman's command line."""

    supports: ClassVar[frozenset[str]] = frozenset({"exec", "files", "lifetime", "limits"})

    def __init__(self, declaration: Declaration, *, rootfs: Path, digest: str) -> None:
        """Run on an unpacked image."""
        super().__init__(declaration)
        self._rootfs, self._digest = rootfs, digest
        self._base: list[str] = []

    async def open(self) -> None:
        """Choose the OCI runtime that this host's cgroups allow: crun refuses a hybrid hierarchy, runc takes it."""
        programs.require("podman", "podman")
        is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        runtime = next((r for r in (("crun", "runc") if is_unified else ("runc",)) if shutil.which(r)), None)
        if runtime is None:
            raise HostError("podman has no OCI runtime that fits this host's cgroups.", hint="Install runc.")
        self._base = ["podman", "--runtime", runtime, "--cgroup-manager", "cgroupfs"]

    async def version(self) -> str:
        """Podman's and the runtime's."""
        podman = (await programs.run(["podman", "--version"], timeout_s=10)).stdout.decode().strip()
        runtime = (await programs.run([self._base[2], "--version"], timeout_s=10)).stdout.decode().split("\n", 1)[0]
        return f"{podman}, {runtime}"

    async def image(self) -> str | None:
        """The unpacked image's digest."""
        return self._digest

    async def create(self, request: CreateRequest) -> str:
        """Start a container that sleeps; podman ends it after its lifetime."""
        limits = [
            *("--cpus", f"{request.cpus:g}", "--memory", f"{request.memory_mib}m"),
            *(
                "--ulimit",
                "nofile=1024:1024",
                "--ulimit",
                "nproc=4096:4096",
            ),  # else it asks for more than a host may give
        ]
        output = await self._call(
            "run",
            "--detach",
            "--rm",  # one whose lifetime is over leaves nothing
            *("--label", f"{LABEL}={request.label}", "--timeout", str(max(1, round(request.lifetime_s)))),
            *("--network", "none", "--workdir", WORKDIR, *limits),
            *("--rootfs", f"{self._rootfs}:O", "sleep", "infinity"),
        )
        return output.stdout.decode().strip()

    async def exec(self, sandbox: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Output:
        """Run through podman exec, which answers 125 for a container that is not there."""
        output = await programs.run(
            [*self._base, "exec", "--interactive", sandbox, *argv], timeout_s=timeout_s, stdin=stdin
        )
        if output.exit_code == _GONE and b"Error:" in output.stderr:
            raise ProviderError(_last_line(output), hint="Has its lifetime ended?")
        return output

    async def read(self, sandbox: str, path: str) -> bytes:
        """Through cat, as podman's copy takes archives only."""
        output = await self.exec(sandbox, ["cat", "--", path], timeout_s=_CALL_S)
        if output.exit_code != 0:
            raise ProviderError(_last_line(output), hint="Was it written?")
        return output.stdout

    async def write(self, sandbox: str, path: str, data: bytes) -> None:
        """Through the shell's redirection."""
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'
        output = await self.exec(sandbox, ["sh", "-c", script, "sh", path], timeout_s=_CALL_S, stdin=data)
        if output.exit_code != 0:
            raise ProviderError(_last_line(output), hint="Is the disk full?")

    async def destroy(self, sandbox: str) -> None:
        """Kill and remove."""
        await self._call("rm", "--force", "--ignore", "--time", "0", sandbox)

    async def list(self, label: str | None = None) -> list[str]:
        """Return the containers that run."""
        wanted = LABEL if label is None else f"{LABEL}={label}"
        output = await self._call("ps", "--no-trunc", "--filter", f"label={wanted}", "--format", "json")
        return sorted(item["Id"] for item in json.loads(output.stdout or b"[]"))

    async def _call(self, *words: str) -> Output:
        output = await programs.run([*self._base, *words], timeout_s=_CALL_S)
        if output.timed_out:
            raise ProviderError(f"podman {words[0]} did not end in {_CALL_S} s.", hint="Try it by hand.")
        if output.exit_code != 0:
            raise ProviderError(f"podman {words[0]} failed: {_last_line(output)}", hint="Try it by hand.")
        return output


def _last_line(output: Output) -> str:
    lines = output.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with {output.exit_code}."
