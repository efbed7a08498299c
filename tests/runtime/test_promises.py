"""Promises across many sandboxes: one usage period each, bounded starts, environments in a known order."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from sandyard.drivers.fake import FakeHost
from sandyard.errors import NoSpaceError, StartError
from sandyard.runtime import Command, Runtime, SandboxSpec, State
from sandyard.runtime.usage import add_up
from sandyard.store import EventRow

from .conftest import ManualClock, OpenRuntime, crash, needs_root

pytestmark = needs_root

OVER = {"deleted", "failed"}
WAYS = ["delete", "memory", "crash", "ttl", "failed create", "client killed", "failed, deleted"]


def ends(events: Sequence[EventRow]) -> list[str]:
    """Return the states that end use, each as often as it was entered from one in which there was use."""
    states = [str(event.data["to"]) for event in events if event.kind == "state" and event.data["phase"] != "begin"]
    return [
        now for before, now in zip(["creating", *states], states, strict=False) if now in OVER and before not in OVER
    ]


# scenario 42 and 26 (P0): whatever ends a sandbox, there is one end, and nothing is counted after it
@pytest.mark.parametrize(
    "way", ["delete", "memory", "crash", "ttl", "failed create", "client killed", "failed, deleted"]
)
async def test_every_way_to_an_end_closes_one_usage_period(
    open_runtime: OpenRuntime, spec: SandboxSpec, host: FakeHost, clock: ManualClock, way
) -> None:
    runtime = await open_runtime()
    if way == "failed create":
        host.faults.starts.append(StartError("no luck.", hint="Try again."))
        with pytest.raises(StartError):
            await runtime.create(spec)
        [row] = await runtime._services.store.sandboxes()
        events = await settled(runtime, row.id)
        assert ends(events) == ["deleted"]
        assert add_up(events, now_ms=clock.now_ms() + 10_000_000).running_ms == 0
        return
    sandbox = await runtime.create(replace(spec, sleep_after_s=None, ttl_s=60), is_ephemeral=way == "client killed")
    clock.advance(30)
    if way == "delete":
        await sandbox.delete()
    elif way == "memory":
        host.kill_for_memory(sandbox.id)
    elif way in {"crash", "failed, deleted"}:
        host.crash(sandbox.id)
    elif way == "ttl":
        clock.advance(30)
        await runtime.tick()
    elif way == "client killed":
        await crash(runtime)
        runtime = await open_runtime()
    events = await settled(runtime, sandbox.id)
    if way == "failed, deleted":
        clock.advance(10)
        await sandbox.delete()
        events = await settled(runtime, sandbox.id)
    assert len(ends(events)) == 1
    seconds = 60 if way == "ttl" else 30
    assert add_up(events, now_ms=clock.now_ms() + 10_000_000).running_ms == seconds * 1000


async def settled(runtime: Runtime, sandbox_id: str) -> Sequence[EventRow]:
    """Return a sandbox's events once one of them ends it; what watches for a crash takes its turn first."""
    while not ends(events := await runtime.events(sandbox_id)):
        await asyncio.sleep(0.005)
    return events


# scenario 56: one machine for each create, and never more starts at once than the host is given
async def test_many_creates_at_once_make_one_machine_each_and_stay_bounded(
    runtime: Runtime, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runtime.create(spec)
    driver = runtime._services.driver
    restore, under_way, most = driver.restore, 0, 0

    async def counted(*words):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        try:
            return await restore(*words)
        finally:
            under_way -= 1

    monkeypatch.setattr(driver, "restore", counted)
    made = await asyncio.gather(*(runtime.create(spec) for _ in range(60)))
    assert len({sandbox.id for sandbox in made}) == 60
    assert len(await runtime.sandboxes()) == 61
    assert most == runtime._services.settings.starts_at_once


def tar_of(files: Mapping[str, bytes]) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def image_with_env(tmp_path: Path) -> str:
    """A docker archive whose configuration sets variables, a user and a directory."""
    layer = tar_of({"plain": b"x"})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["A=image", "B=image", "C=image"], "User": "77", "WorkingDir": "/tmp"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["env:1"], "Layers": ["layer.tar"]}]
    path = tmp_path / "image.tar"
    path.write_bytes(
        tar_of(
            {
                "config.json": json.dumps(config).encode(),
                "layer.tar": layer,
                "manifest.json": json.dumps(manifest).encode(),
            }
        )
    )
    return f"docker-archive:{path}"


