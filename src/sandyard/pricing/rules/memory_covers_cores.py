"""Memory carries the price of the CPU: each core beyond the default size brings at least so much billed memory."""

from sandyard.pricing.rules.rule import Measured, Situation


def memory_covers_cores(situation: Situation) -> Measured:
    """Memory, or ``gib_per_vcpu`` x vCPU where that is larger and the size is above ``free_vcpu``, x time."""
    allocated, per = situation.allocated, situation.meter.parameters
    billed = allocated.memory_gib
    if allocated.vcpu > per["free_vcpu"]:
        billed = max(billed, per["gib_per_vcpu"] * allocated.vcpu)
    return Measured(billed * situation.time_s, ((billed, "GiB"), (situation.time_s, "s")))
