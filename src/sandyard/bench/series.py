"""Trials as arrays: one series for each provider, benchmark, unit and main metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sandyard.bench.records import BenchmarkInfo, Manifest, Metric, Outcome, Trial
from sandyard.errors import IncomparableRunsError
from sandyard.stats import median


@dataclass(frozen=True, slots=True)
class Key:
    """What one series is about."""

    provider: str
    benchmark: str
    unit: str
    metric: str

    def __str__(self) -> str:
        """Readable, and usable in a command line."""
        return f"{self.provider}/{self.benchmark}/{self.unit}/{self.metric}"


@dataclass(frozen=True, slots=True)
class Series:
    """The successful trials of one pair in the order of execution."""

    key: Key
    metric: Metric
    has_create: bool
    trials: tuple[Trial, ...]
    values: np.ndarray

    @property
    def rounds(self) -> np.ndarray:
        """The round of each trial."""
        return np.array([trial.round for trial in self.trials])

    @property
    def batches(self) -> np.ndarray:
        """A number for the batch of each trial."""
        return np.unique([trial.batch for trial in self.trials], return_inverse=True)[1]

    def over_medians(self, groups: np.ndarray) -> np.ndarray:
        """Return each value over the median of its group; ``groups`` numbers the group of each trial."""
        ratios = self.values.copy()
        for number in np.unique(groups):
            inside = groups == number
            ratios[inside] /= median(self.values[inside])
        return ratios

    def without(self, ids: Iterable[str]) -> Series:
        """Leave some trials out."""
        dropped = set(ids)
        keep = np.array([trial.id not in dropped for trial in self.trials], dtype=bool)
        kept = tuple(trial for trial in self.trials if trial.id not in dropped)
        return Series(self.key, self.metric, self.has_create, kept, self.values[keep])


def all_series(manifest: Manifest, trials: Sequence[Trial], *, main_only: bool = True) -> list[Series]:
    """Sort successful trials into series.

    Raises:
        IncomparableRunsError: a provider's trials come from two regions, job hosts, images or procedures.
    """
    groups: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.provider, trial.benchmark, trial.unit].append(trial)
    known = {info.name: info for info in manifest.benchmarks}
    found: list[Series] = []
    for (provider, benchmark, unit), members in sorted(groups.items()):
        _refuse_mixture(members)
        succeeded = sorted((t for t in members if t.outcome is Outcome.SUCCESS), key=lambda trial: trial.order)
        found += (
            _series(Key(provider, benchmark, unit, metric.name), known[benchmark], metric, succeeded)
            for metric in known[benchmark].metrics
            if metric.is_main or not main_only
        )
    return found


def _series(key: Key, info: BenchmarkInfo, metric: Metric, trials: list[Trial]) -> Series:
    having = tuple(trial for trial in trials if metric.name in trial.metrics)
    values = np.array([trial.metrics[metric.name] for trial in having], dtype=float)
    return Series(key, metric, info.has_create, having, values)


def _refuse_mixture(trials: list[Trial]) -> None:
    for name in ("region", "job_host", "image", "procedure"):
        seen = {str(getattr(trial, name)) for trial in trials}
        if len(seen) > 1:
            first = trials[0]
            raise IncomparableRunsError(
                f"the trials of {first.benchmark} on {first.provider} mix more than one {name.replace('_', ' ')}: "
                f"{', '.join(sorted(seen))}.",
                hint="A change of it starts a new series; run and read them apart.",
            )
