"""Nearest-rank percentiles, exact in integers, and the tail statistic. Nothing is interpolated or trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np

from sandyard.errors import InsufficientSamplesError, InvalidRequestError

Better = Literal["lower", "higher"]
"""Which side of a metric is the good one."""

TAIL_FLOOR = 20
"""Successful trials from which p95 (or p5) is reported; below, the single worst trial is."""


def rank(p: int | Fraction | Decimal, n: int) -> int:
    """Return ``max(1, ceil(p / 100 * n))``, counted from 1.

    Args:
        p: 0 to 100; a float is refused, as ``ceil`` of a float product is off by one rank for p = 7 or 55.
        n: number of values, at least 1.
    """
    if isinstance(p, float) or not 0 <= p <= 100:  # noqa: PLR2004 - percent
        raise InvalidRequestError(f"{p!r} is not a percentile.", hint="Give an int, Fraction or Decimal from 0 to 100.")
    if n < 1:
        raise InsufficientSamplesError("there is no percentile of no values.", hint="Run at least one trial.")
    exact = Fraction(p)
    return max(1, -(-exact.numerator * n // (exact.denominator * 100)))


def percentile(values: Sequence[float] | np.ndarray, p: int | Fraction | Decimal) -> float:
    """Return the nearest-rank percentile of values in any order."""
    index = rank(p, len(values)) - 1
    return float(np.partition(np.asarray(values, dtype=float), index)[index])


def median(values: Sequence[float] | np.ndarray) -> float:
    """Return the smallest value with at least half of the values at or below it."""
    return percentile(values, 50)


@dataclass(frozen=True, slots=True)
class Tail:
    """The worse side of the spread."""

    value: float
    label: str
    """``p95``, ``p5``, ``Slowest`` or ``Lowest``."""
    n: int


def tail(values: Sequence[float] | np.ndarray, better: Better = "lower") -> Tail:
    """Return p95 where lower is better and p5 where higher is; under 20 values, the worst one.

    Nearest rank is not symmetric: of 20 values p95 is the second worst, and p5 is the worst.
    """
    n = len(values)
    if n >= TAIL_FLOOR:
        p = 95 if better == "lower" else 5
        return Tail(percentile(values, p), f"p{p}", n)
    if better == "lower":
        return Tail(percentile(values, 100), "Slowest", n)
    return Tail(percentile(values, 0), "Lowest", n)
