"""A disk that is full, under the state directory and with it inside the sandbox: it is told, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandyard.errors import NoSpaceError
from sandyard.runtime import Command, Runtime, Sandbox, SandboxSpec, State
from sandyard.units import MIB

from .conftest import Cli, checked, new_state_dir

AWAKE = SandboxSpec(sleep_after_s=None)


class Disk:
    """A small disk of the test's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def leave(self, free_bytes: int) -> None:
        """Fill it up to so much."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(64 * 1024))
        os.truncate(self._ballast, self._ballast.stat().st_size - free_bytes)

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    path = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", path], check=True)
    yield Disk(path)
    until = time.monotonic() + 10  # processes that have just died are letting go of it
    while subprocess.run(["umount", path], capture_output=True, check=False).returncode:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture
def small_cli(disk: Disk, rootfs: Path) -> Iterator[Cli]:
    """The command line on the small disk, which has room again when the test is over."""
    path = disk.path / "state"
    yield from checked(path if path.exists() else new_state_dir(path, rootfs), before=disk.empty)


@pytest.fixture
async def runtime(small_cli: Cli) -> AsyncIterator[Runtime]:
    async with await Runtime.open(small_cli.state_dir) as opened:
        yield opened


async def say(sandbox: Sandbox, line: str) -> str:
    return (await sandbox.run(Command(shell=line))).check().stdout.decode()


# the issue: a full disk during a checkpoint leaves the sandbox running; scenario 2 (P0): never half a snapshot
async def test_a_checkpoint_without_room_leaves_the_sandbox_running(runtime: Runtime, disk: Disk) -> None:
    sandbox = await runtime.create(AWAKE)
    hold = "import os, time; data = os.urandom(60_000_000); open('/ready', 'w'); time.sleep(1000)"
    holding = await sandbox.spawn(Command(argv=["python3", "-c", hold]))
    await say(sandbox, "until [ -e /ready ]; do sleep 0.1; done")
    disk.leave(30 * MIB)
    for save in (sandbox.sleep, lambda: runtime.snapshots.take(sandbox), lambda: runtime.fork(sandbox.id)):
        with pytest.raises(NoSpaceError):
            await save()
        assert sandbox.state is State.RUNNING
        async with sandbox.awake() as guest:
            assert [process.pid for process in await guest.processes()] == [holding.pid]
    assert await runtime.snapshots.kept() == []
    assert list(disk.path.rglob("*.part")) == []
    disk.empty()
    await sandbox.sleep()
    async with sandbox.awake() as guest:
        assert [process.pid for process in await guest.processes()] == [holding.pid]


# scenario 98: what is written inside has no room, and the sandbox lives on and can be saved
async def test_a_disk_that_is_full_inside_is_told_to_whoever_writes(runtime: Runtime, disk: Disk) -> None:
    sandbox = await runtime.create(AWAKE)
    await say(sandbox, "echo kept > /kept")
    disk.leave(20 * MIB)
    dd = await sandbox.run(Command(argv=["dd", "if=/dev/zero", "of=/big", "bs=1M", "count=100"]))
    assert dd.exit_code == 1
    assert b"No space left on device" in dd.stderr

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield bytes(MIB)

    async with sandbox.awake() as guest:
        with pytest.raises(NoSpaceError):
            await guest.write("/upload", pieces())
    assert await say(sandbox, "rm /big; cat /kept; ls -A / | grep -c upload; true") == "kept\n0\n"
    await sandbox.sleep()
    assert await say(sandbox, "cat /kept") == "kept\n"


async def test_on_a_disk_without_a_byte_left_everything_is_refused_and_deleting_works(
    runtime: Runtime, disk: Disk
) -> None:
    sleeper, runner = await runtime.create(AWAKE), await runtime.create(AWAKE)
    saved = await runtime.snapshots.take(sleeper)
    await sleeper.sleep()
    disk.leave(0)
    for ask in (
        sleeper.wake,
        runner.sleep,
        lambda: runtime.create(AWAKE),
        lambda: runtime.fork(runner.id),
        lambda: runtime.snapshots.take(runner),
    ):
        with pytest.raises(NoSpaceError):
            await ask()
    assert await say(runner, "echo still here") == "still here\n"
    assert sleeper.state is State.ASLEEP
    await sleeper.delete()
    await runtime.snapshots.delete(saved)
    await runner.delete()
    assert await runtime.sandboxes() == []


def test_the_command_line_says_that_the_disk_is_full(small_cli: Cli, disk: Disk) -> None:
    box = small_cli.keep("true")
    disk.leave(0)
    for words in (["run", "--", "true"], ["sandboxes", "exec", box, "true"], ["sandboxes", "fork", box]):
        done = small_cli(*words)
        said = done.stderr.decode()
        assert (done.returncode, "[no-space]" in said, "Traceback" in said) == (125, True, False), said
    disk.empty()
    assert small_cli.ok("sandboxes", "exec", box, "echo", "unharmed") == "unharmed\n"
