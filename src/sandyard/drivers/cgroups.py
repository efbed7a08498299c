"""One control group per machine: limits, freezing, killing and accounting, on cgroup v1 and v2 alike.

Groups live at ``<hierarchy>/sandyard/<name>``. On a hybrid host the controllers are taken from v1, where they are.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from sandyard.errors import HostError, RuntimeDriverError
from sandyard.units import MIB

PARENT = "sandyard"
CPU_PERIOD_US = 100_000
_SETTLE_S = 5.0
"""How long the kernel may take to freeze a group or to let go of its dead tasks before it counts as a fault."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the tasks of one group may use together."""

    cpus: float
    memory_mib: int
    pids: int


class Cgroup(Protocol):
    """One machine's group, in whichever version the host has."""

    name: str

    def create(self, limits: Limits) -> None:
        """Make the group, empty and limited; one that exists is taken as it is and limited anew."""

    def join_files(self) -> list[Path]:
        """Return the files into which a process writes its pid to join the group with all it will start."""

    def pids(self) -> list[int]:
        """Return the processes in the group now; none if it does not exist."""

    async def freeze(self) -> None:
        """Return once every task stands still."""

    async def thaw(self) -> None:
        """Let every task go on."""

    def is_frozen(self) -> bool:
        """Whether ``freeze`` is in force."""

    def cpu_us(self) -> int:
        """Processor time used since ``create``, microseconds."""

    def memory_bytes(self) -> int:
        """Memory charged to the group now, without page cache that can be dropped at once."""

    def memory_peak_bytes(self) -> int:
        """The most that was ever charged."""

    def oom_kills(self) -> int:
        """How many of its tasks the kernel killed for want of memory."""

    def refused_tasks(self) -> int:
        """How often the kernel refused to make another task, for there were as many as there may be."""

    def send_kill(self) -> None:
        """Send SIGKILL to every task, without waiting for what comes of it."""

    async def kill(self) -> None:
        """Kill every task, frozen or not, and return when none is left."""

    async def remove(self) -> None:
        """Kill what is left and remove the group; one that does not exist is nothing."""


def open_cgroup(
    name: str, *, root: Path = Path("/sys/fs/cgroup"), mountinfo: Path = Path("/proc/self/mountinfo")
) -> Cgroup:
    """Return the machine's group for this host, without creating it.

    Raises:
        HostError: no hierarchy offers cpu, memory and pids limits.
    """
    controllers = v1_controllers(mountinfo)
    if {"cpu", "cpuacct", "memory", "pids", "freezer"} <= controllers.keys():
        return CgroupV1(name, controllers)
    available = _read(root / "cgroup.controllers").split()
    if {"cpu", "memory", "pids"} <= set(available):
        return CgroupV2(name, root)
    raise HostError(
        "this host has no cgroup hierarchy with the cpu, memory and pids controllers, so no limit could be kept.",
        hint="Run 'sandyard doctor'; inside a container, give it the host's cgroups.",
    )


def v1_controllers(mountinfo: Path) -> dict[str, Path]:
    """Return where each v1 controller is mounted, by controller name."""
    found: dict[str, Path] = {}
    for line in _read(mountinfo).splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, Path(left.split(" ")[4]))
    return found


class CgroupV1:
    """A group of the same name in each v1 hierarchy that is needed."""

    def __init__(self, name: str, mounts: dict[str, Path]) -> None:
        """Name the group below the hierarchies mounted at ``mounts``."""
        self.name = name
        self._dirs = {c: mounts[c] / PARENT / name for c in ("cpu", "cpuacct", "memory", "pids", "freezer")}

    def create(self, limits: Limits) -> None:
        """Make the group in each hierarchy and write the limits."""
        for directory in set(self._dirs.values()):
            directory.mkdir(parents=True, exist_ok=True)
        _write(self._dirs["cpu"] / "cpu.cfs_period_us", CPU_PERIOD_US)
        _write(self._dirs["cpu"] / "cpu.cfs_quota_us", int(limits.cpus * CPU_PERIOD_US))
        _write(self._dirs["memory"] / "memory.limit_in_bytes", limits.memory_mib * MIB)
        _write(self._dirs["pids"] / "pids.max", limits.pids)

    def join_files(self) -> list[Path]:
        """Return one cgroup.procs for each hierarchy."""
        return [directory / "cgroup.procs" for directory in sorted(set(self._dirs.values()))]

    def pids(self) -> list[int]:
        """Read the memory hierarchy; the tasks are the same in all."""
        return _read_pids(self._dirs["memory"])

    async def freeze(self) -> None:
        """Write FROZEN until the kernel says so: a task in the middle of something makes it FREEZING for a moment."""
        state = self._dirs["freezer"] / "freezer.state"
        _write(state, "FROZEN")
        await _until(lambda: _read(state).strip() == "FROZEN", f"cgroup {self.name} did not freeze")

    async def thaw(self) -> None:
        """Write THAWED; it holds at once."""
        _write(self._dirs["freezer"] / "freezer.state", "THAWED")

    def is_frozen(self) -> bool:
        """Whether the freezer is, or is becoming, FROZEN."""
        return _read(self._dirs["freezer"] / "freezer.state").strip() in {"FROZEN", "FREEZING"}

    def cpu_us(self) -> int:
        """Return cpuacct.usage, which is in nanoseconds."""
        return _read_int(self._dirs["cpuacct"] / "cpuacct.usage") // 1000

    def memory_bytes(self) -> int:
        """Return the usage less inactive file cache, as kubelet and docker stats have it."""
        usage = _read_int(self._dirs["memory"] / "memory.usage_in_bytes")
        return max(0, usage - _read_field(self._dirs["memory"] / "memory.stat", "total_inactive_file"))

    def memory_peak_bytes(self) -> int:
        """Return the high-water mark, page cache included."""
        return _read_int(self._dirs["memory"] / "memory.max_usage_in_bytes")

    def oom_kills(self) -> int:
        """Return the kernel's counter."""
        return _read_field(self._dirs["memory"] / "memory.oom_control", "oom_kill")

    def refused_tasks(self) -> int:
        """Return the kernel's counter."""
        return _read_field(self._dirs["pids"] / "pids.events", "max")

    def send_kill(self) -> None:
        """Signal the tasks that are there now."""
        _kill_all(self.pids())

    async def kill(self) -> None:
        """Signal first and thaw then, so that a frozen task dies without running another instruction."""
        while pids := self.pids():
            _kill_all(pids)
            if self.is_frozen():
                await self.thaw()
            await _until(partial(_are_gone, self, pids), f"tasks of cgroup {self.name} did not die")

    async def remove(self) -> None:
        """Kill, then remove the directories."""
        await self.kill()
        for directory in set(self._dirs.values()):
            await _rmdir(directory)


