"""Processes of ours that die by kill -9: what they had promised is kept, and what they left behind goes away."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandyard.drivers.gvisor import CONTROL_ROOT
from sandyard.runtime import Command, Runtime, SandboxSpec, State

from .conftest import Cli, kill_hard, leftovers, processes, wait_for_line

ONE_OFF = """
import asyncio, sys
from pathlib import Path
from sandyard.runtime import Command, Runtime, SandboxSpec, Settings

async def main():
    async with await Runtime.open(Path(sys.argv[1]), settings=Settings(lease_s=2)) as runtime:
        sandbox = await runtime.create(SandboxSpec(), is_ephemeral=True)
        await sandbox.spawn(Command(argv=["sleep", "1000"]))
        print(sandbox.id, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""

BUSY = """
import asyncio, json, random, sys
from pathlib import Path
from sandyard.runtime import Command, Runtime, SandboxSpec

async def main():
    choose = random.Random(int(sys.argv[2]))
    count = 0
    async with await Runtime.open(Path(sys.argv[1])) as runtime:
        known = [row.id for row in await runtime.sandboxes()]

        def tell(what, *words):
            print(json.dumps([what, *words]), flush=True)

        while True:
            do = choose.choice(["create", "write", "write", "sleep", "wake", "fork", "snapshot", "delete"])
            if do == "create" or len(known) < 2:
                if len(known) < 5:
                    sandbox = await runtime.create(SandboxSpec(memory_mib=256, sleep_after_s=None))
                    known.append(sandbox.id)
                    tell("made", sandbox.id)
                continue
            sandbox = await runtime.get(choose.choice(known))
            if do == "write":
                count += 1
                line = f"echo {sys.argv[2]}.{count} >> /root/log; sync"
                (await sandbox.run(Command(shell=line))).check()
                tell("wrote", sandbox.id, f"{sys.argv[2]}.{count}")
            elif do == "sleep":
                await sandbox.sleep()
            elif do == "wake":
                await sandbox.wake()
            elif do == "fork" and len(known) < 5:
                [fork] = await runtime.fork(sandbox.id)
                known.append(fork.id)
                tell("forked", sandbox.id, fork.id)
            elif do == "snapshot":
                saved = await runtime.snapshots.take(sandbox)
                tell("saved", saved.id)
            elif do == "delete":
                known.remove(sandbox.id)
                tell("deleting", sandbox.id)
                await sandbox.delete()
                tell("deleted", sandbox.id)

asyncio.run(main())
"""


def start(script: str, state_dir: Path, *words: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", script, str(state_dir), *words]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


# scenario 32 (P0): a client killed with -9 leaves a sandbox that ends by itself, whoever comes or does not come after
def test_a_one_off_whose_client_is_killed_ends_with_its_lease(cli: Cli) -> None:
    owner = start(ONE_OFF, cli.state_dir)
    box = wait_for_line(owner).decode().strip()
    kill_hard(owner)
    assert processes(box) != []
    until = time.monotonic() + 60
    while processes(box):
        assert time.monotonic() < until, "it outlived its lease"
        time.sleep(0.1)
    assert cli.ok("sandboxes", "list", "--json") == "[]\n"
    assert leftovers(cli.state_dir) == []


class Promises:
    """What the busy process has said, and so must hold whenever it dies."""

    def __init__(self) -> None:
        self.logs: dict[str, list[str]] = {}
        self.deleted: set[str] = set()
        self.perhaps_deleted: set[str] = set()
        self.saved: set[str] = set()

    def hear(self, line: bytes) -> None:
        match json.loads(line):
            case ["made", box]:
                self.logs[box] = []
            case ["wrote", box, mark]:
                self.logs[box].append(mark)
            case ["forked", box, fork]:
                self.logs[fork] = list(self.logs[box])
            case ["saved", snapshot]:
                self.saved.add(snapshot)
            case ["deleting", box]:
                self.perhaps_deleted.add(box)
            case ["deleted", box]:
                self.deleted.add(box)

    def must_exist(self) -> set[str]:
        return self.logs.keys() - self.perhaps_deleted


def in_order(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether all of ``wanted`` is in ``found``, in this order; more may be there that nobody was told of."""
    rest = iter(found)
    return all(mark in rest for mark in wanted)


async def test_what_a_killed_process_left_of_a_sleeper_is_not_in_the_way_when_it_wakes(
    runtime: Runtime, tmp_path: Path
) -> None:
    """It had put the sandbox to sleep and died before it could clear away what runsc and the kernel knew of it."""
    sandbox = await runtime.create(SandboxSpec(sleep_after_s=None))
    (await sandbox.run(Command(shell="echo kept > /file"))).check()
    record = CONTROL_ROOT / sandbox.id
    shutil.copytree(record, tmp_path / "record", ignore=lambda _, names: [name for name in names if ".sock" in name])
    await sandbox.sleep()
    while record.exists():
        await asyncio.sleep(0.01)
    shutil.copytree(tmp_path / "record", record)
    assert (await sandbox.run(Command(argv=["cat", "/file"]))).stdout == b"kept\n"


# the issue: recovery after kill -9; scenarios 2, 5 and 9 (P0): what was acknowledged is never lost
@pytest.mark.timeout(300)
async def test_kill_9_at_any_moment_loses_nothing_and_leaves_nothing(cli: Cli) -> None:
    seed = 20261130
    choose = random.Random(seed)
    promises = Promises()
    for round_number in range(8):
        busy = start(BUSY, cli.state_dir, str(seed + round_number))
        heard = wait_for_line(busy)
        time.sleep(choose.uniform(0, 2.5))
        busy.kill()
        for line in [heard, *busy.communicate()[0].splitlines(keepends=True)]:
            if line.endswith(b"\n"):
                promises.hear(line)
        async with await Runtime.open(cli.state_dir) as runtime:
            rows = {row.id: row for row in await runtime.sandboxes()}
            assert promises.must_exist() <= rows.keys(), f"lost in round {round_number}"
            assert not promises.deleted & rows.keys(), f"came back in round {round_number}"
            assert {(row.state, row.doing) for row in rows.values()} <= {(State.RUNNING, None), (State.ASLEEP, None)}
            assert promises.saved <= {row.id for row in await runtime.snapshots.kept()}
            for box in rows.keys() & promises.logs.keys():
                sandbox = await runtime.get(box)
                log = (await sandbox.run(Command(shell="cat /root/log 2>/dev/null; true"))).check().stdout.decode()
                assert in_order(promises.logs[box], log.split()), f"{box} in round {round_number}: {log}"
            for box in rows.keys() - promises.logs.keys():  # made, and nobody was told
                await (await runtime.get(box)).delete()
        assert list(cli.state_dir.rglob("*.part")) == []
        assert {path.name for path in (cli.state_dir / "sandboxes").iterdir()} <= rows.keys()
    assert len(promises.logs) > 2
    assert any(promises.logs.values())
