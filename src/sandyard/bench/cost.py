"""Cost of a trial: the one place where the benchmark meets pricing."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from sandyard.bench.records import Manifest
from sandyard.catalog import Card, Catalog, RateCardNotFoundError, load_catalog
from sandyard.errors import BenchError
from sandyard.pricing import Workload, quote

_NOTHING = ("disk_gib", "hot_disk_gib", "cold_disk_gib", "suspended_hours", "resumes", "snapshot_gib", "image_gib")
"""What a trial is not charged for: it keeps nothing."""


class Pricer:
    """Prices the time for which a trial held its sandboxes, at the size asked for, on the provider's rate card."""

    def __init__(self, manifest: Manifest, cards: Mapping[str, str]) -> None:
        """Read the catalog once, where any provider has a card.

        Raises:
            BenchError: a card does not exist.
        """
        named = {info.name: card for info in manifest.providers if (card := cards.get(info.name) or info.card)}
        catalog = load_catalog() if named else Catalog({})  # reading it takes most of a second
        self._cards: dict[str, Card] = {}
        for provider, name in named.items():
            try:
                self._cards[provider] = catalog[name]
            except RateCardNotFoundError as error:
                raise BenchError(
                    f"there is no rate card {name}, which {provider} is to be priced on.", hint=error.hint
                ) from None
        self._vcpu = Decimal(str(manifest.cpus))
        self._memory_gib = Decimal(manifest.memory_mib) / 1024

    def cost(self, provider: str, sandbox_s: float) -> str | None:
        """Return the gross cost as decimal text; None without a card, or where the card gives no total."""
        card = self._cards.get(provider)
        if card is None or sandbox_s <= 0:
            return None
        hours = Decimal(f"{sandbox_s:.6f}") / 3600
        workload = Workload.of(
            vcpu=self._vcpu,
            memory_gib=self._memory_gib,
            observed_memory_gib=self._memory_gib,
            cpu_utilization=1,  # where use is metered, all that was asked for: the most that it can cost
            running_hours=hours.quantize(Decimal("0.000000001")),
            creations=1,
            executions=1,
            **dict.fromkeys(_NOTHING, 0),
        )
        total = quote(card, workload).total
        return None if total is None else format(total.normalize(), "f")
