from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from sandyard.pricing import CANONICAL, Workload
from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.workload import INPUTS


def test_the_defaults_are_the_canonical_table() -> None:
    assert {name: str(value) for name, value in CANONICAL.as_dict().items()} == {
        "vcpu": "0.25",
        "memory_gib": "0.5",
        "disk_gib": "5",
        "observed_memory_gib": "0.5",
        "hot_disk_gib": "5",
        "cold_disk_gib": "5",
        "running_hours": "200",
        "suspended_hours": "50",
        "executions": "60",
        "creations": "60",
        "resumes": "50",
        "snapshot_gib": "2",
        "kept_snapshots_gib": "0",
        "image_gib": "2",
        "cpu_utilization": "0.5",
        "cpu_burst": "1",
        "memory_burst": "1",
        "egress_gib": "0",
        "requests": "0",
        "concurrency": "1",
    }


def test_every_input_has_a_description() -> None:
    assert set(CANONICAL.as_dict()) == set(INPUTS)
    assert all(item.meaning for item in INPUTS.values())


def test_text_whole_numbers_and_percent_are_exact() -> None:
    workload = Workload.of(vcpu="0.1", running_hours=7, cpu_utilization="12.5%", memory_gib=Decimal("0.3"))
    assert (workload.vcpu, workload.running_hours) == (Decimal("0.1"), Decimal(7))
    assert workload.cpu_utilization == Decimal("0.125")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("vcpu", "-1", "less than"),
        ("vcpu", "0", "less than"),
        ("vcpu", "nan", "not a finite number"),
        ("memory_gib", "Infinity", "not a finite number"),
        ("memory_gib", "lots", "not a number"),
        ("memory_gib", "1e30", "more than"),
        ("vcpu", 0.25, "is not exact"),
        ("vcpu", True, "is not exact"),
        ("vcpu", None, "is not exact"),
        ("cpu_utilization", "1.5", "more than"),
        ("creations", "1.5", "not a whole number"),
        ("running_hours", "744.5", "more than 744 h a month"),
        ("suspended_hours", "50000", "more than 744 h for each sandbox that exists"),
        ("flux_capacity", "1", "there is no input"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(name: str, value: object, said: str) -> None:
    with pytest.raises(InvalidWorkloadError, match=said) as caught:
        Workload.from_mapping({name: value})
    assert name in str(caught.value)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(InvalidWorkloadError) as caught:
        Workload.from_mapping({"vcpu": "-1", "memory_gib": "x", "what": "1"})
    assert len(caught.value.problems) == 3
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_hours_need_something_that_started_them() -> None:
    with pytest.raises(InvalidWorkloadError, match="must have started"):
        Workload.of(creations=0, resumes=0)


def test_many_sandboxes_may_run_for_more_than_a_month_together() -> None:
    assert Workload.of(running_hours=8800, creations=1100, concurrency=50).runs == 1150
