"""What the schema cannot say about one card: names point at something, units fit, figures have their source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from sandyard.catalog.findings import Finding
from sandyard.catalog.measures import PricingUnit
from sandyard.catalog.models import AnyAllocation, Card, Meter, Shape, ShapesAllocation
from sandyard.catalog.vocabulary import EvidenceState, Quantity, Reading, dimension_of
from sandyard.catalog.yaml_text import Document, Path


def check_references(card: Card, document: Document, file: str) -> list[Finding]:
    """Every fault of ``card`` that can be seen without a price being computed."""
    faults: list[Finding] = []

    def fault(path: Path, code: str, message: str) -> None:
        faults.append(Finding(file, document.line(path), code, message))

    for check in (_identifiers, _sources, _meters, _plans, _variants, _shapes, _evidence):
        for path, code, message in check(card):
            fault(path, code, message)
    return faults


Fault = tuple[Path, str, str]


def shapes_of(card: Card) -> tuple[Shape, ...]:
    """The listed shapes of a card, of every way it gives sizes."""
    ways = card.allocation.of if isinstance(card.allocation, AnyAllocation) else (card.allocation,)
    return tuple(shape for way in ways if isinstance(way, ShapesAllocation) for shape in way.shapes)


def shape_ids(card: Card) -> set[str]:
    """Every name that an allocation of this card can have."""
    ways: Sequence[Any] = card.allocation.of if isinstance(card.allocation, AnyAllocation) else (card.allocation,)
    return {shape.id for shape in shapes_of(card)} | {way.id for way in ways if hasattr(way, "id")}


def _identifiers(card: Card) -> Iterator[Fault]:
    lists: dict[str, Sequence[Any]] = {
        "sources": card.sources,
        "meters": card.meters,
        "plans": card.plans,
        "variants": card.variants,
        "regimes": card.regimes,
        "examples": card.examples,
    }
    for name, parts in lists.items():
        seen: set[str] = set()
        for index, part in enumerate(parts):
            if part.id in seen:
                yield (name, index, "id"), "duplicate-id", f"'{part.id}' is used twice in {name}; name them apart"
            seen.add(part.id)
    for index, source in enumerate(card.sources):
        if source.url is None and source.title is None:
            yield ("sources", index), "source", "a source has an address, or a title where its text carries none"
        if source.read is Reading.TRANSCRIPT and (source.by is None or source.read_on is None):
            yield ("sources", index), "source", "a transcript names who read the page (by) and on which day (read_on)"


def _cited(card: Card) -> Iterator[tuple[Path, str | None]]:
    for index, meter in enumerate(card.meters):
        for number, price in enumerate(meter.prices):
            yield ("meters", index, "prices", number, "source"), price.source
    for index, plan in enumerate(card.plans):
        for number, allowance in enumerate(plan.allowances):
            yield ("plans", index, "allowances", number, "source"), allowance.source
    for index, variant in enumerate(card.variants):
        for name, price in variant.prices.items():
            yield ("variants", index, "prices", name, "source"), price.source
    yield from _cited_once(card)


def _cited_once(card: Card) -> Iterator[tuple[Path, str | None]]:
    lists: dict[str, Sequence[Any]] = {
        "plans": card.plans,
        "variants": card.variants,
        "regimes": card.regimes,
        "examples": card.examples,
    }
    for list_name, parts in lists.items():
        for index, part in enumerate(parts):
            yield (list_name, index, "source"), part.source
    for feature, claim in card.features.items():
        yield ("features", feature, "source"), claim.source
    yield ("lifecycle", "source"), card.lifecycle.source
    for index, shape in enumerate(shapes_of(card)):
        yield ("allocation", "shapes", index, "source"), shape.source


def _sources(card: Card) -> Iterator[Fault]:
    known = {source.id for source in card.sources}
    for path, name in _cited(card):
        if name is not None and name not in known:
            yield path, "unknown-source", f"no source of this card is called '{name}'; add it under sources"


def _meters(card: Card) -> Iterator[Fault]:
    shapes = shape_ids(card)
    plans = {plan.id for plan in card.plans}
    for index, meter in enumerate(card.meters):
        yield from _meter(index, meter)
        for number, price in enumerate(meter.prices):
            here: Path = ("meters", index, "prices", number)
            if price.shape is not None and price.shape not in shapes:
                yield (*here, "shape"), "unknown-shape", f"this card has no shape '{price.shape}'"
            if price.plan is not None and price.plan not in plans:
                yield (*here, "plan"), "unknown-plan", f"this card has no plan '{price.plan}'"
            if price.valid_to is not None and price.valid_to <= price.valid_from:
                yield (
                    (*here, "valid_to"),
                    "dates",
                    "valid_to is the first day after the price; it lies before its start",
                )
        starts = [(price.shape, price.plan, price.valid_from) for price in meter.prices]
        if len(set(starts)) != len(starts):
            yield ("meters", index, "prices"), "ambiguous-price", "two prices hold from the same day for the same thing"


def _meter(index: int, meter: Meter) -> Iterator[Fault]:
    expected = dimension_of(meter.quantity)
    unit = PricingUnit.parse(meter.unit)
    if expected is not None and unit.dimension is not expected:
        yield (
            ("meters", index, "unit"),
            "unit-mismatch",
            f"{meter.quantity} is counted as {expected}, which '{meter.unit}' does not price",
        )
    if not meter.prices and meter.missing is None:
        yield (
            ("meters", index),
            "missing-price",
            f"the meter '{meter.id}' has no price; give one with its source, or say in 'missing' what is not published",
        )
    if (meter.quantity is Quantity.RULE) != (meter.rule is not None):
        yield ("meters", index, "quantity"), "rule", "a meter names a rule exactly when its quantity is 'rule'"


def _plans(card: Card) -> Iterator[Fault]:
    units = {meter.id: PricingUnit.parse(meter.unit) for meter in card.meters}
    for index, plan in enumerate(card.plans):
        here: Path = ("plans", index)
        if plan.fee is None and plan.missing is None:
            yield (
                here,
                "missing-fee",
                f"the plan '{plan.id}' has no fee; give it, or say in 'missing' that none is published",
            )
        if not plan.selectable and plan.why_not is None:
            yield here, "why-not", f"the plan '{plan.id}' cannot be selected; say in 'why_not' why"
        for number, allowance in enumerate(plan.allowances):
            place: Path = (*here, "allowances", number)
            if (allowance.credit is None) == (allowance.amount is None) or (allowance.amount is None) != (
                allowance.unit is None
            ):
                yield place, "allowance", "an allowance is either an amount with its unit, or a credit"
                continue
            for name in allowance.meters:
                if name not in units:
                    yield (*place, "meters"), "unknown-meter", f"this card has no meter '{name}'"
                elif (
                    allowance.unit is not None
                    and units[name].dimension is not PricingUnit.parse(allowance.unit).dimension
                ):
                    yield (
                        (*place, "unit"),
                        "unit-mismatch",
                        f"'{allowance.unit}' cannot be taken from the meter '{name}', which counts {units[name]}",
                    )


def _variants(card: Card) -> Iterator[Fault]:
    meters = {meter.id for meter in card.meters}
    plans = {plan.id for plan in card.plans}
    for index, variant in enumerate(card.variants):
        for name in (*variant.prices, *variant.multiplied):
            if name not in meters:
                yield ("variants", index), "unknown-meter", f"this card has no meter '{name}'"
        for name in (*variant.allowances, *([variant.plan] if variant.plan else [])):
            if name not in plans:
                yield ("variants", index), "unknown-plan", f"this card has no plan '{name}'"


def _shapes(card: Card) -> Iterator[Fault]:
    gb = card.conventions.gb
    for number, (small, large) in enumerate(pairwise(shapes_of(card))):
        if large.vcpu <= small.vcpu and large.memory.gib(gb) <= small.memory.gib(gb) and not small.memory_max:
            yield (
                ("allocation", "shapes", number + 1),
                "shape-order",
                f"'{large.id}' is no larger than '{small.id}' before it, so never chosen; list the smallest first",
            )
    needs_units = any(meter.quantity is Quantity.SHAPE_UNITS for meter in card.meters)
    for number, shape in enumerate(shapes_of(card)):
        if needs_units and shape.units is None:
            yield ("allocation", "shapes", number), "missing-units", f"the shape '{shape.id}' has no billing units"


def _evidence(card: Card) -> Iterator[Fault]:
    state, here = card.evidence.state, ("evidence",)
    if state is EvidenceState.MODELED and not card.evidence.assumptions:
        yield here, "no-assumption", "a modeled card says what it assumes; without an assumption it would be verified"
    if state is EvidenceState.UNVERIFIED and not card.evidence.missing:
        yield here, "no-gap", "an unverified card says which figure a total still needs, in evidence.missing"
    if state in {EvidenceState.VERIFIED, EvidenceState.MODELED} and not any(meter.prices for meter in card.meters):
        yield here, "no-price", f"a {state} card has meters with prices; without one it is unverified"
    if state is EvidenceState.SELF_HOSTED and any(meter.prices for meter in card.meters):
        yield ("meters",), "price-without-vendor", "a self-hosted row has no vendor price"
    if state is EvidenceState.VERIFIED:
        yield from _verified(card)


def _verified(card: Card) -> Iterator[Fault]:
    if card.conflicts:
        yield ("conflicts",), "open-conflict", "a verified card has no open conflict between first-party pages"
    transcripts = {source.id for source in card.sources if source.read is Reading.TRANSCRIPT}
    for index, meter in enumerate(card.meters):
        if any(price.source in transcripts for price in meter.prices):
            yield ("meters", index), "weak-source", "a verified price is read first-party, not from a transcript"
