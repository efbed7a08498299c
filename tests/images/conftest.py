"""Real images: made by umoci, served by a real registry on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandyard.images import ImageStore

BIN = Path(sys.executable).parent
SEARCH = f"{BIN}:{os.environ['PATH']}:/usr/sbin:/sbin"
TOOLS = ("skopeo", "umoci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, and say so, what this host cannot run."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    reasons = [f"{tool} is not installed" for tool in missing] + (["not root"] if os.geteuid() else [])
    for item in items:
        if Path(__file__).parent in item.path.parents and reasons and "test_references" not in item.path.name:
            item.add_marker(pytest.mark.skip(reason=f"images need more than this host has: {', '.join(reasons)}"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def run(*argv: str | Path) -> bytes:
    """Run a tool of the test's own."""
    return subprocess.run([*map(str, argv)], check=True, capture_output=True).stdout


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """Make a member of a tar; ``fields`` are TarInfo's."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def make_tar(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    """Write a tar with exactly these members."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return path


@dataclass
class Layout:
    """An OCI layout folder of the test's own."""

    path: Path

    def add(self, tag: str, *layers: Path, **config: str) -> str:
        """Make an image of layers and ``umoci config`` options; return the digest of its configuration."""
        if not self.path.exists():
            run("umoci", "init", "--layout", self.path)
        run("umoci", "new", "--image", f"{self.path}:{tag}")
        for layer in layers:
            run("umoci", "raw", "add-layer", "--image", f"{self.path}:{tag}", layer)
        options = [f"--config.{key}={one}" for key, value in config.items() for one in value.split("\n")]
        run("umoci", "config", "--image", f"{self.path}:{tag}", *options)
        digest: str = self.manifest(tag)["config"]["digest"]
        return digest

    def index(self) -> Any:
        return json.loads((self.path / "index.json").read_bytes())

    def descriptor(self, tag: str) -> Any:
        (found,) = (
            one for one in self.index()["manifests"] if one["annotations"]["org.opencontainers.image.ref.name"] == tag
        )
        return found

    def blob(self, digest: str) -> Path:
        return self.path / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def manifest(self, tag: str) -> Any:
        return json.loads(self.blob(self.descriptor(tag)["digest"]).read_bytes())

    def add_list(self, tag: str, **images: str) -> str:
        """Make a list of images, ``architecture=tag``; return its digest."""
        manifests = []
        for architecture, image in images.items():
            one = self.descriptor(image)
            platform = {"architecture": architecture, "os": "linux"}
            manifests.append({key: one[key] for key in ("mediaType", "digest", "size")} | {"platform": platform})
        kind = "application/vnd.oci.image.index.v1+json"
        data = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blob(digest).write_bytes(data)
        index = self.index()
        name = {"org.opencontainers.image.ref.name": tag}
        index["manifests"].append({"mediaType": kind, "digest": digest, "size": len(data), "annotations": name})
        (self.path / "index.json").write_text(json.dumps(index))
        return digest


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def small(tmp_path: Path, layout: Layout) -> str:
    """The image ``layout:small`` without a shell, its digest."""
    tar = make_tar(
        tmp_path / "small.tar", entry("etc/", type=tarfile.DIRTYPE, mode=0o755), entry("etc/motd", b"hello\n")
    )
    return layout.add("small", tar)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def store(root: Path) -> ImageStore:
    return ImageStore(root)


@dataclass
class Registry:
    """A running registry."""

    host: str
    storage: Path
    process: subprocess.Popen[bytes]

    def push(self, layout: Layout, tag: str, to: str, *options: str) -> str:
        """Copy an image in; return its full name."""
        name = f"{self.host}/{to}"
        run(
            "skopeo",
            "copy",
            "--quiet",
            "--dest-tls-verify=false",
            *options,
            f"oci:{layout.path}:{tag}",
            f"docker://{name}",
        )
        return name

    def blob(self, digest: str) -> Path:
        hexes = digest.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / hexes[:2] / hexes / "data"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def start_registry(folder: Path, *more: str) -> Registry:
    """Start Debian's docker-registry on a free port of loopback."""
    program = shutil.which("docker-registry", path=SEARCH)
    if program is None:
        pytest.skip("docker-registry is not installed: scripts/test gets it from Debian")
    for _ in range(20):  # another process may take the port that was free
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{probe.getsockname()[1]}"
        config = folder / "registry.yml"
        lines = ["version: 0.1", "log: {level: error}", f"http: {{addr: '{host}'}}"]
        config.write_text(
            "\n".join([*lines, f"storage: {{filesystem: {{rootdirectory: '{folder / 'blobs'}'}}}}", *more])
        )
        with (folder / "registry.log").open("wb") as log:
            process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(host.partition(":")[2]))) == 0:
                    return Registry(host, folder / "blobs", process)
            time.sleep(0.02)
    pytest.fail(f"the registry did not start: {(folder / 'registry.log').read_text()}")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    folder = tmp_path / "registry"
    folder.mkdir()
    running = start_registry(folder)
    yield running
    running.stop()


@dataclass
class Shim:
    """Stands before a real program on PATH: says when it begins, then waits for the word to go on."""

    folder: Path

    def waits(self) -> list[int]:
        """The processes that have begun so far."""
        return [int(path.name) for path in self.folder.glob("[0-9]*")]

    def go(self) -> None:
        (self.folder / "go").touch()

    @property
    def path(self) -> str:
        return f"{self.folder / 'bin'}:{SEARCH}"


@pytest.fixture
def shim(tmp_path: Path, request: pytest.FixtureRequest) -> Shim:
    """Before ``umoci``: a pull stops when all is downloaded and nothing unpacked. Or before ``skopeo copy``."""
    program = getattr(request, "param", "umoci")
    folder = tmp_path / "shim"
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / program
    real = shutil.which(program)
    script.write_text(
        f"""#!/bin/sh
case "$*" in *inspect*) exec {real} "$@" ;; esac
mkdir rootfs && echo half > rootfs/half
touch {folder}/$$
while [ ! -e {folder}/go ]; do sleep 0.02; done
rm -r rootfs
exec {real} "$@"
"""
    )
    script.chmod(0o755)
    return Shim(folder)


PULL = """
import asyncio, sys
from pathlib import Path
from typing import Any
from sandyard.images import ImageStore
print(asyncio.run(ImageStore(Path(sys.argv[1])).pull(sys.argv[2])).digest)
"""


def pull_elsewhere(root: Path, reference: str, path: str) -> subprocess.Popen[bytes]:
    """Begin a pull in a process of its own, with ``path`` as its PATH."""
    argv = [sys.executable, "-c", PULL, str(root), reference]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PATH": path})


def is_alive(pid: int) -> bool:
    """Say whether a process still runs; one that nobody reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: object, what: str) -> None:
    """Wait for something that happens in another process."""
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"in 60 s not: {what}"
        time.sleep(0.02)
