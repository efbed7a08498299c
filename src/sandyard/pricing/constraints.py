"""Ceilings that a usage must keep; each stands alone, and an implied average can only show that one is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from sandyard.catalog.measures import Gigabyte
from sandyard.pricing.allocation import Allocated
from sandyard.pricing.meters import plain
from sandyard.pricing.usage import Usage

if TYPE_CHECKING:
    from sandyard.catalog.models import Limits

HOUR_S = Decimal(3600)


def broken(limits: Limits, parts: Sequence[tuple[Allocated, Usage]], gb: Gigabyte) -> Iterator[str]:
    """Every ceiling that the usage breaks, in words."""
    for allocated, usage in parts:
        yield from _sizes(limits, allocated, gb)
        yield from _durations(limits, usage)
        yield from _together(limits, allocated, usage, gb)


def _sizes(limits: Limits, allocated: Allocated, gb: Gigabyte) -> Iterator[str]:
    if limits.max_vcpu is not None and allocated.vcpu > limits.max_vcpu:
        yield f"{plain(allocated.vcpu)} vCPU is more than the {limits.max_vcpu} allowed"
    if limits.max_memory is not None and allocated.memory_gib > limits.max_memory.gib(gb):
        yield f"{plain(allocated.memory_gib)} GiB of memory is more than the {limits.max_memory} allowed"
    if limits.max_disk is not None and allocated.disk_gib > limits.max_disk.gib(gb):
        yield f"a disk of {plain(allocated.disk_gib)} GiB is more than the {limits.max_disk} allowed"


def _durations(limits: Limits, usage: Usage) -> Iterator[str]:
    word = "an average" if usage.is_average else "one"
    for ceiling, longest, what in (
        (limits.max_run_hours, usage.longest_run_s, "run"),
        (limits.max_lifetime_hours, usage.longest_lifetime_s, "lifetime"),
        (limits.max_suspension_hours, usage.longest_suspension_s, "suspension"),
    ):
        if ceiling is not None and longest > ceiling * HOUR_S:
            yield f"{word} {what} of {_hours(longest)} h is longer than the {plain(ceiling)} h allowed"


def _together(limits: Limits, allocated: Allocated, usage: Usage, gb: Gigabyte) -> Iterator[str]:
    number = usage.concurrency
    if limits.concurrent is not None and number > limits.concurrent:
        yield f"{plain(number)} sandboxes at once are more than the {limits.concurrent} allowed"
    if limits.vcpu_together is not None and number * allocated.vcpu > limits.vcpu_together:
        yield f"{plain(number * allocated.vcpu)} vCPU at once are more than the {limits.vcpu_together} allowed"
    if limits.memory_together is not None and number * allocated.memory_gib > limits.memory_together.gib(gb):
        yield f"{plain(number * allocated.memory_gib)} GiB at once are more than the {limits.memory_together} allowed"
    if limits.disk_together is not None and number * allocated.disk_gib > limits.disk_together.gib(gb):
        disk = plain(number * allocated.disk_gib)
        yield f"{disk} GiB of disk at once are more than the {limits.disk_together} allowed"


def _hours(seconds: Decimal) -> str:
    return plain((seconds / HOUR_S).quantize(Decimal("0.01")))


def depends_on_average(limits: Limits) -> bool:
    """Whether a month's totals alone cannot prove that these ceilings are kept."""
    return any(
        ceiling is not None
        for ceiling in (limits.max_run_hours, limits.max_lifetime_hours, limits.max_suspension_hours)
    )
