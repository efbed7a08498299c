"""The 95% percentile bootstrap of the median: 10,000 draws of n, seed 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from sandyard.errors import InsufficientSamplesError
from sandyard.stats.ranks import percentile, rank

DRAWS = 10_000
SEED = 0
_LOW, _HIGH = Decimal("2.5"), Decimal("97.5")
_BLOCK = 2_000_000
"""Indices drawn at once; the generator gives the same numbers whatever the block (held by a test)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The central 95% of what the bootstrap gave. It covers less in small samples: 92% at 20 trials, 75% at 3."""

    low: float
    high: float
    n: int


def median_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Bound the median of independent trials.

    NumPy's ``default_rng(0)``, fresh for each call, draws indices into the values in ascending order, so that the
    interval does not depend on the order of the records.
    """
    return _central(_medians(values, np.random.default_rng(SEED)), len(values))


def ratio_interval(after: Sequence[float] | np.ndarray, before: Sequence[float] | np.ndarray) -> Interval:
    """Bound the ratio of two medians of independent trials, each side drawn by itself from one generator."""
    generator = np.random.default_rng(SEED)
    ratios = _medians(after, generator) / _medians(before, generator)
    return _central(ratios, min(len(after), len(before)))


def _medians(values: Sequence[float] | np.ndarray, generator: np.random.Generator) -> np.ndarray:
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    medians = np.empty(DRAWS)
    for start, indices in _draws(n, generator):
        middle = rank(50, n) - 1
        chosen = indices.astype(np.int32)  # partitions twice as fast
        chosen.partition(middle, axis=1)
        medians[start : start + len(chosen)] = ordered[chosen[:, middle]]
    return medians


def pooled_median_interval(trials: Sequence[Sequence[float]]) -> Interval:
    """Bound the median of all calls together, where the calls of one trial are not independent: whole trials are drawn.

    Trials are put in order of their medians first, for the same reason as in ``median_interval``.
    """
    if not trials or any(not len(calls) for calls in trials):
        raise InsufficientSamplesError(
            "there is no interval: a trial has no calls.", hint="Use trials that succeeded only."
        )
    ordered = sorted(
        (np.sort(np.asarray(calls, dtype=float)) for calls in trials), key=lambda c: (percentile(c, 50), *c)
    )
    values = np.concatenate(ordered)
    owner = np.repeat(np.arange(len(ordered)), [len(calls) for calls in ordered])
    by_value = np.argsort(values, kind="stable")
    values, owner = values[by_value], owner[by_value]
    sizes = np.array([len(calls) for calls in ordered])
    medians = np.empty(DRAWS)
    position = 0
    for _, indices in _draws(len(ordered), np.random.default_rng(SEED)):
        for row in indices:
            times = np.bincount(row, minlength=len(ordered))
            total = int(times @ sizes)
            reached = np.cumsum(times[owner])
            medians[position] = values[np.searchsorted(reached, rank(50, total))]
            position += 1
    return _central(medians, len(ordered))


def _draws(n: int, generator: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
    """Give rows of indices in blocks of bounded size, each with the number of its first row."""
    if n < 1:
        raise InsufficientSamplesError("there is no interval of no values.", hint="Run at least one trial.")
    rows = max(1, _BLOCK // n)
    for start in range(0, DRAWS, rows):
        yield start, generator.integers(0, n, (min(rows, DRAWS - start), n))


def _central(medians: np.ndarray, n: int) -> Interval:
    return Interval(percentile(medians, _LOW), percentile(medians, _HIGH), n)
