from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sandyard.errors import InsufficientSamplesError
from sandyard.stats import bootstrap, median_interval, pooled_median_interval


def low_median(sample, axis):
    n = sample.shape[axis]
    return np.take(np.sort(sample, axis=axis), (n + 1) // 2 - 1, axis=axis)


def test_ends_are_within_one_rank_of_the_exact_bootstrap():
    """The median of a resample is at or below the k-th value with a binomial probability, which needs no draws."""
    for n in (5, 20, 40, 100):
        values = np.arange(1.0, n + 1)
        middle = -(-n // 2)
        at_most = stats.binom.sf(middle - 1, n, np.arange(1, n + 1) / n)
        low = int(np.searchsorted(at_most, 0.025)) + 1
        high = int(np.searchsorted(at_most, 0.975)) + 1
        found = median_interval(values)
        assert abs(found.low - low) <= 1
        assert abs(found.high - high) <= 1


def test_equals_scipys_percentile_bootstrap_of_the_same_median():
    values = np.sort(np.random.default_rng(4).lognormal(5, 0.3, 41))
    theirs = stats.bootstrap(
        (values,), low_median, n_resamples=10_000, method="percentile", vectorized=True, rng=np.random.default_rng(0)
    )
    ordered = np.sort(theirs.bootstrap_distribution)
    found = median_interval(values)
    assert (found.low, found.high) == (ordered[249], ordered[9749])


def test_the_order_of_the_records_does_not_matter():
    values = np.random.default_rng(1).normal(100, 5, 30)
    assert median_interval(values) == median_interval(values[::-1])


def test_blocks_draw_what_one_call_would(monkeypatch):
    values = np.random.default_rng(2).normal(100, 5, 33)
    whole = median_interval(values)
    monkeypatch.setattr(bootstrap, "_BLOCK", 1000)
    assert median_interval(values) == whole


def test_one_value_is_its_own_interval():
    assert median_interval([7.0]) == bootstrap.Interval(7.0, 7.0, 1)
    with pytest.raises(InsufficientSamplesError):
        median_interval([])


def test_pooled_draws_whole_trials():
    """Calls that agree inside a trial say as much as one call: the interval is that of the trials, not of the calls."""
    trials = [[float(level)] * 50 for level in range(1, 11)]
    pooled = pooled_median_interval(trials)
    assert (pooled.low, pooled.high) == (median_interval(range(1, 11)).low, median_interval(range(1, 11)).high)
    as_if_independent = median_interval([call for calls in trials for call in calls])
    assert pooled.high - pooled.low > as_if_independent.high - as_if_independent.low
    assert pooled_median_interval(trials[::-1]) == pooled


def test_pooled_median_by_brute_force():
    trials = [[3.0, 1.0], [5.0], [2.0, 9.0, 4.0]]
    generator = np.random.default_rng(0)
    ordered = sorted((sorted(t) for t in trials), key=lambda t: (t[(len(t) + 1) // 2 - 1], *t))
    medians = []
    for row in generator.integers(0, 3, (10_000, 3)):
        calls = sorted(call for i in row for call in ordered[i])
        medians.append(calls[(len(calls) + 1) // 2 - 1])
    medians.sort()
    found = pooled_median_interval(trials)
    assert (found.low, found.high) == (medians[249], medians[9749])
