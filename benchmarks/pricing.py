"""Measure what pricing promises; ``python -m benchmarks.pricing`` prints a table, with ``--json`` the raw values."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from sandyard.catalog import Catalog, load_catalog, read_catalog
from sandyard.pricing import CANONICAL, Run, Trace, quote, quote_all, quote_trace
from sandyard.pricing.invariants import check_catalog
from sandyard.pricing.vector import Columns, vector_quote

SESSIONS = 1_000_000
SIDE = 160
"""Workloads along each side of the grid: with the priced products, somewhat under a million totals."""


@dataclass(frozen=True)
class Figure:
    """One measurement with its bar."""

    what: str
    values: list[float]
    """Every round, in ``unit``."""

    unit: str
    bar: float
    at_least: bool = False

    @property
    def median(self) -> float:
        """Of the rounds."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool:
        """Whether the median keeps the bar."""
        return self.median >= self.bar if self.at_least else self.median <= self.bar


def _timed(work: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def import_time(rounds: int) -> Figure:
    """A fresh interpreter, timed inside it, with compiled files in place."""
    code = "import time; s = time.perf_counter(); import sandyard.pricing; print(time.perf_counter() - s)"
    values = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) * 1000
        for _ in range(rounds + 1)
    ][1:]
    return Figure("import of sandyard.pricing", values, "ms", 150)


def all_products(catalog: Catalog, rounds: int) -> Figure:
    """The canonical workload on every card, exact."""
    quote_all(catalog)
    return Figure(
        "all products, one workload, exact", [t * 1000 for t in _timed(lambda: quote_all(catalog), rounds)], "ms", 30
    )


def vectorised(catalog: Catalog, rounds: int) -> list[Figure]:
    """A grid over every priced product, and the rate against the exact engine's in the same run."""
    cards = [card for card in catalog if quote(card).total is not None]
    axes = {"running_hours": np.linspace(1, 700, SIDE), "cpu_utilization": np.linspace(0, 1, SIDE)}
    grid = Columns.grid(CANONICAL, axes)
    pairs = len(grid) * len(cards)
    fast = _timed(lambda: [vector_quote(card, grid) for card in cards], rounds)
    slow = _timed(lambda: [quote(card) for card in cards], rounds)
    scaled = [seconds * 1_000_000 / pairs for seconds in fast]
    ratios = [(pairs / one) / (len(cards) / other) for one, other in zip(fast, slow, strict=True)]
    return [
        Figure("a million totals, vectorised", scaled, "s", 5),
        Figure("vectorised over exact, totals a second", ratios, "x", 200, at_least=True),
    ]


def trace(catalog: Catalog) -> list[Figure]:
    """A million sessions on one card that rounds each run; grouping them is timed apart."""
    dice = random.Random(1)
    runs = [
        Run(
            sandbox=str(number),
            start_us=number * 1_000_000,
            end_us=number * 1_000_000 + dice.randrange(1, 10**10),
            vcpu=CANONICAL.vcpu,
            memory_gib=CANONICAL.memory_gib,
            disk_gib=CANONICAL.disk_gib,
            cpu_us=dice.randrange(10**6),
        )
        for number in range(SESSIONS)
    ]
    held: list[Trace] = []
    grouped = _timed(lambda: held.append(Trace(runs)), 1)
    priced = _timed(lambda: quote_trace(catalog["codesandbox-sdk"], held[0]), 1)
    return [
        Figure("a trace of a million sessions, one card", priced, "s", 10),
        Figure("the same with its grouping", [grouped[0] + priced[0]], "s", 10),
    ]


def check(rounds: int) -> Figure:
    """Reading every card and every invariant, as ``sandyard catalog check`` does."""
    return Figure("catalog check", _timed(lambda: check_catalog(read_catalog()[0]), rounds), "s", 10)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    catalog = load_catalog()
    figures = [
        import_time(options.rounds),
        all_products(catalog, options.rounds),
        *vectorised(catalog, options.rounds),
        *trace(catalog),
        check(options.rounds),
    ]
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=1))
        return
    print("| what | median | bar | met |\n| --- | ---: | ---: | --- |")
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        met = "yes" if figure.is_met else "**no**"
        print(f"| {figure.what} | {figure.median:.3g} {figure.unit} | {sign} {figure.bar:g} {figure.unit} | {met} |")


if __name__ == "__main__":
    main()
