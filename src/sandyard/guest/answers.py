"""The agent's JSON, read into values that can be relied upon. Whatever does not fit is a breach of the protocol."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from sandyard.guest.failures import printable, violation

_MAX_INT = 2**63 - 1
_MAX_NAME = 255 * 3
"""Characters of a lossy file name: every one of the 255 bytes may have become one."""
_MAX_TARGET = 4096 * 3
_MAX_ARGV = 4096

Json = Mapping[str, Any]


class EntryType(StrEnum):
    """What a path names."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Hello:
    """What the agent said of itself when it accepted the session."""

    boot_id: str
    """New with every boot and every copy."""
    agent: str
    """The agent's build version."""
    resumed: bool
    """Whether it knew the session, so that open streams go on."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory, link or other thing inside the sandbox."""

    name: str
    """The last part of its path; bytes that are not UTF-8 as in ``os.fsdecode``, so that it can be given back."""
    type: EntryType
    size: int
    """Bytes."""
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    mtime_ns: int
    """Since 1970, in nanoseconds."""
    target: str | None = None
    """Where a symlink points, as written in it."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The file that a download came from, when it was opened."""

    size: int
    """Bytes of the whole file."""
    mode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class TarResult:
    """What an unpacked archive held."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A command that runs inside the sandbox."""

    id: str
    pid: int
    argv: tuple[str, ...]
    detached: bool
    started_unix_ms: int


@dataclass(frozen=True, slots=True)
class Spawned:
    """A detached command that was started."""

    id: str
    pid: int


@dataclass(frozen=True, slots=True)
class Info:
    """The state of the machine as its agent sees it; nothing here is to be trusted for accounting."""

    agent: str
    boot_id: str
    id: str
    """The sandbox's id, as ``after_restore`` set it; empty before."""
    hostname: str
    uptime_ms: int
    processes: int
    memory_total_kib: int
    memory_available_kib: int
    held_until_unix_ms: int
    """Until when something inside asked to be kept awake; 0: nothing did."""
    execs: int
    """Commands of ours that run."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A program of the image that ran after a restore."""

    name: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What a machine is after it was told that it is a copy."""

    boot_id: str
    hooks: tuple[Hook, ...]


def parse(payload: bytes | bytearray) -> Json:
    """Read one JSON object.

    Raises:
        ProtocolError: it is anything else, nested beyond reason, or has numbers that JSON does not know.
    """
    try:
        value = _DECODER.decode(payload.decode())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise violation("something that is not a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def integer(source: Json, key: str, *, low: int = 0, high: int = _MAX_INT) -> int:
    """Read a whole number in ``low..high``.

    Raises:
        ProtocolError: it is missing, of another type or out of range.
    """
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise violation(f"an answer whose '{key}' is not a number from {low} to {high}")
    return value


def boolean(source: Json, key: str) -> bool:
    """Read a truth value.

    Raises:
        ProtocolError: it is missing or of another type.
    """
    value = source.get(key)
    if not isinstance(value, bool):
        raise violation(f"an answer whose '{key}' is neither true nor false")
    return value


def text(source: Json, key: str, *, longest: int = 256) -> str:
    """Read a string for a person or a table: printable, one line.

    Raises:
        ProtocolError: it is missing, of another type or too long.
    """
    value = source.get(key)
    if not isinstance(value, str) or len(value) > longest:
        raise violation(f"an answer whose '{key}' is not a string of at most {longest} characters")
    return printable(value)


def items(source: Json, key: str, *, most: int) -> list[Json]:
    """Read a list of objects.

    Raises:
        ProtocolError: it is missing, of another type or too long.
    """
    value = source.get(key)
    if not isinstance(value, list) or len(value) > most or not all(isinstance(item, dict) for item in value):
        raise violation(f"an answer whose '{key}' is not a list of at most {most} objects")
    return value


def _raw_text(source: Json, key: str, longest: int) -> str:
    """Read file names: any character may be in them; bytes that are not UTF-8 come in ``key_b64``."""
    encoded = source.get(f"{key}_b64")
    if isinstance(encoded, str) and len(encoded) <= longest * 2:
        try:
            return base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
        except binascii.Error as error:
            raise violation(f"an answer whose '{key}_b64' is not base64") from error
    value = source.get(key)
    if encoded is not None or not isinstance(value, str) or len(value) > longest:
        raise violation(f"an answer whose '{key}' is not a string of at most {longest} characters")
    return value.encode("utf-8", "replace").decode("utf-8")


def entry(source: Json) -> Entry:
    """Read what ``stat`` and ``list`` say of one path."""
    kind = text(source, "type")
    if kind not in EntryType._value2member_map_:
        raise violation("a file entry of no known type")
    name = _raw_text(source, "name", _MAX_NAME)
    if not name or "\0" in name or ("/" in name and name != "/"):
        raise violation("a file entry whose name is not one part of a path")
    return Entry(
        name=name,
        type=EntryType(kind),
        size=integer(source, "size"),
        mode=integer(source, "mode", high=0o7777),
        uid=integer(source, "uid", high=2**32 - 1),
        gid=integer(source, "gid", high=2**32 - 1),
        mtime_ns=integer(source, "mtime_ns", low=-_MAX_INT),
        target=_raw_text(source, "target", _MAX_TARGET) if kind == EntryType.SYMLINK else None,
    )


def listed_entry(source: Json) -> Entry:
    """Read one line of ``list``: its name can be joined to the directory's path and stays below it."""
    found = entry(source)
    if found.name in {".", "..", "/"}:
        raise violation("a directory listing with a name that leads out of the directory")
    return found


def hello(source: Json) -> Hello:
    """Read the agent's HELLO."""
    return Hello(boot_id=text(source, "boot_id"), agent=text(source, "agent"), resumed=boolean(source, "resumed"))


def file_info(source: Json) -> FileInfo:
    """Read how a download ended."""
    return FileInfo(
        size=integer(source, "size"),
        mode=integer(source, "mode", high=0o7777),
        mtime_ns=integer(source, "mtime_ns", low=-_MAX_INT),
    )


def process_entry(source: Json) -> ProcessEntry:
    """Read one of ``processes``."""
    argv = source.get("argv")
    if not isinstance(argv, list) or len(argv) > _MAX_ARGV or not all(isinstance(part, str) for part in argv):
        raise violation("a process whose 'argv' is not a list of strings")
    return ProcessEntry(
        id=text(source, "exec"),
        pid=integer(source, "pid"),
        argv=tuple(part.encode("utf-8", "replace").decode("utf-8") for part in argv),
        detached=boolean(source, "detached"),
        started_unix_ms=integer(source, "started_unix_ms"),
    )


def info(source: Json) -> Info:
    """Read the answer to ``info``."""
    return Info(
        agent=text(source, "agent"),
        boot_id=text(source, "boot_id"),
        id=text(source, "id"),
        hostname=text(source, "hostname"),
        uptime_ms=integer(source, "uptime_ms"),
        processes=integer(source, "processes"),
        memory_total_kib=integer(source, "memory_total_kib"),
        memory_available_kib=integer(source, "memory_available_kib"),
        held_until_unix_ms=integer(source, "held_until_unix_ms"),
        execs=integer(source, "execs"),
    )


def restored(source: Json) -> Restored:
    """Read the answer to ``after_restore``."""
    return Restored(
        boot_id=text(source, "boot_id"),
        hooks=tuple(
            Hook(text(hook, "name"), integer(hook, "exit_code", low=-1, high=255))
            for hook in items(source, "hooks", most=1024)
        ),
    )
