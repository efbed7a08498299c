"""Between the terminal or pipes that the command line was started with and a command in a sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from sandyard.cli.blocking import write
from sandyard.errors import InvalidRequestError, SandyardError
from sandyard.guest import STDERR, ExecResult, Process, PtySize

_CHUNK = 64 * 1024


def window_size() -> PtySize:
    """Return the size of the terminal on stdout, 24 by 80 where there is none."""
    columns, rows = shutil.get_terminal_size()
    return PtySize(rows=rows, cols=columns)


def require_terminal() -> None:
    """Refuse a terminal session whose input is not a terminal.

    Raises:
        InvalidRequestError: stdin is a pipe or a file.
    """
    if not sys.stdin.isatty():
        raise InvalidRequestError(
            "-i with -t wants a terminal, and stdin is not one.",
            hint="Leave out -t to pipe input in.",
            code="not-a-terminal",
        )


async def connect(process: Process, *, stdin: bool, pty: bool) -> ExecResult:
    """Carry bytes both ways until the command ends, and return how it ended."""
    async with _typing(process, stdin=stdin, pty=pty):
        async for channel, data in process:
            await write(2 if channel == STDERR else 1, data)
        return await process.wait()


@asynccontextmanager
async def _typing(process: Process, *, stdin: bool, pty: bool) -> AsyncIterator[None]:
    """Send what is typed or piped, and follow the window's size, for as long as the command runs."""
    loop = asyncio.get_running_loop()
    feeder = asyncio.create_task(_feed(process)) if stdin else None
    resizer: set[asyncio.Task[None]] = set()

    def resized() -> None:
        task = asyncio.create_task(_resize(process))
        resizer.add(task)
        task.add_done_callback(resizer.discard)

    if pty:
        loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        with _raw_terminal() if stdin and pty else _as_it_is():
            yield
    finally:
        if pty:
            loop.remove_signal_handler(signal.SIGWINCH)
        if feeder is not None:
            feeder.cancel()
            await asyncio.wait({feeder})


async def _resize(process: Process) -> None:
    with suppress(SandyardError):  # it has just ended
        await process.resize(window_size())


async def _feed(process: Process) -> None:
    """Send stdin until it ends; that the command did not want all of it is its own business."""
    with suppress(SandyardError):
        async for data in _stdin():
            await process.write(data)
        await process.close_stdin()


async def _stdin() -> AsyncIterator[bytes]:
    """Yield what arrives on stdin. No thread waits for it: one would keep the process from ending."""
    loop = asyncio.get_running_loop()
    fd = sys.stdin.fileno()
    while True:
        ready = loop.create_future()
        try:
            loop.add_reader(fd, _set, ready)
        except PermissionError:  # a regular file is always ready, and epoll will not have it
            ready.set_result(None)
        try:
            await ready
        finally:
            with suppress(PermissionError):
                loop.remove_reader(fd)
        data = os.read(fd, _CHUNK)
        if not data:
            return
        yield data


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Hand every key to the sandbox, Ctrl-C included."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
