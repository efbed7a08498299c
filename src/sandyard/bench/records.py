"""What a run leaves behind: one JSON line a trial, and a manifest that says how all of them came about."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1


class Record(BaseModel):
    """Frozen, and refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Outcome(StrEnum):
    """How a trial ended."""

    SUCCESS = "success"
    PROVIDER_FAILURE = "provider-failure"
    BENCHMARK_ERROR = "benchmark-error"
    EXCLUDED = "excluded"
    MISSED = "missed"
    UNKNOWN = "unknown"
    """Cut short by a crash of the harness; nobody knows how it would have ended."""
    INTERRUPTED = "interrupted"
    """Stopped by whoever ran it; the slot is run again when the run goes on."""


class Step(Record):
    """One timed or waited-for piece of a trial."""

    name: str
    clock: Literal["host", "sandbox"]
    total_ms: float
    """Monotonic clock of the job host."""
    runtime_ms: float | None = None
    """The sandbox's own clock."""
    gate: Literal["held", "not-gateable"] | None = None
    """``not-gateable``: shorter than the uptime counter can judge, or that counter is coarser than the tolerance."""


class Attempt(Record):
    """One try of the readiness check."""

    at_ms: float
    """Since the check began."""
    answer: str
    """``ready`` or the error's code."""


class HostLoad(Record):
    """The job host over one trial. None is "not available", never 0."""

    peak_cpu_share: float | None = None
    throttled_periods: int | None = None
    pressure_avg10: float | None = None
    """Memory pressure, ``some avg10``, percent."""
    available_kib: int | None = None

    def is_saturated(self) -> bool | None:
        """Whether the host was too busy to be trusted; None where nothing was recorded."""
        known = (self.peak_cpu_share, self.throttled_periods, self.pressure_avg10, self.available_kib)
        if all(value is None for value in known):
            return None
        return (
            (self.peak_cpu_share or 0) >= PEAK_CPU_SHARE
            or (self.throttled_periods or 0) > 0
            or (self.pressure_avg10 or 0) >= PRESSURE_AVG10
            or (self.pressure_avg10 is None and self.available_kib is not None and self.available_kib < AVAILABLE_KIB)
        )


PEAK_CPU_SHARE = 0.9
PRESSURE_AVG10 = 10.0
AVAILABLE_KIB = 262_144


class Placement(Record):
    """What the sandbox says about itself, untimed."""

    cpu_model: str | None = None
    cpu_count: int | None = None
    memory_kib: int | None = None
    kernel: str | None = None
    filesystem: str | None = None
    boot_id: str | None = None
    uptime_quantum_us: int | None = None
    """The smallest step of /proc/uptime that was seen."""


class Trial(Record):
    """One trial of one unit of one benchmark on one provider."""

    schema_version: int = SCHEMA
    id: str
    provider: str
    benchmark: str
    unit: str
    procedure: str
    """SHA-256 of the timed procedure; another one is another series."""
    image: str | None = None
    """Digest; another one is another series."""
    region: str
    job_host: str
    round: int
    batch: str
    slot: int
    attempt: int = 1
    replaces: str | None = None
    order: int
    """Position in the order of execution within the run."""
    started_s: float
    """Since the run began, monotonic."""
    ended_s: float
    outcome: Outcome
    owner: Literal["provider", "benchmark", "operator"] | None = None
    cause: str | None = None
    failed_step: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    calls: dict[str, list[float]] = Field(default_factory=dict)
    """The single calls behind a pooled metric."""
    steps: list[Step] = Field(default_factory=list)
    readiness: list[Attempt] = Field(default_factory=list)
    placement: Placement | None = None
    host: HostLoad | None = None
    others_mean: float | None = None
    """Other trials of its batch that held a sandbox, time-weighted over its window."""
    tied_to: str | None = None
    """An earlier trial whose sandbox this one is, by a recorded fact."""
    flags: list[str] = Field(default_factory=list)
    """``ceiling``, ``cached-read``, ``cpu-bound``, ``throttled``."""
    cleanup_confirmed: bool = True
    sandbox_s: float = 0.0
    """Time for which it held sandboxes, for the cost that this implies."""
    cost: str | None = None
    """Decimal text, in the manifest's currency for the provider."""


class Metric(Record):
    """One number of a trial."""

    name: str
    unit: str
    better: Literal["lower", "higher"] = "lower"
    is_main: bool = True
    """Main metrics are audited and ranked."""
    is_pooled: bool = False
    stage_of: str | None = None
    """The total that it is a stage of."""


class BenchmarkInfo(Record):
    """What a benchmark says of itself, copied into the manifest so that a run can be read without its code."""

    name: str
    section: Literal["workload", "operation", "machine"]
    title: str
    units: list[str]
    metrics: list[Metric]
    procedure: str
    trials: int
    """Scheduled successes for each unit and provider."""
    floor: int
    """Successes from which it is ranked; over all units where there are several."""
    concurrency: int = 1
    has_create: bool = False
    """Whether a create or a build is inside the timed steps, so that a warm pool explains a fast value."""


class ProviderInfo(Record):
    """What is known of a provider before its first trial."""

    name: str
    region: str
    version: str
    image: str | None = None
    statuses: dict[str, str] = Field(default_factory=dict)
    """Benchmark to status label, where it does not take part."""
    reasons: dict[str, str] = Field(default_factory=dict)
    network_baseline_ms: dict[str, float] = Field(default_factory=dict)
    """Median TCP connect for each API endpoint; empty where there is none."""
    create_spacing_s: float = 0.0
    others_at_start: int = 0
    card: str | None = None
    """Rate card behind the costs."""
    currency: str | None = None


class Manifest(Record):
    """How a run came about."""

    schema_version: int = SCHEMA
    run: str
    created_at: str
    job_host: str
    seed: int
    rounds: int
    label: str
    lifetime_s: float
    cpus: float
    memory_mib: int
    providers: list[ProviderInfo]
    benchmarks: list[BenchmarkInfo]
    versions: dict[str, str] = Field(default_factory=dict)
    source: str | None = None
    """Where imported trials come from."""
    plan: dict[str, Any] = Field(default_factory=dict)
