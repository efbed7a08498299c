"""A run: shuffled, interleaved rounds, then refills until every unit has its successes or may not go on."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import random
import socket
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.cost import Pricer
from sandyard.bench.load import HostProbe, others_mean
from sandyard.bench.plan import Plan
from sandyard.bench.records import BenchmarkInfo, Manifest, Outcome, ProviderInfo, Trial
from sandyard.bench.session import Session
from sandyard.bench.store import BATCHES, STARTS, TRIALS, RunFolder
from sandyard.bench.trial import Ending, perform_and_clean_up
from sandyard.errors import BenchError, IncomparableRunsError
from sandyard.providers import CreateRequest, Provider

BASELINE_CONNECTS = 10
_FRUITLESS = 2


@dataclass(frozen=True, slots=True)
class Slot:
    """A trial to be made."""

    provider: str
    benchmark: str
    unit: str
    round: int
    number: int
    attempt: int = 1
    replaces: str | None = None

    @property
    def id(self) -> str:
        """Unique within the run."""
        return f"{self.provider}/{self.benchmark}/{self.unit}/{self.number}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a person watching is told after each trial."""

    round: str
    done: int
    planned: int
    failures: Counter[str]
    """By owner."""
    trial: Trial


@dataclass
class _Pair:
    """The state of one unit of one benchmark on one provider."""

    target: int
    successes: int = 0
    attempts: int = 0
    lost: deque[Trial] = field(default_factory=deque)
    stopped: str | None = None
    """Why nothing more of it is run."""
    no_refill: str | None = None


