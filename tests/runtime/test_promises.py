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
from sandyard.errors import StartError
from sandyard.runtime import Command, Runtime, SandboxSpec
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
