"""The promise of sandyard.drivers.driver, asked of every driver. Numbers are those of the users' scenarios."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.drivers import After, Driver, ExitReason, Machine, MachineSpec, NetworkSpec
from sandyard.errors import NoSpaceError, SandboxGoneError, SandyardError, SnapshotError, StartError
from sandyard.frames import encode_data
from sandyard.guest import Guest
from tests.contract.kits import Kit

Attach = Callable[..., Awaitable[Guest]]
Specs = Callable[[str], MachineSpec]

ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
MIB = 1024 * 1024

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /tmp/counter; sleep 0.02; done"
"""Counts in a process's memory and shows it in a file, so that both can be seen to survive."""


async def start_counter(guest: Guest) -> None:
    await guest.spawn(shell=COUNTER, env=ENV)
    await beyond(guest, 3)


async def count(guest: Guest) -> int:
    """Read the counter; the file is empty for the instant between its truncation and its writing."""
    while not (text := await guest.read_bytes("/tmp/counter")):
        await asyncio.sleep(0.01)
    return int(text)


async def beyond(guest: Guest, number: int) -> int:
    """Wait until the counter has gone beyond ``number``."""
    while True:
        try:
            now = await count(guest)
        except LookupError:
            now = 0
        if now > number:
            return now
        await asyncio.sleep(0.01)


async def save(guest: Guest, machine: Machine, to: Path, after: After) -> None:
    await guest.prepare_checkpoint()
    await machine.checkpoint(to, after)


# -- being started ----------------------------------------------------------------------------------------------------


