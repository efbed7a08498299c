"""The engine over arrays of workloads, in floats, for sweeps; written apart from the exact one, which is the answer.

Totals agree with ``quote`` to 1e-9 relative; statuses, allocations and plans agree wherever a workload is not within
1e-12 relative of a step or ceiling without standing on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sandyard.catalog.measures import GIB_PER_GB, Dimension, Size, parse_unit
from sandyard.catalog.vocabulary import EvidenceState, FeeKind, Quantity, When
from sandyard.pricing.meters import Missing, Terms, find_price, gigabyte, month_hours, unit_price
from sandyard.pricing.plans import DAYS
from sandyard.pricing.quote import Mode, Status
from sandyard.pricing.workload import INPUTS, Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import (
        Allowance,
        Card,
        Limits,
        Meter,
        Plan,
        Rounding,
        Shape,
        ShapesAllocation,
        SizeRange,
        StepsAllocation,
    )

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

NEAR = 1e-12
"""Relative width within which a value stands on a step."""

STATUSES: tuple[Status, ...] = (Status.PRICED, Status.UNSUPPORTED, Status.UNVERIFIED, Status.SELF_HOSTED)
_PRICED, _UNSUPPORTED, _UNVERIFIED, _SELF_HOSTED = range(4)


@dataclass(frozen=True, slots=True)
class Columns:
    """Workloads as columns, one float array of equal length for each input."""

    values: Mapping[str, Floats]

    @classmethod
    def of(cls, workloads: Sequence[Workload]) -> Columns:
        """One row for each workload, which has been validated."""
        return cls({name: np.array([float(getattr(item, name)) for item in workloads]) for name in INPUTS})

    @classmethod
    def grid(cls, base: Workload, varied: Mapping[str, Floats]) -> Columns:
        """Every combination of the values in ``varied``, the last named running fastest; the rest as in ``base``.

        The caller sees to it that each combination is a workload that can be meant.
        """
        mesh = np.meshgrid(*varied.values(), indexing="ij")
        size = mesh[0].size if mesh else 1
        columns = {name: np.full(size, float(value)) for name, value in base.as_dict().items()}
        columns |= {name: grid.ravel().astype(np.float64) for name, grid in zip(varied, mesh, strict=True)}
        return cls(columns)

    def __getitem__(self, name: str) -> Floats:
        """The column of one input."""
        return self.values[name]

    def __len__(self) -> int:
        """How many workloads."""
        return len(self.values["vcpu"])


@dataclass(frozen=True, slots=True)
class VectorQuotes:
    """One product's answers, one entry for each workload."""

    product: str
    status: Ints
    """Index into ``STATUSES``."""

    total: Floats
    """NaN where there is no total."""

    allocation: Ints
    """Index into ``allocations``; -1 where none covers."""

    allocations: tuple[str, ...]
    plan: Ints
    """Index into the card's plans; -1 for none."""


def vector_quote(
    card: Card, columns: Columns, *, mode: Mode = "gross", on: date | None = None, variant: str | None = None
) -> VectorQuotes:
    """Price every workload of ``columns`` on ``card``."""
    chosen = next((item for item in card.variants if item.id == variant), None)
    engine = _Engine(card, columns, Terms(None, on, chosen))
    return engine.run(mode)


# -- allocation -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Given:
    """The allocation of each workload; NaN sizes where none covers."""

    index: Ints
    vcpu: Floats
    memory: Floats
    disk: Floats

    @classmethod
    def nothing(cls, size: int) -> _Given:
        return cls(np.full(size, -1), np.full(size, np.nan), np.full(size, np.nan), np.full(size, np.nan))

    @property
    def is_covered(self) -> Bools:
        return self.index >= 0

    def put(self, where: Bools, index: int, vcpu: Floats | float, memory: Floats | float, disk: Floats | float) -> None:
        self.index = np.where(where, index, self.index)
        self.vcpu = np.where(where, vcpu, self.vcpu)
        self.memory = np.where(where, memory, self.memory)
        self.disk = np.where(where, disk, self.disk)


def _up(value: Floats, step: float) -> Floats:
    steps = value / step
    return np.ceil(steps - NEAR * np.maximum(1.0, np.abs(steps))) * step


