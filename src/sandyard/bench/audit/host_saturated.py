"""Host saturated: trials recorded while the job host was busy against those while it was not."""

from __future__ import annotations

import numpy as np

from sandyard.bench.audit.finding import LEAST_GROUP, Finding, Verdict, percent, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

MINIMUM = 0.15
SHARE = 0.25
NAME = "host-saturated"


def members(series: Series) -> np.ndarray | None:
    """Say of each trial whether the host was saturated; None where that was not recorded of all."""
    known = [None if trial.host is None else trial.host.is_saturated() for trial in series.trials]
    return None if any(value is None for value in known) else np.array(known, dtype=bool)


def check(series: Series) -> Finding:
    """Compare them; with too few on a side the share of hot trials decides. Only "slower when hot" fails."""
    hot = members(series)
    if hot is None:
        return unassessed(NAME, "the job host's load was not recorded")
    share = float(hot.mean())
    if not hot.any():
        return Finding(NAME, "no trial while the host was saturated", Verdict.PASS, effect=0.0, minimum=SHARE)
    if min(hot.sum(), (~hot).sum()) < LEAST_GROUP:
        verdict = Verdict.FAIL if share >= SHARE else Verdict.NOTE
        text = f"{share * 100:.0f}% of the trials while the host was saturated, too few on a side to compare"
        return Finding(NAME, text, verdict, effect=share, minimum=SHARE, is_large=share >= SHARE)
    effect, test = rank_tests.two_groups(series.values[hot], series.values[~hot])
    slower = effect if series.metric.better == "lower" else -effect
    text = f"hot trials {percent(effect)} against cool ones ({hot.sum()} and {(~hot).sum()} trials)"
    return Finding(NAME, text, effect=effect, minimum=MINIMUM, is_large=slower >= MINIMUM, test=test)
