"""How people name images, read into one form and back.

Names of registries follow the grammar of the Distribution project, as Docker does: ``debian:12`` is
``docker.io/library/debian:12``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandyard.errors import InvalidRequestError


class Kind(StrEnum):
    """Where an image comes from."""

    REGISTRY = "registry"
    OCI_LAYOUT = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    ROOTFS = "rootfs"
    ARCHIVE = "archive"
    """A file named by its path alone; its content says which of the kinds above it is."""
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of one image; ``str()`` gives a text that ``parse`` reads as the same reference."""

    kind: Kind
    name: str = ""
    """Registry and repository (``docker.io/library/debian``), or an absolute path."""

    tag: str | None = None
    digest: str | None = None
    """``sha256:...`` of a manifest in a registry; overrules the tag."""

    def __str__(self) -> str:
        """Write the whole name: registry, tag and all."""
        if self.kind is Kind.DEFAULT:
            return "default"
        suffix = (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")
        prefix = "" if self.kind in {Kind.REGISTRY, Kind.ARCHIVE} else f"{self.kind}:"
        return f"{prefix}{self.name}{suffix}"

    @property
    def is_remote(self) -> bool:
        """Whether a registry has it."""
        return self.kind is Kind.REGISTRY

    @property
    def registry(self) -> str:
        """The registry's host, with its port where one is given."""
        return self.name.split("/", 1)[0]

    @property
    def path(self) -> Path:
        """The folder or file that holds the image."""
        return Path(self.name)


DEFAULT = Reference(Kind.DEFAULT)
"""The image that Sandyard builds itself."""

_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.zst")
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = re.compile(rf"{_HOST}(?:\.{_HOST})*(?::[0-9]{{1,5}})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_NAME = 255


def parse(text: str) -> Reference:
    """Read the name of an image.

    ``default``; ``debian:12``, ``host:5000/x@sha256:...``; ``oci:DIR[:TAG]``, ``oci-archive:FILE``,
    ``docker-archive:FILE``, ``rootfs:FILE``; a path that begins with ``/``, ``./``, ``../`` or ``~/``, or an existing
    file that ends like an archive. Relative paths are taken from the working directory.

    Raises:
        InvalidRequestError: no image can have this name; the text says what is wrong with it.
    """
    if text == "default":
        return DEFAULT
    prefix, colon, rest = text.partition(":")
    if colon and prefix in {Kind.OCI_LAYOUT, Kind.OCI_ARCHIVE, Kind.DOCKER_ARCHIVE, Kind.ROOTFS}:
        return _local(Kind(prefix), rest, text)
    if text.startswith(("/", "./", "../", "~/")) or text in {".", ".."}:
        return _by_content(text)
    if text.endswith(_ARCHIVE_SUFFIXES) and os.path.isfile(text):  # noqa: PTH113 - it never raises
        return _by_content(text)
    return _registry(text)


def _by_content(text: str) -> Reference:
    path = _absolute(text, text)
    if not os.path.isdir(path):  # noqa: PTH112 - it never raises
        return Reference(Kind.ARCHIVE, str(path))
    if (path / "oci-layout").is_file():
        return Reference(Kind.OCI_LAYOUT, str(path))
    raise _invalid(
        text, "the folder is not an OCI layout (it has no file 'oci-layout')", "Pack a root file system as a tar."
    )


def _local(kind: Kind, rest: str, text: str) -> Reference:
    tag = None
    if kind is Kind.OCI_LAYOUT and ":" in rest:
        rest, _, tag = rest.rpartition(":")
        if not _TAG.fullmatch(tag):
            raise _invalid(text, f"'{tag}' is not a tag", "Write oci:DIR or oci:DIR:TAG.")
    return Reference(kind, str(_absolute(rest, text)), tag)


def _absolute(path: str, text: str) -> Path:
    if not path or "\0" in path:
        raise _invalid(text, "it names no file", "Give a path after the colon.")
    if ":" in path:
        raise _invalid(
            text, "its path has a colon, which the tools for images cannot read", "Rename it, or link to it."
        )
    try:
        return (Path(path).expanduser() if path.startswith("~/") else Path(path)).resolve()
    except (OSError, RuntimeError) as error:  # too long; a loop of links; no home
        raise _invalid(
            text, f"its path cannot be followed ({error})", "Give the path that the file really has."
        ) from error


def _registry(text: str) -> Reference:
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _invalid(text, f"'{digest}' is not a digest", "A digest is 'sha256:' and 64 digits in 0-9a-f.")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, f"'{tag}' is not a tag", "A tag has letters, digits, '_', '.' and '-', 128 at most.")
    full = _full_name(f"{head}{slash}{last}", text)
    return Reference(Kind.REGISTRY, full, tag or (None if digest else "latest"), digest or None)


def _full_name(name: str, text: str) -> str:
    """Add Docker Hub where no registry is named, as Docker does."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, rest
    else:
        registry, repository = "docker.io", name
    if registry == "index.docker.io":
        registry = "docker.io"
    if registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    if not _REGISTRY.fullmatch(registry):
        raise _invalid(
            text, f"'{registry}' is not the name of a registry", "Write host or host:port before the first '/'."
        )
    if not _REPOSITORY.fullmatch(repository):
        hint = (
            "Names are lower-case letters and digits with '.', '_' or '-' between them; a path begins with './' or '/'."
        )
        raise _invalid(text, f"'{repository}' is not the name of a repository", hint)
    full = f"{registry}/{repository}"
    if len(full) > _MAX_NAME:
        raise _invalid(text, f"the name has {len(full)} characters and may have {_MAX_NAME}", "Use a shorter one.")
    return full


def _invalid(text: str, why: str, hint: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{text}' does not name an image: {why}.", hint=hint)
