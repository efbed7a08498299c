"""Many quotes at once: a table for people, JSON and CSV with all digits for programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable

import typer

from sandyard.catalog import Card, Catalog
from sandyard.cli.price_options import print_json
from sandyard.pricing import Quote
from sandyard.pricing.meters import plain
from sandyard.pricing.present import money, quote_values, size, table, times, why_not
from sandyard.pricing.quote import Mode

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


def print_all(
    catalog: Catalog, quotes: list[Quote], work: dict[str, str], mode: Mode, *, as_json: bool, as_csv: bool
) -> None:
    """Print the quotes, in their order, in the form that was asked for."""
    if as_json:
        values = [quote_values(answer, catalog[answer.product]) for answer in quotes]
        print_json({"mode": mode, "workload": work, "quotes": values})
    elif as_csv:
        _print_csv(CSV_HEADER, (_csv_row(answer) for answer in quotes))
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


def _print_csv(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
