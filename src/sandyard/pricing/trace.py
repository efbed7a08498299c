"""Recorded sandboxes, run by run, and the exact sums over them: integers of microseconds and bytes, no average.

One record is one continuous run of one sandbox: from a create or resume to the next suspend or end. ``docs/pricing.md``
lists the fields; ``read_jsonl`` and ``read_csv`` read them from anywhere.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sandyard.catalog.vocabulary import When
from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.usage import Adjust, Counted, Held, Moved, Usage
from sandyard.pricing.workload import exact

if TYPE_CHECKING:
    from sandyard.catalog.models import Rounding

US = 1_000_000
GIB = Decimal(2**30)
SHOWN = 20
"""So many problems of one file are named; the count of the rest follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One continuous run of one sandbox. Times in whole microseconds, sizes of use in bytes: sums stay exact."""

    sandbox: str
    start_us: int
    """Since any fixed instant, the same for the whole trace."""

    end_us: int
    vcpu: Decimal
    memory_gib: Decimal
    disk_gib: Decimal
    cpu_us: int = 0
    """CPU time in use."""

    observed_memory: int = 0
    """Bytes, the average over the run."""

    hot_disk: int = 0
    cold_disk: int = 0
    saved_state: int = 0
    """Bytes that the suspension after this run saved."""

    suspended_us: int | None = None
    """Suspended after this run; None for the gap to the sandbox's next run, or nothing after its last."""

    executions: int = 0
    created: bool | None = None
    """Whether a create started this run; None for: the first of its sandbox did."""

    egress: int = 0
    requests: int = 0


@dataclass(slots=True)
class _Columns:
    """The runs that asked for one size, column by column."""

    vcpu: Decimal
    memory_gib: Decimal
    disk_gib: Decimal
    start_us: list[int] = field(default_factory=list)
    run_us: list[int] = field(default_factory=list)
    suspended_us: list[int] = field(default_factory=list)
    cpu_us: list[int] = field(default_factory=list)
    observed_memory: list[int] = field(default_factory=list)
    hot_disk: list[int] = field(default_factory=list)
    cold_disk: list[int] = field(default_factory=list)
    saved_state: list[int] = field(default_factory=list)
    executions: list[int] = field(default_factory=list)
    sessions: list[range] = field(default_factory=list)
    """The runs of each sandbox, as indices."""

    creations: int = 0
    resumes: int = 0
    egress: int = 0
    requests: int = 0
    state_read: int = 0
    longest_lifetime_us: int = 0


