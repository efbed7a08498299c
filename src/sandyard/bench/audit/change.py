"""Where a series changes: not a check, but what makes a failing trend or tier split something to look into."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sandyard.bench.series import Key, Series
from sandyard.stats import median

LEAST_EFFECT = 0.08
_LEAST_ROUNDS = 4
_LEAST_SIGMAS = 5.0
"""The best of all cuts is looked for, so that one must be far beyond chance."""


@dataclass(frozen=True, slots=True)
class Change:
    """A step between two rounds."""

    key: Key
    round: int
    """The first round after it."""
    batch: str
    effect: float
    """Median after over median before, minus 1."""


def locate(series: Series) -> Change | None:
    """Return the cut between rounds that the rank-sum statistic is largest for; None where none stands out.

    Two rounds at least on each side, so that one odd round is not a change.
    """
    rounds = series.rounds
    numbers = np.unique(rounds)
    if len(numbers) < _LEAST_ROUNDS:
        return None
    ranks = stats.rankdata(series.values)
    n = len(ranks)
    best, at = 0.0, None
    for number in numbers[2:-1]:
        after = rounds >= number
        m = int(after.sum())
        spread = math.sqrt(m * (n - m) * (n + 1) / 12)
        sigmas = abs(ranks[after].sum() - m * (n + 1) / 2) / spread
        if sigmas > best:
            best, at = sigmas, number
    if at is None or best < _LEAST_SIGMAS:
        return None
    after = rounds >= at
    effect = median(series.values[after]) / median(series.values[~after]) - 1
    if abs(effect) < LEAST_EFFECT:
        return None
    first = series.trials[int(np.argmax(after))]
    return Change(series.key, int(at), first.batch, effect)


def shared(changes: Iterable[Change]) -> tuple[int, list[Change]] | None:
    """Return the round at which most series change in the same direction, where at least two providers do.

    Providers do not change together; what changes them together is the harness, the network or the host.
    """
    items = list(changes)
    counts = Counter((change.round, change.effect > 0) for change in items)
    for (number, rises), _ in counts.most_common(1):
        together = [change for change in items if change.round == number and (change.effect > 0) is rises]
        if len({change.key.provider for change in together}) > 1:
            return number, together
    return None
