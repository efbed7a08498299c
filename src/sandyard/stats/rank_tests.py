"""Two-sided rank tests and robust effects that the audit of a run is made of; the largest inputs stay affordable."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sandyard.stats.ranks import median

MAD_TO_SIGMA = 1.4826
_EXACT_PAIRS = 4_000_000
"""Up to this many pairs Theil-Sen takes them all (2,800 values); above, a fixed sample of as many."""

_FEW = 200
"""Up to this many values lag 1 is judged against shuffles; in longer series its bias, about -1/n, is nothing."""

_SHUFFLES = 400
_SMALL_RUNS = 50


@dataclass(frozen=True, slots=True)
class Test:
    """A p-value, and the least one that data of this shape could give."""

    p: float
    least_p: float


def robust_sigma(values: np.ndarray) -> float:
    """Return 1.4826 times the median absolute deviation."""
    return MAD_TO_SIGMA * median(np.abs(values - median(values)))


def theil_sen(values: np.ndarray) -> float:
    """Return the median slope over all pairs, per step.

    As ``scipy.stats.theilslopes``, without its intercept and interval, which cost ten times the slope itself.
    """
    return float(np.median(_slopes(values[None, :])))


def _slopes(rows: np.ndarray) -> np.ndarray:
    """Return, for each row, the slopes of its pairs; the same pairs in every row."""
    n = rows.shape[1]
    if n * (n - 1) // 2 > _EXACT_PAIRS:
        generator = np.random.default_rng(0)
        first = generator.integers(0, n, _EXACT_PAIRS)
        second = (first + generator.integers(1, n, _EXACT_PAIRS)) % n
        return (rows[:, second] - rows[:, first]) / (second - first)  # type: ignore[no-any-return]
    parts = [(rows[:, step:] - rows[:, :-step]) / step for step in range(1, n)]
    return np.concatenate(parts, axis=1)


def trend(values: np.ndarray) -> tuple[float, Test]:
    """Return the drift over the whole series as a share of its median, and Kendall's test against execution order."""
    n = len(values)
    effect = theil_sen(values) * (n - 1) / median(values)
    tau = stats.kendalltau(np.arange(n), values)
    return effect, Test(_real(tau.pvalue), 2 / math.factorial(min(n, 100)))


def two_groups(group: np.ndarray, base: np.ndarray) -> tuple[float, Test]:
    """Return ``median(group) / median(base) - 1`` and the Mann-Whitney test.

    Under eight values on a side without ties the test is exact, and its least p is ``2 / C(n, k)``.
    """
    effect = median(group) / median(base) - 1
    if np.ptp(np.concatenate([group, base])) == 0:
        return effect, Test(1.0, least_rank_sum_p(len(group), len(base)))
    found = stats.mannwhitneyu(group, base, alternative="two-sided", method="auto")
    return effect, Test(_real(found.pvalue), least_rank_sum_p(len(group), len(base)))


def least_rank_sum_p(first: int, second: int) -> float:
    """Return the smallest two-sided p that a rank-sum test of these sizes can have."""
    return min(1.0, 2 / math.comb(first + second, first))


def lag_1(values: np.ndarray, batches: np.ndarray) -> tuple[float, Test, int]:
    """Return the rank autocorrelation of neighbours within batches, its test, and the number of neighbours.

    Each batch's median is removed, then one slope for the whole series: a slope for each short batch would make rho
    strongly negative in independent data. What bias remains in short series is removed by comparing rho with what
    shuffles inside the batches give; the p-value is that of a normal law with the shuffles' mean and deviation, as
    their own smallest p, 1/400, could never pass a large family.
    """
    batches = np.unique(batches, return_inverse=True)[1]
    neighbours = np.flatnonzero(batches[1:] == batches[:-1])
    pairs = len(neighbours)
    rho = float(_lag_rho(values[None, :], batches, neighbours)[0])
    if pairs < 2 or math.isnan(rho):  # noqa: PLR2004 - a correlation needs two
        return 0.0, Test(1.0, 1.0), pairs
    mean, deviation = 0.0, 1 / math.sqrt(pairs - 1)
    if len(values) <= _FEW:
        shuffled = _lag_rho(_shuffles(values, batches), batches, neighbours)
        mean, deviation = float(np.nanmean(shuffled)), float(np.nanstd(shuffled)) or deviation
    p = 2 * stats.norm.sf(abs(rho - mean) / deviation)
    return rho, Test(_real(p), _real(2 * stats.norm.sf((1 - abs(mean)) / deviation))), pairs


def _shuffles(values: np.ndarray, batches: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng(0)
    rows = np.tile(values, (_SHUFFLES, 1))
    for batch in range(batches.max() + 1):
        inside = np.flatnonzero(batches == batch)
        rows[:, inside] = generator.permuted(rows[:, inside], axis=1)
    return rows


def _lag_rho(rows: np.ndarray, batches: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    residuals = rows.astype(float).copy()
    for batch in range(batches.max() + 1):
        inside = np.flatnonzero(batches == batch)
        residuals[:, inside] -= np.median(residuals[:, inside], axis=1, keepdims=True)
    slopes = np.median(_slopes(residuals), axis=1, keepdims=True)
    residuals -= slopes * np.arange(rows.shape[1])
    first = stats.rankdata(residuals[:, neighbours], axis=1)
    second = stats.rankdata(residuals[:, neighbours + 1], axis=1)
    first -= first.mean(axis=1, keepdims=True)
    second -= second.mean(axis=1, keepdims=True)
    scale = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (first * second).sum(axis=1) / scale  # type: ignore[no-any-return]


def residual_spread(values: np.ndarray, batches: np.ndarray) -> float:
    """Return the robust sigma of a series with its batch medians removed, as a share of its median."""
    residuals = values.astype(float).copy()
    for batch in np.unique(batches):
        residuals[batches == batch] -= np.median(values[batches == batch])
    return robust_sigma(residuals) / median(values)


def runs_test(is_high: np.ndarray) -> tuple[bool, Test]:
    """Return whether two kinds cluster in order (fewer runs than expected), and the Wald-Wolfowitz test.

    Normal approximation, with a continuity correction under 50 values.
    """
    n, high = len(is_high), int(np.count_nonzero(is_high))
    low = n - high
    if not high or not low:
        return False, Test(1.0, 1.0)
    runs = 1 + int(np.count_nonzero(is_high[1:] != is_high[:-1]))
    expected = 2 * high * low / n + 1
    variance = (expected - 1) * (expected - 2) / (n - 1)
    correction = 0.5 if n < _SMALL_RUNS else 0.0

    def p_of(count: float) -> float:
        distance = max(0.0, abs(count - expected) - correction)
        return 1.0 if variance <= 0 else _real(2 * stats.norm.sf(distance / math.sqrt(variance)))

    return runs < expected, Test(p_of(runs), p_of(2))


def _real(value: object) -> float:
    """Return a p-value as a float; a constant series has none, which is p = 1."""
    number = float(value)  # type: ignore[arg-type]
    return 1.0 if math.isnan(number) else number