class Trace:
    """Runs of a period, grouped by the size that was asked for. Immutable once made."""

    def __init__(
        self,
        runs: Iterable[Run],
        *,
        image_gib: Decimal = Decimal(0),
        kept_snapshots_gib: Decimal = Decimal(0),
        period_s: Decimal | None = None,
    ) -> None:
        """Group ``runs``.

        Args:
            runs: in any order; the runs of one sandbox must not overlap and must keep one size.
            image_gib: base image kept for the whole period and read by each creation.
            kept_snapshots_gib: snapshots kept for the whole period.
            period_s: length of the period; by default from the first start to the last end.

        Raises:
            InvalidWorkloadError: overlapping, reversed or resized runs, or none at all.
        """
        self.image_gib = image_gib
        self.kept_snapshots_gib = kept_snapshots_gib
        by_sandbox: dict[str, list[Run]] = {}
        for run in runs:
            by_sandbox.setdefault(run.sandbox, []).append(run)
        problems: list[str] = []
        self._groups: dict[tuple[Decimal, Decimal, Decimal], _Columns] = {}
        for sandbox, own in by_sandbox.items():
            if len(own) > 1:
                own.sort(key=lambda run: run.start_us)
            fault = _fault(own)
            if fault is not None:
                problems.append(f"sandbox '{sandbox}': {fault}")
            elif not problems:
                self._add(own)
        if not by_sandbox:
            problems.append("there is no run in it")
        _refuse(problems)
        self.period_s = period_s if period_s is not None else Decimal(_span(self._groups.values())) / US

    def _add(self, own: list[Run]) -> None:
        first = own[0]
        key = (first.vcpu, first.memory_gib, first.disk_gib)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Columns(*key)
        before = len(group.start_us)
        for number, run in enumerate(own):
            gap = own[number + 1].start_us - run.end_us if number + 1 < len(own) else 0
            suspended = gap if run.suspended_us is None else run.suspended_us
            group.start_us.append(run.start_us)
            group.run_us.append(run.end_us - run.start_us)
            group.suspended_us.append(suspended)
            group.cpu_us.append(run.cpu_us)
            group.observed_memory.append(run.observed_memory)
            group.hot_disk.append(run.hot_disk)
            group.cold_disk.append(run.cold_disk)
            group.saved_state.append(run.saved_state)
            group.executions.append(run.executions)
            group.egress += run.egress
            group.requests += run.requests
            created = number == 0 if run.created is None else run.created
            group.creations += created
            if not created and (number > 0 or run.created is None):
                group.resumes += 1
                group.state_read += own[number - 1].saved_state
        last = own[-1]
        lifetime = last.end_us + (last.suspended_us or 0) - first.start_us
        group.longest_lifetime_us = max(group.longest_lifetime_us, lifetime)
        group.sessions.append(range(before, len(group.start_us)))

    @property
    def request(self) -> tuple[Decimal, Decimal, Decimal]:
        """The size that most of the time was asked for: vCPU, memory and disk in GiB."""
        return max(self._groups, key=lambda key: sum(self._groups[key].run_us))

    @property
    def creations(self) -> int:
        """How many sandboxes were created."""
        return sum(group.creations for group in self._groups.values())

    def active_only(self) -> Trace:
        """The same work with every run cut to the time in which its CPUs were in use."""
        return self._changed(
            lambda group: replace(
                group,
                run_us=[min(run, int(busy / group.vcpu)) for run, busy in zip(group.run_us, group.cpu_us, strict=True)],
            )
        )

    def without_state(self) -> Trace:
        """The same work with nothing saved, kept or read."""
        bare = self._changed(lambda group: replace(group, saved_state=[0] * len(group.saved_state), state_read=0))
        bare.image_gib = bare.kept_snapshots_gib = Decimal(0)
        return bare

    def with_installs(self, gib: Decimal) -> Trace:
        """The same work with so much more traffic for each creation."""
        return self._changed(lambda group: replace(group, egress=group.egress + int(gib * GIB * group.creations)))

    def with_memory(self, gib: Decimal) -> Trace:
        """The same work on sandboxes of at least so much memory."""
        return self._changed(lambda group: replace(group, memory_gib=max(group.memory_gib, gib)))

    def _changed(self, change: Callable[[_Columns], _Columns]) -> Trace:
        other = copy(self)
        other._groups = {key: change(group) for key, group in self._groups.items()}  # noqa: SLF001 - one of its kind
        return other

    def __len__(self) -> int:
        """How many runs there are."""
        return sum(len(group.start_us) for group in self._groups.values())

    def usages(self) -> Iterator[Usage]:
        """The sums, one for each size that was asked for."""
        peak = Decimal(_peak(self._groups.values()))
        for number, group in enumerate(self._groups.values()):
            yield TraceUsage(self, group, peak, holds_stored=number == 0)


def _span(groups: Iterable[_Columns]) -> int:
    starts, ends = [], []
    for group in groups:
        starts.append(min(group.start_us))
        ends.append(max(start + run for start, run in zip(group.start_us, group.run_us, strict=True)))
    return max(ends) - min(starts)


def _fault(own: list[Run]) -> str | None:
    if len(own) == 1:
        return _own_fault(own[0])
    faults = [fault for run in own if (fault := _own_fault(run)) is not None]
    if not faults:
        faults = [fault for earlier, later in pairwise(own) if (fault := _order_fault(earlier, later)) is not None]
    return faults[0] if faults else None


def _own_fault(run: Run) -> str | None:
    if run.end_us < run.start_us:
        return f"a run ends {_seconds(run.start_us - run.end_us)} s before it starts"
    used = (run.cpu_us, run.observed_memory, run.hot_disk, run.cold_disk, run.saved_state)
    if min(*used, run.suspended_us or 0, run.executions, run.egress, run.requests) < 0:
        return "a run has a negative figure"
    return None


