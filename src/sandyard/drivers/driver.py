"""What isolates a sandbox: the promise that every driver keeps.

A driver knows machines: it boots, restores, pauses, saves and removes them. It knows nothing of images, states, clocks
or agents' requests; those are the runtime's. tests/contract holds every driver to this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from sandyard.frames import Channel


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """How a machine is connected to anything outside itself."""

    mode: str = "none"
    """``none``: loopback only. Other modes come with the network package."""


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """All that a driver needs to make one machine."""

    id: str
    """Unique on this host, of the form ``sb_...``; names the cgroup."""

    directory: Path
    """The machine's own directory; it exists, and all that the driver writes for this machine is below it."""

    rootfs: Path
    """The unpacked image; the driver never writes to it."""

    agent: Path
    """The agent's binary, started as PID 1; stays where it is as long as any checkpoint made with it."""

    cpus: float
    """Processors, as a ceiling: 0.5 is half of one."""

    memory_mib: int
    """Ceiling of everything the machine holds, its own overhead included."""

    pids: int = 4096
    """Ceiling of host tasks."""

    hostname: str = "sandbox"

    network: NetworkSpec = field(default_factory=NetworkSpec)


class After(StrEnum):
    """What a machine does once its checkpoint is on disk."""

    RUN = "run"
    STOP = "stop"


class ExitReason(StrEnum):
    """Why a machine ended."""

    KILLED = "killed"
    """Somebody asked for it."""
    MEMORY = "memory"
    """The kernel killed it for reaching ``memory_mib``."""
    STOPPED = "stopped"
    """A checkpoint with ``After.STOP`` ended it."""
    FAULT = "fault"
    """It ended by itself; ``MachineExit.detail`` has what it said last."""


@dataclass(frozen=True, slots=True)
class MachineExit:
    """How a machine ended."""

    reason: ExitReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """What a machine has used since it was made or restored. All figures are the host's own accounting."""

    cpu_us: int
    """Processor time, microseconds, of the machine and everything that serves it."""

    memory_bytes: int
    """Held now."""

    memory_peak_bytes: int
    """Most held at one time, file cache that the kernel may drop included."""

    disk_bytes: int
    """Its own part of the disk: blocks allocated for what it wrote."""


class Machine(Protocol):
    """One running or paused machine."""

    spec: MachineSpec

    async def connect(self) -> Channel:
        """Open the byte stream to the agent.

        One channel at a time: the one before is closed. An agent whose former host process died in mid-frame is told,
        and a machine taken over while paused is resumed for it.
        """
        ...

    async def pause(self) -> None:
        """Stop every process; memory stays held. Pausing a paused machine is nothing."""
        ...

    async def resume(self) -> None:
        """Undo ``pause``. Resuming a running machine is nothing."""
        ...

    async def checkpoint(self, to: Path, after: After) -> None:
        """Save memory, processes and disk of one instant into the new directory ``to``.

        ``to`` appears only once everything is in it and safe from a power cut (it is written beside, as ``to`` with the
        suffix ``.part``, and renamed), and only then is the machine stopped: it runs no further, and ``wait`` tells
        when it is gone. It must not be paused. On failure it goes on, and nothing is left.

        Raises:
            NoSpaceError: the disk is full.
            SnapshotError: it could not be saved for another reason.
        """
        ...

    def usage(self) -> MachineUsage:
        """Read what it has used; works until ``remove``."""
        ...

    def oom_kills(self) -> int:
        """Return how often the kernel killed something of it for want of memory; the machine may have lived on."""
        ...

    async def wait(self) -> MachineExit:
        """Return how it ended, once it has; may be awaited by many."""
        ...

    async def kill(self) -> None:
        """End it at once, paused or not; returns when its processes are gone. Killing a dead one is nothing."""
        ...

    async def remove(self) -> None:
        """Kill it and remove everything of it from the host but ``spec.directory`` itself."""
        ...


class Driver(Protocol):
    """One way to isolate machines."""

    name: str
    """Stored with every sandbox and checkpoint: ``gvisor``, ``fake``."""

    async def version(self) -> str:
        """Return the version of the isolation layer; a checkpoint is only restored under the one that made it."""
        ...

    async def boot(self, spec: MachineSpec) -> Machine:
        """Start a machine from its root file system.

        Raises:
            StartError: it did not start; nothing of it is left.
        """
        ...

    async def restore(self, spec: MachineSpec, checkpoint: Path) -> Machine:
        """Start a machine from a checkpoint; ``rootfs``, ``agent`` and ``memory_mib`` must be those it was saved with.

        Raises:
            StartError: it did not start; nothing of it is left.
        """
        ...

    async def adopt(self, spec: MachineSpec) -> Machine | None:
        """Take over a machine that an earlier process of ours left running or paused; None if it runs no more."""
        ...

    async def sweep(self, spec: MachineSpec) -> None:
        """Remove whatever is left of a machine that no process owns: processes, cgroups, mounts, files; repeatable."""
        ...
