"""The agent's binary as a command of the sandbox."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.agent.wire import Host, code


def call(binary: Path, *arguments: str, socket: str = "@sandyard-nobody") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary, *arguments],
        env={"SANDYARD_AGENT_SOCKET": socket},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_the_same_command_under_its_name_inside(binary: Path, host: Host, tmp_path: Path) -> None:
    inside = tmp_path / "sandyard-guest"
    inside.symlink_to(binary)
    held = call(inside, "hold", "10m", socket=host.socket)
    assert (held.returncode, held.stderr) == (0, "")
    until = host.call("info")["result"]["held_until_unix_ms"]
    assert held.stdout.startswith("held until 20")
    assert b'"until_unix_ms":%d' % until in bytes(host.streams[0].data[0])
    assert call(inside, "hold", "0", socket=host.socket).returncode == 0
    assert host.call("info")["result"]["held_until_unix_ms"] == 0
    assert call(inside).stderr.startswith("usage: sandyard-guest hold DURATION")


@pytest.mark.parametrize("arguments", [(), ("hold",), ("hold", "1", "2"), ("unknown",), ("--help",)])
def test_anything_else_says_how_to_use_it(binary: Path, arguments: tuple[str, ...]) -> None:
    said = call(binary, *arguments)
    assert said.returncode == 2
    assert "hold DURATION" in said.stderr


def test_a_hold_that_cannot_be_says_why(binary: Path, host: Host) -> None:
    no_duration = call(binary, "hold", "soon", socket=host.socket)
    assert no_duration.returncode == 1
    assert '"soon" is not a duration' in no_duration.stderr
    too_long = call(binary, "hold", "4000d", socket=host.socket)
    assert too_long.returncode == 1
    assert "ten years" in too_long.stderr
    nobody = call(binary, "hold", "1m")
    assert nobody.returncode == 1
    assert "does not answer" in nobody.stderr


def test_clients_that_say_nothing_or_nonsense_do_not_keep_others_from_holding(binary: Path, host: Host) -> None:
    silent = []
    for _ in range(15):
        client = socket.socket(socket.AF_UNIX)
        client.connect("\0" + host.socket[1:])
        silent.append(client)
    silent[0].sendall(b"{" * 300)
    assert b"error" in silent[0].recv(1000)
    assert call(binary, "hold", "1m", socket=host.socket).returncode == 0
    for client in silent:
        client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_agent_that_is_not_root_runs_commands_as_itself(binary: Path, tmp_path: Path) -> None:
    copy = Path("/dev/shm") / f"sandyard-agent-{os.getpid()}"  # where everybody may read it
    copy.write_bytes(binary.read_bytes())
    copy.chmod(0o755)
    try:
        with Host(copy, prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")) as host:
            host.hello()
            assert bytes(host.run("id", "-u", user="65534:65534", cwd="/").data[1]) == b"65534\n"
            assert code(host.run("id", "-u", cwd="/").answer) == "permission-denied"
            assert code(host.call("read", path="/etc/shadow")) == "permission-denied"
    finally:
        copy.unlink()
