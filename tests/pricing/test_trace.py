"""Recorded runs are priced one by one: exact rounding and ceilings, and every malformed record is named."""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from sandyard.catalog import Catalog
from sandyard.pricing import Run, Status, Trace, Workload, quote, quote_trace, read_csv, read_jsonl
from sandyard.pricing.errors import InvalidWorkloadError
from tests.pricing.near import is_near

US = 1_000_000
GIB = 2**30
MICRO: dict[str, Any] = {"vcpu": Decimal(4), "memory_gib": Decimal(8), "disk_gib": Decimal(10)}
SMALL: dict[str, Any] = {"vcpu": Decimal("0.25"), "memory_gib": Decimal("0.5"), "disk_gib": Decimal(5)}


def _runs(number: int, seconds: int, size: dict[str, Any], **more: Any) -> list[Run]:
    return [
        Run(sandbox=f"s{index}", start_us=index * 86400 * US, end_us=(index * 86400 + seconds) * US, **size, **more)
        for index in range(number)
    ]


def _cents(value: Decimal | None) -> str:
    assert value is not None
    return str(value.quantize(Decimal("0.01")))


def test_3_minutes_25_seconds_bill_4_minutes(catalog: Catalog) -> None:
    answer = quote_trace(catalog["codesandbox-sdk"], Trace(_runs(1, 205, MICRO)))
    assert is_near(answer.total, Decimal("0.2972") * 4 / 60)  # 20 credits an hour at 0.01486


def test_an_idle_tail_of_300_seconds_on_50_vms_for_22_days_adds_27_24(catalog: Catalog) -> None:
    card = catalog["codesandbox-sdk"]
    without = quote_trace(card, Trace(_runs(1100, 8 * 3600, MICRO))).total
    tailed = quote_trace(card, Trace(_runs(1100, 8 * 3600 + 300, MICRO))).total
    assert without is not None
    assert tailed is not None
    assert _cents(without) == "2615.36"  # 8,800 h x 0.2972
    assert _cents(tailed - without) == "27.24"


def test_runs_of_30_seconds_bill_double(catalog: Catalog) -> None:
    card = catalog["codesandbox-sdk"]
    long, short = quote_trace(card, Trace(_runs(10, 3600, MICRO))), quote_trace(card, Trace(_runs(1200, 30, MICRO)))
    assert long.total is not None
    assert short.total == 2 * long.total


def test_each_run_is_rounded_by_itself_where_an_average_would_hide_it(catalog: Catalog) -> None:
    runs = [*_runs(1, 61, MICRO), replace(_runs(1, 119, MICRO)[0], sandbox="t")]
    exact = quote_trace(catalog["codesandbox-sdk"], Trace(runs))
    assert is_near(exact.total, Decimal("0.2972") * 4 / 60)  # 61 s and 119 s are 2 minutes each
    average = quote(
        catalog["codesandbox-sdk"],
        Workload.of(vcpu=4, memory_gib=8, running_hours="0.05", creations=2, resumes=0, suspended_hours=0),
    )
    assert is_near(average.total, Decimal("0.2972") * 4 / 60)
    runs = [*_runs(1, 1, MICRO), replace(_runs(1, 119, MICRO)[0], sandbox="t")]
    answer = quote_trace(catalog["codesandbox-sdk"], Trace(runs))
    assert is_near(answer.total, Decimal("0.2972") * 3 / 60)  # 1 + 2, not 2 x 1


def test_a_minimum_per_task_is_applied_to_each(catalog: Catalog) -> None:
    card = catalog["google-cloud-run-jobs"]
    one = quote_trace(card, Trace(_runs(1, 10, SMALL, executions=1)))
    four = quote_trace(card, Trace(_runs(1, 10, SMALL, executions=4)))
    cpu = {line.meter: line.quantity for line in one.components}["cpu"]
    assert cpu == 60
    assert {line.meter: line.quantity for line in four.components}["cpu"] == 240


