"""What every form of the report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandyard.bench.audit import Audit, audit
from sandyard.bench.records import Manifest, Trial
from sandyard.bench.scores import Scores, score
from sandyard.bench.summary import Cell, Summary, summarise


@dataclass(frozen=True, slots=True)
class Report:
    """A run with everything that is known of it."""

    manifest: Manifest
    trials: Sequence[Trial]
    audit: Audit
    summary: Summary
    scores: Scores


def make_report(manifest: Manifest, trials: Sequence[Trial], resolutions: Mapping[str, str] | None = None) -> Report:
    """Audit, summarise and score a run."""
    found = audit(manifest, trials, resolutions)
    summary = summarise(manifest, trials, found)
    return Report(manifest, trials, found, summary, score(summary))


def number(value: float) -> str:
    """Write a number with three or four digits that mean something."""
    if abs(value) >= 1000:  # noqa: PLR2004 - four digits are enough
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"  # noqa: PLR2004 - the same


def cell_words(cell: Cell) -> list[str]:
    """Return the columns of a cell: provider, unit, metric, median, interval, tail, mean, n, and what is to be said."""
    said = " - ".join(part for part in (cell.status, cell.reason) if part)
    if cell.excluded:
        said = f"{said}; {len(cell.excluded)} excluded as implausible".lstrip("; ")
    head = [cell.key.provider, cell.key.unit, cell.key.metric]
    if cell.median is None or cell.interval is None or cell.tail is None or cell.mean is None:
        return [*head, "-", "-", "-", "-", str(cell.n), said]
    return [
        *head,
        f"{number(cell.median)} {cell.metric.unit}",
        f"{number(cell.interval.low)} to {number(cell.interval.high)}",
        f"{number(cell.tail.value)} ({cell.tail.label})",
        number(cell.mean),
        str(cell.n),
        said,
    ]


COLUMNS = ("provider", "unit", "metric", "median", "95% interval", "tail", "mean", "n", "")


def cost_words(report: Report) -> str:
    """Say whether costs are known, and why not."""
    priced = [
        info.name for info in report.manifest.providers if any(t.cost for t in report.trials if t.provider == info.name)
    ]
    if not priced:
        return "Cost per success is blank: no provider of this run has a rate card."
    return f"Cost per success is known for {', '.join(priced)}; the others have no rate card."
