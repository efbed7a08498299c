"""Tier split: two kinds of trial, as two kinds of hardware or a change half-way give."""

from __future__ import annotations

import numpy as np

from sandyard.bench.audit import outliers
from sandyard.bench.audit.finding import LEAST_GROUP, Finding, Verdict, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests, tiers

NOTE_RATIO = 1.3
FAIL_RATIO = 1.8
NAME = "tier-split"


def check(series: Series) -> Finding:
    """Split by least squares and hold Ashman's D against its floor; only tiers that cluster in time fail.

    Spikes are left out first: three of them would take the split to themselves and hide a real one.
    """
    values = without_spikes(series.values)
    floor = tiers.floor(len(values))
    if floor is None:
        return unassessed(NAME, f"{len(values)} trials: 8 needed")
    found = tiers.split(values)
    if found is None or found.ashman_d < floor or found.smaller < tiers.LEAST_TIER:
        d = "no split" if found is None else f"D {found.ashman_d:.1f}"
        return Finding(NAME, f"one tier ({d}, floor {floor})", Verdict.PASS)
    clusters, test = rank_tests.runs_test(values > found.threshold)
    text = (
        f"two tiers, {found.ratio:.2f} apart, {found.smaller} trials in the smaller (D {found.ashman_d:.1f}, "
        f"floor {floor}), {'clustered' if clusters else 'not clustered'} in time"
    )
    large = clusters and found.ratio >= FAIL_RATIO and found.smaller >= LEAST_GROUP
    if not large and found.ratio >= NOTE_RATIO:
        return Finding(NAME, text, Verdict.NOTE, effect=found.ratio - 1, minimum=FAIL_RATIO - 1, test=test)
    return Finding(
        NAME,
        text,
        effect=found.ratio - 1,
        minimum=FAIL_RATIO - 1,
        is_large=large,
        test=test,
        if_insignificant=Verdict.NOTE if large else Verdict.PASS,
        is_significant_alone=False,
    )


def without_spikes(values: np.ndarray) -> np.ndarray:
    """Leave isolated outliers out, and a tier of spikes where what remains splits by itself.

    Beside a real second tier nothing is isolated, as that tier is far from the median too.
    """
    values = values[~outliers.isolated(values)]
    found = tiers.split(values)
    if found is None or found.smaller > max(1, outliers.SHARE * len(values)):
        return values
    is_high = values > found.threshold
    rest = values[~is_high] if is_high.sum() == found.smaller else values[is_high]
    again, floor = tiers.split(rest), tiers.floor(len(rest))
    return rest if again is not None and floor is not None and again.ashman_d >= floor else values