def _above(value: Floats, limit: float | Floats) -> Bools:
    return np.asarray(value > limit * (1 + NEAR))


class _Engine:
    """One card over one set of columns."""

    def __init__(self, card: Card, columns: Columns, terms: Terms) -> None:
        self.card, self.columns, self.terms = card, columns, terms
        self.size = len(columns)
        self.names: list[str] = []
        self.given = _Given.nothing(self.size)

    def gib(self, size: Size) -> float:
        return float(size.gib(self.card.conventions.gb))

    # -- what is given ------------------------------------------------------------------------------------------------

    def allocate(self) -> _Given:
        allocation = self.card.allocation
        if allocation.kind == "unknown":
            return _Given.nothing(self.size)
        if allocation.kind == "shapes":
            return self.from_shapes(allocation)
        if allocation.kind == "steps":
            return self.from_steps(allocation)
        best = _Given.nothing(self.size)
        for way in allocation.of:
            other = self.from_shapes(way) if way.kind == "shapes" else self.from_steps(way)
            best_key = (best.vcpu, best.memory, best.disk)
            smaller = _lexically_less((other.vcpu, other.memory, other.disk), best_key)
            take = other.is_covered & (~best.is_covered | smaller)
            best = _Given(
                np.where(take, other.index, best.index),
                np.where(take, other.vcpu, best.vcpu),
                np.where(take, other.memory, best.memory),
                np.where(take, other.disk, best.disk),
            )
        return best

    def from_shapes(self, way: ShapesAllocation) -> _Given:
        vcpu, memory, disk = self.columns["vcpu"], self.columns["memory_gib"], self.columns["disk_gib"]
        given = _Given.nothing(self.size)
        for shape in way.shapes:
            index = len(self.names)
            self.names.append(shape.id)
            own = self.gib(shape.memory)
            raised = np.full(self.size, own)
            fits = memory <= own
            if shape.memory_max is not None and shape.memory_step is not None:
                more = _up(memory, self.gib(shape.memory_step))
                raised = np.where(fits, own, more)
                fits |= ~_above(more, self.gib(shape.memory_max))
            most = np.inf if shape.disk is None else self.gib(shape.disk)
            chosen = disk if shape.disk is None else np.full(self.size, most)
            if shape.disk_min is not None:
                chosen = np.maximum(disk, self.gib(shape.disk_min))
            covers = (vcpu <= float(shape.vcpu)) & fits & (disk <= most) & ~given.is_covered
            given.put(covers, index, float(shape.vcpu), raised, chosen)
        return given

    def from_steps(self, way: StepsAllocation) -> _Given:
        index = len(self.names)
        self.names.append(way.id)
        given = _Given.nothing(self.size)
        disk = self.columns["disk_gib"] if way.disk is None else self.fit(way.disk, self.columns["disk_gib"])
        for vcpu in self.vcpus(way):
            memory = self.memory(way, vcpu, disk)
            covers = ~np.isnan(vcpu) & ~np.isnan(memory) & ~np.isnan(disk) & ~given.is_covered
            given.put(covers, index, vcpu, memory, disk)
        return given

    def vcpus(self, way: StepsAllocation) -> list[Floats]:
        """Candidates in ascending order, NaN where one does not cover."""
        wanted, grid = self.columns["vcpu"], way.vcpu
        if grid.choices is not None:
            return [np.where(wanted <= float(choice), float(choice), np.nan) for choice in grid.choices]
        first = wanted if grid.min is None else np.maximum(wanted, float(grid.min))
        if grid.step is not None:
            first = _up(first, float(grid.step))
        most = np.inf if grid.max is None else float(grid.max)
        candidates = [np.where(_above(first, most), np.nan, first)]
        if way.max_gib_per_vcpu is not None and grid.step is not None and grid.max is not None:
            steps = int(grid.max / grid.step)
            following = (first + number * float(grid.step) for number in range(1, steps + 1))
            candidates.extend(np.where(_above(vcpu, most), np.nan, vcpu) for vcpu in following)
        return candidates

    def memory(self, way: StepsAllocation, vcpu: Floats, disk: Floats) -> Floats:
        need = self.columns["memory_gib"]
        if way.min_gib_per_vcpu is not None:
            need = np.maximum(need, vcpu * float(way.min_gib_per_vcpu))
        if way.max_disk_gb_per_memory_gib is not None:
            need = np.maximum(need, disk / float(GIB_PER_GB) / float(way.max_disk_gb_per_memory_gib))
        memory = self.fit(way.memory, need)
        if way.max_gib_per_vcpu is None:
            return memory
        return np.where(_above(memory, vcpu * float(way.max_gib_per_vcpu)), np.nan, memory)

    def fit(self, sizes: SizeRange, wanted: Floats) -> Floats:
        if sizes.fixed is not None:
            fixed = self.gib(sizes.fixed)
            return np.where(wanted <= fixed, fixed, np.nan)
        if sizes.choices is not None:
            fitted = np.full(self.size, np.nan)
            for choice in (self.gib(size) for size in sizes.choices):
                fitted = np.where(np.isnan(fitted) & ~_above(wanted, choice), choice, fitted)
            return fitted
        value = wanted if sizes.min is None else np.maximum(wanted, self.gib(sizes.min))
        if sizes.step is not None:
            value = _up(value, self.gib(sizes.step))
        return value if sizes.max is None else np.where(_above(value, self.gib(sizes.max)), np.nan, value)

    # -- what is used -------------------------------------------------------------------------------------------------

    def billed_s(self, rounding: Rounding | None) -> Floats:
        total = self.columns["running_hours"] * 3600.0
        if rounding is None:
            return total
        counts = {
            "run": self.columns["creations"] + self.columns["resumes"],
            "session": self.columns["creations"],
            "execution": self.columns["executions"],
        }
        number = np.maximum(counts[rounding.per], 1.0)
        billed = _up(np.maximum(total / number, float(rounding.minimum_s)), float(rounding.increment_s)) * number
        return np.where(total == 0, 0.0, billed)

    def time_s(self, meter: Meter, *, each: bool) -> Floats:
        running, suspended = self.billed_s(meter.rounding), self.columns["suspended_hours"] * 3600.0
        period = np.full(self.size, float(month_hours(meter, self.card.conventions)) * 3600.0)
        number = self.columns["concurrency"]
        if meter.when is When.RUNNING:
            return running
        if meter.when is When.SUSPENDED:
            return suspended
        if meter.when is When.EXISTING:
            return running + suspended
        if meter.when is When.STOPPED:
            return np.maximum(0.0, period * number - running)
        return period * number if each or meter.when is When.ALWAYS_ON else period

    def adjusted(self, meter: Meter, size: Floats) -> Floats:
        gb = gigabyte(meter, self.card.conventions)
        if meter.floor is not None:
            size = np.maximum(size, float(meter.floor.gib(gb)))
        if meter.included is not None:
            size = np.maximum(0.0, size - float(meter.included.gib(gb)))
        return size if meter.step is None else _up(size, float(meter.step.gib(gb)))

    def active_s(self) -> Floats:
        return self.columns["vcpu"] * self.columns["cpu_utilization"] * self.columns["running_hours"] * 3600.0

    def amount(self, meter: Meter) -> Floats:
        """In base amounts."""
        quantity, columns = meter.quantity, self.columns
        if quantity in _COUNTS:
            return columns[_COUNTS[quantity]]
        if quantity is Quantity.VCPU_ACTIVE:
            return self.active_s()
        if quantity in _MOVES:
            return _MOVES[quantity](columns)
        if quantity in _HELD:
            return self.adjusted(meter, columns[_HELD[quantity]]) * self.time_s(meter, each=False)
        each = quantity not in {Quantity.IMAGE_STORED, Quantity.SNAPSHOTS_KEPT}
        time_s = self.time_s(meter, each=each)
        if quantity is Quantity.RULE:
            return _RULES[meter.rule or ""](self, meter, time_s)
        return self.size_of(meter) * time_s

    def size_of(self, meter: Meter) -> Floats:
        sizes: dict[Quantity, Floats] = {
            Quantity.MEMORY_ALLOCATED: self.given.memory,
            Quantity.DISK_PROVISIONED: self.given.disk,
            Quantity.IMAGE_STORED: self.columns["image_gib"],
            Quantity.SNAPSHOTS_KEPT: self.columns["kept_snapshots_gib"],
        }
        if meter.quantity in sizes:
            return self.adjusted(meter, sizes[meter.quantity])
        if meter.quantity is Quantity.VCPU_ALLOCATED:
            return self.given.vcpu
        if meter.quantity is Quantity.MEMORY_ABOVE_SHAPE:
            return self.given.memory - self.by_name({shape.id: self.gib(shape.memory) for shape in self.shapes()})
        if meter.quantity is Quantity.SHAPE_UNITS:
            return self.by_name({shape.id: float(shape.units or 0) for shape in self.shapes()})
        return np.ones(self.size)

    def shapes(self) -> list[Shape]:
        ways = self.card.allocation.of if self.card.allocation.kind == "any-of" else (self.card.allocation,)
        return [shape for way in ways if way.kind == "shapes" for shape in way.shapes]

    def by_name(self, values: Mapping[str, float]) -> Floats:
        """A value by the allocation's name; NaN where there is none."""
        table = np.array([values.get(name, np.nan) for name in self.names] + [np.nan])
        return table[self.given.index]

    # -- what it costs ------------------------------------------------------------------------------------------------

    def rates(self, meter: Meter, plan: str | None) -> Floats:
        """The price for each workload; NaN where none holds."""
        terms = Terms(plan, self.terms.on, self.terms.variant)
        by_name = {}
        for name in self.names:
            price = find_price(meter, name, terms)
            by_name[name] = np.nan if isinstance(price, Missing) else float(unit_price(meter, price, terms.variant))
        return self.by_name(by_name)

    def lines(self, plan: str | None) -> tuple[dict[str, Floats], dict[str, Floats], Bools]:
        """Quantities in the meters' units, their prices, and where a needed price is missing."""
        quantities: dict[str, Floats] = {}
        prices: dict[str, Floats] = {}
        missing = np.zeros(self.size, dtype=bool)
        for meter in self.card.meters:
            amount = self.amount(meter)
            base = parse_unit(meter.unit).in_base(
                gigabyte(meter, self.card.conventions), month_hours(meter, self.card.conventions)
            )
            rate = self.rates(meter, plan)
            needed = np.nan_to_num(amount) > 0
            missing |= needed & np.isnan(rate)
            quantities[meter.id] = np.where(needed, amount, 0.0) / float(base)
            prices[meter.id] = np.nan_to_num(rate)
        return quantities, prices, missing

    def broken(self, limits: Limits) -> Bools:
        given, columns = self.given, self.columns
        number = columns["concurrency"]
        runs = columns["creations"] + columns["resumes"]
        alive = columns["running_hours"] + columns["suspended_hours"]
        pairs: list[tuple[Floats, Decimal | int | Size | None]] = [
            (given.vcpu, limits.max_vcpu),
            (given.memory, limits.max_memory),
            (given.disk, limits.max_disk),
            (_share(columns["running_hours"], runs), limits.max_run_hours),
            (_share(alive, columns["creations"]), limits.max_lifetime_hours),
            (_share(columns["suspended_hours"], columns["resumes"]), limits.max_suspension_hours),
            (number, limits.concurrent),
            (number * given.vcpu, limits.vcpu_together),
            (number * given.memory, limits.memory_together),
            (number * given.disk, limits.disk_together),
        ]
        found = np.zeros(self.size, dtype=bool)
        for value, limit in pairs:
            if limit is not None:
                found |= _above(value, self.gib(limit) if isinstance(limit, Size) else float(limit))
        return found & given.is_covered

    # -- the answer ---------------------------------------------------------------------------------------------------

    def run(self, mode: Mode) -> VectorQuotes:
        card = self.card
        status = np.full(self.size, _PRICED)
        total = np.zeros(self.size)
        plan = np.full(self.size, -1)
        if card.evidence.state is EvidenceState.SELF_HOSTED:
            return self.answer(np.full(self.size, _SELF_HOSTED), total, plan)
        self.given = self.allocate()
        if card.evidence.state is EvidenceState.UNVERIFIED:
            unsupported = self.broken(card.limits)
            return self.answer(np.where(unsupported, _UNSUPPORTED, _UNVERIFIED), total, plan)
        unsupported = ~self.given.is_covered | self.broken(card.limits)
        if mode == "gross" or not card.plans:
            quantities, prices, missing = self.lines(None)
            total = sum((quantities[name] * prices[name] for name in quantities), np.zeros(self.size))
            status = np.where(missing, _UNVERIFIED, status)
        else:
            status, total, plan = self.invoice()
        status = np.where(unsupported, _UNSUPPORTED, status)
        return self.answer(status, total, plan)

    def answer(self, status: Ints, total: Floats, plan: Ints) -> VectorQuotes:
        total = np.where(status == _PRICED, total, np.nan)
        return VectorQuotes(self.card.id, status, total, self.given.index, tuple(self.names), plan)

    def invoice(self) -> tuple[Ints, Floats, Ints]:
        bills = [self.bill(plan) for plan in self.card.plans]
        best = np.full(self.size, np.inf)
        chosen = np.full(self.size, -1)
        status = np.full(self.size, _UNSUPPORTED)
        for index, bill in enumerate(bills):
            better = bill.is_eligible & (bill.total < best) if bill.has_fee else np.zeros(self.size, dtype=bool)
            best = np.where(better, bill.total, best)
            chosen = np.where(better, index, chosen)
            status = np.where(better, np.where(bill.missing, _UNVERIFIED, _PRICED), status)
        for index, bill in enumerate(bills):
            if not bill.has_fee:
                only = bill.is_eligible & (chosen < 0)
                chosen = np.where(only, index, chosen)
                status = np.where(only, _UNVERIFIED, status)
        return status, best, chosen

    def bill(self, plan: Plan) -> _Bill:
        quantities, prices, missing = self.lines(plan.id)
        left = dict(quantities)
        allowances, variant = plan.allowances, self.terms.variant
        if variant is not None and plan.id in variant.allowances:
            allowances = variant.allowances[plan.id]
        for allowance in allowances:
            self.take(left, prices, allowance)
        usage = sum((left[name] * prices[name] for name in left), np.zeros(self.size))
        fee = float(plan.fee or 0)
        paid = float(plan.credit or 0) + (fee if plan.fee_kind is FeeKind.CREDIT else 0.0)
        after = usage - np.minimum(usage, paid)
        total = np.maximum(fee, after) if plan.fee_kind in {FeeKind.MINIMUM, FeeKind.DEPOSIT} else fee + after
        eligible = ~self.broken(plan.limits)
        if variant is not None and variant.plan is not None and variant.plan != plan.id:
            eligible &= False
        if not plan.selectable:
            eligible &= False
        if not plan.suspend:
            eligible &= self.columns["resumes"] == 0
        if plan.overage == "hard-cap":
            for name, rest in left.items():
                eligible &= ~((rest > NEAR * 1000 * quantities[name]) & (prices[name] > 0))
        return _Bill(eligible, total, missing, plan.fee is not None)

    def take(self, left: dict[str, Floats], prices: Mapping[str, Floats], allowance: Allowance) -> None:
        periods = float(DAYS) if allowance.per == "day" else 1.0
        meters = {meter.id: meter for meter in self.card.meters}
        if allowance.credit is not None:
            money = np.full(self.size, float(allowance.credit) * periods)
            for name in allowance.meters:
                paid = np.minimum(left[name] * prices[name], money)
                money = money - paid
                rate = np.where(prices[name] > 0, prices[name], 1.0)
                left[name] = np.where(prices[name] > 0, left[name] - paid / rate, left[name])
            return
        pool = float(allowance.amount or 0) * periods * self.base(meters[allowance.meters[0]], allowance.unit or "")
        rest = np.full(self.size, pool)
        for name in allowance.meters:
            base = self.base(meters[name], meters[name].unit)
            priced = np.where(prices[name] > 0, left[name], 0.0)
            used = np.minimum(priced, rest / base)
            rest = rest - used * base
            left[name] = left[name] - used

    def base(self, meter: Meter, unit: str) -> float:
        conventions = self.card.conventions
        return float(parse_unit(unit).in_base(gigabyte(meter, conventions), month_hours(meter, conventions)))


