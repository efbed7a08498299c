from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import pytest

from sandyard.errors import (
    CorruptImageError,
    HostError,
    ImageError,
    ImageNotFoundError,
    NoSpaceError,
    RegistryUnreachableError,
)
from sandyard.images import ImageConfig, ImageStore
from sandyard.images.locks import whole_folder
from sandyard.images.references import parse
from sandyard.images.skopeo import Skopeo

from .conftest import (
    Layout,
    Registry,
    Shim,
    entry,
    is_alive,
    make_tar,
    pull_elsewhere,
    run,
    start_registry,
    until,
)

pytestmark = [pytest.mark.registry, pytest.mark.anyio]


def using(*digests: str) -> Callable[[], Awaitable[Collection[str]]]:
    """Say that these are used."""

    async def used() -> Collection[str]:
        return digests

    return used


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def flip_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def assert_nothing_kept(store: ImageStore, root: Path) -> None:
    assert list(store.list()) == []
    assert [*(root / "unpacked").iterdir()] == []
    assert [*(root / "staging").iterdir()] == []


# -- pulling ----------------------------------------------------------------------------------------------------------


async def test_a_pull_by_tag_gives_the_files_and_the_digest_of_the_configuration(
    store: ImageStore, registry: Registry, layout: Layout, small: str
) -> None:
    name = registry.push(layout, "small", "team/small:1")
    steps: list[tuple[str, int | None, int | None]] = []
    image = await store.pull(name, lambda *step: steps.append(step))
    assert image.digest == small
    assert names_below(image.rootfs) == {"etc", "etc/motd"}
    assert (image.rootfs / "etc/motd").read_bytes() == b"hello\n"
    assert image.size_bytes == 512 * sum(path.lstat().st_blocks for path in [image.rootfs, *image.rootfs.rglob("*")])
    (layer,) = layout.manifest("small")["layers"]
    assert (f"pulling {registry.host}/team/small", 0, layer["size"]) in steps
    assert store.get(small) == image
    assert list(store.list()) == [image]


async def test_what_the_author_configured_is_kept(
    store: ImageStore, registry: Registry, layout: Layout, tmp_path: Path
) -> None:
    tar = make_tar(tmp_path / "x.tar", entry("app", b"", mode=0o755))
    layout.add(
        "app",
        tar,
        env="PATH=/bin\nEQUATION=a=b=c\nEMPTY=",
        user="app:1000",
        workingdir="/srv",
        entrypoint="/app\n--serve",
        cmd="x y",
    )
    expected = ImageConfig(
        env={"PATH": "/bin", "EQUATION": "a=b=c", "EMPTY": ""},
        user="app:1000",
        workdir="/srv",
        entrypoint=("/app", "--serve"),
        cmd=("x y",),
    )
    assert (await store.pull(registry.push(layout, "app", "app:oci"))).config == expected
    as_docker_has_it = await store.pull(registry.push(layout, "app", "app:docker", "--format", "v2s2"))
    assert as_docker_has_it.config == expected
    assert len(store.list()) == 1, "the same image in two forms of manifest"


async def test_an_image_without_configuration_has_an_empty_one(store: ImageStore, layout: Layout, small: str) -> None:
    assert (await store.pull(f"oci:{layout.path}:small")).config == ImageConfig()
    assert store.get(small).config.user == ""


async def test_by_digest_and_without_the_registry_once_it_is_here(
    store: ImageStore, registry: Registry, layout: Layout, small: str
) -> None:
    name = registry.push(layout, "small", "small:1")
    by_digest = f"{registry.host}/small@{layout.descriptor('small')['digest']}"
    image = await store.pull(by_digest)
    assert image.digest == small
    assert image.references == (by_digest,)
    assert (await store.pull(name)).references == (name, by_digest)
    registry.stop()
    assert (await store.resolve(by_digest)).digest == small
    assert (await store.resolve(name)).digest == small
    with pytest.raises(RegistryUnreachableError):
        await store.pull(name)


async def test_a_moved_tag_counts_from_the_next_pull(
    store: ImageStore, registry: Registry, layout: Layout, small: str, tmp_path: Path
) -> None:
    name = registry.push(layout, "small", "moving:1")
    await store.pull(name)
    newer = layout.add("newer", make_tar(tmp_path / "newer.tar", entry("new", b"new")))
    registry.push(layout, "newer", "moving:1")
    assert (await store.resolve(name)).digest == small
    image = await store.pull(name)
    assert image.digest == newer
    assert names_below(image.rootfs) == {"new"}
    assert (await store.resolve(name)).digest == newer
    assert {one.digest for one in store.list()} == {small, newer}
    assert name not in store.get(small).references


