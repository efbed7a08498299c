"""Whole runs on the fake provider, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.load import HostProbe
from sandyard.bench.plan import Plan
from sandyard.bench.records import HostLoad, Manifest, Metric, Trial
from sandyard.bench.run import Run, begin
from sandyard.bench.session import StepSpec
from sandyard.bench.store import RunFolder
from sandyard.providers import Declaration
from sandyard.providers.declaration import CAPABILITIES
from sandyard.providers.fake import Call, FakeProvider, Reply, Script, well
from tests.bench import virtual


class IdleHost(HostProbe):
    """What other programs on this machine do is not to decide a test."""

    def end(self) -> HostLoad:
        return HostLoad(peak_cpu_share=0.1, pressure_avg10=0.0, available_kib=8_000_000)


class Probe(Benchmark):
    """Create, readiness, one timed command."""

    name = "probe"
    title = "Probe"
    section = "operation"
    requires = frozenset({"exec"})
    metrics = (Metric(name="total", unit="ms"), Metric(name="runtime", unit="ms", is_main=False))
    steps: ClassVar[Sequence[StepSpec]] = (
        StepSpec("create", "host", 60),
        StepSpec("work", "sandbox", 30, ("true",)),
    )

    async def run(self, session, unit):
        async with session.span("create"):
            sandbox = await session.create()
        await session.ready(sandbox)
        _, step = await session.guest("work", sandbox, self.steps[1].command)
        session.metrics |= {"total": step.total_ms, "runtime": step.runtime_ms or 0.0}


class Second(Probe):
    """Another one, so that rounds have something to interleave."""

    name = "second"
    steps = (*Probe.steps, StepSpec("more", "sandbox", 30, ("true",)))


def declaration(name: str = "fake", **changes) -> Declaration:
    fields = {
        "name": name,
        "title": name,
        "adapter": "fake",
        "region": "nowhere",
        "capabilities": frozenset(CAPABILITIES),
    }
    return Declaration(**{**fields, **changes})


def work_takes(seconds: Callable[[Call], float], seed: int = 0, sigma: float = 0.05) -> Script:
    """The timed command takes this long, with noise; a create takes 100 ms."""
    generator = np.random.default_rng(seed)

    def script(call: Call) -> Reply:
        if call.op == "create":
            return Reply(0.1)
        if call.op == "exec" and len(call.argv) > 2 and "__SANDBOX_CLOCK" in call.argv[2]:
            return Reply(seconds(call) * float(np.exp(generator.normal(0, sigma))))
        return Reply(0.001)

    return script


def plan(trials: int = 20, **changes) -> Plan:
    benchmarks = changes.pop("benchmarks", [{"name": "probe", "trials": trials}])
    return Plan(**{"providers": ["fake"], "benchmarks": benchmarks, "seed": 3, **changes})


def run_all(
    path: Path,
    script: Script = well,
    *,
    the_plan: Plan | None = None,
    providers: Mapping[str, FakeProvider] | None = None,
    benchmarks: Mapping[str, Benchmark] | None = None,
    stop_after: int | None = None,
) -> tuple[Manifest, list[Trial], dict[str, FakeProvider]]:
    """Run a plan to its end, or be stopped as by Ctrl-C once so many trials have begun."""
    providers = dict(providers or {"fake": FakeProvider(declaration(), script)})
    benchmarks = benchmarks or {"probe": Probe(), "second": Second()}
    the_plan = the_plan or plan()

    async def go() -> Manifest:
        if (path / "manifest.json").exists():
            folder = RunFolder(path)
            manifest = folder.manifest()
        else:
            folder, manifest = await begin(path, the_plan, providers, benchmarks, run="r")
        work = asyncio.ensure_future(
            Run(folder, manifest, providers, benchmarks, plan=the_plan, probe=IdleHost).execute()
        )
        if stop_after is None:
            await work
            return manifest
        while len(folder.dicts("starts.jsonl")) < stop_after:
            await asyncio.sleep(0.03)
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        return manifest

    manifest = virtual.run(go())
    return manifest, RunFolder(path).trials(), providers
