"""The estimate over four measured variables: requests, lifetime, size and idle share, on terms read off any price page.

The formulas and names are those of PandaStack's published estimator; given the same inputs they give the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext

from sandyard.pricing.errors import InvalidWorkloadError

PRECISION = 50
MB_PER_GB = Decimal(1024)
"""As the estimator has it: egress in megabytes over 1,024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillInputs:
    """Work as measured, and terms as published.

    Raises:
        InvalidWorkloadError: a value is negative, not finite, or a share above one.
    """

    requests_per_day: Decimal
    mean_lifetime_sec: Decimal
    """From create to kill, wall clock."""

    active_cpu_fraction: Decimal
    """Share of the lifetime in which the CPU works."""

    vcpu: Decimal
    mem_gib: Decimal
    egress_mb_per_create: Decimal = Decimal(0)
    rate_per_vcpu_sec: Decimal
    rate_per_gib_sec: Decimal
    rate_per_gb_egress: Decimal = Decimal(0)
    rounding_sec: Decimal = Decimal(1)
    min_billable_sec: Decimal = Decimal(0)
    bills_idle: bool = True
    platform_fee_month: Decimal = Decimal(0)
    days: Decimal = Decimal(30)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        problems = []
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, bool):
                continue
            if not isinstance(value, Decimal) or not value.is_finite():
                problems.append(f"{name} '{value}' is not a finite number")
            elif value < 0:
                problems.append(f"{name} {value} is negative")
        if not problems and self.active_cpu_fraction > 1:
            problems.append(f"active_cpu_fraction {self.active_cpu_fraction} is more than 1")
        if not problems and self.rounding_sec == 0:
            problems.append("rounding_sec is 0; the smallest increment is more than nothing")
        if problems:
            raise InvalidWorkloadError(
                "The bill cannot be estimated",
                tuple(problems),
                hint="Correct these; `sandyard price bill --help` lists them.",
            )


@dataclass(frozen=True, slots=True)
class Bill:
    """The estimate and the two differences that decide which axis to look at."""

    billable_sec: Decimal
    """Billed for each create."""

    creates: Decimal
    """In the month."""

    compute: Decimal
    egress: Decimal
    platform_fee: Decimal
    total: Decimal
    idle_cost: Decimal
    """Total when idle is billed less total when only active time is: what watching a model think costs."""

    rounding_tax: Decimal
    """Total at an increment of 60 seconds less the total at one second."""


def estimate(inputs: BillInputs) -> Bill:
    """Estimate one month."""
    with localcontext(prec=PRECISION):
        billable = _billable_seconds(inputs)
        creates = inputs.requests_per_day * inputs.days
        compute = _compute(inputs)
        egress = creates * (inputs.egress_mb_per_create / MB_PER_GB) * inputs.rate_per_gb_egress
        return Bill(
            billable_sec=billable,
            creates=creates,
            compute=compute,
            egress=egress,
            platform_fee=inputs.platform_fee_month,
            total=compute + egress + inputs.platform_fee_month,
            idle_cost=_compute(replace(inputs, bills_idle=True)) - _compute(replace(inputs, bills_idle=False)),
            rounding_tax=_compute(replace(inputs, rounding_sec=Decimal(60)))
            - _compute(replace(inputs, rounding_sec=Decimal(1))),
        )


def _billable_seconds(inputs: BillInputs) -> Decimal:
    """What one create is billed for: idle first, the minimum next, the increment last."""
    seconds = inputs.mean_lifetime_sec
    if not inputs.bills_idle:
        seconds *= inputs.active_cpu_fraction
    seconds = max(seconds, inputs.min_billable_sec)
    return (seconds / inputs.rounding_sec).to_integral_value(rounding=ROUND_CEILING) * inputs.rounding_sec


def _compute(inputs: BillInputs) -> Decimal:
    rate = inputs.vcpu * inputs.rate_per_vcpu_sec + inputs.mem_gib * inputs.rate_per_gib_sec
    return inputs.requests_per_day * inputs.days * _billable_seconds(inputs) * rate
