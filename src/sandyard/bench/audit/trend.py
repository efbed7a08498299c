"""Trend: drift across the order of execution."""

from __future__ import annotations

from sandyard.bench.audit.finding import Finding, percent
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

MINIMUM = 0.08


def check(series: Series) -> Finding:
    """Fit a Theil-Sen line over execution order; the drift from first to last is a share of the median."""
    effect, test = rank_tests.trend(series.values)
    text = f"drift of {percent(effect)} over {len(series.values)} trials"
    return Finding("trend", text, effect=effect, minimum=MINIMUM, is_large=abs(effect) >= MINIMUM, test=test)
