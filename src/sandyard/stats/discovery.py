"""Benjamini-Hochberg over one family of checks."""

from __future__ import annotations

from collections.abc import Sequence

from scipy import stats

Q = 0.05


def q_values(p_values: Sequence[float]) -> list[float]:
    """Return the corrected value of each p; an empty family has none. What was not tested is not in the family."""
    if not p_values:
        return []
    return [float(q) for q in stats.false_discovery_control(list(p_values), method="bh")]


def threshold(p_values: Sequence[float]) -> float:
    """Return the p at which one more check of this family would be rejected."""
    if not p_values:
        return Q
    rejected = sum(q < Q for q in q_values(p_values))
    return Q * max(1, rejected) / len(p_values)
