"""What a check says of a series."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sandyard.stats.rank_tests import Test

LEAST_TRIALS = 15
LEAST_GROUP = 5


class Verdict(StrEnum):
    """What is to be made of it."""

    PASS = "pass"  # noqa: S105 - the word, not a secret
    NOTE = "note"
    FAIL = "fail"
    UNASSESSED = "unassessed"
    CANNOT = "cannot-be-detected"
    """No data of this shape could have failed at the corrected threshold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one series. With a ``test`` the verdict is decided when the whole family is known."""

    check: str
    text: str
    verdict: Verdict | None = None
    """Set by the check itself where no test decides; None until the family is corrected."""
    effect: float | None = None
    """A share of the base: 0.15 is 15% more."""
    minimum: float | None = None
    is_large: bool = False
    test: Test | None = None
    q: float | None = None
    if_large: Verdict = Verdict.FAIL
    """The verdict of a large and significant effect."""
    if_insignificant: Verdict = Verdict.PASS
    is_significant_alone: bool = True
    """Whether significance without size is worth a note."""
    in_family: bool = True
    detectable: float | None = None
    """The smallest effect found at 80% power; None with CANNOT, or where the notion does not apply."""
    excluded: tuple[str, ...] = ()
    """Trials to leave out of what is published."""


def unassessed(check: str, why: str) -> Finding:
    """Say why a check could not be made."""
    return Finding(check, why, Verdict.UNASSESSED)


def percent(share: float | None) -> str:
    """Write a share as a signed percentage."""
    return "-" if share is None else f"{share * 100:+.1f}%"
