"""CPU: a fixed amount of integer and floating-point work, on one thread and on one for each processor."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks.programs import build, program
from sandyard.bench.outcomes import BenchmarkFault
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec
from sandyard.stats import median

PASSES = 3
CHECKSUM = "2c16ce18b0e6582c"


class Cpu(Benchmark):
    """Three passes each, the middle one counts; the program prints a checksum that must be right."""

    name = "cpu"
    title = "CPU"
    section = "machine"
    requires = frozenset({"exec", "files"})
    metrics = (Metric(name="one_thread", unit="ms"), Metric(name="all_threads", unit="ms"))
    steps = (StepSpec("one", "sandbox", 120, ("./cpu", "1")), StepSpec("all", "sandbox", 120, ("./cpu", "0")))
    payload = {"cpu.c": program("cpu.c")}  # noqa: RUF012 - a class's constant

    async def run(self, session: Session, unit: str) -> None:
        """Compile untimed, then run."""
        del unit
        sandbox = await session.create()
        await session.ready(sandbox)
        await build(session, sandbox, "cpu.c")
        for step, metric in zip(self.steps, self.metrics, strict=True):
            times = []
            for _ in range(PASSES):
                output, timed = await session.guest(step.name, sandbox, step.command)
                if output.exit_code != 0 or output.stdout.decode().strip() != CHECKSUM:
                    raise BenchmarkFault(f"the checksum is {output.stdout[:40]!r}, and {CHECKSUM} is right")
                times.append(timed.runtime_ms or 0.0)
            session.metrics[metric.name] = median(times)
