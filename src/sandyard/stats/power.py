"""The smallest effect that a check could have found, at 80% power: simulated in small samples, by formula in large.

The formula is too hopeful under some 100 trials (31% against 47% at 20 trials with 10% noise), so there the pair's own
values are shuffled, an effect is planted, and the check itself is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from sandyard.stats.rank_tests import least_rank_sum_p, robust_sigma
from sandyard.stats.ranks import median

POWER = 0.8
SIMULATE_BELOW = 100
_SIMULATIONS = 200
_LARGEST = 4.0
"""Effects above 400% are "more than 400%"."""
_STEPS = 7

Plant = Callable[[np.ndarray, float], np.ndarray]


def detectable_difference(values: np.ndarray, group: int, *, alpha: float, least: float) -> float | None:
    """Return the smallest shift of ``group`` of the values that a rank-sum test finds, as a share of the median.

    Args:
        values: the pair's own, shape (n,); their spread is the noise.
        group: how many trials are in the suspected group.
        alpha: the corrected threshold.
        least: effects under it never fail, so it bounds the answer.

    Returns:
        None where no data of this size could reach ``alpha``, or no effect up to 400% is found often enough.
    """
    n = len(values)
    base = n - group
    if min(group, base) < 1 or least_rank_sum_p(group, base) >= alpha:
        return None
    if n >= SIMULATE_BELOW:
        noise = robust_sigma(values) / median(values)
        scale = math.sqrt((n + 1) / (12 * group * base)) * math.sqrt(4 * math.pi) / 1
        return max(least, noise * _z(alpha) * scale)

    def rejects(rows: np.ndarray) -> np.ndarray:
        ranks = stats.rankdata(rows, axis=1)
        u = ranks[:, :group].sum(axis=1) - group * (group + 1) / 2
        spread = math.sqrt(group * base * (n + 1) / 12)
        p = 2 * stats.norm.sf((np.abs(u - group * base / 2) - 0.5) / spread)
        effect = np.median(rows[:, :group], axis=1) / np.median(rows[:, group:], axis=1) - 1
        return (p < alpha) & (np.abs(effect) >= least)  # type: ignore[no-any-return]

    def plant(rows: np.ndarray, effect: float) -> np.ndarray:
        planted = rows.copy()
        planted[:, :group] *= 1 + effect
        return planted

    return _search(values, plant, rejects, least)


def detectable_trend(values: np.ndarray, *, alpha: float, least: float) -> float | None:
    """Return the smallest drift over the series that Kendall's test finds, as a share of the median."""
    n = len(values)
    if 2 / math.factorial(min(n, 100)) >= alpha:
        return None
    if n >= SIMULATE_BELOW:
        noise = robust_sigma(values) / median(values)
        return max(least, noise * _z(alpha) * math.sqrt(12 / n) * math.sqrt(math.pi / 3))
    first, second = np.triu_indices(n, 1)
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)

    def rejects(rows: np.ndarray) -> np.ndarray:
        s = np.sign(rows[:, second] - rows[:, first]).sum(axis=1)
        p = 2 * stats.norm.sf((np.abs(s) - 1) / spread)
        slopes = np.median((rows[:, second] - rows[:, first]) / (second - first), axis=1)
        effect = slopes * (n - 1) / np.median(rows, axis=1)
        return (p < alpha) & (np.abs(effect) >= least)  # type: ignore[no-any-return]

    def plant(rows: np.ndarray, effect: float) -> np.ndarray:
        return rows * (1 + effect * (np.arange(n) / (n - 1) - 0.5))

    return _search(values, plant, rejects, least)


def detectable_lag(pairs: int, *, alpha: float, least: float) -> float | None:
    """Return the smallest rank autocorrelation found, by the normal approximation; None where even 1 is not."""
    if pairs < 3:  # noqa: PLR2004 - below it there is no variance
        return None
    rho = _z(alpha) / math.sqrt(pairs - 1)
    return None if rho >= 1 else max(least, rho)


def _z(alpha: float) -> float:
    return float(stats.norm.isf(alpha / 2) + stats.norm.isf(1 - POWER))


def _search(
    values: np.ndarray, plant: Plant, rejects: Callable[[np.ndarray], np.ndarray], least: float
) -> float | None:
    """Bisect between ``least`` and 400% on shuffled copies of the values, the same copies at every step."""
    generator = np.random.default_rng(0)
    rows = generator.permuted(np.tile(np.asarray(values, dtype=float), (_SIMULATIONS, 1)), axis=1)

    def power(effect: float) -> float:
        return float(np.mean(rejects(plant(rows, effect))))

    if power(least) >= POWER:
        return least
    if power(_LARGEST) < POWER:
        return None
    low, high = least, _LARGEST
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high
