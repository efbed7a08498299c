"""What a quote says beside its total: sources, doubts, ratios, and refusals that name the reason."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from sandyard.catalog import Catalog
from sandyard.catalog.vocabulary import EvidenceState
from sandyard.pricing import CANONICAL, Status, Workload, quote, quote_all, ranked
from sandyard.pricing.errors import UnknownVariantError
from tests.pricing.near import is_near


def test_every_line_of_every_quote_cites_a_source_of_its_card(catalog: Catalog) -> None:
    for card in catalog:
        known = {source.id for source in card.sources}
        for line in quote(card).components:
            assert line.source in known, (card.id, line.meter)
            assert is_near(line.amount, line.quantity * line.price)


def test_the_working_of_a_line_is_a_sum_to_check(catalog: Catalog) -> None:
    cpu = quote(catalog["aws-lambda-microvm"]).components[0]
    assert cpu.working == "0.25 vCPU x 200 h = 50 vCPU-Hours x 0.09969984 = 4.984992"


def test_an_unverified_card_refuses_a_total_and_names_the_gap_but_still_allocates(catalog: Catalog) -> None:
    for card in catalog:
        if card.evidence.state is EvidenceState.UNVERIFIED:
            answer = quote(card)
            assert answer.total is None
            assert answer.status is Status.UNVERIFIED
            assert answer.missing == card.evidence.missing
    assert [given.id for given in quote(catalog["daytona"]).allocated] == ["reserved"]


def test_a_self_hosted_row_has_no_price(catalog: Catalog) -> None:
    answer = quote(catalog["gvisor"])
    assert (answer.status, answer.total) == (Status.SELF_HOSTED, None)


def test_a_modeled_total_always_says_what_it_assumes(catalog: Catalog) -> None:
    for answer in quote_all(catalog):
        if answer.total is not None:
            assert answer.assumptions, answer.product


def test_conventions_are_stated_where_they_are_used(catalog: Catalog) -> None:
    def said(product: str, workload: Workload = CANONICAL) -> str:
        return "\n".join(quote(catalog[product], workload).assumptions)

    assert "a month is 720 hours" in said("aws-lambda-microvm")
    assert "checked on the implied average" in said("aws-lambda-microvm")
    assert "GB is taken one to one as GiB" in said("aws-lambda-microvm")
    assert "GB is taken" not in said("glac-sandbox")
    assert "equally long" in said("codesandbox-sdk")
    assert "no suspended state" in said("modal-sandboxes")
    assert "no suspended state" not in said("modal-sandboxes", Workload.of(resumes=0, suspended_hours=0))


def test_ratios_are_of_gross_totals_in_both_modes(catalog: Catalog) -> None:
    for mode in ("gross", "invoice"):
        answers = {
            answer.product: answer for answer in quote_all(catalog, mode="gross" if mode == "gross" else "invoice")
        }
        assert answers["aws-lambda-microvm"].ratio == 1
        ratio = answers["codesandbox-sdk"].ratio
        assert ratio is not None
        assert round(ratio, 9) == round(Decimal("14.983833333333333") / Decimal("7.197115111111111"), 9)


def test_priced_products_come_first_and_in_order(catalog: Catalog) -> None:
    order = ranked(quote_all(catalog))
    totals = [answer.total for answer in order if answer.total is not None]
    assert totals == sorted(totals)
    assert all(answer.total is None for answer in order[len(totals) :])
    assert len(totals) == 34


def test_transcripts_are_told_from_first_party_readings(catalog: Catalog) -> None:
    answers = {answer.product: answer.is_first_party for answer in quote_all(catalog) if answer.total is not None}
    assert answers["aws-lambda-microvm"]
    assert answers["codesandbox-sdk"]
    assert answers["glac-sandbox"]
    assert not answers["aws-ec2-t4g-nano"]
    assert not answers["blaxel"]


def test_past_quotes_do_not_move_when_a_price_is_superseded(catalog: Catalog) -> None:
    work = Workload.of(creations=400, resumes=0, suspended_hours=0)
    card = catalog["deno-sandbox"]
    assert quote(card, work, on=date(2026, 2, 3)).total == Decimal("3.65")
    assert quote(card, work, on=date(2026, 9, 27)).total == Decimal("3.65")
    assert quote(card, work, on=date(2026, 9, 28)).total == Decimal("6.25")
    assert quote(card, work).total == Decimal("6.25")


def test_before_its_first_price_a_product_has_none(catalog: Catalog) -> None:
    answer = quote(catalog["boat"], on=date(2026, 1, 1))
    assert answer.status is Status.UNVERIFIED
    assert "known from 2026-09-28" in answer.missing[0]


def test_traffic_without_a_price_is_refused_and_not_free(catalog: Catalog) -> None:
    answer = quote(catalog["e2b"], Workload.of(egress_gib=1))
    assert answer.status is Status.UNVERIFIED
    assert answer.missing == ("Traffic out: no egress price is published",)


def test_a_plan_can_be_asked_for_and_an_unknown_one_is_named(catalog: Catalog) -> None:
    answer = quote(catalog["e2b"], mode="invoice", plan="hobby")
    assert answer.plan is not None
    assert answer.plan.id == "hobby"
    with pytest.raises(UnknownVariantError, match="no plan 'gold'"):
        quote(catalog["e2b"], mode="invoice", plan="gold")
    with pytest.raises(UnknownVariantError, match="no variant 'mars'"):
        quote(catalog["e2b"], variant="mars")


def test_a_region_applies_where_a_card_names_it_and_nowhere_else(catalog: Catalog) -> None:
    answers = {answer.product: answer for answer in quote_all(catalog, region="syd")}
    plain = {answer.product: answer for answer in quote_all(catalog)}
    assert answers["fly-machines"].variant == "syd"
    assert answers["fly-machines"].total != plain["fly-machines"].total
    assert answers["e2b"] == plain["e2b"]


def test_idle_hours_are_never_turned_into_a_month(catalog: Catalog) -> None:
    """Only the always-on reference uses 730 hours."""
    short, long = Workload.of(running_hours=10), Workload.of(running_hours=20)
    for card in catalog:
        before, after = quote(card, short).total, quote(card, long).total
        if before is None or after is None:
            continue
        if card.reference == "always-on":
            assert before == after
        else:
            assert before < after, card.id
