"""Machines in memory: a driver that keeps the whole Driver promise without isolation, for tests and trying things out.

Its machines have a file system, processes, a clock and an agent that speaks the real protocol; they can be paused,
saved, restored and found again after a crash. Nothing of it may run what nobody trusts.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandyard.drivers.driver import After, ExitReason, MachineExit, MachineSpec, MachineUsage
from sandyard.drivers.fake_agent import Clocks, FakeAgent
from sandyard.drivers.fake_state import MachineState
from sandyard.errors import NoSpaceError, SandboxGoneError, SandyardError, SnapshotError, StartError
from sandyard.units import MIB

_PIPE_BYTES = 1024 * 1024
_READ_BYTES = 1024 * 1024
_STATE_FILE = "fake.json"

_POLL_S = 0.005
"""How often a clock that is not the host's own is looked at while some process of a machine waits for it."""


class HostClock(Protocol):
    """The time of the host; tests move one of their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never step back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that long."""
        ...


class _SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 10**6

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class Faults:
    """What goes wrong on a host, as a test wants it."""

    starts: deque[SandyardError] = field(default_factory=deque)
    """Errors of the next boots and restores, one each."""

    silent: bool = False
    """Machines that start now have an agent that never says anything."""

    disk_full: bool = False
    """Every checkpoint runs out of space."""

    checkpoints: deque[SandyardError] = field(default_factory=deque)
    """Errors of the next checkpoints, one each."""

    restore_s: float = 0.0
    """How long a restore takes."""

    disk_bytes: int = 1024 * MIB
    """How much a machine that starts now can write."""


class FakeHost:
    """What outlives a driver object: the machines that run. Two drivers on one host are two processes of ours."""

    def __init__(self, *, clock: HostClock | None = None, version: str = "fake-1") -> None:
        """Start with no machine."""
        self.clock: HostClock = clock or _SystemClock()
        self.is_system_clock = clock is None
        self.version = version
        self.faults = Faults()
        self.bodies: dict[str, _Body] = {}

    def kill_for_memory(self, machine_id: str) -> None:
        """Have the kernel kill a machine for its memory."""
        body = self.bodies[machine_id]
        body.end(MachineExit(ExitReason.MEMORY, f"it reached its limit of {body.spec.memory_mib} MiB"))

    def crash(self, machine_id: str, detail: str = "panic: the fake sandbox kernel broke") -> None:
        """Have a machine end by itself."""
        self.bodies[machine_id].end(MachineExit(ExitReason.FAULT, detail))

    def leftovers(self, machine_id: str) -> list[str]:
        """Return what the host still has of a machine."""
        return [f"machine {machine_id}"] if machine_id in self.bodies else []


class FakeDriver:
    """The driver ``fake``."""

    name = "fake"

    def __init__(self, host: FakeHost | None = None) -> None:
        """Work on ``host``; by default one of its own."""
        self.host = host or FakeHost()

    async def version(self) -> str:
        """Return the host's version."""
        return self.host.version

    async def boot(self, spec: MachineSpec) -> FakeMachine:
        """Start a machine with the fake's own files; of the root file system only its being there matters."""
        self._check(spec)
        return self._start(spec, FakeAgent.fresh(spec.hostname), was_saved=False)

    async def restore(self, spec: MachineSpec, checkpoint: Path) -> FakeMachine:
        """Start an independent copy of what was saved."""
        if self.host.faults.restore_s:
            await self.host.clock.sleep(self.host.faults.restore_s)
        self._check(spec)
        return self._start(spec, self._load(spec, checkpoint), was_saved=True)

    async def adopt(self, spec: MachineSpec) -> FakeMachine | None:
        """Find a machine of the same host."""
        body = self.host.bodies.get(spec.id)
        if body is None or body.exit.done():
            return None
        body.must_interrupt = True
        return FakeMachine(spec, body)

    async def sweep(self, spec: MachineSpec) -> None:
        """Forget a machine, ended if it still runs."""
        body = self.host.bodies.pop(spec.id, None)
        if body is not None:
            body.end(MachineExit(ExitReason.KILLED))

    def _check(self, spec: MachineSpec) -> None:
        if self.host.faults.starts:
            raise self.host.faults.starts.popleft()
        if spec.network.mode != "none":
            raise StartError(f"the fake driver knows no network mode '{spec.network.mode}'.", hint="Use 'none'.")
        if not spec.rootfs.is_dir():
            raise StartError(f"there is no root file system at {spec.rootfs}.", hint="Unpack the image first.")
        if spec.id in self.host.bodies:
            raise StartError(f"a machine {spec.id} exists already.", hint="Sweep it first.")

    def _start(self, spec: MachineSpec, state: MachineState, *, was_saved: bool) -> FakeMachine:
        body = _Body(self.host, spec, state, was_saved=was_saved)
        self.host.bodies[spec.id] = body
        return FakeMachine(spec, body)

    def _load(self, spec: MachineSpec, checkpoint: Path) -> MachineState:
        try:
            header, _, text = (checkpoint / _STATE_FILE).read_text().partition("\n")
            state = MachineState.load(text)
        except (OSError, ValueError) as error:
            raise StartError(f"the checkpoint {checkpoint} cannot be read: {error}.", hint="Use another.") from error
        wanted = _header(self.host, spec)
        if header != wanted:
            raise StartError(
                f"the checkpoint was made as '{header}' and cannot be restored as '{wanted}'.",
                hint="Restore with the version, image, agent and memory that it was saved with.",
            )
        return state


