"""The cards that come with the package: which there are, what each must carry, and what it must not."""

from __future__ import annotations

import json
from datetime import date
from importlib.resources import files

import pytest

from sandyard.catalog import Catalog, load_catalog
from sandyard.catalog.schema import schema_text
from sandyard.catalog.vocabulary import EvidenceState, Reading


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_every_product_and_self_hosted_row_is_there(catalog: Catalog) -> None:
    states = [card.evidence.state for card in catalog]
    assert states.count(EvidenceState.SELF_HOSTED) == 15
    assert len(states) - states.count(EvidenceState.SELF_HOSTED) == 73
    assert states.count(EvidenceState.MODELED) == 35
    assert states.count(EvidenceState.UNVERIFIED) == 38


def test_no_card_is_verified_while_a_first_party_copy_is_missing(catalog: Catalog) -> None:
    assert not [card.id for card in catalog if card.evidence.state is EvidenceState.VERIFIED]


def test_every_price_names_a_source_with_an_address_or_title_and_a_day_or_a_kept_copy(catalog: Catalog) -> None:
    for card in catalog:
        sources = {source.id: source for source in card.sources}
        for meter in card.meters:
            for price in meter.prices:
                source = sources[price.source]
                assert source.url or source.title
                assert source.read_on or source.read is Reading.STORED_COPY
                assert price.valid_from >= (source.read_on or date(2026, 1, 1)) or price.valid_from >= date(2026, 9, 1)


def test_no_source_was_read_in_the_future(catalog: Catalog) -> None:
    for card in catalog:
        for source in card.sources:
            assert source.read_on is None or source.read_on <= date(2026, 11, 30), (card.id, source.id)


def test_known_contradictions_are_recorded_as_conflicts(catalog: Catalog) -> None:
    for product, word in {
        "codesandbox-sdk": "0.015",
        "daytona": "Billing model",
        "aws-bedrock-agentcore": "different rates",
        "vercel-sandbox": "64 GB",
        "superserve": "Storage",
        "createos-sandbox": "0.0504",
        "mosaic": "Rate card",
        "fly-sprites": "0.07",
        "fly-machines": "2026-09-28",
    }.items():
        assert any(word in conflict for conflict in catalog[product].conflicts), product


def test_launch_prices_end_on_the_day_that_the_vendor_names(catalog: Catalog) -> None:
    ends = {price.valid_to for meter in catalog["prime-intellect-sandboxes"].meters for price in meter.prices}
    assert ends == {date(2026, 12, 23)}  # valid through 22 December, exclusive


def test_isolation_is_not_claimed_beyond_the_sources(catalog: Catalog) -> None:
    assert catalog["archil"].isolation == "unknown"
    assert catalog["aws-bedrock-agentcore"].isolation == "microvm"


def test_the_schema_beside_the_cards_is_that_of_the_models() -> None:
    committed = (files("sandyard") / "data" / "card.schema.json").read_text(encoding="utf-8")
    assert committed == schema_text()


def test_the_schema_takes_numbers_and_sizes_as_the_cards_write_them() -> None:
    definitions = json.loads(schema_text())["$defs"]
    shape = definitions["Shape"]["properties"]
    assert shape["vcpu"]["type"] == ["string", "integer"]
    assert shape["memory"]["type"] == "string"
    assert {"type": "string", "examples": ["8 GB", "512 MiB"]} in shape["disk"]["anyOf"]


def test_every_card_names_the_schema_for_editors() -> None:
    for entry in (files("sandyard") / "data" / "products").iterdir():
        first = entry.read_text(encoding="utf-8").splitlines()[0]
        assert first == "# yaml-language-server: $schema=../card.schema.json", entry.name
