"""Equality of exact sums that were carried with different numbers of digits."""

from __future__ import annotations

from decimal import Decimal


def is_near(left: Decimal | None, right: Decimal) -> bool:
    """Whether two results agree to 24 digits, the most that a default Decimal of 28 can promise after a sum."""
    return left is not None and abs(left - right) <= abs(right) * Decimal("1e-24")
