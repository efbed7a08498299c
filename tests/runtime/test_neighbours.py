"""Several processes on one state directory: none takes away what another is using."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandyard.drivers.fake import FakeHost
from sandyard.runtime import Command, Runtime, SandboxSpec

from .conftest import OpenRuntime, crash, needs_root

pytestmark = needs_root


async def until_forking(runtime: Runtime, count: int) -> None:
    while len(await runtime.sandboxes()) < count:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_asleep", [True, False])
async def test_a_process_that_starts_leaves_the_moment_of_a_fork_alone(
    open_runtime: OpenRuntime, spec: SandboxSpec, host: FakeHost, is_asleep
) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    async with sandbox.awake() as guest:
        await guest.write("/kept", b"x")
    if is_asleep:
        await sandbox.sleep()
    host.faults.restore_s = 0.2
    forking = asyncio.create_task(first.fork(sandbox.id, 2))
    await until_forking(first, 3)
    await open_runtime()
    for fork in await forking:
        assert (await fork.run(Command(argv=["cat", "/kept"]))).stdout == b"x"


async def test_a_snapshot_completed_while_another_process_starts_is_kept(
    open_runtime: OpenRuntime, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process sees it half made; by the time it looks at its maker, that one has finished and gone."""
    first = await open_runtime()
    sandbox = await first.create(spec)
    began, go_on = asyncio.Event(), asyncio.Event()
    complete = first._services.store.complete_snapshot

    async def wait_and_complete(*words):
        began.set()
        await go_on.wait()
        await complete(*words)

    monkeypatch.setattr(first._services.store, "complete_snapshot", wait_and_complete)
    taking = asyncio.create_task(first.snapshots.take(sandbox))
    await began.wait()
    second = await open_runtime()
    listed = await second._services.store.snapshots()

    async def what_it_saw():
        return listed

    go_on.set()
    saved = await taking
    await first.close()
    monkeypatch.setattr(second._services.store, "snapshots", what_it_saw)
    await second.snapshots.collect(await second._services.driver.version(), owned=())
    restored = await second.restore(sandbox.id, saved.id)
    assert (await restored.run(Command(argv=["echo", "back"]))).stdout == b"back\n"


async def test_the_moment_of_a_fork_that_was_cut_short_is_removed(
    open_runtime: OpenRuntime, spec: SandboxSpec, host: FakeHost
) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    await sandbox.sleep()
    host.faults.restore_s = 1000
    forking = asyncio.create_task(first.fork(sandbox.id, 2))
    await until_forking(first, 3)
    assert "fork" in {row.kind for row in await first._services.store.snapshots()}
    await crash(first)
    host.faults.restore_s = 0
    second = await open_runtime()
    assert {row.kind for row in await second._services.store.snapshots()} == {"template"}
    assert [row.id for row in await second.sandboxes()] == [sandbox.id]
    forking.cancel()


@pytest.mark.parametrize("was_asleep", [True, False])
async def test_half_a_checkpoint_that_a_killed_process_left_is_removed(
    open_runtime: OpenRuntime, spec: SandboxSpec, tmp_path: Path, was_asleep
) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    if was_asleep:
        await sandbox.sleep()
    await crash(first)
    directory = tmp_path / "state" / "sandboxes" / sandbox.id
    for name in ("sleep.part", "sleep.0011aabb.part"):  # being written; being removed
        (directory / name).mkdir()
        (directory / name / "pages.img").write_bytes(b"x")
    second = await open_runtime()
    again = await second.get(sandbox.id)
    await again.wake()
    await again.sleep()
    await second.close()
    assert [path.name for path in directory.iterdir() if path.is_dir()] == ["sleep"]
