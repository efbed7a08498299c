"""The importer: on real result files, where a copy lies beside the checkout, and on small ones made here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sandyard.bench.audit import audit
from sandyard.bench.importers.computesdk import read_files
from sandyard.bench.records import Outcome
from sandyard.errors import BenchError

SAMPLE = Path(__file__).parents[3] / "shared/facts/bench/computesdk-sample"
needs_sample = pytest.mark.skipif(not SAMPLE.is_dir(), reason=f"no copy of ComputeSDK's results at {SAMPLE}")


def write(path, values, *, provider="acme", summary=None, mode=None, timestamp="2026-05-01T00:00:00Z", **row):
    iterations = [{"ttiMs": 0, "error": value} if isinstance(value, str) else {"ttiMs": value} for value in values]
    body = {"provider": provider, "iterations": iterations, "summary": {"ttiMs": summary}, **row}
    if mode:
        body["mode"] = mode
    path.write_text(json.dumps({"version": "1.1", "timestamp": timestamp, "results": [body]}))
    return path


GOOD = {"median": 2.5, "p95": 4, "p99": 4}


def test_a_failed_iteration_is_a_failure_and_never_a_zero(tmp_path):
    found = read_files([write(tmp_path / "2026-05-01.json", [1, 2, "quota exceeded", 3, 4], summary=GOOD)])
    assert [trial.metrics for trial in found.trials if trial.outcome is Outcome.SUCCESS] == [
        {"tti": value} for value in (1.0, 2.0, 3.0, 4.0)
    ]
    (failure,) = [trial for trial in found.trials if trial.outcome is not Outcome.SUCCESS]
    assert (failure.outcome, failure.cause, failure.metrics) == (Outcome.PROVIDER_FAILURE, "quota exceeded", {})


def test_a_day_is_a_round_or_a_unit(tmp_path):
    days = [
        write(tmp_path / f"2026-05-0{day}.json", [1, 2, 3, 4], summary=GOOD, timestamp=f"2026-05-0{day}T00:00:00Z")
        for day in (2, 1)
    ]
    as_rounds, as_units = read_files(days), read_files(days, day_as="unit")
    assert [trial.round for trial in as_rounds.trials] == [0] * 4 + [1] * 4
    assert as_rounds.trials[0].batch.startswith("2026-05-01")
    assert {trial.unit for trial in as_rounds.trials} == {"all"}
    assert sorted({trial.unit for trial in as_units.trials}) == ["2026-05-01", "2026-05-02"]


@pytest.mark.parametrize(
    ("summary", "row", "message"),
    [
        ({"median": 9, "p95": 4, "p99": 4}, {}, "median is 9, and 2.50"),
        (GOOD, {"compositeScore": 12}, "the score is 12"),
        (GOOD, {"mode": "wishful"}, "unknown mode"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, summary, row, message):
    with pytest.raises(BenchError, match=message):
        read_files([write(tmp_path / "a.json", [1, 2, 3, 4], summary=summary, **row)])


def test_the_same_results_twice_are_refused(tmp_path):
    day = write(tmp_path / "2026-05-01.json", [1, 2, 3, 4], summary=GOOD)
    latest = Path(shutil.copy(day, tmp_path / "latest.json"))
    with pytest.raises(BenchError, match="copy of the newest day"):
        read_files([day, latest])
    with pytest.raises(BenchError, match="are the same"):
        read_files([day, Path(shutil.copy(day, tmp_path / "again.json"))])


@pytest.mark.parametrize("content", ["{", "[]", '{"results": 3}'])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(BenchError):
        read_files([path])
    with pytest.raises(BenchError):
        read_files([])


def test_staggered_windows_say_how_many_ran_beside(tmp_path):
    """Three a second each, one second apart... the middle one shares half of its two seconds with each neighbour."""
    profile = [{"launchedAt": at, "readyAt": at + 2000, "ttiMs": 2000} for at in (0, 1000, 2000)]
    summary = {"median": 2000, "p95": 2000, "p99": 2000}
    path = write(tmp_path / "s.json", [2000] * 3, summary=summary, mode="staggered", rampProfile=profile)
    assert [trial.others_mean for trial in read_files([path]).trials] == [0.5, 1.0, 0.5]


@needs_sample
def test_every_published_summary_is_recomputed():
    files = [path for path in SAMPLE.rglob("*.json") if path.name != "pricing.json"]
    found = read_files(files)
    rows = sum(len(json.loads(path.read_bytes())["results"]) for path in files)
    assert rows > 300
    assert found.summaries >= 3 * rows
    assert all(trial.metrics == {} for trial in found.trials if trial.outcome is not Outcome.SUCCESS)
    assert all(value > 0 for trial in found.trials for value in trial.metrics.values())


@needs_sample
def test_the_audit_finds_the_change_of_2_may_by_itself():
    """A probe moved into the timed span that day; nothing in the files says so."""
    found = read_files([path for path in SAMPLE.glob("sequential_tti/*.json") if path.name >= "2026-04-23"])
    report = audit(found.manifest, found.trials)
    assert {change.batch[:10] for change in report.shared_change} == {"2026-05-02"}
    changed = {change.key.provider for change in report.shared_change}
    assert {"archil", "blaxel", "daytona", "e2b", "hopx", "runloop", "upstash", "vercel"} <= changed
    assert all(change.effect > 0 for change in report.shared_change)
    assert {pair.key.provider for pair in report.failed} >= changed
