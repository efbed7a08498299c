"""Corrections that an earlier audit had to make, each kept as a test; those of ranked products are written sums.

Unverified cards refuse a total, so that their sizes and rules are tried here on copies that are taken as modeled.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from sandyard.catalog import Card, Catalog
from sandyard.pricing import CANONICAL, Quote, Status, Workload, quote

D = Decimal


def _promoted(card: Card) -> Card:
    """The card as it would price if its evidence were enough."""
    evidence = card.evidence.model_copy(update={"state": "modeled", "assumptions": ("a test",), "missing": ()})
    return card.model_copy(update={"evidence": evidence})


def _amounts(answer: Quote) -> dict[str, Decimal]:
    assert answer.total is not None, (answer.reasons, answer.missing)
    return {line.meter: line.amount for line in answer.components}


@pytest.mark.parametrize(
    ("vcpu", "memory", "disk", "fits"),
    [("4", "8", "10", True), ("4.1", "8", "10", False), ("4", "8.1", "10", False), ("4", "8", "10.1", False)],
)
def test_daytona_ends_at_4_vcpu_8_gib_and_10_gib(
    catalog: Catalog, vcpu: str, memory: str, disk: str, fits: bool
) -> None:
    work = Workload.of(vcpu=vcpu, memory_gib=memory, disk_gib=disk, image_gib=0)
    answer = quote(_promoted(catalog["daytona"]), work)
    assert (answer.status is Status.PRICED) is fits


def test_agentcore_bills_128_mb_of_memory_at_least(catalog: Catalog) -> None:
    card = _promoted(catalog["aws-bedrock-agentcore"])
    small = Workload.of(observed_memory_gib="0.05", image_gib=0)
    assert _amounts(quote(card, small))["memory"] == D("0.125") * 200 * D("0.00945")
    large = Workload.of(observed_memory_gib="0.3", image_gib=0)
    assert _amounts(quote(card, large))["memory"] == D("0.3") * 200 * D("0.00945")


def test_agentcore_is_a_dedicated_microvm_without_a_named_monitor(catalog: Catalog) -> None:
    assert catalog["aws-bedrock-agentcore"].isolation == "microvm"


def test_miosa_bills_its_disk_at_the_running_and_the_cold_rate_across_the_month(catalog: Catalog) -> None:
    amounts = _amounts(quote(_promoted(catalog["miosa"])))
    assert amounts["disk"] == 10 * 200 * D("0.0006147")
    assert amounts["cold"] == 10 * 530 * D("0.0000243")  # 730 - 200


def test_railway_rates_are_a_month_of_30_days(catalog: Catalog) -> None:
    answer = quote(_promoted(catalog["railway-sandboxes"]), Workload.of(running_hours=72, cpu_utilization=1))
    assert _amounts(answer)["cpu"] == D("0.25") * 5  # 72 of 720 hours at 50 a vCPU-month


@pytest.mark.parametrize(("product", "meter"), [("archil", "storage"), ("novita-sandbox", "image")])
def test_account_storage_allowances_never_reduce_gross(catalog: Catalog, product: str, meter: str) -> None:
    card = _promoted(catalog[product])
    work = Workload.of(snapshot_gib=0)
    assert _amounts(quote(card, work))[meter] > 0
    assert _amounts(quote(card, work, mode="invoice"))[meter] == 0


def test_runloop_storage_allowance_and_deno_allowances_are_on_the_invoice_only(catalog: Catalog) -> None:
    gross, bill = quote(catalog["runloop"]), quote(catalog["runloop"], mode="invoice")
    assert _amounts(gross)["disk"] > 0
    assert _amounts(bill)["disk"] == 0
    work = Workload.of(creations=400, resumes=0, suspended_hours=0)
    assert _amounts(quote(catalog["deno-sandbox"], work))["cpu"] == D("2.5")
    assert _amounts(quote(catalog["deno-sandbox"], work, mode="invoice"))["cpu"] == 0


def test_createos_has_four_shapes_and_no_2_vcpu_with_4_gb(catalog: Catalog) -> None:
    allocation = catalog["createos-sandbox"].allocation
    assert allocation.kind == "shapes"
    assert [shape.id for shape in allocation.shapes] == ["s-1vcpu-256mb", "s-1vcpu-1gb", "s-2vcpu-2gb", "s-4vcpu-4gb"]


def test_sf_compute_parks_and_bills_cores_in_memory(catalog: Catalog) -> None:
    card = _promoted(catalog["sfcompute-sandboxes"])
    amounts = _amounts(quote(card, Workload.of(vcpu=4, memory_gib=8, creations=1, resumes=0, suspended_hours=10)))
    assert amounts["memory"] == 16 * 200 * D("0.04572")
    assert amounts["parked"] == 2 * 10 * D("0.000139")


def test_mosaic_includes_2_gb_of_disk_and_no_more(catalog: Catalog) -> None:
    card = _promoted(catalog["mosaic"])
    assert quote(card).status is Status.UNSUPPORTED
    assert _amounts(quote(card, Workload.of(disk_gib=2)))["unit"] == 200 * D("0.05")


def test_gke_keeps_its_ratio_of_cpu_to_memory(catalog: Catalog) -> None:
    given = quote(catalog["gke-autopilot"], Workload.of(vcpu="0.3", memory_gib="5")).allocated[0]
    assert (given.vcpu, given.memory_gib) == (D("1.00"), D(5))  # 0.25 steps; 5 GiB need 5 / 6.5 vCPU
    given = quote(catalog["gke-autopilot"], Workload.of(vcpu=4, memory_gib=1)).allocated[0]
    assert (given.vcpu, given.memory_gib) == (D(4), D(4))


def test_deno_ellipsis_and_baponi_refuse_the_canonical_workload(catalog: Catalog) -> None:
    assert quote(catalog["deno-sandbox"]).status is Status.UNSUPPORTED
    assert quote(catalog["ellipsis"]).total is None
    assert quote(catalog["baponi"]).total is None


def test_ellipsis_ends_a_run_at_24_hours(catalog: Catalog) -> None:
    answer = quote(catalog["ellipsis"], Workload.of(creations=4, resumes=0))
    assert answer.status is Status.UNSUPPORTED
    assert "longer than the 24 h allowed" in answer.reasons[0]


def test_run_cloud_and_daytona_name_what_keeps_them_unranked(catalog: Catalog) -> None:
    assert "storage rate" in quote(catalog["run-cloud"]).missing[0]
    assert any("billing models" in gap for gap in quote(catalog["daytona"]).missing)


def test_archil_sells_on_its_own_domain_and_does_not_name_its_isolation(catalog: Catalog) -> None:
    card = catalog["archil"]
    assert card.url == "https://archil.com"
    assert card.isolation == "unknown"


def test_codesandbox_prices_its_larger_sizes_too(catalog: Catalog) -> None:
    given = quote(catalog["codesandbox-sdk"], Workload.of(vcpu=33, memory_gib=64)).allocated
    assert [part.id for part in given] == ["xlarge"]


def test_the_default_request_was_moved_to_the_smallest_lambda_shape(catalog: Catalog) -> None:
    assert quote(catalog["aws-lambda-microvm"], CANONICAL).allocated[0].id == "micro-0.25"
