"""``sandyard price``: what the same work costs on every vendor, and which axis of the bill decides it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sandyard.catalog import Card, Catalog, load_catalog
from sandyard.catalog.features import FEATURES
from sandyard.cli.workload_options import read_text, takes_workload
from sandyard.errors import InvalidRequestError
from sandyard.pricing import Quote, Trace, Workload, quote, quote_all, quote_trace, read_csv, read_jsonl
from sandyard.pricing.axes import Axes, AxesInputs, axes, four_questions
from sandyard.pricing.bill import BillInputs, estimate
from sandyard.pricing.meters import DIGITS, plain
from sandyard.pricing.present import money, quote_values, size, table, times, why_not, workload_values
from sandyard.pricing.quote import REFERENCE, Mode, Status, ranked
from sandyard.pricing.workload import INPUTS, exact

app = typer.Typer(help="What the same work costs on every vendor.", no_args_is_help=False)


class Modes(StrEnum):
    """Gross is the public meters; invoice adds the cheapest plan."""

    GROSS = "gross"
    INVOICE = "invoice"


class Sort(StrEnum):
    """Order of the table."""

    TOTAL = "total"
    NAME = "name"
    EVIDENCE = "evidence"


class EvidenceFilter(StrEnum):
    """Which rows are wanted by how far they can be trusted."""

    ALL = "all"
    PRICED = "priced"
    VERIFIED = "verified"
    FIRST_PARTY = "first-party"


CSV_HEADER = (
    "product",
    "name",
    "status",
    "evidence",
    "first_party",
    "mode",
    "currency",
    "total",
    "ratio",
    "plan",
    "why",
)
ModeFlag = Annotated[Modes, typer.Option("--mode", help="Public meters alone, or with the cheapest plan.")]
OnFlag = Annotated[str | None, typer.Option("--on", metavar="DATE", help="Prices of this day; today by default.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="As JSON, all digits.")]
CsvFlag = Annotated[bool, typer.Option("--csv", help="As CSV, all digits.")]
Products = Annotated[list[str] | None, typer.Argument(metavar="[PRODUCT]...", help="Only these.")]
Variant = Annotated[str | None, typer.Option(help="A region, discount or other reading that the card names.")]


@app.callback(invoke_without_command=True)
@takes_workload
def price(
    context: typer.Context,
    *,
    workload: Workload,
    mode: ModeFlag = Modes.GROSS,
    sort: Annotated[Sort, typer.Option(help="Order of the rows.")] = Sort.TOTAL,
    needs: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only products that have all these features.")
    ] = None,
    evidence: Annotated[
        EvidenceFilter, typer.Option(help="Only rows that can be trusted so far.")
    ] = EvidenceFilter.ALL,
    region: Annotated[str | None, typer.Option(help="Prices of this region, on the cards that name it.")] = None,
    on: OnFlag = None,
    as_json: JsonFlag = False,
    as_csv: CsvFlag = False,
) -> None:
    """Price one month of work on every product; without a flag, the canonical comparison."""
    if context.invoked_subcommand is not None:
        return
    catalog = load_catalog()
    cards = [card for card in catalog if _has(card, needs)]
    if region is not None and not any(item.id == region for card in catalog for item in card.variants):
        raise InvalidRequestError(
            f"No card names the region '{region}'.", hint="`sandyard catalog show ID` lists them."
        )
    asked = _mode(mode)
    quotes = quote_all([catalog[REFERENCE], *cards], workload, mode=asked, on=_day(on), region=region)[1:]
    quotes = [answer for answer in quotes if _trusted(answer, evidence)]
    _print_all(catalog, _sorted(quotes, sort), workload_values(workload), asked, as_json=as_json, as_csv=as_csv)


def _print_all(
    catalog: Catalog, quotes: list[Quote], work: dict[str, str], mode: Mode, *, as_json: bool, as_csv: bool
) -> None:
    if as_json:
        values = [quote_values(answer, catalog[answer.product]) for answer in quotes]
        _print_json({"mode": mode, "workload": work, "quotes": values})
    elif as_csv:
        header = (
            "product",
            "name",
            "status",
            "evidence",
            "first_party",
            "mode",
            "currency",
            "total",
            "ratio",
            "plan",
            "why",
        )
        _print_csv(header, (_csv_row(answer) for answer in quotes))
    else:
        rows = [_row(catalog[answer.product], answer) for answer in quotes]
        typer.echo(table(("PRODUCT", "", "A MONTH", "VS LAMBDA", "GIVEN", "PLAN", "EVIDENCE"), rows, frozenset({2, 3})))


def _csv_row(answer: Quote) -> tuple[str, ...]:
    return (
        answer.product,
        answer.name,
        str(answer.status),
        str(answer.evidence),
        str(answer.is_first_party).lower(),
        answer.mode,
        answer.currency,
        "" if answer.total is None else plain(answer.total),
        "" if answer.ratio is None else plain(answer.ratio),
        answer.plan.id if answer.plan else "",
        why_not(answer),
    )


def _row(card: Card, answer: Quote) -> tuple[str, ...]:
    mark = "ref" if card.reference is not None else ""
    if answer.total is None:
        return (answer.product, mark, str(answer.status), "-", size(answer), "", why_not(answer))
    party = "first-party" if answer.is_first_party else "transcript"
    plan = answer.plan.name if answer.plan else ""
    trust = f"{answer.evidence}, {party}"
    return (answer.product, mark, money(answer.total), times(answer.ratio), size(answer), plan, trust)


@app.command()
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
    answer = quote(card, workload, mode=_mode(mode), on=_day(on), variant=variant, plan=plan)
    inputs = AxesInputs(
        create_latency_s=_number("create-latency-s", create_latency_s),
        peak_creates_per_s=_number("peak-creates-per-s", peak_creates_per_s),
        build_memory_gib=_number("build-memory-gib", build_memory_gib),
        build_share=_number("build-share", build_share),
        install_gib=_number("install-gib", install_gib),
    )
    seven = axes(card, workload, inputs)
    if as_json:
        _print_json(
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
    typer.echo("\n".join(_explained(card, answer)))
    typer.echo("\n".join(("", *_said_axes(seven), "", *_said_questions(card))))


def _explained(card: Card, answer: Quote) -> Iterable[str]:
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


def _said_axes(seven: Axes) -> Iterable[str]:
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


@app.command()
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
    answers = [quote(card, workload, mode=_mode(mode), on=_day(on)) for card in cards]
    differing = {
        name: [card.features[name].value if name in card.features else "unknown" for card in cards]
        for name in FEATURES
        if any(name in card.features for card in cards)
    }
    differing = {name: said for name, said in differing.items() if said[0] != said[1]}
    if as_json:
        _print_json(
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


@app.command()
@takes_workload
def sweep(
    products: Products = None,
    *,
    workload: Workload,
    x: Annotated[str | None, typer.Option("--x", metavar="INPUT:LOW:HIGH:COUNT", help="The input to vary.")] = None,
    y: Annotated[str | None, typer.Option("--y", metavar="INPUT:LOW:HIGH:COUNT", help="A second: a heat map.")] = None,
    sensitive: Annotated[bool, typer.Option("--sensitivity", help="Which input moves each total most.")] = False,
    mode: ModeFlag = Modes.GROSS,
    on: OnFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Vary one input or two: totals and crossings, or who is cheapest where."""
    from sandyard.cli import price_sweep  # noqa: PLC0415 - NumPy loads only for sweeps

    catalog = load_catalog()
    cards = [catalog[name] for name in products] if products else list(catalog)
    question = price_sweep.Question(cards, workload, _mode(mode), _day(on))
    if sensitive:
        result = price_sweep.sensitive(question)
    elif x is None:
        raise InvalidRequestError("A sweep needs an input to vary.", hint="Try `--x running_hours:1:700:8`.")
    elif y is None:
        result = price_sweep.line(question, _axis(x))
    else:
        result = price_sweep.heat(question, _axis(x), _axis(y))
    if as_json:
        _print_json(result.values)
    else:
        typer.echo(result.text)


