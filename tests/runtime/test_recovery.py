"""What becomes of sandboxes whose process dies, at any moment of any transition."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandyard.drivers import After, ExitReason, MachineExit, MachineSpec
from sandyard.drivers.fake import FakeDriver, FakeHost, FakeMachine
from sandyard.errors import SandboxLockedError, SandboxNotFoundError, StateVersionError
from sandyard.runtime import Command, Runtime, Sandbox, State

from .conftest import crash, needs_root

pytestmark = needs_root


async def content(sandbox: Sandbox, path: str) -> bytes:
    async with sandbox.awake() as guest:
        return await guest.read_bytes(path)


async def put(sandbox: Sandbox, path: str, data: bytes) -> None:
    async with sandbox.awake() as guest:
        await guest.write(path, data)


# scenario 6: a restarted host process lists and uses its sandboxes again
async def test_running_and_paused_sandboxes_are_taken_over(open_runtime, spec) -> None:
    first = await open_runtime()
    running, paused = await first.create(spec), await first.create(spec)
    await put(running, "/kept", b"r")
    await put(paused, "/kept", b"p")
    await paused.pause()
    await crash(first)
    second = await open_runtime()
    assert {row.id: row.state for row in await second.sandboxes()} == {running.id: "running", paused.id: "paused"}
    assert await content(await second.get(running.id), "/kept") == b"r"
    assert await content(await second.get(paused.id), "/kept") == b"p"


async def test_detached_commands_go_on_and_attached_ones_end(open_runtime, spec) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    detached = await sandbox.spawn(Command(argv=["sleep", "1000"]))
    async with sandbox.awake() as guest:
        await guest.exec(["sleep", "2000"])
        while len(await guest.processes()) < 2:
            await asyncio.sleep(0.005)
        await crash(first)
    second = await open_runtime()
    async with (await second.get(sandbox.id)).awake() as guest:
        assert [entry.id for entry in await guest.processes()] == [detached.id]


# scenario 32 (P0): the client was killed right after create
async def test_one_offs_and_the_pool_do_not_survive_their_process(open_runtime, spec, host: FakeHost) -> None:
    first = await open_runtime()
    await first.create(spec, is_ephemeral=True)
    await first.warm(spec, 2)
    await crash(first)
    second = await open_runtime()
    assert await second.sandboxes() == []
    await second.close()
    assert host.bodies == {}


@pytest.mark.parametrize("moment", ["create", "sleep", "wake", "snapshot", "fork", "restore", "pause", "resume"])
async def test_death_in_the_middle_of_a_transition_loses_nothing(
    open_runtime, spec, host: FakeHost, tmp_path: Path, moment
) -> None:
    """The process dies when the transition's first row is written and the driver has not answered."""
    first = await open_runtime()
    sandbox = await first.create(spec)
    await put(sandbox, "/kept", b"x")
    saved = await first.snapshots.take(sandbox)
    if moment == "wake":
        await sandbox.sleep()
    if moment == "resume":
        await sandbox.pause()
    await die_in(first, sandbox, moment, saved.id)
    second = await open_runtime()
    rows = await second.sandboxes()
    assert [row.id for row in rows] == [sandbox.id]
    assert all(row.doing is None for row in rows)
    assert await content(await second.get(sandbox.id), "/kept") == b"x"
    assert [row.id for row in await second.snapshots.kept()] == [saved.id]
    await second.close()
    state = tmp_path / "state"
    assert sorted(path.name for path in (state / "sandboxes").iterdir()) == [sandbox.id]
    assert list(state.rglob("*.part")) == []


async def die_in(runtime: Runtime, sandbox: Sandbox, moment: str, snapshot_id: str) -> None:
    """Begin a transition, and kill the process once it is written down and nothing else has happened."""
    stuck = asyncio.Event()

    async def hang(*_args: object, **_kwargs: object) -> None:
        stuck.set()
        await asyncio.Event().wait()

    driver = runtime._services.driver
    machine = sandbox._machine
    if moment in {"create", "fork", "wake"}:
        driver.restore = hang  # type: ignore[method-assign,assignment]
    elif machine is not None:
        for method in ("checkpoint", "pause", "resume", "remove"):
            setattr(machine, method, hang)
    doings = {
        "create": lambda: runtime.create(replace(sandbox.spec)),
        "sleep": sandbox.sleep,
        "wake": sandbox.wake,
        "snapshot": lambda: runtime.snapshots.take(sandbox),
        "fork": lambda: runtime.fork(sandbox.id, 2),
        "restore": lambda: runtime.restore(sandbox.id, snapshot_id),
        "pause": sandbox.pause,
        "resume": sandbox.resume,
    }
    task = asyncio.create_task(doings[moment]())
    await stuck.wait()

    async def dead(*_args: Any) -> None:
        raise ConnectionError("the dead write nothing")

    runtime._services.store.update_sandbox = dead  # type: ignore[method-assign,assignment]
    task.cancel()
    await crash(runtime)


async def test_a_half_deleted_sandbox_is_cleaned_up(open_runtime, spec, host: FakeHost, tmp_path: Path) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    assert sandbox._machine is not None
    sandbox._machine.remove = asyncio.Event().wait
    await sandbox.delete()
    await crash(first)
    assert list((tmp_path / "state" / "sandboxes").iterdir()) != []
    second = await open_runtime()
    await second.close()
    assert host.bodies == {}
    assert list((tmp_path / "state" / "sandboxes").iterdir()) == []


async def test_a_machine_that_died_unwatched_is_failed_not_forgotten(open_runtime, spec, host: FakeHost) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    await crash(first)
    host.crash(sandbox.id)
    second = await open_runtime()
    [row] = await second.sandboxes()
    assert (row.state, row.reason) == ("failed", "it ended while no process watched it")
    await (await second.get(sandbox.id)).delete()


