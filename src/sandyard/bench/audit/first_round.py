"""First round: its trials against those of the later rounds."""

from __future__ import annotations

import numpy as np

from sandyard.bench.audit.finding import LEAST_GROUP, Finding, percent, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

MINIMUM = 0.15
NAME = "first-round"


def members(series: Series) -> np.ndarray:
    """Say of each trial whether it is of the first round."""
    rounds = series.rounds
    return np.asarray(rounds == rounds.min())


def check(series: Series) -> Finding:
    """Compare them, with at least 5 trials on each side."""
    first = members(series)
    if min(first.sum(), (~first).sum()) < LEAST_GROUP:
        return unassessed(NAME, f"{first.sum()} trials in the first round and {(~first).sum()} later: 5 and 5 needed")
    effect, test = rank_tests.two_groups(series.values[first], series.values[~first])
    text = f"first round {percent(effect)} against later rounds ({first.sum()} and {(~first).sum()} trials)"
    return Finding(NAME, text, effect=effect, minimum=MINIMUM, is_large=abs(effect) >= MINIMUM, test=test)
