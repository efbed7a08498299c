"""Reliability: whole lives at a slow pace; the result is the share that succeeds, so nothing is refilled."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.outcomes import ProviderFailed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

_SIZE = 1024


class Reliability(Benchmark):
    """Create, one command, 1 KiB in and out, destroy, confirmed gone."""

    name = "reliability"
    title = "Reliability"
    section = "operation"
    requires = frozenset({"exec", "files"})
    metrics = (Metric(name="life", unit="ms"),)
    steps = (StepSpec("life", "host", 240, ("true",)),)
    trials = 200
    has_create = True
    tops_up = False

    async def run(self, session: Session, unit: str) -> None:
        """One life."""
        del unit
        data = session.random.randbytes(_SIZE)
        async with session.span("life") as life:
            sandbox = await session.create()
            await session.ready(sandbox)
            await session.provider.write(sandbox, "kept", data)
            if await session.provider.read(sandbox, "kept") != data:
                raise ProviderFailed("what was read is not what was written")
            await session.destroy(sandbox)
        session.metrics["life"] = life[0]
