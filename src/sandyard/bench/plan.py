"""A plan: which providers, which benchmarks, how many trials, and when to stop."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sandyard.errors import BenchError
from sandyard.providers.declaration import read_yaml


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BenchmarkPlan(_Part):
    """One benchmark of the plan."""

    name: str
    trials: int | None = Field(default=None, ge=1)
    """Successes to reach for each unit and provider; None for the benchmark's own."""
    units: list[str] | None = None
    concurrency: int | None = Field(default=None, ge=1)


class Budget(_Part):
    """What a run may take."""

    trials: int | None = Field(default=None, ge=1)
    """Attempts in all."""
    seconds: float | None = Field(default=None, gt=0)
    refill_seconds: float = Field(default=3600, gt=0)
    """For the refills of one provider."""


class Plan(_Part):
    """A whole run."""

    providers: list[str] = Field(min_length=1)
    benchmarks: list[BenchmarkPlan] = Field(min_length=1)
    rounds: int = Field(default=4, ge=1)
    seed: int = 0
    lifetime_s: float = Field(default=1800, gt=0)
    cpus: float = Field(default=2, gt=0)
    memory_mib: int = Field(default=4096, ge=64)
    image: str = "default"
    budget: Budget = Budget()
    cards: dict[str, str] = Field(default_factory=dict)
    """Provider to the rate card that prices its trials."""

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _names_alone(cls, value: object) -> object:
        return (
            [{"name": item} if isinstance(item, str) else item for item in value] if isinstance(value, list) else value
        )


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        BenchError: it is not there, has an unknown key, or a value that cannot be.
    """
    try:
        return Plan.model_validate(read_yaml(path, "plan"))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BenchError(f"{path} is not a plan: {faults}.", hint="docs/bench.md lists the keys.") from None


QUICK = Plan(
    providers=["sandyard", "podman", "bubblewrap", "process"],
    benchmarks=[
        BenchmarkPlan(name="sequential-tti", trials=20),
        BenchmarkPlan(name="latency-per-call", trials=20),
        BenchmarkPlan(name="file-transfer", trials=20, units=["10MiB"]),
        BenchmarkPlan(name="install-and-build", trials=20, units=["python"]),
    ],
    memory_mib=1024,
)
"""What ``--quick`` runs: some minutes on one machine."""
