"""Round start: trials started before any of their round had finished, against the rest of the same round."""

from __future__ import annotations

import numpy as np

from sandyard.bench.audit.finding import LEAST_GROUP, Finding, percent, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

MINIMUM = 0.15
NAME = "round-start"


def members(series: Series) -> np.ndarray:
    """Say of each trial whether it opened its round."""
    opened = np.zeros(len(series.trials), dtype=bool)
    rounds = series.rounds
    starts = np.array([trial.started_s for trial in series.trials])
    ends = np.array([trial.ended_s for trial in series.trials])
    for number in np.unique(rounds):
        inside = rounds == number
        opened |= inside & (starts < ends[inside].min())
    return opened


def check(series: Series) -> Finding:
    """Compare them as ratios to the round's median, with at least 5 trials on each side."""
    opened = members(series)
    if min(opened.sum(), (~opened).sum()) < LEAST_GROUP:
        return unassessed(NAME, f"{opened.sum()} opening trials and {(~opened).sum()} others: 5 and 5 needed")
    relative = series.over_medians(series.rounds)
    effect, test = rank_tests.two_groups(relative[opened], relative[~opened])
    text = f"opening trials {percent(effect)} against the rest ({opened.sum()} and {(~opened).sum()} trials)"
    return Finding(NAME, text, effect=effect, minimum=MINIMUM, is_large=abs(effect) >= MINIMUM, test=test)
