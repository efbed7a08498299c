"""Files where the kernel makes a difference: other file systems, mounts, devices, owners."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard.frames import FrameType
from tests.agent.wire import Host, code

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and mount")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than tmp_path."""
    directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    if directory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is on the same file system as the temporary directory")
    yield directory
    shutil.rmtree(directory)


def put(host: Host, path: Path | str, content: bytes, **fields: object) -> str | None:
    stream = host.open("write", path=str(path), **fields)
    host.data(stream, content)
    host.data(stream, b"")
    return code(host.answer(stream).answer)


def test_a_move_across_file_systems_keeps_everything(host: Host, tmp_path: Path, elsewhere: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "file").write_bytes(os.urandom(3_000_000))
    (tree / "deep" / "file").chmod(0o640)
    os.utime(tree / "deep" / "file", ns=(1_000_000_000_000_000_001, 1_000_000_000_123_456_789))
    (tree / "link").symlink_to("deep/../deep/file")
    (tree / "dangling").symlink_to("/nowhere")
    os.mkfifo(tree / "fifo")
    (tree / "deep").chmod(0o2750)
    os.utime(tree / "deep", ns=(1, 2_000_000_000_000_000_000))
    content = (tree / "deep" / "file").read_bytes()
    assert code(host.call("move", **{"from": str(tree), "to": str(elsewhere / "moved")})) is None
    assert not tree.exists()
    assert [entry.name for entry in elsewhere.iterdir()] == ["moved"]
    moved = elsewhere / "moved"
    assert (moved / "deep" / "file").read_bytes() == content
    assert (moved / "deep" / "file").stat().st_mtime_ns == 1_000_000_000_123_456_789
    assert (moved / "deep").stat().st_mtime_ns == 2_000_000_000_000_000_000
    assert stat.S_IMODE((moved / "deep" / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((moved / "deep").stat().st_mode) == 0o2750
    assert (moved / "link").readlink() == Path("deep/../deep/file")
    assert (moved / "dangling").readlink() == Path("/nowhere")
    assert (moved / "fifo").is_fifo()


def test_a_move_that_fails_leaves_both_sides_as_they_were(host: Host, tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("kept")
    (elsewhere / "full").mkdir()
    (elsewhere / "full" / "other").write_text("kept, too")
    answer = host.call("move", **{"from": str(tmp_path / "source"), "to": str(elsewhere / "full")})
    assert code(answer) == "directory-not-empty"
    assert (tmp_path / "source" / "file").read_text() == "kept"
    assert [entry.name for entry in elsewhere.iterdir()] == ["full"]
    assert (elsewhere / "full" / "other").read_text() == "kept, too"
    nowhere = host.call("move", **{"from": str(tmp_path / "none"), "to": str(elsewhere / "x")})
    assert code(nowhere) == "file-not-found"


def test_devices_and_files_of_proc_are_written_in_place(host: Host) -> None:
    assert put(host, "/dev/null", b"x" * 1000) is None
    assert Path("/dev/null").is_char_device()
    assert put(host, f"/proc/{host.process.pid}/comm", b"renamed") is None
    assert Path(f"/proc/{host.process.pid}/comm").read_text() == "renamed\n"


@root_only
def test_a_file_that_is_a_mount_is_written_in_place(binary: Path, tmp_path: Path) -> None:
    for name in ("below", "mounted"):
        (tmp_path / name).write_text("a longer text than what comes")
    with Host(binary, prefix=("unshare", "--mount")) as host:
        host.hello()
        mounted = host.run("mount", "--bind", str(tmp_path / "below"), str(tmp_path / "mounted"))
        assert mounted.answer is not None
        assert mounted.answer["result"]["exit_code"] == 0
        assert put(host, tmp_path / "mounted", b"new") is None
        assert bytes(host.answer(host.open("read", path=str(tmp_path / "mounted"))).data[0]) == b"new"
    assert (tmp_path / "below").read_text() == "new"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["below", "mounted"]


@root_only
def test_owners(host: Host, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("old")
    theirs.chmod(0o4750)
    os.chown(theirs, 1234, 2345)
    theirs.chmod(0o4750)
    assert put(host, theirs, b"new") is None
    assert (theirs.stat().st_uid, theirs.stat().st_gid) == (1234, 2345)
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o4750
    assert put(host, theirs, b"newer", user="0:7", mode=0o600) is None
    assert (theirs.stat().st_uid, theirs.stat().st_gid) == (0, 7)
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o600
    assert put(host, tmp_path / "a" / "b" / "c", b"deep", user="77:88", parents=True) is None
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"):
        assert (path.stat().st_uid, path.stat().st_gid) == (77, 88)


def test_a_link_to_what_is_not_there_yet_is_filled(host: Host, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d/../d/new")
    assert put(host, tmp_path / "link", b"content") is None
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "d" / "new").read_text() == "content"


def test_a_directory_removed_while_it_is_archived_is_no_failure(host: Host, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(2000):
        (tree / str(number)).write_text("x")
    host.grants_credit = False
    stream = host.open("tar_out", path=str(tree))
    host.received(stream, 0, 1)
    for number in range(2000):
        (tree / str(number)).unlink()
    while host.streams[stream].answer is None:
        host.frame(FrameType.CREDIT, stream, (1 << 20).to_bytes(4, "big"))
        host.pump()
    assert code(host.streams[stream].answer) is None
