"""The closed lists of words that cards use. Apart from the models, so that pricing loads without pydantic."""

from __future__ import annotations

from enum import StrEnum

from sandyard.catalog.measures import Dimension


class Reading(StrEnum):
    """How a source was read, from the firmest to the weakest."""

    PAGE = "page"
    """The vendor's page, read directly on the date."""

    AUDIT = "audit"
    """Read by this catalog's founders on the date and recorded in their audit; no copy of the page was kept."""

    STORED_COPY = "stored-copy"
    """A kept copy of the vendor's page or repository; its date where it is known."""

    TRANSCRIPT = "transcript"
    """Read by somebody else (``by``) on the page named, on the date."""


class Quantity(StrEnum):
    """The closed list of what a meter may count."""

    VCPU_ALLOCATED = "vcpu-allocated"
    VCPU_ACTIVE = "vcpu-active"
    """The workload's own CPU time: requested vCPU x utilisation x time, never scaled to a larger allocation."""

    MEMORY_ALLOCATED = "memory-allocated"
    MEMORY_ABOVE_SHAPE = "memory-above-shape"
    """Memory bought beyond what the shape includes."""

    MEMORY_OBSERVED = "memory-observed"
    DISK_PROVISIONED = "disk-provisioned"
    DISK_HOT = "disk-hot"
    """Bytes in use while running."""

    DISK_COLD = "disk-cold"
    """Bytes kept."""

    SAVED_STATE = "saved-state"
    """The state that pausing saves."""

    SNAPSHOTS_KEPT = "snapshots-kept"
    """Snapshots kept beside the paused state."""

    IMAGE_STORED = "image-stored"
    SHAPE_TIME = "shape-time"
    """Time of one whole sandbox of the chosen shape."""

    SHAPE_UNITS = "shape-units"
    """The shape's billing units x time."""

    ADDRESS_TIME = "address-time"
    CREATIONS = "creations"
    RESUMES = "resumes"
    EXECUTIONS = "executions"
    REQUESTS = "requests"
    STATE_WRITTEN = "state-written"
    """Bytes written by suspending."""

    STATE_READ = "state-read"
    """Bytes read by resuming."""

    IMAGE_READ = "image-read"
    """Bytes read by creating."""

    EGRESS = "egress"
    RULE = "rule"
    """Counted by the named rule of the meter."""


_DIMENSIONS: dict[Quantity, Dimension] = {
    Quantity.VCPU_ALLOCATED: Dimension.VCPU_TIME,
    Quantity.VCPU_ACTIVE: Dimension.VCPU_TIME,
    Quantity.MEMORY_ALLOCATED: Dimension.GIB_TIME,
    Quantity.MEMORY_ABOVE_SHAPE: Dimension.GIB_TIME,
    Quantity.MEMORY_OBSERVED: Dimension.GIB_TIME,
    Quantity.DISK_PROVISIONED: Dimension.GIB_TIME,
    Quantity.DISK_HOT: Dimension.GIB_TIME,
    Quantity.DISK_COLD: Dimension.GIB_TIME,
    Quantity.SAVED_STATE: Dimension.GIB_TIME,
    Quantity.SNAPSHOTS_KEPT: Dimension.GIB_TIME,
    Quantity.IMAGE_STORED: Dimension.GIB_TIME,
    Quantity.SHAPE_TIME: Dimension.TIME,
    Quantity.SHAPE_UNITS: Dimension.UNIT_TIME,
    Quantity.ADDRESS_TIME: Dimension.TIME,
    Quantity.CREATIONS: Dimension.COUNT,
    Quantity.RESUMES: Dimension.COUNT,
    Quantity.EXECUTIONS: Dimension.COUNT,
    Quantity.REQUESTS: Dimension.COUNT,
    Quantity.STATE_WRITTEN: Dimension.GIB,
    Quantity.STATE_READ: Dimension.GIB,
    Quantity.IMAGE_READ: Dimension.GIB,
    Quantity.EGRESS: Dimension.GIB,
}


def dimension_of(quantity: Quantity) -> Dimension | None:
    """What kind of thing ``quantity`` counts; None for a rule, which decides by its meter's unit."""
    return _DIMENSIONS.get(quantity)


class When(StrEnum):
    """The part of the period for which a meter over time runs."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    EXISTING = "existing"
    """Running and suspended."""

    STOPPED = "stopped"
    """All of the period but the running time, where the vendor keeps the thing until it is deleted."""

    ALWAYS = "always"
    """All of the period, where the vendor keeps the thing until it is deleted."""

    ALWAYS_ON = "always-on"
    """All of the period, for a machine that is never stopped; the reference rows."""


class FeeKind(StrEnum):
    """What the fee of a plan buys."""

    FEE = "fee"
    """Paid on top of usage."""

    CREDIT = "credit"
    """Comes back as credit for usage: the bill is the larger of the two."""

    MINIMUM = "minimum"
    """Spend at least this much."""

    DEPOSIT = "deposit"
    """Must be deposited each month and carries over: billed here as a minimum."""


class EvidenceState(StrEnum):
    """How far a total can be trusted."""

    VERIFIED = "verified"
    MODELED = "modeled"
    UNVERIFIED = "unverified"
    SELF_HOSTED = "self-hosted"
