"""Whole runs on a provider that does as it is told: each outcome, each stop condition, crashes and resumption."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from sandyard.bench import clock
from sandyard.bench.audit import audit
from sandyard.bench.outcomes import BenchmarkFault, Diverged, Missed
from sandyard.bench.plan import read_plan
from sandyard.bench.records import Outcome, Trial
from sandyard.bench.run import check_resumable, unreplaced
from sandyard.bench.store import RunFolder
from sandyard.errors import BenchError, IncomparableRunsError, NotReadyError, ProviderError, SpendLimitError
from sandyard.providers import Output
from sandyard.providers.fake import FakeProvider, Reply, _Sandbox, not_ready_for
from tests.bench.harness import Probe, Second, declaration, plan, run_all, work_takes


def only(trials) -> Any:
    (one,) = trials
    return one


def timed(call) -> bool:
    return call.op == "exec" and len(call.argv) > 2 and "__SANDBOX_CLOCK" in call.argv[2]


def single(path, script, **changes) -> Trial:
    """One trial and no refill."""
    _, trials, providers = run_all(path, script, the_plan=plan(1, budget={"trials": 1}, **changes))
    assert providers["fake"].live == {} or changes
    trial: Trial = only(trials)
    return trial


class TestOutcomes:
    def test_success_after_not_ready_answers(self, tmp_path):
        trial = single(tmp_path, lambda call: not_ready_for(0.3, call))
        assert trial.outcome is Outcome.SUCCESS
        answers = [attempt.answer for attempt in trial.readiness]
        # 20, 30, 45, 67, 101, 152 ms: six waits reach 300 ms, give or take their jitter
        assert answers[-1] == "ready"
        assert set(answers[:-1]) == {"not-ready"}
        assert 6 <= len(answers) <= 8

    def test_never_ready(self, tmp_path):
        trial = single(tmp_path, lambda call: not_ready_for(11, call))
        assert (trial.outcome, trial.owner, trial.failed_step) == (Outcome.PROVIDER_FAILURE, "provider", "ready")
        assert trial.readiness[-1].at_ms <= 10_000
        assert trial.readiness[-1].at_ms > 9_500
        waits = np.diff([attempt.at_ms for attempt in trial.readiness])
        assert 16 <= waits[0] <= 24
        assert waits.max() <= 240

    def test_another_error_than_not_ready_ends_at_once(self, tmp_path):
        def refuse(call):
            return Reply(error=ProviderError("HTTP 401.", hint="")) if call.op == "exec" else Reply()

        trial = single(tmp_path, refuse)
        assert trial.outcome is Outcome.PROVIDER_FAILURE
        assert len(trial.readiness) == 1

    @pytest.mark.parametrize(
        ("step_us", "outcome"),
        [
            (1_000_000, Outcome.PROVIDER_FAILURE),
            (-1_000_000, Outcome.PROVIDER_FAILURE),
            (-20_000, Outcome.SUCCESS),
            (-20_001, Outcome.PROVIDER_FAILURE),
            (1000, Outcome.PROVIDER_FAILURE),  # within the gate, but the runtime would be longer than the whole call
        ],
    )
    def test_a_stepped_clock_is_no_number(self, tmp_path, step_us, outcome):
        trial = single(tmp_path, lambda call: Reply(2.0, wall_step_us=step_us) if timed(call) else Reply())
        assert trial.outcome is outcome
        if outcome is Outcome.PROVIDER_FAILURE:
            assert "stepped clock" in str(trial.cause)
            assert trial.metrics == {}
        else:
            assert trial.metrics["runtime"] == pytest.approx(1980)

    def test_a_create_that_fails(self, tmp_path):
        def fail(call):
            return Reply(error=ProviderError("no capacity.", hint="")) if call.op == "create" else Reply()

        trial = single(tmp_path, fail)
        assert (trial.outcome, trial.failed_step, trial.owner) == (Outcome.PROVIDER_FAILURE, "create", "provider")

    def test_a_create_that_hangs(self, tmp_path):
        trial = single(tmp_path, lambda call: Reply(3600.0) if call.op == "create" else Reply())
        assert "hung for 60 s" in str(trial.cause)

    def test_a_sandbox_that_dies_during_the_command(self, tmp_path):
        trial = single(tmp_path, lambda call: Reply(kills=timed(call)))
        assert (trial.outcome, trial.failed_step) == (Outcome.PROVIDER_FAILURE, "work")

    def test_garbage_for_the_clock_line_is_a_benchmark_error(self, tmp_path):
        trial = single(tmp_path, lambda call: Reply(clock_line="__SANDBOX_CLOCK now then"))
        assert (trial.outcome, trial.owner) == (Outcome.BENCHMARK_ERROR, "benchmark")
        assert trial.metrics == {}

    def test_a_command_that_is_too_slow_in_a_sandbox_that_answers_is_excluded(self, tmp_path):
        trial = single(tmp_path, lambda call: Reply(500.0 if timed(call) else 0.0))
        assert trial.outcome is Outcome.EXCLUDED
        assert trial.owner is None

    def test_a_destroy_that_never_confirms(self, tmp_path):
        _, trials, _ = run_all(tmp_path, lambda call: Reply(stays=call.op == "destroy"), the_plan=plan(4))
        assert {trial.outcome for trial in trials} == {Outcome.PROVIDER_FAILURE}
        assert not any(trial.cleanup_confirmed for trial in trials)
        assert all(trial.attempt == 1 for trial in trials)  # and no refill can make it good

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [(Diverged("reward 0"), Outcome.EXCLUDED), (Missed("no O_DIRECT"), Outcome.MISSED)],
    )
    def test_what_the_procedure_says(self, tmp_path, error, outcome):
        class Ends(Probe):
            async def run(self, session, unit):
                raise error

        _, trials, _ = run_all(tmp_path, the_plan=plan(1, budget={"trials": 1}), benchmarks={"probe": Ends()})
        assert only(trials).outcome is outcome
        assert only(trials).owner is None

    def test_a_bug_of_ours_stops_the_unit_and_is_not_held_against_the_provider(self, tmp_path):
        class Buggy(Probe):
            async def run(self, session, unit):
                raise ZeroDivisionError("ours")

        _, trials, _ = run_all(tmp_path, the_plan=plan(8), benchmarks={"probe": Buggy()})
        assert only(trials).outcome is Outcome.BENCHMARK_ERROR

    def test_only_declared_steps_may_be_timed(self, tmp_path):
        class Sneaks(Probe):
            async def run(self, session, unit):
                async with session.span("warm-up"):
                    pass

        _, trials, _ = run_all(tmp_path, the_plan=plan(1), benchmarks={"probe": Sneaks()})
        assert "not declared" in only(trials).cause


class TestStops:
    def reason(self, path) -> str:
        return str(only([line["reason"] for line in RunFolder(path).dicts("batches.jsonl") if "reason" in line]))

    def test_lost_trials_are_refilled_and_stay_in_the_data(self, tmp_path):
        def sometimes(call):
            failing = call.op == "create" and call.number in {1, 5}
            return Reply(error=ProviderError("no capacity.", hint="")) if failing else Reply()

        _, trials, _ = run_all(tmp_path, sometimes, the_plan=plan(8))
        outcomes = Counter(trial.outcome for trial in trials)
        assert outcomes == {Outcome.SUCCESS: 8, Outcome.PROVIDER_FAILURE: 2}
        lost = {trial.id for trial in trials if trial.outcome is not Outcome.SUCCESS}
        assert {trial.replaces for trial in trials if trial.replaces} == lost
        assert unreplaced(trials) == {}

    def test_two_fruitless_rounds(self, tmp_path):
        def fail(call):
            return Reply(error=ProviderError("no.", hint="")) if call.op == "create" and call.number >= 4 else Reply()

        _, trials, _ = run_all(tmp_path, fail, the_plan=plan(8))
        assert self.reason(tmp_path) in {
            "two refill rounds in a row added no success",
            "16 attempts, twice the scheduled 8",
        }
        assert len(trials) <= 16

    def test_never_more_than_twice_the_attempts(self, tmp_path):
        _, trials, _ = run_all(
            tmp_path,
            lambda call: Reply(error=ProviderError("no.", hint="") if call.op == "create" else None),
            the_plan=plan(5),
        )
        assert len(trials) == 10
        assert "twice the scheduled 5" in self.reason(tmp_path)
        assert unreplaced(trials)["fake", "probe", "all"] == 10

    def test_budget(self, tmp_path):
        fails = lambda call: Reply(error=ProviderError("no.", hint="") if call.op == "create" else None)  # noqa: E731
        _, trials, _ = run_all(tmp_path, fails, the_plan=plan(5, budget={"trials": 7}))
        assert len(trials) == 7
        assert self.reason(tmp_path) == "the run's budget is spent"

    def test_refill_time_limit(self, tmp_path):
        fails = lambda call: Reply(10, error=ProviderError("no.", hint="")) if call.op == "create" else Reply()  # noqa: E731
        _, trials, _ = run_all(tmp_path, fails, the_plan=plan(1, budget={"refill_seconds": 0.001}))
        assert len(trials) <= 2

    def test_spend_limit(self, tmp_path):
        def spent(call):
            return Reply(error=SpendLimitError("402.", hint="")) if call.op == "create" and call.number > 1 else Reply()

        _, trials, _ = run_all(tmp_path, spent, the_plan=plan(4))
        assert len(trials) == 4
        assert self.reason(tmp_path) == "402."


class TestOrder:
    def test_rounds_are_interleaved_and_shuffled_by_the_seed(self, tmp_path):
        two = plan(benchmarks=[{"name": "probe", "trials": 8}, {"name": "second", "trials": 8}])
        _, first, _ = run_all(tmp_path / "a", the_plan=two)
        _, again, _ = run_all(tmp_path / "b", the_plan=two)
        assert [trial.id for trial in first] == [trial.id for trial in again]
        assert [trial.round for trial in first] == sorted(trial.round for trial in first)
        by_round = [[trial.benchmark for trial in first if trial.round == number] for number in range(4)]
        assert all(Counter(names) == {"probe": 2, "second": 2} for names in by_round)
        orders = {
            tuple(
                t.benchmark for t in run_all(tmp_path / f"s{seed}", the_plan=two.model_copy(update={"seed": seed}))[1]
            )
            for seed in range(6)
        }
        assert len(orders) == 2

    def test_equal_concurrency_and_who_ran_beside_whom(self, tmp_path):
        _, trials, _ = run_all(
            tmp_path,
            work_takes(lambda call: 1.0, sigma=0),
            the_plan=plan(benchmarks=[{"name": "probe", "trials": 16, "concurrency": 4}]),
        )
        first = [trial for trial in trials if trial.round == 0]
        assert len(first) == 4
        assert all(trial.others_mean == pytest.approx(3, abs=0.2) for trial in first)

    def test_creates_keep_to_the_documented_rate(self, tmp_path):
        slow = FakeProvider(declaration(creates_per_minute=6))
        manifest, trials, _ = run_all(tmp_path, the_plan=plan(8), providers={"fake": slow})
        assert manifest.providers[0].create_spacing_s == 10
        starts = [trial.started_s for trial in trials]
        assert min(np.diff(starts)) >= 9.99

    def test_another_sandbox_in_the_account_stops_the_run(self, tmp_path):
        fake = FakeProvider(declaration())
        fake.live["stranger"] = _Sandbox("somebody", 0, 0.0)
        with pytest.raises(BenchError, match="not this run's"):
            run_all(tmp_path, providers={"fake": fake})


class TestDeclarations:
    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"capabilities": frozenset({"files"})}, "Not Supported"),
            ({"capabilities": frozenset({"files"}), "not_offered": frozenset({"exec"})}, "Not Offered"),
            ({"not_supported": {"probe": "a known fault"}}, "Not Supported"),
            ({"concurrent_sandboxes": 2}, "Account Limit"),
        ],
    )
    def test_who_enters_is_decided_without_a_call(self, tmp_path, changes, status):
        def never(call):
            assert call.op == "list"
            return Reply()

        fake = FakeProvider(declaration(**changes), never)
        four = plan(benchmarks=[{"name": "probe", "trials": 4, "concurrency": 4}])
        manifest, trials, _ = run_all(tmp_path, the_plan=four, providers={"fake": fake})
        assert trials == []
        assert manifest.providers[0].statuses == {"probe": status}
        assert manifest.providers[0].reasons["probe"]


class TestStopAndResume:
    def test_a_crash_in_a_trial_is_an_unknown_outcome_and_stops_refilling(self, tmp_path):
        script = work_takes(lambda call: 1.0)
        run_all(tmp_path, script, the_plan=plan(8), stop_after=4)
        records = (tmp_path / "trials.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "trials.jsonl").write_bytes(b"".join(records[:3]) + records[3][:40])  # killed while it wrote
        fake = FakeProvider(declaration(), script)
        fake.live["left"] = _Sandbox("sandyard-bench-r", 0, 0.0)
        _, trials, _ = run_all(tmp_path, the_plan=plan(8), providers={"fake": fake})
        assert fake.live == {}
        assert Counter(trial.outcome for trial in trials) == {Outcome.SUCCESS: 7, Outcome.UNKNOWN: 1}
        assert "unknown" in TestStops().reason(tmp_path)

    def test_a_finished_run_does_nothing_more(self, tmp_path):
        _, before, _ = run_all(tmp_path, the_plan=plan(4))
        _, after, _ = run_all(tmp_path, the_plan=plan(4))
        assert before == after

    def test_a_changed_plan_or_procedure_cannot_go_on(self, tmp_path):
        manifest, _, _ = run_all(tmp_path, the_plan=plan(4))
        check_resumable(manifest, plan(4), {"probe": Probe()})
        with pytest.raises(IncomparableRunsError, match="plan has changed"):
            check_resumable(manifest, plan(5), {"probe": Probe()})
        with pytest.raises(IncomparableRunsError, match="procedure"):
            check_resumable(manifest, plan(4), {"probe": Second()})


class TestRecords:
    def test_a_line_cut_in_the_middle_is_dropped_and_a_bad_one_is_an_error(self, tmp_path):
        run_all(tmp_path, the_plan=plan(4))
        path = tmp_path / "trials.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:50])
        assert len(RunFolder(tmp_path).trials()) == 4
        path.write_bytes(b'{"id": 1}\n' + whole)
        with pytest.raises(BenchError, match=r"trials.jsonl:1 is not a record"):
            RunFolder(tmp_path).trials()

    def test_every_record_has_the_procedures_hash_and_the_series_facts(self, tmp_path):
        manifest, trials, _ = run_all(tmp_path, the_plan=plan(4))
        assert {trial.procedure for trial in trials} == {Probe().procedure()} == {manifest.benchmarks[0].procedure}
        assert Probe().procedure() != Second().procedure()
        assert {trial.image for trial in trials} == {"sha256:fake"}
        assert all(json.loads(line)["job_host"] for line in (tmp_path / "trials.jsonl").read_text().splitlines())

    def test_a_folder_with_a_run_is_not_overwritten(self, tmp_path):
        manifest, _, _ = run_all(tmp_path, the_plan=plan(4))
        with pytest.raises(BenchError, match="holds a run already"):
            RunFolder.create(tmp_path, manifest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("providers: [p]\nbenchmarks: [b]\nspeed: 9\n", "speed"),
        ("providers: []\nbenchmarks: [b]\n", "providers"),
        ("providers: [p]\nbenchmarks: [{name: b, trials: 0}]\n", "trials"),
        ("providers: [p]\nproviders: [q]\nbenchmarks: [b]\n", "not YAML"),
        ("providers: [p]\nbenchmarks: [b]\nbudget: {hours: 3}\n", "hours"),
    ],
)
def test_bad_plans_are_refused(tmp_path, text, message):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(BenchError, match=message):
        read_plan(path)
    with pytest.raises(BenchError, match="there is no plan"):
        read_plan(tmp_path / "nothing.yaml")


def test_unknown_benchmarks_and_units_are_named(tmp_path):
    with pytest.raises(BenchError, match="no benchmark 'nothing'"):
        run_all(tmp_path, the_plan=plan(benchmarks=[{"name": "nothing"}]))
    with pytest.raises(BenchError, match="no unit x"):
        run_all(tmp_path, the_plan=plan(benchmarks=[{"name": "probe", "units": ["x"]}]))


class TestClock:
    def test_edges_are_exact(self):
        line = b"__SANDBOX_CLOCK 1700000001.000000 1700000001.520000 12.00 12.50 0"
        assert clock.read_span(b"noise\n" + line + b"\n") == clock.GuestSpan(520_000, 500_000, 0)
        assert clock.GuestSpan(520_000, 500_000, 0).agrees()
        assert not clock.GuestSpan(520_001, 500_000, 0).agrees()
        assert not clock.GuestSpan(-1, 0, 0).agrees()
        assert not clock.GuestSpan(0, -1, 0).agrees()

    @pytest.mark.parametrize(
        "line",
        [b"", b"__SANDBOX_CLOCK 1 2 3 4 0", b"__SANDBOX_CLOCK 1,0 2,0 3.0 4.0 0", b"\xff" * 80, b"__SANDBOX_CLOCK nan"],
    )
    def test_garbage_is_no_number(self, line):
        with pytest.raises(BenchmarkFault):
            clock.read_span(line)

    def test_quantum(self):
        assert clock.read_quantum_us(b"10.00\n10.01\n10.03\n") == 10_000
        assert clock.read_quantum_us(b"10\n11\n") is None
        assert clock.read_quantum_us(b"12378.00\n12379.00\n") == 1_000_000
        assert clock.read_quantum_us(b"") is None

    def test_a_counter_of_whole_seconds_cannot_gate(self, tmp_path):
        def coarse(call):
            if timed(call):
                return Reply(0.5, clock_line="__SANDBOX_CLOCK 100.000000 100.400000 5.00 6.00 0")
            if call.op == "exec" and call.argv[:2] == ("bash", "-c"):
                return Reply(output=Output(0, b"5.00\n6.00\n7.00\n"))
            return Reply()

        trial = single(tmp_path, coarse)
        assert trial.outcome is Outcome.SUCCESS
        assert trial.steps[-1].gate == "not-gateable"


class TestPlanted:
    """What is planted in the provider is found by a whole run and its audit."""

    def failing(self, tmp_path, seconds, trials=40, concurrency=1, seed=0, rounds=4) -> Any:
        manifest, records, _ = run_all(
            tmp_path,
            work_takes(seconds, seed=seed),
            the_plan=plan(benchmarks=[{"name": "probe", "trials": trials, "concurrency": concurrency}], rounds=rounds),
        )
        report = audit(manifest, records)
        return {finding.check for pair in report.failed for finding in pair.failures}, report

    def test_drift(self, tmp_path):
        assert "trend" in self.failing(tmp_path, lambda call: 1 + 0.01 * call.sandbox)[0]

    def test_slow_first_round(self, tmp_path):
        assert "first-round" in self.failing(tmp_path, lambda call: 1.5 if call.sandbox < 10 else 1.0)[0]

    def test_neighbour_effect(self, tmp_path):
        """Batches of three, two at a time: the third runs alone."""
        found, report = self.failing(
            tmp_path, lambda call: 1.0 + 0.5 * (call.others > 0), trials=24, concurrency=2, rounds=8
        )
        assert "overlap" in found, [f.text for f in report.pairs[0].findings]

    def test_tier_split(self, tmp_path):
        assert "tier-split" in self.failing(tmp_path, lambda call: 2.4 if 12 <= call.sandbox < 24 else 1.0)[0]

    def test_cached_read(self, tmp_path):
        """A value too good to be true is left out, and the rest may be published."""
        _, report = self.failing(tmp_path, lambda call: 0.1 if call.sandbox == 17 else 1.0)
        assert len(report.pairs[0].excluded) == 1
        assert report.pairs[0].is_publishable

    def test_clean(self, tmp_path):
        failed = sum(bool(self.failing(tmp_path / str(seed), lambda call: 1.0, seed=seed)[0]) for seed in range(5))
        assert failed <= 1


def test_not_ready_is_a_provider_error():
    assert issubclass(NotReadyError, ProviderError)


def test_ctrl_c_loses_no_trial_leaves_no_sandbox_and_can_go_on(tmp_path):
    script = work_takes(lambda call: 1.0)
    _, trials, providers = run_all(tmp_path, script, the_plan=plan(8), stop_after=4)
    assert providers["fake"].live == {}
    outcomes = [trial.outcome for trial in trials]
    assert outcomes == [Outcome.SUCCESS] * 3 + [Outcome.INTERRUPTED]
    kept = (tmp_path / "trials.jsonl").read_bytes()
    _, trials, _ = run_all(tmp_path, script, the_plan=plan(8))
    assert (tmp_path / "trials.jsonl").read_bytes().startswith(kept)
    assert Counter(trial.outcome for trial in trials) == {Outcome.SUCCESS: 8, Outcome.INTERRUPTED: 1}
    assert [trial.order for trial in trials] == sorted(trial.order for trial in trials)
