"""The images of one host: fetched or built once, unpacked, found again by digest, removed when nothing needs them.

Several processes may use one folder at the same time. What is in the folder::

    unpacked/HEX/rootfs, unpacked/HEX/image.json    an image; the folder appears whole, by a rename
    references/HEX.json                             what one reference stands for
    blobs/sha256/                                   layers from registries, for the next pull
    staging/                                        work in progress, locked by the process that does it
    locks/                                          one file a digest being unpacked
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sandyard.durable import sync
from sandyard.errors import CorruptImageError, HostError, ImageNotFoundError
from sandyard.images.commands import Scene, run
from sandyard.images.default import CONFIG as DEFAULT_CONFIG
from sandyard.images.default import build as build_default_tar
from sandyard.images.failures import failure, from_os_error
from sandyard.images.image import ROOTFS, Image, ImageConfig, read_record, write_record
from sandyard.images.locks import exclusive, joined_folder, shared_folder, staging, sweep, sweep_files, whole_folder
from sandyard.images.progress import Progress, silent
from sandyard.images.references import DEFAULT, Kind, Reference, parse
from sandyard.images.skopeo import LAYOUT, Skopeo, Source
from sandyard.images.unpack import digest_of, disk_usage, identify, unpack_layout, unpack_tar

Used = Callable[[], Awaitable[Collection[str]]]


async def _nothing_used() -> Collection[str]:
    return ()


class ImageStore:
    """All images below one folder."""

    def __init__(self, root: Path, *, insecure_registries: Collection[str] = ()) -> None:
        """Use the folder ``root``, made when the first image comes.

        Args:
            root: on a file system that holds owners and extended attributes; absolute.
            insecure_registries: ``host`` or ``host:port`` of registries that may do without TLS; loopback always may.
        """
        self._unpacked = root / "unpacked"
        self._references = root / "references"
        self._blobs = root / "blobs"
        self._staging = root / "staging"
        self._locks = root / "locks"
        self._skopeo = Skopeo(insecure_registries)

    # -- finding ------------------------------------------------------------------------------------------------------

    def list(self) -> Sequence[Image]:
        """Return the unpacked images, oldest first."""
        if not self._is_begun():
            return []
        names = self._names()
        images = (self._read(folder, names) for folder in self._unpacked.iterdir())
        return sorted((image for image in images if image is not None), key=lambda image: image.created_at)

    def get(self, digest: str) -> Image:
        """Return the image with this digest.

        Raises:
            ImageNotFoundError: it is not here.
        """
        image = self._read(self._folder(digest), self._names())
        if image is None:
            raise _gone(digest)
        return image

    def rootfs(self, digest: str) -> Path:
        """Return where the root file system of an image is unpacked, whether or not the image is here."""
        return self._folder(digest) / ROOTFS

    @contextmanager
    def pin(self, digest: str) -> Iterator[Image]:
        """Keep an image from being pruned, by any process, until the context ends or this process does.

        Raises:
            ImageNotFoundError: it is not here, or about to go.
        """
        with ExitStack() as held:
            try:
                held.enter_context(shared_folder(self._folder(digest)))
            except FileNotFoundError as error:
                raise _gone(digest) from error
            yield self.get(digest)

    # -- getting ------------------------------------------------------------------------------------------------------

    async def resolve(self, reference: str | Reference, progress: Progress = silent) -> Image:
        """Return what ``reference`` was when it was last pulled, or pull it; a changed local file counts as another.

        Raises:
            As ``pull``.
        """
        parsed = parse(reference) if isinstance(reference, str) else reference
        return self._cached(parsed) or await self._get(parsed, progress, anew=False)

    async def pull(self, reference: str | Reference, progress: Progress = silent) -> Image:
        """Ask the source what ``reference`` is now; fetch and unpack it unless that is here already.

        Raises:
            InvalidRequestError: no image can have this name.
            ImageNotFoundError: the source has none.
            RegistryUnreachableError: the registry does not answer.
            CorruptImageError: a digest does not match; nothing is kept.
            NoSpaceError: the disk is full; nothing is kept.
            ImageError: another reason: access (``image-auth``), architecture (``image-platform``), form.
            HostError: this is not root, or a program is missing.
        """
        parsed = parse(reference) if isinstance(reference, str) else reference
        return await self._get(parsed, progress, anew=True)

    async def build_default(self, progress: Progress = silent) -> Image:
        """Build the default image from this host's own Debian mirror, and let ``default`` mean it.

        Raises:
            NoSpaceError, RegistryUnreachableError, ImageError, HostError: it could not be built.
        """
        return await self._get(DEFAULT, progress, anew=True)

    async def _get(self, reference: Reference, progress: Progress, *, anew: bool) -> Image:
        what = f"the image '{reference}' could not be stored"
        try:
            self._prepare()
            if reference.kind is Kind.DEFAULT:
                return await self._build(progress, anew=anew)
            if not (reference.is_remote or reference.path.exists()):
                raise ImageNotFoundError(
                    f"there is no file or folder {reference.path}.", hint="Check the image's path."
                )
            named = reference
            if reference.kind is Kind.ARCHIVE:
                reference = await identify(reference)
            stamp = _stamp(reference)
            if reference.kind is Kind.ROOTFS:
                image = await self._import(reference.path, str(reference), ImageConfig(), progress)
                names = {named, reference}
            else:
                image, by_digest = await self._copy(reference, progress)
                names = {named, reference, by_digest}
            if _stamp(reference) != stamp:
                raise CorruptImageError(f"{what}: it changed while it was read.", hint="Try again.")
            await self._remember(names, image.digest, stamp)
        except OSError as error:
            raise from_os_error(what, error) from error
        return self.get(image.digest)

    async def _copy(self, reference: Reference, progress: Progress) -> tuple[Image, Reference]:
        """Have an image of a registry, layout or archive; the reference by digest comes with it."""
        progress(f"looking up {reference}", None, None)
        async with staging(self._staging) as scene:
            source = await self._skopeo.find(reference, scene)
            async with exclusive(self._lock(source.digest)):
                image = self._read(self._folder(source.digest), {})
                if image is None:
                    async with joined_folder(self._blobs):
                        image = await self._fetch(source, scene, progress)
        return image, source.reference

    async def _fetch(self, source: Source, scene: Scene, progress: Progress) -> Image:
        what = f"the image '{source.reference}' could not be unpacked"
        is_remote = source.reference.is_remote
        if is_remote:
            (scene.folder / LAYOUT).mkdir()
            (scene.folder / LAYOUT / "blobs").symlink_to(self._blobs)
        await self._skopeo.copy(source, scene, progress)
        progress(f"unpacking {source.reference.name}", None, None)
        try:
            blobs = await unpack_layout(scene, what, source.config)
        except CorruptImageError:
            if is_remote:  # a blob kept from an earlier pull may have rotted since
                self._forget_blobs(source.layers)
            raise
        config = ImageConfig.from_oci(source.config.get("config") or {})
        return await self._keep(scene, source.digest, config, blobs if is_remote else ())

    async def _import(self, tar: Path, name: str, config: ImageConfig, progress: Progress) -> Image:
        """Have the image of a root file system in a tar; its digest is of a configuration, as every image's is."""
        tar_digest = await digest_of(tar, lambda done, total: progress(f"reading {name}", done, total))
        content = {"config": config.to_oci(), "rootfs": {"type": "tar", "digest": tar_digest}}
        digest = f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"
        async with exclusive(self._lock(digest)):
            if (image := self._read(self._folder(digest), {})) is not None:
                return image
            async with staging(self._staging) as scene:
                progress(f"unpacking {name}", None, None)
                await unpack_tar(tar, scene, f"{name} could not be unpacked")
                return await self._keep(scene, digest, config, ())

    async def _build(self, progress: Progress, *, anew: bool) -> Image:
        async with exclusive(self._locks / "default"):
            if not anew and (image := self._cached(DEFAULT)) is not None:
                return image  # another process built it in the meantime
            async with staging(self._staging) as scene:
                tar = await build_default_tar(scene, progress)
                image = await self._import(tar, "the default image", DEFAULT_CONFIG, progress)
            await self._remember({DEFAULT}, image.digest, None)
        return self.get(image.digest)

    async def _keep(self, scene: Scene, digest: str, config: ImageConfig, blobs: tuple[str, ...]) -> Image:
        """Move an unpacked root file system to where images are: all of it, safely on disk, or nothing."""
        ready = scene.folder / "ready"
        ready.mkdir(mode=0o755)
        (scene.folder / ROOTFS).rename(ready / ROOTFS)
        size = await asyncio.to_thread(disk_usage, ready / ROOTFS)
        write_record(Image(digest, (), ready / ROOTFS, config, size, datetime.now(UTC), blobs))
        synced = await run(["sync", "--file-system", str(ready)], scene=scene)
        if synced.returncode != 0:
            raise failure("the image could not be written to disk", synced)
        ready.rename(self._folder(digest))
        sync(self._unpacked)
        return read_record(self._folder(digest))

    # -- removing -----------------------------------------------------------------------------------------------------

    async def prune(self, used: Used = _nothing_used) -> Sequence[Image]:
        """Remove every image that is neither pinned nor used, and what dead processes and old pulls left behind.

        Args:
            used: returns the digests that are used now; asked for each image, and again once that is locked, so that
                one which comes into use meanwhile is never missed.

        Returns:
            The images that are gone.
        """
        self._prepare()
        removed = []
        async with staging(self._staging) as scene:
            for image in self.list():
                folder = self._folder(image.digest)
                if image.digest in await used():
                    continue  # not even locked for a moment: somebody may be about to pin it
                with whole_folder(folder) as is_free:
                    if is_free and image.digest not in await used():
                        folder.rename(scene.folder / folder.name)
                        removed.append(image)
        await asyncio.to_thread(self._sweep)
        return removed

    def _sweep(self) -> None:
        sweep(self._staging)
        sweep_files(self._locks)
        for record in self._references.iterdir():
            if not self._folder(json.loads(record.read_bytes())["digest"]).exists():
                record.unlink()
        with whole_folder(self._blobs) as is_free:
            if is_free:  # nobody is pulling
                used = {digest.removeprefix("sha256:") for image in self.list() for digest in image.blobs}
                for blob in (self._blobs / "sha256").iterdir():
                    if blob.name not in used:
                        blob.unlink()

    # -- files --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if os.geteuid() != 0:
            raise HostError("images belong to root, and this is another user.", hint="Run it as root, or with sudo.")
        for folder in (self._unpacked, self._references, self._blobs / "sha256", self._staging, self._locks):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _is_begun(self) -> bool:
        try:
            return self._unpacked.exists()
        except PermissionError as error:
            raise from_os_error("the images could not be listed", error) from error

    def _folder(self, digest: str) -> Path:
        return self._unpacked / digest.removeprefix("sha256:")

    def _lock(self, digest: str) -> Path:
        return self._locks / digest.removeprefix("sha256:")

    def _read(self, folder: Path, names: Mapping[str, Collection[str]]) -> Image | None:
        try:
            image = read_record(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return replace(image, references=tuple(sorted(names.get(image.digest, ()))))

    def _names(self) -> Mapping[str, Collection[str]]:
        """Return the references of each digest."""
        names: dict[str, set[str]] = {}
        if self._references.exists():
            for path in self._references.glob("*.json"):
                record = json.loads(path.read_bytes())
                names.setdefault(record["digest"], set()).add(record["reference"])
        return names

    def _cached(self, reference: Reference) -> Image | None:
        try:
            record = json.loads(self._reference_file(reference).read_bytes())
            stamp = _stamp(reference)
            return self.get(record["digest"]) if stamp in {None, record["stamp"]} else None
        except (FileNotFoundError, ImageNotFoundError):
            return None

    async def _remember(self, references: Collection[Reference], digest: str, stamp: str | None) -> None:
        async with staging(self._staging) as scene:
            new = scene.folder / "reference"
            for reference in references:
                new.write_text(json.dumps({"reference": str(reference), "digest": digest, "stamp": stamp}))
                new.rename(self._reference_file(reference))

    def _reference_file(self, reference: Reference) -> Path:
        return self._references / f"{hashlib.sha256(str(reference).encode()).hexdigest()}.json"

    def _forget_blobs(self, digests: Collection[str]) -> None:
        for digest in digests:
            (self._blobs / "sha256" / digest.removeprefix("sha256:")).unlink(missing_ok=True)


def _stamp(reference: Reference) -> str | None:
    """Return what changes with a local file's content; None for what lies elsewhere or is gone."""
    if reference.is_remote or reference.kind is Kind.DEFAULT:
        return None
    path = reference.path / "index.json" if reference.kind is Kind.OCI_LAYOUT else reference.path
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"


def _gone(digest: str) -> ImageNotFoundError:
    return ImageNotFoundError(
        f"the image {digest} is not on this host: it was never pulled, or it was pruned.", hint="Pull it again."
    )
