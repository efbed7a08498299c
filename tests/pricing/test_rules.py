"""Each named rule against sums worked by hand."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from sandyard.catalog.measures import Dimension
from sandyard.catalog.models import Meter
from sandyard.catalog.vocabulary import Quantity
from sandyard.pricing import Workload
from sandyard.pricing.allocation import Allocated
from sandyard.pricing.errors import UnknownRuleError
from sandyard.pricing.rules import RULES, Situation, find_rule
from sandyard.pricing.usage import MonthlyUsage

HOUR = Decimal(3600)


def _amount(
    rule: str, unit: str, parameters: dict[str, str], given: tuple[str, str, str], workload: Workload
) -> Decimal:
    meter = Meter(id="m", name="M", quantity=Quantity.RULE, unit=unit, rule=rule, parameters=parameters, missing="none")  # type: ignore[arg-type]
    vcpu, memory, disk = (Decimal(text) for text in given)
    dimension = Dimension.GIB_TIME if unit.startswith("G") else Dimension.VCPU_TIME
    situation = Situation(
        meter,
        Allocated("x", vcpu, memory, disk, None, ""),
        MonthlyUsage(workload),
        workload.running_hours * HOUR,
        Decimal(730),
        dimension,
    )
    return find_rule(rule)(situation).amount / HOUR


@pytest.mark.parametrize(
    ("given", "units"),
    [
        (("1", "0.5", "5"), 1),
        (("4", "8", "64"), 4),  # max(4, 2, 4)
        (("1", "9", "16"), 3),  # max(1, ceil(9/4), 1)
        (("1", "4", "17"), 2),  # max(1, 1, ceil(17/16))
        (("2.5", "1", "1"), 3),
    ],
)
def test_largest_dimension(given: tuple[str, str, str], units: int) -> None:
    parameters = {"vcpu": "1", "memory_gib": "4", "disk_gib": "16"}
    workload = Workload.of(running_hours=10)
    assert _amount("largest-dimension", "Unit-Hours", parameters, given, workload) == units * 10


@pytest.mark.parametrize(("burst", "above"), [("1", "0"), ("2.5", "1.5"), ("4", "3"), ("9", "3")])
def test_above_baseline_is_capped_at_the_peak(burst: str, above: str) -> None:
    workload = Workload.of(running_hours=10, cpu_burst=burst, memory_burst="3")
    cpu = _amount("above-baseline", "vCPU-Hours", {"peak": "4"}, ("0.25", "0.5", "8"), workload)
    assert cpu == Decimal("0.25") * Decimal(above) * 10
    memory = _amount("above-baseline", "GB-Hours", {"peak": "4"}, ("0.25", "0.5", "8"), workload)
    assert memory == Decimal("0.5") * 2 * 10


def test_larger_of_request_and_use_takes_either() -> None:
    workload = Workload.of(running_hours=10, observed_memory_gib="1.5", vcpu="2", cpu_utilization="0.5")
    assert _amount("larger-of-request-and-use", "GiB-Hours", {}, ("2", "1", "1"), workload) == 15
    assert _amount("larger-of-request-and-use", "GiB-Hours", {}, ("2", "4", "1"), workload) == 40
    assert _amount("larger-of-request-and-use", "vCPU-Hours", {}, ("2", "4", "1"), workload) == 20
    assert _amount("larger-of-request-and-use", "vCPU-Hours", {}, ("0.5", "4", "1"), workload) == 10


@pytest.mark.parametrize(
    ("vcpu", "memory", "billed"),
    [("1", "2", 2), ("4", "8", 16), ("8", "32", 32), ("16", "64", 64)],  # the vendor's sizes sm, md, lg, xl
)
def test_memory_covers_cores(vcpu: str, memory: str, billed: int) -> None:
    parameters = {"gib_per_vcpu": "4", "free_vcpu": "1"}
    workload = Workload.of(running_hours=1)
    assert _amount("memory-covers-cores", "GiB-Hours", parameters, (vcpu, memory, "1"), workload) == billed


@pytest.mark.parametrize(("utilization", "surplus"), [("0.04", "0"), ("0.1", "5"), ("1", "95")])
def test_surplus_credits(utilization: str, surplus: str) -> None:
    workload = Workload.of(vcpu="1", running_hours=100, cpu_utilization=utilization)
    # 100 h in use at full load, less 0.05 x 1 vCPU x the 100 h of the situation
    assert _amount("surplus-credits", "vCPU-Hours", {"baseline": "0.05"}, ("1", "1", "1"), workload) == Decimal(surplus)


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UnknownRuleError, match="'nonsense'"):
        find_rule("nonsense")


def test_every_rule_has_its_page() -> None:
    pages = {path.stem for path in (Path(__file__).parents[2] / "docs" / "pricing-rules").glob("*.md")}
    assert pages == set(RULES)
