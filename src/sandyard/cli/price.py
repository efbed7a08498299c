"""``sandyard price``: what the same work costs on every vendor, and which axis of the bill decides it."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

import typer

from sandyard.catalog import Card, load_catalog
from sandyard.catalog.features import FEATURES
from sandyard.cli import price_bill, price_explain, price_trace
from sandyard.cli.price_options import (
    CsvFlag,
    JsonFlag,
    ModeFlag,
    Modes,
    OnFlag,
    Products,
    print_json,
    to_day,
    to_exact,
    to_mode,
)
from sandyard.cli.price_table import print_all
from sandyard.cli.workload_options import takes_workload
from sandyard.errors import InvalidRequestError
from sandyard.pricing import Quote, Workload, quote_all, ranked
from sandyard.pricing.present import workload_values
from sandyard.pricing.quote import REFERENCE, Status
from sandyard.pricing.workload import INPUTS

app = typer.Typer(add_completion=False, help="What the same work costs on every vendor.", no_args_is_help=False)
app.command()(price_explain.explain)
app.command()(price_explain.compare)
app.command()(price_bill.bill)
app.command()(price_trace.trace)
app.command()(price_trace.runs)


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
    asked = to_mode(mode)
    quotes = quote_all([catalog[REFERENCE], *cards], workload, mode=asked, on=to_day(on), region=region)[1:]
    quotes = [answer for answer in quotes if _trusted(answer, evidence)]
    print_all(catalog, _sorted(quotes, sort), workload_values(workload), asked, as_json=as_json, as_csv=as_csv)


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
    question = price_sweep.Question(cards, workload, to_mode(mode), to_day(on))
    if sensitive:
        result = price_sweep.sensitive(question)
    elif x is None:
        raise InvalidRequestError("A sweep needs an input to vary.", hint="Try `--x running_hours:1:700:8`.")
    elif y is None:
        result = price_sweep.line(question, _axis(x))
    else:
        result = price_sweep.heat(question, _axis(x), _axis(y))
    if as_json:
        print_json(result.values)
    else:
        typer.echo(result.text)


def _axis(text: str) -> tuple[str, tuple[Decimal, ...]]:
    parts = text.split(":")
    if len(parts) != 4:  # noqa: PLR2004 - the four of INPUT:LOW:HIGH:COUNT
        raise InvalidRequestError(f"'{text}' is not a range.", hint="Write it as INPUT:LOW:HIGH:COUNT.")
    name = parts[0].replace("-", "_")
    low, high, count = (to_exact(text, part) for part in parts[1:])
    if count != count.to_integral_value() or not 1 <= count <= 1000 or high < low:  # noqa: PLR2004 - a screen or a file
        raise InvalidRequestError(f"'{text}' is not a range.", hint="COUNT is 1 to 1000, and LOW is not above HIGH.")
    step = (high - low) / max(count - 1, Decimal(1))
    values = tuple(low + step * index for index in range(int(count)))
    if name in INPUTS and INPUTS[name].whole:
        values = tuple(dict.fromkeys(value.to_integral_value() for value in values))
    return name, values


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
