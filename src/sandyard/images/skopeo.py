"""Asks registries, folders and archives for images, and copies them into an OCI layout; all of it through skopeo."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import platform
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandyard.errors import CorruptImageError, ImageError, RegistryUnreachableError
from sandyard.images.commands import Completed, Scene, run
from sandyard.images.failures import failure
from sandyard.images.progress import Progress
from sandyard.images.references import Kind, Reference

LAYOUT = "layout"
"""Where ``copy`` puts the image, in its scene's folder, under the tag ``image``."""

_TRANSPORTS = {Kind.REGISTRY: "docker://", Kind.OCI_LAYOUT: "oci:", Kind.OCI_ARCHIVE: "oci-archive:"}
_POLICIES = ("~/.config/containers/policy.json", "/etc/containers/policy.json")
_ANSWER_S = 60.0
_POLL_S = 0.25
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Source:
    """One image where it comes from, at one moment: asking again gives the same."""

    reference: Reference
    """By digest, if it lies in a registry."""

    manifest_digest: str
    """SHA-256 of the manifest, or of the list with one manifest per platform."""

    config: dict[str, Any]
    """The image's configuration."""

    digest: str
    """SHA-256 of the configuration as the source has it."""

    layers: dict[str, int]
    """Digest and bytes of each layer, as far as they are known beforehand."""


class Skopeo:
    """The skopeo program, told which registries may do without TLS."""

    def __init__(self, insecure_registries: Collection[str]) -> None:
        """Allow ``insecure_registries`` (``host`` or ``host:port``) beside those on loopback to be without TLS."""
        self._insecure = frozenset(insecure_registries)

    async def find(self, reference: Reference, scene: Scene) -> Source:
        """Look up what ``reference`` is now.

        Raises:
            ImageNotFoundError, RegistryUnreachableError, CorruptImageError, ImageError: it cannot be had, and why.
        """
        raw = await self._inspect(reference, scene, "--raw")
        manifest_digest = _sha256(raw)
        _check_layout(reference, manifest_digest)
        if reference.is_remote:  # the tag may move in the meantime
            reference = Reference(Kind.REGISTRY, reference.name, digest=manifest_digest)
        config = await self._inspect(reference, scene, "--config", "--raw")
        if "diff_ids" not in json.loads(config).get("rootfs", {}):
            raise ImageError(
                f"'{reference}' is not the image of a root file system.",
                hint="Registries hold other things too; name a container image.",
                code="image-unsupported",
            )
        return Source(
            reference=reference,
            manifest_digest=manifest_digest,
            config=json.loads(config),
            digest=_sha256(config),
            layers=await self._layers(reference, scene, json.loads(raw)),
        )

    async def copy(self, source: Source, scene: Scene, progress: Progress) -> None:
        """Copy an image into the OCI layout ``scene.folder / LAYOUT``; every layer is checked against its digest.

        Raises:
            NoSpaceError, RegistryUnreachableError, CorruptImageError, ImageError: it could not be copied whole.
        """
        text = f"pulling {source.reference.name}"
        total = sum(source.layers.values()) or None
        argv = [*self._skopeo(), "copy", "--quiet", *self._tls(source.reference, "--src-tls-verify")]
        task = asyncio.create_task(run([*argv, _name(source.reference), f"oci:{LAYOUT}:image"], scene=scene))
        try:
            while not task.done():
                progress(text, _arrived(scene.folder / LAYOUT, source.layers), total)
                await asyncio.wait([task], timeout=_POLL_S)
        finally:
            task.cancel()  # nothing, once it is done
            await asyncio.wait([task])
        self._check(source.reference, task.result())

    async def _layers(self, reference: Reference, scene: Scene, manifest: dict[str, Any]) -> dict[str, int]:
        """Return the layers of a manifest; of a registry's list, those for this machine's platform."""
        wanted = {"os": "linux", "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine())}
        for entry in manifest.get("manifests", ()):
            if reference.is_remote and wanted.items() <= entry.get("platform", {}).items():
                one = Reference(Kind.REGISTRY, reference.name, digest=entry["digest"])
                manifest = json.loads(await self._inspect(one, scene, "--raw"))
                break
        return {layer["digest"]: layer["size"] for layer in manifest.get("layers", ()) if "size" in layer}

    async def _inspect(self, reference: Reference, scene: Scene, *options: str) -> bytes:
        argv = [*self._skopeo(), "inspect", *options, *self._tls(reference, "--tls-verify"), _name(reference)]
        try:
            async with asyncio.timeout(_ANSWER_S if reference.is_remote else None):
                completed = await run(argv, scene=scene)
        except TimeoutError as error:
            raise RegistryUnreachableError(
                f"{_what(reference)}: '{reference.registry}' did not answer within {_ANSWER_S:g} s.",
                hint="Check the registry's name, your network and proxy, then try again.",
            ) from error
        self._check(reference, completed)
        return completed.stdout

    def _check(self, reference: Reference, completed: Completed) -> None:
        if completed.returncode != 0:
            raise failure(_what(reference), completed)

    def _skopeo(self) -> list[str]:
        """Begin a command line; where nobody wrote a policy on signatures, there is none to keep."""
        has_policy = any(Path(path).expanduser().exists() for path in _POLICIES)
        return ["skopeo"] if has_policy else ["skopeo", "--insecure-policy"]

    def _tls(self, reference: Reference, option: str) -> list[str]:
        if not reference.is_remote:
            return []
        host = reference.registry.rpartition(":")[0] or reference.registry
        is_insecure = _is_loopback(host) or not self._insecure.isdisjoint({host, reference.registry})
        return [f"{option}=false"] if is_insecure else []


def _name(reference: Reference) -> str:
    """Write a reference as skopeo reads it; it takes a tag or a digest, never both."""
    transport = _TRANSPORTS.get(reference.kind, f"{reference.kind}:")
    if reference.digest:
        return f"{transport}{reference.name}@{reference.digest}"
    return f"{transport}{reference.name}" + (f":{reference.tag}" if reference.tag else "")


def _what(reference: Reference) -> str:
    return f"the image '{reference}' could not be pulled"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_layout(reference: Reference, manifest_digest: str) -> None:
    """Hold a folder's manifest to the digest in its index; skopeo does not."""
    if reference.kind is not Kind.OCI_LAYOUT:
        return
    descriptors = json.loads((reference.path / "index.json").read_bytes())["manifests"]
    if manifest_digest not in {descriptor["digest"] for descriptor in descriptors}:
        raise CorruptImageError(
            f"{_what(reference)}: its manifest has the digest {manifest_digest}, which is not in the folder's index.",
            hint="The folder is damaged; copy the image into it anew.",
        )


def _arrived(layout: Path, layers: dict[str, int]) -> int:
    """Count the bytes of layers that are there, whole or in part."""
    blobs = layout / "blobs" / "sha256"
    whole = sum(size for digest, size in layers.items() if (blobs / digest.removeprefix("sha256:")).exists())
    return whole + sum(path.stat().st_size for path in layout.glob("oci-put-blob*"))


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
