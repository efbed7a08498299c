"""A byte channel over a pair of named pipes, for agents that speak on stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path
from typing import Literal

from sandyard.errors import SandboxGoneError

PIPE_BYTES = 1024 * 1024
"""What each pipe is asked to hold; also the most that one read returns. The kernel's default ceiling."""

TO_AGENT = "stdin"
FROM_AGENT = "stdout"


def make_fifos(directory: Path) -> None:
    """Make both pipes anew, empty."""
    for name in (TO_AGENT, FROM_AGENT):
        path = directory / name
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)


def remove_fifos(directory: Path) -> None:
    """Remove both pipes."""
    for name in (TO_AGENT, FROM_AGENT):
        (directory / name).unlink(missing_ok=True)


def open_fifo(path: Path) -> int:
    """Open one pipe in a description of its own.

    Read-write, so that neither end ever sees the other close: the pipes outlive the processes at both ends, which is
    how a restarted host process finds its sandboxes again.
    """
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


class FifoChannel:
    """The host's end of both pipes."""

    def __init__(self, directory: Path, *, is_interrupted: bool = False) -> None:
        """Open the pipes in ``directory``; needs a running event loop."""
        self.is_interrupted = is_interrupted
        self._loop = asyncio.get_running_loop()
        self._out = open_fifo(directory / TO_AGENT)
        self._in = open_fifo(directory / FROM_AGENT)
        for fd in (self._in, self._out):
            with contextlib.suppress(PermissionError):  # past the user's pipe quota the default size works too
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._buffer = bytearray(PIPE_BYTES)
        self._writing = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._closed = False

    async def read(self) -> bytes:
        """Return what has arrived, waiting for the first byte; ``b""`` once closed."""
        while not self._closed:
            try:
                count = os.readv(self._in, [self._buffer])
            except BlockingIOError:
                await self._ready(self._in, "read")
            else:
                return bytes(memoryview(self._buffer)[:count])
        return b""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of it; one writer at a time, so that frames never mix."""
        async with self._writing:
            rest = memoryview(data)
            while rest:
                if self._closed:
                    raise SandboxGoneError(
                        "the sandbox ended, or its connection was given up, while something was sent to it.",
                        hint="Look at its events for the reason; a new call wakes it if it only sleeps.",
                    )
                try:
                    rest = rest[os.write(self._out, rest) :]
                except BlockingIOError:
                    await self._ready(self._out, "write")

    def close(self) -> None:
        """Close this end; the pipes stay."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._in)
        self._loop.remove_writer(self._out)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        os.close(self._in)
        os.close(self._out)

    async def _ready(self, fd: int, way: Literal["read", "write"]) -> None:
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        add, remove = (
            (self._loop.add_reader, self._loop.remove_reader)
            if way == "read"
            else (self._loop.add_writer, self._loop.remove_writer)
        )
        add(fd, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if not self._closed:
                remove(fd)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
