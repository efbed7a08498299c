"""What a benchmark is: declared steps, metrics and limits, and one procedure over a session."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import ClassVar, Literal

from sandyard.bench.clock import WRAPPER
from sandyard.bench.records import BenchmarkInfo, Metric
from sandyard.bench.session import Session, StepSpec


class Benchmark(ABC):
    """One benchmark; a subclass in a file of its own."""

    name: ClassVar[str]
    title: ClassVar[str]
    section: ClassVar[Literal["workload", "operation", "machine"]]
    requires: ClassVar[frozenset[str]]
    """Capabilities that a provider must declare."""
    units: ClassVar[Sequence[str]] = ("all",)
    metrics: ClassVar[Sequence[Metric]]
    steps: ClassVar[Sequence[StepSpec]]
    payload: ClassVar[Mapping[str, bytes]] = {}
    """Programs and data that the timed steps run; part of the procedure's hash."""
    trials: ClassVar[int] = 20
    floor: ClassVar[int] = 20
    concurrency: ClassVar[int] = 1
    has_create: ClassVar[bool] = False
    tops_up: ClassVar[bool] = True
    """Whether lost trials are refilled; a measure of failures must not be."""

    @abstractmethod
    async def run(self, session: Session, unit: str) -> None:
        """Make one trial: fill ``session.metrics``; the first failed step raises and ends it."""

    def procedure(self) -> str:
        """Return the SHA-256 of what is timed: declared steps, payload and the clock wrapper."""
        payload = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(self.payload.items())}
        content = {"steps": [asdict(step) for step in self.steps], "payload": payload, "wrapper": WRAPPER}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def info(self, *, trials: int | None = None, units: Sequence[str] | None = None) -> BenchmarkInfo:
        """Return what goes into the manifest."""
        return BenchmarkInfo(
            name=self.name,
            section=self.section,
            title=self.title,
            units=list(units or self.units),
            metrics=list(self.metrics),
            procedure=self.procedure(),
            trials=trials or self.trials,
            floor=min(self.floor, trials or self.trials),
            concurrency=self.concurrency,
            has_create=self.has_create,
        )
