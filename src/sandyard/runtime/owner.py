"""Which process owns a sandbox: a lock on a file that the kernel lets go when the process dies, however it dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Self


class OwnerLock:
    """A held lock; the file names the holder's pid for those who are refused."""

    def __init__(self, path: Path, fd: int) -> None:
        """Take over a locked descriptor; use ``take``."""
        self.path = path
        self._fd = fd

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Lock the file, made if need be; None if another process, or another runtime in this one, holds it."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_current = _is_current(fd, path)  # else the former owner removed it between our open and our lock
                if is_current:
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, str(os.getpid()).encode(), 0)
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:  # a full disk has no room for the pid
                os.close(fd)
                raise
            if is_current:
                return cls(path, fd)
            os.close(fd)

    @classmethod
    async def wait(cls, path: Path) -> Self:
        """Lock the file, waiting for whoever holds it."""
        delay = 0.005
        while (lock := cls.take(path)) is None:
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.2)
        return lock

    def release(self, *, remove: bool = False) -> None:
        """Let it go; ``remove`` the file too where nobody will ask for it again."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._fd)


def holder(path: Path) -> str:
    """Return the pid that the file names, for an error message; ``?`` where it names none."""
    try:
        return path.read_text().strip() or "?"
    except OSError:
        return "?"


def _is_current(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
