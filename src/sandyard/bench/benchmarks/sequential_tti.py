"""Sequential TTI: from asking for a sandbox to its first command's end, five times in turn."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

SANDBOXES = 5


class SequentialTti(Benchmark):
    """The clock runs through create and first command, readiness backoff included; each is gone before the next."""

    name = "sequential-tti"
    title = "Sequential time to interactive"
    section = "operation"
    requires = frozenset({"exec"})
    metrics = (
        Metric(name="tti", unit="ms"),
        Metric(name="first", unit="ms", is_main=False),  # it pays for a cold connection when none is warm
        Metric(name="worst", unit="ms", is_main=False),
    )
    steps = tuple(StepSpec(f"tti-{index}", "host", 70, ("true",)) for index in range(1, SANDBOXES + 1))
    trials = 40
    has_create = True

    async def run(self, session: Session, unit: str) -> None:
        """Make, use and destroy five; the value is their sum."""
        del unit
        times = []
        for step in self.steps:
            async with session.span(step.name) as found:
                sandbox = await session.create()
                await session.ready(sandbox)
            times += found
            await session.mark(sandbox)
            if step is self.steps[-1]:
                await session.probe(sandbox)
            await session.destroy(sandbox)
        session.calls["tti"] = times
        session.metrics |= {"tti": sum(times), "first": times[0], "worst": max(times)}
