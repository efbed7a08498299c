"""A runtime over the fake driver, with a clock that the test moves and one small real image."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandyard.drivers.fake import FakeDriver, FakeHost
from sandyard.runtime import Runtime, SandboxSpec, Settings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="images belong to root, and this is another user")

OpenRuntime = Callable[[], Awaitable[Runtime]]


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.seconds + seconds, waiter))
        await waiter

    def advance(self, seconds: float) -> None:
        """Move time on; those who slept until then wake at their next turn."""
        self.seconds += seconds
        for due, waiter in self._sleepers:
            if due <= self.seconds and not waiter.done():
                waiter.set_result(None)
        self._sleepers = [(due, waiter) for due, waiter in self._sleepers if not waiter.done()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def rootfs_tar(tmp_path: Path) -> Path:
    path = tmp_path / "rootfs.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("etc/hostname")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"tiny"))
    return path


@pytest.fixture
def spec(rootfs_tar: Path) -> SandboxSpec:
    return SandboxSpec(image=f"rootfs:{rootfs_tar}", memory_mib=256)


@pytest.fixture
async def open_runtime(tmp_path: Path, host: FakeHost, clock: ManualClock) -> AsyncIterator[OpenRuntime]:
    """Open runtimes on one state directory and one host; each stands for a process."""
    opened: list[Runtime] = []

    async def open_one() -> Runtime:
        runtime = await Runtime.open(
            tmp_path / "state", driver=FakeDriver(host), clock=clock, settings=Settings(start_timeout_s=5)
        )
        opened.append(runtime)
        return runtime

    yield open_one
    for runtime in opened:
        await runtime.close()


@pytest.fixture
async def runtime(open_runtime: OpenRuntime) -> Runtime:
    return await open_runtime()


async def crash(runtime: Runtime) -> None:
    """Do to a runtime what kill -9 does to its process: nothing is said goodbye to, and the kernel drops its locks."""
    if runtime._ticker is not None:
        runtime._ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await runtime._ticker
    sandboxes, runtime._owned = runtime._owned, {}
    for sandbox in sandboxes.values():
        for task in list(sandbox._tasks):
            task.cancel()
        if sandbox._guest is not None:
            await sandbox._guest.close()
        sandbox._owner.release()
