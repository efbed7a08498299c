"""In a real sandbox: what only gVisor can take from the agent, or give to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.drivers import After, Machine
from sandyard.drivers.gvisor import Gvisor
from sandyard.guest import Guest, PtySize
from tests.contract.kits import GvisorKit, why_no_gvisor

_WHY_NOT = why_no_gvisor()
pytestmark = [pytest.mark.gvisor, pytest.mark.skipif(_WHY_NOT is not None, reason=_WHY_NOT or "")]

ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
ECHO_SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 7007))
print("listening", flush=True)
while True:
    connection = server.accept()[0]
    while data := connection.recv(65536):
        connection.sendall(data.upper())
    connection.close()
"""


@pytest.fixture
async def machines(tmp_path: Path, rootfs: Path) -> AsyncIterator[list[Machine]]:
    """One machine that has just been booted; all that a test adds is removed with it."""
    started: list[Machine] = [await Gvisor().boot(GvisorKit(tmp_path, rootfs).spec("first"))]
    yield started
    for machine in started:
        await machine.remove()


@pytest.fixture
async def guest(machines: list[Machine]) -> AsyncIterator[Guest]:
    guest = Guest(await machines[0].connect())
    await guest.attach(timeout_s=30)
    yield guest
    await guest.close()


async def until(pieces: AsyncIterator[tuple[int, bytes]], expected: bytes) -> None:
    """Read output until ``expected`` has come."""
    seen = b""
    while expected not in seen:
        seen += (await anext(pieces))[1]


async def test_streams_of_every_kind_go_on_in_a_restored_machine(
    machines: list[Machine], guest: Guest, tmp_path: Path
) -> None:
    server = aiter(await guest.exec(["python3", "-c", ECHO_SERVER], env=ENV))
    await until(server, b"listening")
    connection = await guest.dial("tcp", "127.0.0.1:7007")
    await connection.write(b"one")
    assert await connection.read() == b"ONE"
    terminal = await guest.exec(["sh"], env=ENV, pty=PtySize(24, 80), stdin=True)
    shown = aiter(terminal)
    await terminal.write(b"state=kept\n")
    await until(shown, b"kept")
    resting = asyncio.Event()
    more = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000
        resting.set()
        await more.wait()
        yield b"y" * 3_000_000

    upload = asyncio.create_task(guest.write("/root/upload", parts()))
    await resting.wait()
    held = await guest.hold(3600)

    saved = tmp_path / "saved"
    await guest.prepare_checkpoint()
    await machines[0].checkpoint(saved, After.STOP)
    spec = machines[0].spec
    await machines.pop().remove()
    machines.append(await Gvisor().restore(spec, saved))
    assert (await guest.reattach(await machines[0].connect(), timeout_s=30)).resumed

    await connection.write(b"two")
    assert await connection.read() == b"TWO"
    await terminal.resize(PtySize(30, 99))
    await terminal.write(b"echo $state-$(stty size | tr ' ' x)\n")
    await until(shown, b"kept-30x99")
    more.set()
    await upload
    assert (await guest.stat("/root/upload")).size == 6_000_000
    assert (await guest.info()).held_until_unix_ms == held
    await terminal.write(b"exit 7\n")
    assert (await terminal.wait()).exit_code == 7


async def test_a_copy_ends_what_it_should_and_keeps_what_it_should(
    machines: list[Machine], guest: Guest, tmp_path: Path, rootfs: Path
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    stays = await guest.exec(["sh", "-c", "while :; do echo out; sleep 0.05; done"], env=ENV)
    await until(aiter(stays), b"out")
    gate = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"half"
        await gate.wait()

    upload = asyncio.create_task(guest.write("/root/half", endless()))
    while not [entry for entry in await guest.list_dir("/root") if entry.name.startswith(".sandyard-")]:
        await asyncio.sleep(0.01)
    saved = tmp_path / "saved"
    await guest.prepare_checkpoint()
    await machines[0].checkpoint(saved, After.RUN)
    await guest.reattach()
    for number, orphans in enumerate(("keep", "kill")):
        machines.append(await Gvisor().restore(GvisorKit(beside, rootfs).spec(f"copy{number}"), saved))
        copy = Guest(await machines[-1].connect())
        await copy.attach(orphans="keep" if orphans == "keep" else "kill", timeout_s=30)
        # The kill and the removal are under way when the agent answers; that they never come is the test's timeout.
        while [process for process in await copy.processes() if process.id == stays.id] and orphans == "kill":
            await asyncio.sleep(0.01)
        running = [process for process in await copy.processes() if process.id == stays.id]
        assert len(running) == (1 if orphans == "keep" else 0)
        while [entry for entry in await copy.list_dir("/root") if "sandyard" in entry.name]:
            await asyncio.sleep(0.01)
        assert not [entry for entry in await copy.list_dir("/root") if "half" in entry.name]
        assert (await copy.run(["true"], env=ENV)).exit_code == 0
        await copy.close()
    gate.set()
    await upload
    assert await guest.read_bytes("/root/half") == b"half"


async def test_no_signal_from_inside_ends_the_agent(guest: Guest) -> None:
    # SIGKILL and SIGSTOP are gVisor's own doing, and SIGUSR1 says that the host has died.
    numbers = [number for number in range(1, 65) if number not in (9, 10, 19)]
    script = "; ".join(f"kill -{number} 1" for number in numbers)
    assert (await guest.run(shell=script, env=ENV)).exit_code == 0
    assert (await guest.run(["echo", "alive"], env=ENV)).stdout == b"alive\n"


async def test_what_surrounds_a_command_takes_a_fraction_of_the_command(guest: Guest) -> None:
    # Not a benchmark: it shows that the agent measures what it says, which the benchmark relies on.
    loop = asyncio.get_running_loop()
    for _ in range(20):
        begun = loop.time()
        result = await guest.run(["/bin/true"], env=ENV)
        assert 0 < result.fork_exec_wait_us < (loop.time() - begun) * 1e6
