from __future__ import annotations

from sandyard.catalog import Catalog, load_catalog
from sandyard.catalog.diff import Change, changes


def test_a_catalog_does_not_differ_from_itself() -> None:
    catalog = load_catalog()
    assert changes(catalog, catalog) == []


def test_a_new_dated_price_and_a_lost_product_are_named() -> None:
    catalog = load_catalog()
    card = catalog["boat"]
    meter = card.meters[0]
    dearer = meter.prices[0].model_copy(update={"valid_from": meter.prices[0].valid_from.replace(year=2027)})
    changed = card.model_copy(
        update={"meters": (meter.model_copy(update={"prices": (dearer, *meter.prices)}), *card.meters[1:])}
    )
    cards = {product: one for product, one in catalog.cards.items() if product != "e2b"}
    found = changes(catalog, Catalog(cards | {"boat": changed}))
    assert Change("e2b", "card", "E2B", None) in found
    assert Change("boat", "meters.machine.prices.2027-09-28@small.price", None, "0.018") in found
    assert {change.product for change in found} == {"boat", "e2b"}
