"""The rate card: one product, everything that decides its bill, and where each figure was read.

Unknown keys are errors. Numbers are written as text and become Decimal; a float is refused by the reader.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from sandyard.catalog.features import FEATURES
from sandyard.catalog.measures import Gigabyte, PricingUnit, Size
from sandyard.catalog.vocabulary import EvidenceState, FeeKind, Quantity, Reading, When


def _exact(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PydanticCustomError("not-a-number", "write the number as text, '0.05'")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise PydanticCustomError("not-a-number", "'{value}' is not a number", {"value": value}) from None
    if not number.is_finite() or number < 0:
        raise PydanticCustomError("not-a-number", "'{value}' is not a finite number of zero or more", {"value": value})
    return number


def _size(value: object) -> Size:
    if isinstance(value, Size):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("not-a-size", "write the size as text with its unit, '512 MiB' or '8 GB'")
    try:
        return Size.parse(value)
    except ValueError as error:
        raise PydanticCustomError("not-a-size", "{error}", {"error": str(error)}) from None


def _unit(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("not-a-unit", "write the pricing unit as text, 'vCPU-Hours'")
    try:
        PricingUnit.parse(value)
    except ValueError as error:
        raise PydanticCustomError("not-a-unit", "{error}", {"error": str(error)}) from None
    return value


def _feature(value: object) -> str:
    if not isinstance(value, str) or value not in FEATURES:
        raise PydanticCustomError("unknown-feature", "'{value}' is not in the list of features", {"value": str(value)})
    return value


Number = Annotated[
    Decimal,
    BeforeValidator(_exact),
    PlainSerializer(str),
    WithJsonSchema({"type": ["string", "integer"], "pattern": "^[0-9]+([.][0-9]+)?$", "minimum": 0}),
]
SizeText = Annotated[
    Size,
    BeforeValidator(_size),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": ["8 GB", "512 MiB"]}),
]
UnitText = Annotated[str, BeforeValidator(_unit)]
FeatureName = Annotated[str, BeforeValidator(_feature), WithJsonSchema({"type": "string", "enum": list(FEATURES)})]
Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.@-]*$")]
Text = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """A part of a card: unknown keys are refused, and nothing changes after reading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True, defer_build=True
    )


# -- where a figure was read ------------------------------------------------------------------------------------------


class Source(Part):
    """A first-party page or repository, and how this catalog came to know what stands there."""

    id: Identifier
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """None only where the text carries no address; ``title`` then names it."""

    title: Text | None = None
    read: Reading
    read_on: date | None = None
    """Day of the reading; None for a stored copy whose day is not known."""

    by: Text | None = None
    """Who read it, for a transcript."""


class Price(Part):
    """A list price from a day on; superseded by an entry with a later ``valid_from``, never edited."""

    price: Number
    valid_from: date
    """First day on which the price is known to hold."""

    valid_to: date | None = None
    """First day on which it no longer holds."""

    source: Identifier
    shape: Identifier | None = None
    """Only for this shape of the card."""

    plan: Identifier | None = None
    """Only on this plan; gross quotes use the entry without a plan."""


# -- what a sandbox is given ------------------------------------------------------------------------------------------


class Shape(Part):
    """One size that can be bought."""

    id: Identifier
    vcpu: Number
    memory: SizeText
    disk: SizeText | None = None
    """None where the shape sets no limit to the disk."""

    disk_min: SizeText | None = None
    """The disk can be chosen, from this up to ``disk``, and that choice is billed; else all of ``disk`` is given."""

    memory_max: SizeText | None = None
    """Memory can be raised to this, in steps of ``memory_step``, and is billed apart."""

    memory_step: SizeText | None = None
    units: Number | None = None
    """Billing units per hour (credits, vendor units), for meters of ``shape-units``."""

    source: Identifier | None = None


class NumberRange(Part):
    """Which numbers of vCPU can be asked for."""

    min: Number | None = None
    max: Number | None = None
    step: Number | None = None
    """Counted from zero."""

    choices: tuple[Number, ...] | None = None
    """The only values, ascending; instead of ``step``."""


class SizeRange(Part):
    """Which sizes can be asked for."""

    min: SizeText | None = None
    max: SizeText | None = None
    step: SizeText | None = None
    """Counted from zero."""

    choices: tuple[SizeText, ...] | None = None
    fixed: SizeText | None = None
    """Every sandbox has this size; a larger request is refused."""


