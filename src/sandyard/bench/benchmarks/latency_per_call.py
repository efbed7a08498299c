"""Latency per call: what the way to a sandbox adds to a command, over fifty calls of one sandbox."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.outcomes import ProviderFailed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec
from sandyard.stats import median

CALLS = 50


class LatencyPerCall(Benchmark):
    """Total minus runtime of each call; pooled over trials, so the interval draws whole trials."""

    name = "latency-per-call"
    title = "Latency per call"
    section = "operation"
    requires = frozenset({"exec"})
    metrics = (Metric(name="latency", unit="ms", is_pooled=True),)
    steps = (StepSpec("call", "sandbox", 30, ("true",)),)

    async def run(self, session: Session, unit: str) -> None:
        """Call fifty times, one after another."""
        del unit
        sandbox = await session.create()
        await session.ready(sandbox)
        latencies = []
        for _ in range(CALLS):
            output, step = await session.guest("call", sandbox, self.steps[0].command)
            if output.exit_code != 0 or step.runtime_ms is None:
                raise ProviderFailed(f"true ended with {output.exit_code}")
            latencies.append(step.total_ms - step.runtime_ms)
        session.calls["latency"] = latencies
        session.metrics["latency"] = median(latencies)
