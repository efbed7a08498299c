"""Baseline and peak: another meter bills the baseline, this one what is used above it, up to the peak."""

from decimal import Decimal

from sandyard.catalog.measures import Dimension
from sandyard.pricing.rules.rule import Measured, Situation

ONE = Decimal(1)


def above_baseline(situation: Situation) -> Measured:
    """Allocated x (average multiple - 1) x time, the multiple capped at the parameter ``peak``.

    CPU and memory burst apart from each other; which one is meant follows from the meter's unit.
    """
    is_cpu = situation.dimension is Dimension.VCPU_TIME
    burst = situation.usage.cpu_burst if is_cpu else situation.usage.memory_burst
    base = situation.allocated.vcpu if is_cpu else situation.allocated.memory_gib
    above = min(burst, situation.meter.parameters["peak"]) - ONE
    return Measured(
        base * above * situation.time_s,
        ((base, "vCPU" if is_cpu else "GiB"), (above, "above baseline"), (situation.time_s, "s")),
    )
