"""Questions over many workloads: who is cheapest where, where two products cross, which input moves a total most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.quote import PRECISION, Mode, quote
from sandyard.pricing.vector import Columns, Floats, Ints, vector_quote
from sandyard.pricing.workload import INPUTS, Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import Card

ZERO = Decimal(0)
HALVINGS = 60
"""Enough to place a crossing to the last digit of a double."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The cheapest product at each pair of values."""

    x: str
    y: str
    x_values: tuple[Decimal, ...]
    y_values: tuple[Decimal, ...]
    products: tuple[str, ...]
    cheapest: Ints
    """Shape (len(y_values), len(x_values)): index into ``products``, -1 where none prices the pair."""

    total: Floats
    """Its total; NaN where none."""


def heat_map(
    cards: Iterable[Card],
    base: Workload,
    x: tuple[str, Sequence[Decimal]],
    y: tuple[str, Sequence[Decimal]],
    *,
    mode: Mode = "gross",
    on: date | None = None,
) -> HeatMap:
    """Price every pair of values on every card and keep the cheapest; equal totals keep the earlier card.

    Raises:
        InvalidWorkloadError: an unknown input, or a pair that is no workload.
    """
    cards = list(cards)
    for x_value in (min(x[1]), max(x[1])):
        for y_value in (min(y[1]), max(y[1])):
            varied(base, {x[0]: x_value, y[0]: y_value})
    grid = Columns.grid(base, {y[0]: _floats(y[1]), x[0]: _floats(x[1])})
    best = np.full(len(grid), np.nan)
    who = np.full(len(grid), -1)
    for index, card in enumerate(cards):
        total = vector_quote(card, grid, mode=mode, on=on).total
        better = ~np.isnan(total) & (np.isnan(best) | (total < best))
        best, who = np.where(better, total, best), np.where(better, index, who)
    shape = (len(y[1]), len(x[1]))
    return HeatMap(
        x[0], y[0], tuple(x[1]), tuple(y[1]), tuple(card.id for card in cards), who.reshape(shape), best.reshape(shape)
    )


def _floats(values: Sequence[Decimal]) -> Floats:
    return np.array([float(value) for value in values])


def varied(base: Workload, values: Mapping[str, Decimal]) -> Workload:
    """``base`` with other values.

    Raises:
        InvalidWorkloadError: an unknown input, or no workload.
    """
    unknown = [name for name in values if name not in INPUTS]
    if unknown:
        raise InvalidWorkloadError(
            "The sweep cannot be computed", (f"there is no input '{unknown[0]}'",), hint=f"Inputs: {', '.join(INPUTS)}."
        )
    return replace(base, **values)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where two totals are equal: below ``value`` the one is cheaper, above it the other."""

    value: Decimal
    below: str
    above: str
    total: Decimal


@dataclass(frozen=True, slots=True)
class _Duel:
    """Two products over one input."""

    one: Card
    other: Card
    base: Workload
    name: str
    mode: Mode
    on: date | None

    def lead(self, value: Decimal) -> Decimal | None:
        """How much dearer the one is; None where either has no total."""
        left, right = self.total(self.one, value), self.total(self.other, value)
        return None if left is None or right is None else left - right

    def total(self, card: Card, value: Decimal) -> Decimal | None:
        return quote(card, varied(self.base, {self.name: value}), mode=self.mode, on=self.on).total

    def narrow(self, low: Decimal, middle: Decimal, high: Decimal, left: Decimal) -> tuple[Decimal, Decimal]:
        """The half in which the lead changes its sign from that of ``left``."""
        there = self.lead(middle)
        is_like_left = bool(there) and ((there or ZERO) > 0) == (left > 0)
        return (middle, high) if is_like_left else (low, middle)

    def crossing(self, low: Decimal, high: Decimal, left: Decimal) -> Decimal:
        """Where the lead changes, by halving."""
        if INPUTS[self.name].whole:
            while high - low > 1:
                low, high = self.narrow(low, (low + high) // 2, high, left)
            return high
        for _ in range(HALVINGS):
            low, high = self.narrow(low, (low + high) / 2, high, left)
        return (low + high) / 2


def break_even(
    one: Card,
    other: Card,
    base: Workload,
    swept: tuple[str, Sequence[Decimal]],
    *,
    mode: Mode = "gross",
    on: date | None = None,
) -> list[Crossing]:
    """Every crossing of two products between neighbouring values of one input, placed by the exact engine.

    A step of a price can jump over equality; the value is then that of the step.

    Raises:
        InvalidWorkloadError: an unknown input, or a value that is no workload.
    """
    duel = _Duel(one, other, base, swept[0], mode, on)
    crossings = []
    with localcontext(prec=PRECISION):
        points = [(value, duel.lead(value)) for value in sorted(swept[1])]
        for (low, left), (high, right) in pairwise(points):
            if left is None or right is None or not left or (left > 0) == (right > 0):
                continue
            value = duel.crossing(low, high, left)
            cheaper, dearer = (one, other) if left < 0 else (other, one)
            crossings.append(Crossing(value, cheaper.id, dearer.id, duel.total(cheaper, value) or ZERO))
    return crossings


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What a tenth more or less of one input does to a total."""

    name: str
    less: Decimal | None
    """Change of the total at nine tenths; None where that has no total."""

    more: Decimal | None
    """At eleven tenths."""

    @property
    def moves(self) -> Decimal:
        """The larger change, without its sign."""
        return max(abs(self.less or ZERO), abs(self.more or ZERO))


def sensitivity(card: Card, base: Workload, *, mode: Mode = "gross", on: date | None = None) -> list[Sensitivity]:
    """Each input by how much the total moves with a tenth of it, the largest first; counts move to whole numbers."""
    total = quote(card, base, mode=mode, on=on).total
    if total is None:
        return []

    def change(name: str, by: Decimal) -> Decimal | None:
        value = getattr(base, name) * by
        try:
            changed = replace(base, **{name: value.to_integral_value() if INPUTS[name].whole else value})
        except InvalidWorkloadError:
            return None
        there = quote(card, changed, mode=mode, on=on).total
        return None if there is None else there - total

    with localcontext(prec=PRECISION):
        found = [Sensitivity(name, change(name, Decimal("0.9")), change(name, Decimal("1.1"))) for name in INPUTS]
    return sorted((item for item in found if item.moves), key=lambda item: (-item.moves, item.name))


def span(low: Decimal, high: Decimal, number: int) -> tuple[Decimal, ...]:
    """``number`` values from ``low`` to ``high``, both included, evenly."""
    if number == 1:
        return (low,)
    return tuple(_span(low, high, number))


def _span(low: Decimal, high: Decimal, number: int) -> Iterator[Decimal]:
    step = (high - low) / (number - 1)
    for index in range(number - 1):
        yield low + step * index
    yield high
