"""Commands. Numbers are those of the scenarios that users of such systems met."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import os
from pathlib import Path

import pytest

from sandyard.errors import CommandError, CommandFailedError, ConflictError, InvalidRequestError, NotFoundError
from sandyard.guest import STDERR, STDOUT, Guest
from tests.guest.harness import Peer, RealPeer

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
MIB = 1024 * 1024


async def test_a_command_ends_with_its_exit_code_and_what_it_used(guest: Guest) -> None:
    result = await guest.run(["true"], env=ENV)
    assert (result.exit_code, result.signal, result.timed_out, result.truncated) == (0, None, False, False)
    assert (result.stdout, result.stderr) == (b"", b"")
    assert result.pid > 1
    assert 0 < result.fork_exec_wait_us < 10_000_000
    assert result.max_rss_kib > 0


async def test_exit_codes_are_the_commands_own(guest: Guest) -> None:
    assert (await guest.run(["false"], env=ENV)).exit_code == 1
    failed = await guest.run(shell="exit 7")
    assert failed.exit_code == 7
    with pytest.raises(CommandFailedError, match="exit code 7"):
        failed.check()
    assert (await guest.run(["true"], env=ENV)).check().exit_code == 0


async def test_stdout_and_stderr_are_apart(guest: Guest) -> None:
    result = await guest.run(shell="echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)


async def test_output_comes_while_the_command_runs(guest: Guest) -> None:
    async with await guest.exec(shell="echo first; sleep 100", env=ENV) as process:
        pieces = aiter(process)
        assert await anext(pieces) == (STDOUT, b"first\n")
        assert not process.is_ended


# 73: blank lines and the trailing newline, or its absence, are the command's.
@pytest.mark.parametrize("text", ["\n\na\n\n", "no newline at the end", "", "\n"])
async def test_output_is_not_touched(guest: Guest, text: str) -> None:
    assert (await guest.run(["echo", "-n", text] if text else ["true"], env=ENV)).stdout == text.encode()


# 69: bytes mode is byte-exact.
async def test_nul_and_random_bytes_pass_both_ways_unchanged(guest: Guest) -> None:
    data = bytes(range(256)) * 16 + os.urandom(MIB)
    assert (await guest.run(["cat"], env=ENV, stdin=data)).stdout == data


# 70: a multi-byte character may be cut between pieces, and is whole for who decodes them in turn.
async def test_a_split_character_survives_incremental_decoding(guest: Guest) -> None:
    text = "ä€😀" * 150_000
    decoder = codecs.getincrementaldecoder("utf-8")()
    process = await guest.exec(["cat"], env=ENV, stdin=True)
    async with process, asyncio.TaskGroup() as group:
        group.create_task(_feed(process.write, process.close_stdin, text.encode(), step=100_001))
        decoded = "".join([decoder.decode(data) async for _, data in process])
    assert decoded + decoder.decode(b"", final=True) == text


async def _feed(write, close, data: bytes, *, step: int) -> None:
    for start in range(0, len(data), step):
        await write(data[start : start + step])
    await close()


async def test_the_environment_is_exactly_what_was_given(guest: Guest) -> None:
    # 109: quotes, $(), newlines in values are data.
    env = ENV | {"A": "1", "NASTY": "'\"$(id)`id`;&\n x", "EMPTY": "", "HOME": "/tmp"}
    result = await guest.run(["env"], env=env)
    assert b"NASTY='\"$(id)`id`;&\n x\n" in result.stdout
    assert b"\nEMPTY=\n" in b"\n" + result.stdout
    assert b"HOME=/tmp\n" in result.stdout
    names = {line.split(b"=")[0] for line in result.stdout.splitlines() if b"=" in line}
    assert names == {b"A", b"EMPTY", b"HOME", b"NASTY", b"PATH", b"USER"}


async def test_arguments_pass_as_they_are(guest: Guest) -> None:
    assert (await guest.run(["echo", "-n", "a b", "$HOME", "*", "'", "\n", "ü"], env=ENV)).stdout == (
        "a b $HOME * ' \n ü".encode()
    )


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"A=B": "x"}, "invalid-env"),
        ({"": "x"}, "invalid-env"),
        ({"A\0": "x"}, "invalid-argument"),
        ({"A": "\0"}, "invalid-argument"),
    ],
)
async def test_an_environment_that_no_process_can_have_is_refused(guest: Guest, env: dict[str, str], code: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await guest.exec(["true"], env=env)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"argv": []},
        {"argv": ["true"], "shell": "true"},
        {"argv": ["a\0b"]},
        {"argv": ["\udcff"]},
        {"argv": ["true"], "timeout_s": 0},
        {"argv": ["true"], "timeout_s": float("inf")},
        {"argv": ["true"], "timeout_s": float("nan")},
        {"argv": ["true"], "exec_id": ""},
        {"argv": ["true"], "exec_id": "a b"},
        {"argv": ["true"], "exec_id": "x" * 129},
    ],
)
async def test_a_command_that_cannot_be_one_is_refused(guest: Guest, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        await guest.exec(**arguments)  # type: ignore[arg-type]  # wrong on purpose
    assert guest.open_streams == 0


async def test_a_request_longer_than_a_frame_is_refused(guest: Guest) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await guest.exec(["echo", "x" * 300_000], env=ENV)
    assert refused.value.code == "request-too-large"
    assert (await guest.run(["true"], env=ENV)).exit_code == 0


async def test_working_directory_and_user(guest: Guest, peer: Peer) -> None:
    assert (await guest.run(["pwd"], env=ENV, cwd=peer.box)).stdout == f"{peer.box}\n".encode()
    assert (await guest.run(["id", "-u"], env=ENV)).stdout == b"0\n"
    assert (await guest.run(["id", "-u"], env=ENV, user="nobody", cwd="/")).stdout == b"65534\n"
    assert (await guest.run(["id", "-g"], env=ENV, user="1234:0", cwd="/")).stdout == b"0\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"argv": ["no-such-program"]}, "command-not-found"),  # 114: at once, not after the timeout
        ({"argv": ["/no/such/program"]}, "command-not-found"),
        ({"argv": ["/etc/passwd"]}, "command-not-executable"),
        ({"argv": ["/etc"]}, "command-not-executable"),
        ({"argv": ["true"], "user": "no-such-user"}, "user-not-found"),
        ({"argv": ["true"], "cwd": "/no/such/directory"}, "cwd-not-found"),
    ],
)
async def test_a_command_that_cannot_start_says_why(guest: Guest, arguments: dict[str, str], code: str) -> None:
    with pytest.raises(CommandError) as failed:
        await guest.run(**arguments, env=ENV, timeout_s=60)  # type: ignore[arg-type]  # a table of keywords
    assert failed.value.code == code
    assert guest.open_streams == 0


# 74: nobody sends input, so there is none.
async def test_stdin_is_at_its_end_unless_asked_for(guest: Guest) -> None:
    assert (await guest.run(["cat"], env=ENV, timeout_s=60)).stdout == b""


async def test_input_that_is_never_sent_keeps_the_command_waiting_until_its_timeout(guest: Guest) -> None:
    async with await guest.exec(["cat"], env=ENV, stdin=True, timeout_s=0.2) as process:
        result = await process.wait()
    assert (result.timed_out, result.exit_code, result.signal) == (True, 137, 9)


async def test_a_command_that_reads_no_input_does_not_hang_its_writer(guest: Guest) -> None:
    assert (await guest.run(["true"], env=ENV, stdin=bytes(5 * MIB))).exit_code == 0


async def test_writing_to_a_command_that_has_ended_says_so(guest: Guest) -> None:
    async with await guest.exec(["true"], env=ENV, stdin=True) as process:
        await process.wait()
        with pytest.raises(ConflictError) as failed:
            await process.write(b"x")
        assert failed.value.code == "stream-ended"


async def test_input_and_output_flow_at_the_same_time(guest: Guest) -> None:
    data = os.urandom(8 * MIB)
    result = await guest.run(["cat"], env=ENV, stdin=data)
    assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(data).digest()


# 68: a documented cap, and the flag.
async def test_collected_output_is_capped_and_says_so(guest: Guest) -> None:
    result = await guest.run(["head", "-c", "3000000", "/dev/zero"], env=ENV, limit=1_000_000)
    assert (len(result.stdout), result.truncated, result.exit_code) == (1_000_000, True, 0)
    exact = await guest.run(["head", "-c", "1000000", "/dev/zero"], env=ENV, limit=1_000_000)
    assert (len(exact.stdout), exact.truncated) == (1_000_000, False)


# 77: a timeout is a result of its own, enforced inside.
async def test_a_timeout_kills_and_is_told(guest: Guest) -> None:
    result = await guest.run(["sleep", "100"], env=ENV, timeout_s=0.1)
    assert (result.timed_out, result.exit_code, result.signal) == (True, 137, 9)
    with pytest.raises(CommandFailedError, match="time was over"):
        result.check()


async def test_signals_reach_the_command(guest: Guest) -> None:
    process = await guest.exec(["sleep", "100"], env=ENV)
    await process.signal(15)
    result = await process.wait()
    assert (result.exit_code, result.signal, result.timed_out) == (143, 15, False)
    with pytest.raises(NotFoundError) as gone:
        await process.signal(15)
    assert gone.value.code == "exec-not-found"
    killed = await guest.exec(["sleep", "100"], env=ENV)
    await killed.kill()
    assert (await killed.wait()).exit_code == 137


async def test_running_commands_are_listed(guest: Guest) -> None:
    async with await guest.exec(["sleep", "100"], env=ENV, exec_id="ex_mine") as process:
        while not (found := await guest.processes()):
            await asyncio.sleep(0.01)
        assert [(entry.id, entry.argv[-1], entry.detached) for entry in found] == [("ex_mine", "100", False)]
        assert (await guest.info()).execs == 1
        with pytest.raises(ConflictError) as taken:
            await (await guest.exec(["true"], env=ENV, exec_id="ex_mine")).wait()
        assert taken.value.code == "exec-exists"
        assert process.id == "ex_mine"
    await _until_no_command_runs(guest)


async def _until_no_command_runs(guest: Guest) -> None:
    while await guest.processes():
        await asyncio.sleep(0.01)


async def test_leaving_a_command_kills_it(guest: Guest) -> None:
    async with await guest.exec(["sleep", "100"], env=ENV):
        pass
    await _until_no_command_runs(guest)
    assert guest.open_streams == 0


async def test_cancelling_a_run_kills_its_command(guest: Guest) -> None:
    task = asyncio.create_task(guest.run(["sleep", "100"], env=ENV))
    while not await guest.processes():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until_no_command_runs(guest)
    assert guest.open_streams == 0


async def test_many_commands_run_at_once(guest: Guest) -> None:
    results = await asyncio.gather(*(guest.run(["echo", str(n)], env=ENV) for n in range(100)))
    assert [result.stdout for result in results] == [f"{n}\n".encode() for n in range(100)]


# -- detached ---------------------------------------------------------------------------------------------------------


async def test_a_detached_command_can_be_looked_at(guest: Guest) -> None:
    spawned = await guest.spawn(shell="echo started; sleep 100", env=ENV)
    assert spawned.pid > 1
    for _ in range(2):  # leaving does not end it
        async with await guest.attach_exec(spawned.id) as process:
            assert await anext(aiter(process)) == (STDOUT, b"started\n")
    await guest.signal(spawned.id, 9)
    await _until_no_command_runs(guest)
    with pytest.raises(NotFoundError):
        await guest.signal(spawned.id, 9)


async def test_how_a_detached_command_ended_can_be_asked_for_later(guest: Guest) -> None:
    spawned = await guest.spawn(shell="echo done; exit 5", env=ENV)
    await _until_no_command_runs(guest)
    result = await (await guest.attach_exec(spawned.id)).collect()
    assert (result.stdout, result.exit_code) == (b"done\n", 5)
    with pytest.raises(NotFoundError) as unknown:
        await (await guest.attach_exec("ex_unknown")).wait()
    assert unknown.value.code == "exec-not-found"


async def test_all_who_look_see_the_end(guest: Guest) -> None:
    spawned = await guest.spawn(["sleep", "100"], env=ENV)
    watchers = [await guest.attach_exec(spawned.id) for _ in range(3)]
    await guest.signal(spawned.id, 15)
    assert [(await watcher.wait()).exit_code for watcher in watchers] == [143, 143, 143]


async def test_a_detached_command_that_cannot_start_says_why(guest: Guest) -> None:
    with pytest.raises(CommandError) as failed:
        await guest.spawn(["no-such-program"], env=ENV)
    assert failed.value.code == "command-not-found"


async def test_attaching_replays_the_end_of_long_output(guest: Guest) -> None:
    spawned = await guest.spawn(shell="head -c 1000000 /dev/zero; echo end; sleep 100", env=ENV)
    async with await guest.attach_exec(spawned.id) as process:
        seen = bytearray()
        async for _, data in process:
            seen += data
            if seen.endswith(b"end\n"):
                break
    # What came before the look is limited; what came after is not.
    assert 4 <= len(seen) <= 1_000_004
    await guest.signal(spawned.id, 9)


# -- what only a real kernel shows ------------------------------------------------------------------------------------


# 76: the whole process group dies with its leader's timeout.
async def test_a_timeout_kills_the_whole_pipeline(real_guest: Guest, real: RealPeer) -> None:
    result = await real_guest.run(["bash", "-c", "sleep 1000 | cat"], env=ENV, timeout_s=0.3)
    assert result.timed_out
    while await _processes(real):
        await asyncio.sleep(0.01)


async def test_leaving_a_command_kills_its_process_group(real_guest: Guest, real: RealPeer) -> None:
    async with await real_guest.exec(shell="sleep 1000 & sleep 1001", env=ENV):
        while len(await _processes(real)) < 3:
            await asyncio.sleep(0.01)
    while await _processes(real):
        await asyncio.sleep(0.01)


async def test_what_a_command_left_behind_lives_on(real_guest: Guest, real: RealPeer) -> None:
    result = await real_guest.run(shell="(sleep 0.2; echo late; sleep 1000) & echo now", env=ENV)
    assert (result.stdout, result.exit_code) == (b"now\n", 0)
    await asyncio.sleep(0.4)
    # It has written to a pipe that nobody reads any more, and did not die of it.
    assert any("sleep" in name for name in await _processes(real))


# 80: nothing is left of commands and of the orphans of killed ones.
@pytest.mark.timeout(300)
async def test_no_zombies_after_a_thousand_commands(real_guest: Guest, real: RealPeer) -> None:
    for batch in range(20):
        shells = ["true", "(exit 3) & exit 0", "sleep 0 & kill -9 $$"]
        await asyncio.gather(*(real_guest.run(shell=shells[(batch + n) % 3], env=ENV) for n in range(50)))
    while await _processes(real):  # what is only about to be reaped is gone soon; a zombie would stay
        await asyncio.sleep(0.01)


async def _processes(real: RealPeer) -> list[str]:
    """Return the names of all processes below the agent; ``Z`` for a zombie."""
    found = []
    parents = [real.pid()]
    while parents:
        parent = parents.pop()
        try:
            children = [
                pid
                for task in Path(f"/proc/{parent}/task").iterdir()
                for pid in (task / "children").read_text().split()
            ]
            for child in children:
                status = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                found.append("Z" if status == "Z" else Path(f"/proc/{child}/comm").read_text().strip())
                parents.append(int(child))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


# 72, 97: neither side keeps anything of a command that has ended.
@pytest.mark.timeout(300)
async def test_two_thousand_commands_leak_no_descriptors(real_guest: Guest, real: RealPeer) -> None:
    async def descriptors() -> int:
        return len(list(Path(f"/proc/{real.pid()}/fd").iterdir())) + len(list(Path("/proc/self/fd").iterdir()))

    await asyncio.gather(*(real_guest.run(["/bin/true"]) for _ in range(10)))
    before = await descriptors()
    for _ in range(100):
        await asyncio.gather(*(real_guest.run(["/bin/true"]) for _ in range(20)))
    assert await descriptors() <= before + 2
    assert real_guest.open_streams == 0


async def test_a_command_killed_by_a_signal_of_its_own(real_guest: Guest) -> None:
    result = await real_guest.run(shell="kill -SEGV $$")
    assert (result.exit_code, result.signal) == (139, 11)


async def test_rusage_is_the_commands_own(real_guest: Guest) -> None:
    idle = await real_guest.run(["sleep", "0.2"], env=ENV)
    busy = await real_guest.run(["python3", "-c", "for i in range(3_000_000): pass"], env={"PATH": os.environ["PATH"]})
    assert idle.fork_exec_wait_us >= 200_000
    assert idle.user_us + idle.system_us < 100_000
    assert 20_000 < busy.user_us <= busy.fork_exec_wait_us
    assert busy.max_rss_kib > idle.max_rss_kib


async def test_stderr_alone_and_closed_output(real_guest: Guest) -> None:
    result = await real_guest.run(shell="exec 1>&-; echo only >&2")
    assert (result.stdout, result.stderr, result.exit_code) == (b"", b"only\n", 0)
    async with await real_guest.exec(shell="echo e >&2; echo o") as process:
        assert {channel async for channel, _ in process} == {STDOUT, STDERR}
