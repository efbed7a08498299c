"""What a sandbox keeps, and what changes, over sleep, snapshots and forks."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandyard.errors import StartError
from sandyard.runtime import Boot, Command, Runtime, Sandbox, SandboxSpec, State

from .conftest import Cli, leftovers, processes

AWAKE = SandboxSpec(sleep_after_s=None)

NOTE = """
import os
def note(path, what):  # whole at any moment: nobody reads half of it
    with open(path + ".new", "w") as file:
        file.write(str(what))
    os.replace(path + ".new", path)
"""


async def say(sandbox: Sandbox, line: str) -> str:
    return (await sandbox.run(Command(shell=line))).check().stdout.decode()


# scenario 1 (P0): what was written in any waking hour is still there after the next
async def test_files_of_every_waking_hour_are_kept(runtime: Runtime) -> None:
    sandbox = await runtime.create(AWAKE)
    for hour in range(4):
        await say(sandbox, f"echo {hour} >> /root/diary")
        before = sandbox.id
        await (sandbox.sleep() if hour % 2 else sandbox.pause())
        await sandbox.resume()
        assert sandbox.id == before
        assert await say(sandbox, "cat /root/diary") == "".join(f"{n}\n" for n in range(hour + 1))


# scenario 20: the wall clock is the host's at once after a restore, and the monotonic one never goes back
async def test_clocks_after_sleep_and_in_a_fork(runtime: Runtime) -> None:
    sandbox = await runtime.create(AWAKE)
    watch = (
        f"{NOTE}import time\nlast, back = time.monotonic(), 0\nwhile True:\n    now = time.monotonic()\n"
        "    back += now < last\n    last = now\n    note('/tmp/back', back)\n    time.sleep(0.005)"
    )
    await sandbox.spawn(Command(argv=["python3", "-c", watch]))
    await say(sandbox, "until [ -s /tmp/back ]; do sleep 0.05; done")
    await sandbox.sleep()
    await asyncio.sleep(2)
    await sandbox.wake()
    [fork] = await runtime.fork(sandbox.id)
    for one in (sandbox, fork):
        earliest = time.time()
        inside = float(await say(one, "python3 -c 'import time; print(time.time())'"))
        assert earliest - 0.5 <= inside <= time.time() + 0.5
        assert await say(one, "sleep 0.2; cat /tmp/back") == "0"


# scenario 22: sleeping through many ticks of a timer does not deliver them all at once
async def test_a_timer_does_not_make_up_for_the_time_asleep(runtime: Runtime) -> None:
    sandbox = await runtime.create(AWAKE)
    count = (
        f"{NOTE}import signal\nn = 0\ndef tick(*_):\n    global n\n    n += 1\n    note('/tmp/ticks', n)\n"
        "signal.signal(signal.SIGALRM, tick)\nsignal.setitimer(signal.ITIMER_REAL, 1, 1)\nwhile True: signal.pause()"
    )
    await sandbox.spawn(Command(argv=["python3", "-c", count]))
    await say(sandbox, "until [ -s /tmp/ticks ]; do sleep 0.1; done")
    before = int(await say(sandbox, "cat /tmp/ticks"))
    began = time.monotonic()
    await sandbox.sleep()
    await asyncio.sleep(4)
    await sandbox.wake()
    awake_from = time.monotonic()
    after = int(await say(sandbox, "cat /tmp/ticks"))
    slack_ticks = 2  # one that was due, and one that came while it was saved
    assert after - before <= slack_ticks + (time.monotonic() - awake_from) + (awake_from - began - 4)


async def test_hooks_of_the_image_run_in_each_copy_and_none_can_break_it(runtime: Runtime) -> None:
    sandbox = await runtime.create(AWAKE)
    directory = "/etc/sandyard/after-restore.d"
    async with sandbox.awake() as guest:
        await guest.write(f"{directory}/10-name", b"#!/bin/sh\nhostname > /root/name\n", mode=0o755, parents=True)
        await guest.write(f"{directory}/20-broken", b"#!/bin/sh\nexit 3\n", mode=0o755)
        await guest.write(f"{directory}/30-last", b"#!/bin/sh\ntouch /root/last\n", mode=0o755)
        await guest.write(f"{directory}/40-not-executable", b"#!/bin/sh\ntouch /root/never\n", mode=0o644)
    for fork in await runtime.fork(sandbox.id, 2):
        assert await say(fork, "cat /root/name; ls /root") == f"{fork.id.replace('_', '-')}\nlast\nname\n"
    assert await say(sandbox, "ls /root") == ""


# scenario 18 and 117: a damaged checkpoint breaks one sandbox, which can still be deleted
async def test_a_damaged_checkpoint_is_told_and_can_be_deleted(runtime: Runtime) -> None:
    damaged, other = await runtime.create(AWAKE), await runtime.create(AWAKE)
    await damaged.sleep()
    files = sorted((runtime._services.layout.sleep(damaged.id)).iterdir(), key=lambda path: path.stat().st_size)
    for path in files:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    with pytest.raises(StartError):
        await damaged.wake()
    assert damaged.state is State.ASLEEP
    assert await say(other, "echo unharmed") == "unharmed\n"
    await damaged.delete()
    assert [row.id for row in await runtime.sandboxes()] == [other.id]


# scenario 8: many clients wake one sandbox at once
async def test_many_callers_share_one_wake(runtime: Runtime) -> None:
    sandbox = await runtime.create(AWAKE)
    await sandbox.sleep()
    said = await asyncio.gather(*(say(sandbox, f"echo {n}") for n in range(8)))
    assert said == [f"{n}\n" for n in range(8)]
    wakes = [event for event in await runtime.events(sandbox.id) if event.data.get("doing") == "wake"]
    assert [event.data["phase"] for event in wakes] == ["begin", "end"]
    assert len(await runtime.sandboxes()) == 1


# scenario 57 (P0 for trust): the first command after create never fails; scenario 17: nothing of the one before is in
# the way, and nothing is left
async def test_create_and_first_command_many_times(cli: Cli) -> None:
    boots: dict[str, str | None] = {}
    async with await Runtime.open(cli.state_dir) as runtime:
        await runtime.warm(AWAKE, 3)

        async def create_use_delete(number: int) -> None:
            sandbox = await runtime.create(AWAKE, is_ephemeral=True)
            boots[sandbox.id] = sandbox.row.boot
            result = await sandbox.run(Command(argv=["echo", str(number)]))
            assert (result.exit_code, result.stdout) == (0, f"{number}\n".encode())
            await sandbox.delete()

        for start in range(0, 120, 3):
            await asyncio.gather(*(create_use_delete(start + n) for n in range(3)))
        assert not boots.keys() & {row.id for row in await runtime.sandboxes()}
    assert len(boots) == 120
    assert Boot.POOL in boots.values()
    assert leftovers(cli.state_dir) == []


def test_a_server_that_slept_is_listed_and_can_be_ended(cli: Cli) -> None:
    box = cli.keep("true")
    cli.ok("sandboxes", "exec", "-d", box, "python3", "-m", "http.server", "8000")
    until_up = "--retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 30"
    ask = f"curl -sf {until_up} -o /dev/null -w '%{{http_code}}' localhost:8000"
    for _ in range(2):
        assert cli.ok("sandboxes", "exec", box, "sh", "-c", ask) == "200"
        assert processes(box) == []  # it sleeps between the two
    end = "pgrep -x python3 | wc -l; pkill -x python3; while pgrep -x python3; do sleep 0.1; done"
    assert cli.ok("sandboxes", "exec", box, "timeout", "30", "sh", "-c", end).split()[0] == "1"
