"""How much of each meter a usage comes to, and what that costs: quantity x price, nothing rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from sandyard.catalog.measures import Gigabyte, PricingUnit, parse_unit
from sandyard.catalog.vocabulary import Quantity
from sandyard.pricing.allocation import Allocated
from sandyard.pricing.rounding import round_up
from sandyard.pricing.rules import Factor, Measured, Situation, find_rule
from sandyard.pricing.usage import Counted, Held, Moved, Usage

if TYPE_CHECKING:
    from sandyard.catalog.models import Card, Conventions, Meter, Price, Variant

ZERO = Decimal(0)
_HOUR_S = Decimal(3600)

_HELD: dict[Quantity, Held] = {
    Quantity.MEMORY_OBSERVED: "observed_memory",
    Quantity.DISK_HOT: "hot_disk",
    Quantity.DISK_COLD: "cold_disk",
    Quantity.SAVED_STATE: "saved_state",
}
_COUNTED: dict[Quantity, Counted] = {
    Quantity.CREATIONS: "creations",
    Quantity.RESUMES: "resumes",
    Quantity.EXECUTIONS: "executions",
    Quantity.REQUESTS: "requests",
}
_MOVED: dict[Quantity, Moved] = {
    Quantity.STATE_WRITTEN: "state_written",
    Quantity.STATE_READ: "state_read",
    Quantity.IMAGE_READ: "image_read",
    Quantity.EGRESS: "egress",
}
_PER_SANDBOX = frozenset(
    {
        Quantity.VCPU_ALLOCATED,
        Quantity.MEMORY_ALLOCATED,
        Quantity.MEMORY_ABOVE_SHAPE,
        Quantity.DISK_PROVISIONED,
        Quantity.SHAPE_TIME,
        Quantity.SHAPE_UNITS,
        Quantity.ADDRESS_TIME,
        Quantity.RULE,
    }
)
"""Bought once for each sandbox, so that "always" means the period for each of those that exist at once."""


@dataclass(frozen=True, slots=True)
class Component:
    """One line of a bill."""

    meter: str
    name: str
    quantity: Decimal
    """In ``unit``, before any allowance."""

    unit: str
    price: Decimal
    """List unit price."""

    amount: Decimal
    source: str
    """Identifier of the source of the price, on the card."""

    factors: tuple[Factor, ...] = ()
    included: Decimal = ZERO
    """Taken from an allowance; invoice mode only."""

    @property
    def working(self) -> str:
        """The line as a sum a person can check, with all digits."""
        return self.worked(None)

    def worked(self, digits: int | None) -> str:
        """The same, with so many decimals at most."""

        def said(value: Decimal) -> str:
            return plain(value if digits is None else shortened(value, digits))

        parts = " x ".join(_factor(value, unit, said) for value, unit in self.factors)
        taken = f" - {said(self.included)} included" if self.included else ""
        times = " x " if self.unit[0].isdigit() else " "
        quantity = f"{said(self.quantity)}{times}{self.unit}"
        left = f"{parts} = {quantity}" if parts else quantity
        return f"{left}{taken} x {plain(self.price)} = {said(self.amount)}"


DIGITS = 9
"""Decimals of a working that is shown to a person."""


def shortened(value: Decimal, digits: int) -> Decimal:
    """``value`` with so many decimals at most, for display only."""
    return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def plain(value: Decimal) -> str:
    """A number without exponent or trailing zeros, all of its digits."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _factor(value: Decimal, unit: str, said: Callable[[Decimal], str]) -> str:
    if unit == "s":
        hours = value / _HOUR_S
        return f"{plain(hours)} h" if hours == shortened(hours, 6) else f"{said(value)} s"
    return f"{said(value)} {unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Missing:
    """A meter that the usage needs and that has no price."""

    meter: str
    why: str


# -- quantities -------------------------------------------------------------------------------------------------------


def month_hours(meter: Meter, conventions: Conventions) -> Decimal:
    """Hours of a month for this meter."""
    return meter.month_hours or conventions.month_hours


def gigabyte(meter: Meter, conventions: Conventions) -> Gigabyte:
    """How this meter's GB is read."""
    return meter.gb or conventions.gb


