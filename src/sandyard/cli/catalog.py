"""``sandyard catalog``: the rate cards themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from sandyard.catalog import Card, Catalog, CatalogError, Finding, load_catalog, read_catalog
from sandyard.catalog.diff import changes
from sandyard.catalog.features import FEATURES
from sandyard.catalog.schema import schema_text
from sandyard.cli.site import stale_files
from sandyard.errors import InvalidRequestError
from sandyard.pricing.invariants import check_catalog
from sandyard.pricing.meters import plain
from sandyard.pricing.present import table
from sandyard.site.texts import publications

app = typer.Typer(add_completion=False, help="The rate cards: list, show, check, compare.", no_args_is_help=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="As JSON.")]
Folder = Annotated[Path | None, typer.Option(help="Read cards from here instead of the package.")]


@app.command("list")
def list_cards(*, folder: Folder = None, as_json: JsonFlag = False) -> None:
    """Name every product with its evidence."""
    catalog = _load(folder)
    if as_json:
        keys = ("id", "name", "vendor", "url", "category", "isolation", "currency")
        _print_json([{key: getattr(card, key) for key in keys} | {"evidence": card.evidence.state} for card in catalog])
        return
    rows = [(card.id, card.name, card.category, card.isolation, str(card.evidence.state)) for card in catalog]
    typer.echo(table(("PRODUCT", "NAME", "CATEGORY", "ISOLATION", "EVIDENCE"), rows))


@app.command()
def show(
    product: Annotated[str, typer.Argument(metavar="PRODUCT")], *, folder: Folder = None, as_json: JsonFlag = False
) -> None:
    """Show one card: regimes, plans, limits, features, caveats, conflicts and sources."""
    card = _load(folder)[product]
    if as_json:
        _print_json(card.model_dump(mode="json", exclude_none=True))
    else:
        typer.echo("\n".join(_card_lines(card)))


def _card_lines(card: Card) -> Iterable[str]:
    yield f"{card.name} ({card.id}), {card.vendor}"
    yield f"{card.category}, isolation {card.isolation}, {card.currency}{f', {card.url}' if card.url else ''}"
    yield f"evidence: {card.evidence.state}"
    yield from (f"  assumes: {text}" for text in card.evidence.assumptions)
    yield from (f"  missing: {text}" for text in card.evidence.missing)
    yield ""
    rows = list(_meter_rows(card))
    rows += [(item.id, item.applies, item.billed, item.numbers, item.source or "") for item in card.regimes]
    if rows:
        yield table(("REGIME", "APPLIES", "BILLED", "NUMBERS", "SOURCE"), rows)
    for plan in card.plans:
        fee = "unknown" if plan.fee is None else plain(plan.fee)
        limits = ", ".join(f"{name} {value}" for name, value in plan.limits if value is not None)
        said = f"{plan.name}, fee {fee} ({plan.fee_kind}), {plan.overage}"
        yield f"plan {plan.id}: {said}{f'; {limits}' if limits else ''}"
    for variant in card.variants:
        yield f"variant {variant.id} ({variant.kind}): {variant.applies}"
    claims = [(name, claim.value, claim.source) for name, claim in card.features.items()]
    if claims:
        yield ""
        yield table(("FEATURE", "", "SOURCE"), claims)
    for title, texts in (("conflict", card.conflicts), ("caveat", card.caveats)):
        yield from (f"{title}: {text}" for text in texts)
    for source in card.sources:
        by = f", {source.by}" if source.by else ""
        yield f"source {source.id}: {source.url or source.title} ({source.read}, {source.read_on or 'undated'}{by})"


def _meter_rows(card: Card) -> Iterable[tuple[str, ...]]:
    for meter in card.meters:
        rounding = ""
        if meter.rounding is not None:
            rounding = f", up to {plain(meter.rounding.increment_s)} s per {meter.rounding.per}"
        billed = f"{meter.quantity}{f' {meter.rule}' if meter.rule else ''} in {meter.unit}{rounding}"
        if not meter.prices:
            yield (meter.id, str(meter.when), billed, meter.missing or "", "")
        for price in meter.prices:
            only = "".join(f" ({name})" for name in (price.shape, price.plan) if name)
            yield (
                meter.id,
                str(meter.when),
                billed,
                f"{plain(price.price)}{only} from {price.valid_from}",
                price.source,
            )


@app.command()
def check(
    *,
    folder: Folder = None,
    site: Annotated[Path | None, typer.Option(help="Also that the files published here are fresh.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Where that site is served.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check every card against the schema and the invariants; every fault is named with its file and line."""
    if (site is None) is not (base_url is None):
        raise InvalidRequestError("A site is checked with its address.", hint="Give both --site and --base-url.")
    catalog, findings = read_catalog(folder)
    if not findings:
        findings = check_catalog(catalog)
    if folder is None:
        findings = [*findings, *_stale_schema()]
    if site is not None and base_url is not None and not findings:
        stale = stale_files(site, publications(catalog, base_url))
        findings = [Finding(name, 0, "stale", "not what the cards give; build the site again") for name in stale]
    if as_json:
        _print_json([{key: getattr(item, key) for key in ("file", "line", "code", "message")} for item in findings])
    else:
        for finding in findings:
            typer.echo(str(finding))
        typer.echo(f"{len(catalog)} cards, {len(findings)} findings", err=True)
    raise typer.Exit(1 if findings else 0)


