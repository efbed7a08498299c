"""The runtime's ledger as a trace: each run of each sandbox of this host, one record a line, ready to be priced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from sandyard.errors import InvalidRequestError, SandboxNotFoundError
from sandyard.pricing.meters import plain
from sandyard.runtime.states import State
from sandyard.store import EventRow, SandboxRow, Store
from sandyard.units import GIB

AWAKE = frozenset({State.RUNNING, State.PAUSED})
"""A paused sandbox holds its memory, so that its run goes on."""


@dataclass(slots=True)
class _Run:
    """A run that is being added up."""

    start_ms: int
    cpu_us: int
    """Of the sandbox when the run began."""

    used_us: int = 0
    held_byte_ms: int = 0
    seen_ms: int = 0
    held_bytes: int = 0
    disk_bytes: int = 0

    def look(self, at_ms: int) -> None:
        """Count what was held from the last look to now; a clock that stepped back counts nothing."""
        self.held_byte_ms += self.held_bytes * max(0, at_ms - self.seen_ms)
        self.seen_ms = max(self.seen_ms, at_ms)


def records(row: SandboxRow, events: Iterable[EventRow], now_ms: int) -> list[dict[str, str]]:
    """Fold the events of one sandbox, in their order, into its runs; one that goes on ends at ``now_ms``."""
    found: list[dict[str, str]] = []
    run: _Run | None = None
    cpu_us = memory = disk = 0
    for event in events:
        if event.kind == "usage":
            cpu_us, memory = max(cpu_us, event.data["cpu_us"]), event.data["memory_bytes"]
            disk = event.data["disk_bytes"]
            if run is not None:
                run.look(event.at_ms)
                run.held_bytes, run.used_us, run.disk_bytes = memory, cpu_us - run.cpu_us, disk
        elif event.kind == "state" and event.data["phase"] != "begin":
            is_awake = State(event.data["to"]) in AWAKE
            if is_awake and run is None:
                start = max(event.at_ms, _end_ms(found))
                run = _Run(start, cpu_us if found else 0, seen_ms=start, held_bytes=memory, disk_bytes=disk)
            elif not is_awake and run is not None:
                found.append(_record(row, run, event.at_ms, event.data.get("checkpoint_bytes", 0), is_first=not found))
                run = None
    if run is not None:
        found.append(_record(row, run, now_ms, 0, is_first=not found))
    return found


def _end_ms(found: Sequence[dict[str, str]]) -> int:
    return int(Decimal(found[-1]["end"]) * 1000) if found else 0


def _record(row: SandboxRow, run: _Run, end_ms: int, saved_bytes: int, *, is_first: bool) -> dict[str, str]:
    end_ms = max(end_ms, run.start_ms)
    run.look(end_ms)
    length = max(1, end_ms - run.start_ms)
    return {
        "sandbox": row.id,
        "start": plain(Decimal(run.start_ms) / 1000),
        "end": plain(Decimal(end_ms) / 1000),
        "vcpu": str(row.spec["cpus"]),
        "memory_gib": plain(Decimal(row.spec["memory_mib"]) / 1024),
        "cpu_seconds": plain(Decimal(run.used_us) / 1_000_000),
        "observed_memory_gib": plain(Decimal(run.held_byte_ms // length) / GIB),
        "hot_disk_gib": plain(Decimal(run.disk_bytes) / GIB),
        "cold_disk_gib": plain(Decimal(run.disk_bytes) / GIB),
        "snapshot_gib": plain(Decimal(saved_bytes) / GIB),
        "created": "true" if is_first else "false",
    }


def read_runs(database: Path, sandboxes: Sequence[str], now_ms: int) -> list[dict[str, str]]:
    """The runs of the named sandboxes, or of all that the host ever had, oldest first.

    Raises:
        SandboxNotFoundError: there never was one of this id.
        InvalidRequestError: the host has no sandboxes.
    """
    if not database.is_file():
        raise InvalidRequestError(f"There is no ledger at '{database}'.", hint="Name the state directory: --state-dir.")
    return asyncio.run(_read(database, sandboxes, now_ms))


async def _read(database: Path, sandboxes: Sequence[str], now_ms: int) -> list[dict[str, str]]:
    store = await Store.open(database)
    try:
        rows = {row.id: row for row in await store.sandboxes()}
        unknown = [name for name in sandboxes if name not in rows]
        if unknown:
            raise SandboxNotFoundError(
                f"There never was a sandbox '{unknown[0]}'.", hint="`sandyard sandboxes list` names those of this host."
            )
        wanted = (
            [rows[name] for name in sandboxes] if sandboxes else sorted(rows.values(), key=lambda row: row.created_ms)
        )
        return [record for row in wanted for record in records(row, await store.events(row.id), now_ms)]
    finally:
        await store.close()