async def test_a_second_pull_unpacks_nothing(
    store: ImageStore, registry: Registry, layout: Layout, small: str, monkeypatch: pytest.MonkeyPatch, shim: Shim
) -> None:
    name = registry.push(layout, "small", "small:1")
    first = await store.pull(name)
    monkeypatch.setenv("PATH", shim.path)
    assert await store.pull(name) == first
    assert shim.waits() == []


async def test_layers_over_one_another(store: ImageStore, layout: Layout, tmp_path: Path) -> None:
    below = make_tar(tmp_path / "a.tar", entry("gone", b"1"), entry("kept", b"2"), entry("changed", b"3"))
    above = make_tar(tmp_path / "b.tar", entry(".wh.gone"), entry("changed", b"4", mode=0o4755, uid=7, gid=8))
    layout.add("two", below, above)
    image = await store.pull(f"oci:{layout.path}:two")
    assert names_below(image.rootfs) == {"kept", "changed"}
    changed = image.rootfs / "changed"
    assert changed.read_bytes() == b"4"
    assert (changed.stat().st_mode & 0o7777, changed.stat().st_uid, changed.stat().st_gid) == (0o4755, 7, 8)


async def test_of_a_list_this_platform_is_taken(
    store: ImageStore, registry: Registry, layout: Layout, small: str, tmp_path: Path
) -> None:
    layout.add("other", make_tar(tmp_path / "other.tar", entry("other", b"x")))
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    strange = "riscv64"
    digest = layout.add_list("many", **{strange: "other", machine: "small"})
    name = registry.push(layout, "many", "many:1", "--all")
    image = await store.pull(name)
    assert image.digest == small
    assert f"{registry.host}/many@{digest}" in image.references
    assert (await store.pull(f"{registry.host}/many@{digest}")).digest == small
    layout.add_list("foreign", **{strange: "other"})
    with pytest.raises(ImageError, match="architecture") as caught:
        await store.pull(registry.push(layout, "foreign", "foreign:1", "--all"))
    assert caught.value.code == "image-platform"


# -- what cannot be pulled --------------------------------------------------------------------------------------------


async def test_an_unknown_image(store: ImageStore, registry: Registry, layout: Layout, small: str, root: Path) -> None:
    registry.push(layout, "small", "small:1")
    missing = "sha256:" + "0" * 64
    for name in ("small:2", "none:1", f"small@{missing}"):
        with pytest.raises(ImageNotFoundError, match="does not exist there") as caught:
            await store.resolve(f"{registry.host}/{name}")
        assert name in caught.value.what
    for name in (
        f"oci:{layout.path}:none",
        f"oci:{root}/none",
        "docker-archive:/none.tar",
        "rootfs:/none.tar",
        "/none.tar",
    ):
        with pytest.raises(ImageNotFoundError, match="none"):
            await store.pull(name)
    with pytest.raises(ImageNotFoundError, match=missing):
        store.get(missing)
    assert_nothing_kept(store, root)


async def test_a_registry_that_does_not_answer(store: ImageStore, registry: Registry, root: Path) -> None:
    registry.stop()
    with pytest.raises(RegistryUnreachableError, match="connection refused") as caught:
        await store.pull(f"{registry.host}/small:1")
    assert registry.host in caught.value.what
    assert_nothing_kept(store, root)


async def test_a_registry_that_wants_credentials(store: ImageStore, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "users").touch()
    registry = start_registry(folder, f"auth: {{htpasswd: {{realm: test, path: '{folder / 'users'}'}}}}")
    with pytest.raises(ImageError, match="credentials") as caught:
        await store.pull(f"{registry.host}/small:1")
    registry.stop()
    assert caught.value.code == "image-auth"
    assert "skopeo login" in caught.value.hint


