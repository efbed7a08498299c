"""A run in numbers: each with its n and interval, or with the status label that stands in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sandyard.bench.audit import Audit
from sandyard.bench.records import BenchmarkInfo, Manifest, Metric, Outcome, Trial
from sandyard.bench.run import unreplaced
from sandyard.bench.series import Key, Series, all_series
from sandyard.stats import Interval, Tail, geometric_mean, mean, median, median_interval, pooled_median_interval, tail


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric of one unit on one provider."""

    key: Key
    metric: Metric
    n: int
    median: float | None = None
    interval: Interval | None = None
    tail: Tail | None = None
    mean: float | None = None
    cost: Decimal | None = None
    """Mean cost of a successful trial, of the benchmark's first main metric only."""
    status: str | None = None
    """The label in place of a rank."""
    reason: str | None = None
    excluded: tuple[str, ...] = ()

    @property
    def is_published(self) -> bool:
        """Whether it takes part in values, scores and ranks."""
        return self.status is None and self.median is not None


@dataclass(frozen=True, slots=True)
class WorkloadValue:
    """The geometric mean over the units of a workload, as "All" shows it."""

    provider: str
    benchmark: str
    value: float
    substituted: tuple[str, ...]
    """Units without a result, filled with the worst of all providers."""
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of a run."""

    manifest: Manifest
    cells: Mapping[Key, Cell]
    outcomes: Mapping[str, Mapping[str, int]]
    """Provider to outcome to count."""
    workloads: tuple[WorkloadValue, ...] = ()
    composites: Mapping[str, float] = field(default_factory=dict)
    """Provider to the geometric mean of its workload values; only where it has all of them."""

    def headline(self, provider: str, info: BenchmarkInfo, unit: str) -> Cell | None:
        """Return the first main metric's cell."""
        return self.cells.get(Key(provider, info.name, unit, main_metric(info).name))


def main_metric(info: BenchmarkInfo) -> Metric:
    """Return the metric that a benchmark is ranked by."""
    return next(metric for metric in info.metrics if metric.is_main)


def summarise(manifest: Manifest, trials: Sequence[Trial], audit: Audit) -> Summary:
    """Work out every number of a run; pairs that fail the audit unresolved have none."""
    failures = unreplaced(trials)
    successes: dict[tuple[str, str], int] = defaultdict(int)
    outcomes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for trial in trials:
        outcomes[trial.provider][trial.outcome] += 1
        successes[trial.provider, trial.benchmark] += trial.outcome is Outcome.SUCCESS
    infos = {info.name: info for info in manifest.benchmarks}
    cells: dict[Key, Cell] = {}
    for series in all_series(manifest, trials, main_only=False):
        key = series.key
        cells[key] = _cell(
            series,
            infos[key.benchmark],
            audit,
            successes[key.provider, key.benchmark],
            failures[key.provider, key.benchmark, key.unit],
        )
    _add_absent(manifest, cells)
    workloads = tuple(_workloads(manifest, cells))
    return Summary(manifest, cells, outcomes, workloads, _composites(workloads))


def _cell(series: Series, info: BenchmarkInfo, audit: Audit, successes: int, failures: int) -> Cell:
    key, excluded = series.key, audit.excluded(series.key)
    kept = series.without(excluded) if excluded else series
    n = len(kept.values)
    if n == 0:
        label, why = ("Provider Failures", f"{failures} failed") if failures else ("Not Measured", "no trial succeeded")
        return Cell(key, series.metric, 0, status=label, reason=why)
    if failing := _failing(key, series.metric, audit):
        return Cell(
            key, series.metric, n, status="Not Ranked", reason=f"withheld, as its audit fails: {', '.join(failing)}"
        )
    status, reason = None, None
    if successes < info.floor:
        status, reason = "Not Ranked", f"{successes} successful trials, and the floor is {info.floor}"
    elif failures:
        reason = f"{failures} failed trials were not replaced"
    if series.metric.is_pooled:
        calls = [trial.calls[series.metric.name] for trial in kept.trials]
        pooled = [value for values in calls for value in values]
        numbers = (median(pooled), pooled_median_interval(calls), tail(pooled, series.metric.better), mean(pooled))
    else:
        values = kept.values
        numbers = (median(values), median_interval(values), tail(values, series.metric.better), mean(values))
    costs = [Decimal(trial.cost) for trial in kept.trials if trial.cost is not None]
    cost = sum(costs, Decimal(0)) / n if len(costs) == n and series.metric == main_metric(info) else None
    return Cell(key, series.metric, n, *numbers, cost=cost, status=status, reason=reason, excluded=excluded)


