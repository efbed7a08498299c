"""Whether one set of values is really two: the least-squares split and Ashman's D."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_TIER = 3
FLOORS = ((200, 3.4), (100, 3.6), (40, 4.2), (20, 5.0), (8, 6.3))
"""D that a group of at least n values must reach. The floors fit the least-squares split only: looking for the split
of largest D reaches them on nearly every large clean series."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """The best split in two."""

    ashman_d: float
    ratio: float
    """Median of the higher tier over that of the lower."""
    smaller: int
    threshold: float
    """Values above it are in the higher tier."""


def floor(n: int) -> float | None:
    """Return the least D for n values; None under 8."""
    return next((least for size, least in FLOORS if n >= size), None)


def split(values: np.ndarray) -> Tiers | None:
    """Return the split with the least sum of squares within its tiers, each of at least 3 values."""
    ordered = np.sort(values.astype(float))
    n = len(ordered)
    if n < 2 * LEAST_TIER or ordered[0] == ordered[-1]:
        return None
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    sizes = np.arange(LEAST_TIER, n - LEAST_TIER + 1)
    low_sum, low_square = sums[sizes - 1], squares[sizes - 1]
    within = (low_square - low_sum**2 / sizes) + (squares[-1] - low_square - (sums[-1] - low_sum) ** 2 / (n - sizes))
    size = int(sizes[np.argmin(within)])
    low, high = ordered[:size], ordered[size:]
    variance = low.var(ddof=1) + high.var(ddof=1)
    distance = np.sqrt(2) * (high.mean() - low.mean())
    d = float(distance / np.sqrt(variance)) if variance > 0 else float("inf")
    ratio = float(high[(len(high) - 1) // 2] / low[(len(low) - 1) // 2]) if low[0] > 0 else float("inf")
    return Tiers(d, ratio, min(size, n - size), float(low[-1]))
