"""Overlap: trials beside others of their batch against trials alone."""

from __future__ import annotations

import numpy as np

from sandyard.bench.audit.finding import LEAST_GROUP, Finding, percent, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

MINIMUM = 0.15
BESIDE = 1.0
ALONE = 0.1
NAME = "overlap"


def groups(series: Series) -> tuple[np.ndarray, np.ndarray] | None:
    """Say of each trial whether it ran beside others and whether alone; None where that was not recorded."""
    if any(trial.others_mean is None for trial in series.trials):
        return None
    others = np.array([trial.others_mean for trial in series.trials], dtype=float)
    return others >= BESIDE, others <= ALONE


def check(series: Series) -> Finding:
    """Compare them, with at least 5 trials on each side."""
    found = groups(series)
    if found is None:
        return unassessed(NAME, "how many trials ran beside each was not recorded")
    beside, alone = found
    if min(beside.sum(), alone.sum()) < LEAST_GROUP:
        return unassessed(NAME, f"{beside.sum()} trials beside others and {alone.sum()} alone: 5 and 5 needed")
    relative = series.over_medians(series.batches)
    effect, test = rank_tests.two_groups(relative[beside], relative[alone])
    text = f"beside others {percent(effect)} against alone ({beside.sum()} and {alone.sum()} trials)"
    return Finding(NAME, text, effect=effect, minimum=MINIMUM, is_large=abs(effect) >= MINIMUM, test=test)