def test_lambda_counts_state_by_the_suspension_and_not_by_the_average(catalog: Catalog) -> None:
    runs = [
        Run(sandbox="a", start_us=0, end_us=3600 * US, **SMALL, saved_state=2 * GIB),
        Run(
            sandbox="a", start_us=2 * 3600 * US, end_us=3 * 3600 * US, **SMALL, saved_state=GIB, suspended_us=3600 * US
        ),
    ]
    answer = quote_trace(catalog["aws-lambda-microvm"], Trace(runs, image_gib=Decimal(2)))
    amounts = {line.meter: line.quantity for line in answer.components}
    assert amounts["cpu"] == Decimal("0.5")  # 0.25 vCPU x 2 h
    assert is_near(amounts["suspended"], Decimal(3) / 720)  # 2 GB x 1 h + 1 GB x 1 h
    assert amounts["write"] == 3
    assert amounts["read"] == 2  # one resume read the first state
    assert amounts["launch"] == 2  # one creation


def test_one_long_life_is_found_where_the_average_hides_it(catalog: Catalog) -> None:
    runs = [*_runs(1, 9 * 3600, SMALL), *[replace(run, sandbox=f"x{run.sandbox}") for run in _runs(5, 3600, SMALL)]]
    answer = quote_trace(catalog["aws-lambda-microvm"], Trace(runs))
    assert answer.status is Status.UNSUPPORTED
    assert "one lifetime of 9 h is longer than the 8 h allowed" in answer.reasons


