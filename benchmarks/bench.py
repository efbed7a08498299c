"""Measure what the benchmark promises of itself; ``python -m benchmarks.bench`` prints a table of CPU times."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.importers.computesdk import read_files
from sandyard.bench.plan import Plan
from sandyard.bench.records import BenchmarkInfo, HostLoad, Manifest, Metric, Outcome, Placement, ProviderInfo, Trial
from sandyard.bench.report import to_html
from sandyard.bench.report.view import Report, make_report
from sandyard.bench.run import Run, begin
from sandyard.bench.session import Session, StepSpec
from sandyard.bench.store import TRIALS, RunFolder
from sandyard.providers import Declaration
from sandyard.providers.declaration import CAPABILITIES
from sandyard.providers.fake import FakeProvider

PROVIDERS, TRIALS_EACH = 40, 2500
DAYS, ROW = 365, 100
VENDORS = 8
OVERHEAD_TRIALS = 400


T = TypeVar("T")


class Nothing(Benchmark):
    """A trial whose provider takes no time, so that what is left is the harness."""

    name = "nothing"
    title = "Nothing"
    section = "operation"
    requires = frozenset({"exec"})
    metrics = (Metric(name="total", unit="ms"),)
    steps = (StepSpec("work", "sandbox", 30, ("true",)),)

    async def run(self, session: Session, unit: str) -> None:
        """Create, readiness, one timed command."""
        del unit
        sandbox = await session.create()
        await session.ready(sandbox)
        _, step = await session.guest("work", sandbox, ("true",))
        session.metrics["total"] = step.total_ms


def cpu_seconds(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU time that something took, and what it gave."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def overhead_ms(folder: Path) -> float:
    """Return the harness's CPU time for each trial, records on disk included."""
    declared = Declaration(
        name="fake", title="Fake", adapter="fake", region="none", capabilities=frozenset(CAPABILITIES)
    )
    plan = Plan(providers=["fake"], benchmarks=[{"name": "nothing", "trials": OVERHEAD_TRIALS}])  # type: ignore[list-item]
    providers, benchmarks = {"fake": FakeProvider(declared)}, {"nothing": Nothing()}

    async def go() -> None:
        run_folder, manifest = await begin(folder, plan, providers, benchmarks, run="overhead")
        await Run(run_folder, manifest, providers, benchmarks, plan=plan).execute()

    return cpu_seconds(lambda: asyncio.run(go()))[0] * 1000 / OVERHEAD_TRIALS


def synthetic() -> tuple[Manifest, list[Trial]]:
    """Return 100,000 trials of 40 pairs, with every fact recorded."""
    generator = np.random.default_rng(1)
    names = [f"provider-{i:02}" for i in range(PROVIDERS)]
    idle = HostLoad(peak_cpu_share=0.2, pressure_avg10=0.0, available_kib=8_000_000)
    kinds = [Placement(cpu_model="EPYC", cpu_count=2), Placement(cpu_model="Xeon", cpu_count=2)]
    trials = []
    for name in names:
        for index, value in enumerate(generator.lognormal(5, 0.1, TRIALS_EACH)):
            number = index * 4 // TRIALS_EACH
            trials.append(
                Trial(
                    id=f"{name}/{index}",
                    provider=name,
                    benchmark="b",
                    unit="all",
                    procedure="x",
                    region="here",
                    job_host="host",
                    round=number,
                    batch=f"{name}/{number}",
                    slot=index,
                    order=index,
                    started_s=float(index),
                    ended_s=index + 0.9,
                    outcome=Outcome.SUCCESS,
                    metrics={"total": float(value)},
                    others_mean=2.0 * (index % 2),
                    host=idle,
                    placement=kinds[index % 2],
                )
            )
    info = BenchmarkInfo(
        name="b",
        section="operation",
        title="Synthetic",
        units=["all"],
        metrics=[Metric(name="total", unit="ms")],
        procedure="x",
        trials=TRIALS_EACH,
        floor=20,
    )
    manifest = Manifest(
        run="synthetic",
        created_at="2026-01-01",
        job_host="host",
        seed=0,
        rounds=4,
        label="",
        lifetime_s=1,
        cpus=2,
        memory_mib=4096,
        providers=[ProviderInfo(name=name, region="here", version="1") for name in names],
        benchmarks=[info],
    )
    return manifest, trials


def write_year(folder: Path) -> list[Path]:
    """Write daily result files of a year in ComputeSDK's shape."""
    values = [round(float(v), 2) for v in np.random.default_rng(2).lognormal(5, 0.2, ROW)]
    ordered = sorted(values)
    kept = ordered[5:95]
    summary = {"median": (kept[44] + kept[45]) / 2, "p95": kept[85], "p99": kept[89]}
    row = {"iterations": [{"ttiMs": value} for value in values], "summary": {"ttiMs": summary}}
    paths = []
    for day in range(DAYS):
        results = [{"provider": f"vendor-{i}", **row} for i in range(VENDORS)]
        path = folder / f"day-{day:03}.json"
        path.write_text(json.dumps({"version": "1.1", "timestamp": f"day {day:03}", "results": results}))
        paths.append(path)
    return paths


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        rows = [("harness CPU per trial", overhead_ms(root / "run"), "ms", 2.0)]
        manifest, trials = synthetic()
        seconds, report = cpu_seconds(lambda: make_report(manifest, trials))
        assert isinstance(report, Report)
        rows.append((f"audit and statistics of {len(trials):,} trials", seconds, "s", 20.0))
        rows.append((f"HTML report of {len(trials):,} trials", len(to_html(report)) / 1e6, "MB", 5.0))
        (root / "year").mkdir()
        paths = write_year(root / "year")

        def import_all() -> int:
            found = read_files(paths)
            RunFolder.create(root / "imported", found.manifest).append_all(TRIALS, found.trials)
            return len(found.trials)

        seconds, count = cpu_seconds(import_all)
        rows.append((f"import of {count:,} trials", seconds, "s", 10.0))
    print("| what | measured | bar |\n| --- | --- | --- |")
    for what, value, unit, bar in rows:
        print(f"| {what} | {value:.2f} {unit} | {bar:g} {unit} or less |")


if __name__ == "__main__":
    main()
