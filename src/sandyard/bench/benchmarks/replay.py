"""Replay: recorded solutions of small tasks, each judged by its verifier; the folders have Harbor's layout."""

from __future__ import annotations

from sandyard.bench.benchmarks.staged import ENVIRONMENT, SETUP_S, StagedWorkload, files_of, stages, units_of
from sandyard.bench.outcomes import Diverged
from sandyard.bench.session import Session, StepSpec


class Replay(StagedWorkload):
    """``solution/solve.sh`` is the trace; ``tests/`` arrives after it, and must write 1 to ``reward.txt``."""

    name = "replay"
    title = "Replay with a verifier"
    units = units_of("replay")
    metrics = stages(("solve", "verify"))
    steps = (
        StepSpec("solve", "sandbox", 300, (*ENVIRONMENT, "bash", "solution/solve.sh")),
        StepSpec("verify", "sandbox", 300, (*ENVIRONMENT, "bash", "tests/test.sh")),
    )
    payload = files_of("replay")

    async def run(self, session: Session, unit: str) -> None:
        """Environment untimed, the solution timed, the verifier timed."""
        sandbox = await session.create()
        await session.ready(sandbox)
        await self._put_folder(session, sandbox, unit, ("environment", "solution"))
        await session.run(sandbox, [*ENVIRONMENT, "bash", "environment/setup.sh"], timeout_s=SETUP_S)
        times = {"solve": await self._stage(session, sandbox, unit, self.steps[0])}
        await self._put_folder(session, sandbox, unit, ("tests",))
        times["verify"] = await self._stage(session, sandbox, unit, self.steps[1])
        reward = (await session.provider.read(sandbox, "reward.txt")).strip()
        if reward != b"1":
            raise Diverged(f"the verifier of {unit} gives {reward[:20]!r}")
        session.metrics |= times | {"total": sum(times.values())}

    async def _put_folder(self, session: Session, sandbox: str, unit: str, folders: tuple[str, ...]) -> None:
        for path, data in self.payload.items():
            parts = path.split("/")
            if parts[0] == unit and parts[1] in folders:
                await session.provider.write(sandbox, "/".join(parts[1:]), data)

    async def _stage(self, session: Session, sandbox: str, unit: str, step: StepSpec) -> float:
        output, timed = await session.guest(step.name, sandbox, step.command)
        if output.exit_code != 0:
            tail = (output.stdout + output.stderr)[-200:].decode(errors="replace")
            raise Diverged(f"{unit} {step.name} ended with {output.exit_code}: {tail}")
        return timed.runtime_ms or 0.0
