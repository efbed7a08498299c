"""The shipped cards keep every invariant, and a planted fault of each kind is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from sandyard.catalog import Card, Catalog
from sandyard.pricing import Quote, Status, invariants, quote
from sandyard.pricing.invariants import check_card, check_catalog


def test_every_card_keeps_every_invariant(catalog: Catalog) -> None:
    assert check_catalog(catalog) == []


def _meter(card: Card, name: str, **update: Any) -> Card:
    meters = tuple(meter.model_copy(update=update) if meter.id == name else meter for meter in card.meters)
    return card.model_copy(update={"meters": meters})


def _priced(card: Card, name: str, price: str) -> Card:
    old = next(meter for meter in card.meters if meter.id == name)
    return _meter(card, name, prices=(old.prices[0].model_copy(update={"price": Decimal(price)}),))


PLANTED: dict[str, Callable[[Catalog], Card]] = {
    "material-meter": lambda catalog: _meter(catalog["e2b"], "vcpu", prices=(), missing="taken away"),
    "unknown-rule": lambda catalog: _meter(catalog["morph-cloud"], "mcu", rule="no-such-rule"),
    "total": lambda catalog: _priced(catalog["e2b"], "vcpu", "-1"),
    "monotone": lambda catalog: _priced(catalog["blaxel"], "standby", "-0.001"),
    "example": lambda catalog: _priced(catalog["e2b"], "memory", "0.0000046"),
}


@pytest.mark.parametrize("code", sorted(PLANTED))
def test_a_planted_fault_is_found(catalog: Catalog, code: str) -> None:
    found = {finding.code for finding in check_card(PLANTED[code](catalog))}
    assert code in found


def _with_engine(monkeypatch: pytest.MonkeyPatch, engine: Callable[..., Quote]) -> None:
    """Give the checks an engine with a fault of its own."""
    monkeypatch.setattr(invariants, "quote", engine)


def test_a_total_without_evidence_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    full = catalog["e2b"]
    card = full.model_copy(
        update={"evidence": full.evidence.model_copy(update={"state": "unverified", "missing": ("all",)})}
    )
    _with_engine(monkeypatch, lambda _card, *args, **more: quote(full, *args, **more))
    assert "numeric-without-evidence" in {finding.code for finding in check_card(card)}


def test_a_total_from_a_default_price_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    full = catalog["e2b"]
    _with_engine(monkeypatch, lambda _card, *args, **more: quote(full, *args, **more))
    assert "default-price" in {finding.code for finding in check_card(full)}


def test_an_allocation_that_is_too_small_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def shrinking(card: Card, *args: Any, **more: Any) -> Quote:
        answer = quote(card, *args, **more)
        return replace(answer, allocated=tuple(replace(given, vcpu=Decimal("0.001")) for given in answer.allocated))

    _with_engine(monkeypatch, shrinking)
    assert "allocation" in {finding.code for finding in check_card(catalog["northflank"])}


def test_a_status_that_contradicts_its_total_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_engine(monkeypatch, lambda card, *args, **more: replace(quote(card, *args, **more), status=Status.PRICED))
    assert "status" in {finding.code for finding in check_card(catalog["daytona"])}


@pytest.mark.parametrize(
    ("product", "code"), [("aws-lambda-microvm", "no-reference"), ("aws-ec2-t4g-nano", "no-baseline")]
)
def test_a_lost_reference_is_found(catalog: Catalog, product: str, code: str) -> None:
    rest = [card for card in catalog if card.id != product]
    assert code in {finding.code for finding in check_catalog(rest)}


def test_a_baseline_that_is_not_always_on_is_found(catalog: Catalog) -> None:
    cards = [card.model_copy(update={"reference": None}) if card.id == "aws-ec2-t4g-nano" else card for card in catalog]
    assert "no-baseline" in {finding.code for finding in check_catalog(cards)}