class ShapesAllocation(Part):
    """A fixed list, smallest first; the first shape that covers the request is taken."""

    kind: Literal["shapes"]
    shapes: tuple[Shape, ...] = Field(min_length=1)


class StepsAllocation(Part):
    """Sizes chosen per resource, rounded up to the steps, then to the ratios."""

    kind: Literal["steps"]
    id: Identifier = "custom"
    vcpu: NumberRange = NumberRange()
    memory: SizeRange = SizeRange()
    disk: SizeRange | None = None
    """None where the vendor sets no limit to the disk that this card knows of."""

    min_gib_per_vcpu: Number | None = None
    max_gib_per_vcpu: Number | None = None
    max_disk_gb_per_memory_gib: Number | None = None


class AnyAllocation(Part):
    """Several ways to be given a size; the smallest result by vCPU, then memory, then disk is taken."""

    kind: Literal["any-of"]
    of: tuple[Annotated[ShapesAllocation | StepsAllocation, Field(discriminator="kind")], ...] = Field(min_length=2)


class UnknownAllocation(Part):
    """The sizes are not published, so that no request can be resolved."""

    kind: Literal["unknown"]
    note: Text


Allocation = Annotated[
    ShapesAllocation | StepsAllocation | AnyAllocation | UnknownAllocation, Field(discriminator="kind")
]


# -- what is metered --------------------------------------------------------------------------------------------------


class Rounding(Part):
    """How time is rounded up before it is billed."""

    increment_s: Number = Decimal(1)
    minimum_s: Number = Decimal(0)
    per: Literal["run", "session", "execution"]
    """A run is from a create or resume to the next suspend or end; a session from create to delete."""


class Meter(Part):
    """One line that a bill can have."""

    id: Identifier
    name: Text
    quantity: Quantity
    unit: UnitText
    when: When = When.RUNNING
    prices: tuple[Price, ...] = ()
    missing: Text | None = None
    """Why there is no price: which figure is not published."""

    rounding: Rounding | None = None
    included: SizeText | None = None
    """Free in every sandbox, not per account: it reduces gross too."""

    floor: SizeText | None = None
    """At least this much is billed per sandbox."""

    step: SizeText | None = None
    """The size is billed in whole steps."""

    gb: Gigabyte | None = None
    """Overrides the card's reading of GB for this meter."""

    month_hours: Number | None = None
    """Overrides the card's length of a month for this meter."""

    rule: Identifier | None = None
    parameters: dict[str, Number] = {}
    note: Text | None = None


class Regime(Part):
    """A way of charging that is published and is not a meter of the model: another product, an option, a discount."""

    id: Identifier
    applies: Text
    """When it applies."""

    billed: Text
    """How it is billed."""

    numbers: Text
    source: Identifier | None = None


# -- plans and limits -------------------------------------------------------------------------------------------------


class Limits(Part):
    """Hard ceilings; each stands alone."""

    max_vcpu: Number | None = None
    max_memory: SizeText | None = None
    max_disk: SizeText | None = None
    max_run_hours: Number | None = None
    """One continuous run, from create or resume to suspend or end."""

    max_lifetime_hours: Number | None = None
    """From create to delete, running and suspended."""

    max_suspension_hours: Number | None = None
    concurrent: int | None = None
    """Sandboxes running at once."""

    vcpu_together: Number | None = None
    memory_together: SizeText | None = None
    disk_together: SizeText | None = None
    kept: int | None = None
    """Sleeping sandboxes kept."""

    creates_per_hour: int | None = None
    creates_per_minute: int | None = None
    creates_per_second: int | None = None
    creates_per_day: int | None = None


class Allowance(Part):
    """A quantity that a plan includes and that comes back every period; invoice mode only."""

    meters: tuple[Identifier, ...] = Field(min_length=1)
    """Taken from these in order: one pool."""

    amount: Number | None = None
    """So many of ``unit``; or else ``credit``."""

    unit: UnitText | None = None
    credit: Number | None = None
    """So much money, for these meters alone."""

    per: Literal["month", "day"] = "month"
    source: Identifier | None = None


