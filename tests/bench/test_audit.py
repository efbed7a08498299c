"""Each check has a series that must fail it and one that must pass; all with a fixed seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sandyard.bench.audit import Verdict, audit, audit_series
from sandyard.bench.records import HostLoad
from sandyard.bench.series import all_series
from sandyard.errors import IncomparableRunsError
from tests.bench.series import AMD, BUSY, INTEL, manifest, noise, series, trial


def finding(one, check) -> Any:
    (pair,) = audit_series([one], with_power=False).pairs
    (found,) = [f for f in pair.findings if f.check == check]
    return found


CHECKS = [
    "trend",
    "first-round",
    "round-start",
    "lag-1",
    "overlap",
    "host-saturated",
    "tier-split",
    "outliers",
    "cache-flags",
    "host-type",
]


def beside(i):
    return {"others_mean": 2.0 if i % 2 else 0.0}


def hot(i):
    return {"host": BUSY} if i % 3 == 0 else {}


def opening(i):
    """The first three of each ten run at once: they start before any of their round ends."""
    start = (i // 10) * 10 + (0 if i % 10 < 3 else i % 10)
    return {"started_s": float(start), "ended_s": start + 0.9}


def kinds(i):
    return {"placement": INTEL if i % 4 == 0 else AMD}


def walk():
    generator, values = np.random.default_rng(9), [0.0]
    for _ in range(59):
        values.append(0.85 * values[-1] + generator.normal(0, 0.12))
    return 100 * np.exp(values)


FAILING = {
    "trend": series(noise(1) * np.linspace(0.85, 1.15, 40)),
    "first-round": series(noise(2) * np.where(np.arange(40) < 10, 1.4, 1)),
    "round-start": series(noise(3) * np.where(np.arange(40) % 10 < 3, 1.4, 1), opening),
    "lag-1": series(walk(), rounds=2),
    "overlap": series(noise(4) * np.where(np.arange(40) % 2, 1.3, 1), beside),
    "host-saturated": series(noise(5) * np.where(np.arange(40) % 3 == 0, 1.3, 1), hot),
    "tier-split": series(noise(6) * np.where(np.arange(40) // 10 == 2, 2.2, 1)),
    "outliers": series(np.where(np.arange(40) == 17, 20, noise(7))),
}
PASSING = {
    "trend": series(noise(1)),
    "first-round": series(noise(2)),
    "round-start": series(noise(3), opening),
    "lag-1": series(noise(8, 60), rounds=2),
    "overlap": series(noise(4), beside),
    "host-saturated": series(noise(5), hot),
    "tier-split": series(noise(6)),
    "outliers": series(noise(7)),
    "cache-flags": series(noise(7), lambda i: {"flags": ["cached-read"] if i < 5 else []}),
    "host-type": series(noise(7), kinds),
}


@pytest.mark.parametrize("check", FAILING)
def test_fails(check):
    assert finding(FAILING[check], check).verdict is Verdict.FAIL


@pytest.mark.parametrize("check", PASSING)
def test_passes(check):
    assert finding(PASSING[check], check).verdict is Verdict.PASS


def test_every_check_has_both():
    assert set(PASSING) == set(CHECKS)
    assert set(FAILING) == set(CHECKS) - {"cache-flags", "host-type"}  # these two never fail


def test_the_two_that_never_fail_attach_notes():
    assert finding(series(noise(7), lambda i: {"flags": ["ceiling"] if i < 6 else []}), "cache-flags").verdict is (
        Verdict.NOTE
    )
    split = series(noise(7) * np.where(np.arange(40) % 4 == 0, 1.4, 1), kinds)
    assert finding(split, "host-type").verdict is Verdict.NOTE
    assert not audit_series([split]).failed


def test_a_small_but_sure_effect_is_a_note():
    found = finding(series(noise(1, 200, 0.02) * np.linspace(0.98, 1.02, 200)), "trend")
    assert found.q < 0.05
    assert found.verdict is Verdict.NOTE


def test_a_split_that_does_not_cluster_is_placement():
    scattered = np.random.default_rng(3).permutation(np.where(np.arange(40) < 12, 2.2, 1))
    assert finding(series(noise(6) * scattered), "tier-split").verdict is Verdict.NOTE


def test_three_spikes_do_not_hide_a_split():
    values = noise(6, 80) * np.where(np.arange(80) // 20 == 2, 2.2, 1)
    values[[5, 31, 70]] = 5000
    assert finding(series(values), "tier-split").verdict is Verdict.FAIL


class TestOutliers:
    fast = np.where(np.arange(40) == 17, 20, noise(7))

    def test_slow_spikes_stay(self):
        found = finding(series(np.where(np.arange(40) == 17, 900, noise(7))), "outliers")
        assert found.verdict is Verdict.NOTE
        assert found.excluded == ()

    def test_a_value_too_good_to_be_true_is_excluded_and_that_resolves_the_pair(self):
        one = series(self.fast)
        report = audit_series([one])
        assert report.pairs[0].excluded == ("p-17",)
        assert report.pairs[0].is_publishable
        assert report.excluded(one.key) == ("p-17",)

    def test_higher_is_better_has_its_good_side_above(self):
        found = finding(series(np.where(np.arange(40) == 17, 900, noise(7)), better="higher"), "outliers")
        assert found.excluded == ("p-17",)

    def test_a_warm_pool_stays_unless_a_fact_ties_it_to_an_earlier_trial(self):
        assert finding(series(self.fast, has_create=True), "outliers").excluded == ()
        tied = series(self.fast, lambda i: {"tied_to": "p-3"} if i == 17 else {}, has_create=True)
        assert finding(tied, "outliers").excluded == ("p-17",)

    def test_its_own_flag_explains_it(self):
        found = finding(series(self.fast, lambda i: {"flags": ["cached-read"]} if i == 17 else {}), "outliers")
        assert found.verdict is Verdict.NOTE

    def test_many_are_not_isolated(self):
        values = np.where(np.arange(40) % 8 == 0, 20, noise(7))
        assert finding(series(values), "outliers").verdict is Verdict.PASS


class TestSaturation:
    def test_few_hot_trials_fail_by_their_share_alone(self):
        mostly = series(noise(5, 16), lambda i: {"host": BUSY} if i < 4 else {})
        assert finding(mostly, "host-saturated").verdict is Verdict.FAIL
        one = series(noise(5), lambda i: {"host": BUSY} if i == 4 else {})
        assert finding(one, "host-saturated").verdict is Verdict.NOTE

    def test_faster_when_hot_never_fails(self):
        faster = series(noise(5) * np.where(np.arange(40) % 3 == 0, 0.7, 1), hot)
        assert finding(faster, "host-saturated").verdict is Verdict.NOTE

    @pytest.mark.parametrize(
        ("load", "expected"),
        [
            (HostLoad(), None),
            (HostLoad(peak_cpu_share=0.9), True),
            (HostLoad(peak_cpu_share=0.89), False),
            (HostLoad(throttled_periods=1), True),
            (HostLoad(pressure_avg10=10.0), True),
            (HostLoad(available_kib=262_143), True),
            (HostLoad(pressure_avg10=0.0, available_kib=1), False),  # pressure is known, so memory is not asked
        ],
    )
    def test_thresholds(self, load, expected):
        assert load.is_saturated() is expected


def test_what_was_not_recorded_is_unassessed_with_the_reason():
    bare = series(noise(1), lambda i: {"host": None, "placement": None, "others_mean": None})
    for check in ("overlap", "host-saturated", "host-type"):
        found = finding(bare, check)
        assert found.verdict is Verdict.UNASSESSED
        assert "not recorded" in found.text
    report = audit_series([series(noise(1, 14))])
    assert report.pairs == ()
    assert "14 successful trials" in report.unassessed[0][1]


def test_what_no_data_could_fail_says_so():
    """Five against five in a large family: p cannot be below 2/252."""
    many = [series(noise(seed, 15), lambda i: {"round": 0 if i < 5 else 1}) for seed in range(30)]
    report = audit_series(many)
    for pair in report.pairs:
        (first,) = [f for f in pair.findings if f.check == "first-round"]
        assert first.test is not None
        assert first.verdict is Verdict.CANNOT or first.test.least_p < report.threshold
        assert (first.detectable is None) or first.verdict is not Verdict.CANNOT
    tight = audit_series(
        [series(noise(seed, 15), lambda i: {"round": 0 if i < 10 else 1}) for seed in range(300)], with_power=False
    )
    assert any(f.verdict is Verdict.CANNOT for pair in tight.pairs for f in pair.findings)


def test_one_family_is_corrected_together():
    """A drift that fails alone is not held against one of many."""
    weak = noise(21, 20, 0.1) * np.linspace(0.9, 1.1, 20)
    alone = finding(series(weak), "trend")
    crowd = audit_series([series(weak), *(series(noise(100 + i, 20, 0.1)) for i in range(30))])
    together = next(f for f in crowd.pairs[0].findings if f.check == "trend")
    assert together.test == alone.test
    assert together.q > alone.q


def test_an_explanation_resolves_a_failure():
    one = FAILING["trend"]
    assert audit_series([one]).failed
    assert not audit_series([one], {str(one.key): "the provider announced a slower tier that day"}).failed


def test_clean_runs_fail_in_at_most_5_of_100():
    failed = 0
    for seed in range(100):
        pairs = [
            series(noise(1000 * seed + i, 40, 0.1), lambda i: {**beside(i), **hot(i), **kinds(i)}) for i in range(6)
        ]
        failed += bool(audit_series(pairs, with_power=False).failed)
    assert failed <= 5


@pytest.mark.parametrize("field", ["region", "procedure", "image", "job_host"])
def test_mixed_series_are_refused(field):
    trials = [trial(0, 1.0), trial(1, 1.0).model_copy(update={field: "another"})]
    with pytest.raises(IncomparableRunsError, match=field.replace("_", " ")):
        audit(manifest(), trials)


def test_failed_trials_have_no_value():
    trials = [trial(i, 100.0) for i in range(3)] + [trial(3, 0.0, outcome="provider-failure", metrics={})]
    (one,) = all_series(manifest(), trials)
    assert len(one.values) == 3