def test_tls_is_only_left_out_on_loopback_and_where_it_was_allowed() -> None:
    skopeo = Skopeo({"registry.example:5000", "plain.example"})

    def options(name: str) -> list[str]:
        return skopeo._tls(parse(name), "--tls-verify")

    for name in ("localhost/x", "localhost:5000/x", "127.0.0.1:5000/x", "127.9.9.9/x"):
        assert options(name) == ["--tls-verify=false"]
    for name in ("registry.example:5000/x", "plain.example/x", "plain.example:80/x"):
        assert options(name) == ["--tls-verify=false"]
    for name in ("debian", "registry.example/x", "registry.example:443/x", "localhost.example/x", "128.0.0.1/x"):
        assert options(name) == []


async def test_a_damaged_layer_in_the_registry(
    store: ImageStore, registry: Registry, layout: Layout, small: str, root: Path
) -> None:
    name = registry.push(layout, "small", "small:1")
    blob = registry.blob(layout.manifest("small")["layers"][0]["digest"])
    good = blob.read_bytes()
    flip_byte(blob)
    with pytest.raises(CorruptImageError, match="digest"):
        await store.pull(name)
    assert_nothing_kept(store, root)
    blob.write_bytes(good)
    assert (await store.pull(name)).digest == small


@pytest.mark.parametrize("part", ["layer", "config", "manifest"])
async def test_a_damaged_folder(store: ImageStore, layout: Layout, small: str, part: str, root: Path) -> None:
    manifest = layout.manifest("small")
    digest = {
        "layer": manifest["layers"][0]["digest"],
        "config": manifest["config"]["digest"],
        "manifest": layout.descriptor("small")["digest"],
    }[part]
    blob = layout.blob(digest)
    if part == "manifest":  # still JSON, still complete
        blob.write_bytes(blob.read_bytes() + b"\n")
    else:
        flip_byte(blob)
    with pytest.raises(CorruptImageError):
        await store.pull(f"oci:{layout.path}:small")
    assert_nothing_kept(store, root)


async def test_a_layer_that_is_not_what_the_configuration_says(
    store: ImageStore, layout: Layout, tmp_path: Path, root: Path
) -> None:
    """The layer has the digest of the manifest, but other content than the configuration promises."""
    first, second = (make_tar(tmp_path / f"{x}.tar", entry(x, b"x")) for x in "ab")
    layout.add("a", first)
    layout.add("b", second)
    manifest = layout.blob(layout.descriptor("a")["digest"])
    layer = {tag: layout.manifest(tag)["layers"][0] for tag in "ab"}
    text = manifest.read_text().replace(layer["a"]["digest"], layer["b"]["digest"])
    text = text.replace(f'"size":{layer["a"]["size"]}', f'"size":{layer["b"]["size"]}')
    path = tmp_path / "changed.json"
    path.write_text(text)
    digest = run("sha256sum", path).decode().split()[0]
    layout.blob(digest).write_text(text)
    index = (layout.path / "index.json").read_text()
    old = layout.descriptor("a")
    (layout.path / "index.json").write_text(
        index.replace(old["digest"], f"sha256:{digest}").replace(f'"size":{old["size"]}', f'"size":{len(text)}', 1)
    )
    with pytest.raises(CorruptImageError):
        await store.pull(f"oci:{layout.path}:a")
    assert_nothing_kept(store, root)


async def test_a_kept_layer_that_rotted_is_fetched_again(
    store: ImageStore, registry: Registry, layout: Layout, small: str, tmp_path: Path, root: Path
) -> None:
    base = tmp_path / "small.tar"
    await store.pull(registry.push(layout, "small", "small:1"))
    more = layout.add("more", base, make_tar(tmp_path / "more.tar", entry("more", b"more")))
    kept = root / "blobs/sha256" / layout.manifest("small")["layers"][0]["digest"].removeprefix("sha256:")
    assert kept.exists(), "layers are kept for the next image that is built on them"
    flip_byte(kept)
    name = registry.push(layout, "more", "more:1")
    with pytest.raises(CorruptImageError):
        await store.pull(name)
    image = await store.pull(name)
    assert image.digest == more
    assert names_below(image.rootfs) == {"etc", "etc/motd", "more"}


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder)
    yield folder
    run("umount", folder)


