"""Named rules: what data cannot say. One function a file, cited by a card's meter under its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sandyard.pricing.errors import UnknownRuleError
from sandyard.pricing.rules.above_baseline import above_baseline
from sandyard.pricing.rules.larger_of_request_and_use import larger_of_request_and_use
from sandyard.pricing.rules.largest_dimension import largest_dimension
from sandyard.pricing.rules.memory_covers_cores import memory_covers_cores
from sandyard.pricing.rules.rule import Factor, Measured, Rule, Situation
from sandyard.pricing.rules.surplus_credits import surplus_credits

__all__ = ["RULES", "Factor", "Measured", "Rule", "Situation", "find_rule"]

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "above-baseline": above_baseline,
        "larger-of-request-and-use": larger_of_request_and_use,
        "largest-dimension": largest_dimension,
        "memory-covers-cores": memory_covers_cores,
        "surplus-credits": surplus_credits,
    }
)
"""Every rule by the name that cards cite."""


def find_rule(name: str) -> Rule:
    """The rule called ``name``.

    Raises:
        UnknownRuleError: there is none.
    """
    try:
        return RULES[name]
    except KeyError:
        known = ", ".join(sorted(RULES))
        raise UnknownRuleError(
            f"No rule is called '{name}'.", hint=f"Known rules: {known}; a new one needs a function and a test."
        ) from None