def _stale_schema() -> list[Finding]:
    committed = (files("sandyard") / "data" / "card.schema.json").read_text(encoding="utf-8")
    if committed == schema_text():
        return []
    message = "the schema is not that of the models; write it anew with `sandyard catalog schema`"
    return [Finding("card.schema.json", 1, "stale", message)]


@app.command()
def schema() -> None:
    """Print the JSON Schema of a card, for editors."""
    typer.echo(schema_text(), nl=False)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A folder of cards.")],
    new: Annotated[Path | None, typer.Argument(metavar="[NEW]", help="Another; the package's by default.")] = None,
    *,
    as_json: JsonFlag = False,
) -> None:
    """Show what changed between two catalogs."""
    found = changes(_load(old), _load(new))
    if as_json:
        _print_json([{key: getattr(item, key) for key in ("product", "place", "old", "new")} for item in found])
        return
    for item in found:
        typer.echo(f"{item.product} {item.place}: {item.old or '(none)'} -> {item.new or '(none)'}")


@app.command()
def features(
    names: Annotated[list[str] | None, typer.Argument(metavar="[FEATURE]...", help="Only these.")] = None,
    *,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which products have which features; without names, what each feature means and how many claim it."""
    catalog = _load(folder)
    wanted = [name.replace("-", "_") for name in names or FEATURES]
    unknown = [name for name in wanted if name not in FEATURES]
    if unknown:
        raise InvalidRequestError(
            f"No feature is called '{unknown[0]}'.", hint="`sandyard catalog features` lists them."
        )
    said = {card.id: {name: _said(card, name) for name in wanted} for card in catalog}
    if as_json:
        _print_json(said)
    elif names:
        typer.echo(table(("PRODUCT", *wanted), [(product, *values.values()) for product, values in said.items()]))
    else:
        counted = [[values[name] for values in said.values()] for name in wanted]
        rows = [
            (name, FEATURES[name], str(values.count("yes")), str(values.count("no")), str(values.count("unknown")))
            for name, values in zip(wanted, counted, strict=True)
        ]
        typer.echo(table(("FEATURE", "MEANING", "YES", "NO", "UNKNOWN"), rows, frozenset({2, 3, 4})))


def _said(card: Card, name: str) -> str:
    return card.features[name].value if name in card.features else "unknown"


def _load(folder: Path | None) -> Catalog:
    if folder is not None and not folder.is_dir():
        raise InvalidRequestError(
            f"'{folder}' is not a folder of cards.", hint="Name a folder that holds ID.yaml files."
        )
    try:
        return load_catalog(folder)
    except CatalogError as error:
        for finding in error.findings:
            typer.echo(str(finding), err=True)
        raise


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