def measure(meter: Meter, conventions: Conventions, allocated: Allocated, usage: Usage) -> Measured:
    """How much of ``meter`` the usage comes to, in base amounts."""
    quantity = meter.quantity
    if quantity in _COUNTED or quantity in _MOVED:
        return _plain(quantity, usage)
    if quantity is Quantity.VCPU_ACTIVE:
        return Measured(usage.active_vcpu_s, ((usage.active_vcpu_s / _HOUR_S, "vCPU-h in use"),))
    gb, month = gigabyte(meter, conventions), month_hours(meter, conventions)
    if quantity in _HELD:
        return _held(meter, gb, month, usage)
    time_s = usage.time_s(meter.when, meter.rounding, month, each=quantity in _PER_SANDBOX)
    if quantity is Quantity.RULE:
        unit = parse_unit(meter.unit)
        situation = Situation(meter, allocated, usage, time_s, month, unit.dimension)
        return find_rule(meter.rule or "")(situation)
    size, unit_text = _SIZES[quantity](meter, gb, allocated, usage)
    sized = () if unit_text is None else ((size, unit_text),)
    return Measured(size * time_s, (*sized, (time_s, "s")))


def _plain(quantity: Quantity, usage: Usage) -> Measured:
    if quantity in _COUNTED:
        number = usage.count(_COUNTED[quantity])
        return Measured(number, ((number, ""),))
    moved = usage.moved_gib(_MOVED[quantity])
    return Measured(moved, ((moved, "GiB"),))


def _above_shape(meter: Meter, gb: Gigabyte, allocated: Allocated, usage: Usage) -> tuple[Decimal, str]:  # noqa: ARG001 - one signature for all sizes
    own = allocated.shape.memory.gib(gb) if allocated.shape else allocated.memory_gib
    return allocated.memory_gib - own, "GiB above the shape"


def _units(meter: Meter, gb: Gigabyte, allocated: Allocated, usage: Usage) -> tuple[Decimal, str]:  # noqa: ARG001 - likewise
    units = allocated.shape.units if allocated.shape else None
    return (units if units is not None else ZERO), f"units of {allocated.id}"


_SIZES: dict[Quantity, Callable[[Meter, Gigabyte, Allocated, Usage], tuple[Decimal, str | None]]] = {
    Quantity.VCPU_ALLOCATED: lambda _meter, _gb, allocated, _usage: (allocated.vcpu, "vCPU"),
    Quantity.MEMORY_ALLOCATED: lambda meter, gb, allocated, _: (adjusted(meter, gb, allocated.memory_gib), "GiB"),
    Quantity.MEMORY_ABOVE_SHAPE: _above_shape,
    Quantity.DISK_PROVISIONED: lambda meter, gb, allocated, _: (adjusted(meter, gb, allocated.disk_gib), "GiB"),
    Quantity.IMAGE_STORED: lambda meter, gb, _, usage: (adjusted(meter, gb, usage.image_gib), "GiB"),
    Quantity.SNAPSHOTS_KEPT: lambda meter, gb, _, usage: (adjusted(meter, gb, usage.kept_snapshots_gib), "GiB"),
    Quantity.SHAPE_UNITS: _units,
    Quantity.SHAPE_TIME: lambda *_: (Decimal(1), None),
    Quantity.ADDRESS_TIME: lambda *_: (Decimal(1), None),
}
"""The size that is multiplied with time, and its unit; no unit for time alone."""


def _held(meter: Meter, gb: Gigabyte, month: Decimal, usage: Usage) -> Measured:
    plain_size = meter.included is None and meter.floor is None and meter.step is None
    amount = usage.held_gib_s(
        _HELD[meter.quantity],
        meter.when,
        meter.rounding,
        month,
        None if plain_size else lambda size: adjusted(meter, gb, size),
    )
    time_s = usage.time_s(meter.when, meter.rounding, month)
    if not time_s:
        return Measured(amount, ((amount, "GiB-s"),))
    return Measured(amount, ((amount / time_s, "GiB"), (time_s, "s")))


