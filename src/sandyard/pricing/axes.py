"""Which axis decides a bill: seven figures in money for one product and its work, and four questions answered.

Each figure is the gross total less the total of the same work without that axis; caps are a difference of invoices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import TYPE_CHECKING

from sandyard.catalog.vocabulary import Quantity, When
from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.meters import plain
from sandyard.pricing.plans import DAYS
from sandyard.pricing.quote import PRECISION, Mode, Quote, quote, quote_trace
from sandyard.pricing.trace import Trace
from sandyard.pricing.usage import HOUR_S, MonthlyUsage, Usage
from sandyard.pricing.workload import Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import Card, Limits, Meter, Plan

ZERO = Decimal(0)
MONTH_H = Decimal(730)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxesInputs:
    """What the axes need beyond the workload; an axis whose input is not given has no figure."""

    create_latency_s: Decimal | None = None
    """From the request to a sandbox that answers."""

    peak_creates_per_s: Decimal | None = None
    bearable_latency_s: Decimal = Decimal("0.5")
    """Below this nobody keeps a pool."""

    build_memory_gib: Decimal | None = None
    """What the heaviest step needs."""

    build_share: Decimal | None = None
    """Share of the running hours that the heavy steps take."""

    install_gib: Decimal | None = None
    """Downloaded by each new sandbox; billed where the vendor bills what enters as it does what leaves."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        problems = []
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is not None and (not value.is_finite() or value < 0):
                problems.append(f"{name} '{value}' is not a finite number of zero or more")
        if self.build_share is not None and self.build_share > 1:
            problems.append(f"build_share {self.build_share} is more than 1")
        if problems:
            raise InvalidWorkloadError("The axes cannot be computed", tuple(problems), hint="Correct these inputs.")


@dataclass(frozen=True, slots=True)
class Axis:
    """One figure. ``cost`` is None where an input or a published price is missing, and ``note`` says which."""

    name: str
    cost: Decimal | None
    note: str


@dataclass(frozen=True, slots=True)
class CapUse:
    """How near the workload's peak is to one ceiling of one plan."""

    plan: str
    cap: str
    used: Decimal
    limit: Decimal

    @property
    def share(self) -> Decimal:
        """Used over limit."""
        return self.used / self.limit


@dataclass(frozen=True, slots=True)
class Axes:
    """All seven, the ceilings behind the last, and the one that decides."""

    product: str
    figures: tuple[Axis, ...]
    caps: tuple[CapUse, ...]

    @property
    def deciding(self) -> Axis | None:
        """The largest figure; None where every figure is zero or unknown."""
        known = [axis for axis in self.figures if axis.cost]
        return max(known, key=lambda axis: axis.cost or ZERO, default=None)


Work = Workload | Trace
"""A month's totals, or recorded runs."""


def axes(card: Card, work: Work, inputs: AxesInputs | None = None) -> Axes:
    """The seven figures of ``card`` for ``work``; all without a figure where the card has no total."""
    inputs = inputs or AxesInputs()
    base = _quote(card, work)
    if base.total is None:
        why = "; ".join((*base.reasons, *base.missing))
        return Axes(card.id, tuple(Axis(name, None, why) for name in NAMES), ())
    with localcontext(prec=PRECISION):
        figures = (
            _idle(card, work, base.total),
            _rounding(card, work, base.total),
            _warm_pool(card, work, inputs),
            _ratchet(card, work, inputs, base.total),
            _egress(card, work, inputs, base.total),
            _snapshots(card, work, base.total),
            _caps(card, work),
        )
        return Axes(card.id, figures, tuple(_cap_uses(card, work, base)))


NAMES = ("idle", "rounding", "warm pool", "memory ratchet", "egress", "snapshots", "caps")
"""The seven, in order."""


def _quote(card: Card, work: Work, mode: Mode = "gross") -> Quote:
    return quote_trace(card, work, mode=mode) if isinstance(work, Trace) else quote(card, work, mode=mode)