def test_active_cpu_is_the_time_in_use(catalog: Catalog) -> None:
    runs = _runs(2, 3600, SMALL, cpu_us=600 * US, observed_memory=GIB // 4)
    answer = quote_trace(catalog["fly-sprites"], Trace(runs))
    amounts = {line.meter: line.amount for line in answer.components}
    assert is_near(amounts["cpu"], Decimal(1200) / 3600 * Decimal("0.03825"))
    assert amounts["memory"] == Decimal("0.25") * Decimal("1.073741824") * 2 * Decimal("0.021875")


def test_several_sizes_are_each_given_their_own_shape(catalog: Catalog) -> None:
    runs = [*_runs(1, 3600, SMALL), *[replace(run, sandbox="big") for run in _runs(1, 3600, MICRO)]]
    answer = quote_trace(catalog["codesandbox-sdk"], Trace(runs))
    assert [given.id for given in answer.allocated] == ["pico", "micro"]
    assert answer.total == Decimal("0.0743") + Decimal("0.2972")


def test_concurrency_is_the_peak_of_the_trace(catalog: Catalog) -> None:
    runs = [Run(sandbox=f"s{index}", start_us=0, end_us=US, **MICRO) for index in range(11)]
    answer = quote_trace(catalog["codesandbox-sdk"], Trace(runs), mode="invoice")
    why = {item.plan: item.why for item in answer.excluded}
    assert "11 sandboxes at once are more than the 10 allowed" in why["build"]


def test_a_trace_equals_the_workload_whose_average_it_is(catalog: Catalog) -> None:
    """60 equal sandboxes, each with one run of 200/60 h, and no suspension."""
    workload = Workload.of(
        running_hours=200,
        suspended_hours=0,
        creations=60,
        resumes=0,
        executions=60,
        cold_disk_gib=0,
        hot_disk_gib=0,
        image_gib=0,
    )
    runs = [replace(run, cpu_us=1500 * US, observed_memory=GIB // 2, executions=1) for run in _runs(60, 12000, SMALL)]
    for card in catalog:
        month, recorded = quote(card, workload), quote_trace(card, Trace(runs, period_s=Decimal(730 * 3600)))
        if month.total is None or any(meter.when in {"always", "stopped", "always-on"} for meter in card.meters):
            continue
        assert recorded.total is not None, card.id
        assert abs(recorded.total - month.total) < Decimal("1e-30"), card.id


# -- malformed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "there is no run"),
        ([Run(sandbox="a", start_us=5 * US, end_us=3 * US, **SMALL)], "ends 2 s before it starts"),
        (
            [
                Run(sandbox="a", start_us=0, end_us=10 * US, **SMALL),
                Run(sandbox="a", start_us=8 * US, end_us=12 * US, **SMALL),
            ],
            "overlap by 2 s",
        ),
        (
            [
                Run(sandbox="a", start_us=0, end_us=US, suspended_us=5 * US, **SMALL),
                Run(sandbox="a", start_us=2 * US, end_us=3 * US, **SMALL),
            ],
            "suspended while it runs again",
        ),
        (
            [
                Run(sandbox="a", start_us=0, end_us=US, **SMALL),
                Run(sandbox="a", start_us=2 * US, end_us=3 * US, **MICRO),
            ],
            "changes its size",
        ),
        ([Run(sandbox="a", start_us=0, end_us=US, cpu_us=-1, **SMALL)], "negative"),
    ],
)
def test_what_cannot_have_happened_is_refused(runs: list[Run], said: str) -> None:
    with pytest.raises(InvalidWorkloadError, match=said):
        Trace(runs)


JSONL = """\
{"sandbox": "a", "start": "2026-11-01T00:00:00Z", "end": "2026-11-01T01:00:00+00:00", "vcpu": 0.25, "memory_gib": 0.5, "cpu_seconds": 12.5, "snapshot_gib": "2"}
{"sandbox": "a", "start": "2026-11-01T02:00:00Z", "end": "2026-11-01T02:30:00Z", "vcpu": 0.25, "memory_gib": 0.5}
"""  # noqa: E501 - a record is a line
CSV = """\
sandbox,start,end,vcpu,memory_gib,cpu_seconds,snapshot_gib
a,2026-11-01T00:00:00Z,2026-11-01T01:00:00Z,0.25,0.5,12.5,2
a,2026-11-01T02:00:00Z,2026-11-01T02:30:00Z,0.25,0.5,,
"""


def test_both_formats_hold_the_same(catalog: Catalog) -> None:
    one, other = read_jsonl(JSONL.splitlines()), read_csv(io.StringIO(CSV))
    for product in ("aws-lambda-microvm", "codesandbox-sdk", "cloudflare-sandbox"):
        left, right = quote_trace(catalog[product], one), quote_trace(catalog[product], other)
        assert left.total is not None
        assert left == right
    lines = {line.meter: line.quantity for line in quote_trace(catalog["aws-lambda-microvm"], one).components}
    assert is_near(lines["suspended"], Decimal(2) / 720)  # the gap of one hour


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "not a JSON object"),
        ('{"sandbox": "a"}', "'start' is missing"),
        ('{"sandbox": "a", "start": 0, "end": 1, "vcpu": 1, "memory_gib": 1, "mood": 1}', "no field 'mood'"),
        ('{"sandbox": "a", "start": 0, "end": 1, "vcpu": NaN, "memory_gib": 1}', "not a finite number"),
        ('{"sandbox": "a", "start": 0, "end": 1, "vcpu": -1, "memory_gib": 1}', "vcpu is negative"),
        ('{"sandbox": "a", "start": 0, "end": 1, "vcpu": "many", "memory_gib": 1}', "is not a number"),
        ('{"sandbox": "a", "start": "2026-11-01T00:00:00", "end": 1, "vcpu": 1, "memory_gib": 1}', "no time zone"),
        ('{"sandbox": "a", "start": "noon:", "end": 1, "vcpu": 1, "memory_gib": 1}', "not an ISO 8601 time"),
        ('{"sandbox": "a", "start": 0, "end": 1, "vcpu": 1, "memory_gib": 1, "created": "maybe"}', "neither true nor"),
    ],
)
def test_a_malformed_line_is_named(line: str, said: str) -> None:
    with pytest.raises(InvalidWorkloadError, match=said):
        read_jsonl([line])


def test_many_malformed_lines_are_counted() -> None:
    with pytest.raises(InvalidWorkloadError, match=r"line 1: not JSON.*and 5 more"):
        read_jsonl(["{"] * 25)


def test_a_csv_row_with_too_many_cells_is_named() -> None:
    with pytest.raises(InvalidWorkloadError, match="line 2: more cells"):
        read_csv(io.StringIO("sandbox,start\na,0,1\n"))