def _order_fault(earlier: Run, later: Run) -> str | None:
    if later.start_us < earlier.end_us:
        return f"two of its runs overlap by {_seconds(earlier.end_us - later.start_us)} s"
    if earlier.suspended_us is not None and earlier.end_us + earlier.suspended_us > later.start_us:
        return "it is said to be suspended while it runs again"
    if (earlier.vcpu, earlier.memory_gib, earlier.disk_gib) != (later.vcpu, later.memory_gib, later.disk_gib):
        return "it changes its size; write the resized sandbox under a new name"
    return None


def _seconds(us: int) -> str:
    return format(Decimal(us) / US, "f")


def _refuse(problems: list[str]) -> None:
    if problems:
        shown = problems[:SHOWN]
        if len(problems) > SHOWN:
            shown.append(f"and {len(problems) - SHOWN} more")
        raise InvalidWorkloadError(
            "The trace cannot be priced", tuple(shown), hint="Correct these records; docs/pricing.md lists the fields."
        )


def _peak(groups: Iterable[_Columns]) -> int:
    """The most runs at one instant; one that ends as another starts does not overlap it."""
    events: list[int] = []
    for group in groups:
        for start, run in zip(group.start_us, group.run_us, strict=True):
            events.append(2 * start + 1)
            events.append(2 * (start + run))
    events.sort()
    most = now = 0
    for event in events:
        now += 1 if event & 1 else -1
        most = max(most, now)
    return max(most, 1)


