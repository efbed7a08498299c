"""Rate cards as data: reads, validates and refuses; never repairs, and never prices.

``read_card`` and ``read_catalog`` return what they could read together with every fault as a ``Finding``;
``load_catalog`` is the edge that raises when there is any.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandyard.catalog.findings import CatalogError, Finding
    from sandyard.catalog.load import Catalog, RateCardNotFoundError, load_catalog, read_card, read_catalog
    from sandyard.catalog.models import Card

__all__ = [
    "Card",
    "Catalog",
    "CatalogError",
    "Finding",
    "RateCardNotFoundError",
    "load_catalog",
    "read_card",
    "read_catalog",
]

_HOME = {"Card": "models", "CatalogError": "findings", "Finding": "findings"}


def __getattr__(name: str) -> object:
    """Load a public name on first use: pricing imports the models without the YAML reader."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'load')}"), name)
