"""What must hold of any bill: cost is conserved, rises with use, and does not depend on order."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandyard.catalog import Card, Catalog, load_catalog
from sandyard.pricing import Run, Trace, Workload, quote, quote_trace
from sandyard.pricing.workload import INPUTS

US = 1_000_000
NEAR = Fraction(1, 10**35)
CATALOG = load_catalog()
PRICED = [card for card in CATALOG if card.evidence.state == "modeled"]
SMOOTH = [
    card
    for card in PRICED
    if all(meter.rounding is None and meter.rule is None and meter.when != "always-on" for meter in card.meters)
]
"""Without rounding per run, and without a rule that compares sums: splitting a period cannot change them."""


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    made = []
    for number in range(draw(st.integers(1, 4))):
        clock = draw(st.integers(0, 10**9))
        for _ in range(draw(st.integers(1, 3))):
            start = clock + draw(st.integers(0, 10**9))
            clock = start + draw(st.integers(1, 10**9))
            made.append(
                Run(
                    sandbox=f"s{number}",
                    start_us=start,
                    end_us=clock,
                    vcpu=Decimal("0.25"),
                    memory_gib=Decimal("0.5"),
                    disk_gib=Decimal(1),
                    cpu_us=draw(st.integers(0, clock - start)),
                    observed_memory=draw(st.integers(0, 2**30)),
                    cold_disk=draw(st.integers(0, 2**33)),
                    saved_state=draw(st.integers(0, 2**31)),
                    executions=draw(st.integers(0, 5)),
                    egress=draw(st.integers(0, 2**33)),
                )
            )
    return made


def _halves(own: list[Run], share: int) -> tuple[list[Run], list[Run]]:
    """Every run cut in two: both halves together are the whole, and the second starts nothing."""
    before, after = [], []
    for run in own:
        name = f"{run.sandbox}-{run.start_us}"
        at = run.start_us + (run.end_us - run.start_us) * share // 100
        busy = run.cpu_us * share // 100
        whole = replace(run, sandbox=name, suspended_us=_gap(own, run), created=_is_first(own, run))
        before.append(replace(whole, end_us=at, cpu_us=busy, saved_state=0, suspended_us=0, executions=0, egress=0))
        after.append(replace(whole, start_us=at, cpu_us=run.cpu_us - busy, created=False))
    return before, after


def _gap(own: list[Run], run: Run) -> int:
    later = [other.start_us for other in own if other.sandbox == run.sandbox and other.start_us > run.start_us]
    return min(later) - run.end_us if later else 0


def _is_first(own: list[Run], run: Run) -> bool:
    return all(other.start_us >= run.start_us for other in own if other.sandbox == run.sandbox)


@settings(max_examples=25, deadline=None)
@given(own=runs(), share=st.integers(1, 99))
def test_cost_is_conserved_when_a_period_is_split(own: list[Run], share: int) -> None:
    checked = 0
    for card in SMOOTH:
        whole = quote_trace(card, Trace(own, period_s=Decimal(7200)))
        parts = [quote_trace(card, Trace(half, period_s=Decimal(3600))) for half in _halves(own, share)]
        if whole.total is None:
            continue
        checked += 1
        sums = sum((Fraction(part.total) for part in parts if part.total is not None), Fraction(0))
        assert abs(sums - Fraction(whole.total)) < NEAR, card.id
    assert checked >= 10


@settings(max_examples=25, deadline=None)
@given(own=runs(), data=st.data())
def test_the_order_of_records_does_not_matter(own: list[Run], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(own))
    for card in PRICED:
        assert quote_trace(card, Trace(own)).total == quote_trace(card, Trace(shuffled)).total, card.id


RISING = sorted(set(INPUTS) - {"vcpu", "memory_gib", "disk_gib", "creations", "resumes", "executions", "concurrency"})


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(RISING), low=st.integers(0, 400), more=st.integers(0, 300))
def test_a_total_never_falls_with_more_use(name: str, low: int, more: int) -> None:
    finer = {"cpu_utilization": 1000, "cpu_burst": 100, "memory_burst": 100}
    scale = Decimal(finer.get(name, 1))
    floor = INPUTS[name].least
    less = Workload.of(**{name: floor + low / scale})
    greater = Workload.of(**{name: floor + (low + more) / scale})
    for card in PRICED:
        before, after = quote(card, less).total, quote(card, greater).total
        if before is not None and after is not None:
            assert before <= after, (card.id, name)


@pytest.mark.parametrize("card", PRICED, ids=lambda card: card.id)
def test_an_unused_input_moves_nothing(catalog: Catalog, card: Card) -> None:
    """A slider only moves the products that publish its meter."""
    uses = {meter.quantity for meter in card.meters}
    rules = {meter.rule for meter in card.meters}
    for name, quantities in {
        "hot_disk_gib": {"disk-hot"},
        "cold_disk_gib": {"disk-cold"},
        "image_gib": {"image-stored", "image-read"},
        "snapshot_gib": {"saved-state", "state-written", "state-read"},
        "requests": {"requests"},
    }.items():
        if not uses & quantities:
            more = Workload.of(**{name: 9})
            assert quote(catalog[card.id], more).total == quote(catalog[card.id], Workload()).total, name
    if "vcpu-active" not in uses and not rules & {"surplus-credits", "larger-of-request-and-use"}:
        busy = Workload.of(cpu_utilization=1)
        assert quote(catalog[card.id], busy).total == quote(catalog[card.id], Workload()).total
