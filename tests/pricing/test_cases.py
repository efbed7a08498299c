"""Every case file: the written sums, worked out in fractions, are the engine's lines; totals agree to their digits."""

from __future__ import annotations

from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sandyard.catalog import Catalog
from sandyard.catalog.yaml_text import read_yaml
from sandyard.pricing import Quote, Workload, quote
from tests.pricing.written_sums import work_out

FOLDER = Path(__file__).parent.parent / "cases" / "pricing"
TINY = Fraction(1, 10**35)
"""A sum of fractions against one of fifty digits."""


def _cases() -> list[Any]:
    found: list[Any] = []
    for path in sorted(FOLDER.glob("*.yaml")):
        document = read_yaml(path.read_text(encoding="utf-8"), path.name)
        assert not document.findings, document.findings
        found.extend(
            pytest.param(document.value["product"], case, id=f"{path.stem}: {case['name']}")
            for case in document.value["cases"]
        )
    return found


def _ask(catalog: Catalog, product: str, case: dict[str, Any]) -> Quote:
    return quote(
        catalog[product],
        Workload.from_mapping(case.get("workload", {})),
        mode=case.get("mode", "gross"),
        on=date.fromisoformat(case["on"]) if "on" in case else None,
        variant=case.get("variant"),
        plan=case.get("ask_plan"),
    )


@pytest.mark.parametrize(("product", "case"), _cases())
def test_case(catalog: Catalog, product: str, case: dict[str, Any]) -> None:
    answer = _ask(catalog, product, case)
    assert answer.status == case["status"], answer.reasons
    if "allocation" in case:
        assert [part.id for part in answer.allocated] == [case["allocation"]]
    if "plan" in case:
        assert answer.plan is not None
        assert answer.plan.id == case["plan"]
    if "reason" in case:
        assert case["reason"] in "; ".join(answer.reasons)
    if "missing" in case:
        assert case["missing"] in "; ".join(answer.missing)
    excluded = {item.plan: item.why for item in answer.excluded}
    assert set(case.get("excluded", [])) <= set(excluded)
    for plan, why in case.get("excluded_why", {}).items():
        assert why in excluded[plan]
    _check_lines(answer, case)
    _check_total(answer, case)


def _check_lines(answer: Quote, case: dict[str, Any]) -> None:
    if "lines" not in case:
        return
    written = {meter: work_out(text) for meter, text in case["lines"].items()}
    counted = {line.meter: Fraction(line.amount) for line in answer.components if line.amount}
    assert counted.keys() == {meter for meter, amount in written.items() if amount}
    for meter, amount in counted.items():
        assert abs(amount - written[meter]) < TINY, f"{meter}: {float(amount)} is not {float(written[meter])}"


def _check_total(answer: Quote, case: dict[str, Any]) -> None:
    if case["status"] == "priced":
        assert answer.total is not None
        if "lines" in case:
            assert abs(Fraction(answer.total) - _written_total(case)) < TINY
    else:
        assert answer.total is None
    for name in ("total", "known"):
        if name in case:
            value = getattr(answer, name)
            assert value is not None
            assert _printed(value, case[name]) == case[name]


def _written_total(case: dict[str, Any]) -> Fraction:
    usage = sum((work_out(text) for text in case["lines"].values()), Fraction(0))
    usage -= work_out(case.get("credit", "0"))
    return max(usage + work_out(case.get("fee", "0")), work_out(case.get("minimum", "0")))


def _printed(value: Decimal, like: str) -> str:
    places = Decimal(1).scaleb(-len(like.partition(".")[2]))
    return str(value.quantize(places, rounding=ROUND_HALF_UP))


def test_every_modeled_product_has_its_canonical_sum_written_out(catalog: Catalog) -> None:
    written = {path.stem for path in FOLDER.glob("*.yaml")}
    priced = {card.id for card in catalog if card.evidence.state in {"modeled", "verified"}}
    assert priced <= written