@pytest.mark.parametrize("kind", ["registry", "compressed", "tar"])
async def test_no_space_left(
    registry: Registry, layout: Layout, small: str, small_disk: Path, tmp_path: Path, kind: str
) -> None:
    store = ImageStore(small_disk / "images")
    await store.pull(f"oci:{layout.path}:small")
    content = os.urandom(20 << 20) if kind == "registry" else bytes(20 << 20)
    tar = make_tar(tmp_path / "big.tar", entry("etc/big", content))
    layout.add("big", tar)
    names = {"registry": lambda: registry.push(layout, "big", "big:1"), "compressed": lambda: f"oci:{layout.path}:big"}
    with pytest.raises(NoSpaceError, match="disk is full") as caught:
        await store.pull(names.get(kind, lambda: f"rootfs:{tar}")())
    assert "prune" in caught.value.hint
    assert [image.digest for image in store.list()] == [small]
    assert [*(small_disk / "images/staging").iterdir()] == []
    await store.prune()
    more = layout.add("next", make_tar(tmp_path / "next.tar", entry("next", bytes(2 << 20))))
    assert (await store.pull(f"oci:{layout.path}:next")).digest == more, "once there is space, all is well"


@pytest.mark.parametrize("through", ["layer", "tar"])
@pytest.mark.parametrize(
    "entries",
    [
        [entry("../../../../../escape/file", b"bad")],
        [entry("link", type=tarfile.SYMTYPE, linkname="ESCAPE"), entry("link/file", b"bad")],
        [
            entry("a/link", type=tarfile.SYMTYPE, linkname="../../../../../../../../../ESCAPE"),
            entry("a/link/file", b"bad"),
        ],
        [entry("ESCAPE/file", b"bad")],
        [entry("hard", type=tarfile.LNKTYPE, linkname="ESCAPE/victim"), entry("hard", b"bad")],
        [entry("etc", type=tarfile.SYMTYPE, linkname="ESCAPE"), entry("etc/.wh.victim")],
    ],
    ids=["dots", "link", "dotted-link", "absolute", "hard-link", "whiteout"],
)
async def test_nothing_is_written_outside(
    store: ImageStore, layout: Layout, tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], through: str
) -> None:
    escape = tmp_path / "escape"
    escape.mkdir()
    (escape / "victim").write_bytes(b"good")
    for info, _ in entries:
        info.name = info.name.replace("ESCAPE", str(escape))
        info.linkname = info.linkname.replace("ESCAPE", str(escape))
    tar = make_tar(tmp_path / "evil.tar", entry("etc.txt", b"x"), *entries)
    if through == "layer":
        layout.add("evil", tar)
    try:
        await store.pull(f"oci:{layout.path}:evil" if through == "layer" else f"rootfs:{tar}")
    except ImageError:
        assert list(store.list()) == []
    assert {path.name: path.read_bytes() for path in escape.iterdir()} == {"victim": b"good"}
    assert not [path for path in (tmp_path.parent / "escape", Path("/escape")) if path.exists()]


async def test_images_are_for_root(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="root"):
        await store.pull("oci:/x")


async def test_a_missing_tool_is_named(store: ImageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="'skopeo' is not installed") as caught:
        await store.pull(f"oci:{tmp_path}")
    assert "doctor" in caught.value.hint


# -- many at once, and the end in the middle --------------------------------------------------------------------------


async def test_two_processes_unpack_one_image_once(
    store: ImageStore, registry: Registry, layout: Layout, small: str, root: Path, shim: Shim
) -> None:
    name = registry.push(layout, "small", "small:1")
    first = pull_elsewhere(root, name, shim.path)
    until(shim.waits, "an unpacking begun")
    second = pull_elsewhere(root, name, shim.path)
    third = asyncio.ensure_future(store.pull(name))
    await asyncio.sleep(0.5)
    assert not third.done()
    assert second.poll() is None
    shim.go()
    for process in (first, second):
        stdout, stderr = await asyncio.to_thread(process.communicate)
        assert stdout.decode().strip() == small, stderr
    assert (await third).digest == small
    assert len(shim.waits()) == 1
    assert names_below(store.get(small).rootfs) == {"etc", "etc/motd"}


