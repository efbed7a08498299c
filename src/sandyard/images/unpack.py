"""Turns OCI layouts and tars into root file systems on disk."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandyard.errors import CorruptImageError, InvalidRequestError
from sandyard.images.commands import Scene, run, started
from sandyard.images.failures import failure
from sandyard.images.image import ROOTFS
from sandyard.images.references import Kind, Reference
from sandyard.images.skopeo import LAYOUT

_CHUNK = 16 * 1024 * 1024
_ROOT_FOLDERS = {"bin", "boot", "dev", "etc", "home", "lib", "opt", "proc", "root", "sbin", "sys", "tmp", "usr", "var"}
_MARKERS = {
    "manifest.json": Kind.DOCKER_ARCHIVE,
    "repositories": Kind.DOCKER_ARCHIVE,
    "oci-layout": Kind.OCI_ARCHIVE,
    "index.json": Kind.OCI_ARCHIVE,
}


async def identify(reference: Reference) -> Reference:
    """Say which kind of archive a file is, by the first telling name in it.

    Raises:
        InvalidRequestError: it is not a tar.
    """
    is_tar = False
    async with started(["tar", "--list", "--file", reference.name]) as process:
        assert process.stdout is not None  # noqa: S101 - asked for as a pipe
        async for line in process.stdout:
            is_tar = True
            name = line.decode(errors="replace").rstrip("\n").removeprefix("./").removeprefix("/")
            if name in _MARKERS:
                return Reference(_MARKERS[name], reference.name)
            if name.partition("/")[0] in _ROOT_FOLDERS:
                break
    if not is_tar:
        raise InvalidRequestError(
            f"{reference.path} is not an image: it is neither an archive of one nor a tar of a root file system.",
            hint="Make one with 'docker save' or 'docker export', and install zstd or xz if it is packed with them.",
        )
    return Reference(Kind.ROOTFS, reference.name)


async def unpack_layout(scene: Scene, what: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Unpack the layout that ``skopeo.copy`` made into ``scene.folder / ROOTFS``; layers are checked by both digests.

    Args:
        scene: where the layout is.
        what: how an error begins.
        config: the configuration that the image must have.

    Returns:
        The digests of the layout's blobs.

    Raises:
        NoSpaceError, CorruptImageError, ImageError: it could not be unpacked whole.
    """
    blobs, copied = _read_layout(scene.folder / LAYOUT)
    # The configuration itself may have been rewritten on the way (Docker's form to OCI's), what it means may not.
    if copied["rootfs"]["diff_ids"] != config["rootfs"]["diff_ids"]:
        raise CorruptImageError(f"{what}: it changed while it was copied.", hint="Try again.")
    completed = await run(["umoci", "raw", "unpack", "--image", f"{LAYOUT}:image", ROOTFS], scene=scene)
    if completed.returncode != 0:
        raise failure(what, completed)
    return blobs


def _read_layout(layout: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the digests of all blobs of the one image in a layout, and its configuration."""

    def read(digest: str) -> Any:
        return json.loads((layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes())

    (descriptor,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    manifest = read(descriptor["digest"])
    config = manifest["config"]["digest"]
    return (descriptor["digest"], config, *(layer["digest"] for layer in manifest["layers"])), read(config)


async def digest_of(file: Path, progress: Callable[[int, int], None]) -> str:
    """Return the SHA-256 of a file's bytes, telling ``progress`` how many of how many are read."""
    total = file.stat().st_size
    hasher = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := await asyncio.to_thread(stream.read, _CHUNK):
            await asyncio.to_thread(hasher.update, chunk)
            progress(stream.tell(), total)
    return f"sha256:{hasher.hexdigest()}"


async def unpack_tar(file: Path, scene: Scene, what: str) -> None:
    """Unpack a tar of a root file system into ``scene.folder / ROOTFS``, owners and attributes kept.

    Raises:
        NoSpaceError, CorruptImageError, ImageError: it could not be unpacked whole.
    """
    (scene.folder / ROOTFS).mkdir()
    (scene.folder / ROOTFS).chmod(0o755)
    # GNU tar never follows a link that the archive itself made out of the folder, and refuses names with '..'.
    argv = ["tar", "--extract", "--file", str(file), "--directory", ROOTFS, "--numeric-owner", "--same-owner"]
    argv += ["--same-permissions", "--xattrs", "--xattrs-include=*"]
    completed = await run(argv, scene=scene)
    if completed.returncode != 0:
        raise failure(what, completed)


def disk_usage(folder: Path) -> int:
    """Return the bytes that the files below ``folder`` take on disk, hard links counted once."""
    seen: set[int] = set()
    total = 0
    for parent, _, names in os.walk(folder):
        for path in (parent, *(os.path.join(parent, name) for name in names)):  # noqa: PTH118 - a tenth of Path's time
            found = os.lstat(path)
            if found.st_nlink == 1 or found.st_ino not in seen:
                total += found.st_blocks * 512
                seen.add(found.st_ino)
    return total
