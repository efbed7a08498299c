"""The estimator against its published formulas, worked by hand with the same inputs."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from sandyard.pricing.bill import BillInputs, estimate
from sandyard.pricing.errors import InvalidWorkloadError

D = Decimal
INPUTS = BillInputs(
    requests_per_day=D(20_000),
    mean_lifetime_sec=D(90),
    active_cpu_fraction=D("0.12"),
    vcpu=D(2),
    mem_gib=D(4),
    egress_mb_per_create=D(40),
    rate_per_vcpu_sec=D("0.000014"),
    rate_per_gib_sec=D("0.0000045"),
    rate_per_gb_egress=D("0.05"),
    platform_fee_month=D(20),
)


def test_the_estimate_is_the_formula() -> None:
    bill = estimate(INPUTS)
    # creates = 20,000 x 30 = 600,000; rate = 2 x 0.000014 + 4 x 0.0000045 = 0.000046
    assert bill.creates == 600_000
    assert bill.billable_sec == 90
    assert bill.compute == D("2484")  # 600,000 x 90 x 0.000046
    assert bill.egress == D("1171.875")  # 600,000 x 40 / 1,024 x 0.05
    assert bill.total == D("3675.875")


def test_the_two_deltas_are_those_of_flipping_the_terms() -> None:
    bill = estimate(INPUTS)
    # active only: 90 x 0.12 = 10.8 s, up to 11 s; (90 - 11) x 600,000 x 0.000046
    assert bill.idle_cost == D("2180.4")
    # to the minute: 120 s; (120 - 90) x 600,000 x 0.000046
    assert bill.rounding_tax == D("828")


def test_the_floor_comes_before_the_increment() -> None:
    short = replace(INPUTS, mean_lifetime_sec=D("2.5"), min_billable_sec=D(10), rounding_sec=D(8))
    assert estimate(short).billable_sec == 16
    assert estimate(replace(short, bills_idle=False)).billable_sec == 16


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("requests_per_day", D(-1), "negative"),
        ("rate_per_vcpu_sec", D("NaN"), "not a finite number"),
        ("active_cpu_fraction", D("1.1"), "more than 1"),
        ("rounding_sec", D(0), "rounding_sec is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: Decimal, said: str) -> None:
    with pytest.raises(InvalidWorkloadError, match=said):
        replace(INPUTS, **{name: value})  # type: ignore[arg-type]