def _axis(text: str) -> tuple[str, tuple[Decimal, ...]]:
    parts = text.split(":")
    if len(parts) != 4:  # noqa: PLR2004 - the four of INPUT:LOW:HIGH:COUNT
        raise InvalidRequestError(f"'{text}' is not a range.", hint="Write it as INPUT:LOW:HIGH:COUNT.")
    name = parts[0].replace("-", "_")
    low, high, count = (_exact(text, part) for part in parts[1:])
    if count != count.to_integral_value() or not 1 <= count <= 1000 or high < low:  # noqa: PLR2004 - a screen or a file
        raise InvalidRequestError(f"'{text}' is not a range.", hint="COUNT is 1 to 1000, and LOW is not above HIGH.")
    step = (high - low) / max(count - 1, Decimal(1))
    values = tuple(low + step * index for index in range(int(count)))
    if name in INPUTS and INPUTS[name].whole:
        values = tuple(dict.fromkeys(value.to_integral_value() for value in values))
    return name, values


@app.command()
def bill(
    *,
    requests_per_day: Annotated[str, typer.Option(metavar="N", help="Sandboxes created a day.")],
    mean_lifetime_sec: Annotated[str, typer.Option(metavar="S", help="From create to kill.")],
    active_cpu_fraction: Annotated[str, typer.Option(metavar="SHARE", help="Share of it in which the CPU works.")],
    vcpu: Annotated[str, typer.Option(metavar="N", help="Reserved.")],
    mem_gib: Annotated[str, typer.Option(metavar="GIB", help="Reserved.")],
    rate_per_vcpu_sec: Annotated[str, typer.Option(metavar="PRICE")],
    rate_per_gib_sec: Annotated[str, typer.Option(metavar="PRICE")],
    rate_per_gb_egress: Annotated[str, typer.Option(metavar="PRICE")] = "0",
    egress_mb_per_create: Annotated[str, typer.Option(metavar="MB")] = "0",
    rounding_sec: Annotated[str, typer.Option(metavar="S", help="1 by the second, 60 to the minute.")] = "1",
    min_billable_sec: Annotated[str, typer.Option(metavar="S", help="Floor for each create.")] = "0",
    bills_idle: Annotated[bool, typer.Option("--bills-idle/--active-only", help="Whether idle time is billed.")] = True,
    platform_fee_month: Annotated[str, typer.Option(metavar="PRICE")] = "0",
    days: Annotated[str, typer.Option(metavar="N")] = "30",
    as_json: JsonFlag = False,
) -> None:
    """Estimate a bill from four measured figures and the terms of any price page."""
    result = estimate(
        BillInputs(
            requests_per_day=_exact("requests-per-day", requests_per_day),
            mean_lifetime_sec=_exact("mean-lifetime-sec", mean_lifetime_sec),
            active_cpu_fraction=_exact("active-cpu-fraction", active_cpu_fraction),
            vcpu=_exact("vcpu", vcpu),
            mem_gib=_exact("mem-gib", mem_gib),
            egress_mb_per_create=_exact("egress-mb-per-create", egress_mb_per_create),
            rate_per_vcpu_sec=_exact("rate-per-vcpu-sec", rate_per_vcpu_sec),
            rate_per_gib_sec=_exact("rate-per-gib-sec", rate_per_gib_sec),
            rate_per_gb_egress=_exact("rate-per-gb-egress", rate_per_gb_egress),
            rounding_sec=_exact("rounding-sec", rounding_sec),
            min_billable_sec=_exact("min-billable-sec", min_billable_sec),
            bills_idle=bills_idle,
            platform_fee_month=_exact("platform-fee-month", platform_fee_month),
            days=_exact("days", days),
        )
    )
    values = {name: getattr(result, name) for name in result.__dataclass_fields__}
    if as_json:
        _print_json({name: plain(value) for name, value in values.items()})
        return
    rows = [(name.replace("_", " "), money(value)) for name, value in values.items()]
    typer.echo(table(("", ""), rows, frozenset({1})).lstrip("\n"))


