"""What ``sandyard price sweep`` answers: a line, a heat map or a ranking of inputs, as text and as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np

from sandyard.catalog import Card
from sandyard.pricing import Workload, quote
from sandyard.pricing.meters import plain
from sandyard.pricing.present import money, table
from sandyard.pricing.quote import Mode
from sandyard.pricing.sweep import break_even, heat_map, sensitivity, varied

Swept = tuple[str, tuple[Decimal, ...]]
MOST_CURVES = 6
"""Crossings are looked for among so many products at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is swept over."""

    cards: Sequence[Card]
    workload: Workload
    mode: Mode
    on: date


@dataclass(frozen=True, slots=True)
class Result:
    """For a person, and for a program."""

    text: str
    values: dict[str, Any]


def line(question: Question, swept: Swept) -> Result:
    """Totals at each value, exact, and where the products cross."""
    name, points = swept
    totals = {
        card.id: [
            quote(card, varied(question.workload, {name: x}), mode=question.mode, on=question.on).total for x in points
        ]
        for card in question.cards
    }
    totals = {product: row for product, row in totals.items() if any(total is not None for total in row)}
    shown = [card for card in question.cards if card.id in totals]
    pairs = combinations(shown, 2) if len(shown) <= MOST_CURVES else ()
    crossings = [
        crossing
        for one, other in pairs
        for crossing in break_even(one, other, question.workload, swept, mode=question.mode, on=question.on)
    ]
    rows = [(product, *(money(total) for total in row)) for product, row in totals.items()]
    text = [table((name, *(_short(x) for x in points)), rows, frozenset(range(1, len(points) + 1)))]
    text += [f"{name} {_short(item.value)}: below {item.below}, above {item.above}" for item in crossings]
    values = {
        "input": name,
        "at": [plain(x) for x in points],
        "totals": {product: [None if x is None else plain(x) for x in row] for product, row in totals.items()},
        "crossings": [
            {"at": plain(item.value), "below": item.below, "above": item.above, "total": plain(item.total)}
            for item in crossings
        ],
    }
    return Result("\n".join(text), values)


def heat(question: Question, x: Swept, y: Swept) -> Result:
    """Who is cheapest at each pair."""
    cells = heat_map(question.cards, question.workload, x, y, mode=question.mode, on=question.on)
    names = (*cells.products, "-")
    who = [[names[index] for index in row] for row in cells.cheapest.tolist()]
    rows = [(_short(value), *row) for value, row in zip(cells.y_values, who, strict=True)]
    text = table((f"{y[0]} \\ {x[0]}", *(_short(value) for value in cells.x_values)), rows)
    values = {
        "x": {"input": x[0], "at": [plain(value) for value in cells.x_values]},
        "y": {"input": y[0], "at": [plain(value) for value in cells.y_values]},
        "cheapest": who,
        "totals": [[None if np.isnan(total) else repr(total) for total in row] for row in cells.total.tolist()],
    }
    return Result(text, values)


def sensitive(question: Question) -> Result:
    """Which input moves each total most."""
    found = {
        card.id: sensitivity(card, question.workload, mode=question.mode, on=question.on) for card in question.cards
    }
    found = {product: items for product, items in found.items() if items}
    rows = [
        (product, item.name, money(item.less), money(item.more))
        for product, items in found.items()
        for item in items[:5]
    ]
    values = {
        product: [
            {
                "input": item.name,
                "less": None if item.less is None else plain(item.less),
                "more": None if item.more is None else plain(item.more),
            }
            for item in items
        ]
        for product, items in found.items()
    }
    return Result(table(("PRODUCT", "INPUT", "-10 %", "+10 %"), rows, frozenset({2, 3})), values)


def _short(value: Decimal) -> str:
    return plain(value.quantize(Decimal("0.001")))