@dataclass(slots=True)
class _Bill:
    is_eligible: Bools
    total: Floats
    missing: Bools
    has_fee: bool


def _lexically_less(left: tuple[Floats, ...], right: tuple[Floats, ...]) -> Bools:
    less = np.zeros(left[0].shape, dtype=bool)
    equal = np.ones(left[0].shape, dtype=bool)
    for one, other in zip(left, right, strict=True):
        less |= equal & (one < other)
        equal &= one == other
    return less


def _share(hours: Floats, number: Floats) -> Floats:
    return hours / np.where(number > 0, number, 1.0)


_COUNTS: dict[Quantity, str] = {
    Quantity.CREATIONS: "creations",
    Quantity.RESUMES: "resumes",
    Quantity.EXECUTIONS: "executions",
    Quantity.REQUESTS: "requests",
}
_HELD: dict[Quantity, str] = {
    Quantity.MEMORY_OBSERVED: "observed_memory_gib",
    Quantity.DISK_HOT: "hot_disk_gib",
    Quantity.DISK_COLD: "cold_disk_gib",
    Quantity.SAVED_STATE: "snapshot_gib",
}
_MOVES: dict[Quantity, Callable[[Columns], Floats]] = {
    Quantity.EGRESS: lambda columns: columns["egress_gib"],
    Quantity.IMAGE_READ: lambda columns: columns["image_gib"] * columns["creations"],
    Quantity.STATE_WRITTEN: lambda columns: columns["snapshot_gib"] * columns["resumes"],
    Quantity.STATE_READ: lambda columns: columns["snapshot_gib"] * columns["resumes"],
}


