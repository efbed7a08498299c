"""Synthetic trial records with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sandyard.bench.records import BenchmarkInfo, HostLoad, Manifest, Metric, Outcome, Placement, ProviderInfo, Trial
from sandyard.bench.series import Series, all_series

IDLE = HostLoad(peak_cpu_share=0.2, pressure_avg10=0.0, available_kib=8_000_000)
BUSY = HostLoad(peak_cpu_share=0.95, pressure_avg10=0.0, available_kib=8_000_000)
AMD = Placement(cpu_model="EPYC", cpu_count=2)
INTEL = Placement(cpu_model="Xeon", cpu_count=2)


def noise(seed: int, n: int = 40, sigma: float = 0.05, level: float = 100.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(level, sigma * level, n)


def trial(index: int, value: float, *, rounds: int = 4, n: int = 40, provider: str = "p", **changes) -> Trial:
    number = index * rounds // n
    fields = {
        "id": f"{provider}-{index}",
        "provider": provider,
        "benchmark": "b",
        "unit": "u",
        "procedure": "x",
        "region": "here",
        "job_host": "host",
        "round": number,
        "batch": f"{provider}-{number}",
        "slot": index,
        "order": index,
        "started_s": float(index),
        "ended_s": index + 0.9,
        "outcome": Outcome.SUCCESS,
        "metrics": {"m": float(value)},
        "others_mean": 0.0,
        "host": IDLE,
        "placement": AMD,
    }
    return Trial(**{**fields, **changes})


def manifest(providers: Sequence[str] = ("p",), *, better="lower", has_create: bool = False, units=("u",)) -> Manifest:
    return Manifest(
        run="run",
        created_at="2026-11-30T00:00:00Z",
        job_host="host",
        seed=1,
        rounds=4,
        label="l",
        lifetime_s=600,
        cpus=2,
        memory_mib=4096,
        providers=[ProviderInfo(name=name, region="here", version="1") for name in providers],
        benchmarks=[
            BenchmarkInfo(
                name="b",
                section="operation",
                title="B",
                units=list(units),
                metrics=[Metric(name="m", unit="ms", better=better)],
                procedure="x",
                trials=40,
                floor=20,
                has_create=has_create,
            )
        ],
    )


def series(values: Sequence[float] | np.ndarray, changes=None, *, better="lower", has_create=False, rounds=4) -> Series:
    """One pair; ``changes`` gives fields of the trial at an index."""
    n = len(values)
    trials = [trial(i, value, rounds=rounds, n=n, **(changes(i) if changes else {})) for i, value in enumerate(values)]
    (one,) = all_series(manifest(better=better, has_create=has_create), trials)
    return one