class TraceUsage:
    """The sums over the runs of one size."""

    def __init__(self, trace: Trace, group: _Columns, peak: Decimal, *, holds_stored: bool) -> None:
        """``holds_stored``: the one group to which image and kept snapshots are counted, so that they count once."""
        self._trace = trace
        self._group = group
        self._peak = peak
        self._holds_stored = holds_stored
        self._billed: dict[tuple[int, int, str], list[int]] = {}

    @property
    def vcpu(self) -> Decimal:
        """Requested."""
        return self._group.vcpu

    @property
    def memory_gib(self) -> Decimal:
        """Requested."""
        return self._group.memory_gib

    @property
    def disk_gib(self) -> Decimal:
        """Requested."""
        return self._group.disk_gib

    @property
    def is_average(self) -> bool:
        """Never: each run is known."""
        return False

    @property
    def concurrency(self) -> Decimal:
        """Of the whole trace."""
        return self._peak

    @property
    def cpu_burst(self) -> Decimal:
        """A trace knows no peak within a run: the baseline."""
        return Decimal(1)

    @property
    def memory_burst(self) -> Decimal:
        """Likewise."""
        return Decimal(1)

    @property
    def active_vcpu_s(self) -> Decimal:
        """CPU time in use."""
        return Decimal(sum(self._group.cpu_us)) / US

    @property
    def image_gib(self) -> Decimal:
        """Kept for the period; counted once in the trace."""
        return self._trace.image_gib if self._holds_stored else Decimal(0)

    @property
    def kept_snapshots_gib(self) -> Decimal:
        """Kept for the period; counted once in the trace."""
        return self._trace.kept_snapshots_gib if self._holds_stored else Decimal(0)

    @property
    def longest_run_s(self) -> Decimal:
        """Exact."""
        return Decimal(max(self._group.run_us)) / US

    @property
    def longest_lifetime_s(self) -> Decimal:
        """Exact."""
        return Decimal(self._group.longest_lifetime_us) / US

    @property
    def longest_suspension_s(self) -> Decimal:
        """Exact."""
        return Decimal(max(self._group.suspended_us)) / US

    def period_s(self, month_hours: Decimal) -> Decimal:  # noqa: ARG002 - a trace has a length of its own
        """The trace's own length."""
        return self._trace.period_s

    def time_s(self, when: When, rounding: Rounding | None, month_hours: Decimal, *, each: bool = False) -> Decimal:
        """Billed sandbox-seconds, each run rounded by itself.

        A trace knows when a sandbox ended, so what belongs to a sandbox and is kept "always" is billed while it exists.
        """
        if when is When.ALWAYS_ON:
            return self.period_s(month_hours) * _peak([self._group])
        if when is When.ALWAYS and not each:
            return self.period_s(month_hours)
        running = 0 if when in {When.SUSPENDED, When.STOPPED} else sum(self._billed_us(rounding))
        suspended = 0 if when is When.RUNNING else sum(self._group.suspended_us)
        return Decimal(running + suspended) / US

    def held_gib_s(
        self,
        held: Held,
        when: When,
        rounding: Rounding | None,
        month_hours: Decimal,  # noqa: ARG002 - a trace has a length of its own
        adjust: Adjust | None,
    ) -> Decimal:
        """Each run's size times its own billed time."""
        sizes: list[int] = getattr(self._group, held)
        times = [0] * len(sizes)
        if when not in {When.SUSPENDED, When.STOPPED}:
            billed = self._group.run_us if rounding is not None and rounding.per != "run" else self._billed_us(rounding)
            times = billed
        if when is not When.RUNNING:
            times = [running + asleep for running, asleep in zip(times, self._group.suspended_us, strict=True)]
        if adjust is None:
            return Decimal(sum(map(int.__mul__, sizes, times))) / GIB / US
        by_size: dict[int, int] = {}
        for size, time in zip(sizes, times, strict=True):
            by_size[size] = by_size.get(size, 0) + time
        return sum((adjust(Decimal(size) / GIB) * time for size, time in by_size.items()), Decimal(0)) / US

    def count(self, what: Counted) -> Decimal:
        """Exact."""
        if what == "executions":
            return Decimal(sum(self._group.executions))
        number: int = getattr(self._group, what)
        return Decimal(number)

    def moved_gib(self, what: Moved) -> Decimal:
        """State written by each suspension, read by each resume; the image read by each creation."""
        if what == "image_read":
            return self._trace.image_gib * self._group.creations
        if what == "egress":
            return Decimal(self._group.egress) / GIB
        if what == "state_read":
            return Decimal(self._group.state_read) / GIB
        return Decimal(sum(self._group.saved_state)) / GIB

    def _billed_us(self, rounding: Rounding | None) -> list[int]:
        """Billed microseconds, one entry for each run, session or execution group."""
        if rounding is None:
            return self._group.run_us
        key = (int(rounding.increment_s * US), int(rounding.minimum_s * US), rounding.per)
        if key not in self._billed:
            self._billed[key] = self._round(*key)
        return self._billed[key]

    def _round(self, increment: int, minimum: int, per: str) -> list[int]:
        group = self._group
        least = -(-minimum // increment) * increment
        if per == "execution":
            return [
                max(-(-run // (increment * number)) * increment, least) * number if run else 0
                for run, number in zip(group.run_us, (max(count, 1) for count in group.executions), strict=True)
            ]
        times = group.run_us
        if per == "session":
            times = [sum(group.run_us[index] for index in indices) for indices in group.sessions]
        return [max(-(-time // increment) * increment, least) if time else 0 for time in times]


# -- files ------------------------------------------------------------------------------------------------------------

_SIZES = ("vcpu", "memory_gib", "disk_gib")
_IN_GIB = {
    "observed_memory_gib": "observed_memory",
    "hot_disk_gib": "hot_disk",
    "cold_disk_gib": "cold_disk",
    "snapshot_gib": "saved_state",
    "egress_gib": "egress",
}
_IN_SECONDS = {"cpu_seconds": "cpu_us", "suspended_seconds": "suspended_us"}
_WHOLE = ("executions", "requests")
FIELDS: Mapping[str, str] = {
    "sandbox": "name of the sandbox; its runs share it (required)",
    "start": "ISO 8601 with a time zone, or seconds (required)",
    "end": "likewise (required)",
    "vcpu": "requested vCPU (required)",
    "memory_gib": "requested memory (required)",
    "disk_gib": "requested disk; 0 by default",
    "cpu_seconds": "CPU time in use",
    "observed_memory_gib": "average memory in use",
    "hot_disk_gib": "disk bytes in use while awake",
    "cold_disk_gib": "disk bytes kept",
    "snapshot_gib": "state that the suspension after this run saved",
    "suspended_seconds": "suspended after this run; by default the gap to the next run of the sandbox",
    "executions": "commands or jobs in this run",
    "created": "true or false: whether a create started this run; by default the first of each sandbox",
    "egress_gib": "traffic out to the internet",
    "requests": "requests through links",
}
"""Every field of a record, in both formats."""


def read_jsonl(lines: Iterable[str], *, image_gib: Decimal = Decimal(0)) -> Trace:
    """Read one JSON object a line; numbers are read exactly.

    Raises:
        InvalidWorkloadError: naming the lines that cannot be read.
    """

    def records() -> Iterator[tuple[int, Mapping[str, Any] | str]]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line, parse_float=Decimal, parse_constant=_no_constant)
            except ValueError as error:
                yield number, f"not JSON: {error}"
                continue
            yield number, value if isinstance(value, dict) else "not a JSON object"

    return _trace(records(), image_gib)


def read_csv(file: Iterable[str], *, image_gib: Decimal = Decimal(0)) -> Trace:
    """Read a CSV table whose header names fields; an empty cell is an absent one.

    Raises:
        InvalidWorkloadError: naming the lines that cannot be read.
    """

    def records() -> Iterator[tuple[int, Mapping[str, Any] | str]]:
        reader = csv.DictReader(file)
        for row in reader:
            if None in row:
                yield reader.line_num, "more cells than the header has names"
                continue
            yield reader.line_num, {name: cell for name, cell in row.items() if cell not in {None, ""}}

    return _trace(records(), image_gib)


def _no_constant(text: str) -> Decimal:
    raise ValueError(f"{text} is not a finite number")


def _trace(records: Iterable[tuple[int, Mapping[str, Any] | str]], image_gib: Decimal) -> Trace:
    problems: list[str] = []
    runs: list[Run] = []
    for number, record in records:
        if isinstance(record, str):
            problems.append(f"line {number}: {record}")
            continue
        try:
            runs.append(_run(record))
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    _refuse(problems)
    return Trace(runs, image_gib=image_gib)


def _run(record: Mapping[str, Any]) -> Run:
    unknown = [name for name in record if name not in FIELDS]
    if unknown:
        raise ValueError(f"there is no field '{unknown[0]}'")
    missing = [name for name in ("sandbox", "start", "end", "vcpu", "memory_gib") if name not in record]
    if missing:
        raise ValueError(f"'{missing[0]}' is missing")
    values: dict[str, Any] = {name: _positive(name, record.get(name, 0)) for name in _SIZES}
    _convert(values, record, _IN_GIB, lambda value: int((value * GIB).to_integral_value()))
    _convert(values, record, _IN_SECONDS, lambda value: int((value * US).to_integral_value()))
    _convert(values, record, {name: name for name in _WHOLE}, int)
    return Run(
        sandbox=str(record["sandbox"]),
        start_us=_instant(record["start"], "start"),
        end_us=_instant(record["end"], "end"),
        created=_flag(record.get("created")),
        **values,
    )


def _convert(
    values: dict[str, Any], record: Mapping[str, Any], names: Mapping[str, str], to: Callable[[Decimal], int]
) -> None:
    for name, target in names.items():
        if name in record and record[name] is not None:
            values[target] = to(_positive(name, record[name]))


def _positive(name: str, value: object) -> Decimal:
    number = exact(value)
    if number < 0:
        raise ValueError(f"{name} is negative")
    return number


def _instant(value: object, name: str) -> int:
    if isinstance(value, str) and ("T" in value or ":" in value):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{name} '{value}' is not an ISO 8601 time") from None
        if moment.tzinfo is None:
            raise ValueError(f"{name} '{value}' has no time zone")
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86400 + since.seconds) * US + since.microseconds
    return int((exact(value) * US).to_integral_value())


def _flag(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise ValueError(f"created '{value}' is neither true nor false")