@pytest.mark.parametrize("shim", ["skopeo", "umoci"], indirect=True)
async def test_a_pull_killed_in_the_middle_leaves_nothing_that_counts(
    store: ImageStore, registry: Registry, layout: Layout, small: str, root: Path, shim: Shim
) -> None:
    name = registry.push(layout, "small", "small:1")
    puller = pull_elsewhere(root, name, shim.path)
    until(shim.waits, "an unpacking begun")
    (unpacker,) = shim.waits()
    (half,) = (root / "staging").iterdir()
    await store.prune()
    assert half.exists(), "it is being worked on"
    puller.kill()
    puller.communicate()
    until(lambda: not is_alive(unpacker), "the program ended with its caller")
    assert list(store.list()) == []
    with pytest.raises(ImageNotFoundError):
        store.get(small)
    assert (half / "rootfs/half").exists()
    image = await store.pull(name)
    assert names_below(image.rootfs) == {"etc", "etc/motd"}
    assert await store.prune(using(small)) == []
    assert [*(root / "staging").iterdir()] == []
    assert [*(root / "locks").iterdir()] == []


async def test_a_cancelled_pull_stops_its_programs_and_cleans_up(
    store: ImageStore, layout: Layout, small: str, root: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", shim.path)
    task = asyncio.ensure_future(store.pull(f"oci:{layout.path}:small"))
    while not shim.waits():
        await asyncio.sleep(0.02)
    (unpacker,) = shim.waits()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(unpacker)
    assert_nothing_kept(store, root)
    assert [*(root / "locks").iterdir()] == []


# -- pruning ----------------------------------------------------------------------------------------------------------


async def test_prune_removes_what_nobody_needs(
    store: ImageStore, registry: Registry, layout: Layout, small: str, tmp_path: Path, root: Path
) -> None:
    digests = {"small": small}
    for tag in ("kept", "pinned", "elsewhere"):
        digests[tag] = layout.add(tag, make_tar(tmp_path / f"{tag}.tar", entry(tag, tag.encode())))
    images = {tag: await store.pull(registry.push(layout, tag, f"{tag}:1")) for tag in digests}
    hold = "import sys; from pathlib import Path; from sandyard.images import ImageStore\n"
    hold += "with ImageStore(Path(sys.argv[1])).pin(sys.argv[2]): print('held', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", hold, str(root), digests["elsewhere"]]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    with store.pin(digests["pinned"]) as pinned:
        assert pinned == images["pinned"]
        removed = await store.prune(using(digests["kept"]))
        assert list(removed) == [images["small"]]
        assert (pinned.rootfs / "pinned").read_bytes() == b"pinned"
    assert {image.digest for image in store.list()} == {digests["kept"], digests["pinned"], digests["elsewhere"]}
    assert not images["small"].rootfs.exists()
    with pytest.raises(ImageNotFoundError), store.pin(small):
        pass
    needed = {blob for tag in ("kept", "pinned", "elsewhere") for blob in images[tag].blobs}
    assert {f"sha256:{blob.name}" for blob in (root / "blobs/sha256").iterdir()} == needed

    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert {image.digest for image in await store.prune()} == set(digests.values()) - {small}
    assert_nothing_kept(store, root)
    assert [*(root / "references").iterdir()] == []
    assert [*(root / "blobs/sha256").iterdir()] == []
    assert (await store.resolve(f"{registry.host}/small:1")).digest == small, "it is only a pull away"


async def test_what_fails_under_a_pin_fails_as_itself(store: ImageStore, layout: Layout, small: str) -> None:
    await store.pull(f"oci:{layout.path}:small")
    with pytest.raises(FileNotFoundError), store.pin(small) as image:
        (image.rootfs / "none").read_bytes()


async def test_prune_leaves_the_layers_of_a_running_pull(
    store: ImageStore, registry: Registry, layout: Layout, small: str, root: Path, shim: Shim
) -> None:
    name = registry.push(layout, "small", "small:1")
    puller = pull_elsewhere(root, name, shim.path)
    until(shim.waits, "an unpacking begun")
    assert list(await store.prune()) == []
    shim.go()
    stdout, stderr = await asyncio.to_thread(puller.communicate)
    assert stdout.decode().strip() == small, stderr


async def test_a_pull_waits_while_layers_are_swept(
    store: ImageStore, registry: Registry, layout: Layout, small: str, root: Path
) -> None:
    name = registry.push(layout, "small", "small:1")
    await store.prune()
    with whole_folder(root / "blobs") as is_held:
        assert is_held
        pulling = asyncio.ensure_future(store.pull(name))
        await asyncio.wait([pulling], timeout=1)
        assert not pulling.done()
    assert (await pulling).digest == small


async def test_a_store_that_was_never_used_is_empty(store: ImageStore, root: Path) -> None:
    assert list(store.list()) == []
    assert not root.exists()
    assert list(await store.prune()) == []
