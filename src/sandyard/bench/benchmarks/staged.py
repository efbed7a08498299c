"""Workloads whose units are folders of scripts: one untimed set-up, then stages on the sandbox's clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.outcomes import Diverged
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

FOLDER = Path(__file__).parent.parent / "tasks"
ENVIRONMENT = (
    "env",
    "TZ=UTC",
    "LC_ALL=C",
    "PYTHONHASHSEED=0",
    "SOURCE_DATE_EPOCH=1700000000",
    "GIT_AUTHOR_DATE=2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE=2024-01-01T00:00:00Z",
    "GIT_AUTHOR_NAME=bench",
    "GIT_AUTHOR_EMAIL=bench@example.com",
    "GIT_COMMITTER_NAME=bench",
    "GIT_COMMITTER_EMAIL=bench@example.com",
    "GIT_CONFIG_NOSYSTEM=1",
)
"""So that a replay gives the same bytes everywhere."""

SETUP_S = 300


def files_of(workload: str) -> Mapping[str, bytes]:
    """Return every file of a workload by its path."""
    root = FOLDER / workload
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def units_of(workload: str) -> tuple[str, ...]:
    """Return the units of a workload: its folders."""
    return tuple(sorted(path.name for path in (FOLDER / workload).iterdir() if path.is_dir() and path.name != "shared"))


def stages(names: tuple[str, ...]) -> tuple[Metric, ...]:
    """Return the total and its stages as metrics."""
    return (
        Metric(name="total", unit="ms"),
        *(Metric(name=name, unit="ms", is_main=False, stage_of="total") for name in names),
    )


class StagedWorkload(Benchmark):
    """A stage that ends with another exit code than 0 took another path than the recorded one: excluded."""

    section = "workload"
    requires = frozenset({"exec", "files"})

    async def run(self, session: Session, unit: str) -> None:
        """Set up untimed, then each stage in turn."""
        sandbox = await session.create()
        await session.ready(sandbox)
        await self.put(session, sandbox, unit)
        await session.run(sandbox, [*ENVIRONMENT, "bash", "setup.sh"], timeout_s=SETUP_S)
        total = 0.0
        for step in self.steps:
            output, timed = await session.guest(step.name, sandbox, step.command)
            if output.exit_code != 0:
                tail = (output.stdout + output.stderr)[-200:].decode(errors="replace")
                raise Diverged(f"{unit} {step.name} ended with {output.exit_code}: {tail}")
            session.metrics[step.name] = timed.runtime_ms or 0.0
            total += timed.runtime_ms or 0.0
        session.metrics["total"] = total

    async def put(self, session: Session, sandbox: str, unit: str) -> None:
        """Put what a unit and all units share into the working directory."""
        for path, data in self.payload.items():
            folder, _, rest = path.partition("/")
            if folder in {unit, "shared"}:
                await session.provider.write(sandbox, rest, data)


def scripts(limits_s: Mapping[str, float]) -> tuple[StepSpec, ...]:
    """Return one step for each script ``NAME.sh``."""
    return tuple(
        StepSpec(name, "sandbox", limit, (*ENVIRONMENT, "bash", f"{name}.sh")) for name, limit in limits_s.items()
    )