def adjusted(meter: Meter, gb: Gigabyte, size_gib: Decimal) -> Decimal:
    """A size after the vendor's floor, free part and whole steps, in GiB."""
    if meter.floor is not None:
        size_gib = max(size_gib, meter.floor.gib(gb))
    if meter.included is not None:
        size_gib = max(ZERO, size_gib - meter.included.gib(gb))
    if meter.step is not None:
        size_gib = round_up(size_gib, meter.step.gib(gb))
    return size_gib


# -- prices -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which of a card's published terms a usage is billed."""

    plan: str | None
    on: date | None
    """None for the newest prices."""

    variant: Variant | None


def find_price(meter: Meter, shape: str, terms: Terms) -> Price | Missing:
    """The one price that holds: of the variant, else the most specific to plan and shape, else the newest."""
    if terms.variant is not None and meter.id in terms.variant.prices:
        return terms.variant.prices[meter.id]
    if not meter.prices:
        return Missing(meter.id, f"{meter.name}: {meter.missing}")
    fitting = [price for price in meter.prices if price.shape in {None, shape} and price.plan in {None, terms.plan}]
    if not fitting:
        return Missing(meter.id, f"no price of {meter.name} for {shape}")
    held = [price for price in fitting if _holds(price, terms.on)]
    if not held:
        last = max(fitting, key=lambda price: price.valid_from)
        until = f" to {last.valid_to} (exclusive)" if last.valid_to else ""
        return Missing(meter.id, f"the price of {meter.name} is known from {last.valid_from}{until}, not on {terms.on}")
    return max(held, key=lambda price: (price.plan is not None, price.shape is not None, price.valid_from))


def _holds(price: Price, on: date | None) -> bool:
    return on is None or (price.valid_from <= on and (price.valid_to is None or on < price.valid_to))


def unit_price(meter: Meter, price: Price, variant: Variant | None) -> Decimal:
    """The list price after the variant's multiplier."""
    if variant is None or variant.multiplier is None or meter.id in variant.prices:
        return price.price
    applies = meter.id in variant.multiplied if variant.multiplied else parse_unit(meter.unit).time is not None
    return price.price * variant.multiplier if applies else price.price


# -- components -------------------------------------------------------------------------------------------------------


Parts = Sequence[tuple[Allocated, Usage]]
"""Usages of one product, each with the size it was given."""


def components(card: Card, parts: Parts, terms: Terms) -> tuple[list[Component], list[Missing]]:
    """Every line of the bill for usages of one product, and every price that is missing for one that is not zero."""
    lines: list[Component] = []
    missing: list[Missing] = []
    for meter in card.meters:
        unit = parse_unit(meter.unit)
        base = unit.in_base(gigabyte(meter, card.conventions), month_hours(meter, card.conventions))
        for shape, measured in _measured(card, meter, parts):
            if not measured.amount:
                continue
            price = find_price(meter, shape, terms)
            if isinstance(price, Missing):
                missing.append(price)
                continue
            rate = unit_price(meter, price, terms.variant)
            if rate:
                quantity = measured.amount / base
                lines.append(
                    Component(
                        meter.id,
                        meter.name,
                        quantity,
                        meter.unit,
                        rate,
                        quantity * rate,
                        price.source,
                        measured.factors,
                    )
                )
    return lines, missing


def _measured(card: Card, meter: Meter, parts: Parts) -> Iterator[tuple[str, Measured]]:
    """One measurement for each shape that has a price of its own, else one over all parts."""
    by_shape = any(price.shape is not None for price in meter.prices)
    grouped: dict[str, list[Measured]] = {}
    for allocated, usage in parts:
        group = allocated.id if by_shape else parts[0][0].id
        grouped.setdefault(group, []).append(measure(meter, card.conventions, allocated, usage))
    for shape, measured in grouped.items():
        yield shape, measured[0] if len(measured) == 1 else _together(measured)


def _together(measured: Sequence[Measured]) -> Measured:
    total = sum((part.amount for part in measured), ZERO)
    return Measured(total, ((Decimal(len(measured)), "sizes together"),))


def used_units(card: Card, lines: Iterable[Component]) -> Iterable[tuple[Meter, PricingUnit]]:
    """The meters behind ``lines`` with their units."""
    meters = {meter.id: meter for meter in card.meters}
    for line in lines:
        yield meters[line.meter], parse_unit(meters[line.meter].unit)
