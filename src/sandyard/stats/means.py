"""Arithmetic and geometric means that refuse what they are not defined for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sandyard.errors import InsufficientSamplesError, InvalidRequestError


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean, untrimmed; the sum is exact to the last bit."""
    items = list(values)
    if not items:
        raise InsufficientSamplesError("there is no mean of no values.", hint="Run at least one trial.")
    return math.fsum(items) / len(items)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the n-th root of the product, through logarithms; every value must be above 0."""
    items = list(values)
    if not items:
        raise InsufficientSamplesError("there is no geometric mean of no values.", hint="Run at least one trial.")
    if min(items) <= 0:
        raise InvalidRequestError(
            f"a geometric mean needs values above 0, and one is {min(items):g}.",
            hint="A failed trial has no value; it is not a zero.",
        )
    return math.exp(math.fsum(math.log(item) for item in items) / len(items))