class Run:
    """One run in one folder."""

    def __init__(
        self,
        folder: RunFolder,
        manifest: Manifest,
        providers: Mapping[str, Provider],
        benchmarks: Mapping[str, Benchmark],
        *,
        plan: Plan,
        tell: Callable[[Progress], None] = lambda _: None,
        probe: Callable[[], HostProbe] = HostProbe,
    ) -> None:
        """Continue from whatever records the folder holds."""
        self._probe = probe
        self.folder, self.manifest, self.plan = folder, manifest, plan
        self._providers, self._benchmarks, self._tell = providers, benchmarks, tell
        self._info = {info.name: info for info in manifest.benchmarks}
        self._pricer = Pricer(manifest, plan.cards)
        self._pairs: dict[tuple[str, str, str], _Pair] = {}
        self._done: set[str] = set()
        self._order = 0
        self._failures: Counter[str] = Counter()
        self._last_create: dict[str, float] = {}
        self._begun = 0.0
        self._elapsed_before = 0.0

    # -- the whole -----------------------------------------------------------------------------------------------------

    async def execute(self) -> None:
        """Run what is still to be run.

        Raises:
            BenchError: an account holds sandboxes that are not the run's own.
            asyncio.CancelledError: it was stopped; every sandbox is gone and the run can be resumed.
        """
        self._begun = asyncio.get_running_loop().time()
        await self._take_up()
        for number in range(self.plan.rounds):
            for provider in self._shuffled(self._names(), f"providers {number}"):
                for benchmark in self._shuffled(self._entered(provider), f"benchmarks {provider}"):
                    await self._round(provider, benchmark, number)
        for provider in self._names():
            await self._refill(provider)

    def _names(self) -> list[str]:
        return [info.name for info in self.manifest.providers]

    def _entered(self, provider: str) -> list[str]:
        info = next(info for info in self.manifest.providers if info.name == provider)
        return [name for name in self._info if name not in info.statuses]

    def _shuffled(self, names: Sequence[str], purpose: str) -> list[str]:
        """Return the names in an order that the manifest's seed decides; the same for one purpose whenever asked."""
        order = list(names)
        random.Random(f"{self.manifest.seed} {purpose}").shuffle(order)  # noqa: S311 - not for secrets
        return order

    # -- taking up -----------------------------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Read what was done, note what a crash cut short, and delete whatever it left."""
        for provider in self._names():
            for benchmark in self._entered(provider):
                for unit in self._info[benchmark].units:
                    self._pairs[provider, benchmark, unit] = _Pair(self._info[benchmark].trials)
        ended = set()
        for trial in self.folder.trials():
            ended.add((trial.id, trial.order))
            self._count(trial)
            self._elapsed_before = max(self._elapsed_before, trial.ended_s)
        for start in self.folder.dicts(STARTS):
            self._order = max(self._order, start["order"] + 1)
            if (start["id"], start["order"]) not in ended:
                self._note_unknown(start)
        for name in self._names():
            await self._reap(name)

    def _note_unknown(self, start: dict[str, Any]) -> None:
        """Record a trial that began and never ended: nobody knows how it would have, so its pair is not refilled."""
        trial = Trial.model_validate(
            start
            | {
                "ended_s": start["started_s"],
                "outcome": Outcome.UNKNOWN,
                "cause": "the harness ended before the trial did",
                "cleanup_confirmed": False,
            }
        )
        self.folder.append(TRIALS, trial)
        self._count(trial)

    async def _reap(self, name: str) -> None:
        provider = self._providers[name]
        for sandbox in await provider.list(self.manifest.label):
            await provider.destroy(sandbox)
        for saved in await provider.snapshots(self.manifest.label):
            await provider.delete_snapshot(saved)
        others = await provider.list()
        if others:
            raise BenchError(
                f"{name} holds {len(others)} sandboxes that are not this run's: {', '.join(others[:3])}.",
                hint="Delete them or wait for their end: they would run beside the trials.",
            )

    def _count(self, trial: Trial) -> None:
        pair = self._pairs.get((trial.provider, trial.benchmark, trial.unit))
        if pair is None:
            return
        if trial.outcome is Outcome.INTERRUPTED:
            return  # its slot is run again
        self._done.add(trial.id)
        pair.attempts += 1
        pair.lost = deque(lost for lost in pair.lost if lost.id != trial.replaces)
        if trial.outcome is Outcome.SUCCESS:
            pair.successes += 1
            return
        pair.lost.append(trial)
        if trial.owner is not None:
            self._failures[trial.owner] += 1
        if trial.outcome is Outcome.BENCHMARK_ERROR:
            pair.stopped = f"benchmark error: {trial.cause}"
        elif trial.outcome is Outcome.UNKNOWN:
            pair.no_refill = "a trial was cut short and its outcome is unknown"
        elif not trial.cleanup_confirmed:
            pair.no_refill = "a trial's sandbox could not be confirmed gone"

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def _round(self, provider: str, benchmark: str, number: int) -> None:
        for unit in self._shuffled(self._info[benchmark].units, f"units {provider} {benchmark} {number}"):
            target = self._info[benchmark].trials
            slots = [
                Slot(provider, benchmark, unit, number, index)
                for index in range(target)
                if index * self.plan.rounds // target == number
            ]
            await self._batch([slot for slot in slots if slot.id not in self._done], f"round {number + 1}")

    async def _batch(self, slots: Iterable[Slot], title: str) -> None:
        """Run slots of one unit side by side, as many at once as the benchmark declares."""
        waiting = deque(slots)
        if not waiting:
            return
        first = waiting[0]
        pair = self._pairs[first.provider, first.benchmark, first.unit]
        batch = f"{first.provider}/{first.benchmark}/{first.unit}/{title.replace(' ', '-')}"
        await self._note_batch(batch, first.provider, "begin")
        windows: dict[int, list[float]] = {}

        async def work() -> None:
            while waiting and pair.stopped is None and not self._is_over():
                slot = waiting.popleft()
                await self._space_creates(slot.provider)
                await self._trial(slot, batch, title, windows)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._info[first.benchmark].concurrency):
                group.create_task(work())
        await self._note_batch(batch, first.provider, "end")

    async def _note_batch(self, batch: str, provider: str, event: str) -> None:
        live, own = await self._providers[provider].list(), await self._providers[provider].list(self.manifest.label)
        self.folder.append(BATCHES, {"batch": batch, "event": event, "others": len(set(live) - set(own))})

    async def _space_creates(self, provider: str) -> None:
        """Keep creates as far apart as the provider's documented rate, outside all timed steps."""
        spacing = self._providers[provider].declaration.create_spacing_s()
        if not spacing:
            return
        now = asyncio.get_running_loop().time()
        due = max(now, self._last_create.get(provider, now - spacing) + spacing)
        self._last_create[provider] = due
        await asyncio.sleep(due - now)

    async def _trial(self, slot: Slot, batch: str, title: str, windows: dict[int, list[float]]) -> None:
        benchmark, provider = self._benchmarks[slot.benchmark], self._providers[slot.provider]
        request = CreateRequest(
            self.manifest.label, self.manifest.lifetime_s, self.manifest.cpus, self.manifest.memory_mib
        )
        order, self._order = self._order, self._order + 1
        session = Session(
            provider,
            request,
            {step.name: step for step in benchmark.steps},
            random.Random(f"{self.manifest.seed} {slot.id}"),  # noqa: S311 - jitter and data, not secrets
            slot.id,
        )
        start = self._start_record(slot, batch, order)
        self.folder.append(STARTS, start)
        window = windows.setdefault(order, [start["started_s"], float("inf")])
        probe = self._probe()
        ending, is_clean, was_cancelled = await perform_and_clean_up(benchmark, session, slot.unit)
        window[1] = self._since_begin()
        shared = [(begun, min(end, window[1])) for begun, end in windows.values()]
        trial = Trial.model_validate(
            start
            | _ended(ending, session)
            | {
                "ended_s": window[1],
                "cleanup_confirmed": is_clean,
                "host": probe.end().model_dump(),
                "others_mean": others_mean(shared)[list(windows).index(order)],
                "cost": self._pricer.cost(slot.provider, session.sandbox_s),
            }
        )
        self.folder.append(TRIALS, trial)
        self._count(trial)
        if ending.is_final:
            self._pairs[slot.provider, slot.benchmark, slot.unit].no_refill = ending.cause
        self._tell(Progress(title, self._finished(), self._planned(), self._failures, trial))
        if was_cancelled:
            raise asyncio.CancelledError

    def _start_record(self, slot: Slot, batch: str, order: int) -> dict[str, Any]:
        info = next(info for info in self.manifest.providers if info.name == slot.provider)
        return {
            "id": slot.id,
            "provider": slot.provider,
            "benchmark": slot.benchmark,
            "unit": slot.unit,
            "procedure": self._info[slot.benchmark].procedure,
            "image": info.image,
            "region": info.region,
            "job_host": self.manifest.job_host,
            "round": slot.round,
            "batch": batch,
            "slot": slot.number,
            "attempt": slot.attempt,
            "replaces": slot.replaces,
            "order": order,
            "started_s": self._since_begin(),
        }

    def _since_begin(self) -> float:
        """Seconds of running, those of earlier sittings included."""
        return self._elapsed_before + asyncio.get_running_loop().time() - self._begun

    def _finished(self) -> int:
        return sum(pair.attempts for pair in self._pairs.values())

    def _planned(self) -> int:
        return sum(max(pair.target, pair.attempts) for pair in self._pairs.values() if pair.stopped is None) + sum(
            pair.attempts for pair in self._pairs.values() if pair.stopped is not None
        )

    def _is_over(self) -> bool:
        budget = self.plan.budget
        return (budget.trials is not None and self._finished() >= budget.trials) or (
            budget.seconds is not None and self._since_begin() >= budget.seconds
        )

    # -- refills -------------------------------------------------------------------------------------------------------

    async def _refill(self, provider: str) -> None:
        """Replace lost trials one at a time, unit by unit, until a stop condition holds; say which one."""
        began = asyncio.get_running_loop().time()
        for (name, benchmark, unit), pair in self._pairs.items():
            if name != provider:
                continue
            if not self._benchmarks[benchmark].tops_up:
                continue
            fruitless, number = 0, 0
            while pair.successes < pair.target:
                reason = self._refill_stop(pair, fruitless, asyncio.get_running_loop().time() - began)
                if reason is not None:
                    self.folder.append(
                        BATCHES,
                        {
                            "event": "refill-stop",
                            "provider": name,
                            "benchmark": benchmark,
                            "unit": unit,
                            "reason": reason,
                        },
                    )
                    break
                before, number = pair.successes, number + 1
                await self._refill_round(pair, (name, benchmark, unit), number)
                fruitless = fruitless + 1 if pair.successes == before else 0

    def _refill_stop(self, pair: _Pair, fruitless: int, seconds: float) -> str | None:
        if pair.stopped is not None:
            return pair.stopped
        if pair.no_refill is not None:
            return pair.no_refill
        if fruitless >= _FRUITLESS:
            return "two refill rounds in a row added no success"
        if pair.attempts >= 2 * pair.target:
            return f"{pair.attempts} attempts, twice the scheduled {pair.target}"
        if seconds >= self.plan.budget.refill_seconds:
            return "the refill time limit is over"
        return "the run's budget is spent" if self._is_over() else None

    async def _refill_round(self, pair: _Pair, key: tuple[str, str, str], number: int) -> None:
        missing = min(pair.target - pair.successes, 2 * pair.target - pair.attempts)
        for _ in range(missing):
            if not pair.lost or pair.stopped or pair.no_refill or self._is_over():
                return
            lost = pair.lost.popleft()
            slot = Slot(*key, self.plan.rounds - 1 + number, lost.slot, lost.attempt + 1, lost.id)
            await self._batch([slot], f"refill {number}")