async def test_a_booted_machine_runs_commands(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    assert (await guest.run(["true"], env=ENV)).exit_code == 0
    assert (await guest.run(["echo", "hello"], env=ENV)).stdout == b"hello\n"
    assert (await guest.run(["hostname"], env=ENV)).stdout == b"sandbox\n"


async def test_machines_are_apart(driver: Driver, specs: Specs, attach: Attach) -> None:
    machines = await asyncio.gather(*(driver.boot(specs(name)) for name in "abc"))
    guests = [await attach(machine) for machine in machines]
    for number, guest in enumerate(guests):
        await guest.write("/tmp/mine", str(number).encode())
    assert [await guest.read_bytes("/tmp/mine") for guest in guests] == [b"0", b"1", b"2"]
    assert len({(await guest.info()).boot_id for guest in guests}) == 3


async def test_the_root_file_system_is_never_written_to(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    before = sorted(path.name for path in (machine.spec.rootfs / "tmp").glob("*"))
    await guest.write("/tmp/inside", b"x")
    assert sorted(path.name for path in (machine.spec.rootfs / "tmp").glob("*")) == before


@pytest.mark.parametrize("fault", ["rootfs", "network"])
async def test_a_start_that_fails_leaves_nothing(kit: Kit, driver: Driver, specs: Specs, fault: str) -> None:
    spec = specs("broken")
    wrong = (
        {"rootfs": spec.directory / "missing"} if fault == "rootfs" else {"network": NetworkSpec(mode="no-such-mode")}
    )
    with pytest.raises(StartError):
        await driver.boot(replace(spec, **wrong))
    assert kit.leftovers(spec) == []


async def test_a_start_that_is_cancelled_leaves_nothing(kit: Kit, driver: Driver, specs: Specs) -> None:
    # 36: Ctrl-C in the middle of create.
    for wait_s in (0, 0.01, 0.05, 0.1):
        spec = specs("cancelled")
        task = asyncio.create_task(driver.boot(spec))
        await asyncio.sleep(wait_s)
        task.cancel()
        try:
            machine = await task
        except asyncio.CancelledError:
            pass
        else:
            await machine.remove()
        assert kit.leftovers(spec) == []


# -- pausing ----------------------------------------------------------------------------------------------------------


async def test_a_paused_machine_does_not_answer_until_it_is_resumed(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    await start_counter(guest)
    await machine.pause()
    asked = asyncio.create_task(guest.run(["echo", "awake"], env=ENV))
    await asyncio.sleep(0.3)
    assert not asked.done()
    await machine.pause()  # nothing happens
    await machine.resume()
    assert (await asked).stdout == b"awake\n"
    await machine.resume()  # nothing happens
    await beyond(guest, await count(guest))


async def test_a_paused_machine_uses_no_processor(kit: Kit, machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    await guest.spawn(kit.spinner, env=ENV)
    await asyncio.sleep(0.2)
    await machine.pause()
    before = machine.usage().cpu_us
    await asyncio.sleep(0.3)
    assert machine.usage().cpu_us - before < 30_000
    await machine.resume()


async def test_pausing_again_and_again_loses_nothing(machine: Machine, attach: Attach) -> None:
    # 1: pause, resume, write, pause, resume: still there.
    guest = await attach(machine)
    await start_counter(guest)
    for turn in range(10):
        await machine.pause()
        await machine.resume()
        await guest.write(f"/tmp/{turn}", str(turn).encode())
    assert [await guest.read_bytes(f"/tmp/{turn}") for turn in range(10)] == [str(turn).encode() for turn in range(10)]
    await beyond(guest, await count(guest))


# -- checkpoints ------------------------------------------------------------------------------------------------------


async def test_a_machine_goes_on_after_a_checkpoint(machine: Machine, attach: Attach, tmp_path: Path) -> None:
    guest = await attach(machine)
    await start_counter(guest)
    process = await guest.exec(["cat"], env=ENV, stdin=True)
    await save(guest, machine, tmp_path / "saved", After.RUN)
    assert (tmp_path / "saved").is_dir()
    assert not (tmp_path / "saved.part").exists()
    await guest.reattach()
    await beyond(guest, await count(guest))
    assert (await process.collect(b"still open")).stdout == b"still open"


async def test_a_machine_can_end_with_its_checkpoint(
    kit: Kit, machine: Machine, attach: Attach, tmp_path: Path
) -> None:
    guest = await attach(machine)
    await save(guest, machine, tmp_path / "saved", After.STOP)
    assert (await machine.wait()).reason is ExitReason.STOPPED
    assert (tmp_path / "saved").is_dir()
    await machine.remove()
    assert kit.leftovers(machine.spec) == []


async def test_a_restored_machine_has_its_files_and_its_memory(
    driver: Driver, machine: Machine, specs: Specs, attach: Attach, tmp_path: Path
) -> None:
    guest = await attach(machine)
    content = os.urandom(MIB)
    await guest.write("/root/file", content)
    await start_counter(guest)
    await save(guest, machine, tmp_path / "saved", After.STOP)
    await machine.wait()
    restored = await driver.restore(specs("copy"), tmp_path / "saved")
    copy = await attach(restored, orphans="keep")
    assert await copy.read_bytes("/root/file") == content
    await beyond(copy, await count(copy) + 2)
    # 112: what ran is listed, and can be killed.
    (counter,) = await copy.processes()
    await copy.signal(counter.id, 9)
    while await copy.processes():
        await asyncio.sleep(0.01)


async def test_a_machine_that_sleeps_goes_on_where_it_was(
    driver: Driver, machine: Machine, attach: Attach, tmp_path: Path
) -> None:
    # 2: memory and disk of one instant; open streams go on.
    guest = await attach(machine)
    process = await guest.exec(["cat"], env=ENV, stdin=True)
    await process.write(b"before ")
    pieces = aiter(process)
    assert (await anext(pieces))[1] == b"before "
    spec = machine.spec
    for turn in range(2):
        await save(guest, machine, tmp_path / f"sleep-{turn}", After.STOP)
        await machine.remove()
        machine = await driver.restore(spec, tmp_path / f"sleep-{turn}")
        assert (await guest.reattach(await machine.connect(), timeout_s=30)).resumed
        await process.write(f"after {turn}".encode())
        assert (await anext(pieces))[1] == f"after {turn}".encode()
    await process.close_stdin()
    assert (await process.wait()).exit_code == 0


async def test_copies_of_one_checkpoint_are_independent(
    driver: Driver, machine: Machine, specs: Specs, attach: Attach, tmp_path: Path
) -> None:
    guest = await attach(machine)
    await guest.write("/tmp/shared", b"before")
    await start_counter(guest)
    await save(guest, machine, tmp_path / "saved", After.RUN)
    await guest.reattach()
    copies = await asyncio.gather(*(driver.restore(specs(name), tmp_path / "saved") for name in ("left", "right")))
    left, right = [await attach(copy, orphans="keep") for copy in copies]
    for name, copy in (("left", left), ("right", right)):
        await copy.after_restore(sandbox_id=f"sb_{name}", hostname=name, entropy=os.urandom(32))
        await copy.write("/tmp/shared", name.encode())
    assert await guest.read_bytes("/tmp/shared") == b"before"
    assert await left.read_bytes("/tmp/shared") == b"left"
    assert await right.read_bytes("/tmp/shared") == b"right"
    # 25: identities differ.
    infos = [await each.info() for each in (guest, left, right)]
    assert len({info.boot_id for info in infos}) == 3
    assert [info.hostname for info in infos[1:]] == ["left", "right"]
    machine_ids = {await each.read_bytes("/etc/machine-id") for each in (left, right)}
    assert len(machine_ids) == 2
    await copies[0].kill()
    for each in (guest, right):
        await beyond(each, await count(each))


async def test_a_copy_can_be_saved_and_copied_again(
    driver: Driver, machine: Machine, specs: Specs, attach: Attach, tmp_path: Path
) -> None:
    guest = await attach(machine)
    await start_counter(guest)
    for generation in range(3):
        await guest.write(f"/tmp/{generation}", b"x")
        await save(guest, machine, tmp_path / str(generation), After.STOP)
        machine = await driver.restore(specs(f"gen{generation}"), tmp_path / str(generation))
        guest = await attach(machine, orphans="keep")
    assert [await guest.read_bytes(f"/tmp/{generation}") for generation in range(3)] == [b"x"] * 3
    await beyond(guest, await count(guest))


async def test_a_full_disk_leaves_the_machine_running(
    kit: Kit, machine: Machine, attach: Attach, tmp_path: Path
) -> None:
    # 12, 98: no half checkpoint, and no machine that cannot be left.
    guest = await attach(machine)
    await start_counter(guest)
    await guest.prepare_checkpoint()
    with kit.full_disk(tmp_path) as disk:
        for after in (After.RUN, After.STOP):
            with pytest.raises(NoSpaceError):
                await machine.checkpoint(disk / "saved", after)
            assert not list(disk.glob("saved*"))
    await guest.reattach()
    await beyond(guest, await count(guest))
    await save(guest, machine, tmp_path / "saved", After.RUN)
    await guest.reattach()


@pytest.mark.parametrize("damage", ["empty", "cut", "missing"])
async def test_a_checkpoint_that_cannot_be_read_starts_nothing(
    kit: Kit, driver: Driver, machine: Machine, specs: Specs, attach: Attach, tmp_path: Path, damage: str
) -> None:
    saved = tmp_path / "saved"
    guest = await attach(machine)
    await save(guest, machine, saved, After.STOP)
    files = sorted(saved.iterdir(), key=lambda path: path.stat().st_size)
    if damage == "missing":
        saved.rename(tmp_path / "elsewhere")
    else:
        os.truncate(files[-1], 0 if damage == "empty" else files[-1].stat().st_size // 2)
    spec = specs("broken")

    async def restore() -> None:
        await attach(await driver.restore(spec, saved))  # what the driver did not notice, the agent's silence shows

    with pytest.raises(SandyardError):
        await restore()
    await driver.sweep(spec)
    assert kit.leftovers(spec) == []


async def test_a_dead_machine_cannot_be_saved(machine: Machine, tmp_path: Path) -> None:
    await machine.kill()
    with pytest.raises(SnapshotError):
        await machine.checkpoint(tmp_path / "saved", After.RUN)
    assert not list(tmp_path.glob("saved*"))


# -- another process takes over ---------------------------------------------------------------------------------------


async def test_a_machine_is_taken_over_after_a_crash(kit: Kit, machine: Machine, attach: Attach) -> None:
    # 6: machines that ran are found again.
    guest = await attach(machine)
    await start_counter(guest)
    lost = await guest.exec(["sleep", "100"], env=ENV)
    await guest.close()  # which tells the agent as little as the death of a process does
    adopted = await kit.driver().adopt(machine.spec)
    assert adopted is not None
    other = await attach(adopted, orphans="kill")
    await beyond(other, await count(other))
    while len(left := await other.processes()) > 1:
        await asyncio.sleep(0.01)
    assert [process.id for process in left] != [lost.id]
    assert adopted.usage().cpu_us >= 0
    await adopted.kill()
    assert (await adopted.wait()).reason is ExitReason.KILLED


async def test_half_a_frame_of_the_former_owner_is_no_harm(kit: Kit, machine: Machine, attach: Attach) -> None:
    await (await attach(machine)).info()
    channel = await machine.connect()
    await channel.write(encode_data(5, 0, bytes(100_000))[:50_000])
    adopted = await kit.driver().adopt(machine.spec)
    assert adopted is not None
    other = await attach(adopted)
    assert (await other.run(["echo", "sound"], env=ENV)).stdout == b"sound\n"


async def test_output_that_the_former_owner_never_read_is_no_harm(kit: Kit, machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    await guest.exec(["sh", "-c", "head -c 900000 /dev/zero"], env=ENV)
    await guest.close()
    adopted = await kit.driver().adopt(machine.spec)
    assert adopted is not None
    other = await attach(adopted)
    assert (await other.run(["echo", "sound"], env=ENV)).stdout == b"sound\n"


async def test_a_paused_machine_is_taken_over_too(kit: Kit, machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    await start_counter(guest)
    await machine.pause()
    await guest.close()
    adopted = await kit.driver().adopt(machine.spec)
    assert adopted is not None
    other = await attach(adopted)
    await beyond(other, await count(other))


async def test_a_machine_that_runs_no_more_is_not_taken_over(kit: Kit, machine: Machine, specs: Specs) -> None:
    assert await kit.driver().adopt(specs("never")) is None
    await machine.kill()
    assert await kit.driver().adopt(machine.spec) is None


async def test_a_new_channel_closes_the_one_before(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    other = await attach(machine)
    assert isinstance(await guest.wait_lost(), SandboxGoneError)
    assert (await other.run(["true"], env=ENV)).exit_code == 0


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "busy", "paused", "unattached"])
async def test_removing_leaves_nothing(kit: Kit, machine: Machine, attach: Attach, state: str) -> None:
    if state != "unattached":
        guest = await attach(machine)
        await guest.write("/tmp/file", bytes(MIB))
        if state == "busy":
            await guest.spawn(["yes"], env=ENV)
        if state == "paused":
            await machine.pause()
    await machine.remove()
    assert kit.leftovers(machine.spec) == []
    assert (await machine.wait()).reason is ExitReason.KILLED


async def test_killing_ends_calls_and_waits(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    call = asyncio.create_task(guest.run(["sleep", "100"], env=ENV))
    waits = [asyncio.create_task(machine.wait()) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert not any(wait.done() for wait in waits)
    await machine.kill()
    with pytest.raises(SandboxGoneError):
        await call
    assert [(await wait).reason for wait in waits] == [ExitReason.KILLED] * 3
    await machine.kill()  # nothing happens
    assert (await machine.wait()).reason is ExitReason.KILLED
    with pytest.raises(SandboxGoneError):
        await (await machine.connect()).write(b"x")
    assert await (await machine.connect()).read() == b""


async def test_a_machine_that_ends_by_itself_says_so(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    await guest.shutdown()
    assert (await asyncio.wait_for(machine.wait(), 30)).reason is ExitReason.FAULT


async def test_memory_beyond_the_ceiling_is_told(kit: Kit, machine: Machine, attach: Attach) -> None:
    # 81: whether the kernel takes one process or the machine, it is not silent.
    guest = await attach(machine)
    try:
        result = await guest.run(kit.hoarder, env=ENV)
    except SandboxGoneError:
        assert (await machine.wait()).reason is ExitReason.MEMORY
    else:
        assert result.exit_code == 137
        assert machine.oom_kills() > 0


async def test_sweeping_is_repeatable(kit: Kit, machine: Machine, attach: Attach, specs: Specs) -> None:
    # 118: what a dead process left is found and removed, however often one looks.
    guest = await attach(machine)
    await guest.write("/tmp/file", bytes(MIB))
    other = kit.driver()
    for _ in range(3):
        await other.sweep(machine.spec)
        assert kit.leftovers(machine.spec) == []
    never = specs("never")
    await other.sweep(never)
    assert kit.leftovers(never) == []


async def test_a_swept_id_can_be_used_again(driver: Driver, machine: Machine, attach: Attach) -> None:
    # 17: delete and make anew in the same place.
    await machine.remove()
    again = await driver.boot(machine.spec)
    assert (await (await attach(again)).run(["true"], env=ENV)).exit_code == 0


# -- accounting -------------------------------------------------------------------------------------------------------


async def test_processor_time_is_that_of_the_work_done(kit: Kit, machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    began, before = time.monotonic(), machine.usage().cpu_us
    result = await guest.run(kit.burner, env=ENV)
    used, elapsed_us = machine.usage().cpu_us - before, (time.monotonic() - began) * 1e6
    inside = result.user_us + result.system_us
    assert result.exit_code == 0
    assert inside >= 400_000  # the command was asked for half a second
    assert 0.7 * inside <= used
    # One processor at most, but for what the kernel lends within one period of its bandwidth control.
    assert used <= elapsed_us * machine.spec.cpus * 1.3 + 200_000


async def test_memory_is_that_which_is_held(kit: Kit, machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    before = machine.usage().memory_bytes
    spawned = await guest.spawn(kit.holder, env=ENV)
    while machine.usage().memory_bytes - before < 120 * MIB:
        await asyncio.sleep(0.02)
    usage = machine.usage()
    assert usage.memory_bytes - before < 200 * MIB
    assert usage.memory_bytes <= usage.memory_peak_bytes <= machine.spec.memory_mib * MIB
    await guest.signal(spawned.id, 9)
    while machine.usage().memory_bytes - before > 64 * MIB:
        await asyncio.sleep(0.02)
    assert machine.usage().memory_peak_bytes >= usage.memory_bytes


async def test_disk_is_that_which_was_written(machine: Machine, attach: Attach) -> None:
    guest = await attach(machine)
    before = machine.usage().disk_bytes
    await guest.write("/root/file", os.urandom(16 * MIB))
    grown = machine.usage().disk_bytes - before
    assert 16 * MIB <= grown <= 24 * MIB


async def test_usage_can_be_read_until_the_machine_is_removed(machine: Machine, attach: Attach) -> None:
    # 42: the last figures are those that are charged.
    guest = await attach(machine)
    await guest.run(["true"], env=ENV)
    alive = machine.usage()
    await machine.kill()
    dead = machine.usage()
    assert dead.cpu_us >= alive.cpu_us
    assert dead.memory_peak_bytes >= alive.memory_peak_bytes > 0


async def test_the_version_is_the_same_for_all(kit: Kit) -> None:
    assert await kit.driver().version() == await kit.driver().version() != ""
