"""Files. Numbers are those of the scenarios that users of such systems met."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandyard.errors import (
    ConflictError,
    FileNotFoundInSandboxError,
    InvalidRequestError,
    NoSpaceError,
    ResourceExhaustedError,
    SandyardError,
)
from sandyard.guest import EntryType, Guest
from tests.guest.harness import FakePeer, Peer, RealPeer

MIB = 1024 * 1024


async def test_what_was_written_is_read(guest: Guest, peer: Peer) -> None:
    path = f"{peer.box}/file"
    for content in (b"", b"x", b"\0\xff\n" * 1000, os.urandom(3 * MIB + 1)):
        assert await guest.write(path, content) == len(content)
        assert await guest.read_bytes(path) == content


async def test_a_stream_is_written_piece_by_piece(guest: Guest, peer: Peer) -> None:
    pieces = [os.urandom(n) for n in (0, 1, 100, 300_000, 2 * MIB)]

    async def source() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    assert await guest.write(f"{peer.box}/file", source()) == sum(map(len, pieces))
    assert await guest.read_bytes(f"{peer.box}/file") == b"".join(pieces)


async def test_ranges(guest: Guest, peer: Peer) -> None:
    path = f"{peer.box}/file"
    await guest.write(path, b"0123456789")

    async def read(**what: int) -> bytes:
        async with guest.read(path, **what) as download:
            content = b"".join([piece async for piece in download])
        assert download.result.size == 10
        return content

    assert await read() == b"0123456789"
    assert await read(offset=3) == b"3456789"
    assert await read(offset=3, length=4) == b"3456"
    assert await read(offset=8, length=100) == b"89"
    assert await read(offset=10) == b""
    assert await read(offset=99) == b""
    assert await read(length=0) == b""


async def test_mode_owner_and_size_are_told(guest: Guest, peer: Peer) -> None:
    path = f"{peer.box}/script"
    await guest.write(path, b"#!/bin/sh\n", mode=0o750, user="nobody")
    entry = await guest.stat(path)
    assert (entry.name, entry.type, entry.size, entry.mode) == ("script", EntryType.FILE, 10, 0o750)
    assert entry.uid == 65534
    assert entry.mtime_ns > 1_600_000_000 * 10**9
    await guest.write(path, b"other")
    assert (await guest.stat(path)).mode == 0o750  # that of the file replaced
    await guest.write(f"{peer.box}/plain", b"")
    assert (await guest.stat(f"{peer.box}/plain")).mode == 0o644
    await guest.write(path, b"x", mode=0o600)
    assert (await guest.stat(path)).mode == 0o600


async def test_missing_directories_are_made_only_on_request(guest: Guest, peer: Peer) -> None:
    path = f"{peer.box}/a/b/file"
    with pytest.raises(FileNotFoundInSandboxError):
        await guest.write(path, b"x")
    await guest.write(path, b"x", parents=True)
    assert await guest.read_bytes(path) == b"x"


# 92: a missing file is an error of its own.
@pytest.mark.parametrize("op", ["read", "stat", "list", "remove", "move", "tar_out"])
async def test_what_is_missing_is_not_found(guest: Guest, peer: Peer, op: str) -> None:
    path = f"{peer.box}/missing"
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: guest.read_bytes(path),
        "stat": lambda: guest.stat(path),
        "list": lambda: guest.list_dir(path),
        "remove": lambda: guest.remove(path),
        "move": lambda: guest.move(path, f"{peer.box}/other"),
        "tar_out": lambda: _drain(guest, path),
    }
    with pytest.raises(FileNotFoundInSandboxError) as missing:
        await calls[op]()
    assert missing.value.code == "file-not-found"
    assert guest.open_streams == 0


async def _drain(guest: Guest, path: str) -> bytes:
    async with guest.tar_out(path) as download:
        return b"".join([piece async for piece in download])


async def test_a_directory_is_not_a_file_and_the_other_way_round(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/file", b"x")
    await guest.mkdir(f"{peer.box}/directory")
    for call, code in (
        (guest.read_bytes(f"{peer.box}/directory"), "is-a-directory"),
        (guest.write(f"{peer.box}/directory", b"x"), "is-a-directory"),
        (guest.list_dir(f"{peer.box}/file"), "not-a-directory"),
        (guest.stat(f"{peer.box}/file/below"), "not-a-directory"),
        (guest.mkdir(f"{peer.box}/file"), "file-exists"),
        (guest.mkdir(f"{peer.box}/directory"), "file-exists"),
    ):
        with pytest.raises(ConflictError) as refused:
            await call
        assert refused.value.code == code


async def test_directories(guest: Guest, peer: Peer) -> None:
    assert await guest.mkdir(f"{peer.box}/d", mode=0o700) is True
    assert (await guest.stat(f"{peer.box}/d")).mode == 0o700
    assert await guest.mkdir(f"{peer.box}/d", parents=True) is False
    assert await guest.mkdir(f"{peer.box}/d/e/f", parents=True) is True
    await guest.write(f"{peer.box}/d/file", b"abc")
    listed = {entry.name: (entry.type, entry.size) for entry in await guest.list_dir(f"{peer.box}/d")}
    assert listed["file"] == (EntryType.FILE, 3)
    assert listed["e"][0] is EntryType.DIRECTORY
    assert set(listed) == {"e", "file"}
    with pytest.raises(ConflictError) as full:
        await guest.remove(f"{peer.box}/d")
    assert full.value.code == "directory-not-empty"
    await guest.remove(f"{peer.box}/d/e/f")
    await guest.remove(f"{peer.box}/d", recursive=True)
    assert await guest.list_dir(peer.box) == []


async def test_a_listing_has_a_limit(guest: Guest, peer: Peer) -> None:
    for name in "abc":
        await guest.write(f"{peer.box}/{name}", b"")
    assert len(await guest.list_dir(peer.box, limit=3)) == 3
    with pytest.raises(ResourceExhaustedError) as large:
        await guest.list_dir(peer.box, limit=2)
    assert large.value.code == "directory-too-large"
    assert guest.open_streams == 0


async def test_moving_replaces_files(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/a", b"new")
    await guest.write(f"{peer.box}/b", b"old")
    await guest.move(f"{peer.box}/a", f"{peer.box}/b")
    assert [entry.name for entry in await guest.list_dir(peer.box)] == ["b"]
    assert await guest.read_bytes(f"{peer.box}/b") == b"new"


@pytest.mark.parametrize("name", ["ü €😀", " ", "a\nb", "\udcff\udc80", "-rf", "'\"$(id)", "x" * 255])
async def test_any_name_that_linux_takes(guest: Guest, peer: Peer, name: str) -> None:
    await guest.write(f"{peer.box}/{name}", b"content")
    assert [entry.name for entry in await guest.list_dir(peer.box)] == [name]
    assert (await guest.stat(f"{peer.box}/{name}")).name == name
    assert await guest.read_bytes(f"{peer.box}/{name}") == b"content"
    await guest.move(f"{peer.box}/{name}", f"{peer.box}/plain")
    await guest.remove(f"{peer.box}/plain")


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_a_path_that_cannot_be_is_refused(guest: Guest, path: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await guest.stat(path)
    assert refused.value.code == "invalid-path"


async def test_a_file_longer_than_the_limit_is_not_returned(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/file", bytes(1001))
    with pytest.raises(ResourceExhaustedError) as large:
        await guest.read_bytes(f"{peer.box}/file", limit=1000)
    assert large.value.code == "file-too-large"
    assert len(await guest.read_bytes(f"{peer.box}/file", limit=1001)) == 1001


# 93: an error is an exception, never content.
async def test_a_download_that_failed_raises(guest: Guest, peer: Peer) -> None:
    got = []
    with pytest.raises(FileNotFoundInSandboxError):
        async with guest.read(f"{peer.box}/missing") as download:
            got = [piece async for piece in download]
    assert got == []


async def test_a_download_left_half_way_harms_nobody(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/big", bytes(8 * MIB))
    for _ in range(20):
        async with guest.read(f"{peer.box}/big") as download:
            assert await anext(aiter(download))
            with pytest.raises(ConflictError, match="not ended"):
                _ = download.result
    assert guest.open_streams == 0
    assert len(await guest.read_bytes(f"{peer.box}/big")) == 8 * MIB


# -- uploads that do not end well: nothing of them stays, and what was there before is untouched ----------------------


async def test_an_upload_that_is_cancelled_leaves_nothing(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/file", b"before")
    sent = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        yield bytes(3 * MIB)
        sent.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(guest.write(f"{peer.box}/file", source()))
    await sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until_only(guest, peer, "file")
    assert await guest.read_bytes(f"{peer.box}/file") == b"before"


async def test_an_upload_whose_source_fails_leaves_nothing(guest: Guest, peer: Peer) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"half"
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        await guest.write(f"{peer.box}/file", source())
    await _until_only(guest, peer)


async def test_an_upload_whose_host_went_away_leaves_nothing(guest: Guest, peer: Peer) -> None:
    sent = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        yield bytes(MIB)
        sent.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(guest.write(f"{peer.box}/file", source()))
    await sent.wait()
    other = Guest(await peer.connect(interrupt=True))
    await other.attach()
    with pytest.raises(SandyardError):
        await task
    await _until_only(other, peer)
    await other.close()


async def _until_only(guest: Guest, peer: Peer, *names: str) -> None:
    while [entry.name for entry in await guest.list_dir(peer.box)] != list(names):
        await asyncio.sleep(0.01)


# 98: a full disk is told as that.
async def test_a_full_disk_in_the_fake(tmp_path: Path) -> None:
    peer = await FakePeer.start(tmp_path)
    peer.driver.host.faults.disk_bytes = MIB
    await peer.machine.remove()
    guest = Guest(await (await peer.driver.boot(peer.machine.spec)).connect())
    await guest.attach()
    await guest.write("/tmp/file", b"before")
    with pytest.raises(NoSpaceError):
        await guest.write("/tmp/file", bytes(2 * MIB))
    assert await guest.read_bytes("/tmp/file") == b"before"
    await guest.close()


async def test_a_full_disk(real_guest: Guest, real: RealPeer) -> None:
    await real_guest.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", real.box], env={"PATH": os.environ["PATH"]})
    await real_guest.write(f"{real.box}/file", b"before")

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MIB)

    with pytest.raises(NoSpaceError) as full:
        await real_guest.write(f"{real.box}/file", endless())
    assert full.value.code == "no-space"
    assert [entry.name for entry in await real_guest.list_dir(real.box)] == ["file"]
    assert await real_guest.read_bytes(f"{real.box}/file") == b"before"


# -- links ------------------------------------------------------------------------------------------------------------


async def test_symlinks_are_followed_as_linux_does(guest: Guest, peer: Peer) -> None:
    await _link(guest, peer, "link", "target")
    entry = await guest.stat(f"{peer.box}/link", follow=False)
    assert (entry.type, entry.target, entry.name) == (EntryType.SYMLINK, "target", "link")
    with pytest.raises(FileNotFoundInSandboxError):
        await guest.stat(f"{peer.box}/link")
    await guest.write(f"{peer.box}/target", b"one")
    assert await guest.read_bytes(f"{peer.box}/link") == b"one"
    await guest.write(f"{peer.box}/link", b"two")  # replaces the target, not the link
    assert await guest.read_bytes(f"{peer.box}/target") == b"two"
    assert (await guest.stat(f"{peer.box}/link", follow=False)).type is EntryType.SYMLINK
    await guest.remove(f"{peer.box}/link")
    assert await guest.read_bytes(f"{peer.box}/target") == b"two"


async def test_a_loop_of_links_is_told(guest: Guest, peer: Peer) -> None:
    await _link(guest, peer, "loop", "loop")
    with pytest.raises(InvalidRequestError) as loop:
        await guest.read_bytes(f"{peer.box}/loop")
    assert loop.value.code == "symlink-loop"


async def _link(guest: Guest, peer: Peer, name: str, target: str) -> None:
    archive = _tar({name: target})
    await guest.tar_in(peer.box, archive)


# -- archives ---------------------------------------------------------------------------------------------------------


def _tar(links: dict[str, str] | None = None, files: dict[str, bytes] | None = None, **more: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        for name, content in (files or {}).items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o640
            archive.addfile(member, io.BytesIO(content))
        for member in more.values():
            archive.addfile(member)
    return out.getvalue()


async def test_a_tree_goes_in_and_comes_out(guest: Guest, peer: Peer) -> None:
    files = {"a.txt": b"a" * 1000, "deep/er/b.bin": os.urandom(300_000), "ü": b""}
    result = await guest.tar_in(peer.box, _tar({"to-a": "a.txt"}, files))
    assert (result.files, result.bytes) == (3, 301_000)
    assert await guest.read_bytes(f"{peer.box}/deep/er/b.bin") == files["deep/er/b.bin"]
    with tarfile.open(fileobj=io.BytesIO(await _drain(guest, peer.box))) as archive:
        content = {member.name.removeprefix("./"): member for member in archive}
        assert content["to-a"].linkname == "a.txt"
        assert content["deep/er"].isdir()
        for name, data in files.items():
            member = archive.extractfile(content[name])
            assert member is not None
            assert member.read() == data
        assert content["a.txt"].mode & 0o777 == 0o640


async def test_one_file_comes_out_as_an_archive_of_itself(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/one", b"content")
    with tarfile.open(fileobj=io.BytesIO(await _drain(guest, f"{peer.box}/one"))) as archive:
        assert archive.getnames() == ["one"]


async def test_unpacking_makes_the_directory(guest: Guest, peer: Peer) -> None:
    await guest.tar_in(f"{peer.box}/new/deep", _tar(files={"f": b"x"}))
    assert await guest.read_bytes(f"{peer.box}/new/deep/f") == b"x"


async def test_unpacking_can_give_all_to_one_user(guest: Guest, peer: Peer) -> None:
    await guest.tar_in(peer.box, _tar(files={"d/f": b"x"}), user="nobody")
    assert (await guest.stat(f"{peer.box}/d/f")).uid == 65534


# 94: an archive never writes outside the directory that it was sent to.
@pytest.mark.parametrize(
    "archive",
    [
        _tar(files={"../escaped": b"x"}),
        _tar(files={"a/../../escaped": b"x"}),
        _tar(files={"/escaped": b"x"}),
        _tar({"out": ".."}, {"out/escaped": b"x"}),
        _tar({"out": "/"}, {"out/tmp/escaped": b"x"}),
        _tar({"a": "b", "b": ".."}, {"a/escaped": b"x"}),
    ],
    ids=["parent", "parent-inside", "absolute", "link-up", "link-root", "link-chain"],
)
async def test_an_archive_cannot_lead_out(guest: Guest, peer: Peer, archive: bytes) -> None:
    root = f"{peer.box}/root"
    await guest.mkdir(root)
    with pytest.raises(InvalidRequestError) as unsafe:
        await guest.tar_in(root, archive)
    assert unsafe.value.code == "unsafe-path"
    for outside in (f"{peer.box}/escaped", "/escaped", "/tmp/escaped"):
        with pytest.raises(FileNotFoundInSandboxError):
            await guest.stat(outside)


async def test_a_hard_link_in_an_archive_cannot_lead_out(guest: Guest, peer: Peer) -> None:
    await guest.write(f"{peer.box}/secret", b"secret")
    await guest.mkdir(f"{peer.box}/root")
    member = tarfile.TarInfo("stolen")
    member.type, member.linkname = tarfile.LNKTYPE, "../secret"
    with pytest.raises(InvalidRequestError) as unsafe:
        await guest.tar_in(f"{peer.box}/root", _tar(stolen=member))
    assert unsafe.value.code == "unsafe-path"


@pytest.mark.parametrize("junk", [b"not a tar" * 100, _tar(files={"f": bytes(5000)})[:2000]], ids=["noise", "cut"])
async def test_what_is_no_archive_is_told(guest: Guest, peer: Peer, junk: bytes) -> None:
    with pytest.raises(InvalidRequestError) as bad:
        await guest.tar_in(peer.box, junk)
    assert bad.value.code == "bad-archive"


# -- size -------------------------------------------------------------------------------------------------------------


async def test_a_large_file_passes_unchanged_with_flat_memory(real_guest: Guest, real: RealPeer) -> None:
    block = os.urandom(MIB)
    want = hashlib.sha256()
    blocks = 256

    async def source() -> AsyncIterator[bytes]:
        for index in range(blocks):
            piece = index.to_bytes(8, "big") + block[8:]
            want.update(piece)
            yield piece

    before = _resident_kib("self"), _resident_kib(real.pid())
    assert await real_guest.write(f"{real.box}/big", source()) == blocks * MIB
    got = hashlib.sha256()
    async with real_guest.read(f"{real.box}/big") as download:
        async for piece in download:
            got.update(piece)
    after = _resident_kib("self"), _resident_kib(real.pid())
    assert got.digest() == want.digest()
    # 256 MiB went each way; neither side holds more than some windows of it.
    assert after[0] - before[0] < 32 * 1024
    assert after[1] - before[1] < 32 * 1024


# 97: opening and closing leaks nothing, however each ends.
async def test_a_thousand_transfers_leak_no_descriptors(real_guest: Guest, real: RealPeer) -> None:
    await real_guest.write(f"{real.box}/file", bytes(100_000))

    def descriptors() -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in ("self", real.pid()))

    async def one(number: int) -> None:
        if number % 4 == 0:
            await real_guest.read_bytes(f"{real.box}/file")
        elif number % 4 == 1:
            async with real_guest.read(f"{real.box}/file") as download:
                await anext(aiter(download))
        elif number % 4 == 2:
            await real_guest.write(f"{real.box}/other", b"x" * number)
        else:
            await real_guest.list_dir(real.box)

    await asyncio.gather(*(one(number) for number in range(20)))
    before = descriptors()
    for start in range(0, 1000, 20):
        await asyncio.gather(*(one(number) for number in range(start, start + 20)))
    assert descriptors() <= before + 2
    assert real_guest.open_streams == 0


def _resident_kib(pid: int | str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
