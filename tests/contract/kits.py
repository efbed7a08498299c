"""What the contract suite must know of each driver: how to make it, what it may leave behind, how to fill its disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import sandyard
from sandyard.drivers import Driver, MachineSpec
from sandyard.drivers.fake import FakeDriver, FakeHost
from sandyard.drivers.gvisor import CONTROL_ROOT, Gvisor

AGENT = Path(sandyard.__file__).parent / "_agent" / "sandyard-agent"


class Kit(Protocol):
    """One driver under test."""

    def driver(self) -> Driver:
        """Return a driver as another process of ours would have it: on the same host, with no memory of its own."""
        ...

    def spec(self, name: str) -> MachineSpec:
        """Return what a machine is made with, in a directory of its own."""
        ...

    def leftovers(self, spec: MachineSpec) -> list[str]:
        """Return whatever the host still has of a machine."""
        ...

    def full_disk(self, tmp_path: Path) -> contextlib.AbstractContextManager[Path]:
        """Give a directory in which no checkpoint finds room."""
        ...

    hoarder: Sequence[str]
    """A command that takes more memory than ``spec`` allows."""

    holder: Sequence[str]
    """A command that takes 128 MiB of memory and keeps it."""

    burner: Sequence[str]
    """A command that uses half a second of processor time; how much exactly is in its result."""

    spinner: Sequence[str]
    """A command that uses all the processor time that it can get."""


class FakeKit:
    """Machines in memory."""

    hoarder: Sequence[str] = ("alloc", "1000")
    holder: Sequence[str] = ("alloc", "128")
    burner: Sequence[str] = ("burn", "0.5")
    spinner: Sequence[str] = ("burn", "1000")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._host = FakeHost()

    def driver(self) -> Driver:
        return FakeDriver(self._host)

    def spec(self, name: str) -> MachineSpec:
        return _spec(self._directory, name, rootfs=self._directory)

    def leftovers(self, spec: MachineSpec) -> list[str]:
        return self._host.leftovers(spec.id) + _files(spec)

    @contextlib.contextmanager
    def full_disk(self, tmp_path: Path) -> Iterator[Path]:
        self._host.faults.disk_full = True
        yield tmp_path
        self._host.faults.disk_full = False


class GvisorKit:
    """Real sandboxes."""

    hoarder: Sequence[str] = ("python3", "-c", "import os\nx = os.urandom(1000 << 20)")
    holder: Sequence[str] = ("python3", "-c", "import os, time\nx = os.urandom(128 << 20)\ntime.sleep(1000)")
    burner: Sequence[str] = ("python3", "-c", "import time\nwhile time.process_time() < 0.5: pass")
    spinner: Sequence[str] = ("python3", "-c", "while True: pass")

    def __init__(self, directory: Path, rootfs: Path) -> None:
        self._directory = directory
        self._rootfs = rootfs

    def driver(self) -> Driver:
        return Gvisor()

    def spec(self, name: str) -> MachineSpec:
        return _spec(self._directory, name, rootfs=self._rootfs)

    def leftovers(self, spec: MachineSpec) -> list[str]:
        found = [f"process {pid}" for pid in _processes_of(spec)]
        found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"**/{spec.id}*")]
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if spec.id in line]
        if (CONTROL_ROOT / spec.id).exists():
            found.append(f"control directory of {spec.id}")
        return found + _files(spec)

    @contextlib.contextmanager
    def full_disk(self, tmp_path: Path) -> Iterator[Path]:
        small = tmp_path / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
        try:
            yield small
        finally:
            # Lazily: a sandbox whose checkpoint failed keeps the file open until its next one.
            subprocess.run(["umount", "--lazy", str(small)], check=True)


def why_no_gvisor() -> str | None:
    """Say why real sandboxes cannot be tested here; None: they can."""
    if os.geteuid() != 0:
        return "REAL SANDBOXES NOT TESTED: this is not root"
    if shutil.which("runsc") is None:
        return "REAL SANDBOXES NOT TESTED: there is no runsc"
    if not AGENT.exists():
        return "REAL SANDBOXES NOT TESTED: the agent is not built; run 'python scripts/build_agent.py'"
    return None


def _spec(parent: Path, name: str, *, rootfs: Path) -> MachineSpec:
    unique = f"sb_{name}{os.urandom(4).hex()}"
    directory = parent / unique
    directory.mkdir()
    return MachineSpec(id=unique, directory=directory, rootfs=rootfs, agent=AGENT, cpus=1, memory_mib=512)


def _files(spec: MachineSpec) -> list[str]:
    return [str(path) for path in spec.directory.iterdir()]


def _processes_of(spec: MachineSpec) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if spec.id.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