def _ended(ending: Ending, session: Session) -> dict[str, Any]:
    succeeded = ending.outcome is Outcome.SUCCESS
    return {
        "outcome": ending.outcome,
        "owner": ending.owner,
        "cause": ending.cause,
        "failed_step": None if succeeded else ending.step,
        "metrics": session.metrics if succeeded else {},
        "calls": session.calls if succeeded else {},
        "steps": [step.model_dump() for step in session.steps],
        "readiness": [attempt.model_dump() for attempt in session.readiness],
        "placement": None if session.placement is None else session.placement.model_dump(),
        "flags": session.flags,
        "tied_to": session.tied_to,
        "sandbox_s": session.sandbox_s,
    }


# -- beginning ---------------------------------------------------------------------------------------------------------


async def begin(
    path: Path, plan: Plan, providers: Mapping[str, Provider], benchmarks: Mapping[str, Benchmark], *, run: str
) -> tuple[RunFolder, Manifest]:
    """Write the manifest of a new run: who takes part in what, on what, and from where.

    Raises:
        BenchError: the folder holds a run, or a benchmark or unit does not exist.
    """
    infos = [_benchmark_info(plan_item, benchmarks) for plan_item in plan.benchmarks]
    manifest = Manifest(
        run=run,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        job_host=socket.gethostname(),
        seed=plan.seed,
        rounds=plan.rounds,
        label=f"sandyard-bench-{run}",
        lifetime_s=plan.lifetime_s,
        cpus=plan.cpus,
        memory_mib=plan.memory_mib,
        providers=[await _provider_info(provider, infos, benchmarks) for provider in providers.values()],
        benchmarks=infos,
        versions={name: version(name) for name in ("sandyard", "numpy", "scipy")}
        | {"python": platform.python_version(), "kernel": platform.release()},
        plan=plan.model_dump(),
    )
    return RunFolder.create(path, manifest), manifest