class CgroupV2:
    """A group in the unified hierarchy."""

    def __init__(self, name: str, root: Path) -> None:
        """Name the group below the hierarchy mounted at ``root``."""
        self.name = name
        self._parent = root / PARENT
        self._root = root
        self._dir = self._parent / name

    def create(self, limits: Limits) -> None:
        """Make the group, the controllers handed down to it, and write the limits."""
        self._dir.mkdir(parents=True, exist_ok=True)
        for level in (self._root, self._parent):
            _write(level / "cgroup.subtree_control", "+cpu +memory +pids")
        _write(self._dir / "cpu.max", f"{int(limits.cpus * CPU_PERIOD_US)} {CPU_PERIOD_US}")
        _write(self._dir / "memory.max", limits.memory_mib * MIB)
        _write(self._dir / "pids.max", limits.pids)

    def join_files(self) -> list[Path]:
        """Return the one cgroup.procs."""
        return [self._dir / "cgroup.procs"]

    def pids(self) -> list[int]:
        """Read cgroup.procs."""
        return _read_pids(self._dir)

    async def freeze(self) -> None:
        """Write cgroup.freeze and wait until cgroup.events agrees."""
        _write(self._dir / "cgroup.freeze", 1)
        await _until(
            lambda: _read_field(self._dir / "cgroup.events", "frozen") == 1, f"cgroup {self.name} did not freeze"
        )

    async def thaw(self) -> None:
        """Write cgroup.freeze; it holds at once."""
        _write(self._dir / "cgroup.freeze", 0)

    def is_frozen(self) -> bool:
        """Whether cgroup.freeze is set."""
        return _read(self._dir / "cgroup.freeze").strip() == "1"

    def cpu_us(self) -> int:
        """Return usage_usec of cpu.stat."""
        return _read_field(self._dir / "cpu.stat", "usage_usec")

    def memory_bytes(self) -> int:
        """Return the usage less inactive file cache."""
        usage = _read_int(self._dir / "memory.current")
        return max(0, usage - _read_field(self._dir / "memory.stat", "inactive_file"))

    def memory_peak_bytes(self) -> int:
        """Return memory.peak (Linux 5.19 and later; what is held now before that)."""
        peak = self._dir / "memory.peak"
        return _read_int(peak if peak.exists() else self._dir / "memory.current")

    def oom_kills(self) -> int:
        """Return the kernel's counter."""
        return _read_field(self._dir / "memory.events", "oom_kill")

    def refused_tasks(self) -> int:
        """Return the kernel's counter."""
        return _read_field(self._dir / "pids.events", "max")

    def send_kill(self) -> None:
        """Signal the tasks that are there now."""
        _kill_all(self.pids())

    async def kill(self) -> None:
        """Signal every task; v2 lets frozen tasks die."""
        while pids := self.pids():
            _kill_all(pids)
            await _until(partial(_are_gone, self, pids), f"tasks of cgroup {self.name} did not die")

    async def remove(self) -> None:
        """Kill, then remove the directory."""
        await self.kill()
        await _rmdir(self._dir)


def _are_gone(group: Cgroup, pids: list[int]) -> bool:
    return not set(pids) & set(group.pids())


def _kill_all(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


async def _until(condition: Callable[[], bool], fault: str) -> None:
    """Ask the kernel again and again for up to ``_SETTLE_S``; v1 has no file here that epoll could wait on."""
    delay, waited = 0.0005, 0.0
    while not condition():
        if waited > _SETTLE_S:
            raise RuntimeDriverError(
                f"{fault} within {_SETTLE_S:g} s.",
                hint="A task may hang in the kernel: look at dmesg and at its wchan.",
            )
        await asyncio.sleep(delay)
        waited += delay
        delay = min(delay * 2, 0.05)


async def _rmdir(directory: Path) -> None:
    """Remove one group; the kernel says busy for a moment after the last task died."""

    def gone() -> bool:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        return True

    await _until(gone, f"cgroup {directory} stayed busy")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        if error.errno == errno.ENODEV:  # the group was removed between open and read
            return ""
        raise


def _read_int(path: Path) -> int:
    return int(_read(path) or 0)


def _read_field(path: Path, field: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == field:
            return int(value)
    return 0


def _read_pids(directory: Path) -> list[int]:
    return [int(line) for line in _read(directory / "cgroup.procs").split()]


def _write(path: Path, value: str | int) -> None:
    try:
        path.write_text(str(value))
    except OSError as error:
        raise HostError(
            f"the kernel refused '{value}' for {path}: {error.strerror}.",
            hint="Sandyard needs cgroups of its own: run it as root, not where they are mounted read-only.",
        ) from error
