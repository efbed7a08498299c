"""Named rules: what data cannot say. One function a file, cited by a card's meter under its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from sandyard.catalog.measures import Dimension
from sandyard.catalog.models import Meter
from sandyard.pricing.allocation import Allocated
from sandyard.pricing.errors import UnknownRuleError
from sandyard.pricing.usage import Usage

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

    period_s: Decimal
    dimension: Dimension
    """Of the meter's unit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity in base amounts (vCPU-seconds, GiB-seconds, seconds, GiB or one) and how it came about."""

    amount: Decimal
    factors: tuple[Factor, ...]


Rule = Callable[[Situation], Measured]


def _registry() -> Mapping[str, Rule]:
    from sandyard.pricing.rules.above_baseline import above_baseline
    from sandyard.pricing.rules.larger_of_request_and_use import larger_of_request_and_use
    from sandyard.pricing.rules.largest_dimension import largest_dimension
    from sandyard.pricing.rules.memory_covers_cores import memory_covers_cores
    from sandyard.pricing.rules.surplus_credits import surplus_credits

    return MappingProxyType(
        {
            "above-baseline": above_baseline,
            "larger-of-request-and-use": larger_of_request_and_use,
            "largest-dimension": largest_dimension,
            "memory-covers-cores": memory_covers_cores,
            "surplus-credits": surplus_credits,
        }
    )


def find_rule(name: str) -> Rule:
    """The rule called ``name``.

    Raises:
        UnknownRuleError: there is none.
    """
    try:
        return RULES[name]
    except KeyError:
        raise UnknownRuleError(
            f"No rule is called '{name}'.",
            hint=f"Known rules: {', '.join(sorted(RULES))}; a new one needs a function and a test.",
        ) from None


RULES: Mapping[str, Rule] = _registry()
"""Every rule by the name that cards cite."""
