"""Two runs side by side: effect, interval, corrected p and noise threshold together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sandyard.bench.records import Manifest, Trial
from sandyard.bench.series import Key, Series, all_series
from sandyard.errors import IncomparableRunsError
from sandyard.stats import Interval, discovery, median, median_interval, rank_tests, ratio_interval

LEAST_NOISE = 0.05
LEAST_TRIALS = 5

Judgement = Literal["better", "worse", "within noise", "not significant"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One series in both runs."""

    key: Key
    before: float
    after: float
    n: tuple[int, int]
    effect: float
    """Median after over median before, minus 1."""
    interval: Interval
    """Of the effect."""
    noise: float
    """Effects under it are not spoken of: the wider half of the two medians' intervals, and 5% at least."""
    p: float
    q: float
    judgement: Judgement


def compare(
    before: tuple[Manifest, Sequence[Trial]], after: tuple[Manifest, Sequence[Trial]]
) -> tuple[list[Comparison], dict[Key, str]]:
    """Compare every series that both runs have; what cannot be compared is listed with the reason.

    Raises:
        IncomparableRunsError: they have no series in common.
    """
    old = {series.key: series for series in all_series(*before)}
    new = {series.key: series for series in all_series(*after)}
    found, apart = [], {}
    for key in sorted(old.keys() & new.keys(), key=str):
        why = _why_apart(old[key], new[key])
        if why is None:
            found.append(_compare(old[key], new[key]))
        else:
            apart[key] = why
    if not found and not apart:
        raise IncomparableRunsError("the two runs have no series in common.", hint="Compare runs of the same plan.")
    q_values = discovery.q_values([one.p for one in found])
    return [_judge(one, q, new[one.key]) for one, q in zip(found, q_values, strict=True)], apart


def _why_apart(old: Series, new: Series) -> str | None:
    if min(len(old.values), len(new.values)) < LEAST_TRIALS:
        return f"{len(old.values)} and {len(new.values)} successful trials: {LEAST_TRIALS} each needed"
    for name in ("procedure", "image", "region", "job_host"):
        if getattr(old.trials[0], name) != getattr(new.trials[0], name):
            return f"another {name.replace('_', ' ')}: a new series"
    return None


def _compare(old: Series, new: Series) -> Comparison:
    effect, test = rank_tests.two_groups(new.values, old.values)
    ratio = ratio_interval(new.values, old.values)
    return Comparison(
        old.key,
        median(old.values),
        median(new.values),
        (len(old.values), len(new.values)),
        effect,
        Interval(ratio.low - 1, ratio.high - 1, ratio.n),
        max(LEAST_NOISE, _half_width(old), _half_width(new)),
        test.p,
        1.0,
        "not significant",
    )


def _half_width(series: Series) -> float:
    """Return the wider half of the median's interval, as a share of the median."""
    middle, interval = median(series.values), median_interval(series.values)
    return max(interval.high - middle, middle - interval.low) / middle


def _judge(one: Comparison, q: float, series: Series) -> Comparison:
    judgement: Judgement = "not significant"
    if q < discovery.Q:
        is_better = (one.effect < 0) == (series.metric.better == "lower")
        judgement = "within noise" if abs(one.effect) < one.noise else ("better" if is_better else "worse")
    return replace(one, q=q, judgement=judgement)
