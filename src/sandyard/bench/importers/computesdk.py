"""ComputeSDK's result files (github.com/computesdk/benchmarks) as trials.

A failed iteration is a failure, never the zero that the file has for it. Every published summary and score is worked
out again from the iterations, and a file that does not say what its own iterations say is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sandyard.bench.load import others_mean
from sandyard.bench.records import BenchmarkInfo, Manifest, Metric, Outcome, ProviderInfo, Trial
from sandyard.errors import BenchError

DayAs = Literal["round", "unit"]

_TTI = [Metric(name="tti", unit="ms")]
_KINDS: dict[str, list[Metric]] = {
    "sequential": _TTI,
    "staggered": _TTI,
    "concurrent": _TTI,
    "storage": [
        Metric(name="upload", unit="ms", is_main=False),
        Metric(name="download", unit="ms"),
        Metric(name="throughput", unit="Mbit/s", better="higher"),
    ],
    "browser": [
        Metric(name="total", unit="ms"),
        *(
            Metric(name=stage, unit="ms", is_main=False, stage_of="total")
            for stage in ("create", "connect", "navigate", "release")
        ),
    ],
}
_NAMES = {"concurrent": "burst"}
_CEILING_MS = 10_000
_RULES = (
    (0.05, {"median": 0.60, "p95": 0.25, "p99": 0.15}),
    (0.0, {"median": 0.50, "p95": 0.20, "p99": 0.10, "max": 0.15, "min": 0.05}),
)
"""Share trimmed at each end, and the score's weights: since mid-March 2026 (so its p99 is the raw p95), and before."""

_ROUNDING = 0.0051
"""Their numbers have two decimals, rounded from sums that may end on a half."""

_NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Imported:
    """A run made of files."""

    manifest: Manifest
    trials: list[Trial]
    summaries: int
    """Published figures that were worked out again and agreed."""


def read_files(paths: Sequence[Path], *, day_as: DayAs = "round") -> Imported:
    """Read result files, oldest first by their own time.

    Args:
        paths: of any of the five kinds.
        day_as: whether the files of one kind are rounds of one unit, or units of one round each.

    Raises:
        BenchError: not such a file, the same results twice, or a summary that its iterations contradict.
    """
    if not paths:
        raise BenchError("there is nothing to import.", hint="Name result files of computesdk/benchmarks.")
    files = sorted(_load(paths), key=lambda item: (str(item[1].get("timestamp")), str(item[0])))
    trials: list[Trial] = []
    seen: dict[str, dict[str, int]] = {}
    summaries = 0
    for path, data in files:
        for row in data["results"]:
            kind = _kind(path, row)
            rounds = seen.setdefault(kind, {})
            number = rounds.setdefault(path.stem, len(rounds))
            summaries += _verify(path, row)
            trials += _trials(row, kind, day=path.stem, number=number, order=len(trials), day_as=day_as)
    return Imported(_manifest(trials, files, seen, day_as), trials, summaries)