class Plan(Part):
    """One published way to buy."""

    id: Identifier
    name: Text
    fee: Number | None = None
    """Per month; None where it is not published, and ``missing`` says so."""

    fee_kind: FeeKind = FeeKind.FEE
    missing: Text | None = None
    credit: Number | None = None
    """Recurring credit in the card's currency, for any meter; one-time credit counts in no mode."""

    allowances: tuple[Allowance, ...] = ()
    overage: Literal["on-demand", "hard-cap", "unknown"] = "on-demand"
    suspend: bool = True
    """Whether sandboxes of this plan can be suspended."""

    limits: Limits = Limits()
    selectable: bool = True
    """Whether a new customer can buy it without talking to sales."""

    why_not: Text | None = None
    """For a plan that cannot be selected: why."""

    source: Identifier | None = None
    note: Text | None = None


class Variant(Part):
    """Another published reading or mode of the same card: a region, a discount, one side of a conflict."""

    id: Identifier
    kind: Literal["region", "discount", "conflict"]
    applies: Text
    prices: dict[Identifier, Price] = {}
    """By meter; replaces the list price."""

    multiplier: Number | None = None
    """Multiplies the prices of ``multiplied``; of all meters over time where that is empty."""

    multiplied: tuple[Identifier, ...] = ()
    allowances: dict[Identifier, tuple[Allowance, ...]] = {}
    """By plan; replaces what the plan includes."""

    plan: Identifier | None = None
    """The only plan to which the variant applies."""

    source: Identifier


# -- the rest of the card ---------------------------------------------------------------------------------------------


class Evidence(Part):
    """The state and its reasons."""

    state: EvidenceState
    assumptions: tuple[Text, ...] = ()
    """What a modeled total assumes."""

    missing: tuple[Text, ...] = ()
    """Which figures a total still needs."""

    decision: Text | None = None
    """How a borderline card was decided."""


class Conventions(Part):
    """What this vendor's units mean."""

    gb: Gigabyte = Gigabyte.AS_GIB
    month_hours: Number = Decimal(730)
    """720 where the vendor says 30 days."""


class Lifecycle(Part):
    """What the vendor says about the states of a sandbox, as far as it decides a bill."""

    suspend: Literal["memory", "disk", "none", "unknown"] = "unknown"
    """What pausing keeps."""

    idle_timeout_s: Number | None = None
    """Awake and billed for this long after the last activity, by default."""

    idle: Text | None = None
    """What counts as idle, and what idle costs."""

    meter_starts: Text | None = None
    at_cap: Text | None = None
    """What happens at a ceiling, and whether the next tier is published."""

    collection: Text | None = None
    """Whether snapshots go when their sandbox is deleted."""

    source: Identifier | None = None


class Claim(Part):
    """A yes or a no with the source that says so; what is not listed is unknown."""

    value: Literal["yes", "no"]
    source: Identifier
    note: Text | None = None


class Example(Part):
    """A calculation that the vendor publishes, reproduced by the check to its printed digits."""

    id: Identifier
    workload: dict[str, Number]
    """Inputs that differ from nothing at all: every field not named is zero, vCPU and memory must be named."""

    total: Text
    """As printed."""

    variant: Identifier | None = None
    plan: Identifier | None = None
    """None for gross."""

    source: Identifier | None = None


class Card(Part):
    """One product."""

    id: Identifier
    name: Text
    vendor: Text
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    category: Literal["agent-sandbox", "infrastructure", "self-hosted"]
    isolation: Literal[
        "firecracker",
        "cloud-hypervisor",
        "kata",
        "microvm",
        "vm",
        "gvisor",
        "container",
        "libkrun",
        "any",
        "unknown",
    ]
    isolation_note: Text | None = None
    region: Text | None = None
    currency: Literal["USD", "EUR"] = "USD"
    reference: Literal["lambda", "always-on"] | None = None
    """The row that ratios are taken against, or the raw machine that is always on."""

    evidence: Evidence
    conventions: Conventions = Conventions()
    allocation: Allocation
    meters: tuple[Meter, ...] = ()
    regimes: tuple[Regime, ...] = ()
    limits: Limits = Limits()
    lifecycle: Lifecycle = Lifecycle()
    plans: tuple[Plan, ...] = ()
    variants: tuple[Variant, ...] = ()
    conflicts: tuple[Text, ...] = ()
    caveats: tuple[Text, ...] = ()
    examples: tuple[Example, ...] = ()
    sources: tuple[Source, ...] = ()
    features: dict[FeatureName, Claim] = {}