@app.command()
def trace(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Runs as .jsonl or .csv; docs/pricing.md has the fields.")
    ],
    products: Products = None,
    *,
    mode: ModeFlag = Modes.GROSS,
    image_gib: Annotated[str, typer.Option(metavar="GIB", help="Base image kept and read by each creation.")] = "0",
    on: OnFlag = None,
    as_json: JsonFlag = False,
    as_csv: CsvFlag = False,
) -> None:
    """Price recorded runs one by one; with one product, explained line by line."""
    runs = _read_trace(file, _exact("image-gib", image_gib))
    catalog = load_catalog()
    if products and len(products) == 1 and not (as_json or as_csv):
        card = catalog[products[0]]
        typer.echo("\n".join(_explained(card, quote_trace(card, runs, mode=_mode(mode), on=_day(on)))))
        typer.echo("\n".join(("", *_said_axes(axes(card, runs)))))
        return
    cards = [catalog[name] for name in products] if products else list(catalog)
    quotes = quote_all([catalog[REFERENCE], *cards], runs, mode=_mode(mode), on=_day(on))[1:]
    work = {"runs": str(len(runs)), "period_s": plain(runs.period_s)}
    _print_all(catalog, ranked(quotes), work, _mode(mode), as_json=as_json, as_csv=as_csv)


