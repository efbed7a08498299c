"""Four scores from 0 to 100 for each provider, and their mean: time, cost, operations, machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandyard.bench.records import BenchmarkInfo
from sandyard.bench.summary import Cell, Summary
from sandyard.stats import mean

DECIMALS = 6
"""Of the published score; ties are seen after rounding to it."""

LEVELS = ("time", "cost", "operations", "machine", "overall")
_SECTIONS = {"time": "workload", "cost": "workload", "operations": "operation", "machine": "machine"}


@dataclass(frozen=True, slots=True)
class Scores:
    """The tree: each level's score for each provider that has one, and the rank."""

    levels: Mapping[str, Mapping[str, float]]
    ranks: Mapping[str, Mapping[str, int]]
    tests: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Level and benchmark to provider to score."""


def score(summary: Summary) -> Scores:
    """Score every provider; a child without a result adds 0, and a provider without any has no score."""
    levels: dict[str, dict[str, float]] = {}
    tests: dict[str, dict[str, float]] = {}
    for level, section in _SECTIONS.items():
        value = _cost if level == "cost" else _median
        infos = [info for info in summary.manifest.benchmarks if info.section == section]
        children = {f"{level}/{info.name}": _benchmark(summary, info, value) for info in infos}
        children = {name: scores for name, scores in children.items() if scores}
        tests |= children
        levels[level] = combine(list(children.values()))
    levels["overall"] = combine([levels[level] for level in _SECTIONS if levels[level]])
    return Scores(levels, {level: rank(found) for level, found in levels.items()}, tests)


def combine(children: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average children that anybody has a result in; a provider missing from one adds 0 there."""
    providers = sorted({provider for child in children for provider in child})
    return {provider: round(mean(child.get(provider, 0.0) for child in children), DECIMALS) for provider in providers}


def rank(scores: Mapping[str, float]) -> dict[str, int]:
    """Rank higher scores first; ties share the better rank: 1, 2, 2, 4."""
    return {
        provider: 1 + sum(round(other, DECIMALS) > round(value, DECIMALS) for other in scores.values())
        for provider, value in scores.items()
    }


def _benchmark(summary: Summary, info: BenchmarkInfo, value: Callable[[Cell], float | None]) -> dict[str, float]:
    """Average a benchmark's units, over those that anybody completed."""
    units = []
    for unit in info.units:
        found = {}
        for provider in summary.manifest.providers:
            cell = summary.headline(provider.name, info, unit)
            if cell is not None and cell.is_published and (number := value(cell)) is not None:
                found[provider.name] = (number, cell.metric.better if value is _median else "lower")
        if found:
            units.append(unit_scores(found))
    return combine(units)


def unit_scores(values: Mapping[str, tuple[float, str]]) -> dict[str, float]:
    """Return 100 for the best, and for the others their share of it."""
    numbers = [number for number, _ in values.values()]
    lower = next(iter(values.values()))[1] == "lower"
    best = min(numbers) if lower else max(numbers)
    return {name: 100 * (best / number if lower else number / best) for name, (number, _) in values.items()}


def _median(cell: Cell) -> float | None:
    return cell.median


def _cost(cell: Cell) -> float | None:
    return float(cell.cost) if cell.cost else None
