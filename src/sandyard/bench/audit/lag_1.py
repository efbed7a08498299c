"""Lag 1: whether a trial follows the one before it."""

from __future__ import annotations

from sandyard.bench.audit.finding import Finding, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

LEAST_RHO = 0.5
LEAST_SPREAD = 0.08
LEAST_NEIGHBOURS = 8
NAME = "lag-1"


def check(series: Series) -> Finding:
    """Correlate the ranks of neighbours within batches; |rho| must be large, and so must what it moves."""
    batches = series.batches
    rho, test, neighbours = rank_tests.lag_1(series.values, batches)
    if neighbours < LEAST_NEIGHBOURS:
        return unassessed(NAME, f"{neighbours} neighbours within batches: {LEAST_NEIGHBOURS} needed")
    moved = abs(rho) * rank_tests.residual_spread(series.values, batches)
    text = f"rho {rho:+.2f}, which moves the metric by {moved * 100:.1f}% of its median"
    large = abs(rho) >= LEAST_RHO and moved >= LEAST_SPREAD
    return Finding(NAME, text, effect=rho, minimum=LEAST_RHO, is_large=large, test=test)
