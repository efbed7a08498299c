"""Terminals. Numbers are those of the scenarios that users of such systems met."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandyard.errors import NotFoundError
from sandyard.guest import STDOUT, Guest, Process, PtySize

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
SIZE = PtySize(rows=24, cols=80)


async def read_until(pieces: AsyncIterator[tuple[int, bytes]], wanted: bytes) -> bytes:
    seen = bytearray()
    while wanted not in seen:
        channel, data = await anext(pieces)
        assert channel == STDOUT  # a terminal has one output only
        seen += data
    return bytes(seen)


async def test_a_terminal_has_the_size_that_was_asked_for(guest: Guest) -> None:
    result = await guest.run(["stty", "size"], env=ENV, pty=SIZE)
    assert result.stdout.strip() == b"24 80"
    assert (await guest.run(["stty", "size"], env=ENV)).exit_code == 1  # without one there is no size


async def test_a_terminal_says_what_it_is(guest: Guest) -> None:
    assert b"TERM=xterm" in (await guest.run(["env"], env=ENV, pty=SIZE)).stdout
    assert b"TERM=dumb" in (await guest.run(["env"], env=ENV | {"TERM": "dumb"}, pty=SIZE)).stdout
    assert b"TERM=" not in (await guest.run(["env"], env=ENV)).stdout


# 84: the new size, and the signal.
async def test_resizing_tells_the_program(real_guest: Guest) -> None:
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"
    async with await real_guest.exec(shell=script, env=ENV, pty=SIZE) as process:
        pieces = aiter(process)
        await read_until(pieces, b"ready")
        await process.resize(PtySize(rows=50, cols=132))
        await read_until(pieces, b"50 132")


async def test_resizing_what_has_ended(guest: Guest) -> None:
    process = await guest.exec(["true"], env=ENV, pty=SIZE)
    await process.collect()
    with pytest.raises(NotFoundError):
        await process.resize(SIZE)


# 85: keys typed fast keep their order.
async def test_keys_keep_their_order(real_guest: Guest) -> None:
    keys = b"".join(b"%05d" % number for number in range(2000))
    async with await real_guest.exec(
        shell="stty raw -echo; echo ready; exec cat", env=ENV, pty=SIZE, stdin=True
    ) as process:
        pieces = aiter(process)
        await read_until(pieces, b"ready\n")
        sender = asyncio.create_task(_type(process, keys))
        seen = await read_until(pieces, keys[-5:])
        await sender
    assert seen == keys


async def _type(process: Process, keys: bytes) -> None:
    for start in range(0, len(keys), 3):
        await process.write(keys[start : start + 3])


# 88: Ctrl-C passes through, and so does the exit code.
async def test_control_c_interrupts(real_guest: Guest) -> None:
    # Not a shell: dash loses a SIGINT that comes just before it forks.
    async with await real_guest.exec(["cat"], env=ENV, pty=SIZE, stdin=True) as process:
        await process.write(b"running\n")
        await read_until(aiter(process), b"running\r\nrunning\r\n")  # the echo, and cat
        await process.write(b"\x03")
        result = await process.wait()
    assert (result.exit_code, result.signal) == (130, 2)


async def test_control_d_ends_the_input(real_guest: Guest) -> None:
    async with await real_guest.exec(["cat"], env=ENV, pty=SIZE, stdin=True) as process:
        await process.write(b"line\n\x04")
        result = await process.collect()
    assert result.exit_code == 0
    assert result.stdout.replace(b"\r", b"") == b"line\nline\n"  # the echo, and what cat said


async def test_a_terminal_is_a_session_of_its_own(real_guest: Guest) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && tty && exit 9"
    result = await real_guest.run(shell=script, env=ENV, pty=SIZE)
    assert result.exit_code == 9
    assert result.stdout.startswith(b"/dev/")
    assert result.stderr == b""


async def test_leaving_a_terminal_ends_what_runs_on_it(real_guest: Guest) -> None:
    async with await real_guest.exec(["sleep", "100"], env=ENV, pty=SIZE) as process:
        while not await real_guest.processes():
            await asyncio.sleep(0.01)
        assert not process.is_ended
    while await real_guest.processes():
        await asyncio.sleep(0.01)


async def test_much_output_of_a_terminal_is_whole(real_guest: Guest) -> None:
    script = "stty -opost; i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"
    result = await real_guest.run(shell=script, env=ENV, pty=SIZE)
    assert result.stdout == b"".join(b"%d\n" % number for number in range(20_000))
