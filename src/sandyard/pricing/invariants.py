"""What must hold of every card together with the engine; ``sandyard catalog check`` runs all of it.

Each check takes a card and yields findings; none repairs. ``check_catalog`` adds what concerns the catalog as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from sandyard.catalog.findings import Finding
from sandyard.catalog.vocabulary import EvidenceState, Quantity
from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.quote import REFERENCE, Quote, Status, quote
from sandyard.pricing.rules import RULES
from sandyard.pricing.workload import CANONICAL, Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import Card, Example

ZERO = Decimal(0)
ALWAYS_ON = "aws-ec2-t4g-nano"
"""The raw machine that every comparison keeps."""

_BASE = Workload.of(running_hours=300, suspended_hours=100, creations=1200, resumes=100, egress_gib=1, requests=1000)
BOUNDARY: tuple[Workload, ...] = (
    CANONICAL,
    _BASE,
    Workload.of(vcpu=1, memory_gib=2, disk_gib=10, observed_memory_gib=1),
    Workload.of(vcpu=2, memory_gib=4, disk_gib=5, running_hours=20, creations=4000, resumes=0, suspended_hours=0),
    Workload.of(vcpu=4, memory_gib=8, disk_gib=20, running_hours=700, creations=200, resumes=900, suspended_hours=20),
    Workload.of(vcpu=8, memory_gib=16, disk_gib=50, cpu_utilization=1, egress_gib=500),
    Workload.of(vcpu=64, memory_gib=128, disk_gib=1000),
    Workload.of(running_hours=0, suspended_hours=0, creations=0, resumes=0, executions=0),
)
"""Workloads at the edges of what cards offer, for checks that need more than one."""

_RAISED: dict[str, Decimal] = {
    "running_hours": Decimal("0.25"),
    "suspended_hours": Decimal(1),
    "snapshot_gib": Decimal(1),
    "kept_snapshots_gib": Decimal(10),
    "image_gib": Decimal(1),
    "hot_disk_gib": Decimal(1),
    "cold_disk_gib": Decimal(1),
    "observed_memory_gib": Decimal("0.25"),
    "cpu_utilization": Decimal("0.1"),
    "cpu_burst": Decimal(1),
    "memory_burst": Decimal(1),
    "egress_gib": Decimal(10),
    "requests": Decimal(1_000_000),
    "disk_gib": Decimal(2),
    "memory_gib": Decimal("0.5"),
}
"""Inputs that a bill may only rise with, and by how much the check raises each. Counts of runs are not among them: more
runs in the same hours make shorter ones, whose average can round to less."""


def check_card(card: Card) -> list[Finding]:
    """Every invariant that ``card`` breaks."""
    file = f"products/{card.id}.yaml"
    unknown = [meter.rule for meter in card.meters if meter.rule is not None and meter.rule not in RULES]
    if unknown:
        return [
            Finding(file, 0, "unknown-rule", f"no rule is called '{name}'; write it, or correct the name")
            for name in unknown
        ]
    return [Finding(file, 0, code, message) for check in _CHECKS for code, message in check(card)]


def check_catalog(cards: Iterable[Card]) -> list[Finding]:
    """Every invariant that a card or the catalog breaks, sorted."""
    by_id = {card.id: card for card in cards}
    findings = [finding for card in by_id.values() for finding in check_card(card)]
    for product, code in ((REFERENCE, "no-reference"), (ALWAYS_ON, "no-baseline")):
        card = by_id.get(product)
        if card is None or quote(card, CANONICAL).total is None:
            findings.append(
                Finding(
                    f"products/{product}.yaml", 0, code, f"'{product}' must be present and price the canonical workload"
                )
            )
        elif product == ALWAYS_ON and card.reference != "always-on":
            findings.append(Finding(f"products/{product}.yaml", 0, code, f"'{product}' is the always-on reference"))
    return sorted(findings)


def _evidence(card: Card) -> Iterator[tuple[str, str]]:
    """Only evidence makes a total: unverified never, modeled and verified with every material meter."""
    answer = quote(card, CANONICAL)
    numeric = card.evidence.state in {EvidenceState.VERIFIED, EvidenceState.MODELED}
    if answer.total is not None and not numeric:
        yield "numeric-without-evidence", f"a card that is {card.evidence.state} has a total"
    if numeric and answer.missing:
        yield "material-meter", f"the canonical workload needs a figure that is missing: {'; '.join(answer.missing)}"


def _finite(card: Card) -> Iterator[tuple[str, str]]:
    for workload in BOUNDARY:
        for mode in ("gross", "invoice"):
            answer = quote(card, workload, mode="gross" if mode == "gross" else "invoice")
            if answer.total is not None and (not answer.total.is_finite() or answer.total < 0):
                yield "total", f"a total of {answer.total} in {mode} mode; a bill is finite and not negative"
            if any(line.quantity < line.included for line in answer.components):
                yield "allowance", f"more than everything is included in {mode} mode"


def _allocation(card: Card) -> Iterator[tuple[str, str]]:
    for workload in BOUNDARY:
        for given in quote(card, workload).allocated:
            asked = (workload.vcpu, workload.memory_gib, workload.disk_gib)
            if any(
                have < want for have, want in zip((given.vcpu, given.memory_gib, given.disk_gib), asked, strict=True)
            ):
                yield "allocation", f"'{given.id}' is smaller than the {asked} that was asked for"


def _monotone(card: Card) -> Iterator[tuple[str, str]]:
    for workload in BOUNDARY[:6]:
        base = quote(card, workload).total
        if base is None:
            continue
        for name, step in _RAISED.items():
            try:
                more = replace(workload, **{name: getattr(workload, name) + step})
            except InvalidWorkloadError:
                continue
            raised = quote(card, more).total
            if raised is not None and raised < base:
                yield "monotone", f"raising {name} by {step} lowers the total from {base} to {raised}"


def _no_default(card: Card) -> Iterator[tuple[str, str]]:
    """Without its price a line makes no total: nothing stands in for it."""
    for line in quote(card, CANONICAL).components:
        meters = tuple(
            meter.model_copy(update={"prices": (), "missing": "taken away by the check"})
            if meter.id == line.meter
            else meter
            for meter in card.meters
        )
        if quote(card.model_copy(update={"meters": meters}), CANONICAL).total is not None:
            yield "default-price", f"without the price of '{line.meter}' there still is a total"


def _material(card: Card) -> Iterator[tuple[str, str]]:
    """A priced card has a meter for computing: CPU, memory or a whole size, so that none is forgotten."""
    if card.evidence.state not in {EvidenceState.VERIFIED, EvidenceState.MODELED}:
        return
    computing = {
        Quantity.VCPU_ALLOCATED,
        Quantity.VCPU_ACTIVE,
        Quantity.MEMORY_ALLOCATED,
        Quantity.MEMORY_OBSERVED,
        Quantity.SHAPE_TIME,
        Quantity.SHAPE_UNITS,
        Quantity.RULE,
        Quantity.EXECUTIONS,
    }
    if not any(meter.quantity in computing and meter.prices for meter in card.meters):
        yield "material-meter", "no meter bills for computing"


def _examples(card: Card) -> Iterator[tuple[str, str]]:
    for example in card.examples:
        answer = _work(card, example)
        if answer is None or answer.total is None:
            yield "example", f"'{example.id}' has no total: {answer.reasons if answer else 'its workload is not valid'}"
            continue
        places = Decimal(1).scaleb(-len(example.total.partition(".")[2]))
        printed = answer.total.quantize(places, rounding=ROUND_HALF_UP)
        if printed != Decimal(example.total):
            yield "example", f"'{example.id}' comes to {printed}, the vendor prints {example.total}"


def _work(card: Card, example: Example) -> Quote | None:
    nothing = dict.fromkeys(CANONICAL.as_dict(), ZERO)
    nothing |= {"cpu_burst": Decimal(1), "memory_burst": Decimal(1), "concurrency": Decimal(1)}
    try:
        workload = Workload.from_mapping(nothing | example.workload)
    except InvalidWorkloadError:
        return None
    if example.plan is None:
        return quote(card, workload, variant=example.variant)
    return quote(card, workload, mode="invoice", plan=example.plan, variant=example.variant)


def _status(card: Card) -> Iterator[tuple[str, str]]:
    for workload in BOUNDARY:
        answer = quote(card, workload)
        if (answer.status is Status.PRICED) != (answer.total is not None):
            yield "status", f"{answer.status} with a total of {answer.total}"


_CHECKS: tuple[Callable[[Card], Iterator[tuple[str, str]]], ...] = (
    _evidence,
    _finite,
    _allocation,
    _monotone,
    _no_default,
    _material,
    _examples,
    _status,
)
