"""Fork: new sandboxes that go on from this moment of another, and the first command in each."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks import state
from sandyard.bench.outcomes import ProviderFailed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

MEBIBYTES = 64
_RANDOM = ("sh", "-c", "head -c 16 /dev/urandom | sha256sum")


class Fork(Benchmark):
    """Fork to one and to four; children see the parent's state, and nobody sees a child's writes."""

    name = "fork"
    title = "Fork"
    section = "operation"
    requires = frozenset({"exec", "files", "fork"})
    units = ("1", "4")
    metrics = (
        Metric(name="total", unit="ms"),
        Metric(name="fork", unit="ms", is_main=False, stage_of="total"),
        Metric(name="first", unit="ms", is_main=False, stage_of="total"),
    )
    steps = (StepSpec("fork", "host", 60), StepSpec("first", "sandbox", 60, state.CHECK))

    async def run(self, session: Session, unit: str) -> None:
        """The total is the fork and the slowest child's first command."""
        source = await session.create()
        await session.ready(source)
        digest, token = await state.plant(session, source, MEBIBYTES)
        async with session.span("fork") as fork:
            children = await session.fork(source, int(unit))
        firsts = []
        for child in children:
            output, step = await session.guest("first", child, state.CHECK)
            state.compare(output.stdout, digest, token)
            firsts.append(step.total_ms)
        await self._are_apart(session, source, children)
        session.metrics |= {"fork": fork[0], "first": max(firsts), "total": fork[0] + max(firsts)}

    async def _are_apart(self, session: Session, source: str, children: list[str]) -> None:
        for child in children:
            await session.run(child, ["sh", "-c", 'test ! -e written && printf %s "$1" > written', "sh", child])
        await session.run(source, ["sh", "-c", "test ! -e written"])
        drawn = {(await session.run(child, _RANDOM)).stdout for child in children}
        if len(drawn) != len(children):
            raise ProviderFailed("two children drew the same random bytes")
