"""A sandbox's states, on the fake driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.drivers.fake import FakeHost
from sandyard.errors import (
    InvalidRequestError,
    InvalidSpecError,
    NoSpaceError,
    OutOfMemoryError,
    SandboxGoneError,
    SandboxNotFoundError,
    SandboxStateError,
    SnapshotNotFoundError,
    StartError,
)
from sandyard.runtime import Boot, Command, Runtime, Sandbox, SandboxSpec, State

from .conftest import ManualClock, needs_root

pytestmark = needs_root


async def say(sandbox: Sandbox, *words: str) -> bytes:
    return (await sandbox.run(Command(argv=words))).check().stdout


def states(runtime_events: Sequence[object]) -> list[tuple[str | None, str, str]]:
    return [
        (event.data.get("doing"), event.data["phase"], event.data["to"])  # type: ignore[attr-defined]
        for event in runtime_events
        if event.kind == "state"  # type: ignore[attr-defined]
    ]


async def test_first_sandbox_of_an_image_makes_the_template_and_the_next_ones_use_it(runtime, spec) -> None:
    first = await runtime.create(spec)
    second = await runtime.create(spec)
    assert (first.row.boot, second.row.boot) == (Boot.COLD, Boot.TEMPLATE)
    assert list(first.steps_ms) == ["image", "boot", "attach", "template", "introduce"]
    assert list(second.steps_ms) == ["image", "restore", "attach", "introduce"]
    assert await say(first, "echo", "hi") == await say(second, "echo", "hi") == b"hi\n"


async def test_two_first_sandboxes_at_once_make_one_template(runtime, spec) -> None:
    made = await asyncio.gather(*(runtime.create(spec) for _ in range(5)))
    assert sorted(sandbox.row.boot for sandbox in made) == [Boot.COLD] + [Boot.TEMPLATE] * 4


async def test_another_machine_shape_has_another_template(runtime, spec) -> None:
    await runtime.create(spec)
    other = await runtime.create(replace(spec, memory_mib=512))
    assert other.row.boot == Boot.COLD


async def test_id_hostname_and_entropy_differ_between_copies(runtime, spec) -> None:
    parent = await runtime.create(spec)
    forks = await runtime.fork(parent.id, 3)
    everyone = [parent, *forks, await runtime.create(spec)]
    names = {(await say(sandbox, "hostname")).decode().strip() for sandbox in everyone}
    assert names == {sandbox.id.replace("_", "-") for sandbox in everyone}
    async with parent.awake() as a, forks[0].awake() as b:
        assert (await a.info()).boot_id != (await b.info()).boot_id


async def test_every_transition_is_written_before_and_after(runtime, spec) -> None:
    sandbox = await runtime.create(spec)
    await sandbox.pause()
    await sandbox.resume()
    await sandbox.sleep()
    await sandbox.wake()
    await sandbox.delete()
    assert states(await runtime.events(sandbox.id)) == [
        (None, "begin", "creating"),
        ("create", "begin", "creating"),
        ("create", "end", "running"),
        ("pause", "begin", "running"),
        ("pause", "end", "paused"),
        ("resume", "begin", "paused"),
        ("resume", "end", "running"),
        ("sleep", "begin", "running"),
        ("sleep", "end", "asleep"),
        ("wake", "begin", "asleep"),
        ("wake", "end", "running"),
        ("delete", "begin", "running"),
        ("delete", "end", "deleted"),
    ]


@pytest.mark.parametrize("put", [Sandbox.pause, Sandbox.sleep])
async def test_a_call_wakes_whatever_sleeps(runtime, spec, put) -> None:
    sandbox = await runtime.create(spec)
    async with sandbox.awake() as guest:
        await guest.write("/kept", b"before")
    await put(sandbox)
    async with sandbox.awake() as guest:
        assert await guest.read_bytes("/kept") == b"before"
    assert sandbox.state is State.RUNNING


async def test_pausing_twice_and_sleeping_paused_ones(runtime, spec) -> None:
    sandbox = await runtime.create(spec)
    await sandbox.pause()
    await sandbox.pause()
    assert sandbox.state is State.PAUSED
    await sandbox.sleep()
    await sandbox.sleep()
    await sandbox.pause()
    assert sandbox.state is State.ASLEEP
    assert await say(sandbox, "echo", "up") == b"up\n"


# scenario 8: two clients resume the same sandbox at once
async def test_many_callers_wake_a_sandbox_once(runtime, spec) -> None:
    sandbox = await runtime.create(spec)
    await sandbox.sleep()
    assert await asyncio.gather(*(say(sandbox, "echo", str(n)) for n in range(8))) == [b"%d\n" % n for n in range(8)]
    assert states(await runtime.events(sandbox.id)).count(("wake", "end", "running")) == 1


# scenario 1 (P0): what was written between two pauses is there after the second
async def test_files_of_every_waking_hour_are_kept(runtime, spec) -> None:
    sandbox = await runtime.create(spec)
    for name in "abc":
        async with sandbox.awake() as guest:
            await guest.write(f"/{name}", name.encode())
        await sandbox.sleep()
    async with (await runtime.get(sandbox.id)).awake() as guest:
        assert [await guest.read_bytes(f"/{name}") for name in "abc"] == [b"a", b"b", b"c"]


async def test_an_open_stream_goes_on_after_sleep_and_wake(runtime, spec) -> None:
    sandbox = await runtime.create(spec)
    async with sandbox.exec(Command(argv=["cat"], stdin=True)) as process:
        await process.write(b"one ")
        await sandbox.sleep()
        assert sandbox.state is State.ASLEEP
        await sandbox.wake()
        await process.write(b"two")
        await process.close_stdin()
        assert (await process.collect()).stdout == b"one two"


# scenario 2 and 12 (P0): a save that fails leaves the sandbox running
@pytest.mark.parametrize("was_paused", [False, True])
async def test_a_full_disk_leaves_the_sandbox_as_it_was(runtime, spec, host: FakeHost, was_paused) -> None:
    sandbox = await runtime.create(spec)
    async with sandbox.awake() as guest:
        await guest.write("/kept", b"x")
    if was_paused:
        await sandbox.pause()
    host.faults.disk_full = True
    for save in (sandbox.sleep, lambda: runtime.snapshots.take(sandbox), lambda: runtime.fork(sandbox.id)):
        with pytest.raises(NoSpaceError):
            await save()
        assert sandbox.state is (State.PAUSED if was_paused else State.RUNNING)
    host.faults.disk_full = False
    async with sandbox.awake() as guest:
        assert await guest.read_bytes("/kept") == b"x"
    assert await runtime.snapshots.kept() == []
    assert states(await runtime.events(sandbox.id)).count(("sleep", "failed", sandbox_state(was_paused))) == 1


def sandbox_state(was_paused: bool) -> str:
    return "paused" if was_paused else "running"


async def test_without_room_for_a_template_a_sandbox_still_starts(runtime, spec, host: FakeHost) -> None:
    host.faults.disk_full = True
    sandbox = await runtime.create(spec)
    assert await say(sandbox, "echo", "hi") == b"hi\n"
    host.faults.disk_full = False
    assert "template-failed" in {event.kind for event in await runtime.events(sandbox.id)}


async def test_a_wake_that_fails_leaves_it_asleep_and_the_next_one_works(runtime, spec, host: FakeHost) -> None:
    sandbox = await runtime.create(spec)
    await sandbox.sleep()
    host.faults.starts.append(StartError("no luck.", hint="Try again."))
    with pytest.raises(StartError, match="no luck"):
        await sandbox.wake()
    assert sandbox.state is State.ASLEEP
    assert await say(sandbox, "echo", "up") == b"up\n"


async def test_a_start_that_fails_leaves_nothing(runtime, spec, host: FakeHost, tmp_path: Path) -> None:
    host.faults.starts.append(StartError("no luck.", hint="Try again."))
    with pytest.raises(StartError):
        await runtime.create(spec)
    await runtime.close()
    assert host.bodies == {}
    assert await sandboxes_dir(tmp_path) == []


async def sandboxes_dir(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "state" / "sandboxes").iterdir()]


# scenario 36: Ctrl-C in the middle of create
async def test_a_create_that_is_cancelled_leaves_nothing(runtime, spec, host: FakeHost, tmp_path: Path) -> None:
    await runtime.create(spec)
    host.faults.restore_s = 0.05
    creating = asyncio.create_task(runtime.create(spec))
    while len(await runtime.sandboxes()) < 2:
        await asyncio.sleep(0.005)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert len(await runtime.sandboxes()) == 1


async def test_a_template_that_does_not_start_is_made_anew(runtime, spec, host: FakeHost) -> None:
    await runtime.create(spec)
    host.faults.starts.append(StartError("corrupt.", hint="Make it anew."))
    with pytest.raises(StartError):
        await runtime.create(spec)
    assert (await runtime.create(spec)).row.boot == Boot.COLD


# scenario 81 and 26 (P0): what ended of itself says why, uses nothing more and can be deleted
async def test_a_sandbox_killed_for_memory_says_so(runtime, spec, host: FakeHost) -> None:
    sandbox = await runtime.create(spec)
    async with sandbox.exec(Command(argv=["sleep", "1000"])) as process:
        host.kill_for_memory(sandbox.id)
        with pytest.raises(SandboxGoneError):
            await process.wait()
    while sandbox.state is not State.FAILED:
        await asyncio.sleep(0.005)
    with pytest.raises(SandboxStateError, match="out of memory: it reached its limit of 256 MiB"):
        await say(sandbox, "true")
    await sandbox.delete()
    assert sandbox.state is State.DELETED


async def test_a_broken_call_tells_the_reason(runtime, spec, host: FakeHost) -> None:
    sandbox = await runtime.create(spec)

    async def use() -> None:
        async with sandbox.exec(Command(argv=["sleep", "1000"])) as process:
            host.kill_for_memory(sandbox.id)
            await process.wait()

    with pytest.raises(OutOfMemoryError, match="limit of 256 MiB") as caught:
        await use()
    assert caught.value.code == "out-of-memory"


async def test_a_crash_of_the_sandbox_fails_it_with_its_last_words(runtime, spec, host: FakeHost) -> None:
    sandbox = await runtime.create(spec)
    host.crash(sandbox.id, "panic: split brain")
    while sandbox.state is not State.FAILED:
        await asyncio.sleep(0.005)
    assert sandbox.row.reason == "fault: panic: split brain"


async def test_a_failed_sandbox_lives_again_from_its_snapshot(runtime, spec, host: FakeHost) -> None:
    sandbox = await runtime.create(spec)
    async with sandbox.awake() as guest:
        await guest.write("/kept", b"then")
    saved = await runtime.snapshots.take(sandbox)
    host.crash(sandbox.id)
    while sandbox.state is not State.FAILED:
        await asyncio.sleep(0.005)
    await runtime.restore(sandbox.id, saved.id)
    async with sandbox.awake() as guest:
        assert await guest.read_bytes("/kept") == b"then"


@pytest.mark.parametrize("put", [None, Sandbox.pause, Sandbox.sleep])
async def test_snapshot_and_restore_in_place(runtime, spec, put) -> None:
    sandbox = await runtime.create(spec)
    async with sandbox.awake() as guest:
        await guest.write("/f", b"old")
    if put is not None:
        await put(sandbox)
    state = sandbox.state
    saved = await runtime.snapshots.take(sandbox)
    assert sandbox.state is state
    async with sandbox.awake() as guest:
        await guest.write("/f", b"new")
    await runtime.restore(sandbox.id, saved.id)
    async with sandbox.awake() as guest:
        assert await guest.read_bytes("/f") == b"old"
    assert [row.id for row in await runtime.snapshots.kept()] == [saved.id]


async def test_a_snapshot_outlives_its_sandbox_and_is_deleted_by_name(runtime, spec, tmp_path: Path) -> None:
    sandbox = await runtime.create(spec)
    saved = await runtime.snapshots.take(sandbox)
    await sandbox.delete()
    assert (tmp_path / "state" / "snapshots" / saved.id).is_dir()
    await runtime.snapshots.delete(await runtime.snapshots.get(saved.id))
    assert not (tmp_path / "state" / "snapshots" / saved.id).exists()
    with pytest.raises(SnapshotNotFoundError):
        await runtime.snapshots.get(saved.id)


async def test_a_snapshot_is_restored_only_into_its_own_sandbox(runtime, spec) -> None:
    one, two = await runtime.create(spec), await runtime.create(spec)
    saved = await runtime.snapshots.take(one)
    with pytest.raises(InvalidRequestError, match=one.id):
        await runtime.restore(two.id, saved.id)


@pytest.mark.parametrize("put", [None, Sandbox.pause, Sandbox.sleep])
async def test_forks_go_on_from_the_moment_and_apart(runtime, spec, put) -> None:
    parent = await runtime.create(spec)
    async with parent.awake() as guest:
        await guest.write("/f", b"shared")
    if put is not None:
        await put(parent)
    state = parent.state
    forks = await runtime.fork(parent.id, 3)
    assert parent.state is state
    assert {fork.row.parent for fork in forks} == {parent.id}
    async with forks[0].awake() as guest:
        await guest.write("/f", b"mine")
    for sandbox, content in ((forks[0], b"mine"), (forks[1], b"shared"), (forks[2], b"shared"), (parent, b"shared")):
        async with sandbox.awake() as guest:
            assert await guest.read_bytes("/f") == content


async def test_a_fork_of_which_one_fails_leaves_none(runtime, spec, host: FakeHost) -> None:
    parent = await runtime.create(spec)
    host.faults.starts.append(StartError("no luck.", hint="Try again."))
    with pytest.raises(StartError):
        await runtime.fork(parent.id, 4)
    assert [row.id for row in await runtime.sandboxes()] == [parent.id]


@pytest.mark.parametrize("count", [0, 101, -1])
async def test_impossible_forks_are_refused(runtime, spec, count) -> None:
    parent = await runtime.create(spec)
    with pytest.raises(InvalidRequestError, match="1 to 100"):
        await runtime.fork(parent.id, count)


async def test_delete_is_final_and_leaves_nothing(runtime, spec, host: FakeHost, tmp_path: Path) -> None:
    sandbox = await runtime.create(spec)
    await sandbox.delete()
    await sandbox.delete()
    with pytest.raises(SandboxNotFoundError):
        await runtime.get(sandbox.id)
    with pytest.raises(SandboxStateError):
        await say(sandbox, "true")
    await runtime.close()
    assert host.leftovers(sandbox.id) == []
    assert await sandboxes_dir(tmp_path) == []
    assert list((tmp_path / "state" / "locks").iterdir()) == []


async def test_unknown_ids_are_refused(runtime) -> None:
    with pytest.raises(SandboxNotFoundError, match="sb_nobody"):
        await runtime.get("sb_nobody")
    with pytest.raises(SandboxNotFoundError):
        await runtime.events("sb_nobody")


# -- clocks -----------------------------------------------------------------------------------------------------------


async def test_it_sleeps_after_its_idle_time_and_not_before(runtime, spec, clock: ManualClock) -> None:
    sandbox = await runtime.create(replace(spec, sleep_after_s=30))
    await runtime.tick()
    clock.advance(29)
    await runtime.tick()
    assert sandbox.state is State.RUNNING
    clock.advance(1)
    await runtime.tick()
    assert sandbox.state is State.ASLEEP


# scenario 33: a long command without any call counts as activity
async def test_a_running_command_keeps_it_awake(runtime, spec, clock: ManualClock) -> None:
    sandbox = await runtime.create(replace(spec, sleep_after_s=30))
    async with sandbox.exec(Command(argv=["sleep", "1000"])):
        clock.advance(100)
        await runtime.tick()
        assert sandbox.state is State.RUNNING
    clock.advance(31)
    await runtime.tick()
    assert sandbox.state is State.ASLEEP


async def test_a_hold_from_inside_keeps_it_awake_until_it_ends(runtime, spec, clock: ManualClock, host) -> None:
    sandbox = await runtime.create(replace(spec, sleep_after_s=30))
    async with sandbox.awake() as guest:
        held_until_ms = await guest.hold(600)
    clock.seconds = held_until_ms / 1000 - 1
    await runtime.tick()
    assert sandbox.state is State.RUNNING
    clock.advance(32)
    await runtime.tick()
    assert sandbox.state is State.ASLEEP


async def test_never_sleeps_where_nobody_wants_it(runtime, spec, clock: ManualClock) -> None:
    sandbox = await runtime.create(replace(spec, sleep_after_s=None))
    clock.advance(1e6)
    await runtime.tick()
    assert sandbox.state is State.RUNNING


@pytest.mark.parametrize("put", [None, Sandbox.pause, Sandbox.sleep])
async def test_its_life_ends_with_its_ttl_whatever_it_does(runtime, spec, clock: ManualClock, put) -> None:
    sandbox = await runtime.create(replace(spec, sleep_after_s=None, ttl_s=3600))
    if put is not None:
        await put(sandbox)
    clock.advance(3599)
    await runtime.tick()
    assert sandbox.state is not State.DELETED
    clock.advance(1)
    await runtime.tick()
    assert sandbox.state is State.DELETED
    assert (await runtime.events(sandbox.id))[-1].data["reason"] == "ttl"


# scenario 5 (P0): none of many ends early
async def test_of_many_with_a_ttl_none_ends_early(runtime, spec, clock: ManualClock) -> None:
    made = [await runtime.create(replace(spec, sleep_after_s=None, ttl_s=100 + n)) for n in range(20)]
    for _ in range(99):
        clock.advance(1)
        await runtime.tick()
    assert [sandbox.state for sandbox in made] == [State.RUNNING] * 20
    clock.advance(20)
    await runtime.tick()
    assert {sandbox.state for sandbox in made} == {State.DELETED}


async def test_a_sleeper_that_nobody_loaded_still_ends_in_time(open_runtime, spec, clock: ManualClock) -> None:
    first = await open_runtime()
    sandbox = await first.create(replace(spec, ttl_s=60))
    await first.close()
    second = await open_runtime()
    clock.advance(61)
    await second.tick()
    assert await second.sandboxes() == []
    assert (await second.events(sandbox.id))[-1].data["to"] == "deleted"


# -- pool -------------------------------------------------------------------------------------------------------------


async def test_the_pool_hands_each_copy_out_once(runtime, spec) -> None:
    await runtime.warm(spec, 3)
    assert await runtime.sandboxes() == []
    made = await asyncio.gather(*(runtime.create(spec) for _ in range(3)))
    assert [sandbox.row.boot for sandbox in made] == [Boot.POOL] * 3
    assert len({sandbox.id for sandbox in made}) == 3
    assert {(await say(sandbox, "hostname")).decode().strip() for sandbox in made} == {
        sandbox.id.replace("_", "-") for sandbox in made
    }


async def test_the_pool_is_refilled_behind_and_survives_dead_copies(runtime, spec, host: FakeHost) -> None:
    await runtime.warm(spec, 2)
    for body in list(host.bodies):
        host.crash(body)
    sandbox = await runtime.create(spec)
    assert sandbox.row.boot in {Boot.POOL, Boot.TEMPLATE}
    assert await say(sandbox, "echo", "hi") == b"hi\n"


async def test_a_claimed_copy_has_the_callers_spec(runtime, spec, clock: ManualClock) -> None:
    await runtime.warm(spec, 1)
    clock.advance(500)
    mine = replace(spec, env={"MINE": "1"}, metadata={"who": "me"}, ttl_s=60)
    sandbox = await runtime.create(mine)
    assert sandbox.row.boot == Boot.POOL
    assert sandbox.row.expires_ms == clock.now_ms() + 60_000
    assert b"MINE=1" in await say(sandbox, "env")


async def test_nothing_of_the_pool_is_left_at_the_end(runtime, spec, host: FakeHost) -> None:
    await runtime.warm(spec, 3)
    await runtime.close()
    assert host.bodies == {}


async def test_prune_keeps_every_image_that_something_needs(runtime, spec, tmp_path: Path) -> None:
    sandbox = await runtime.create(spec)
    assert list(await runtime.prune_images()) == []
    saved = await runtime.snapshots.take(sandbox)
    await sandbox.delete()
    assert list(await runtime.prune_images()) == []
    await runtime.snapshots.delete(saved)
    assert [image.digest for image in await runtime.prune_images()] == [sandbox.row.image_digest]
    assert list((tmp_path / "state" / "snapshots").iterdir()) == []  # its template went with it
    assert (await runtime.create(spec)).row.boot == Boot.COLD


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"memory_mib": 0}, "memory is 0 MiB"),
        ({"memory_mib": 10**9}, "memory is 1000000000 MiB"),
        ({"cpus": 0}, "cpus is 0"),
        ({"cpus": 10_000}, "cpus is 10000"),
        ({"cpus": float("nan")}, "cpus is nan"),
        ({"env": {"A=B": "x"}}, "'A=B'"),
        ({"env": {"A\0": "x"}}, "NUL"),
        ({"env": {"": "x"}}, "empty"),
        ({"env": {"A": "x\0y"}}, "value of 'A'"),
        ({"ttl_s": 0}, "ttl is 0"),
        ({"sleep_after_s": -1}, "sleep_after is -1"),
        ({"workdir": "here"}, "workdir is 'here'"),
        ({"metadata": {"a b": "x"}}, "metadata key 'a b'"),
    ],
)
async def test_specs_that_can_never_run_name_the_field(runtime, spec, changes, finding) -> None:
    with pytest.raises(InvalidSpecError, match=finding):
        await runtime.create(replace(spec, **changes))
    assert await runtime.sandboxes() == []


async def test_all_that_is_wrong_is_said_at_once(runtime: Runtime, spec: SandboxSpec) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        await runtime.create(replace(spec, cpus=0, memory_mib=0, ttl_s=-5))
    assert all(part in str(caught.value) for part in ("cpus is 0", "memory is 0 MiB", "ttl is -5"))
