"""What was used, in the few sums that meters need; a month's averages here, exact sessions in ``trace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, Protocol

from sandyard.catalog.vocabulary import When
from sandyard.pricing.rounding import billed_s
from sandyard.pricing.workload import Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import Rounding

Held = Literal["observed_memory", "hot_disk", "cold_disk", "saved_state"]
"""Sizes that differ from run to run."""

Counted = Literal["creations", "resumes", "executions", "requests"]
Moved = Literal["state_written", "state_read", "image_read", "egress"]
Adjust = Callable[[Decimal], Decimal]
"""What a vendor makes of a size before billing it: a floor, a free part, whole steps."""

HOUR_S = Decimal(3600)


class Usage(Protocol):
    """The sums over one period of sandboxes that asked for the same size."""

    @property
    def vcpu(self) -> Decimal:
        """Requested."""

    @property
    def memory_gib(self) -> Decimal:
        """Requested."""

    @property
    def disk_gib(self) -> Decimal:
        """Requested."""

    @property
    def is_average(self) -> bool:
        """Whether durations are a total divided evenly."""

    @property
    def concurrency(self) -> Decimal:
        """Sandboxes awake at once, at the peak."""

    @property
    def cpu_burst(self) -> Decimal:
        """Average CPU as a multiple of the baseline."""

    @property
    def memory_burst(self) -> Decimal:
        """Average memory as a multiple of the baseline."""

    @property
    def active_vcpu_s(self) -> Decimal:
        """CPU time in use."""

    @property
    def image_gib(self) -> Decimal:
        """Base image kept."""

    @property
    def kept_snapshots_gib(self) -> Decimal:
        """Snapshots kept for the whole period."""

    @property
    def longest_run_s(self) -> Decimal:
        """The longest continuous run."""

    @property
    def longest_lifetime_s(self) -> Decimal:
        """The longest time from create to delete."""

    @property
    def longest_suspension_s(self) -> Decimal:
        """The longest suspension."""

    def period_s(self, month_hours: Decimal) -> Decimal:
        """Length of the period; a month where the usage names none."""

    def time_s(self, when: When, rounding: Rounding | None, month_hours: Decimal, *, each: bool = False) -> Decimal:
        """Sandbox-seconds billed; ``each`` where the thing is bought once for every sandbox that exists at once."""

    def held_gib_s(
        self, held: Held, when: When, rounding: Rounding | None, month_hours: Decimal, adjust: Adjust | None
    ) -> Decimal:
        """A size times the time for which it is billed."""

    def count(self, what: Counted) -> Decimal:
        """How often."""

    def moved_gib(self, what: Moved) -> Decimal:
        """Bytes moved, in GiB."""


@dataclass(frozen=True, slots=True)
class MonthlyUsage:
    """A workload's month: the total divided evenly where a duration is needed."""

    workload: Workload

    @property
    def vcpu(self) -> Decimal:
        """Requested."""
        return self.workload.vcpu

    @property
    def memory_gib(self) -> Decimal:
        """Requested."""
        return self.workload.memory_gib

    @property
    def disk_gib(self) -> Decimal:
        """Requested."""
        return self.workload.disk_gib

    @property
    def is_average(self) -> bool:
        """Always: a month's totals name no single run."""
        return True

    @property
    def concurrency(self) -> Decimal:
        """At the peak."""
        return self.workload.concurrency

    @property
    def cpu_burst(self) -> Decimal:
        """As given."""
        return self.workload.cpu_burst

    @property
    def memory_burst(self) -> Decimal:
        """As given."""
        return self.workload.memory_burst

    @property
    def active_vcpu_s(self) -> Decimal:
        """Requested vCPU x utilisation x running time."""
        return self.workload.vcpu * self.workload.cpu_utilization * self.workload.running_hours * HOUR_S

    @property
    def image_gib(self) -> Decimal:
        """As given."""
        return self.workload.image_gib

    @property
    def kept_snapshots_gib(self) -> Decimal:
        """As given."""
        return self.workload.kept_snapshots_gib

    @property
    def longest_run_s(self) -> Decimal:
        """The implied average."""
        return _share(self.workload.running_hours, self.workload.runs)

    @property
    def longest_lifetime_s(self) -> Decimal:
        """The implied average over the sandboxes created."""
        return _share(self.workload.running_hours + self.workload.suspended_hours, self.workload.creations)

    @property
    def longest_suspension_s(self) -> Decimal:
        """The implied average over the resumes."""
        return _share(self.workload.suspended_hours, self.workload.resumes)

    def period_s(self, month_hours: Decimal) -> Decimal:
        """A month."""
        return month_hours * HOUR_S

    def time_s(self, when: When, rounding: Rounding | None, month_hours: Decimal, *, each: bool = False) -> Decimal:
        """Sandbox-seconds billed; rounded runs times their number."""
        running = self._running_s(rounding)
        suspended = self.workload.suspended_hours * HOUR_S
        if when is When.RUNNING:
            return running
        if when is When.SUSPENDED:
            return suspended
        if when is When.EXISTING:
            return running + suspended
        if when is When.STOPPED:
            return max(Decimal(0), self.period_s(month_hours) * self.concurrency - running)
        return self.period_s(month_hours) * (self.concurrency if each or when is When.ALWAYS_ON else 1)

    def held_gib_s(
        self, held: Held, when: When, rounding: Rounding | None, month_hours: Decimal, adjust: Adjust | None
    ) -> Decimal:
        """The size times the billed time."""
        size: Decimal = {
            "observed_memory": self.workload.observed_memory_gib,
            "hot_disk": self.workload.hot_disk_gib,
            "cold_disk": self.workload.cold_disk_gib,
            "saved_state": self.workload.snapshot_gib,
        }[held]
        return (adjust(size) if adjust else size) * self.time_s(when, rounding, month_hours)

    def count(self, what: Counted) -> Decimal:
        """As given."""
        value: Decimal = getattr(self.workload, what)
        return value

    def moved_gib(self, what: Moved) -> Decimal:
        """State is written and read once for each resume, the image read once for each creation."""
        if what == "egress":
            return self.workload.egress_gib
        if what == "image_read":
            return self.workload.image_gib * self.workload.creations
        return self.workload.snapshot_gib * self.workload.resumes

    def _running_s(self, rounding: Rounding | None) -> Decimal:
        total = self.workload.running_hours * HOUR_S
        if rounding is None:
            return total
        counts = {"run": self.workload.runs, "session": self.workload.creations, "execution": self.workload.executions}
        number = max(counts[rounding.per], Decimal(1))
        return billed_s(total / number, rounding) * number


def _share(hours: Decimal, number: Decimal) -> Decimal:
    return hours * HOUR_S / number if number else hours * HOUR_S
