"""One trial from create to confirmed cleanup: what ended it, whose it is, and the record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.outcomes import BenchmarkFault, Diverged, Missed, ProviderFailed
from sandyard.bench.records import Outcome
from sandyard.bench.session import Session
from sandyard.errors import ProviderError, SandyardError, SpendLimitError

Owner = Literal["provider", "benchmark", "operator"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a trial ended."""

    outcome: Outcome
    owner: Owner | None = None
    cause: str | None = None
    step: str | None = None
    is_final: bool = False
    """Whether no refill can replace it."""


async def perform(benchmark: Benchmark, session: Session, unit: str) -> Ending:  # noqa: PLR0911 - one for each end
    """Run the procedure, then the untimed probe; every end is an ending, except being cancelled."""
    try:
        await benchmark.run(session, unit)
        _check_complete(benchmark, session)
        if session.sandboxes and session.placement is None:
            await session.probe(session.sandboxes[0])
    except ProviderFailed as error:
        return Ending(Outcome.PROVIDER_FAILURE, "provider", str(error), session.step)
    except SpendLimitError as error:
        return Ending(Outcome.PROVIDER_FAILURE, "provider", error.what, session.step, is_final=True)
    except Diverged as error:
        return Ending(Outcome.EXCLUDED, None, str(error), session.step)
    except Missed as error:
        return Ending(Outcome.MISSED, None, str(error), session.step)
    except BenchmarkFault as error:
        return Ending(Outcome.BENCHMARK_ERROR, "benchmark", str(error), session.step)
    except (ProviderError, SandyardError) as error:
        return Ending(Outcome.PROVIDER_FAILURE, "provider", f"{error.what} [{error.code}]", session.step)
    except Exception as error:  # noqa: BLE001 - whatever our own code does wrong is its own, not the provider's
        return Ending(Outcome.BENCHMARK_ERROR, "benchmark", f"{type(error).__name__}: {error}", session.step)
    return Ending(Outcome.SUCCESS)


def _check_complete(benchmark: Benchmark, session: Session) -> None:
    missing = [metric.name for metric in benchmark.metrics if metric.is_main and metric.name not in session.metrics]
    if missing:
        raise BenchmarkFault(f"the procedure gave no {', '.join(missing)}")


async def perform_and_clean_up(benchmark: Benchmark, session: Session, unit: str) -> tuple[Ending, bool, bool]:
    """Run a trial and delete what it made, also when it is cancelled.

    Returns:
        The ending, whether everything is confirmed gone, and whether the trial was cancelled meanwhile.
    """
    interrupted = False
    work = asyncio.ensure_future(perform(benchmark, session, unit))
    try:
        ending = await asyncio.shield(work)
    except asyncio.CancelledError:
        interrupted = True
        work.cancel()
        await asyncio.wait({work})
        ending = Ending(Outcome.INTERRUPTED, "operator", "stopped by whoever ran it", session.step)
    cleaning = asyncio.ensure_future(session.cleanup())
    while not cleaning.done():
        try:
            await asyncio.shield(cleaning)
        except asyncio.CancelledError:
            interrupted = True
    left = cleaning.result()
    if left and ending.outcome is Outcome.SUCCESS:
        ending = Ending(Outcome.PROVIDER_FAILURE, "provider", "; ".join(left), "cleanup", is_final=True)
    if interrupted and ending.outcome is not Outcome.SUCCESS:
        ending = Ending(Outcome.INTERRUPTED, "operator", ending.cause, session.step)
    return ending, not left, interrupted
