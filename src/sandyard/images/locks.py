"""Locks between processes, on files and folders, that end with the process however it ends (flock).

None is waited for in a thread: a waiting task can be cancelled.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from sandyard.images.commands import Scene

_RETRY_S = 0.05


@asynccontextmanager
async def exclusive(path: Path) -> AsyncIterator[None]:
    """Hold the lock file at ``path``; it exists only while somebody holds it or waits for it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is_at(descriptor, path):
                try:
                    yield
                finally:
                    path.unlink()
                return
        finally:
            os.close(descriptor)
        await asyncio.sleep(_RETRY_S)


@asynccontextmanager
async def joined_folder(path: Path) -> AsyncIterator[None]:
    """Use ``path`` beside others who do, after whoever has it to himself."""
    with ExitStack() as held:
        while True:
            with suppress(FileNotFoundError):
                held.enter_context(shared_folder(path))
                break
            await asyncio.sleep(_RETRY_S)
        yield


@contextmanager
def shared_folder(path: Path) -> Iterator[None]:
    """Keep others from having ``path`` to themselves, and so from removing it.

    Raises:
        FileNotFoundError: there is no such folder, or it is being removed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Whoever removes a folder first moves it away under an exclusive lock.
        if not _try_lock(descriptor, fcntl.LOCK_SH) or not _is_at(descriptor, path):
            raise FileNotFoundError(path)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def whole_folder(path: Path) -> Iterator[bool]:
    """Yield True with ``path`` held against everybody, False where somebody uses it or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _try_lock(descriptor, fcntl.LOCK_EX) and _is_at(descriptor, path)
    finally:
        os.close(descriptor)


@asynccontextmanager
async def staging(parent: Path) -> AsyncIterator[Scene]:
    """Make a folder below ``parent`` to prepare something in, and remove what is left of it afterwards.

    It stays locked until this process and the programs it started there are gone; then ``sweep`` may remove it.
    """
    while True:
        folder = parent / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # swept since the line above, as below
        try:
            if not _try_lock(descriptor, fcntl.LOCK_SH) or not _is_at(descriptor, folder):
                continue
            try:
                yield Scene(folder, descriptor)
            finally:
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder))
            return
        finally:
            os.close(descriptor)


def sweep(parent: Path) -> None:
    """Remove what dead processes left below ``parent``."""
    for folder in parent.iterdir():
        with whole_folder(folder) as is_dead:
            if is_dead:
                shutil.rmtree(folder)


def sweep_files(parent: Path) -> None:
    """Remove the lock files below ``parent`` whose holders died."""
    for path in parent.iterdir():
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _try_lock(descriptor, fcntl.LOCK_EX) and _is_at(descriptor, path):
                    path.unlink()
            finally:
                os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    """Say whether the locked thing is still what others find at ``path``."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))
