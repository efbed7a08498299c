"""Directories that drivers write checkpoints into, as files on the host."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from sandyard.durable import sync


def size_of(directory: Path) -> int:
    """Return the bytes that the files of a checkpoint hold."""
    return sum(path.stat().st_size for path in directory.iterdir())


def link(source: Path, to: Path) -> None:
    """Make a checkpoint appear at a second place without copying: the file system counts who still needs it."""
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for path in source.iterdir():
        (part / path.name).hardlink_to(path)
    part.rename(to)
    sync(to.parent)


def set_aside(directory: Path) -> Path | None:
    """Take a checkpoint's name away at once and return where its files wait to be removed; None if there is none."""
    aside = directory.with_name(f"{directory.name}.{secrets.token_hex(4)}.part")
    try:
        directory.rename(aside)
    except FileNotFoundError:
        return None
    return aside