def _less(total: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if total is None or other is None else total - other


def _idle(card: Card, work: Work, total: Decimal) -> Axis:
    if isinstance(work, Trace):
        return Axis("idle", _less(total, _quote(card, work.active_only()).total), "every run, less its time in use")
    hours = work.running_hours * work.cpu_utilization
    active = replace(work, running_hours=hours, cpu_utilization=Decimal(1))
    note = f"{plain(work.running_hours - hours)} of the running hours compute nothing"
    return Axis("idle", _less(total, _quote(card, active).total), note)


def _rounding(card: Card, work: Work, total: Decimal) -> Axis:
    rounded = [meter for meter in card.meters if meter.rounding is not None]
    if not rounded:
        return Axis("rounding", ZERO, "no increment or minimum above a second is published")
    meters = tuple(meter.model_copy(update={"rounding": None}) for meter in card.meters)
    exact = _quote(card.model_copy(update={"meters": meters}), work)
    return Axis("rounding", _less(total, exact.total), "; ".join(sorted({_rule(meter) for meter in rounded})))


def _rule(meter: Meter) -> str:
    rounding = meter.rounding
    if rounding is None:
        return "by the second"
    return f"up to {plain(rounding.increment_s)} s, {plain(rounding.minimum_s)} s at least, per {rounding.per}"


def _warm_pool(card: Card, work: Work, inputs: AxesInputs) -> Axis:
    if inputs.create_latency_s is None or inputs.peak_creates_per_s is None:
        return Axis("warm pool", None, "needs the create latency and the peak of creations a second")
    if inputs.create_latency_s <= inputs.bearable_latency_s:
        return Axis("warm pool", ZERO, f"a create of {plain(inputs.create_latency_s)} s can be waited for")
    size = (inputs.create_latency_s * inputs.peak_creates_per_s).to_integral_value(rounding=ROUND_CEILING)
    one = _idle_month(card, work)
    note = f"{plain(size)} kept warm for {plain(inputs.create_latency_s)} s of creating, all month"
    return Axis("warm pool", None if one is None else one * size, note)


def _idle_month(card: Card, work: Work) -> Decimal | None:
    """One idle sandbox for a month, replaced daily; without the ceilings on life, which a pool manager renews."""
    vcpu, memory, disk = work.request if isinstance(work, Trace) else (work.vcpu, work.memory_gib, work.disk_gib)
    pool = Workload(
        vcpu=vcpu,
        memory_gib=memory,
        disk_gib=disk,
        observed_memory_gib=ZERO if isinstance(work, Trace) else work.observed_memory_gib,
        hot_disk_gib=ZERO if isinstance(work, Trace) else work.hot_disk_gib,
        cold_disk_gib=ZERO if isinstance(work, Trace) else work.cold_disk_gib,
        running_hours=MONTH_H,
        suspended_hours=ZERO,
        executions=DAYS,
        creations=DAYS,
        resumes=ZERO,
        snapshot_gib=ZERO,
        image_gib=ZERO,
        cpu_utilization=ZERO,
    )
    unlimited = card.limits.model_copy(
        update={"max_run_hours": None, "max_lifetime_hours": None, "max_suspension_hours": None}
    )
    return quote(card.model_copy(update={"limits": unlimited}), pool).total


def _ratchet(card: Card, work: Work, inputs: AxesInputs, total: Decimal) -> Axis:
    if inputs.build_memory_gib is None or inputs.build_share is None:
        return Axis("memory ratchet", None, "needs the memory of the heaviest step and its share of the hours")
    memory = inputs.build_memory_gib
    if memory <= (work.request[1] if isinstance(work, Trace) else work.memory_gib):
        return Axis("memory ratchet", ZERO, "the heaviest step fits the size that is asked for")
    large = work.with_memory(memory) if isinstance(work, Trace) else replace(work, memory_gib=memory)
    one = _quote(card, large).total
    if one is None:
        return Axis("memory ratchet", None, f"{plain(memory)} GiB cannot be priced here")
    two = inputs.build_share * one + (1 - inputs.build_share) * total
    return Axis("memory ratchet", one - two, "one template sized for the heaviest step, less two templates")


def _egress(card: Card, work: Work, inputs: AxesInputs, total: Decimal) -> Axis:
    if inputs.install_gib is None:
        return Axis("egress", None, "needs what each new sandbox downloads")
    moved = inputs.install_gib * work.creations
    if isinstance(work, Trace):
        more = _quote(card, work.with_installs(inputs.install_gib))
    else:
        more = _quote(card, replace(work, egress_gib=work.egress_gib + moved))
    note = f"{plain(moved)} GiB of repeated installs at the traffic price"
    return Axis("egress", _less(more.total, total), note if more.total is not None else "; ".join(more.missing))


def _snapshots(card: Card, work: Work, total: Decimal) -> Axis:
    if isinstance(work, Trace):
        bare: Work = work.without_state()
    else:
        bare = replace(work, snapshot_gib=ZERO, kept_snapshots_gib=ZERO, image_gib=ZERO)
    note = "saved state, kept snapshots and image, kept and moved"
    return Axis("snapshots", _less(total, _quote(card, bare).total), note)


def _caps(card: Card, work: Work) -> Axis:
    """What the ceilings cost: the invoice, less the invoice if no plan had any and all sold more of their meters."""
    free = card.model_copy(update={"plans": tuple(_uncapped(plan) for plan in card.plans)})
    bill, unbound = _quote(card, work, "invoice"), _quote(free, work, "invoice")
    if bill.total is None:
        return Axis("caps", None, "; ".join((*bill.reasons, *bill.missing)))
    excluded = "; ".join(f"{item.plan}: {item.why}" for item in bill.excluded) or "no plan is ruled out"
    return Axis("caps", _less(bill.total, unbound.total), excluded)


def _uncapped(plan: Plan) -> Plan:
    return plan.model_copy(update={"limits": type(plan.limits)(), "overage": "on-demand", "suspend": True})


def _cap_uses(card: Card, work: Work, base: Quote) -> Iterator[CapUse]:
    allocated, gb = base.allocated[0], card.conventions.gb
    usages: list[Usage] = list(work.usages()) if isinstance(work, Trace) else [MonthlyUsage(work)]
    number = max(usage.concurrency for usage in usages)
    longest = max(usage.longest_run_s for usage in usages) / HOUR_S
    for plan in card.plans:
        limits: Limits = plan.limits
        together, memory = limits.memory_together, limits.max_memory
        sizes = {
            "concurrent": (number, limits.concurrent),
            "vcpu_together": (number * allocated.vcpu, limits.vcpu_together),
            "memory_together": (number * allocated.memory_gib, together.gib(gb) if together else None),
            "max_vcpu": (allocated.vcpu, limits.max_vcpu),
            "max_memory": (allocated.memory_gib, memory.gib(gb) if memory else None),
            "max_run_hours": (longest, limits.max_run_hours),
        }
        for cap, (used, limit) in sizes.items():
            if limit is not None:
                yield CapUse(plan.id, cap, used, Decimal(limit))


# -- the four questions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What a card says to one of the questions, with the sources that say it."""

    question: str
    answer: tuple[str, ...]
    sources: tuple[str, ...]


def four_questions(card: Card) -> tuple[Answer, ...]:
    """Idle, rounding, caps and what is billed outside compute, answered from the card alone."""
    return (
        Answer("Is idle billed, and what counts as idle?", tuple(_on_idle(card)), _sources(card, When.RUNNING)),
        Answer(
            "What is the increment, the minimum, and when does the meter start?",
            tuple(_on_rounding(card)),
            _sources(card, When.RUNNING),
        ),
        Answer(
            "What are the caps, what happens at them, and is the next tier published?",
            tuple(_on_caps(card)),
            tuple(sorted({plan.source for plan in card.plans if plan.source})),
        ),
        Answer("What is billed outside compute, and is it collected?", tuple(_on_rest(card)), _sources(card, None)),
    )


_COMPUTE = frozenset(
    {
        Quantity.VCPU_ALLOCATED,
        Quantity.VCPU_ACTIVE,
        Quantity.MEMORY_ALLOCATED,
        Quantity.MEMORY_ABOVE_SHAPE,
        Quantity.MEMORY_OBSERVED,
        Quantity.SHAPE_TIME,
        Quantity.SHAPE_UNITS,
        Quantity.RULE,
    }
)
_ACTIVE = frozenset({Quantity.VCPU_ACTIVE, Quantity.MEMORY_OBSERVED})


def _sources(card: Card, when: When | None) -> tuple[str, ...]:
    wanted = [meter for meter in card.meters if (meter.quantity in _COMPUTE) is (when is When.RUNNING)]
    named = {price.source for meter in wanted for price in meter.prices}
    if card.lifecycle.source is not None:
        named.add(card.lifecycle.source)
    return tuple(sorted(named))


def _basis(meter: Meter) -> str:
    if meter.rule is not None:
        return f"what the rule {meter.rule} counts"
    return "only what is used" if meter.quantity in _ACTIVE else "in full, idle or not"


def _on_idle(card: Card) -> Iterator[str]:
    for meter in card.meters:
        if meter.quantity in _COMPUTE:
            yield f"{meter.name}: {_basis(meter)}, {_price(meter)}"
    yield card.lifecycle.idle or "what counts as idle is not stated in the sources"


def _on_rounding(card: Card) -> Iterator[str]:
    rounded = {_rule(meter) for meter in card.meters if meter.rounding is not None}
    yield from sorted(rounded) or ("no increment or minimum above a second is published",)
    yield f"starts: {card.lifecycle.meter_starts or 'not stated in the sources'}"


def _on_caps(card: Card) -> Iterator[str]:
    yield from _limits("every plan", card.limits)
    for plan in card.plans:
        yield from _limits(plan.name, plan.limits)
    yield card.lifecycle.at_cap or "what happens at a cap is not stated in the sources"


def _limits(whose: str, limits: Limits) -> Iterator[str]:
    said = [f"{name} {value}" for name, value in limits if value is not None]
    if said:
        yield f"{whose}: {', '.join(said)}"


def _on_rest(card: Card) -> Iterator[str]:
    for meter in card.meters:
        if meter.quantity not in _COMPUTE:
            yield f"{meter.name}: {_price(meter)}"
    for regime in card.regimes:
        yield f"{regime.applies}: {regime.billed}, {regime.numbers}"
    fees = [f"{plan.name} {plan.fee if plan.fee is not None else 'not published'}" for plan in card.plans]
    if fees:
        yield f"fees a month: {', '.join(fees)}"
    yield f"collection: {card.lifecycle.collection or 'not stated in the sources'}"


def _price(meter: Meter) -> str:
    if not meter.prices:
        return meter.missing or "no price"
    newest = max(meter.prices, key=lambda price: price.valid_from)
    return f"{plain(newest.price)} a {meter.unit}" if newest.price else "free"