def _load(paths: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    known: dict[str, Path] = {}
    for path in paths:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if path.name == "latest.json":
            raise BenchError(f"{path} is a copy of the newest day.", hint="Leave it out, or the day counts twice.")
        if digest in known:
            raise BenchError(f"{path} and {known[digest]} are the same.", hint="Name each result file once.")
        known[digest] = path
        try:
            data = json.loads(content)
        except ValueError as error:
            raise BenchError(f"{path} is not JSON: {error}.", hint="Fetch it again.") from None
        if not isinstance(data, dict) or not isinstance(data.get("results"), list):
            raise BenchError(f"{path} has no results.", hint="Name result files of computesdk/benchmarks.")
        yield path, data


def _kind(path: Path, row: dict[str, Any]) -> str:
    kind = row.get("mode", "sequential")
    if kind not in _KINDS:
        raise BenchError(
            f"{path}: {row.get('provider')} has the unknown mode {kind!r}.", hint="Known: all until May 2026."
        )
    return str(kind)


def _trials(row: dict[str, Any], kind: str, *, day: str, number: int, order: int, day_as: DayAs) -> Iterator[Trial]:
    benchmark = f"computesdk-{_NAMES.get(kind, kind)}"
    provider = row["provider"]
    windows = _windows(row, kind)
    beside = None if kind == "sequential" or _has_failures(row) else others_mean(windows)
    for index, iteration in enumerate(row["iterations"]):
        error = iteration.get("error")
        start, end = windows[index]
        yield Trial.model_construct(
            schema_version=1,
            id=f"{provider}/{benchmark}/{day}/{index}",
            provider=provider,
            benchmark=benchmark,
            unit=day if day_as == "unit" else "all",
            procedure=_NOT_RECORDED,
            region=_NOT_RECORDED,
            job_host=_NOT_RECORDED,
            round=0 if day_as == "unit" else number,
            batch=f"{day}/{benchmark}/{provider}",
            slot=index,
            order=order + index,
            started_s=start,
            ended_s=end,
            outcome=Outcome.PROVIDER_FAILURE if error else Outcome.SUCCESS,
            owner="provider" if error else None,
            cause=str(error) if error else None,
            metrics={} if error else {m.name: float(iteration[_field(m.name)]) for m in _KINDS[kind]},
            others_mean=None if beside is None else beside[index],
            calls={},
            steps=[],
            readiness=[],
            flags=[],  # given, as a default that is made by a function costs a millisecond here
        )


def _field(metric: str) -> str:
    return "throughputMbps" if metric == "throughput" else f"{metric}Ms"


def _has_failures(row: dict[str, Any]) -> bool:
    return any("error" in iteration for iteration in row["iterations"])


def _windows(row: dict[str, Any], kind: str) -> list[tuple[float, float]]:
    """Return when each iteration began and ended since its batch did, as far as the file tells."""
    values = [iteration.get(_field(_KINDS[kind][0].name), 0.0) / 1000 for iteration in row["iterations"]]
    if kind == "concurrent":
        return [(0.0, value) for value in values]
    profile = row.get("rampProfile", [])
    if kind == "staggered" and len(profile) == len(values):
        return [(point["launchedAt"] / 1000, point["readyAt"] / 1000) for point in profile]
    windows, now = [], 0.0
    for value in values:
        windows.append((now, now + value))
        now += value
    return windows


# -- what the file says of itself --------------------------------------------------------------------------------------


def _verify(path: Path, row: dict[str, Any]) -> int:
    """Work every figure of a row out again, and return how many there are."""
    iterations = [iteration for iteration in row["iterations"] if "error" not in iteration]
    wrong: list[str] = []
    for trim, weights in _RULES:
        wrong = list(_mismatches(row, iterations, trim, weights))
        if not wrong:
            return sum(len(figures) for figures in row["summary"].values())
    raise BenchError(
        f"{path}: the summary of {row['provider']} does not follow from its iterations: {'; '.join(wrong)}.",
        hint="The file was changed or cut; fetch it again.",
    )


def _mismatches(
    row: dict[str, Any], iterations: list[dict[str, Any]], trim: float, weights: dict[str, float]
) -> Iterator[str]:
    for field, figures in row["summary"].items():
        mine = _summary([iteration[field] for iteration in iterations], trim)
        for name, value in figures.items():
            if abs(mine[name] - value) > _ROUNDING:
                yield f"{field} {name} is {value}, and {mine[name]:.2f} by its iterations"
    score = row.get("compositeScore")
    if score is not None and row.get("mode", "sequential") in {"sequential", "staggered", "concurrent"}:
        mine = _summary([iteration["ttiMs"] for iteration in iterations], trim)
        share = len(iterations) / len(row["iterations"]) if row["iterations"] else 0.0
        points = share * sum(
            weight * max(0.0, 100 * (1 - mine[name] / _CEILING_MS)) for name, weight in weights.items()
        )
        if abs(points - score) > _ROUNDING:
            yield f"the score is {score}, and {points:.2f} by its iterations"


def _summary(values: list[float], trim: float) -> dict[str, float]:
    if not values:
        return dict.fromkeys(("median", "p95", "p99", "min", "max", "avg"), 0.0)
    ordered = sorted(values)
    cut = math.floor(len(ordered) * trim)
    kept = ordered[cut : len(ordered) - cut]
    n = len(kept)
    return {
        "median": (kept[(n - 1) // 2] + kept[n // 2]) / 2,
        "p95": kept[-(-95 * n // 100) - 1],
        "p99": kept[-(-99 * n // 100) - 1],
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) / len(ordered),
    }


def _manifest(
    trials: list[Trial], files: list[tuple[Path, dict[str, Any]]], seen: dict[str, dict[str, int]], day_as: DayAs
) -> Manifest:
    return Manifest(
        run="computesdk",
        created_at=str(files[-1][1].get("timestamp")),
        job_host=_NOT_RECORDED,
        seed=0,
        rounds=max(len(days) for days in seen.values()),
        label="",
        lifetime_s=0,
        cpus=0,
        memory_mib=0,
        providers=[
            ProviderInfo(name=name, region=_NOT_RECORDED, version=_NOT_RECORDED)
            for name in sorted({trial.provider for trial in trials})
        ],
        benchmarks=[
            BenchmarkInfo(
                name=f"computesdk-{_NAMES.get(kind, kind)}",
                section="operation",
                title=f"ComputeSDK {_NAMES.get(kind, kind)}",
                units=sorted(days) if day_as == "unit" else ["all"],
                metrics=_KINDS[kind],
                procedure=_NOT_RECORDED,
                trials=max(len(row["iterations"]) for _, data in files for row in data["results"]),
                floor=20,
                concurrency=100 if kind in {"staggered", "concurrent"} else 1,
                has_create=kind != "storage",
            )
            for kind, days in seen.items()
        ],
        source="https://github.com/computesdk/benchmarks",
    )