def _read_trace(file: Path, image_gib: Decimal) -> Trace:
    text = read_text(file)
    if file.suffix == ".csv":
        return read_csv(text.splitlines(keepends=True), image_gib=image_gib)
    if file.suffix in {".jsonl", ".ndjson"}:
        return read_jsonl(text.splitlines(), image_gib=image_gib)
    raise InvalidRequestError(f"'{file.name}' is neither .jsonl nor .csv.", hint="The suffix says how it is read.")


@app.command()
def runs(
    sandboxes: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Only these.")] = None,
    *,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="Where sandboxes are kept.", envvar="SANDYARD_STATE_DIR"),
    ] = None,
) -> None:
    """Print what this host's sandboxes ran as a trace, for ``price trace``; deleted ones included."""
    from sandyard.cli.runs import read_runs  # noqa: PLC0415 - prices need no runtime, and this does
    from sandyard.cli.settings import CliSettings  # noqa: PLC0415
    from sandyard.runtime.layout import Layout  # noqa: PLC0415

    layout = Layout((state_dir or CliSettings().state_dir).absolute())
    for record in read_runs(layout.database, sandboxes or [], int(datetime.now(tz=UTC).timestamp() * 1000)):
        typer.echo(json.dumps(record))


# -- small things -----------------------------------------------------------------------------------------------------


def _mode(mode: Modes) -> Mode:
    return "gross" if mode is Modes.GROSS else "invoice"


def _day(text: str | None) -> date:
    if text is None:
        return datetime.now(tz=UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(f"'{text}' is not a day.", hint="Write it as 2026-11-30.") from None


def _exact(name: str, text: str) -> Decimal:
    try:
        return exact(text)
    except ValueError as error:
        raise InvalidRequestError(f"{name}: {error}.", hint="Give a number such as 0.25.") from None


def _number(name: str, text: str | None) -> Decimal | None:
    return None if text is None else _exact(name, text)


def _has(card: Card, needs: str | None) -> bool:
    wanted = [name.strip().replace("-", "_") for name in needs.split(",")] if needs else []
    unknown = [name for name in wanted if name not in FEATURES]
    if unknown:
        raise InvalidRequestError(
            f"No feature is called '{unknown[0]}'.", hint="`sandyard catalog features` lists them."
        )
    return all(name in card.features and card.features[name].value == "yes" for name in wanted)


def _trusted(answer: Quote, wanted: EvidenceFilter) -> bool:
    if wanted is EvidenceFilter.ALL:
        return True
    if wanted is EvidenceFilter.VERIFIED:
        return answer.status is Status.PRICED and answer.evidence == "verified"
    return answer.status is Status.PRICED and (wanted is EvidenceFilter.PRICED or answer.is_first_party)


def _sorted(quotes: list[Quote], sort: Sort) -> list[Quote]:
    if sort is Sort.NAME:
        return sorted(quotes, key=lambda answer: answer.product)
    order = ranked(quotes)
    if sort is Sort.EVIDENCE:
        trust = {"verified": 0, "modeled": 1, "unverified": 2, "self-hosted": 3}
        return sorted(order, key=lambda answer: (trust[answer.evidence], not answer.is_first_party))
    return order


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_csv(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
