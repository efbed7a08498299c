"""Sessions: beginning, losing, taking over, standing still; and what the agent does for the machine as a whole."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from sandyard.drivers import After
from sandyard.errors import (
    ConflictError,
    ConnectError,
    DeadlineExceededError,
    GuestAgentError,
    InvalidRequestError,
    NotFoundError,
    SandboxGoneError,
    StartTimeoutError,
    TransportError,
)
from sandyard.frames import FrameType, encode_data
from sandyard.guest import Guest
from tests.guest.harness import AGENT, FakePeer, Peer, RealPeer

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
MIB = 1024 * 1024


async def test_the_agent_says_who_it_is(peer: Peer) -> None:
    guest = Guest(await peer.connect())
    hello = await guest.attach()
    assert hello.boot_id
    assert hello.agent
    assert not hello.resumed
    assert guest.is_attached
    info = await guest.info()
    assert (info.boot_id, info.agent) == (hello.boot_id, hello.agent)
    assert info.execs == 0
    assert info.memory_total_kib >= info.memory_available_kib > 0
    await guest.close()
    assert not guest.is_attached


async def test_pings_are_answered(guest: Guest) -> None:
    assert all([0 < await guest.ping() < 10 for _ in range(10)])


async def test_nothing_can_be_asked_before_or_after(peer: Peer) -> None:
    guest = Guest(await peer.connect())
    with pytest.raises(TransportError):
        await guest.run(["true"], env=ENV)
    with pytest.raises(TransportError):
        await guest.ping()
    await guest.attach()
    await guest.close()
    for call in (guest.run(["true"], env=ENV), guest.info(), guest.ping(), guest.attach(), guest.prepare_checkpoint()):
        with pytest.raises(TransportError) as closed:
            await call
        assert closed.value.code == "closed"


async def test_closing_ends_every_open_call_with_the_reason_given(peer: Peer) -> None:
    guest = Guest(await peer.connect())
    await guest.attach()
    process = await guest.exec(["sleep", "100"], env=ENV)
    calls = [
        asyncio.create_task(call) for call in (process.collect(), process.wait(), guest.run(["sleep", "100"], env=ENV))
    ]
    await asyncio.sleep(0.05)
    reason = SandboxGoneError("killed for memory.", hint="Give it more.", code="out-of-memory")
    await guest.close(reason)
    for error in (*await asyncio.gather(*calls, return_exceptions=True), guest.error, await guest.wait_lost()):
        assert isinstance(error, SandboxGoneError)
        assert (str(error), error.code) == (str(reason), "out-of-memory")
    assert guest.open_streams == 0


# 66: a connection that is lost in mid-stream is an error, and never exit code 0.
@pytest.mark.parametrize("use", ["collect", "wait", "iterate"])
async def test_a_machine_lost_in_mid_stream_is_an_error(guest: Guest, peer: Peer, use: str) -> None:
    process = await guest.exec(shell="echo before; sleep 100", env=ENV)
    pieces = aiter(process)
    assert (await anext(pieces))[1] == b"before\n"

    async def iterate() -> None:
        async for _ in process:
            pass

    calls = {"collect": process.collect, "wait": process.wait, "iterate": iterate}
    task = asyncio.create_task(calls[use]())
    await asyncio.sleep(0)
    await peer.kill()
    with pytest.raises(SandboxGoneError):
        await task
    with pytest.raises(SandboxGoneError):
        await guest.run(["true"], env=ENV)


async def test_a_download_cut_off_is_an_error(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/big", bytes(16 * MIB))
    async with guest.read(f"{peer.box}/big") as download:
        await anext(aiter(download))
        await peer.kill()
        with pytest.raises(SandboxGoneError):
            [piece async for piece in download]


# -- taking over ------------------------------------------------------------------------------------------------------


async def test_a_new_host_kills_what_the_old_one_ran(guest: Guest, peer: Peer) -> None:
    lost = await guest.exec(["sleep", "100"], env=ENV)
    kept = await guest.spawn(["sleep", "101"], env=ENV)
    while len(await guest.processes()) < 2:
        await asyncio.sleep(0.01)
    other = Guest(await peer.connect(interrupt=True))
    hello = await other.attach(orphans="kill")
    assert not hello.resumed
    with pytest.raises(SandboxGoneError):
        await lost.wait()
    while [process.id for process in await other.processes()] != [kept.id]:
        await asyncio.sleep(0.01)
    await other.close()


async def test_a_copy_lets_commands_go_on(guest: Guest, peer: Peer) -> None:
    process = await guest.exec(shell="echo hello; sleep 100", env=ENV)
    assert (await anext(aiter(process)))[1] == b"hello\n"
    other = Guest(await peer.connect(interrupt=True))
    await other.attach(orphans="keep")
    assert [(entry.id, entry.detached) for entry in await other.processes()] == [(process.id, True)]
    async with await other.attach_exec(process.id) as seen:
        assert (await anext(aiter(seen)))[1] == b"hello\n"
    await other.signal(process.id, 9)
    await other.close()


async def test_half_a_frame_of_a_host_that_died_is_forgotten(peer: Peer) -> None:
    first = Guest(await peer.connect())
    await first.attach()
    frame = encode_data(7, 0, bytes(200_000))
    await first._link._channel.write(frame[:100_000])
    other = Guest(await peer.connect(interrupt=True))
    await other.attach()
    assert (await other.run(["true"], env=ENV)).exit_code == 0
    await other.close()
    await first.close()


async def test_output_that_nobody_fetched_does_not_deceive_the_next_host(peer: Peer) -> None:
    first = Guest(await peer.connect())
    await first.attach()
    # The agent fills the pipe while nobody reads; then another host comes.
    await first.exec(["head", "-c", "2000000", "/dev/zero"], env=ENV)
    await asyncio.sleep(0.05)
    await first._link._stop_tasks()
    other = Guest(await peer.connect(interrupt=True))
    await other.attach()
    assert (await other.run(["echo", "new"], env=ENV)).stdout == b"new\n"
    await other.close()
    await first.close()


async def test_a_breach_by_the_host_makes_the_agent_scan_again(peer: Peer) -> None:
    first = Guest(await peer.connect())
    await first.attach()
    await first._link._channel.write(bytes([0, 0, 0, 0, 0, 0, 0, 1, FrameType.RESET]))  # never opened
    other = Guest(await peer.connect())
    assert not (await other.attach()).resumed
    assert (await other.run(["true"], env=ENV)).exit_code == 0
    await other.close()
    await first.close()


async def test_an_agent_that_never_answers(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    await peer.machine.remove()
    peer.driver.host.faults.silent = True
    guest = Guest(await (await peer.driver.boot(peer.machine.spec)).connect())
    with pytest.raises(StartTimeoutError):
        await guest.attach(timeout_s=0.05)
    with pytest.raises(StartTimeoutError):
        await guest.info()
    await guest.close()


async def test_a_frozen_machine_lets_quick_answers_time_out(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    guest = Guest(await peer.machine.connect(), answer_s=0.05)
    await guest.attach()
    await peer.machine.pause()
    for call in (guest.info(), guest.ping()):
        with pytest.raises(DeadlineExceededError):
            await call
    assert guest.open_streams == 0
    await peer.machine.resume()
    assert (await guest.info()).execs == 0
    await guest.close()


# -- standing still ---------------------------------------------------------------------------------------------------


async def test_streams_go_on_after_standing_still(guest: Guest, peer: Peer) -> None:
    echo = await guest.exec(["cat"], env=ENV, stdin=True)
    await echo.write(b"before ")
    pieces = aiter(echo)
    assert (await anext(pieces))[1] == b"before "
    await guest.prepare_checkpoint()
    assert not guest.is_attached
    waiting = asyncio.create_task(guest.run(["echo", "asked meanwhile"], env=ENV))
    await echo.write(b"written meanwhile")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    hello = await guest.reattach()
    assert hello.resumed
    assert (await anext(pieces))[1] == b"written meanwhile"
    assert (await waiting).stdout == b"asked meanwhile\n"
    await echo.close_stdin()
    assert (await echo.wait()).exit_code == 0


async def test_no_byte_is_lost_by_standing_still_again_and_again(guest: Guest) -> None:
    total = 20 * MIB
    process = await guest.exec(["head", "-c", str(total), "/dev/zero"], env=ENV)
    reader = asyncio.create_task(process.collect(limit=2 * total))
    for _ in range(10):
        await guest.prepare_checkpoint()
        await guest.reattach()
        await asyncio.sleep(0.002)
    assert len((await reader).stdout) == total


async def test_nothing_is_in_the_pipes_while_the_machine_stands_still(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    guest = Guest(await peer.machine.connect())
    await guest.attach()
    unread = await guest.exec(["yes"], env=ENV)
    await guest.prepare_checkpoint()
    uploads = asyncio.create_task(guest.write("/tmp/f", bytes(5 * MIB)))
    await asyncio.sleep(0.05)
    assert (peer.machine._body.to_agent.size, peer.machine._body.to_host.size) == (0, 0)
    await guest.reattach()
    assert await uploads == 5 * MIB
    await unread.aclose()
    await guest.close()


async def test_a_channel_that_ends_while_the_machine_sleeps_ends_no_call(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    guest = Guest(await peer.machine.connect(), answer_s=0.05)
    await guest.attach()
    process = await guest.exec(["cat"], env=ENV, stdin=True, timeout_s=60)
    await guest.prepare_checkpoint()
    asked = asyncio.create_task(guest.info())
    checkpoint = tmp_path / "checkpoint"
    await peer.machine.checkpoint(checkpoint, After.STOP)
    await asyncio.sleep(0.2)  # far beyond answer_s: sleeping time does not count
    assert not asked.done()
    await peer.driver.sweep(peer.machine.spec)
    woken = await peer.driver.restore(peer.machine.spec, checkpoint)
    assert (await guest.reattach(await woken.connect())).resumed
    assert (await asked).execs == 1
    assert (await process.collect(b"awake")).stdout == b"awake"
    await guest.close()


async def test_an_agent_started_anew_does_not_know_the_session(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    guest = Guest(await peer.machine.connect())
    await guest.attach()
    process = await guest.exec(["sleep", "100"], env=ENV)
    await guest.prepare_checkpoint()
    await peer.machine.remove()
    fresh = await peer.driver.boot(peer.machine.spec)
    with pytest.raises(SandboxGoneError):
        await guest.reattach(await fresh.connect())
    with pytest.raises(SandboxGoneError):
        await process.wait()
    await guest.close()


async def test_a_machine_that_ends_while_it_is_greeted_again_is_not_waited_for(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    guest = Guest(await peer.machine.connect())
    await guest.attach()
    await guest.prepare_checkpoint()
    await peer.machine.pause()
    going_on = asyncio.create_task(guest.reattach(timeout_s=100))
    await asyncio.sleep(0.01)
    await peer.machine.kill()
    with pytest.raises(SandboxGoneError):
        await asyncio.wait_for(going_on, 10)
    await guest.close()


async def test_standing_still_twice_is_refused(guest: Guest) -> None:
    first = asyncio.create_task(guest.prepare_checkpoint())
    await asyncio.sleep(0)
    with pytest.raises(ConflictError):
        await guest.prepare_checkpoint()
    await first
    with pytest.raises(ConflictError):
        await guest.prepare_checkpoint()
    await guest.reattach()
    assert (await guest.run(["true"], env=ENV)).exit_code == 0


async def test_going_on_is_only_for_who_stands_still(guest: Guest) -> None:
    with pytest.raises(TransportError) as refused:
        await guest.reattach()
    assert refused.value.code == "not-attached"
    assert (await guest.run(["true"], env=ENV)).exit_code == 0


# -- keeping awake, leases, identity ----------------------------------------------------------------------------------


async def test_holds_are_told_to_the_host(guest: Guest) -> None:
    told: list[int] = []
    guest.on_hold = told.append
    until = await guest.hold(600)
    assert (await guest.info()).held_until_unix_ms == until
    while not told:
        await asyncio.sleep(0.01)
    assert told == [until]
    assert guest.held_until_unix_ms == until
    assert await guest.hold(0) == 0
    while told[-1]:
        await asyncio.sleep(0.01)
    assert guest.held_until_unix_ms == 0


async def test_a_lease_that_nobody_renews_ends_the_machine(peer: Peer) -> None:
    guest = Guest(await peer.connect())
    await guest.attach()
    await guest._request("lease", {"seconds": 1})  # without the renewing that lease() does
    lost = await asyncio.wait_for(guest.wait_lost(), 20)
    assert isinstance(lost, SandboxGoneError)
    await guest.close()


async def test_a_lease_is_renewed_while_attached_and_can_be_ended(guest: Guest) -> None:
    await guest.lease(1)
    await asyncio.sleep(2.5)
    assert (await guest.run(["true"], env=ENV)).exit_code == 0
    await guest.lease(0)
    await asyncio.sleep(1.5)
    assert (await guest.run(["true"], env=ENV)).exit_code == 0


async def test_a_copy_learns_who_it_is(guest: Guest, peer: Peer) -> None:
    before = await guest.info()
    hook = b"#!/bin/sh\nexit 3\n"
    await guest.write(f"{peer.box}/hooks/10-first", hook, mode=0o755, parents=True)
    await guest.write(f"{peer.box}/hooks/20-not-executable", hook, mode=0o644)
    restored = await guest.after_restore(
        sandbox_id="sb_copy", hostname="copy-1", entropy=bytes(32), hooks_dir=f"{peer.box}/hooks"
    )
    assert [(ran.name, ran.exit_code) for ran in restored.hooks] == [("10-first", 3)]
    info = await guest.info()
    assert (info.id, info.hostname) == ("sb_copy", "copy-1")
    assert info.boot_id == restored.boot_id != before.boot_id
    assert (await guest.run(["hostname"], env=ENV)).stdout == b"copy-1\n"
    assert await guest.read_bytes("/etc/hostname") == b"copy-1\n"
    assert b"copy-1" in await guest.read_bytes("/etc/hosts")


async def test_shutdown_ends_the_machine(peer: Peer) -> None:
    guest = Guest(await peer.connect())
    await guest.attach()
    await guest.shutdown()
    assert isinstance(await guest.wait_lost(), SandboxGoneError)
    await guest.close()


async def test_an_op_that_the_agent_does_not_know(guest: Guest) -> None:
    with pytest.raises(GuestAgentError) as unknown:
        await guest._request("no-such-op")
    assert unknown.value.code == "unknown-op"
    assert (await guest.run(["true"], env=ENV)).exit_code == 0


# -- connections ------------------------------------------------------------------------------------------------------


async def test_nothing_listens(guest: Guest) -> None:
    with pytest.raises(ConnectError) as refused:
        await guest.dial("tcp", "127.0.0.1:9")
    assert refused.value.code == "connection-refused"
    assert guest.open_streams == 0


@pytest.mark.parametrize("network", ["tcp", "unix"])
async def test_bytes_go_to_a_server_and_back(guest: Guest, peer: Peer, network: str) -> None:
    address = "127.0.0.1:8080" if network == "tcp" else f"{peer.box}/socket"
    await _listen(guest, peer, network, address)
    data = bytes(range(256)) * 10_000
    connection = await _dial(guest, network, address)
    async with connection:
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(connection, data))
            received = bytearray()
            while piece := await connection.read():
                received += piece
        assert bytes(received) == data
        assert await connection.read() == b""
    assert guest.open_streams == 0


async def _send(connection, data: bytes) -> None:
    await connection.write(data)
    await connection.write_eof()


_ECHO = """
import socket, sys
family = socket.AF_INET if sys.argv[1] == "tcp" else socket.AF_UNIX
server = socket.socket(family)
server.bind(("127.0.0.1", 8080) if family == socket.AF_INET else sys.argv[2])
server.listen()
while True:
    client, _ = server.accept()
    while data := client.recv(65536):
        client.sendall(data)
    client.close()
