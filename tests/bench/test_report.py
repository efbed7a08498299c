"""Numbers, scores, comparison and the forms of the report, on trials whose answers are worked by hand."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from html.parser import HTMLParser

import pytest

from sandyard.bench.compare import compare
from sandyard.bench.cost import Pricer
from sandyard.bench.records import BenchmarkInfo, Manifest, Metric, Outcome, ProviderInfo
from sandyard.bench.report import to_html, to_json, to_markdown
from sandyard.bench.report.view import make_report
from sandyard.bench.scores import combine, rank, unit_scores
from sandyard.bench.series import Key
from sandyard.bench.summary import derived_view, stage_widths
from sandyard.errors import BenchError, IncomparableRunsError
from tests.bench.series import manifest, noise, trial


def workload(units=("short", "long"), providers=("a", "b", "c"), floor=1) -> Manifest:
    base = manifest(providers, units=units)
    info = base.benchmarks[0].model_copy(update={"section": "workload", "floor": floor})
    return base.model_copy(update={"benchmarks": [info]})


def runs(values: dict[tuple[str, str], float], **changes):
    """One trial for each provider and unit."""
    return [
        trial(i, value, provider=provider, **{"unit": unit, "id": f"{provider}{unit}", **changes})
        for i, ((provider, unit), value) in enumerate(values.items())
    ]


class TestWorkloads:
    def test_geometric_mean_by_hand(self):
        trials = runs({("a", "short"): 2.0, ("a", "long"): 8.0, ("b", "short"): 1.0, ("b", "long"): 25.0})
        summary = make_report(workload(), trials).summary
        values = {value.provider: value.value for value in summary.workloads}
        assert values == {"a": pytest.approx(4.0), "b": pytest.approx(5.0)}
        assert summary.composites == {"a": pytest.approx(4.0), "b": pytest.approx(5.0)}

    def test_a_unit_that_failed_takes_the_worst_of_the_others_and_says_so(self):
        trials = runs({("a", "short"): 2.0, ("a", "long"): 8.0, ("b", "short"): 2.0, ("c", "long"): 18.0})
        values = {value.provider: value for value in make_report(workload(), trials).summary.workloads}
        assert values["b"].value == pytest.approx(6.0)  # sqrt(2 x 18)
        assert values["b"].substituted == ("long",)
        assert values["c"].value == pytest.approx(6.0)  # sqrt(2 x 18)

    def test_a_provider_with_no_unit_has_no_value_and_a_unit_nobody_has_does_not_count(self):
        trials = runs({("a", "short"): 3.0, ("b", "short"): 6.0})
        report = make_report(workload(), trials)
        assert {value.provider: value.value for value in report.summary.workloads} == {
            "a": pytest.approx(3.0),
            "b": pytest.approx(6.0),
        }
        assert report.scores.levels["time"] == {"a": 100.0, "b": 50.0}


class TestScores:
    def test_by_hand(self):
        assert unit_scores({"a": (2.0, "lower"), "b": (8.0, "lower")}) == {"a": 100, "b": 25}
        assert unit_scores({"a": (2.0, "higher"), "b": (8.0, "higher")}) == {"a": 25, "b": 100}
        assert combine([{"a": 100, "b": 50}, {"a": 40}]) == {"a": 70, "b": 25}
        assert combine([]) == {}

    def test_ties_share_the_better_rank(self):
        assert rank({"a": 90, "b": 80, "c": 80.0000001, "d": 10}) == {"a": 1, "b": 2, "c": 2, "d": 4}

    def test_a_missing_unit_adds_nothing(self):
        trials = runs({("a", "short"): 2.0, ("a", "long"): 8.0, ("b", "short"): 2.0})
        assert make_report(workload(), trials).scores.levels["time"] == {"a": 100.0, "b": 50.0}


class TestLabels:
    def test_below_the_floor_is_not_ranked(self):
        report = make_report(manifest(), [trial(i, v) for i, v in enumerate(noise(1, 19))])
        cell = report.summary.cells[Key("p", "b", "u", "m")]
        assert (cell.status, cell.n, cell.tail and cell.tail.label) == ("Not Ranked", 19, "Slowest")
        assert report.scores.levels["operations"] == {}

    def test_failures_without_a_success(self):
        trials = [trial(i, 0, outcome="provider-failure", owner="provider", metrics={}) for i in range(3)]
        cell = make_report(manifest(), trials).summary.cells[Key("p", "b", "u", "m")]
        assert (cell.status, cell.median) == ("Provider Failures", None)

    def test_who_did_not_enter_has_its_label_and_who_was_not_run_too(self):
        base = manifest(("p", "q"))
        out = ProviderInfo(name="r", region="x", version="1", statuses={"b": "Not Offered"}, reasons={"b": "no fork"})
        report = make_report(
            base.model_copy(update={"providers": [*base.providers, out]}), [trial(i, v) for i, v in enumerate(noise(1))]
        )
        labels = {key.provider: cell.status for key, cell in report.summary.cells.items()}
        assert labels == {"p": None, "q": "Not Measured", "r": "Not Offered"}

    def test_an_implausible_value_is_left_out_of_the_numbers_only(self):
        values = noise(7)
        values[17] = 20
        report = make_report(manifest(), [trial(i, v) for i, v in enumerate(values)])
        cell = report.summary.cells[Key("p", "b", "u", "m")]
        assert (cell.n, cell.excluded) == (39, ("p-17",))
        assert len(report.trials) == 40


def test_derived_views_need_every_component():
    trials = [trial(i, 1.0, metrics={"x": 1.0 + i, "y": 10.0}) for i in range(3)] + [trial(3, 1.0, metrics={"x": 9.0})]
    found = derived_view(trials, Metric(name="m", unit="ms"), ["x", "y"])
    assert found is not None
    assert (found[0], found[1].value, found[1].n) == (12.0, 13.0, 3)
    assert derived_view(trials, Metric(name="m", unit="ms"), ["z"]) is None


def test_stage_widths_fill_the_bar():
    assert stage_widths(90.0, {"a": 20.0, "b": 40.0}) == {"a": 30.0, "b": 60.0}


def test_pooled_metrics_use_every_call_and_draw_whole_trials():
    base = manifest()
    info = base.benchmarks[0].model_copy(update={"metrics": [Metric(name="m", unit="ms", is_pooled=True)], "floor": 1})
    trials = [trial(i, 0, metrics={"m": 5.0}, calls={"m": [1.0 * i, 100.0]}) for i in range(1, 4)]
    cell = make_report(base.model_copy(update={"benchmarks": [info]}), trials).summary.cells[Key("p", "b", "u", "m")]
    assert cell.median == 3.0  # of 1, 2, 3, 100, 100, 100
    assert cell.n == 3


class TestCompare:
    def run(self, values, **changes):
        return manifest(), [trial(i, v).model_copy(update=changes) for i, v in enumerate(values)]

    def test_effect_interval_q_and_noise_stand_together(self):
        (one,), apart = compare(self.run(noise(1)), self.run(noise(2) * 1.3))
        assert apart == {}
        assert one.judgement == "worse"
        assert one.interval.low < one.effect < one.interval.high
        assert 0.2 < one.effect < 0.4
        assert one.q < 0.05
        (back,), _ = compare(self.run(noise(2) * 1.3), self.run(noise(1)))
        assert back.judgement == "better"

    def test_a_sure_but_small_difference_is_noise_and_an_unsure_one_is_nothing(self):
        (small,), _ = compare(self.run(noise(1, 400, 0.02)), self.run(noise(2, 400, 0.02) * 1.02))
        assert small.judgement == "within noise"
        (same,), _ = compare(self.run(noise(1)), self.run(noise(2)))
        assert same.judgement == "not significant"

    @pytest.mark.parametrize("field", ["procedure", "image", "region"])
    def test_another_series_is_not_compared(self, field):
        found, apart = compare(self.run(noise(1)), self.run(noise(2), **{field: "other"}))
        assert found == []
        assert f"another {field}" in next(iter(apart.values()))

    def test_nothing_in_common_is_an_error(self):
        with pytest.raises(IncomparableRunsError):
            compare(self.run(noise(1)), self.run(noise(2), provider="q"))


class TestCost:
    def test_a_trial_costs_what_its_card_says_for_the_time_it_held_sandboxes(self):
        """Ten hours are ten times one hour, on a card that charges for time only."""
        pricer = Pricer(manifest(), {"p": "e2b"})
        one, ten = pricer.cost("p", 3600.0), pricer.cost("p", 36000.0)
        assert one is not None
        assert ten is not None
        assert Decimal(one) > 0
        assert Decimal(ten) / Decimal(one) == pytest.approx(Decimal(10), rel=Decimal("0.01"))

    def test_no_card_is_blank_and_an_unknown_one_an_error(self):
        assert Pricer(manifest(), {}).cost("p", 10.0) is None
        with pytest.raises(BenchError, match="no rate card nobody"):
            Pricer(manifest(), {"p": "nobody"})

    def test_cost_per_success_is_a_mean_over_successes_and_scores_the_cheapest_100(self):
        trials = runs({("a", "short"): 2.0, ("b", "short"): 2.0})
        priced = [t.model_copy(update={"cost": "0.02" if t.provider == "a" else "0.08"}) for t in trials]
        report = make_report(workload(), priced)
        assert report.scores.levels["cost"] == {"a": 100.0, "b": 25.0}


class Strict(HTMLParser):
    """Fails on a page that reaches outside itself."""

    def handle_starttag(self, tag, attrs):
        assert tag not in {"script", "link", "iframe"}
        assert not [value for name, value in attrs if name in {"src", "href"} and value and not value.startswith("#")]


class TestForms:
    def report(self, trials=None):
        trials = trials or [trial(i, v) for i, v in enumerate(noise(1))]
        return make_report(manifest(("p", "<q>")), trials)

    def test_html_is_one_page_with_its_charts_and_escapes_what_it_prints(self):
        page = to_html(self.report())
        Strict().feed(page)
        assert page.count("<svg") == 2
        assert "<q>" not in page
        assert "&lt;q&gt;" in page

    def test_every_form_has_the_same_numbers(self):
        report = self.report()
        cell = report.summary.cells[Key("p", "b", "u", "m")]
        data = json.loads(to_json(report))
        (written,) = [c for c in data["cells"] if c["key"]["provider"] == "p"]
        assert written["median"] == cell.median
        assert (written["n"], written["interval"]["low"]) == (40, cell.interval and cell.interval.low)
        assert f"{cell.median:.3g}"[:3] in to_markdown(report)

    def test_a_hundred_thousand_trials_make_less_than_5_mb(self):
        """Charts have as many points for 2,500 trials a series as for 125: the page grows with its series only."""

        def size(n):
            base = manifest([f"p{i}" for i in range(8)])
            trials = [
                trial(i, v, n=n, provider=f"p{p}", order=p * n + i) for p in range(8) for i, v in enumerate(noise(p, n))
            ]
            return len(to_html(make_report(base, trials)))

        few, many = size(130), size(520)
        assert many < few * 1.3
        assert few * 5 < 5_000_000  # 40 series

    def test_no_number_where_nothing_was_measured(self):
        trials = [trial(i, 0, outcome="provider-failure", metrics={}) for i in range(3)]
        text = to_markdown(self.report(trials))
        assert "Provider Failures" in text
        assert not re.search(r"\| 0(\.0)? ms", text)


def test_info_of_every_outcome_is_counted():
    trials = [trial(i, 1.0, outcome=outcome, metrics={}) for i, outcome in enumerate(Outcome)]
    assert make_report(manifest(), trials).summary.outcomes["p"] == dict.fromkeys(Outcome, 1)
    assert BenchmarkInfo.model_fields["floor"].is_required()


def test_a_pair_that_fails_its_audit_has_no_number_until_it_is_explained():
    drifting = [trial(i, 100 + 2 * i) for i in range(40)]
    report = make_report(manifest(), drifting)
    cell = report.summary.cells[Key("p", "b", "u", "m")]
    assert cell.median is None
    assert "trend" in str(cell.reason)
    explained = make_report(manifest(), drifting, {"p/b/u/m": "a slower host from noon on"})
    assert explained.summary.cells[Key("p", "b", "u", "m")].median == 138


def test_the_stages_of_a_total_that_is_withheld_are_withheld_too():
    base = manifest()
    metrics = [Metric(name="m", unit="ms"), Metric(name="part", unit="ms", is_main=False, stage_of="m")]
    info = base.benchmarks[0].model_copy(update={"metrics": metrics})
    trials = [trial(i, 0, metrics={"m": 100.0 + 2 * i, "part": 5.0}) for i in range(40)]
    cells = make_report(base.model_copy(update={"benchmarks": [info]}), trials).summary.cells
    assert cells[Key("p", "b", "u", "part")].median is None
    assert "trend" in str(cells[Key("p", "b", "u", "part")].reason)
