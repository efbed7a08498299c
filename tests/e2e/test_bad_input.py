"""What a person or a host gets wrong: each has an error with a code that says what, why and what to do."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard.drivers.cgroups import open_cgroup
from sandyard.errors import CommandError, InvalidRequestError, InvalidSpecError
from sandyard.runtime import Command, Runtime, SandboxSpec

from .conftest import Cli, checked, leftovers, wait_for_line


@pytest.fixture
def bare_image(tmp_path: Path) -> str:
    """An image of one user file: no shell, no program at all but the agent."""
    path = tmp_path / "bare.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in (("etc/passwd", b"root:x:0:0::/:/bin/sh\n"), ("plain", b"not a program")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return f"rootfs:{path}"


def refused(cli: Cli, code: str, *words: str, exit_code: int = 125) -> str:
    """Run a command that must be refused, and return what it said."""
    done = cli(*words)
    said = done.stderr.decode()
    assert done.returncode == exit_code, said
    assert f"[{code}]" in said
    assert "Traceback" not in said
    return said


@pytest.fixture
def own_cli(tmp_path: Path) -> Iterator[Cli]:
    """The command line with images of its own."""
    yield from checked(tmp_path / "state")


async def test_an_image_without_a_shell_runs_programs_and_says_what_it_lacks(own_cli: Cli, bare_image: str) -> None:
    async with await Runtime.open(own_cli.state_dir) as runtime:
        sandbox = await runtime.create(SandboxSpec(image=bare_image, sleep_after_s=None))
        with pytest.raises(CommandError) as no_shell:
            await sandbox.run(Command(shell="echo hi"))
        assert no_shell.value.code == "no-shell"
        with pytest.raises(CommandError) as not_found:
            await sandbox.run(Command(argv=["sh", "-c", "echo hi"]))
        assert not_found.value.code == "command-not-found"
        assert (await sandbox.run(Command(argv=["sandyard-guest", "hold", "1s"]))).exit_code == 0
    refused(own_cli, "command-not-found", "run", "--image", bare_image, "--", "sh", exit_code=127)
    refused(own_cli, "command-not-executable", "run", "--image", bare_image, "--", "/plain", exit_code=126)
    refused(own_cli, "no-command", "run", "--image", bare_image)


async def test_environments_that_no_process_can_have_are_refused(runtime: Runtime) -> None:
    for env in ({"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"A": "x\0"}):
        with pytest.raises(InvalidSpecError, match="env"):
            await runtime.create(SandboxSpec(env=env))
    sandbox = await runtime.create(SandboxSpec(sleep_after_s=None))
    for env in ({"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}):
        with pytest.raises(InvalidRequestError):
            await sandbox.run(Command(argv=["true"], env=env))


def test_a_state_directory_of_a_newer_version_is_refused_and_left_alone(fresh_cli: Cli) -> None:
    box = fresh_cli.keep("sh", "-c", "echo kept > /file")
    set_schema(fresh_cli.state_dir, "9999")
    for words in (["run", "--", "true"], ["sandboxes", "list"], ["sandboxes", "delete", box]):
        assert "9999" in refused(fresh_cli, "state-version", *words)
    set_schema(fresh_cli.state_dir, "0001")
    assert fresh_cli.ok("sandboxes", "exec", box, "cat", "/file") == "kept\n"


def set_schema(state_dir: Path, version: str) -> None:
    with sqlite3.connect(state_dir / "state.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [version])
    connection.close()


def test_a_state_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    for path in (file, file / "below", Path("/proc/sandyard")):
        assert str(path) in refused(Cli(path), "state-unusable", "run", "--", "true")
    assert file.read_text() == "no directory"


def test_a_damaged_state_database_is_told_and_not_touched(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "state.db").write_bytes(b"scribbled over " * 1000)
    assert "state.db" in refused(Cli(state), "state-unusable", "sandboxes", "list")
    assert (state / "state.db").read_bytes() == b"scribbled over " * 1000


def test_secrets_in_the_state_directory_are_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "state"
    Cli(state).ok("sandboxes", "list")
    assert state.stat().st_mode & 0o077 == 0
    assert (state / "state.db").stat().st_mode & 0o077 == 0


# scenario 66 (P0): a command whose sandbox is lost never ends with 0
def test_a_sandbox_that_ends_under_a_command_is_an_error(cli: Cli) -> None:
    running = cli.start("run", "--", "sh", "-c", "echo ready; sleep 1000")
    assert wait_for_line(running) == b"ready\n"
    [box] = [path.name for path in (cli.state_dir / "sandboxes").iterdir()]
    open_cgroup(box).send_kill()
    _, said = running.communicate(timeout=60)
    assert (running.returncode, b"[sandbox-gone]" in said) == (125, True), said
    assert leftovers(cli.state_dir) == []


# a command that could not even start does not hide the sandbox that was asked to be kept
def test_a_kept_sandbox_is_named_whatever_its_command_did(cli: Cli) -> None:
    said = refused(cli, "command-not-found", "run", "--keep", "--", "no-such-command", exit_code=127)
    [row] = json.loads(cli.ok("sandboxes", "list", "--json"))
    assert f"kept {row['id']}" in said
    assert row["state"] == "asleep"


def test_a_download_into_no_directory_is_told(cli: Cli, tmp_path: Path) -> None:
    box = cli.keep("sh", "-c", "echo x > /file")
    missing = tmp_path / "no" / "file"
    assert str(missing) in refused(cli, "cannot-write", "sandboxes", "files", "get", box, "/file", str(missing))


def test_a_host_without_runsc_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "tar", "skopeo", "umoci"):
        (tools / name).symlink_to(shutil.which(name) or "/nowhere")
    monkeypatch.setenv("PATH", str(tools))
    assert "runsc" in refused(cli, "host-unfit", "run", "--", "true")
