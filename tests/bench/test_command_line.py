"""``sandyard bench`` as a person types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sandyard.bench.store import RESOLUTIONS, TRIALS, RunFolder
from sandyard.cli.bench import app
from sandyard.cli.main import app as whole
from tests.bench.series import manifest, noise, trial

runner = CliRunner()


def run_in(path: Path, values, **changes) -> Path:
    folder = RunFolder.create(path, manifest(**changes))
    folder.append_all(TRIALS, [trial(i, value) for i, value in enumerate(values)])
    return path


def call(*words) -> tuple[int, str]:
    result = runner.invoke(app, [str(word) for word in words])
    return result.exit_code, result.output + (f" {result.exception}" if result.exception else "")


def test_it_is_mounted_and_says_what_it_can():
    result = runner.invoke(whole, ["bench", "--help"])
    assert result.exit_code == 0
    for word in ("run", "audit", "score", "compare", "report", "import", "check"):
        assert word in result.output


def test_audit_ends_with_1_until_the_failure_is_explained(tmp_path):
    path = run_in(tmp_path / "r", [100 + 2 * i for i in range(40)])
    code, text = call("audit", path)
    assert code == 1
    assert "drift of" in text
    assert call("audit", path, "--resolve", "p/b/u/m=")[0] != 0
    assert call("audit", path, "--resolve", "q/b/u/m=why")[0] != 0
    code, text = call("audit", path, "--resolve", "p/b/u/m=the provider changed hosts")
    assert code == 0
    assert "the provider changed hosts" in text
    assert RunFolder(path).dicts(RESOLUTIONS)[0]["pair"] == "p/b/u/m"


def test_score_compare_check_and_report(tmp_path):
    one, two = run_in(tmp_path / "1", noise(1)), run_in(tmp_path / "2", noise(2) * 1.4)
    assert "100.0 (1)" in call("score", one)[1]
    code, text = call("compare", one, two)
    assert code == 0
    assert "worse" in text
    assert "40 records" in call("check", one)[1]
    for form, suffix in (("html", "html"), ("markdown", "md"), ("json", "json")):
        assert call("report", one, "--as", form)[0] == 0
        assert (one / f"report.{suffix}").stat().st_size > 500
    assert json.loads(runner.invoke(app, ["report", str(one), "--as", "json", "-o", "-"]).stdout)["cells"]


def test_import(tmp_path):
    source = tmp_path / "2026-05-01.json"
    row = {
        "provider": "acme",
        "iterations": [{"ttiMs": 10}, {"ttiMs": 0, "error": "quota"}],
        "summary": {"ttiMs": {"median": 10, "p95": 10, "p99": 10}},
    }
    source.write_text(json.dumps({"version": "1.1", "timestamp": "2026-05-01", "results": [row]}))
    code, text = call("import", "computesdk", source, "-o", tmp_path / "run")
    assert code == 0
    assert "2 trials, 1 of them failed; 3 published figures agree" in text
    assert "holds a run already" in call("import", "computesdk", source, "-o", tmp_path / "run")[1]
    assert "no file" in call("import", "computesdk", tmp_path / "nothing.json", "-o", tmp_path / "x")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "a plan or --quick"),
        (["run", "--quick", "plan.yaml"], "a plan or --quick"),
        (["run", "--quick", "--resume"], "needs --out"),
        (["report", "nowhere"], "not the folder of a run"),
    ],
)
def test_what_cannot_be_is_said(words, message):
    code, text = call(*words)
    assert code != 0
    assert message in text


PLAN = """
providers: [process]
benchmarks: [{name: latency-per-call, trials: 8}]
memory_mib: 256
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="images belong to root, and this is another user")
def test_a_real_run_stopped_by_ctrl_c_goes_on(tmp_path, rootfs):
    plan, out, state = tmp_path / "plan.yaml", tmp_path / "run", tmp_path / "state"
    plan.write_text(PLAN)
    state.mkdir()
    (state / "images").symlink_to(rootfs.parents[2])
    command = [sys.executable, "-c", "from sandyard.cli.main import main; main()", "bench", "run", str(plan)]
    command += ["-o", str(out), "--state-dir", str(state)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "trials.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == 130, said
    assert list((state / "bench" / "process").iterdir()) == []
    before = (out / "trials.jsonl").read_bytes()
    subprocess.run([*command, "--resume"], check=True, timeout=100, capture_output=True)
    assert (out / "trials.jsonl").read_bytes().startswith(before)
    outcomes = [t.outcome for t in RunFolder(out).trials()]
    assert outcomes.count("success") == 8  # type: ignore[arg-type]
    assert subprocess.run(command, check=False, capture_output=True, text=True, timeout=100).returncode != 0
