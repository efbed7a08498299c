"""The charts, as Vega-Lite through Altair, drawn to SVG in this process: no browser, no network.

A run of any size gives charts of bounded size: a distribution is shown by at most 100 of its quantiles, an order plot
by at most 120 medians of neighbouring trials.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from sandyard.bench.records import BenchmarkInfo
from sandyard.bench.report.view import Report
from sandyard.bench.series import Key, Series, all_series
from sandyard.bench.summary import main_metric, stage_widths
from sandyard.stats import median

_QUANTILES = 100
_POINTS = 120
_WIDTH = 640
_ROW = 26


def charts(report: Report) -> Iterator[tuple[str, str]]:
    """Give the title and the SVG of each chart."""
    by_benchmark: dict[str, list[Series]] = {}
    for series in all_series(report.manifest, report.trials):
        if len(series.values):
            by_benchmark.setdefault(series.key.benchmark, []).append(series)
    for info in report.manifest.benchmarks:
        metric = main_metric(info)
        shown = [s for s in by_benchmark.get(info.name, []) if s.key.metric == metric.name]
        if not shown:
            continue
        yield (
            f"{info.title}: trials",
            _svg(_distribution(shown, metric.unit, {pair.key for pair in report.audit.failed})),
        )
        if (stages := _stages(report, info)) is not None:
            yield f"{info.title}: stages", _svg(stages)
        yield f"{info.title}: order of execution", _svg(_order(shown))
    if (costs := _cost(report)) is not None:
        yield "Time against cost", _svg(costs)


def _data(rows: list[dict[str, Any]]) -> Any:
    return alt.Data(values=rows)  # type: ignore[no-untyped-call]  # altair types its schema, not its makers


def _svg(chart: Any) -> str:
    return str(vl_convert.vegalite_to_svg(chart.configure_view(strokeWidth=0).to_dict()))


def _label(series: Series) -> str:
    return series.key.provider if series.key.unit == "all" else f"{series.key.provider} · {series.key.unit}"


def _distribution(shown: Sequence[Series], unit: str, withheld: Collection[Key]) -> Any:
    """One row for each series: quantiles as ticks, the median as a bar unless withheld; logarithmic, for ratios."""
    rows: list[dict[str, Any]] = []
    medians: list[dict[str, Any]] = []
    for series in shown:
        ordered = np.sort(series.values)
        picked = ordered[np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _QUANTILES)).round().astype(int))]
        label = _label(series) + (" (withheld)" if series.key in withheld else "")
        rows += [{"series": label, "value": float(value)} for value in picked]
        medians.append({"series": label, "value": median(series.values), "withheld": series.key in withheld})
    order = [item["series"] for item in sorted(medians, key=lambda item: item["value"])]
    x = alt.X("value:Q", scale=alt.Scale(type="log", nice=True), title=unit)
    y = alt.Y("series:N", sort=order, title=None)
    ticks = alt.Chart(_data(rows)).mark_tick(opacity=0.5, thickness=1, color="#4c78a8").encode(x=x, y=y)
    bars = (
        alt.Chart(_data([item for item in medians if not item["withheld"]]))
        .mark_tick(thickness=3, size=18, color="#d62728")
        .encode(x=x, y=y)
    )
    return alt.layer(ticks, bars).properties(width=_WIDTH, height=_ROW * len(shown))


def _stages(report: Report, info: BenchmarkInfo) -> Any:
    """Stack stage medians, scaled to fill the total median's bar."""
    stages = [metric.name for metric in info.metrics if metric.stage_of == main_metric(info).name]
    rows = []
    for unit in info.units if stages else ():
        for provider in report.manifest.providers:
            cells = {
                key.metric: cell
                for key, cell in report.summary.cells.items()
                if (key.provider, key.benchmark, key.unit) == (provider.name, info.name, unit) and cell.median
            }
            total = cells.get(main_metric(info).name)
            if total is None or total.median is None or not all(name in cells for name in stages):
                continue
            widths = stage_widths(total.median, {name: cells[name].median or 0.0 for name in stages})
            label = provider.name if unit == "all" else f"{provider.name} · {unit}"
            rows += [
                {"series": label, "stage": name, "width": widths[name], "place": stages.index(name)} for name in stages
            ]
    if not rows:
        return None
    height = _ROW * len({row["series"] for row in rows})
    return (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("width:Q", title=main_metric(info).unit),
            y=alt.Y("series:N", title=None),
            color=alt.Color("stage:N", sort=stages, title=None),
            order=alt.Order("place:Q"),
        )
        .properties(width=_WIDTH, height=height)
    )


def _order(shown: Sequence[Series]) -> Any:
    """Each trial over its series' median, in the order of execution: a drift or a step is seen at once."""
    rows = []
    for series in shown:
        relative = series.values / median(series.values)
        for block in np.array_split(np.arange(len(relative)), min(len(relative), _POINTS)):
            value = round(float(np.median(relative[block])), 4)
            rows.append({"series": _label(series), "trial": int(block[0]), "ratio": value})
    return (
        alt.Chart(_data(rows))
        .mark_line(point=alt.OverlayMarkDef(size=12), strokeWidth=1, opacity=0.8)
        .encode(
            x=alt.X("trial:Q", title="trial"),
            y=alt.Y("ratio:Q", title="over the median", scale=alt.Scale(type="log", nice=False)),
            color=alt.Color("series:N", title=None),
        )
        .properties(width=_WIDTH, height=200)
    )


def _cost(report: Report) -> Any:
    rows = [
        {"series": str(key), "benchmark": key.benchmark, "time": cell.median, "cost": float(cell.cost)}
        for key, cell in report.summary.cells.items()
        if cell.cost and cell.median
    ]
    if not rows:
        return None
    return (
        alt.Chart(_data(rows))
        .mark_circle(size=80)
        .encode(
            x=alt.X("time:Q", scale=alt.Scale(type="log"), title="median time"),
            y=alt.Y("cost:Q", scale=alt.Scale(type="log"), title="cost per success"),
            color=alt.Color("series:N", title=None),
        )
        .properties(width=_WIDTH, height=280)
    )
