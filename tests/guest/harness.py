"""The two ends that the guest suite talks to: the fake's agent in memory, and the real one as an ordinary process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from pathlib import Path
from typing import Protocol

import sandyard
from sandyard.drivers import MachineSpec, fifo
from sandyard.drivers.fake import FakeDriver, FakeHost, FakeMachine
from sandyard.frames import Channel

AGENT = Path(sandyard.__file__).parent / "_agent" / "sandyard-agent"

ENVIRONMENT = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

_ENTER = """
set -e
mount --make-rprivate /
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mount -t proc proc /proc
ip link set lo up
exec "$2" agent
"""


class Peer(Protocol):
    """An agent that the host's half can be attached to, again and again."""

    kind: str
    box: str
    """A directory inside that tests write to; its parent is there, too."""

    async def connect(self, *, interrupt: bool = False) -> Channel:
        """Open a channel, as the machine's driver does; ``interrupt`` after a host process died."""
        ...

    async def kill(self) -> None:
        """End the machine at once."""
        ...


class FakePeer:
    """A fake machine."""

    kind = "fake"
    box = "/tmp"

    def __init__(self, machine: FakeMachine, driver: FakeDriver) -> None:
        self.machine = machine
        self.driver = driver

    @classmethod
    async def start(cls, directory: Path) -> FakePeer:
        driver = FakeDriver(FakeHost())
        spec = MachineSpec(
            id="sb_guest", directory=directory, rootfs=directory, agent=directory / "agent", cpus=1, memory_mib=256
        )
        return cls(await driver.boot(spec), driver)

    async def connect(self, *, interrupt: bool = False) -> Channel:
        if interrupt:
            adopted = await self.driver.adopt(self.machine.spec)
            assert adopted is not None
            self.machine = adopted
        return await self.machine.connect()

    async def kill(self) -> None:
        await self.machine.kill()

    async def stop(self) -> None:
        await self.machine.remove()


class RealPeer:
    """The agent's binary as PID 1 of namespaces of its own, so that it may set names and kill at will."""

    kind = "agent"

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.box = str(directory / "box")
        self._channel: fifo.FifoChannel | None = None
        self._watcher = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, directory: Path) -> RealPeer:
        (directory / "box").mkdir()
        fifo.make_fifos(directory)
        ends = [fifo.open_fifo(directory / name) for name in (fifo.TO_AGENT, fifo.FROM_AGENT)]
        try:
            process = await asyncio.create_subprocess_exec(
                *("unshare", "--pid", "--uts", "--mount", "--ipc", "--net", "--fork", "--kill-child"),
                *("sh", "-c", _ENTER, "sh", str(directory), str(AGENT)),
                stdin=ends[0],
                stdout=ends[1],
                env=ENVIRONMENT,
            )
        finally:
            for end in ends:
                os.close(end)
        return cls(process, directory)

    async def connect(self, *, interrupt: bool = False) -> Channel:
        if self._channel is not None:
            self._channel.close()
        if interrupt:
            os.kill(self.pid(), signal.SIGUSR1)
        self._channel = fifo.FifoChannel(self.directory, is_interrupted=interrupt)
        return self._channel

    def pid(self) -> int:
        """The agent's pid as the host sees it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    async def kill(self) -> None:
        os.kill(self.pid(), signal.SIGKILL)
        await self._watcher

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self._watcher

    async def _watch(self) -> None:
        await self.process.wait()
        if self._channel is not None:
            self._channel.close()


class ScriptedChannel:
    """A channel whose agent's side is the test: bytes are pushed, and what the host writes is kept."""

    def __init__(self) -> None:
        self.is_interrupted = False
        self.written = bytearray()
        self.is_closed = False
        self.blocks_writes = False
        self._arrived: deque[bytes] = deque()
        self._changed = asyncio.Event()

    def push(self, data: bytes) -> None:
        self._arrived.append(data)
        self._changed.set()

    def end(self) -> None:
        self.push(b"")

    async def read(self) -> bytes:
        while not self._arrived and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        return self._arrived.popleft() if self._arrived and not self.is_closed else b""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        while self.blocks_writes and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        self.written += data

    def close(self) -> None:
        self.is_closed = True
        self._changed.set()


def unavailable() -> str | None:
    """Say why the real agent cannot run here; None: it can."""
    if not AGENT.exists():
        return f"the agent is not built: run 'python scripts/build_agent.py' ({AGENT} is missing)"
    probe = subprocess.run(
        ["unshare", "--pid", "--uts", "--mount", "--ipc", "--net", "--fork", "ip", "link", "set", "lo", "up"],
        capture_output=True,
        check=False,
        env=ENVIRONMENT,
    )
    return None if probe.returncode == 0 else f"no namespaces for the agent: {probe.stderr.decode().strip()}"
