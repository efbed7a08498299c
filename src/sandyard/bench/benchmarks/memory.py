"""Memory: bandwidth of a STREAM-like triad over arrays far beyond any cache."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks.programs import build, program
from sandyard.bench.outcomes import BenchmarkFault, Missed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec
from sandyard.stats import median

PASSES = 5
ARRAYS, MEBIBYTES = 3, 700
"""A fixed size, as gVisor reports the host's cache."""


class Memory(Benchmark):
    """Five passes, the middle one counts; the program checks its own arithmetic."""

    name = "memory"
    title = "Memory"
    section = "machine"
    requires = frozenset({"exec", "files"})
    metrics = (Metric(name="triad", unit="GB/s", better="higher"),)
    steps = (StepSpec("triad", "sandbox", 120, ("./triad", str(MEBIBYTES))),)
    payload = {"triad.c": program("triad.c")}  # noqa: RUF012 - a class's constant

    async def run(self, session: Session, unit: str) -> None:
        """Compile untimed, then run; each call times its own passes over the arrays."""
        del unit
        needed = ARRAYS * MEBIBYTES + 256
        if session.request.memory_mib < needed:
            raise Missed(f"the sandbox has {session.request.memory_mib} MiB, and {needed} are needed")
        sandbox = await session.create()
        await session.ready(sandbox)
        await build(session, sandbox, "triad.c")
        rates = []
        for _ in range(PASSES):
            output, _ = await session.guest("triad", sandbox, self.steps[0].command)
            try:
                rates.append(float(output.stdout))
            except ValueError:
                raise BenchmarkFault(f"the triad printed {output.stdout[:40]!r}") from None
        session.metrics["triad"] = median(rates)
