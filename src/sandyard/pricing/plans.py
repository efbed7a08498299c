"""From a gross bill to an invoice: which published plan is cheapest for this usage, and why the others are not it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sandyard.catalog.measures import parse_unit
from sandyard.catalog.vocabulary import FeeKind
from sandyard.pricing.constraints import broken
from sandyard.pricing.meters import Component, Missing, Parts, Terms, components, gigabyte, month_hours, plain

if TYPE_CHECKING:
    from sandyard.catalog.models import Allowance, Card, Meter, Plan

ZERO = Decimal(0)
DAYS = Decimal(30)
"""A daily allowance counts this often in a month: an even spread over the shortest usual month."""


@dataclass(frozen=True, slots=True)
class Invoice:
    """One plan's bill for the usage."""

    plan: Plan
    components: tuple[Component, ...]
    usage: Decimal
    """After allowances, before credit."""

    credit: Decimal
    """Of the usage, paid by recurring credit or by a fee that returns as credit."""

    total: Decimal | None
    """None where the fee is not published."""

    missing: tuple[Missing, ...] = ()

    @property
    def known(self) -> Decimal:
        """What is known of the total: the usage after credit, and the fee where it is published."""
        return self.usage - self.credit if self.total is None else self.total


@dataclass(frozen=True, slots=True)
class Excluded:
    """A plan that was not taken, and why."""

    plan: str
    why: str


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """The cheapest eligible plan, or none; and the others."""

    invoice: Invoice | None
    excluded: tuple[Excluded, ...]


def choose_plan(card: Card, parts: Parts, terms: Terms) -> PlanChoice:
    """Bill the usage on every plan that can be bought and take the cheapest; equal totals keep the card's order.

    Where the only plan left has no published fee, it is the answer all the same, without a total.
    """
    eligible: list[Invoice] = []
    unknown_fee: list[Invoice] = []
    excluded: list[Excluded] = []
    for plan in card.plans:
        bill = invoice(card, plan, parts, terms)
        reasons = _reasons_against(card, plan, parts, bill, terms)
        if reasons:
            excluded.append(Excluded(plan.id, "; ".join(reasons)))
        elif bill.total is None:
            unknown_fee.append(bill)
        else:
            eligible.append(bill)
    if not eligible:
        return PlanChoice(unknown_fee[0] if unknown_fee else None, tuple(excluded))
    best = min(eligible, key=lambda bill: bill.known)
    excluded.extend(Excluded(bill.plan.id, bill.plan.missing or "its fee is not published") for bill in unknown_fee)
    excluded.extend(
        Excluded(bill.plan.id, f"costs {plain(bill.known)}, not less than {plain(best.known)}")
        for bill in eligible
        if bill is not best
    )
    return PlanChoice(best, tuple(excluded))


def _reasons_against(card: Card, plan: Plan, parts: Parts, bill: Invoice, terms: Terms) -> list[str]:
    variant = terms.variant
    if variant is not None and variant.plan is not None and plan.id != variant.plan:
        return [f"the variant '{variant.id}' belongs to another plan"]
    reasons = list(broken(plan.limits, parts, card.conventions.gb))
    if not plan.selectable:
        reasons.append(plan.why_not or "it cannot be bought")
    if not plan.suspend and any(usage.count("resumes") for _, usage in parts):
        reasons.append("sandboxes of this plan cannot be suspended")
    if plan.overage == "hard-cap":
        over = [line.name for line in bill.components if line.amount]
        if over:
            reasons.append(f"nothing can be bought beyond what it includes, which {', '.join(over)} would need")
    return reasons


def invoice(card: Card, plan: Plan, parts: Parts, terms: Terms) -> Invoice:
    """What the usage costs on ``plan``, whether or not the plan allows it."""
    lines, missing = components(card, parts, replace(terms, plan=plan.id))
    allowances, variant = plan.allowances, terms.variant
    if variant is not None and plan.id in variant.allowances:
        allowances = variant.allowances[plan.id]
    for allowance in allowances:
        lines = _take(card, lines, allowance)
    usage = sum((line.amount for line in lines), ZERO)
    paid_by_fee = plan.fee or ZERO if plan.fee_kind is FeeKind.CREDIT else ZERO
    credit = min(usage, (plan.credit or ZERO) + paid_by_fee)
    return Invoice(plan, tuple(lines), usage, credit, _total(plan, usage, credit), tuple(missing))


def _total(plan: Plan, usage: Decimal, credit: Decimal) -> Decimal | None:
    if plan.fee is None:
        return None
    if plan.fee_kind is FeeKind.FEE:
        return plan.fee + (usage - credit)
    return max(plan.fee, usage - min(usage, plan.credit or ZERO))


def _take(card: Card, lines: Sequence[Component], allowance: Allowance) -> list[Component]:
    """Take one pool from its meters, in the order that the allowance names them."""
    if allowance.credit is not None:
        return _take_credit(lines, allowance, allowance.credit * _periods(allowance))
    meters = {meter.id: meter for meter in card.meters}
    base = {name: _base(card, meters[name], meters[name].unit) for name in allowance.meters}
    left = (allowance.amount or ZERO) * _periods(allowance)
    left *= _base(card, meters[allowance.meters[0]], allowance.unit or "")
    taken: dict[int, Component] = {}
    for name in allowance.meters:
        for index, line in enumerate(lines):
            if line.meter == name:
                have = line.quantity - line.included
                used = have if have * base[name] <= left else left / base[name]
                left -= used * base[name]
                taken[index] = _reduced(line, used)
    return [taken.get(index, line) for index, line in enumerate(lines)]


def _take_credit(lines: Sequence[Component], allowance: Allowance, left: Decimal) -> list[Component]:
    taken: dict[int, Component] = {}
    for name in allowance.meters:
        for index, line in enumerate(lines):
            if line.meter == name:
                paid = min(line.amount, left)
                left -= paid
                taken[index] = replace(line, included=line.included + paid / line.price, amount=line.amount - paid)
    return [taken.get(index, line) for index, line in enumerate(lines)]


def _reduced(line: Component, used: Decimal) -> Component:
    included = line.included + used
    return replace(line, included=included, amount=(line.quantity - included) * line.price)


def _periods(allowance: Allowance) -> Decimal:
    return DAYS if allowance.per == "day" else Decimal(1)


def _base(card: Card, meter: Meter, unit: str) -> Decimal:
    return parse_unit(unit).in_base(gigabyte(meter, card.conventions), month_hours(meter, card.conventions))
