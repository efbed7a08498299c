"""Sizes and pricing units as rate cards print them, told apart by bytes; exact, in Decimal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache

ONE = Decimal(1)
GIB_PER_GB = Decimal(10**9) / Decimal(2**30)
"""Exact: 0.931322574615478515625."""


class Gigabyte(StrEnum):
    """How a vendor's "GB" is read."""

    DECIMAL = "decimal"
    """The vendor defines it: ten to the ninth bytes, converted by bytes."""

    AS_GIB = "as-gib"
    """The vendor does not say; taken one to one as GiB, which every quote states as an assumption."""


class Dimension(StrEnum):
    """What kind of thing a quantity counts."""

    VCPU_TIME = "vcpu-time"
    GIB_TIME = "gib-time"
    TIME = "time"
    UNIT_TIME = "unit-time"
    GIB = "gib"
    COUNT = "count"


_SIZE = re.compile(r"(\d+(?:\.\d+)?) (MiB|GiB|TiB|MB|GB|TB)")
_SIZE_IN_GIB = {"MiB": ONE / 1024, "GiB": ONE, "TiB": Decimal(1024)}
_SIZE_IN_GB = {"MB": ONE / 1000, "GB": ONE, "TB": Decimal(1000)}
_BINARY_TWIN = {"MB": "MiB", "GB": "GiB", "TB": "TiB"}


@dataclass(frozen=True, slots=True)
class Size:
    """An amount of memory or disk, in the unit that its source prints."""

    amount: Decimal
    unit: str

    @classmethod
    def parse(cls, text: str) -> Size:
        """Read ``512 MiB`` or ``8 GB``.

        Raises:
            ValueError: not a number, a space and one of MiB, GiB, TiB, MB, GB, TB.
        """
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' is not a size; write it as '512 MiB' or '8 GB'")
        return cls(Decimal(match[1]), match[2])

    @property
    def is_decimal(self) -> bool:
        """Whether the unit is one of MB, GB, TB, whose meaning depends on the vendor."""
        return self.unit in _SIZE_IN_GB

    def gib(self, gigabyte: Gigabyte) -> Decimal:
        """The amount in GiB; ``gigabyte`` says how MB, GB and TB are read."""
        if not self.is_decimal:
            return self.amount * _SIZE_IN_GIB[self.unit]
        if gigabyte is Gigabyte.AS_GIB:
            return self.amount * _SIZE_IN_GIB[_BINARY_TWIN[self.unit]]
        return self.amount * _SIZE_IN_GB[self.unit] * GIB_PER_GB

    def __str__(self) -> str:
        """As it was read."""
        return f"{self.amount} {self.unit}"


_TIME_S = {
    "Milliseconds": ONE / 1000,
    "Seconds": ONE,
    "Minutes": Decimal(60),
    "Hours": Decimal(3600),
    "Days": Decimal(86400),
}
_COUNTED = frozenset({"Creations", "Resumes", "Suspensions", "Executions", "Requests", "Sessions"})
_RESOURCES = frozenset({"vCPU", "Core", "GiB", "GB", "Unit"})
_UNIT = re.compile(r"(?:(\d+) )?(?:(vCPU|Core|GiB|GB|Unit)(?:-(\w+))?|(\w+))")
VCPU_PER_CORE = Decimal(2)
"""A physical core runs two hardware threads on every vendor of the catalog that prices by the core."""


@dataclass(frozen=True, slots=True)
class PricingUnit:
    """What one price buys, in FOCUS form: ``vCPU-Hours``, ``GB-Months``, ``1000000 Requests``."""

    block: int
    resource: str | None
    """vCPU, Core, GiB, GB, Unit, or the thing counted; None for plain time."""

    time: str | None
    """Milliseconds to Months; None for counts and bytes."""

    @classmethod
    def parse(cls, text: str) -> PricingUnit:
        """Read a unit.

        Raises:
            ValueError: not in FOCUS form, or of a resource or time that no meter uses.
        """
        match = _UNIT.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' is not a pricing unit; write it as 'vCPU-Hours' or '1000000 Requests'")
        block = int(match[1] or 1)
        resource, time, plain = match[2], match[3], match[4]
        if resource is not None:
            if time is not None and time != "Months" and time not in _TIME_S:
                raise ValueError(f"'{text}' has no known time; use Seconds, Minutes, Hours, Days or Months")
            return cls(block, resource, time)
        if plain in _COUNTED:
            return cls(block, plain, None)
        if plain == "Months" or plain in _TIME_S:
            return cls(block, None, plain)
        raise ValueError(f"'{text}' is not a pricing unit; write it as 'vCPU-Hours' or '1000000 Requests'")

    @property
    def dimension(self) -> Dimension:
        """What kind of quantity this unit can price."""
        if self.resource in {"vCPU", "Core"}:
            return Dimension.VCPU_TIME
        if self.resource in {"GiB", "GB"}:
            return Dimension.GIB_TIME if self.time else Dimension.GIB
        if self.resource == "Unit":
            return Dimension.UNIT_TIME
        return Dimension.TIME if self.time else Dimension.COUNT

    def in_base(self, gigabyte: Gigabyte, month_hours: Decimal) -> Decimal:
        """What one of this unit is in base amounts: vCPU-seconds, GiB-seconds, seconds, GiB or one."""
        seconds = ONE if self.time is None else self.time_s(month_hours)
        return self.size_in_base(gigabyte) * seconds * self.block

    def size_in_base(self, gigabyte: Gigabyte) -> Decimal:
        """The resource of one unit in vCPU or GiB; one where the unit has no resource with a size."""
        if self.resource == "Core":
            return VCPU_PER_CORE
        if self.resource == "GB" and gigabyte is Gigabyte.DECIMAL:
            return GIB_PER_GB
        return ONE

    def time_s(self, month_hours: Decimal) -> Decimal:
        """The time of one unit in seconds."""
        return month_hours * 3600 if self.time == "Months" else _TIME_S[self.time or "Seconds"]

    def __str__(self) -> str:
        """In FOCUS form."""
        name = "-".join(part for part in (self.resource, self.time) if part)
        return f"{self.block} {name}" if self.block != 1 else name


@lru_cache(maxsize=256)
def parse_unit(text: str) -> PricingUnit:
    """Read a unit that has already been validated, once per text."""
    return PricingUnit.parse(text)
