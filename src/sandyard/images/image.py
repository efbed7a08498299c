"""What an unpacked image is, and the record that is kept beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

ROOTFS = "rootfs"
RECORD = "image.json"


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How the image's author meant its commands to run."""

    env: dict[str, str] = field(default_factory=dict)
    user: str = ""
    """``name``, ``uid``, ``name:group`` or ``uid:gid``; empty is root."""

    workdir: str = ""
    """Empty is the user's home."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()

    @classmethod
    def from_oci(cls, config: Mapping[str, Any]) -> ImageConfig:
        """Read the ``config`` object of an OCI or Docker image configuration."""
        pairs = (entry.partition("=") for entry in config.get("Env") or ())
        return cls(
            env={name: value for name, _, value in pairs},
            user=config.get("User") or "",
            workdir=config.get("WorkingDir") or "",
            entrypoint=tuple(config.get("Entrypoint") or ()),
            cmd=tuple(config.get("Cmd") or ()),
        )

    def to_oci(self) -> dict[str, Any]:
        """Write it as the ``config`` object of an OCI image configuration."""
        return {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "User": self.user,
            "WorkingDir": self.workdir,
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.cmd),
        }


@dataclass(frozen=True, slots=True)
class Image:
    """One unpacked image."""

    digest: str
    """SHA-256 of the image's configuration, which names its layers: what Docker calls the image's id."""

    references: tuple[str, ...]
    """What it was asked for as, sorted."""

    rootfs: Path
    """The root file system; nobody writes to it."""

    config: ImageConfig
    size_bytes: int
    """Disk held by ``rootfs``."""

    created_at: datetime
    """When it was unpacked on this host, UTC."""

    blobs: tuple[str, ...] = ()
    """Digests of what was downloaded for it and is kept for the next pull."""


def write_record(image: Image) -> None:
    """Put the image's record beside its root file system."""
    record = {
        "digest": image.digest,
        "config": asdict(image.config),
        "size_bytes": image.size_bytes,
        "created_at": image.created_at.isoformat(),
        "blobs": list(image.blobs),
    }
    (image.rootfs.parent / RECORD).write_text(json.dumps(record, indent=1))


def read_record(folder: Path) -> Image:
    """Read the record in ``folder``, without references.

    Raises:
        FileNotFoundError: no image lies there.
    """
    record = json.loads((folder / RECORD).read_text())
    config = ImageConfig(**record["config"])
    return Image(
        digest=record["digest"],
        references=(),
        rootfs=folder / ROOTFS,
        config=replace(config, entrypoint=tuple(config.entrypoint), cmd=tuple(config.cmd)),
        size_bytes=record["size_bytes"],
        created_at=datetime.fromisoformat(record["created_at"]),
        blobs=tuple(record["blobs"]),
    )