def check_resumable(manifest: Manifest, plan: Plan, benchmarks: Mapping[str, Benchmark]) -> None:
    """Check that what would run now is what ran before.

    Raises:
        IncomparableRunsError: the plan or a timed procedure has changed.
    """
    if plan.model_dump() != manifest.plan:
        raise IncomparableRunsError("the plan has changed since the run began.", hint="Begin another run for it.")
    for info in manifest.benchmarks:
        if benchmarks[info.name].procedure() != info.procedure:
            raise IncomparableRunsError(
                f"the timed procedure of {info.name} has changed since the run began.", hint="Begin another run."
            )


def _benchmark_info(item: Any, benchmarks: Mapping[str, Benchmark]) -> BenchmarkInfo:
    benchmark = benchmarks.get(item.name)
    if benchmark is None:
        raise BenchError(f"there is no benchmark {item.name!r}.", hint=f"Known: {', '.join(sorted(benchmarks))}.")
    unknown = set(item.units or ()) - set(benchmark.units)
    if unknown:
        raise BenchError(
            f"{item.name} has no unit {', '.join(sorted(unknown))}.", hint=f"Units: {', '.join(benchmark.units)}."
        )
    info = benchmark.info(trials=item.trials, units=item.units)
    return info.model_copy(update={"concurrency": item.concurrency or info.concurrency})


async def _provider_info(
    provider: Provider, infos: Sequence[BenchmarkInfo], benchmarks: Mapping[str, Benchmark]
) -> ProviderInfo:
    statuses, reasons = {}, {}
    for info in infos:
        found = eligibility(provider, info, benchmarks[info.name])
        if found is not None:
            statuses[info.name], reasons[info.name] = found
    return ProviderInfo(
        name=provider.name,
        region=provider.declaration.region,
        version=await provider.version(),
        image=await provider.image(),
        statuses=statuses,
        reasons=reasons,
        network_baseline_ms=await network_baseline(provider.declaration.endpoints),
        create_spacing_s=provider.declaration.create_spacing_s(),
        card=provider.declaration.card,
    )


def eligibility(provider: Provider, info: BenchmarkInfo, benchmark: Benchmark) -> tuple[str, str] | None:
    """Return the status label and its reason where a provider does not enter; from its declaration alone."""
    declared = provider.declaration
    if info.name in declared.not_supported:
        return "Not Supported", declared.not_supported[info.name]
    missing = benchmark.requires - declared.capabilities
    if missing & declared.not_offered:
        return "Not Offered", f"{provider.name} has no {', '.join(sorted(missing & declared.not_offered))}"
    if missing:
        return "Not Supported", f"{', '.join(sorted(missing))} is not driven here yet"
    limit = declared.concurrent_sandboxes
    if limit is not None and info.concurrency > limit:
        return "Account Limit", f"{info.concurrency} at once, and the account allows {limit}"
    return None


async def network_baseline(endpoints: Sequence[str]) -> dict[str, float]:
    """Return the median time of ten TCP connects to each endpoint, in milliseconds; no sandbox, no API call."""
    found: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        times = []
        for _ in range(BASELINE_CONNECTS):
            began = loop.time()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                times.append((loop.time() - began) * 1000)
                writer.close()
        if times:
            found[endpoint] = statistics.median_low(times)
    return found


def unreplaced(trials: Iterable[Trial]) -> Counter[tuple[str, str, str]]:
    """Count, for each pair, the provider failures that no later trial replaces."""
    replaced = {trial.replaces for trial in trials if trial.replaces and trial.outcome is Outcome.SUCCESS}
    counts: Counter[tuple[str, str, str]] = Counter()
    for trial in trials:
        if trial.outcome is Outcome.PROVIDER_FAILURE and trial.id not in replaced:
            counts[trial.provider, trial.benchmark, trial.unit] += 1
    return counts