"""


async def _listen(guest: Guest, peer: Peer, network: str, address: str) -> None:
    if peer.kind == "fake":
        await guest.spawn(["listen", address.rpartition(":")[2]], env=ENV)
    else:
        await guest.spawn(["/usr/bin/python3", "-c", _ECHO, network, address], env=ENV)


async def _dial(guest: Guest, network: str, address: str):
    while True:
        try:
            return await guest.dial(network, address)
        except (ConnectError, NotFoundError):
            await asyncio.sleep(0.01)


# 82: connections live through a standstill, and new ones work after it.
async def test_connections_go_on_after_standing_still(guest: Guest, peer: Peer) -> None:
    await _listen(guest, peer, "tcp", "127.0.0.1:8080")
    open_before = await _dial(guest, "tcp", "127.0.0.1:8080")
    await open_before.write(b"before ")
    assert await open_before.read() == b"before "
    await guest.prepare_checkpoint()
    await guest.reattach()
    await open_before.write(b"after")
    assert await open_before.read() == b"after"
    await open_before.aclose()
    opened_after = await _dial(guest, "tcp", "127.0.0.1:8080")
    await opened_after.write(b"new")
    assert await opened_after.read() == b"new"
    await opened_after.aclose()


# 64: a slow reader gets every byte.
async def test_a_slow_reader_of_a_connection_gets_every_byte(guest: Guest, peer: Peer) -> None:
    await _listen(guest, peer, "tcp", "127.0.0.1:8080")
    connection = await _dial(guest, "tcp", "127.0.0.1:8080")
    sender = asyncio.create_task(_send(connection, bytes(10 * MIB)))
    received = 0
    while piece := await connection.read():
        received += len(piece)
        await asyncio.sleep(0.001)
    await sender
    assert received == 10 * MIB
    await connection.aclose()


async def test_entropy_must_be_bytes(guest: Guest) -> None:
    with pytest.raises(InvalidRequestError):
        await guest._request(
            "after_restore", {"id": "x", "hostname": "x", "entropy": base64.b64encode(b"x").decode()[:-1]}
        )
    assert (await guest.run(["true"], env=ENV)).exit_code == 0


async def test_the_real_agent_outlives_the_signals_that_it_must(real_guest: Guest, real: RealPeer) -> None:
    await real_guest.run(shell="kill -TERM 1; kill -INT 1; kill -HUP 1; kill -QUIT 1; kill -KILL 1; true")
    assert (await real_guest.run(["true"], env=ENV)).exit_code == 0
    assert real.process.returncode is None


async def test_holding_from_inside(real_guest: Guest, real: RealPeer) -> None:
    told: list[int] = []
    real_guest.on_hold = told.append
    assert (await real_guest.run([str(AGENT), "hold", "10m"], env=ENV)).exit_code == 0
    while not told:
        await asyncio.sleep(0.01)
    assert told[0] > 1_600_000_000_000
