"""Reads card files into ``Card``: every fault of every file at once, none repaired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sandyard.catalog.findings import CatalogError, Finding
from sandyard.catalog.models import Card
from sandyard.catalog.references import check_references
from sandyard.catalog.yaml_text import Document, read_yaml
from sandyard.errors import NotFoundError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class RateCardNotFoundError(NotFoundError):
    """No product of the catalog has this id."""

    code = "rate-card-not-found"


_CODES = {
    "extra_forbidden": ("unknown-key", "unknown key; see the card schema, or correct the spelling"),
    "missing": ("missing-key", "this key is required"),
    "union_tag_not_found": ("missing-key", "'kind' is required and says which form follows"),
    "union_tag_invalid": ("not-a-choice", "'kind' has none of the known values"),
}


@dataclass(frozen=True, slots=True)
class Catalog:
    """Cards by id, sorted."""

    cards: Mapping[str, Card]

    def __iter__(self) -> Iterator[Card]:
        """Every card, by id."""
        return iter(self.cards.values())

    def __len__(self) -> int:
        """How many products there are."""
        return len(self.cards)

    def __getitem__(self, product: str) -> Card:
        """The card of ``product``.

        Raises:
            RateCardNotFoundError: there is none.
        """
        try:
            return self.cards[product]
        except KeyError:
            near = get_close_matches(product, self.cards, n=3)
            meant = f"Near it: {', '.join(near)}. " if near else ""
            raise RateCardNotFoundError(
                f"No product is called '{product}'.", hint=f"{meant}`sandyard catalog list` names all products."
            ) from None


def read_card(text: str, file: str) -> tuple[Card | None, list[Finding]]:
    """Read one card from the text of its file; ``None`` beside the findings where it cannot be used."""
    document = read_yaml(text, file)
    if document.findings:
        return None, document.findings
    try:
        card = Card.model_validate(document.value)
    except ValidationError as error:
        return None, [_finding(detail, document, file) for detail in error.errors(include_url=False)]
    findings = check_references(card, document, file)
    return (None if findings else card), findings


def _finding(detail: ErrorDetails, document: Document, file: str) -> Finding:
    code, message = _CODES.get(detail["type"], (detail["type"].replace("_", "-"), detail["msg"]))
    path = ".".join(str(part) for part in detail["loc"])
    return Finding(file, document.line(detail["loc"]), code, f"{path}: {message}")


def read_catalog(folder: Traversable | None = None) -> tuple[Catalog, list[Finding]]:
    """Read every ``*.yaml`` of a folder, by default the cards that come with the package.

    Returns:
        The cards that could be read, and every fault of the others.
    """
    folder = folder or files("sandyard") / "data" / "products"
    cards: dict[str, Card] = {}
    findings: list[Finding] = []
    for entry in sorted((item for item in folder.iterdir() if item.name.endswith(".yaml")), key=lambda item: item.name):
        file = f"products/{entry.name}"
        card, faults = read_card(entry.read_text(encoding="utf-8"), file)
        findings.extend(faults)
        if card is None:
            continue
        if entry.name != f"{card.id}.yaml":
            findings.append(Finding(file, 1, "file-name", f"the card of '{card.id}' belongs in {card.id}.yaml"))
        cards[card.id] = card
    return Catalog(dict(sorted(cards.items()))), findings


def load_catalog(folder: Traversable | None = None) -> Catalog:
    """Read the catalog for use.

    Raises:
        CatalogError: any card has a fault.
    """
    catalog, findings = read_catalog(folder)
    if findings:
        raise CatalogError(findings)
    return catalog
