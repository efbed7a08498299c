"""Rate cards as data: reads, validates and refuses; never repairs, and never prices.

``read_card`` and ``read_catalog`` return what they could read together with every fault as a ``Finding``; ``load_catalog``
is the edge that raises when there is any.
"""

from sandyard.catalog.findings import CatalogError, Finding
from sandyard.catalog.load import Catalog, load_catalog, read_card, read_catalog
from sandyard.catalog.models import Card

__all__ = ["Card", "Catalog", "CatalogError", "Finding", "load_catalog", "read_card", "read_catalog"]
