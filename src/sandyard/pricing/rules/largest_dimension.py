"""One unit covers so much CPU, so much memory and so much disk; the dimension that needs most units decides."""

from decimal import ROUND_CEILING, Decimal

from sandyard.pricing.rules.rule import Measured, Situation


def largest_dimension(situation: Situation) -> Measured:
    """The largest of vCPU, memory and disk, each in whole units of the parameters of these names, x time."""
    allocated, per = situation.allocated, situation.meter.parameters
    units = max(
        _whole(allocated.vcpu / per["vcpu"]),
        _whole(allocated.memory_gib / per["memory_gib"]),
        _whole(allocated.disk_gib / per["disk_gib"]),
    )
    return Measured(units * situation.time_s, ((units, "units"), (situation.time_s, "s")))


def _whole(value: Decimal) -> Decimal:
    return value.to_integral_value(rounding=ROUND_CEILING)