# scenario 108: the image's variables, over them the sandbox's, over them the call's
async def test_what_a_command_gets_comes_from_the_call_then_the_sandbox_then_the_image(
    runtime: Runtime, image_with_env: str
) -> None:
    plain = SandboxSpec(image=image_with_env, memory_mib=256)
    sandbox = await runtime.create(replace(plain, env={"B": "sandbox", "C": "sandbox"}))
    said = (await sandbox.run(Command(argv=["env"], env={"C": "call"}))).check().stdout.decode().split()
    assert {"A=image", "B=sandbox", "C=call"} <= set(said)
    assert (await sandbox.run(Command(argv=["pwd"]))).stdout == b"/tmp\n"
    assert (await sandbox.run(Command(argv=["id", "-u"]))).stdout == b"77\n"
    chosen = await runtime.create(replace(plain, user="0", workdir="/etc"))
    assert (await chosen.run(Command(argv=["pwd"]))).stdout == b"/etc\n"
    assert (await chosen.run(Command(argv=["id", "-u"]))).stdout == b"0\n"
    assert (await chosen.run(Command(argv=["id", "-u"], user="77"))).stdout == b"77\n"
    await sandbox.sleep()
    assert b"C=call" not in (await sandbox.run(Command(argv=["env"]))).stdout.split()


async def test_the_time_in_the_pool_is_not_the_sandboxs(
    runtime: Runtime, spec: SandboxSpec, clock: ManualClock
) -> None:
    plain = replace(spec, sleep_after_s=None)
    await runtime.warm(plain, 1)
    clock.advance(3600)
    sandbox = await runtime.create(plain)
    assert sandbox.row.boot == "pool"
    clock.advance(10)
    await sandbox.delete()
    total = add_up(await runtime.events(sandbox.id), now_ms=clock.now_ms())
    assert (total.running_ms, total.paused_ms, total.asleep_ms) == (10_000, 0, 0)
    assert total.memory_held_gib_hours == pytest.approx(256 / 1024 * 10 / 3600)


async def test_copies_of_the_pool_are_not_listed_not_even_in_the_making(
    runtime: Runtime, spec: SandboxSpec, host: FakeHost
) -> None:
    kept = await runtime.create(spec)
    host.faults.restore_s = 0.1
    filling = asyncio.create_task(runtime.warm(spec, 2))
    seen = set()
    while not filling.done():
        seen |= {row.id for row in await runtime.sandboxes()}
        await asyncio.sleep(0.01)
    assert seen == {kept.id}


async def test_a_sleep_that_filled_the_disk_to_its_last_byte_is_a_sleep(
    open_runtime: OpenRuntime, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is whole and the machine gone when there is no room to write that down."""
    runtime = await open_runtime()
    sandbox, other = await runtime.create(spec), await runtime.create(spec)
    store = runtime._services.store
    write = store.update_sandbox

    async def full(sandbox_id, changes, *happened):
        if changes.get("state") == State.ASLEEP:
            raise NoSpaceError("the disk is full.", hint="Free some.")
        await write(sandbox_id, changes, *happened)

    monkeypatch.setattr(store, "update_sandbox", full)
    for one in (sandbox, other):
        async with one.awake() as guest:
            await guest.write("/kept", b"x")
        with pytest.raises(NoSpaceError):
            await one.sleep()
        assert one.state is State.ASLEEP
    monkeypatch.undo()
    assert (await sandbox.run(Command(argv=["cat", "/kept"]))).stdout == b"x"
    await crash(runtime)
    again = await (await open_runtime()).get(other.id)
    assert again.state is State.ASLEEP
    assert (await again.run(Command(argv=["cat", "/kept"]))).stdout == b"x"


async def test_a_failure_that_cannot_be_written_down_is_told_as_itself(
    runtime: Runtime, spec: SandboxSpec, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await runtime.create(spec)
    store = runtime._services.store
    write = store.update_sandbox

    async def full(sandbox_id, changes, *happened):
        if any(event.data.get("phase") == "failed" for event in happened):
            raise NoSpaceError("no room to write.", hint="Free some.")
        await write(sandbox_id, changes, *happened)

    monkeypatch.setattr(store, "update_sandbox", full)
    host.faults.disk_full = True
    with pytest.raises(NoSpaceError, match="checkpoint"):
        await sandbox.sleep()
    assert (sandbox.state, sandbox.row.doing) == (State.RUNNING, None)
    host.faults.disk_full = False
    await sandbox.sleep()
    assert sandbox.state is State.ASLEEP
