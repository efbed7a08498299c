"""The engine over arrays agrees with the exact one on every product, mode and variant, boundary workloads included."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pytest

from sandyard.catalog import Card, Catalog
from sandyard.pricing import CANONICAL, Status, Workload, quote
from sandyard.pricing.errors import InvalidWorkloadError
from sandyard.pricing.invariants import BOUNDARY
from sandyard.pricing.quote import Mode
from sandyard.pricing.vector import STATUSES, Columns, vector_quote

CHOICES: dict[str, list[str]] = {
    "vcpu": ["0.1", "0.25", "0.5", "1", "2", "3", "4", "6", "8", "16", "20", "64"],
    "memory_gib": ["0.25", "0.5", "0.75", "1", "2", "4", "5.5", "8", "16", "32", "64"],
    "disk_gib": ["0", "1", "2", "3.725290298461914", "4", "4.6", "5", "8", "10", "20", "40", "100"],
    "running_hours": ["0", "0.5", "1", "20", "39.0625", "44", "200", "333", "700"],
    "suspended_hours": ["0", "10", "50"],
    "executions": ["1", "60", "600"],
    "creations": ["1", "7", "60", "600", "9000"],
    "resumes": ["0", "1", "50"],
    "cpu_utilization": ["0", "0.1", "0.5", "1"],
    "observed_memory_gib": ["0.1", "0.5", "2", "20"],
    "egress_gib": ["0", "0", "1", "100", "5000"],
    "requests": ["0", "10000000"],
    "concurrency": ["1", "1", "3", "10", "12", "150", "2000"],
    "cpu_burst": ["1", "2", "4", "6"],
    "memory_burst": ["1", "3"],
    "kept_snapshots_gib": ["0", "0", "5", "200"],
    "hot_disk_gib": ["0", "5", "33"],
    "cold_disk_gib": ["0", "5", "33"],
    "image_gib": ["0", "2"],
    "snapshot_gib": ["0", "2", "7"],
}
"""Values on and around the steps and ceilings of the cards."""


def _workloads(number: int) -> list[Workload]:
    dice = random.Random(20261130)
    found = list(BOUNDARY)
    while len(found) < number:
        try:
            found.append(Workload.from_mapping({name: dice.choice(values) for name, values in CHOICES.items()}))
        except InvalidWorkloadError:
            continue
    return found


WORKLOADS = _workloads(120)
COLUMNS = Columns.of(WORKLOADS)


@pytest.mark.parametrize("mode", ["gross", "invoice"])
def test_both_engines_agree(catalog: Catalog, mode: Mode) -> None:
    for card in catalog:
        for variant in (None, *(item.id for item in card.variants)):
            _compare(card, mode, variant)


def _compare(card: Card, mode: Mode, variant: str | None) -> None:
    answers = vector_quote(card, COLUMNS, mode=mode, variant=variant)
    for row, workload in enumerate(WORKLOADS):
        exact = quote(card, workload, mode=mode, variant=variant)
        where = (card.id, mode, variant, workload)
        assert STATUSES[answers.status[row]] is exact.status, where
        if exact.total is None:
            assert np.isnan(answers.total[row]), where
        else:
            assert answers.total[row] == pytest.approx(float(exact.total), rel=1e-9, abs=1e-12), where
        if exact.allocated:
            assert answers.allocations[answers.allocation[row]] == exact.allocated[0].id, where
        if exact.plan is not None:
            assert card.plans[answers.plan[row]].id == exact.plan.id, where


def test_every_status_occurs_in_the_comparison(catalog: Catalog) -> None:
    seen = {STATUSES[code] for card in catalog for code in set(vector_quote(card, COLUMNS).status.tolist())}
    assert seen == set(Status)


def test_a_grid_holds_every_combination_in_order() -> None:
    grid = Columns.grid(CANONICAL, {"vcpu": np.array([1.0, 2.0]), "memory_gib": np.array([1.0, 2.0, 3.0])})
    assert len(grid) == 6
    assert grid["vcpu"].tolist() == [1, 1, 1, 2, 2, 2]
    assert grid["memory_gib"].tolist() == [1, 2, 3, 1, 2, 3]
    assert set(grid["running_hours"].tolist()) == {float(Decimal(200))}
