"""A run's folder: ``manifest.json``, ``trials.jsonl``, ``starts.jsonl``, ``batches.jsonl``, ``resolutions.jsonl``.

Lines are appended and synced, never changed. A line that a crash cut in the middle is the last one, and is dropped with
a word about it; a bad line elsewhere is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sandyard.bench.records import Manifest, Trial
from sandyard.errors import BenchError

M = TypeVar("M", bound=BaseModel)

MANIFEST, TRIALS, STARTS, BATCHES, RESOLUTIONS = (
    "manifest.json",
    "trials.jsonl",
    "starts.jsonl",
    "batches.jsonl",
    "resolutions.jsonl",
)


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        """Use ``path``; nothing is read yet."""
        self.path = path

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunFolder:
        """Make the folder with its manifest.

        Raises:
            BenchError: there is a run in it already.
        """
        folder = cls(path)
        if (path / MANIFEST).exists():
            raise BenchError(f"{path} holds a run already.", hint="Give --resume, or another folder.")
        path.mkdir(parents=True, exist_ok=True)
        folder.write_manifest(manifest)
        return folder

    def write_manifest(self, manifest: Manifest) -> None:
        """Write it anew, whole or not at all."""
        draft = self.path / f".{MANIFEST}"
        with draft.open("w") as file:
            file.write(manifest.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / MANIFEST)

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises:
            BenchError: there is none, or it is not one.
        """
        path = self.path / MANIFEST
        try:
            return Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise BenchError(
                f"{self.path} is not the folder of a run: it has no {MANIFEST}.", hint="Name a run."
            ) from None
        except ValidationError as error:
            raise BenchError(f"{path} cannot be read: {_first(error)}.", hint="Was it edited by hand?") from None

    def append(self, name: str, item: BaseModel | dict[str, Any]) -> None:
        """Add one line and sync it to the disk; a cut line of an earlier crash is ended first."""
        self.append_all(name, [item])

    def append_all(self, name: str, items: Iterable[BaseModel | dict[str, Any]]) -> None:
        """Add lines and sync them together."""
        with (self.path / name).open("ab+") as file:
            if _is_cut(file):
                file.truncate(_whole_length(self.path / name))
            file.writelines(_line(item) for item in items)
            file.flush()
            os.fsync(file.fileno())

    def trials(self) -> list[Trial]:
        """Return every trial, in the order in which they ended."""
        return list(self._lines(TRIALS, Trial))

    def dicts(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of one of the other files."""
        return [json.loads(line) for line in _whole_lines(self.path / name)]

    def _lines(self, name: str, model: type[M]) -> Iterator[M]:
        path = self.path / name
        for number, line in enumerate(_whole_lines(path), 1):
            try:
                yield model.model_validate_json(line)
            except ValidationError as error:
                raise BenchError(
                    f"{path}:{number} is not a record: {_first(error)}.", hint="Records are only ever appended."
                ) from None


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def _line(item: BaseModel | dict[str, Any]) -> bytes:
    if isinstance(item, BaseModel):
        return item.model_dump_json(exclude_defaults=True).encode() + b"\n"
    return json.dumps(item, sort_keys=True).encode() + b"\n"


def _is_cut(file: Any) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) != b"\n")


def _whole_length(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines that end; what comes after the last line end was cut by a crash and never was a record."""
    if not path.exists():
        return []
    return path.read_bytes().split(b"\n")[:-1]
