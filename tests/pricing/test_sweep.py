from __future__ import annotations

from decimal import Decimal

import pytest

from sandyard.catalog import Catalog
from sandyard.pricing import CANONICAL, Workload, quote
from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.sweep import break_even, heat_map, sensitivity, span
from tests.pricing.near import is_near

D = Decimal


def test_lambda_overtakes_e2b_where_two_lines_cross(catalog: Catalog) -> None:
    """E2B: 0.0585 an hour. Lambda: 0.03152502 an hour and 0.8921111 fixed. They meet at 0.8921111 / 0.02697498 h."""
    crossings = break_even(
        catalog["aws-lambda-microvm"], catalog["e2b"], CANONICAL, ("running_hours", span(D(1), D(400), 5))
    )
    assert len(crossings) == 1
    fixed = D("0.16") + D("0.16") * 50 / 720 + D("0.535") + D("0.186")
    slope = D("0.0585") - (D("0.09969984") / 4 + D("0.01320012") / 2)
    assert abs(crossings[0].value - fixed / slope) < D("1e-12")
    assert (crossings[0].below, crossings[0].above) == ("e2b", "aws-lambda-microvm")


def test_a_crossing_over_counts_is_a_whole_number(catalog: Catalog) -> None:
    crossings = break_even(
        catalog["aws-lambda-microvm"], catalog["isorun"], CANONICAL, ("resumes", (D(50), D(10), D(3000)))
    )
    assert len(crossings) == 1
    at = crossings[0].value
    assert at == at.to_integral_value()
    before = Workload.of(resumes=int(at) - 1)
    totals = [quote(catalog[name], before).total for name in ("aws-lambda-microvm", "isorun")]
    assert totals[0] is not None
    assert totals[1] is not None
    assert totals[0] < totals[1]


def test_products_that_never_cross_have_no_crossing(catalog: Catalog) -> None:
    assert break_even(catalog["e2b"], catalog["superserve"], CANONICAL, ("running_hours", span(D(1), D(99), 9))) == []


def test_a_heat_map_names_the_cheapest_of_the_exact_engine(catalog: Catalog) -> None:
    cards = [card for card in catalog if card.evidence.state == "modeled"]
    hours, busy = span(D(1), D(700), 4), span(D(0), D(1), 3)
    cells = heat_map(cards, CANONICAL, ("running_hours", hours), ("cpu_utilization", busy))
    for row, utilization in enumerate(busy):
        for column, running in enumerate(hours):
            work = Workload.of(running_hours=running, cpu_utilization=utilization)
            totals = {card.id: total for card in cards if (total := quote(card, work).total) is not None}
            cheapest = min(totals, key=lambda product: totals[product])
            assert cells.products[cells.cheapest[row, column]] == cheapest
            assert cells.total[row, column] == pytest.approx(float(totals[cheapest]), rel=1e-9)


def test_a_heat_map_has_a_hole_where_nobody_prices(catalog: Catalog) -> None:
    cells = heat_map(
        [catalog["e2b"], catalog["daytona"]], CANONICAL, ("vcpu", (D(1), D(9))), ("memory_gib", (D(1), D(2)))
    )
    assert cells.cheapest.tolist() == [[0, -1], [0, -1]]


def test_running_hours_move_a_wall_clock_bill_most(catalog: Catalog) -> None:
    found = sensitivity(catalog["e2b"], CANONICAL)
    assert found[0].name == "running_hours"
    assert found[0].more == D("1.17")  # a tenth of 11.70
    assert found[0].less == D("-1.17")
    assert sensitivity(catalog["daytona"], CANONICAL) == []


def test_an_unknown_input_is_named(catalog: Catalog) -> None:
    with pytest.raises(InvalidWorkloadError, match="no input 'moons'"):
        break_even(catalog["e2b"], catalog["boat"], CANONICAL, ("moons", (D(1), D(2))))
    with pytest.raises(InvalidWorkloadError, match="less than"):
        heat_map([catalog["e2b"]], CANONICAL, ("vcpu", (D(-1), D(2))), ("memory_gib", (D(1), D(2))))


def test_a_span_holds_both_ends() -> None:
    assert span(D(1), D(2), 5) == (D(1), D("1.25"), D("1.5"), D("1.75"), D(2))
    assert span(D(1), D(2), 1) == (D(1),)
    assert is_near(span(D(0), D(1), 4)[1], D(1) / 3)
