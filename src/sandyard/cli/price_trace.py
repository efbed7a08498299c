"""``sandyard price trace`` and ``runs``: recorded runs, priced and written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from sandyard.catalog import load_catalog
from sandyard.cli.price_explain import explained, said_axes
from sandyard.cli.price_options import CsvFlag, JsonFlag, ModeFlag, Modes, OnFlag, Products, to_day, to_exact, to_mode
from sandyard.cli.price_table import print_all
from sandyard.cli.workload_options import read_text
from sandyard.errors import InvalidRequestError
from sandyard.pricing import Trace, quote_all, quote_trace, ranked, read_csv, read_jsonl
from sandyard.pricing.axes import axes
from sandyard.pricing.meters import plain
from sandyard.pricing.quote import REFERENCE


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
    runs = _read_trace(file, to_exact("image-gib", image_gib))
    catalog = load_catalog()
    if products and len(products) == 1 and not (as_json or as_csv):
        card = catalog[products[0]]
        typer.echo("\n".join(explained(card, quote_trace(card, runs, mode=to_mode(mode), on=to_day(on)))))
        typer.echo("\n".join(("", *said_axes(axes(card, runs)))))
        return
    cards = [catalog[name] for name in products] if products else list(catalog)
    quotes = quote_all([catalog[REFERENCE], *cards], runs, mode=to_mode(mode), on=to_day(on))[1:]
    work = {"runs": str(len(runs)), "period_s": plain(runs.period_s)}
    print_all(catalog, ranked(quotes), work, to_mode(mode), as_json=as_json, as_csv=as_csv)


def _read_trace(file: Path, image_gib: Decimal) -> Trace:
    text = read_text(file)
    if file.suffix == ".csv":
        return read_csv(text.splitlines(keepends=True), image_gib=image_gib)
    if file.suffix in {".jsonl", ".ndjson"}:
        return read_jsonl(text.splitlines(), image_gib=image_gib)
    raise InvalidRequestError(f"'{file.name}' is neither .jsonl nor .csv.", hint="The suffix says how it is read.")


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
