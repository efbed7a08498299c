"""The vendor bills the request or the use, whichever is larger."""

from sandyard.catalog.measures import Dimension
from sandyard.catalog.vocabulary import When
from sandyard.pricing.rules.rule import Measured, Situation


def larger_of_request_and_use(situation: Situation) -> Measured:
    """The larger of the allocated resource x time and the resource in use x time, over the whole period.

    Vendors compare moment by moment; a sum over the period can only be lower, never higher, than theirs.
    """
    if situation.dimension is Dimension.VCPU_TIME:
        size, used, unit = situation.allocated.vcpu, situation.usage.active_vcpu_s, "vCPU"
    else:
        size, unit = situation.allocated.memory_gib, "GiB"
        used = situation.usage.held_gib_s("observed_memory", When.RUNNING, None, situation.month_hours, None)
    requested = size * situation.time_s
    if used > requested:
        return Measured(used, ((used, f"{unit}-s used"),))
    return Measured(requested, ((size, unit), (situation.time_s, "s")))
