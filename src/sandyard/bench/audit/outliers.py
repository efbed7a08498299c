"""Outliers: isolated extreme values. Slow ones stay; one that is too good to be true is left out, with its reason."""

from __future__ import annotations

import numpy as np

from sandyard.bench.audit.finding import Finding, Verdict, unassessed
from sandyard.bench.series import Series
from sandyard.stats import median, rank_tests

LEAST_TRIALS = 8
SIGMAS = 6.0
TIMES = 2.0
SHARE = 0.05
NAME = "outliers"
_EXPLAINS = {"ceiling", "cached-read", "cpu-bound", "throttled"}


def isolated(values: np.ndarray) -> np.ndarray:
    """Say of each value whether it is isolated: beyond 6 robust sigmas, twice away, and in little company.

    Where the robust sigma is 0, only "twice away" counts.
    """
    if len(values) < LEAST_TRIALS:
        return np.zeros(len(values), dtype=bool)
    middle = median(values)
    far = np.abs(values - middle) > SIGMAS * rank_tests.robust_sigma(values)
    far &= (values >= TIMES * middle) | (values <= middle / TIMES)
    return far if far.sum() <= max(1, SHARE * len(values)) else np.zeros(len(values), dtype=bool)


def check(series: Series) -> Finding:
    """Keep and report spikes on the worse side; exclude values on the better side that nothing explains."""
    if len(series.values) < LEAST_TRIALS:
        return unassessed(NAME, f"{len(series.values)} trials: {LEAST_TRIALS} needed")
    extreme = isolated(series.values)
    if not extreme.any():
        return Finding(NAME, "no isolated values", Verdict.PASS)
    lower = series.metric.better == "lower"
    middle = median(series.values)
    excluded, notes = [], []
    for index in np.flatnonzero(extreme):
        trial, value = series.trials[index], series.values[index]
        if (value < middle) is not np.bool_(lower):
            notes.append(f"{trial.id} is {value / middle:.1f} times the median and stays")
        elif series.has_create and trial.tied_to is None:
            notes.append(f"{trial.id} is {value / middle:.2f} of the median: the provider's warm pool, and stays")
        elif _EXPLAINS & set(trial.flags):
            notes.append(f"{trial.id} is explained by its own check: {', '.join(sorted(trial.flags))}")
        else:
            excluded.append(trial.id)
            why = f" and its sandbox is that of {trial.tied_to}" if trial.tied_to else ""
            notes.append(f"{trial.id} is implausible at {value / middle:.2f} of the median{why}: excluded")
    verdict = Verdict.FAIL if excluded else Verdict.NOTE
    return Finding(NAME, "; ".join(notes), verdict, excluded=tuple(excluded))
