"""Bad cards: each fault is named with its file, line and code, all at once, and never becomes a card."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from sandyard.catalog import CatalogError, RateCardNotFoundError, load_catalog, read_card, read_catalog

GOOD = dedent(
    """\
    id: acme
    name: Acme
    vendor: Acme Inc.
    category: agent-sandbox
    isolation: vm
    evidence: {state: modeled, assumptions: [everything]}
    allocation:
      kind: shapes
      shapes:
        - {id: small, vcpu: "1", memory: 1 GiB, units: "2"}
        - {id: large, vcpu: "2", memory: 4 GiB, units: "4"}
    meters:
      - id: time
        name: Time
        quantity: shape-units
        unit: Unit-Hours
        prices:
          - {price: "0.0000140", valid_from: 2026-01-01, source: page}
    plans:
      - {id: payg, name: Pay as you go, fee: "0"}
    sources:
      - id: page
        url: https://acme.example/pricing
        read: page
        read_on: 2026-01-01
    features:
      ssh: {value: yes, source: page}
    """
)


def _codes(text: str) -> list[tuple[int, str]]:
    card, findings = read_card(text, "products/acme.yaml")
    assert card is None
    assert all(finding.file == "products/acme.yaml" and finding.message for finding in findings)
    return sorted((finding.line, finding.code) for finding in findings)


def test_a_good_card_is_read_to_the_last_digit() -> None:
    card, findings = read_card(GOOD, "products/acme.yaml")
    assert findings == []
    assert card is not None
    assert str(card.meters[0].prices[0].price) == "0.0000140"
    assert card.features["ssh"].value == "yes"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: Acme\n", "name: Acme\ncolour: red\n", [(3, "unknown-key")]),
        ("name: Acme\n", "", [(1, "missing-key")]),
        ("name: Acme\n", "name: Acme\nname: Acme\n", [(3, "duplicate-key")]),
        ('price: "0.0000140"', "price: 0.0000140", [(18, "float")]),
        ('price: "0.0000140"', "price: 1.4e-5", [(18, "float")]),
        ('price: "0.0000140"', 'price: "cheap"', [(18, "not-a-number")]),
        ('price: "0.0000140"', 'price: "-1"', [(18, "not-a-number")]),
        ('price: "0.0000140"', 'price: "NaN"', [(18, "not-a-number")]),
        ('vcpu: "2"', "vcpu: 0123", [(11, "float")]),
        ("memory: 4 GiB", "memory: 4", [(11, "not-a-size")]),
        ("unit: Unit-Hours", "unit: hours", [(16, "not-a-unit")]),
        ("unit: Unit-Hours", "unit: GB-Hours", [(16, "unit-mismatch")]),
        ("quantity: shape-units", "quantity: rainbows", [(15, "enum")]),
        ("source: page}\nplans", "source: elsewhere}\nplans", [(18, "unknown-source")]),
        ('    prices:\n      - {price: "0.0000140", valid_from: 2026-01-01, source: page}\n', "",
         [(0, "no-price"), (13, "missing-price")]),
        (', units: "4"', "", [(11, "missing-units")]),
        ('vcpu: "2", memory: 4 GiB', 'vcpu: "1", memory: 1 GiB', [(11, "shape-order")]),
        ("assumptions: [everything]", "assumptions: []", [(6, "no-assumption")]),
        ("state: modeled, assumptions: [everything]", "state: unverified", [(6, "no-gap")]),
        ('fee: "0"', "overage: on-demand", [(20, "missing-fee")]),
        ("ssh:", "teleport:", [(27, "unknown-feature")]),
        ("url: https://acme.example/pricing", "url: acme.example", [(23, "string-pattern-mismatch")]),
        ("read: page\n    read_on: 2026-01-01", "read: transcript", [(22, "source")]),
        ("kind: shapes", "kind: clouds", [(7, "not-a-choice")]),
        ("id: acme\nname: Acme\n", "id: &same acme\nname: *same\n", [(1, "anchor")]),
        ("name: Acme\n", "name: [unclosed\n", [(3, "not-yaml")]),
    ],
)  # fmt: skip
def test_each_fault_has_its_place_and_code(old: str, new: str, expected: list[tuple[int, str]]) -> None:
    assert old in GOOD
    codes = _codes(GOOD.replace(old, new, 1))
    if expected[0][1] == "no-price":
        assert {code for _, code in codes} == {code for _, code in expected}
    else:
        assert codes == expected


def test_all_faults_come_at_once() -> None:
    text = GOOD.replace("vendor: Acme Inc.\n", "vendor: Acme Inc.\ncolour: red\n").replace(
        "isolation: vm", "isolation: hope"
    )
    assert [code for _, code in _codes(text)] == ["unknown-key", "literal-error"]


def test_a_price_of_two_meanings_is_an_error() -> None:
    price = '      - {price: "0.0000140", valid_from: 2026-01-01, source: page}\n'
    assert [code for _, code in _codes(GOOD.replace(price, price * 2))] == ["ambiguous-price"]


def test_a_self_hosted_row_has_no_price() -> None:
    text = GOOD.replace("evidence: {state: modeled, assumptions: [everything]}", "evidence: {state: self-hosted}")
    assert "price-without-vendor" in [code for _, code in _codes(text)]


def test_a_verified_card_has_no_open_conflict_and_no_transcript() -> None:
    text = GOOD.replace("state: modeled, assumptions: [everything]", "state: verified")
    text = text.replace("read: page", "read: transcript\n    by: somebody") + "conflicts: [two pages disagree]\n"
    assert {code for _, code in _codes(text)} == {"open-conflict", "weak-source"}


def test_a_folder_reports_every_file_and_keeps_the_good_ones(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(GOOD)
    (tmp_path / "broken.yaml").write_text("id: broken\n")
    (tmp_path / "misnamed.yaml").write_text(GOOD.replace("id: acme\n", "id: other\n"))
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    catalog, findings = read_catalog(tmp_path)
    assert set(catalog.cards) == {"acme", "other"}
    assert {(finding.file, finding.code) for finding in findings} == {
        ("products/broken.yaml", "missing-key"),
        ("products/misnamed.yaml", "file-name"),
        ("products/empty.yaml", "empty"),
    }
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    assert len(caught.value.findings) == len(findings)


def test_an_unknown_product_is_named(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(GOOD)
    with pytest.raises(RateCardNotFoundError, match="'acne'"):
        load_catalog(tmp_path)["acne"]