def _failing(key: Key, metric: Metric, audit: Audit) -> list[str]:
    """Return the checks that keep a number out: those of its own pair, and for a side metric those of the main ones."""
    if metric.is_main:
        pairs = [audit.by_key[key]] if key in audit.by_key else []
    else:
        trio = (key.provider, key.benchmark, key.unit)
        pairs = [pair for pair in audit.pairs if (pair.key.provider, pair.key.benchmark, pair.key.unit) == trio]
    return sorted({finding.check for pair in pairs if not pair.is_publishable for finding in pair.failures})


def _add_absent(manifest: Manifest, cells: dict[Key, Cell]) -> None:
    """Give every provider a cell for every unit, so that nothing is missing without a word."""
    for info in manifest.benchmarks:
        metric = main_metric(info)
        for provider in manifest.providers:
            for unit in info.units:
                key = Key(provider.name, info.name, unit, metric.name)
                if key not in cells:
                    status = provider.statuses.get(info.name, "Not Measured")
                    why = provider.reasons.get(info.name, "it has no trial here")
                    cells[key] = Cell(key, metric, 0, status=status, reason=why)


def _workloads(manifest: Manifest, cells: Mapping[Key, Cell]) -> list[WorkloadValue]:
    found: list[WorkloadValue] = []
    for info in manifest.benchmarks:
        if info.section != "workload":
            continue
        name = main_metric(info).name
        by_unit = {
            unit: {
                provider.name: cell
                for provider in manifest.providers
                if (cell := cells[Key(provider.name, info.name, unit, name)]).is_published
            }
            for unit in info.units
        }
        completed = {unit: done for unit, done in by_unit.items() if done}
        found += [
            _workload(provider.name, info.name, completed)
            for provider in manifest.providers
            if any(provider.name in done for done in completed.values())
        ]
    return found


def _workload(provider: str, benchmark: str, units: Mapping[str, Mapping[str, Cell]]) -> WorkloadValue:
    """Fill a unit without a result with the worst value of those that have one, and say so."""
    values, costs, substituted = [], [], []
    for unit, done in units.items():
        if provider in done:
            values.append(done[provider].median or 0.0)
            costs.append(done[provider].cost)
            continue
        substituted.append(unit)
        values.append(max(cell.median or 0.0 for cell in done.values()))
        costs.append(max((cell.cost for cell in done.values() if cell.cost is not None), default=None))
    known = [float(cost) for cost in costs if cost]
    cost = geometric_mean(known) if len(known) == len(values) else None
    return WorkloadValue(provider, benchmark, geometric_mean(values), tuple(substituted), cost)


def _composites(workloads: Sequence[WorkloadValue]) -> dict[str, float]:
    names = {workload.benchmark for workload in workloads}
    by_provider: dict[str, dict[str, float]] = defaultdict(dict)
    for workload in workloads:
        by_provider[workload.provider][workload.benchmark] = workload.value
    return {
        provider: geometric_mean(values.values()) for provider, values in by_provider.items() if set(values) == names
    }


def derived_view(trials: Sequence[Trial], metric: Metric, components: Sequence[str]) -> tuple[float, Tail] | None:
    """Summarise the sum of some components over the trials in which each of them has a value; no interval."""
    sums = [
        sum(trial.metrics[name] for name in components)
        for trial in trials
        if trial.outcome is Outcome.SUCCESS and all(name in trial.metrics for name in components)
    ]
    return (median(sums), tail(sums, metric.better)) if sums else None


def stage_widths(total: float, stages: Mapping[str, float]) -> dict[str, float]:
    """Scale stage medians so that they fill the bar of the total median; labels keep the real values."""
    scale = total / sum(stages.values())
    return {name: value * scale for name, value in stages.items()}
