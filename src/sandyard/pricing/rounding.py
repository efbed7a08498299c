"""Rounding up of time and sizes, exact."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandyard.catalog.models import Rounding


def round_up(value: Decimal, step: Decimal) -> Decimal:
    """The smallest multiple of ``step`` that is not below ``value``."""
    return (value / step).to_integral_value(rounding=ROUND_CEILING) * step


def billed_s(duration_s: Decimal, rounding: Rounding) -> Decimal:
    """The seconds billed for one run, session or execution of ``duration_s``; none for one that never ran."""
    if duration_s == 0:
        return duration_s
    return round_up(max(duration_s, rounding.minimum_s), rounding.increment_s)
