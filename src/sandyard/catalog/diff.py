"""What changed between two catalogs: prices first, since that is what a bill feels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandyard.catalog.load import Catalog
from sandyard.catalog.models import Card


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One difference; ``old`` is None for what is new, ``new`` for what is gone."""

    product: str
    place: str
    old: str | None
    new: str | None


def changes(old: Catalog, new: Catalog) -> list[Change]:
    """Every difference, by product and place."""
    found: list[Change] = []
    for product in sorted(old.cards.keys() | new.cards.keys()):
        before, after = old.cards.get(product), new.cards.get(product)
        if before is None or after is None:
            names = [card.name if card is not None else None for card in (before, after)]
            found.append(Change(product, "card", names[0], names[1]))
        else:
            found.extend(_between(before, after))
    return found


def _between(before: Card, after: Card) -> Iterator[Change]:
    old, new = dict(_leaves(before.model_dump(mode="json"), ())), dict(_leaves(after.model_dump(mode="json"), ()))
    for place in sorted(old.keys() | new.keys()):
        if old.get(place) != new.get(place):
            yield Change(after.id, place, old.get(place), new.get(place))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            name = _name_of(part, index)
            yield from _leaves(part, (*path, name))
    elif value is not None:
        yield ".".join(path), str(value)


def _name_of(part: Any, index: int) -> str:
    """A part of a list by its own name, so that an entry put in front does not look like a change of all."""
    if not isinstance(part, dict):
        return str(index)
    if "id" in part:
        return str(part["id"])
    if "valid_from" in part:
        return "@".join(str(part[name]) for name in ("valid_from", "shape", "plan") if part.get(name))
    return str(index)
