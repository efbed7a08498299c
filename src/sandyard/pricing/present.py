"""Quotes as plain values and as text: people read tables and programs JSON, with the same figures.

In JSON every number is text with all of its digits; a table rounds, once, for display.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from sandyard.pricing.meters import Component, plain
from sandyard.pricing.quote import Quote, Status
from sandyard.pricing.workload import Workload

if TYPE_CHECKING:
    from sandyard.catalog.models import Card, Source

CENT = Decimal("0.01")
SMALL = Decimal("0.0001")


def as_text(value: Decimal | None) -> str | None:
    """All digits, or None."""
    return None if value is None else plain(value)


def workload_values(workload: Workload) -> dict[str, str]:
    """Every input as text."""
    return {name: plain(value) for name, value in workload.as_dict().items()}


def source_values(source: Source) -> dict[str, str | None]:
    """One source."""
    return {
        "id": source.id,
        "url": source.url,
        "title": source.title,
        "read": str(source.read),
        "read_on": source.read_on.isoformat() if source.read_on else None,
        "by": source.by,
    }


def quote_values(answer: Quote, card: Card) -> dict[str, Any]:
    """One quote, with the source of every line written out."""
    sources = {source.id: source_values(source) for source in card.sources}
    return {
        "product": answer.product,
        "name": answer.name,
        "mode": answer.mode,
        "status": str(answer.status),
        "evidence": str(answer.evidence),
        "first_party": answer.is_first_party,
        "currency": answer.currency,
        "total": as_text(answer.total),
        "gross": as_text(answer.gross),
        "known": as_text(answer.known),
        "reference": answer.reference,
        "ratio": as_text(answer.ratio),
        "variant": answer.variant,
        "allocation": [
            {
                "id": given.id,
                "vcpu": plain(given.vcpu),
                "memory_gib": plain(given.memory_gib),
                "disk_gib": plain(given.disk_gib),
                "why": given.why,
            }
            for given in answer.allocated
        ],
        "components": [_component(line, sources) for line in answer.components],
        "plan": None
        if answer.plan is None
        else {
            "id": answer.plan.id,
            "name": answer.plan.name,
            "fee": as_text(answer.plan.fee),
            "fee_kind": answer.plan.fee_kind,
            "credit": plain(answer.plan.credit),
        },
        "excluded": [{"plan": item.plan, "why": item.why} for item in answer.excluded],
        "reasons": list(answer.reasons),
        "missing": list(answer.missing),
        "assumptions": list(answer.assumptions),
    }


def _component(line: Component, sources: Mapping[str, dict[str, str | None]]) -> dict[str, Any]:
    return {
        "meter": line.meter,
        "name": line.name,
        "quantity": plain(line.quantity),
        "unit": line.unit,
        "included": plain(line.included),
        "price": plain(line.price),
        "amount": plain(line.amount),
        "working": line.working,
        "source": sources[line.source],
    }


# -- for people -------------------------------------------------------------------------------------------------------


def money(value: Decimal | None) -> str:
    """Two decimals, four below one; a dash for none."""
    if value is None:
        return "-"
    step = SMALL if 0 < abs(value) < 1 else CENT
    return format(value.quantize(step, rounding=ROUND_HALF_UP), ",f")


def times(value: Decimal | None) -> str:
    """A ratio as ``1.63x``."""
    return "-" if value is None else f"{value.quantize(CENT, rounding=ROUND_HALF_UP)}x"


def size(answer: Quote) -> str:
    """What is given, as ``2 vCPU / 4 GiB / 20 GiB``; a dash where nothing is."""
    if not answer.allocated:
        return "-"
    given = answer.allocated[0]
    more = f" +{len(answer.allocated) - 1}" if len(answer.allocated) > 1 else ""
    return f"{_short(given.vcpu)} vCPU / {_short(given.memory_gib)} GiB / {_short(given.disk_gib)} GiB{more}"


def _short(value: Decimal) -> str:
    return plain(value.quantize(CENT, rounding=ROUND_HALF_UP))


def why_not(answer: Quote) -> str:
    """One line on why there is no total."""
    if answer.status is Status.UNVERIFIED and answer.missing:
        return f"missing: {answer.missing[0]}"
    return answer.reasons[0] if answer.reasons else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Columns of text, padded; those in ``right`` to the left."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
