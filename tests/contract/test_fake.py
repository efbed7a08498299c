"""What the fake driver offers beyond the contract: a clock that is moved by hand, scripted faults, a small shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.drivers import After, ExitReason, MachineSpec
from sandyard.drivers.fake import FakeDriver, FakeHost, FakeMachine
from sandyard.errors import NoSpaceError, SandboxGoneError, SnapshotError, StartError, StartTimeoutError
from sandyard.guest import Guest

ENV = {"PATH": "/bin"}


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        due = self.seconds + seconds
        while self.seconds < due:
            await asyncio.sleep(0.001)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def host(clock: HandClock) -> FakeHost:
    return FakeHost(clock=clock)


@pytest.fixture
def driver(host: FakeHost) -> FakeDriver:
    return FakeDriver(host)


@pytest.fixture
def spec(tmp_path: Path) -> MachineSpec:
    return MachineSpec("sb_fake", tmp_path, rootfs=tmp_path, agent=tmp_path / "agent", cpus=2, memory_mib=256)


@pytest.fixture
async def machine(driver: FakeDriver, spec: MachineSpec) -> FakeMachine:
    return await driver.boot(spec)


@pytest.fixture
async def guest(machine: FakeMachine) -> AsyncIterator[Guest]:
    guest = Guest(await machine.connect())
    await guest.attach()
    yield guest
    await guest.close()


async def test_commands_sleep_by_the_clock(guest: Guest, clock: HandClock) -> None:
    slept = asyncio.create_task(guest.run(["sleep", "3600"], env=ENV))
    await asyncio.sleep(0.05)
    assert not slept.done()
    clock.seconds += 3601
    assert (await slept).fork_exec_wait_us >= 3_600_000_000


async def test_timeouts_pass_by_the_clock(guest: Guest, clock: HandClock) -> None:
    slept = asyncio.create_task(guest.run(["sleep", "infinity"], env=ENV, timeout_s=60))
    await asyncio.sleep(0.05)
    clock.seconds += 61
    assert (await slept).timed_out


async def test_time_stands_still_for_a_paused_machine(guest: Guest, machine: FakeMachine, clock: HandClock) -> None:
    slept = asyncio.create_task(guest.run(["sleep", "100"], env=ENV))
    await asyncio.sleep(0.02)
    await machine.pause()
    clock.seconds += 1000
    await machine.resume()
    await asyncio.sleep(0.05)
    assert not slept.done()
    clock.seconds += 101
    assert (await slept).exit_code == 0


async def test_processor_time_follows_from_the_clock_and_the_ceiling(
    guest: Guest, machine: FakeMachine, clock: HandClock
) -> None:
    await guest.spawn(["burn", "1000"], env=ENV)
    await guest.info()
    clock.seconds += 10
    assert machine.usage().cpu_us == 10_000_000
    for _ in range(3):  # four that burn, on two processors
        await guest.spawn(["burn", "1000"], env=ENV)
    await guest.info()
    clock.seconds += 10
    assert machine.usage().cpu_us == 30_000_000
    clock.seconds += 10
    await machine.pause()
    clock.seconds += 10
    assert machine.usage().cpu_us == 50_000_000
    await machine.resume()
    clock.seconds += 10
    assert machine.usage().cpu_us == 70_000_000


async def test_memory_and_disk_follow_from_what_runs_and_what_was_written(guest: Guest, machine: FakeMachine) -> None:
    before = machine.usage()
    held = await guest.spawn(["alloc", "100"], env=ENV)
    await guest.write("/root/x", bytes(5000))
    await guest.write("/root/x", bytes(3000))
    now = machine.usage()
    assert now.memory_bytes - before.memory_bytes == 100 * 1024 * 1024
    assert now.disk_bytes - before.disk_bytes == 3000
    await guest.signal(held.id, 9)
    assert machine.usage().memory_bytes == before.memory_bytes
    assert machine.usage().memory_peak_bytes == now.memory_bytes


async def test_a_start_can_be_made_to_fail(driver: FakeDriver, host: FakeHost, spec: MachineSpec) -> None:
    reason = StartError("no luck.", hint="Try again.")
    host.faults.starts.append(reason)
    with pytest.raises(StartError) as failed:
        await driver.boot(spec)
    assert failed.value is reason
    assert host.leftovers(spec.id) == []
    await (await driver.boot(spec)).remove()


async def test_an_agent_can_be_made_silent(driver: FakeDriver, host: FakeHost, spec: MachineSpec) -> None:
    host.faults.silent = True
    guest = Guest(await (await driver.boot(spec)).connect())
    with pytest.raises(StartTimeoutError):
        await guest.attach(timeout_s=0.05)
    await guest.close()


async def test_a_checkpoint_can_be_made_to_fail(
    guest: Guest, host: FakeHost, machine: FakeMachine, tmp_path: Path
) -> None:
    host.faults.checkpoints.append(SnapshotError("no luck.", hint="Try again."))
    host.faults.checkpoints.append(NoSpaceError("no room.", hint="Make some."))
    await guest.prepare_checkpoint()
    for kind in (SnapshotError, NoSpaceError):
        with pytest.raises(kind):
            await machine.checkpoint(tmp_path / "saved", After.STOP)
        assert not list(tmp_path.glob("saved*"))
    await machine.checkpoint(tmp_path / "saved", After.RUN)
    await guest.reattach()


async def test_a_restore_can_be_made_slow(
    driver: FakeDriver, host: FakeHost, guest: Guest, machine: FakeMachine, clock: HandClock, tmp_path: Path
) -> None:
    await guest.prepare_checkpoint()
    await machine.checkpoint(tmp_path / "saved", After.STOP)
    await machine.remove()
    host.faults.restore_s = 5
    restoring = asyncio.create_task(driver.restore(machine.spec, tmp_path / "saved"))
    await asyncio.sleep(0.05)
    assert not restoring.done()
    clock.seconds += 6
    restored = await restoring
    await asyncio.sleep(0.02)
    assert restored._body.to_host.size == 0  # what stood still says nothing before it is greeted
    await guest.reattach(await restored.connect())


@pytest.mark.parametrize(("how", "reason"), [("kill_for_memory", ExitReason.MEMORY), ("crash", ExitReason.FAULT)])
async def test_a_machine_can_be_made_to_die(
    guest: Guest, host: FakeHost, machine: FakeMachine, how: str, reason: ExitReason
) -> None:
    call = asyncio.create_task(guest.run(["sleep", "infinity"], env=ENV))
    await asyncio.sleep(0.01)
    getattr(host, how)(machine.spec.id)
    end = await machine.wait()
    assert end.reason is reason
    assert end.detail
    with pytest.raises(SandboxGoneError):
        await call


async def test_a_checkpoint_is_only_restored_as_what_it_was_saved(
    driver: FakeDriver, host: FakeHost, guest: Guest, machine: FakeMachine, spec: MachineSpec, tmp_path: Path
) -> None:
    await guest.prepare_checkpoint()
    await machine.checkpoint(tmp_path / "saved", After.STOP)
    await machine.remove()
    for changed in (replace(spec, memory_mib=512), replace(spec, agent=tmp_path / "newer")):
        with pytest.raises(StartError):
            await driver.restore(changed, tmp_path / "saved")
    host.version = "fake-2"
    with pytest.raises(StartError):
        await driver.restore(spec, tmp_path / "saved")
    host.version = "fake-1"
    await (await driver.restore(spec, tmp_path / "saved")).remove()


@pytest.mark.parametrize(
    ("script", "stdout", "exit_code"),
    [
        ("echo a; echo b", b"a\nb\n", 0),
        ("false; echo $HOME", b"/root\n", 0),
        ("false && echo no; echo yes", b"yes\n", 0),
        ("true && echo yes || echo no", b"yes\n", 0),
        ("false || exit 4; echo never", b"", 4),
        ("echo one > /tmp/f; echo two >> /tmp/f; cat /tmp/f", b"one\ntwo\n", 0),
        ("cd /etc; pwd", b"/etc\n", 0),
        ("cd /none; pwd", b"", 1),
        ("no-such", b"", 127),
        ("/etc/passwd", b"", 126),
        ("exit", b"", 0),
        ("echo 'a;b' \"c d\"", b"a;b c d\n", 0),
        ("# only a comment", b"", 0),
        ("touch /tmp/t; rm /tmp/t; cat /tmp/t", b"", 1),
    ],
)
async def test_the_shell_knows_a_little(guest: Guest, script: str, stdout: bytes, exit_code: int) -> None:
    result = await guest.run(shell=script)
    assert (result.stdout, result.exit_code) == (stdout, exit_code)


async def test_a_script_file_is_run(guest: Guest) -> None:
    await guest.write("/tmp/script", b"#!/bin/sh\necho from a file\nexit 6\n", mode=0o755)
    result = await guest.run(["/tmp/script"], env=ENV)
    assert (result.stdout, result.exit_code) == (b"from a file\n", 6)


async def test_holding_from_inside(guest: Guest, clock: HandClock) -> None:
    told: list[int] = []
    guest.on_hold = told.append
    await guest.run(["sandyard-agent", "hold", "10m"], env=ENV)
    assert told == [clock.now_ms() + 600_000]


async def test_what_a_shell_left_behind_survives_a_checkpoint(
    driver: FakeDriver, guest: Guest, machine: FakeMachine, clock: HandClock, tmp_path: Path
) -> None:
    await guest.run(shell="sleep 500 & echo started")
    assert (await guest.info()).processes == 2
    await guest.prepare_checkpoint()
    await machine.checkpoint(tmp_path / "saved", After.STOP)
    await machine.remove()
    woken = await driver.restore(machine.spec, tmp_path / "saved")
    await guest.reattach(await woken.connect())
    assert (await guest.info()).processes == 2
    clock.seconds += 501
    while (await guest.info()).processes == 2:
        await asyncio.sleep(0.005)
