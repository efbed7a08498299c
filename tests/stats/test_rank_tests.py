from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sandyard.stats import discovery, power, rank_tests, tiers


def noise(seed, n, sigma=0.1):
    return np.random.default_rng(seed).normal(1, sigma, n) * 100


@pytest.mark.parametrize("n", [3, 20, 61, 200])
def test_theil_sen_equals_scipys(n):
    values = noise(n, n)
    assert rank_tests.theil_sen(values) == pytest.approx(stats.theilslopes(values, np.arange(n)).slope)


def test_a_long_series_is_sampled_and_still_finds_its_slope():
    values = 100 + 0.01 * np.arange(6000) + noise(1, 6000, 0.01)
    assert rank_tests.theil_sen(values) == pytest.approx(0.01, rel=0.02)


def test_trend_by_hand():
    effect, test = rank_tests.trend(np.array([10.0, 11, 12, 13, 14]))
    assert effect == pytest.approx(4 / 12)
    assert test.p == pytest.approx(2 / math.factorial(5))
    assert test.least_p == pytest.approx(2 / 120)
    assert rank_tests.trend(np.full(20, 3.0))[1].p == 1


def test_five_against_five_can_never_be_below_0_0079():
    _, test = rank_tests.two_groups(np.arange(5.0) + 100, np.arange(5.0) + 1)
    assert test.p == pytest.approx(2 / 252)
    assert test.least_p == pytest.approx(2 / 252)
    effect, _ = rank_tests.two_groups(np.array([3.0] * 5), np.array([2.0] * 7))
    assert effect == pytest.approx(0.5)


def test_runs_by_hand():
    clustered = np.array([True] * 10 + [False] * 10)
    fewer, test = rank_tests.runs_test(clustered)
    # expected 11 runs, variance 10 * 9 / 19, two runs, correction 0.5
    assert fewer
    assert test.p == pytest.approx(2 * stats.norm.sf(8.5 / math.sqrt(90 / 19)))
    alternating, test = rank_tests.runs_test(np.arange(20) % 2 == 0)
    assert not alternating
    assert test.p < 0.001


def test_lag_1_in_short_batches_does_not_cry_wolf():
    """Five trials a batch: rho leans to -0.2 by itself, and what the shuffles show is not held against the series."""
    batches = np.repeat(np.arange(4), 5)
    rejected = sum(rank_tests.lag_1(noise(seed, 20), batches)[1].p < 0.05 for seed in range(200))
    assert rejected <= 20  # 10 expected


def test_lag_1_finds_neighbours_that_follow_each_other():
    generator = np.random.default_rng(3)
    series = np.zeros(60)
    for i in range(1, 60):
        series[i] = 0.9 * series[i - 1] + generator.normal(0, 0.1)
    rho, test, pairs = rank_tests.lag_1(100 * np.exp(series), np.repeat(np.arange(4), 15))
    assert pairs == 56
    assert rho > 0.5
    assert test.p < 1e-3
    assert rank_tests.lag_1(np.full(20, 1.0), np.zeros(20))[1].p == 1


def test_benjamini_hochberg_by_hand():
    assert discovery.q_values([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert discovery.q_values([]) == []
    assert discovery.threshold([0.001, 0.5, 0.6, 0.7]) == pytest.approx(0.05 / 4)


def test_split_by_hand():
    found = tiers.split(np.array([1.0, 2, 3, 11, 12, 13]))
    assert found is not None
    assert found.ashman_d == pytest.approx(math.sqrt(2) * 10 / math.sqrt(2))
    assert found.ratio == pytest.approx(6)
    assert (found.smaller, found.threshold) == (3, 3)
    assert tiers.split(np.array([1.0, 2, 3])) is None
    assert tiers.split(np.full(20, 2.0)) is None
    assert [tiers.floor(n) for n in (7, 8, 20, 40, 100, 200)] == [None, 6.3, 5.0, 4.2, 3.6, 3.4]


def test_one_mode_seldom_reaches_the_floor():
    for n in (20, 100, 200):
        reached = 0
        for seed in range(200):
            found = tiers.split(noise(seed, n))
            assert found is not None
            reached += found.ashman_d >= (tiers.floor(n) or 0)
        assert reached <= 6  # at most 1.4% by the table of the floors


def test_the_detectable_effect_is_what_simulation_says_in_small_samples():
    """Noise of 10% and a family of 40: the formula says 31% for a drift over 20 trials, and 47% is true."""
    found = power.detectable_trend(noise(5, 20), alpha=0.00125, least=0.08)
    assert found is not None
    assert 0.36 < found < 0.62
    assert power.detectable_difference(noise(5, 10), 5, alpha=0.00125, least=0.15) is None


def test_formula_and_simulation_agree_in_large_samples(monkeypatch):
    values = noise(6, 100)
    formula = power.detectable_trend(values, alpha=0.00125, least=0.01)
    difference = power.detectable_difference(values, 25, alpha=0.00125, least=0.01)
    monkeypatch.setattr(power, "SIMULATE_BELOW", 1000)
    assert power.detectable_trend(values, alpha=0.00125, least=0.01) == pytest.approx(formula, rel=0.25)
    assert power.detectable_difference(values, 25, alpha=0.00125, least=0.01) == pytest.approx(difference, rel=0.25)


def test_detectable_lag():
    assert power.detectable_lag(2, alpha=0.05, least=0.5) is None
    assert power.detectable_lag(8, alpha=0.0001, least=0.5) is None
    assert power.detectable_lag(101, alpha=0.05, least=0.5) == 0.5
