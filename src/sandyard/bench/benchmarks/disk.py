"""Disk: fio over a file written and synced before, reading and writing past the page cache where that can be proven."""

from __future__ import annotations

import json

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks.programs import need, need_space, program
from sandyard.bench.outcomes import BenchmarkFault, Missed, ProviderFailed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

RUNTIME_S, RAMP_S = 15, 3
_BASE = (
    "fio",
    "--name=job",
    "--filename=fio.data",
    "--size=2g",
    "--ioengine=libaio",
    "--direct=1",
    "--time_based",
    f"--runtime={RUNTIME_S}",
    f"--ramp_time={RAMP_S}",
    "--randrepeat=0",
    "--numjobs=1",
    "--output-format=json",
)
_WRITES = ("--end_fsync=1", "--refill_buffers=1")
_JOBS = {
    "read_1m": ("--rw=read", "--bs=1m", "--iodepth=8"),
    "write_1m": ("--rw=write", "--bs=1m", "--iodepth=8", *_WRITES),
    "read_4k": ("--rw=randread", "--bs=4k", "--iodepth=32"),
    "write_4k": ("--rw=randwrite", "--bs=4k", "--iodepth=32", *_WRITES),
}
_PREPARE = ("sh", "-c", "head -c 2147483648 /dev/urandom > fio.data && sync fio.data")


class Disk(Benchmark):
    """Four fio jobs; missed where O_DIRECT is refused or cannot be told from a cache, or where there is no fio."""

    name = "disk"
    title = "Disk"
    section = "machine"
    requires = frozenset({"exec", "files"})
    metrics = tuple(
        Metric(name=name, unit="IOPS" if name.endswith("4k") else "MiB/s", better="higher") for name in _JOBS
    )
    steps = tuple(StepSpec(name, "sandbox", 90, (*_BASE, *options)) for name, options in _JOBS.items())
    payload = {"direct.py": program("direct.py")}  # noqa: RUF012 - a class's constant

    async def run(self, session: Session, unit: str) -> None:
        """Probe, write the file untimed, then each job in the background."""
        del unit
        sandbox = await session.create()
        await session.ready(sandbox)
        for tool in ("fio", "python3"):
            await need(session, sandbox, tool)
        await need_space(session, sandbox, 3072)
        await session.provider.write(sandbox, "direct.py", program("direct.py"))
        probe = (await session.run(sandbox, ["python3", "direct.py"])).stdout.decode().strip()
        if probe != "direct":
            raise Missed(f"the working directory is {probe}")
        await session.run(sandbox, _PREPARE, timeout_s=300)
        seed = session.random.randrange(1 << 31)
        for step in self.steps:
            output, _ = await session.background(step.name, sandbox, (*step.command, f"--randseed={seed}"))
            session.metrics[step.name] = _figure(step.name, output.exit_code, output.stdout)


def _figure(name: str, code: int, stdout: bytes) -> float:
    if code != 0:
        raise ProviderFailed(f"fio {name} ended with {code}")
    try:
        job = json.loads(stdout)["jobs"][0]
        side = job["read" if name.startswith("read") else "write"]
        complete, value = side["runtime"] >= RUNTIME_S * 950, float(side["iops" if name.endswith("4k") else "bw_bytes"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BenchmarkFault(f"fio {name} printed what cannot be read: {error}") from error
    if job["error"] != 0 or not complete:
        raise ProviderFailed(f"fio {name} did not run its whole time")
    return value if name.endswith("4k") else value / (1 << 20)
