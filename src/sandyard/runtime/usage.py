"""What a sandbox used, added up from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandyard.runtime.states import State
from sandyard.store import EventRow
from sandyard.units import GIB, MIB

_MS_PER_HOUR = 3_600_000


@dataclass(slots=True)
class Usage:
    """Totals from its creation to ``until_ms``."""

    until_ms: int = 0
    running_ms: int = 0
    paused_ms: int = 0
    asleep_ms: int = 0
    cpu_us: int = 0
    """Processor time of the sandbox and all that served it."""
    memory_peak_bytes: int = 0
    memory_held_gib_hours: float = 0.0
    """What was reserved for it while it was awake or paused: its limit, times the time."""
    memory_observed_gib_hours: float = 0.0
    """What it really held, between two looks as much as at the first of them."""
    disk_bytes: int = 0
    """Its own part of the disk when last seen."""
    checkpoint_bytes: int = 0
    """What it keeps on disk while asleep; 0 while awake."""
    snapshot_bytes: int = 0
    """What its snapshots keep; templates and the moments of forks are the host's."""


def add_up(events: Iterable[EventRow], *, now_ms: int) -> Usage:
    """Fold events, in the order in which they were written, up to their end or to ``now_ms`` if it still lives.

    A clock that stepped back makes an interval of 0, never a negative one.
    """
    usage = Usage()
    state, since_ms = None, 0
    limit_mib, held_bytes = 0, 0
    for event in events:
        if event.kind == "snapshot" and event.data["kind"] == "snapshot":
            usage.snapshot_bytes += event.data["bytes"]
        if event.kind not in {"state", "usage"}:
            continue
        passed_ms = max(0, event.at_ms - since_ms) if since_ms else 0
        _pass(usage, state, passed_ms, limit_mib, held_bytes)
        since_ms = max(since_ms, event.at_ms)
        if event.kind == "usage":
            limit_mib, held_bytes = event.data["memory_limit_mib"], event.data["memory_bytes"]
            usage.cpu_us = max(usage.cpu_us, event.data["cpu_us"])
            usage.memory_peak_bytes = max(usage.memory_peak_bytes, event.data["memory_peak_bytes"])
            usage.disk_bytes = event.data["disk_bytes"]
        elif event.data["phase"] != "begin":
            state = State(event.data["to"])
            usage.checkpoint_bytes = event.data.get("checkpoint_bytes", 0) if state is State.ASLEEP else 0
    if state not in {State.DELETED, State.FAILED, None}:
        _pass(usage, state, max(0, now_ms - since_ms), limit_mib, held_bytes)
        since_ms = max(since_ms, now_ms)
    usage.until_ms = since_ms
    return usage


def _pass(usage: Usage, state: State | None, ms: int, limit_mib: int, held_bytes: int) -> None:
    """Add an interval in which nothing changed."""
    if state is State.RUNNING:
        usage.running_ms += ms
    elif state is State.PAUSED:
        usage.paused_ms += ms
    elif state is State.ASLEEP:
        usage.asleep_ms += ms
    if state in {State.RUNNING, State.PAUSED}:
        hours = ms / _MS_PER_HOUR
        usage.memory_held_gib_hours += limit_mib * MIB / GIB * hours
        usage.memory_observed_gib_hours += held_bytes / GIB * hours
