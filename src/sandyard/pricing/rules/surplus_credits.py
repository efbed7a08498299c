"""A burstable machine earns CPU credits at its baseline; what is used beyond them is billed."""

from decimal import Decimal

from sandyard.pricing.rules.rule import Measured, Situation


def surplus_credits(situation: Situation) -> Measured:
    """CPU in use beyond ``baseline`` x vCPU x the period, as a monthly average.

    AWS settles over a rolling 24 hours; a month's average can hide a surplus that a bursty day would have.
    """
    earned = situation.meter.parameters["baseline"] * situation.allocated.vcpu * situation.time_s
    surplus = max(Decimal(0), situation.usage.active_vcpu_s - earned)
    return Measured(surplus, ((surplus, "vCPU-s beyond the credits earned"),))
