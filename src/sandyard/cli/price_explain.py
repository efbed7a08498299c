"""``sandyard price explain`` and ``compare``: every line of a total, and two totals side by side."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any

import typer

from sandyard.catalog import Card, load_catalog
from sandyard.catalog.features import FEATURES
from sandyard.cli.price_options import (
    JsonFlag,
    ModeFlag,
    Modes,
    OnFlag,
    Variant,
    print_json,
    to_day,
    to_mode,
    to_number,
)
from sandyard.cli.workload_options import takes_workload
from sandyard.pricing import Quote, Workload, quote
from sandyard.pricing.axes import Axes, AxesInputs, axes, four_questions
from sandyard.pricing.meters import DIGITS, plain
from sandyard.pricing.present import money, quote_values, size, table, workload_values


@takes_workload
def explain(
    product: Annotated[str, typer.Argument(metavar="PRODUCT")],
    *,
    workload: Workload,
    mode: ModeFlag = Modes.GROSS,
    variant: Variant = None,
    plan: Annotated[str | None, typer.Option(help="Bill on this plan; invoice mode.")] = None,
    on: OnFlag = None,
    create_latency_s: Annotated[
        str | None, typer.Option(metavar="S", help="For the warm pool: time to create.")
    ] = None,
    peak_creates_per_s: Annotated[
        str | None, typer.Option(metavar="N", help="For the warm pool: creations a second.")
    ] = None,
    build_memory_gib: Annotated[
        str | None, typer.Option(metavar="GIB", help="For the ratchet: the heaviest step.")
    ] = None,
    build_share: Annotated[
        str | None, typer.Option(metavar="SHARE", help="For the ratchet: its share of the hours.")
    ] = None,
    install_gib: Annotated[
        str | None, typer.Option(metavar="GIB", help="For egress: downloaded by each sandbox.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Every line with its sum and source, the plans, the seven axes and the four questions."""
    card = load_catalog()[product]
    answer = quote(card, workload, mode=to_mode(mode), on=to_day(on), variant=variant, plan=plan)
    inputs = AxesInputs(
        create_latency_s=to_number("create-latency-s", create_latency_s),
        peak_creates_per_s=to_number("peak-creates-per-s", peak_creates_per_s),
        build_memory_gib=to_number("build-memory-gib", build_memory_gib),
        build_share=to_number("build-share", build_share),
        install_gib=to_number("install-gib", install_gib),
    )
    seven = axes(card, workload, inputs)
    if as_json:
        print_json(
            {
                "workload": workload_values(workload),
                "quote": quote_values(answer, card),
                "axes": _axes_values(seven),
                "questions": [
                    {"question": item.question, "answer": list(item.answer), "sources": list(item.sources)}
                    for item in four_questions(card)
                ],
                "conflicts": list(card.conflicts),
                "caveats": list(card.caveats),
            }
        )
        return
    typer.echo("\n".join(explained(card, answer)))
    typer.echo("\n".join(("", *said_axes(seven), "", *_said_questions(card))))


def explained(card: Card, answer: Quote) -> Iterable[str]:
    """The lines of one quote: what is given, each sum with its source, the plan, and every doubt."""
    sources = {source.id: source for source in card.sources}
    head = money(answer.total) if answer.total is not None else str(answer.status)
    yield f"{card.name} ({card.id}): {head} {answer.currency} a month, {answer.mode}, {answer.evidence}"
    for given in answer.allocated:
        yield f"given: {given.id}, {size(answer)}: {given.why}"
    for line in answer.components:
        source = sources[line.source]
        yield f"  {line.name}: {line.worked(DIGITS)}"
        read_on = source.read_on.isoformat() if source.read_on else "undated"
        yield f"      {source.url or source.title} ({source.read}, {read_on}{f', {source.by}' if source.by else ''})"
    if answer.plan is not None:
        fee = "unknown" if answer.plan.fee is None else plain(answer.plan.fee)
        yield f"plan: {answer.plan.name}, fee {fee} ({answer.plan.fee_kind}), credit used {money(answer.plan.credit)}"
    if answer.known is not None and answer.total is None:
        yield f"known: {money(answer.known)}"
    for title, items in (
        ("not this plan", [f"{item.plan}: {item.why}" for item in answer.excluded]),
        ("because", answer.reasons),
        ("missing", answer.missing),
        ("assumes", answer.assumptions),
        ("conflict", card.conflicts),
        ("caveat", card.caveats),
    ):
        yield from (f"{title}: {item}" for item in items)


def _axes_values(seven: Axes) -> dict[str, Any]:
    return {
        "figures": [
            {"axis": axis.name, "cost": None if axis.cost is None else plain(axis.cost), "note": axis.note}
            for axis in seven.figures
        ],
        "deciding": seven.deciding.name if seven.deciding else None,
        "caps": [
            {"plan": cap.plan, "cap": cap.cap, "used": plain(cap.used), "limit": plain(cap.limit)} for cap in seven.caps
        ],
    }


def said_axes(seven: Axes) -> Iterable[str]:
    """The lines of the seven figures, the one that decides, and the distance to each cap."""
    yield "axes, a month:"
    for axis in seven.figures:
        yield f"  {axis.name:<15} {money(axis.cost):>12}  {axis.note}"
    yield f"deciding: {seven.deciding.name if seven.deciding else 'none of them costs anything that is known'}"
    for cap in seven.caps:
        yield f"  {cap.plan} {cap.cap}: {(cap.share * 100).quantize(Decimal('0.1'))} % of {plain(cap.limit)}"


def _said_questions(card: Card) -> Iterable[str]:
    for item in four_questions(card):
        yield item.question
        yield from (f"  {line}" for line in item.answer)
        yield f"  sources: {', '.join(item.sources) or 'none'}"


@takes_workload
def compare(
    one: Annotated[str, typer.Argument(metavar="A")],
    other: Annotated[str, typer.Argument(metavar="B")],
    *,
    workload: Workload,
    mode: ModeFlag = Modes.GROSS,
    on: OnFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Two products side by side, and which of their features differ."""
    catalog = load_catalog()
    cards = (catalog[one], catalog[other])
    answers = [quote(card, workload, mode=to_mode(mode), on=to_day(on)) for card in cards]
    differing = {
        name: [card.features[name].value if name in card.features else "unknown" for card in cards]
        for name in FEATURES
        if any(name in card.features for card in cards)
    }
    differing = {name: said for name, said in differing.items() if said[0] != said[1]}
    if as_json:
        print_json(
            {
                "workload": workload_values(workload),
                "quotes": [quote_values(answer, card) for answer, card in zip(answers, cards, strict=True)],
                "features": differing,
            }
        )
        return
    rows = [
        ("a month", *(money(answer.total) if answer.total is not None else str(answer.status) for answer in answers)),
        ("given", *(size(answer) for answer in answers)),
        ("evidence", *(str(answer.evidence) for answer in answers)),
    ]
    names = dict.fromkeys(line.name for answer in answers for line in answer.components)
    for name in names:
        amounts = [sum((x.amount for x in answer.components if x.name == name), Decimal(0)) for answer in answers]
        rows.append((name, *(money(amount) if amount else "" for amount in amounts)))
    rows += [(name, *said) for name, said in differing.items()]
    typer.echo(table(("", one, other), rows, frozenset({1, 2})))
