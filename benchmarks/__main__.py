"""Measure what the README promises, each figure beside the raw tool's in the same run; print a table, write JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import figures
from benchmarks.figures import Bench, Figure
from sandyard.drivers.gvisor import Gvisor
from sandyard.runtime import Runtime, SandboxSpec
from sandyard.runtime.layout import Layout
from sandyard.units import GIB

RESULTS = Path(__file__).parent / "results"


async def measure(names: list[str], rounds: int, state_dir: Path) -> list[Figure]:
    """Run the chosen measurements, one after the other on one runtime."""
    async with await Runtime.open(state_dir) as runtime:
        bench = Bench(runtime, Layout(state_dir), SandboxSpec(cpus=os.cpu_count() or 1, sleep_after_s=None), rounds)
        found: list[Figure] = []
        for name in names:
            print(f"measuring {name} ...", file=sys.stderr)
            found += await figures.ALL[name](bench)
        return found


def machine() -> dict[str, str]:
    """Name what it was measured on."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return {
        "cpu": f"{os.cpu_count()} x {model.partition(': ')[2]}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "kernel": platform.release().split("-")[0],
        "runsc": asyncio.run(Gvisor().version()),
        "python": platform.python_version(),
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def table(found: list[Figure]) -> str:
    """Lay the figures out as Markdown."""
    lines = ["| what | sandyard | raw tool | bar | met |", "| --- | ---: | ---: | --- | --- |"]
    for figure in found:
        raw = f"{figure.show(figure.raw)} ({figure.raw_is})" if figure.raw is not None else figure.raw_is
        met = {True: "yes", False: "**no**", None: ""}[figure.is_met]
        lines.append(f"| {figure.what} | {figure.show(figure.ours)} | {raw} | {figure.bar} | {met} |")
    return "\n".join(lines)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *figures.ALL], help="default: all of them")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions of each figure; the median counts")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="where the values go")
    parser.add_argument("--state-dir", type=Path, help="default: a new one, which needs the default image built again")
    arguments = parser.parse_args()
    state_dir = arguments.state_dir or Path(tempfile.mkdtemp(prefix="sandyard-bench-", dir="/var/tmp"))
    try:
        found = asyncio.run(measure(arguments.names or list(figures.ALL), arguments.rounds, state_dir))
    finally:
        if arguments.state_dir is None:
            shutil.rmtree(state_dir, ignore_errors=True)
    about = machine()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(
        json.dumps({"machine": about, "figures": [asdict(figure) for figure in found]}, indent=2) + "\n"
    )
    print("; ".join(f"{key} {value}" for key, value in about.items()), end="\n\n")
    print(table(found))


if __name__ == "__main__":
    main()
