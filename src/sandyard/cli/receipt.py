"""What a sandbox used, for a person to read."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from sandyard.runtime import Sandbox, SystemClock
from sandyard.runtime.usage import Usage, add_up
from sandyard.store import EventRow
from sandyard.units import MIB, format_bytes


def print_receipt(sandbox: Sandbox, events: Sequence[EventRow], *, exit_code: int, wall_s: float) -> None:
    """Print it on stderr, so that stdout stays the command's."""
    usage = add_up(events, now_ms=SystemClock().now_ms())
    steps = ", ".join(f"{name} {ms:.0f} ms" for name, ms in sandbox.steps_ms.items())
    lines = [
        ("image", f"{sandbox.row.image} ({sandbox.row.image_digest[:19]})"),
        ("boot", f"{sandbox.row.boot}: {steps}"),
        *usage_lines(usage),
        ("wall", f"{wall_s:.2f} s from the command line's start to the sandbox's end"),
        ("exit code", str(exit_code)),
    ]
    print_table(f"receipt for {sandbox.id}", lines)


def usage_lines(usage: Usage) -> list[tuple[str, str]]:
    """Return one line for each thing that was used."""
    return [
        ("awake", f"{usage.running_ms / 1000:.2f} s running, {usage.paused_ms / 1000:.2f} s paused"),
        ("asleep", f"{usage.asleep_ms / 1000:.2f} s"),
        ("cpu", f"{usage.cpu_us // 1000} CPU-ms, the sandbox's own start included"),
        ("memory", f"peak {usage.memory_peak_bytes / MIB:.0f} MiB"),
        ("", f"{usage.memory_held_gib_hours:.9f} GiB-hours held, {usage.memory_observed_gib_hours:.9f} observed"),
        ("disk", f"{format_bytes(usage.disk_bytes)} written, {format_bytes(usage.checkpoint_bytes)} asleep"),
        ("snapshots", format_bytes(usage.snapshot_bytes)),
    ]


def print_table(title: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print a title and aligned lines on stderr."""
    text = "\n".join(f"  {name:<10} {value}" for name, value in lines)
    typer.echo(f"{title}\n{text}", err=True)
