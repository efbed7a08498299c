"""Sandboxes that are kept: they sleep between commands, with all that was in their memory."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from .conftest import Cli, kill_hard, processes, wait_for_line

COUNTER = (
    "import os, time, pathlib\n"
    "n = 0\n"
    "while True:\n"
    "    n += 1\n"
    "    pathlib.Path('/tmp/count.new').write_text(str(n))\n"
    "    os.replace('/tmp/count.new', '/tmp/count')\n"
    "    time.sleep(0.05)\n"
)


def state_of(cli: Cli, sandbox_id: str) -> str:
    states: dict[str, str] = {row["id"]: row["state"] for row in json.loads(cli.ok("sandboxes", "list", "--json"))}
    return states[sandbox_id]


def test_a_kept_sandbox_sleeps_and_every_command_wakes_it(cli: Cli) -> None:
    box = cli.keep("sh", "-c", "echo kept > /root/file")
    assert state_of(cli, box) == "asleep"
    assert processes(box) == []
    assert cli.ok("sandboxes", "exec", box, "cat", "/root/file") == "kept\n"
    assert state_of(cli, box) == "asleep"


def test_a_process_goes_on_counting_over_sleep_and_in_a_fork(cli: Cli) -> None:
    box = cli.keep("true")
    started = cli.ok("sandboxes", "exec", "-d", box, "python3", "-c", COUNTER)
    assert started.startswith("ex_")
    read = "sleep 0.5; cat /tmp/count"
    first = int(cli.ok("sandboxes", "exec", box, "sh", "-c", read))
    second = int(cli.ok("sandboxes", "exec", box, "sh", "-c", read))
    assert second > first > 0
    [fork] = cli.ok("sandboxes", "fork", box).split()
    third = int(cli.ok("sandboxes", "exec", fork, "sh", "-c", read))
    assert third > second
    # asleep it does not count
    time.sleep(1)
    fourth = int(cli.ok("sandboxes", "exec", fork, "sh", "-c", read))
    assert fourth - third < 60


def test_forks_differ_in_name_and_entropy_and_share_the_past(cli: Cli) -> None:
    box = cli.keep("sh", "-c", "echo shared > /past; head -c 16 /dev/urandom | sha256sum > /dev/null")
    forks = cli.ok("sandboxes", "fork", "-n", "3", box).split()
    assert len(set(forks)) == 3
    script = "cat /past; hostname; cat /etc/hostname; head -c 32 /dev/urandom | sha256sum; cat /etc/machine-id"
    said = [cli.ok("sandboxes", "exec", one, "sh", "-c", script).split("\n") for one in [box, *forks]]
    assert {lines[0] for lines in said} == {"shared"}
    for position in (1, 2, 3):
        assert len({lines[position] for lines in said}) == 4, said
    assert [lines[1] for lines in said] == [one.replace("_", "-") for one in [box, *forks]]


def test_snapshot_and_restore_bring_files_and_processes_back(cli: Cli) -> None:
    box = cli.keep("sh", "-c", "echo one > /file")
    cli.ok("sandboxes", "exec", "-d", box, "sleep", "4321")
    saved = cli.ok("sandboxes", "snapshot", box).strip()
    assert saved in cli.ok("sandboxes", "snapshots")
    cli.ok("sandboxes", "exec", box, "sh", "-c", "echo two > /file; pkill sleep")
    cli.ok("sandboxes", "restore", box, saved)
    assert cli.ok("sandboxes", "exec", box, "sh", "-c", "cat /file; pgrep -x sleep | wc -l").split() == ["one", "1"]
    cli.ok("sandboxes", "delete", saved)
    assert saved not in cli.ok("sandboxes", "snapshots")


@pytest.mark.parametrize("verb", ["pause", "resume", "sleep", "wake"])
def test_every_verb_leaves_it_usable(cli: Cli, verb: str) -> None:
    box = cli.keep("sh", "-c", "echo kept > /file")
    cli.ok("sandboxes", verb, box)
    assert cli.ok("sandboxes", "exec", box, "cat", "/file") == "kept\n"


def test_files_go_in_and_out_exactly(cli: Cli, tmp_path: Path) -> None:
    box = cli.keep("true")
    local = tmp_path / "local"
    local.write_bytes(os.urandom(5_000_000))
    local.chmod(0o750)
    cli.ok("sandboxes", "files", "put", "-p", box, str(local), "/deep/er/file")
    assert cli("sandboxes", "files", "get", box, "/deep/er/file").stdout == local.read_bytes()
    back = tmp_path / "back"
    cli.ok("sandboxes", "files", "get", box, "/deep/er/file", str(back))
    assert hashlib.sha256(back.read_bytes()).digest() == hashlib.sha256(local.read_bytes()).digest()
    assert json.loads(cli.ok("sandboxes", "files", "stat", box, "/deep/er/file"))["mode"] & 0o777 == 0o750
    cli.ok("sandboxes", "files", "put", box, "-", "/deep/from stdin", stdin=b"typed")
    cli.ok("sandboxes", "files", "move", box, "/deep/from stdin", "/deep/moved")
    cli.ok("sandboxes", "files", "mkdir", "-p", box, "/deep/a/b")
    assert [line.split()[-1] for line in cli.ok("sandboxes", "files", "list", box, "/deep").splitlines()] == [
        "a",
        "er",
        "moved",
    ]
    cli.ok("sandboxes", "files", "remove", "-r", box, "/deep")
    gone = cli("sandboxes", "files", "get", box, "/deep/moved")
    assert (gone.returncode, gone.stdout) == (125, b"")
    assert b"[file-not-found]" in gone.stderr


def test_trees_go_in_and_out_as_tar(cli: Cli, tmp_path: Path) -> None:
    box = cli.keep("sh", "-c", "mkdir -p /tree/sub; echo x > /tree/sub/f; ln -s sub/f /tree/link")
    archive = cli("sandboxes", "files", "tar-get", box, "/tree").stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
        assert {"sub", "sub/f", "link"} <= names
    cli.ok("sandboxes", "exec", box, "mkdir", "/copy")
    cli.ok("sandboxes", "files", "tar-put", box, "-", "/copy", stdin=archive)
    assert cli.ok("sandboxes", "exec", box, "sh", "-c", "cat /copy/link; readlink /copy/link") == "x\nsub/f\n"


# scenario 94 (P0): nothing in an archive leaves the directory that it is unpacked into
def test_an_archive_that_points_outside_is_refused(cli: Cli) -> None:
    box = cli.keep("mkdir", "/inside")
    for name, link in (("../evil", None), ("/evil", None), ("way", "/etc")):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            if link is not None:
                way = tarfile.TarInfo(name)
                way.type, way.linkname = tarfile.SYMTYPE, link
                tar.addfile(way)
            member = tarfile.TarInfo(name if link is None else f"{name}/evil")
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
        done = cli("sandboxes", "files", "tar-put", box, "-", "/inside", stdin=buffer.getvalue())
        assert cli.ok("sandboxes", "exec", box, "sh", "-c", "ls /evil /etc/evil 2>/dev/null | wc -l") == "0\n"
        assert done.returncode == 0 or b"[unsafe-path]" in done.stderr


# scenario 6 and the issue: running sandboxes are taken over through their pipes after kill -9
def test_a_sandbox_of_a_killed_process_is_taken_over_with_its_processes(cli: Cli) -> None:
    box = cli.keep("true")
    cli.ok("sandboxes", "exec", "-d", box, "python3", "-c", COUNTER)
    owner = cli.start("sandboxes", "exec", box, "sh", "-c", "echo ready; sleep 1000")
    assert wait_for_line(owner) == b"ready\n"
    busy = cli("sandboxes", "exec", box, "true")
    assert (busy.returncode, b"[sandbox-locked]" in busy.stderr) == (125, True)
    assert str(owner.pid).encode() in busy.stderr
    kill_hard(owner)
    assert processes(box) != []
    script = "pgrep -x sleep | wc -l; sleep 0.5; cat /tmp/count"
    sleepers, count = cli.ok("sandboxes", "exec", box, "sh", "-c", script).split()
    assert int(sleepers) == 0, "the command of the dead client was not ended"
    assert int(count) > 0


def test_killed_while_an_upload_is_in_full_flow_it_is_taken_over(cli: Cli, tmp_path: Path) -> None:
    """The dead process left half a frame in the pipe, and half an upload in the sandbox."""
    box = cli.keep("true")
    for wait_s in (1.0, 1.3):
        uploader = cli.start("sandboxes", "files", "put", box, "-", "/upload", stdin=subprocess.PIPE)
        assert uploader.stdin is not None
        until = time.monotonic() + wait_s
        try:
            while time.monotonic() < until:
                uploader.stdin.write(bytes(1_000_000))
        finally:
            uploader.send_signal(signal.SIGKILL)
            uploader.communicate()
        assert cli.ok("sandboxes", "exec", box, "sh", "-c", "ls -A / | grep upload | wc -l") == "0\n"
        assert cli("sandboxes", "files", "get", box, "/upload").returncode == 125


def test_two_commands_at_once_on_one_state_directory(cli: Cli) -> None:
    cli("run", "--", "true")
    runs = [cli.start("run", "--", "echo", str(n)) for n in range(4)]
    assert [run.communicate(timeout=60)[0] for run in runs] == [b"%d\n" % n for n in range(4)]


def test_usage_and_events_tell_what_happened(cli: Cli) -> None:
    box = cli.keep("python3", "-c", "sum(range(3_000_000))")
    usage = json.loads(cli.ok("usage", box, "--json"))
    assert usage["running_ms"] > 0
    assert usage["asleep_ms"] > 0
    assert usage["cpu_us"] > 10_000
    assert usage["checkpoint_bytes"] > 100_000
    kinds = [json.loads(line)["data"].get("doing") for line in cli.ok("sandboxes", "events", box).splitlines()]
    assert [kind for kind in kinds if kind] == ["create", "create", "sleep", "sleep"]


def test_unknown_ids_are_refused(cli: Cli) -> None:
    for words in (["exec", "sb_none", "true"], ["sleep", "sb_none"], ["delete", "sb_none"], ["fork", "sb_none"]):
        done = cli("sandboxes", *words)
        assert (done.returncode, b"[sandbox-not-found]" in done.stderr) == (125, True), words
    assert b"[snapshot-not-found]" in cli("sandboxes", "delete", "sn_none").stderr


def test_many_detached_processes_survive_many_sleeps(cli: Cli) -> None:
    box = cli.keep("true")
    for _ in range(3):
        cli.ok("sandboxes", "exec", "-d", box, "sleep", "9999")
    assert cli.ok("sandboxes", "exec", box, "sh", "-c", "pgrep -x sleep | wc -l") == "3\n"


def test_ctrl_c_ends_an_upload_that_waits_for_its_input(cli: Cli) -> None:
    box = cli.keep("true")
    upload = cli.start("sandboxes", "files", "put", box, "-", "/upload", stdin=subprocess.PIPE)
    assert upload.stdin is not None
    upload.stdin.write(bytes(1000))
    upload.stdin.flush()
    while not processes(box):
        time.sleep(0.05)
    time.sleep(0.5)
    upload.send_signal(signal.SIGINT)
    assert upload.wait(timeout=30) == 130
    assert upload.stderr is not None
    assert upload.stderr.read() == b""
    upload.communicate()
    assert cli.ok("sandboxes", "exec", box, "sh", "-c", "ls -A / | grep -c upload; true") == "0\n"
