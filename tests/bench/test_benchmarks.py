"""Every benchmark that needs no special machine, run for real: as bare processes on this one."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from sandyard.bench import session as sessions
from sandyard.bench.benchmarks import all_benchmarks
from sandyard.bench.benchmarks.programs import FOLDER
from sandyard.bench.benchmarks.staged import StagedWorkload
from sandyard.bench.outcomes import Diverged
from sandyard.bench.records import Outcome
from sandyard.bench.session import Session, StepSpec
from sandyard.bench.trial import perform_and_clean_up
from sandyard.providers import CreateRequest, load_declaration
from sandyard.providers.folders import ProcessProvider

TOOLS = ("bash", "git", "gcc", "make", "curl", "nproc")
needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason=f"this machine lacks one of {', '.join(TOOLS)}"
)
ALL = all_benchmarks()


async def trial_of(tmp_path, benchmark, unit, **request):
    provider = ProcessProvider(load_declaration("process"), tmp_path)
    size = CreateRequest(**{"label": "t", "lifetime_s": 600, **request})
    session = Session(provider, size, {step.name: step for step in benchmark.steps}, random.Random(1), "me")
    ending, is_clean, _ = await perform_and_clean_up(benchmark, session, unit)
    assert is_clean
    assert await provider.list() == []
    return ending, session


@needs_tools
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("sequential-tti", "all"),
        ("latency-per-call", "all"),
        ("file-transfer", "1KiB"),
        ("file-transfer", "100x10KiB"),
        ("reliability", "all"),
        ("hard-links", "all"),
        ("cpu", "all"),
        ("install-and-build", "c"),
        ("ci-actions", "library"),
        ("ci-actions", "service"),
        *(("replay", unit) for unit in ALL["replay"].units),
    ],
)
async def test_a_trial_succeeds(tmp_path, name, unit):
    benchmark = ALL[name]
    ending, session = await trial_of(tmp_path, benchmark, unit)
    assert ending.outcome is Outcome.SUCCESS, ending
    assert set(session.metrics) == {metric.name for metric in benchmark.metrics}
    assert all(value > 0 for value in session.metrics.values())
    stages = [metric.name for metric in benchmark.metrics if metric.stage_of]
    if stages:
        assert sum(session.metrics[stage] for stage in stages) == pytest.approx(session.metrics["total"])


async def test_a_sandbox_that_is_handed_out_again_is_recognised(tmp_path):
    class Reused(ProcessProvider):
        kept: str | None = None

        async def create(self, request):
            self.kept = self.kept or await super().create(request)
            return self.kept

        async def destroy(self, sandbox):
            if len(tied) == 2:
                await super().destroy(sandbox)

        async def list(self, label=None):
            return await super().list(label) if len(tied) == 2 else []

    tied: list[str | None] = []
    provider = Reused(load_declaration("process"), tmp_path)
    for identity in ("first", "second"):
        session = Session(provider, CreateRequest("t", 60), {}, random.Random(1), identity)
        await session.mark(await session.create())
        tied.append(session.tied_to)
        await session.cleanup()
    assert tied == [None, "first"]


async def test_too_little_memory_is_a_missed_trial_before_any_sandbox(tmp_path):
    ending, session = await trial_of(tmp_path, ALL["memory"], "all", memory_mib=1024)
    assert ending.outcome is Outcome.MISSED
    assert session.steps == []


@needs_tools
async def test_another_exit_code_is_excluded_and_a_wrong_patch_too(tmp_path):
    replay = ALL["replay"]
    spoiled = {
        path: data.replace(b"max(high, merged[-1][1])", b"high") if path.startswith("python-bug-fix/") else data
        for path, data in replay.payload.items()
    }

    class Wrong(type(replay)):  # type: ignore[misc]
        payload = spoiled

    ending, _ = await trial_of(tmp_path, Wrong(), "python-bug-fix")
    assert ending.outcome is Outcome.EXCLUDED
    assert "verifier" in str(ending.cause)

    class Fails(StagedWorkload):
        name = "fails"
        metrics = replay.metrics
        steps = (StepSpec("solve", "sandbox", 30, ("sh", "-c", "exit 3")),)
        payload = {"u/setup.sh": b"true"}  # noqa: RUF012 - a class's constant

    ending, _ = await trial_of(tmp_path, Fails(), "u")
    assert ending.outcome is Outcome.EXCLUDED
    assert "ended with 3" in str(ending.cause)


async def test_long_commands_run_in_the_background_on_the_sandboxs_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "POLL_S", 0.05)
    provider = ProcessProvider(load_declaration("process"), tmp_path)
    session = Session(provider, CreateRequest("t", 60), {"long": StepSpec("long", "sandbox", 20)}, random.Random(1))
    sandbox = await session.create()
    output, step = await session.background("long", sandbox, ["sh", "-c", "sleep 0.3; echo done; exit 5"])
    assert (output.exit_code, output.stdout) == (5, b"done\n")
    assert step.runtime_ms is not None
    assert 300 <= step.runtime_ms <= step.total_ms
    short = Session(provider, CreateRequest("t", 60), {"long": StepSpec("long", "sandbox", 0.1)}, random.Random(2))
    with pytest.raises(Diverged):
        await short.background("long", sandbox, ["sleep", "30"])
    await session.cleanup()


async def test_the_clock_wrapper_in_a_real_bash(tmp_path):
    provider = ProcessProvider(load_declaration("process"), tmp_path)
    session = Session(provider, CreateRequest("t", 60), {"nap": StepSpec("nap", "sandbox", 20)}, random.Random(1))
    sandbox = await session.create()
    output, step = await session.guest("nap", sandbox, ["sh", "-c", "sleep 0.2; exit 7"])
    assert output.exit_code == 7
    assert step.runtime_ms is not None
    assert 200 <= step.runtime_ms <= step.total_ms
    assert step.gate == "held"
    await session.probe(sandbox)
    assert session.placement is not None
    assert session.placement.cpu_count == len(os.sched_getaffinity(0))
    assert session.placement.uptime_quantum_us == 10_000
    await session.cleanup()


@pytest.mark.parametrize("name", ["cpu.c", "triad.c"])
def test_programs_compile_without_a_warning(tmp_path, name):
    if shutil.which("gcc") is None:
        pytest.skip("this machine has no gcc")
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", str(tmp_path / "a"), str(FOLDER / name)]
    subprocess.run(command, check=True)
    if name == "triad.c":
        rate = subprocess.run([str(tmp_path / "a"), "8"], check=True, capture_output=True).stdout
        assert float(rate) > 0


def test_the_direct_probe_is_not_fooled_by_a_file_system_in_memory(tmp_path):
    shm = Path("/dev/shm")
    if not shm.is_dir():
        pytest.skip("no tmpfs here")
    said = subprocess.run(
        ["python3", str(FOLDER / "direct.py")], cwd=shm, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert said != "direct"


def test_each_benchmark_declares_what_it_does():
    for name, benchmark in ALL.items():
        assert benchmark.name == name
        assert benchmark.units
        assert len({step.name for step in benchmark.steps}) == len(benchmark.steps)
        assert any(metric.is_main for metric in benchmark.metrics)
    assert len({benchmark.procedure() for benchmark in ALL.values()}) == len(ALL)


def test_a_changed_payload_changes_the_procedure():
    replay = ALL["replay"]
    before = replay.procedure()

    class Changed(type(replay)):  # type: ignore[misc]
        payload = {**replay.payload, "git-history/solution/solve.sh": b"true"}  # noqa: RUF012 - a class's constant

    assert Changed().procedure() != before
    assert asyncio.iscoroutinefunction(replay.run)
