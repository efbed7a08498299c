"""Reads and writes that may block for ever: a pipe that nobody fills or empties does not keep this process from ending.

They go past Python's own buffers, whose locks would be held at the end.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def read(fd: int, most: int) -> bytes:
    """Return what is there, at most so much; nothing at the end."""
    return await _in_own_thread(partial(os.read, fd, most))


async def write(fd: int, data: bytes) -> None:
    """Write all of it; a reader that is slow makes only this wait."""
    await _in_own_thread(partial(_write_all, fd, data))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


async def _in_own_thread(work: Callable[[], T]) -> T:
    """Do it in a thread that dies with the process; the threads of ``asyncio.to_thread`` are waited for at the end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(say: Callable[[], None]) -> None:
        if not done.cancelled():
            say()

    def do() -> None:
        try:
            say = partial(done.set_result, work())
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            say = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, say)

    threading.Thread(target=do, daemon=True).start()
    return await done