class FakeMachine:
    """One process's handle of a machine."""

    def __init__(self, spec: MachineSpec, body: _Body) -> None:
        """Hold a machine of the host."""
        self.spec = spec
        self._body = body

    async def connect(self) -> _FakeChannel:
        """Open both pipes; the channel before is closed."""
        return self._body.connect()

    async def pause(self) -> None:
        """Stop the machine's time."""
        self._body.freeze()

    async def resume(self) -> None:
        """Let it go on."""
        self._body.thaw()

    async def checkpoint(self, to: Path, after: After) -> None:
        """Write everything down as JSON."""
        body = self._body
        if body.exit.done() or body.is_frozen:
            raise SnapshotError(
                f"machine {self.spec.id} is not running and cannot be saved.",
                hint="Resume it, or look at how it ended.",
            )
        part = to.with_name(f"{to.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            body.save(part / _STATE_FILE)
            part.rename(to)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        if after is After.STOP:
            body.end(MachineExit(ExitReason.STOPPED))

    def usage(self) -> MachineUsage:
        """Read the figures that follow from its processes and its clock."""
        return self._body.usage()

    def oom_kills(self) -> int:
        """Return 0: here the kernel kills whole machines only."""
        return 0

    async def wait(self) -> MachineExit:
        """Return how it ended."""
        return await asyncio.shield(self._body.exit)

    async def kill(self) -> None:
        """End it."""
        self._body.end(MachineExit(ExitReason.KILLED))

    async def remove(self) -> None:
        """End it and have the host forget it."""
        await self.kill()
        bodies = self._body.host.bodies
        if bodies.get(self.spec.id) is self._body:
            del bodies[self.spec.id]


def _header(host: FakeHost, spec: MachineSpec) -> str:
    return f"{host.version} {spec.memory_mib} MiB {spec.rootfs} {spec.agent}"


class _Pipe:
    """A bounded pipe that outlives those at its ends."""

    def __init__(self) -> None:
        self.data: deque[bytes] = deque()
        self.size = 0
        self.changed: list[asyncio.Future[None]] = []

    def room(self) -> int:
        return _PIPE_BYTES - self.size

    def put(self, data: bytes) -> None:
        self.data.append(data)
        self.size += len(data)
        self.notify()

    def get(self, most: int) -> bytes:
        parts = []
        left = most
        while self.data and left:
            part = self.data.popleft()
            if len(part) > left:
                self.data.appendleft(part[left:])
                part = part[:left]
            parts.append(part)
            left -= len(part)
        self.size -= most - left
        self.notify()
        return b"".join(parts)

    def notify(self) -> None:
        waiters, self.changed = self.changed, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self.changed.append(waiter)
        await waiter


class _FakeChannel:
    """The host's end of a machine's pipes."""

    def __init__(self, body: _Body, *, is_interrupted: bool) -> None:
        self.is_interrupted = is_interrupted
        self._body = body
        self._closed = False

    async def read(self) -> bytes:
        pipe = self._body.to_host
        while not self._closed:
            if pipe.size:
                data = pipe.get(_READ_BYTES)
                self._body.kick()
                return data
            await pipe.wait()
        return b""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(bytes(data))
        pipe = self._body.to_agent
        while rest:
            if self._closed:
                raise SandboxGoneError(
                    "the sandbox ended, or its connection was given up, while something was sent to it.",
                    hint="Look at its events for the reason.",
                )
            room = pipe.room()
            if room:
                pipe.put(bytes(rest[:room]))
                rest = rest[room:]
                self._body.kick()
            else:
                await pipe.wait()

    def close(self) -> None:
        self._closed = True
        self._body.to_host.notify()
        self._body.to_agent.notify()


class _Body:
    """A machine itself: its agent, its pipes, its time."""

    def __init__(self, host: FakeHost, spec: MachineSpec, state: MachineState, *, was_saved: bool) -> None:
        self.host = host
        self.spec = spec
        self.to_agent = _Pipe()
        self.to_host = _Pipe()
        self.must_interrupt = False
        self.is_frozen = False
        self.exit: asyncio.Future[MachineExit] = asyncio.get_running_loop().create_future()
        self._is_silent = host.faults.silent
        self._channel: _FakeChannel | None = None
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ran_s = state.clock_s
        self._since_s = host.clock.monotonic_s()
        self._cpu_us = 0.0
        self._peak_bytes = 0
        clocks = Clocks(machine_s=self._machine_s, wall_ns=lambda: host.clock.now_ms() * 10**6)
        self._agent = FakeAgent(state, clocks, capacity=host.faults.disk_bytes, was_saved=was_saved)
        self.kick()

    # -- the host's doing ----------------------------------------------------------------------------------------------

    def connect(self) -> _FakeChannel:
        if self._channel is not None:
            self._channel.close()
        interrupts, self.must_interrupt = self.must_interrupt, False
        if interrupts:
            self.thaw()
            self._agent.interrupt()
        self._channel = _FakeChannel(self, is_interrupted=interrupts)
        if self.exit.done():
            self._channel.close()
        self.kick()
        return self._channel

    def freeze(self) -> None:
        if not self.is_frozen:
            self._account()
            self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen:
            self.is_frozen = False
            self._since_s = self.host.clock.monotonic_s()
            self.kick()

    def save(self, path: Path) -> None:
        faults = self.host.faults
        if faults.checkpoints:
            raise faults.checkpoints.popleft()
        self._account()
        self._agent.state.clock_s = self._ran_s
        text = f"{_header(self.host, self.spec)}\n{self._agent.state.dump()}"
        if faults.disk_full:
            path.write_text(text[: len(text) // 2])
            raise NoSpaceError(
                f"the disk is full: the checkpoint of {self.spec.id} could not be written. The sandbox goes on.",
                hint="Free space under the state directory.",
            )
        path.write_text(text)

    def end(self, how: MachineExit) -> None:
        if self.exit.done():
            return
        self.thaw()
        self._account()
        self.exit.set_result(how)
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()
        if self._channel is not None:
            self._channel.close()

    def usage(self) -> MachineUsage:
        self._account()
        ended = self.exit.done()
        return MachineUsage(
            cpu_us=round(self._cpu_us),
            memory_bytes=0 if ended else self._agent.memory_bytes(),
            memory_peak_bytes=self._peak_bytes,
            disk_bytes=self._agent.files.used(),
        )

    # -- time ----------------------------------------------------------------------------------------------------------

    def _machine_s(self) -> float:
        if self.is_frozen or self.exit.done():
            return self._ran_s
        return self._ran_s + self.host.clock.monotonic_s() - self._since_s

    def _account(self) -> None:
        """Book the processor time and memory since the last time that this was called."""
        now = self._machine_s()
        elapsed, self._ran_s = now - self._ran_s, now
        self._since_s = self.host.clock.monotonic_s()
        self._cpu_us += elapsed * 1e6 * min(self._agent.busy(), self.spec.cpus)
        self._peak_bytes = max(self._peak_bytes, self._agent.memory_bytes())

    # -- at work -------------------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Let the machine do what it can, soon."""
        if self._scheduled is None and not self.exit.done():
            self._scheduled = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = None
        if self._timer is not None:
            self._timer.cancel()
        if self.is_frozen or self.exit.done() or self._is_silent:
            return
        self._account()
        agent = self._agent
        if self.to_agent.size and agent.wants_input:
            agent.feed(self.to_agent.get(_READ_BYTES))
        due_s = agent.turn()
        self._account()
        self._speak()
        if agent.memory_bytes() > self.spec.memory_mib * MIB:
            self.host.kill_for_memory(self.spec.id)
        elif agent.is_ended:
            self.end(MachineExit(ExitReason.FAULT, agent.end_detail))
        elif self.to_host.room() > 0 and ((self.to_agent.size and agent.wants_input) or agent.has_work()):
            self.kick()
        elif due_s is not None:
            self._wake_at(due_s)

    def _speak(self) -> None:
        while self.to_host.room() > 0:
            data = self._agent.take()
            if not data:
                return
            self.to_host.put(data)

    def _wake_at(self, due_s: float) -> None:
        delay = max(due_s - self._machine_s(), 0)
        if not self.host.is_system_clock:
            delay = min(delay, _POLL_S)
        self._timer = asyncio.get_running_loop().call_later(delay, self.kick)
