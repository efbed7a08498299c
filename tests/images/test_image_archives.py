from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandyard.errors import CorruptImageError, ImageError, InvalidRequestError
from sandyard.images import ImageConfig, ImageStore, default
from sandyard.images.default import host_release, source_entry

from .conftest import Layout, entry, make_tar, run

pytestmark = pytest.mark.anyio


def zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    return subprocess.run(["zstd", "-c"], input=data, check=True, capture_output=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tar of a root file system with one of everything."""
    return make_tar(
        tmp_path / "tree.tar",
        entry("./", type=tarfile.DIRTYPE, mode=0o755),
        entry("./etc/", type=tarfile.DIRTYPE, mode=0o700, uid=5, gid=6),
        entry("./etc/motd", b"hello\n", mode=0o640, uid=5, gid=6, mtime=1_000_000_000),
        entry("./bin/", type=tarfile.DIRTYPE, mode=0o755),
        entry("./bin/su", b"x", mode=0o4755, pax_headers={"SCHILY.xattr.user.colour": "blue"}),
        entry("./bin/same", type=tarfile.LNKTYPE, linkname="./bin/su"),
        entry("./absolute", type=tarfile.SYMTYPE, linkname="/etc/motd"),
        entry("./dev/", type=tarfile.DIRTYPE, mode=0o755),
        entry("./dev/null", type=tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3),
    )


async def test_a_root_file_system_keeps_owners_modes_links_and_attributes(store: ImageStore, tree: Path) -> None:
    image = await store.pull(f"rootfs:{tree}")
    etc, motd, su = (image.rootfs / name for name in ("etc", "etc/motd", "bin/su"))
    assert (etc.stat().st_mode & 0o7777, etc.stat().st_uid, etc.stat().st_gid) == (0o700, 5, 6)
    assert (motd.read_bytes(), motd.stat().st_mode & 0o7777, motd.stat().st_mtime) == (b"hello\n", 0o640, 1_000_000_000)
    assert (su.stat().st_mode & 0o7777, su.stat().st_nlink) == (0o4755, 2)
    assert os.getxattr(su, "user.colour") == b"blue"
    assert (image.rootfs / "absolute").readlink() == Path("/etc/motd")
    assert (image.rootfs / "dev/null").is_char_device()
    assert image.config == ImageConfig()
    assert image.references == (f"rootfs:{tree}",)


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd), (".bz2", bz2.compress)]
)
async def test_a_packed_one(store: ImageStore, tree: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    packed = tree.with_suffix(f".tar{suffix}")
    packed.write_bytes(pack(tree.read_bytes()))
    by_prefix = await store.pull(f"rootfs:{packed}")
    assert (by_prefix.rootfs / "etc/motd").read_bytes() == b"hello\n"
    assert (await store.pull(str(packed))).digest == by_prefix.digest


async def test_archives_are_known_by_their_content(
    store: ImageStore, layout: Layout, small: str, tree: Path, tmp_path: Path
) -> None:
    for kind in ("docker-archive", "oci-archive"):
        file = tmp_path / f"{kind}.tar"
        run("skopeo", "copy", "--quiet", f"oci:{layout.path}:small", f"{kind}:{file}")
        image = await store.pull(str(file))
        assert image.digest == small, "the same image, whatever it is packed in"
        assert (image.rootfs / "etc/motd").read_bytes() == b"hello\n"
        assert (await store.pull(f"{kind}:{file}")).digest == small
        assert (await store.resolve(str(file))).digest == small
    folder = Layout(tmp_path / "single")
    digest = folder.add("only", tree)
    assert (await store.pull(str(folder.path))).digest == digest
    assert (await store.pull(str(tree))).references == (str(tree), f"rootfs:{tree}")


async def test_a_folder_of_many_images_needs_a_tag(store: ImageStore, layout: Layout, small: str, tree: Path) -> None:
    layout.add("another", tree)
    with pytest.raises(InvalidRequestError, match="more than one image") as caught:
        await store.pull(f"oci:{layout.path}")
    assert "oci:DIR:TAG" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", os.urandom(2048)], ids=["empty", "script", "noise"])
async def test_what_is_no_archive(store: ImageStore, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.tar"
    file.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="not an image"):
        await store.pull(str(file))
    for prefix in ("docker-archive", "oci-archive", "rootfs"):
        with pytest.raises((InvalidRequestError, CorruptImageError)):
            await store.pull(f"{prefix}:{file}")
    assert list(store.list()) == []


async def test_a_damaged_docker_archive(store: ImageStore, layout: Layout, small: str, tmp_path: Path) -> None:
    file = tmp_path / "archive.tar"
    run("skopeo", "copy", "--quiet", f"oci:{layout.path}:small", f"docker-archive:{file}")
    good = file.read_bytes()
    assert good.count(b"hello\n") == 1
    file.write_bytes(good.replace(b"hello\n", b"jello\n"))
    with pytest.raises(CorruptImageError):
        await store.pull(f"docker-archive:{file}")
    assert list(store.list()) == []


async def test_layers_that_the_installed_umoci_cannot_read(store: ImageStore, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "archive.tar"
    plain = Layout(tmp_path / "plain")
    plain.add("x", tree)
    run("skopeo", "copy", "--quiet", f"oci:{plain.path}:x", f"docker-archive:{file}")
    packed = tmp_path / "zstd"
    run("skopeo", "copy", "--quiet", "--dest-compress-format", "zstd", f"docker-archive:{file}", f"oci:{packed}:x")
    can_read = run("umoci", "--version").decode().split()[2] >= "0.5"
    if can_read:
        assert ((await store.pull(f"oci:{packed}:x")).rootfs / "etc/motd").read_bytes() == b"hello\n"
        return
    with pytest.raises(ImageError, match="umoci cannot read") as caught:
        await store.pull(f"oci:{packed}:x")
    assert caught.value.code == "image-unsupported"


@pytest.mark.parametrize("packed", [False, True])
async def test_a_truncated_root_file_system(store: ImageStore, tmp_path: Path, packed: bool) -> None:
    tar = make_tar(tmp_path / "x.tar", *(entry(f"usr/{i}", os.urandom(1000)) for i in range(100)))
    data = tar.read_bytes()
    file = tmp_path / "cut.tar"
    file.write_bytes(gzip.compress(data)[:50_000] if packed else data[:50_000])
    with pytest.raises(CorruptImageError):
        await store.pull(f"rootfs:{file}")
    assert list(store.list()) == []


async def test_a_changed_file_is_another_image_and_a_removed_one_is_remembered(
    store: ImageStore, tmp_path: Path
) -> None:
    file = make_tar(tmp_path / "x.tar", entry("etc/one", b"1"))
    first = await store.resolve(f"rootfs:{file}")
    assert await store.resolve(f"rootfs:{file}") == first
    make_tar(file, entry("etc/two", b"2"))
    second = await store.resolve(f"rootfs:{file}")
    assert (second.rootfs / "etc/two").exists()
    assert second.digest != first.digest
    file.unlink()
    assert (await store.resolve(f"rootfs:{file}")).digest == second.digest


# -- the default image ------------------------------------------------------------------------------------------------


def test_entries_of_apt_are_found_by_number_as_apt_counts_them(tmp_path: Path) -> None:
    one_line = tmp_path / "x.list"
    one_line.write_text("# first\n\ndeb [arch=amd64] http://mirror.example/debian bookworm main\n")
    assert source_entry(f"{one_line}:3") == ("list", "deb [arch=amd64] http://mirror.example/debian bookworm main")
    stanzas = tmp_path / "x.sources"
    stanzas.write_text(
        "# comment\n\n# another\n\nEnabled: no\nTypes: deb\nURIs: http://off.example\n\n\n"
        "# mine\nTypes: deb deb-src\nURIs: http://mirror.example/debian\n# inside\nSuites: bookworm\n"
        "Signed-By:\n -----BEGIN\n .\n x\n"
    )
    expected = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nSigned-By:\n -----BEGIN\n .\n x"
    assert source_entry(f"{stanzas}:2") == ("sources", expected)


@pytest.mark.timeout(600)
async def test_the_default_image_is_built_from_this_hosts_debian(store: ImageStore, root: Path) -> None:
    if shutil.which("mmdebstrap") is None or shutil.which("apt-get") is None:
        pytest.skip("the default image needs mmdebstrap and apt")
    steps: list[str] = []
    image = await store.resolve("default", lambda step, _done, _total: steps.append(step))
    assert image.references == ("default",)
    assert image.config.cmd == ("bash",)
    assert image.config.workdir == "/root"

    def inside(*argv: str) -> str:
        result = subprocess.run(
            ["chroot", str(image.rootfs), *argv], capture_output=True, text=True, check=False, env=image.config.env
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    release = await host_release()
    assert inside("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME") == release.codename
    assert inside("python", "-c", "print(6*7)") == "42"
    for tool in ("git", "curl", "gcc", "make", "ps", "less", "pip"):
        assert inside("which", tool)
    assert inside("sh", "-c", "cat /etc/ssl/certs/ca-certificates.crt | grep -c BEGIN") != "0"

    etc = image.rootfs / "etc"
    for name in ("hostname", "machine-id", "resolv.conf"):
        assert (etc / name).read_bytes() == b"", "nothing of this host is in it"
    assert not [*(image.rootfs / "var/lib/apt/lists").glob("*Packages*")]
    assert not [*(image.rootfs / "var/cache/apt").rglob("*.deb")]
    newest = max(path.lstat().st_mtime for path in [image.rootfs, *image.rootfs.rglob("*")])
    assert datetime.fromtimestamp(newest, UTC) <= release.date
    assert any("downloading" in step for step in steps)

    steps.clear()
    assert (await store.resolve("default", lambda step, _done, _total: steps.append(step))).digest == image.digest
    assert steps == [], "it is built once"
    assert [*(root / "staging").iterdir()] == []


async def test_a_mirror_that_does_not_answer(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("mmdebstrap") is None or shutil.which("apt-get") is None:
        pytest.skip("the default image needs mmdebstrap and apt")

    async def elsewhere() -> default.Release:
        line = "deb [trusted=yes] http://127.0.0.1:1/debian bookworm main"
        return default.Release("bookworm", (("list", line),), datetime(2025, 1, 1, tzinfo=UTC))

    monkeypatch.setattr(default, "host_release", elsewhere)
    with pytest.raises(ImageError, match="mirror") as caught:
        await store.build_default()
    assert caught.value.code == "registry-unreachable"
    assert list(store.list()) == []