# scenario 2 (P0): never resumed to an older state
async def test_a_checkpoint_that_it_has_woken_from_is_not_taken_for_its_last_state(
    open_runtime, spec, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between the wake and the removal of its checkpoint, and the machine with it."""
    first = await open_runtime()
    sandbox = await first.create(spec)
    await sandbox.sleep()
    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "_discard_sleep", lambda: None)
        await sandbox.wake()
    await put(sandbox, "/since", b"x")
    await crash(first)
    host.crash(sandbox.id)
    second = await open_runtime()
    assert [row.state for row in await second.sandboxes()] == ["failed"]


async def test_a_machine_that_dies_of_its_finished_sleep_sleeps(
    open_runtime, spec, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died when the checkpoint was whole and the machine told to end, which it does as it is taken over."""
    first = await open_runtime()
    sandbox = await first.create(spec)
    await put(sandbox, "/kept", b"x")
    written, machine = first._services.store.update_sandbox, sandbox._machine
    assert machine is not None

    async def dead_after_begin(sandbox_id: str, changes: dict[str, Any], *happened: Any) -> None:
        if "state" in changes:
            raise ConnectionError("the dead write nothing")
        await written(sandbox_id, changes, *happened)

    async def save_and_live_a_moment_more(to: Path, _after: After) -> None:
        await type(machine).checkpoint(machine, to, After.RUN)
        raise ConnectionError("the dead do nothing")

    monkeypatch.setattr(first._services.store, "update_sandbox", dead_after_begin)
    monkeypatch.setattr(machine, "checkpoint", save_and_live_a_moment_more)
    with pytest.raises(ConnectionError):
        await sandbox.sleep()
    await crash(first)
    adopt = FakeDriver.adopt

    async def adopt_the_dying(driver: FakeDriver, machine_spec: MachineSpec) -> FakeMachine | None:
        found = await adopt(driver, machine_spec)
        host.bodies[machine_spec.id].end(MachineExit(ExitReason.KILLED))
        return found

    monkeypatch.setattr(FakeDriver, "adopt", adopt_the_dying)
    second = await open_runtime()
    assert [row.state for row in await second.sandboxes()] == ["asleep"]
    assert await content(await second.get(sandbox.id), "/kept") == b"x"


async def test_an_agent_that_does_not_answer_after_a_restart_is_failed(open_runtime, spec, host: FakeHost) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    assert sandbox._machine is not None
    await crash(first)
    host.bodies[sandbox.id].freeze()
    host.bodies[sandbox.id].thaw = lambda: None  # type: ignore[method-assign]
    second = await open_runtime()
    assert "did not answer" in ((await second.sandboxes())[0].reason or "")


async def test_what_runs_at_the_end_sleeps_and_wakes_in_the_next_process(open_runtime, spec, host: FakeHost) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec)
    await put(sandbox, "/kept", b"x")
    await first.close()
    assert host.bodies == {}
    second = await open_runtime()
    assert [row.state for row in await second.sandboxes()] == ["asleep"]
    assert await content(await second.get(sandbox.id), "/kept") == b"x"


async def test_a_second_process_is_refused_while_the_first_owns_a_sandbox(open_runtime, spec) -> None:
    first, second = await open_runtime(), await open_runtime()
    sandbox = await first.create(spec)
    with pytest.raises(SandboxLockedError, match="pid"):
        await second.get(sandbox.id)
    assert (await (await second.create(spec)).run(Command(argv=["echo", "mine"]))).stdout == b"mine\n"
    await first.close()
    assert (await (await second.get(sandbox.id)).run(Command(argv=["echo", "now"]))).stdout == b"now\n"


async def test_a_process_that_starts_leaves_living_neighbours_alone(open_runtime, spec) -> None:
    first = await open_runtime()
    sandbox = await first.create(spec, is_ephemeral=True)
    second = await open_runtime()
    await second.close()
    assert sandbox.state is State.RUNNING
    assert (await sandbox.run(Command(argv=["echo", "still"]))).stdout == b"still\n"


async def test_state_of_a_newer_version_is_refused(open_runtime, tmp_path: Path) -> None:
    runtime = await open_runtime()
    await runtime.close()
    with sqlite3.connect(tmp_path / "state" / "state.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StateVersionError, match="9999"):
        await open_runtime()


async def test_templates_of_another_driver_version_are_dropped(open_runtime, spec, host: FakeHost) -> None:
    first = await open_runtime()
    await first.create(spec, is_ephemeral=True)
    await first.close()
    host.version = "fake-2"
    second = await open_runtime()
    assert await second._services.store.snapshots() == []
    assert (await second.create(spec)).row.boot == "cold"


async def test_a_sandbox_deleted_elsewhere_is_not_found(open_runtime, spec) -> None:
    first, second = await open_runtime(), await open_runtime()
    sandbox = await first.create(spec)
    await sandbox.delete()
    with pytest.raises(SandboxNotFoundError):
        await second.get(sandbox.id)


async def test_events_of_a_recovered_sandbox_close_every_period(open_runtime, spec) -> None:
    """Scenario 42 (P0): whatever way it ended, the last state is one in which nothing is used."""
    first = await open_runtime()
    sandbox = await first.create(spec, is_ephemeral=True)
    await crash(first)
    second = await open_runtime()
    ends = [event.data for event in await second.events(sandbox.id) if event.kind == "state"]
    assert json.dumps(ends).count('"to": "deleted"') == 1
    assert ends[-1]["to"] == "deleted"