def _is_cpu(meter: Meter) -> bool:
    return parse_unit(meter.unit).dimension is Dimension.VCPU_TIME


def _above_baseline(engine: _Engine, meter: Meter, time_s: Floats) -> Floats:
    is_cpu = _is_cpu(meter)
    burst = engine.columns["cpu_burst" if is_cpu else "memory_burst"]
    size = engine.given.vcpu if is_cpu else engine.given.memory
    return size * (np.minimum(burst, float(meter.parameters["peak"])) - 1.0) * time_s


def _larger_of_request_and_use(engine: _Engine, meter: Meter, time_s: Floats) -> Floats:
    if _is_cpu(meter):
        return np.maximum(engine.given.vcpu * time_s, engine.active_s())
    used = engine.columns["observed_memory_gib"] * engine.columns["running_hours"] * 3600.0
    return np.maximum(engine.given.memory * time_s, used)


def _largest_dimension(engine: _Engine, meter: Meter, time_s: Floats) -> Floats:
    per = meter.parameters
    units = np.maximum(
        _up(engine.given.vcpu / float(per["vcpu"]), 1.0), _up(engine.given.memory / float(per["memory_gib"]), 1.0)
    )
    return np.maximum(units, _up(engine.given.disk / float(per["disk_gib"]), 1.0)) * time_s


def _memory_covers_cores(engine: _Engine, meter: Meter, time_s: Floats) -> Floats:
    per = meter.parameters
    covered = np.maximum(engine.given.memory, float(per["gib_per_vcpu"]) * engine.given.vcpu)
    return np.where(engine.given.vcpu > float(per["free_vcpu"]), covered, engine.given.memory) * time_s


def _surplus_credits(engine: _Engine, meter: Meter, time_s: Floats) -> Floats:
    earned = float(meter.parameters["baseline"]) * engine.given.vcpu * time_s
    return np.maximum(0.0, engine.active_s() - earned)


_RULES: dict[str, Callable[[_Engine, Meter, Floats], Floats]] = {
    "above-baseline": _above_baseline,
    "larger-of-request-and-use": _larger_of_request_and_use,
    "largest-dimension": _largest_dimension,
    "memory-covers-cores": _memory_covers_cores,
    "surplus-credits": _surplus_credits,
}
