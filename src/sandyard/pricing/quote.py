"""One product's price for one usage: the allocation, every line with its source, the total, the plan, the doubts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, localcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeVar

from sandyard.catalog.measures import Gigabyte
from sandyard.catalog.vocabulary import EvidenceState, Reading
from sandyard.pricing.allocation import Allocated, Refused, Request, resolve
from sandyard.pricing.constraints import broken, depends_on_average
from sandyard.pricing.errors import UnknownVariantError
from sandyard.pricing.meters import Component, Missing, Parts, Terms, components, gigabyte, month_hours, used_units
from sandyard.pricing.plans import DAYS, Excluded, Invoice, PlanChoice, choose_plan, invoice
from sandyard.pricing.trace import Trace
from sandyard.pricing.usage import MonthlyUsage, Usage
from sandyard.pricing.workload import CANONICAL, Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import Card, Plan, Variant

ZERO = Decimal(0)
PRECISION = 50
"""Digits carried through a sum; far below any digit that is shown."""

REFERENCE = "aws-lambda-microvm"
"""The product that ratios are taken against."""

Mode = Literal["gross", "invoice"]

Named = TypeVar("Named", "Variant", "Plan")


class Status(StrEnum):
    """What became of the question."""

    PRICED = "priced"
    UNSUPPORTED = "unsupported"
    UNVERIFIED = "unverified"
    SELF_HOSTED = "self-hosted"


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """The plan behind an invoice."""

    id: str
    name: str
    fee: Decimal | None
    fee_kind: str
    credit: Decimal
    """Of the usage, paid by credit."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The answer for one product. ``total`` is None unless ``status`` is priced."""

    product: str
    name: str
    mode: Mode
    status: Status
    evidence: EvidenceState
    currency: str
    total: Decimal | None = None
    gross: Decimal | None = None
    """The gross total, in both modes."""

    known: Decimal | None = None
    """Of an invoice whose fee is not published: what is known of it."""

    allocated: tuple[Allocated, ...] = ()
    components: tuple[Component, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why there is no total."""

    missing: tuple[str, ...] = ()
    """Which published figure a total still needs."""

    plan: ChosenPlan | None = None
    excluded: tuple[Excluded, ...] = ()
    assumptions: tuple[str, ...] = ()
    is_first_party: bool = False
    """Whether every price behind the total was read first-party, none from a transcript."""

    variant: str | None = None
    reference: str | None = None
    ratio: Decimal | None = None
    """Gross total over the reference product's gross total for the same usage."""


def quote(
    card: Card,
    workload: Workload = CANONICAL,
    *,
    mode: Mode = "gross",
    on: date | None = None,
    variant: str | None = None,
    plan: str | None = None,
) -> Quote:
    """Price a month of work on one product.

    Args:
        card: the product.
        workload: what the month needs.
        mode: ``gross`` is the public meters alone; ``invoice`` adds the cheapest eligible plan, with its fee,
            recurring allowances, credit, caps and minimums.
        on: the day whose prices count; None for the newest known.
        variant: a region, discount or other reading that the card publishes.
        plan: bill on this plan, whether or not it is the cheapest; invoice mode only.

    Raises:
        UnknownVariantError: the card has no such variant or plan.
    """
    return _quote(card, [MonthlyUsage(workload)], mode=mode, on=on, variant=variant, plan=plan)


def quote_trace(
    card: Card,
    trace: Trace,
    *,
    mode: Mode = "gross",
    on: date | None = None,
    variant: str | None = None,
    plan: str | None = None,
) -> Quote:
    """Price recorded sessions one by one: exact rounding, minimums and ceilings where a month can only assume them.

    The arguments are those of ``quote``.

    Raises:
        UnknownVariantError: the card has no such variant or plan.
    """
    return _quote(card, list(trace.usages()), mode=mode, on=on, variant=variant, plan=plan)


def _quote(
    card: Card, usages: Sequence[Usage], *, mode: Mode, on: date | None, variant: str | None, plan: str | None
) -> Quote:
    chosen = _variant(card, variant)
    only = _plan(card, plan)
    blank = Quote(card.id, card.name, mode, Status.UNVERIFIED, card.evidence.state, card.currency, variant=variant)
    if card.evidence.state is EvidenceState.SELF_HOSTED:
        return replace(
            blank,
            status=Status.SELF_HOSTED,
            reasons=(
                "run on your own machines: no vendor price applies; hosts and their operation are your own figures",
            ),
        )
    with localcontext(prec=PRECISION):
        return _priced(card, usages, blank, Terms(None, on, chosen), only)


def _priced(card: Card, usages: Sequence[Usage], blank: Quote, terms: Terms, plan: Plan | None) -> Quote:
    parts, refusals = _allocate(card, usages)
    allocated = tuple(dict.fromkeys(part for part, _ in parts))
    if refusals and card.evidence.state is not EvidenceState.UNVERIFIED:
        return replace(blank, status=Status.UNSUPPORTED, allocated=allocated, reasons=tuple(refusals))
    limits = tuple(dict.fromkeys(broken(card.limits, parts, card.conventions.gb)))
    if limits:
        return replace(blank, status=Status.UNSUPPORTED, allocated=allocated, reasons=limits)
    if card.evidence.state is EvidenceState.UNVERIFIED:
        return replace(
            blank, allocated=allocated, reasons=("the evidence does not carry a total",), missing=card.evidence.missing
        )
    base = replace(blank, allocated=allocated)
    if base.mode == "gross":
        return _gross(card, parts, base, terms)
    return _invoiced(card, parts, base, terms, plan)


def _allocate(card: Card, usages: Iterable[Usage]) -> tuple[list[tuple[Allocated, Usage]], list[str]]:
    parts: list[tuple[Allocated, Usage]] = []
    refusals: list[str] = []
    for usage in usages:
        result = resolve(card, Request(usage.vcpu, usage.memory_gib, usage.disk_gib))
        if isinstance(result, Refused):
            refusals.append(result.why)
        else:
            parts.append((result, usage))
    return parts, refusals


def _gross(card: Card, parts: Parts, base: Quote, terms: Terms) -> Quote:
    lines, missing = components(card, parts, terms)
    if missing:
        return _unpriced(base, missing)
    total = sum((line.amount for line in lines), ZERO)
    return replace(
        base,
        status=Status.PRICED,
        total=total,
        gross=total,
        components=tuple(lines),
        assumptions=tuple(_assumptions(card, parts, lines, None)),
        is_first_party=_first_party(card, lines),
    )


def _invoiced(card: Card, parts: Parts, base: Quote, terms: Terms, plan: Plan | None) -> Quote:
    gross = _gross(card, parts, base, terms)
    base = replace(base, gross=gross.total)
    if not card.plans:
        return replace(gross, assumptions=("no plan is published: the invoice is the gross usage", *gross.assumptions))
    choice = choose_plan(card, parts, terms) if plan is None else PlanChoice(invoice(card, plan, parts, terms), ())
    if choice.invoice is None:
        return _no_plan(base, choice.excluded)
    base = replace(base, excluded=choice.excluded)
    if choice.invoice.missing:
        return _unpriced(base, choice.invoice.missing)
    return _from_bill(card, parts, choice.invoice, base)


def _from_bill(card: Card, parts: Parts, bill: Invoice, base: Quote) -> Quote:
    plan = bill.plan
    missing = () if bill.total is not None else (plan.missing or f"the fee of {plan.name}",)
    return replace(
        base,
        status=Status.PRICED if bill.total is not None else Status.UNVERIFIED,
        total=bill.total,
        known=bill.known,
        components=bill.components,
        plan=ChosenPlan(plan.id, plan.name, plan.fee, str(plan.fee_kind), bill.credit),
        missing=missing,
        reasons=("the fee of the plan is not published",) if missing else (),
        assumptions=tuple(_assumptions(card, parts, bill.components, plan)),
        is_first_party=_first_party(card, bill.components),
    )


def _unpriced(base: Quote, missing: Sequence[Missing]) -> Quote:
    return replace(
        base,
        reasons=tuple(f"no price for {item.meter}" for item in missing),
        missing=tuple(item.why for item in missing),
    )


def _no_plan(base: Quote, excluded: tuple[Excluded, ...]) -> Quote:
    return replace(
        base,
        status=Status.UNSUPPORTED,
        reasons=("no published plan can be bought for this usage", *(f"{item.plan}: {item.why}" for item in excluded)),
        excluded=excluded,
    )


def _variant(card: Card, name: str | None) -> Variant | None:
    return None if name is None else _named(card, "variant", card.variants, name)


def _plan(card: Card, name: str | None) -> Plan | None:
    return None if name is None else _named(card, "plan", card.plans, name)


def _named(card: Card, kind: str, published: Sequence[Named], name: str) -> Named:
    for one in published:
        if one.id == name:
            return one
    known = ", ".join(one.id for one in published) or "none"
    raise UnknownVariantError(f"'{card.id}' has no {kind} '{name}'.", hint=f"Its {kind}s: {known}.")


def _first_party(card: Card, lines: Iterable[Component]) -> bool:
    readings = {source.id: source.read for source in card.sources}
    return all(readings[line.source] is not Reading.TRANSCRIPT for line in lines)


# -- what a total assumes ---------------------------------------------------------------------------------------------


def _assumptions(card: Card, parts: Parts, lines: Sequence[Component], plan: Plan | None) -> Iterator[str]:
    yield from card.evidence.assumptions
    used = list(used_units(card, lines))
    if any(unit.resource == "GB" and gigabyte(meter, card.conventions) is Gigabyte.AS_GIB for meter, unit in used):
        yield "GB is taken one to one as GiB: the vendor does not say which it means"
    months = sorted({month_hours(meter, card.conventions) for meter, unit in used if unit.time == "Months"})
    if months:
        yield f"a month is {' or '.join(str(hours) for hours in months)} hours"
    averaged = any(usage.is_average for _, usage in parts)
    if averaged and any(meter.rounding is not None for meter, _ in used):
        yield "runs are taken as equally long: the total divided by their number, then rounded up"
    if averaged and depends_on_average(card.limits):
        yield "ceilings on durations are checked on the implied average; a single longer run would be cut"
    if card.lifecycle.suspend == "none" and any(usage.count("resumes") for _, usage in parts):
        yield "there is no suspended state: the suspended hours are not bought, and state is lost or kept elsewhere"
    if plan is not None and any(allowance.per == "day" for allowance in plan.allowances):
        yield f"daily allowances are used evenly over {DAYS} days"
    if plan is not None and plan.fee_kind == "deposit":
        yield "a required deposit carries over; it is counted here as the least that the month costs"


# -- many products ----------------------------------------------------------------------------------------------------


def quote_all(
    cards: Iterable[Card],
    workload: Workload | Trace = CANONICAL,
    *,
    mode: Mode = "gross",
    on: date | None = None,
    region: str | None = None,
) -> list[Quote]:
    """Price the same work on every card, with each total's ratio to the reference product's gross total.

    ``region`` picks the variant of that name on the cards that have one.
    """
    cards = list(cards)
    asked = [(card, _regional(card, region)) for card in cards]
    quotes = [_any_quote(card, workload, mode, on, variant) for card, variant in asked]
    reference = next((card for card in cards if card.id == REFERENCE), None)
    if reference is None:
        return quotes
    base = _any_quote(reference, workload, "gross", on, None)
    return [_with_ratio(answer, base) for answer in quotes]


def _with_ratio(answer: Quote, reference: Quote) -> Quote:
    """``answer`` with the ratio of the gross totals; without one where either is missing, nothing, or other money."""
    if answer.gross is None or not reference.gross or answer.currency != reference.currency:
        return answer
    with localcontext(prec=PRECISION):
        return replace(answer, reference=reference.product, ratio=answer.gross / reference.gross)


def _any_quote(card: Card, work: Workload | Trace, mode: Mode, on: date | None, variant: str | None) -> Quote:
    if isinstance(work, Trace):
        return quote_trace(card, work, mode=mode, on=on, variant=variant)
    return quote(card, work, mode=mode, on=on, variant=variant)


def _regional(card: Card, region: str | None) -> str | None:
    if region is None:
        return None
    return next((item.id for item in card.variants if item.kind == "region" and item.id == region), None)


def ranked(quotes: Iterable[Quote]) -> list[Quote]:
    """Priced quotes by total, then the others by name."""
    return sorted(
        quotes,
        key=lambda answer: (answer.total is None, answer.total if answer.total is not None else ZERO, answer.product),
    )
