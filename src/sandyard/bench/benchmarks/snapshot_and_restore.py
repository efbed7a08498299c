"""Snapshot and restore: saving a sandbox with 64 MiB of data and a process, and having it back."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks import state
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

MEBIBYTES = 64


class SnapshotAndRestore(Benchmark):
    """Snapshot, restore, and the first command after it, which is sent at once and checks data and process."""

    name = "snapshot-and-restore"
    title = "Snapshot and restore"
    section = "operation"
    requires = frozenset({"exec", "files", "snapshot", "memory-snapshot"})
    units = ("memory-64MiB",)
    metrics = (
        Metric(name="total", unit="ms"),
        Metric(name="snapshot", unit="ms", is_main=False, stage_of="total"),
        Metric(name="restore", unit="ms", is_main=False, stage_of="total"),
        Metric(name="first", unit="ms", is_main=False, stage_of="total"),
    )
    steps = (
        StepSpec("snapshot", "host", 120),
        StepSpec("restore", "host", 60),
        StepSpec("first", "sandbox", 60, state.CHECK),
    )

    async def run(self, session: Session, unit: str) -> None:
        """The source gets the readiness check; what is restored does not."""
        del unit
        source = await session.create()
        await session.ready(source)
        digest, token = await state.plant(session, source, MEBIBYTES)
        async with session.span("snapshot") as snapshot:
            saved = await session.snapshot(source)
        async with session.span("restore") as restore:
            restored = await session.adopt(session.provider.restore(saved))
        output, first = await session.guest("first", restored, state.CHECK)
        state.compare(output.stdout, digest, token)
        session.metrics |= {
            "snapshot": snapshot[0],
            "restore": restore[0],
            "first": first.total_ms,
            "total": snapshot[0] + restore[0] + first.total_ms,
        }
