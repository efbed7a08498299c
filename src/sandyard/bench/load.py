"""How busy it was around a trial: other trials beside it, and the job host's processors and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sandyard.bench.records import HostLoad


def others_mean(windows: Sequence[tuple[float, float]]) -> list[float]:
    """Return, for each window of a batch, the time-weighted mean number of other windows open over it."""
    if not windows:
        return []
    starts, ends = np.array(windows, dtype=float).T
    shared = np.minimum(ends[:, None], ends) - np.maximum(starts[:, None], starts)
    np.fill_diagonal(shared, 0.0)
    spans = ends - starts
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.clip(shared, 0, None).sum(axis=1) / spans
    return [float(mean) if span > 0 else 0.0 for mean, span in zip(means, spans, strict=True)]


class HostProbe:
    """Reads the job host's counters at the start and end of a trial; a counter that is not there is None."""

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        """Begin."""
        self._proc, self._cgroup = proc, cgroup
        self._cpu = self._busy_and_total()
        self._throttled = self._throttled_periods()

    def end(self) -> HostLoad:
        """Say what happened since the beginning."""
        before, after = self._cpu, self._busy_and_total()
        share = None
        if before is not None and after is not None and after[1] > before[1]:
            share = (after[0] - before[0]) / (after[1] - before[1])
        throttled = self._throttled_periods()
        return HostLoad(
            peak_cpu_share=share,
            throttled_periods=None if throttled is None or self._throttled is None else throttled - self._throttled,
            pressure_avg10=self._pressure(),
            available_kib=self._available_kib(),
        )

    def _busy_and_total(self) -> tuple[int, int] | None:
        text = _read(self._proc / "stat")
        if text is None:
            return None
        ticks = [int(word) for word in text.split("\n", 1)[0].split()[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4], sum(ticks)) if any(ticks) else None

    def _throttled_periods(self) -> int | None:
        found = re.search(r"^nr_throttled (\d+)$", _read(self._cgroup / "cpu.stat") or "", re.MULTILINE)
        return int(found[1]) if found else None

    def _pressure(self) -> float | None:
        found = re.search(r"^some avg10=([\d.]+)", _read(self._proc / "pressure/memory") or "", re.MULTILINE)
        return float(found[1]) if found else None

    def _available_kib(self) -> int | None:
        found = re.search(r"^MemAvailable:\s+(\d+)", _read(self._proc / "meminfo") or "", re.MULTILINE)
        return int(found[1]) if found else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
