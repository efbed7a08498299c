"""All that a fake machine remembers, as plain values: what a checkpoint of it holds."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from sandyard.drivers.fake_files import Node


@dataclass(slots=True)
class Command:
    """One process, with the one that it waits for if it is a shell."""

    id: str
    """As the host named it; empty for one that a shell started."""
    pid: int
    group: int
    """Its process group: the pid of the command that the host started."""
    program: str
    args: list[str]
    env: dict[str, str]
    cwd: str
    uid: int
    gid: int
    started_s: float
    """Machine time."""
    started_unix_ms: int
    state: dict[str, Any] = field(default_factory=dict)
    """What the program itself remembers."""
    child: Command | None = None
    redirects: dict[str, str] = field(default_factory=dict)
    """Channel number to file (``>path``, ``>>path``) or to another channel (``&2``)."""
    stdin: bytes = b""
    stdin_ended: bool = True
    pty: tuple[int, int] | None = None
    detached: bool = False
    stopped: bool = False
    kill_at_s: float | None = None
    """Machine time at which its timeout passes."""
    wake_at_s: float | None = None
    """Machine time that it sleeps until."""
    replay: list[tuple[int, bytes]] = field(default_factory=list)
    watchers: list[int] = field(default_factory=list)
    """Streams that get its output."""
    exit_code: int | None = None
    signal: int = 0
    timed_out: bool = False
    ended_s: float = 0.0


@dataclass(slots=True)
class StreamState:
    """One open request."""

    number: int
    op: str
    fields: dict[str, Any]
    window: int
    """Bytes that the host still takes."""
    room: int
    """Bytes that the host may still send."""
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    consumed: int = 0
    """Bytes consumed and not yet credited."""
    closing: dict[str, Any] | None = None
    """What it is closed with once nothing is pending."""


@dataclass(slots=True)
class MachineState:
    """Memory, processes and disk."""

    files: dict[str, Node]
    hostname: str
    boot_id: str
    id: str = ""
    session: str = ""
    last_stream: int = 0
    next_pid: int = 2
    clock_s: float = 0.0
    """Machine time: seconds for which it was not frozen."""
    held_until_unix_ms: int = 0
    lease_s: float = 0.0
    heard_s: float = 0.0
    """Machine time of the last frame from the host."""
    commands: list[Command] = field(default_factory=list)
    orphans: list[Command] = field(default_factory=list)
    over: list[Command] = field(default_factory=list)
    """The last detached commands that ended."""
    streams: dict[int, StreamState] = field(default_factory=dict)

    def dump(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), default=_encode)

    @staticmethod
    def load(text: str) -> MachineState:
        """Return what ``dump`` wrote.

        Raises:
            ValueError: it did not write this.
        """
        try:
            raw = json.loads(text, object_hook=_decode)
            raw["files"] = {path: Node(**node) for path, node in raw["files"].items()}
            raw["streams"] = {int(number): _stream(stream) for number, stream in raw["streams"].items()}
            for kind in ("commands", "orphans", "over"):
                raw[kind] = [_command(command) for command in raw[kind]]
            return MachineState(**raw)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the state of a fake machine: {error}") from error


def _command(raw: dict[str, Any]) -> Command:
    raw["child"] = None if raw["child"] is None else _command(raw["child"])
    raw["pty"] = None if raw["pty"] is None else tuple(raw["pty"])
    raw["replay"] = [(channel, data) for channel, data in raw["replay"]]
    return Command(**raw)


def _stream(raw: dict[str, Any]) -> StreamState:
    raw["pending"] = [(channel, data) for channel, data in raw["pending"]]
    return StreamState(**raw)


def _encode(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} has no place in a machine's state")


def _decode(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["$bytes"]) if value.keys() == {"$bytes"} else value
