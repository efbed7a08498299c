"""What a named rule is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from sandyard.catalog.measures import Dimension
from sandyard.pricing.allocation import Allocated
from sandyard.pricing.usage import Usage

if TYPE_CHECKING:
    from sandyard.catalog.models import Meter

Factor = tuple[Decimal, str]
"""A number and its unit, as the working shows it."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a rule may look at."""

    meter: Meter
    allocated: Allocated
    usage: Usage
    time_s: Decimal
    """Billed time of the meter's ``when``, already rounded by its rounding."""

    month_hours: Decimal
    dimension: Dimension
    """Of the meter's unit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity in base amounts (vCPU-seconds, GiB-seconds, seconds, GiB or one) and how it came about."""

    amount: Decimal
    factors: tuple[Factor, ...]


Rule = Callable[[Situation], Measured]
