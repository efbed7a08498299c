"""The text publications: pricing.md and its twin, llms.txt, robots.txt, sitemap.xml and the JSON data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

from sandyard.catalog import Card, Catalog
from sandyard.catalog.features import FEATURES
from sandyard.pricing import Quote, quote_all, ranked
from sandyard.pricing.meters import DIGITS, plain
from sandyard.pricing.present import as_text, money, quote_values, size, source_values, times, why_not, workload_values
from sandyard.pricing.quote import REFERENCE
from sandyard.pricing.workload import CANONICAL, INPUTS

CRAWLERS = (
    "GPTBot",
    "OAI-SearchBot",
    "ChatGPT-User",
    "ClaudeBot",
    "Claude-SearchBot",
    "Claude-User",
    "PerplexityBot",
    "Perplexity-User",
    "Google-Extended",
)
"""The AI crawlers that their operators name; the wildcard stays authoritative for all others."""


def publications(catalog: Catalog, base_url: str) -> dict[str, str]:
    """Every text file by its path, for a site served at ``base_url``."""
    base = base_url.rstrip("/")
    gross = quote_all(catalog)
    invoice = {answer.product: answer for answer in quote_all(catalog, mode="invoice")}
    pricing = _pricing_md(catalog, ranked(gross), invoice, base)
    pages = ["pricing.md", "data/catalog.json", *(f"data/products/{card.id}.json" for card in catalog)]
    texts = {
        "pricing.md": pricing,
        "pricing.txt": pricing,
        "llms.txt": _llms_txt(catalog, base),
        "robots.txt": _robots_txt(base),
        "sitemap.xml": _sitemap_xml([f"{base}/{page}" for page in pages]),
        "data/catalog.json": _json(_catalog(catalog, gross, invoice)),
    }
    for answer in gross:
        card = catalog[answer.product]
        texts[f"data/products/{card.id}.json"] = _json(_product(card, answer, invoice[card.id]))
    return dict(sorted(texts.items()))


def read_until(catalog: Catalog) -> str:
    """The last day on which a source of any card was read."""
    return max(source.read_on for card in catalog for source in card.sources if source.read_on is not None).isoformat()


# -- pricing.md -------------------------------------------------------------------------------------------------------


def _pricing_md(catalog: Catalog, quotes: list[Quote], invoice: Mapping[str, Quote], base: str) -> str:
    priced = [answer for answer in quotes if answer.total is not None]
    rest = [answer for answer in quotes if answer.total is None]
    lines = [
        "# What one month of sandboxes costs",
        "",
        f"Canonical address: <{base}/pricing.md>. Sources read until {read_until(catalog)}.",
        f"{len(catalog)} products, {len(priced)} with a total.",
        "",
        "Gross is the public meters for the workload below; invoice adds the cheapest published plan.",
        f"Ratios are gross totals over `{REFERENCE}`. Rows marked ref are references. The JSON files hold all digits.",
        "",
        "## The workload",
        "",
        "| input | value | meaning |",
        "| --- | ---: | --- |",
        *(f"| `{name}` | {value} | {_meaning(name)} |" for name, value in workload_values(CANONICAL).items()),
        "",
        "## Totals",
        "",
        "| # | product | gross, a month | vs Lambda | given | invoice | evidence | read on |",
        "| ---: | --- | ---: | ---: | --- | --- | --- | --- |",
        *(_total_row(rank, catalog, answer, invoice) for rank, answer in enumerate(priced, start=1)),
        "",
        "## Without a total",
        "",
        "| product | status | why |",
        "| --- | --- | --- |",
        *(f"| {_linked(catalog[answer.product])} | {answer.status} | {why_not(answer)} |" for answer in rest),
    ]
    for answer in priced:
        lines += ["", *_section(catalog[answer.product], answer, invoice[answer.product], base)]
    return "\n".join(lines) + "\n"


def _meaning(name: str) -> str:
    unit = f", {INPUTS[name].unit}" if INPUTS[name].unit else ""
    return f"{INPUTS[name].meaning}{unit}"


def _linked(card: Card) -> str:
    return f"[{card.name}]({card.url})" if card.url else card.name


def _total_row(rank: int, catalog: Catalog, answer: Quote, invoice: Mapping[str, Quote]) -> str:
    card, bill = catalog[answer.product], invoice[answer.product]
    mark = " (ref)" if card.reference is not None else ""
    plan = f"{money(bill.total)}, {bill.plan.name}" if bill.total is not None and bill.plan else money(bill.total)
    party = "first-party" if answer.is_first_party else "transcript"
    used = {line.source for line in answer.components}
    days = sorted(source.read_on.isoformat() for source in card.sources if source.id in used and source.read_on)
    return (
        f"| {rank} | {_linked(card)}{mark} | {money(answer.total)} {answer.currency} | {times(answer.ratio)} "
        f"| {size(answer)} | {plan} | {answer.evidence}, {party} | {days[-1] if days else 'undated copy'} |"
    )


def _section(card: Card, answer: Quote, bill: Quote, base: str) -> Iterator[str]:
    sources = {source.id: source for source in card.sources}
    yield f"### {card.name}"
    yield ""
    yield f"All of the card: <{base}/data/products/{card.id}.json>"
    yield ""
    for line in answer.components:
        source = sources[line.source]
        where = f"<{source.url}>" if source.url else source.title
        read = f"{source.read} of {source.read_on}" if source.read_on else f"undated {source.read}"
        yield f"- {line.name}: {line.worked(DIGITS)} ({where}, {read})"
    total = plain(answer.total) if answer.total is not None else ""
    yield f"- Gross: {total} {answer.currency}"
    if bill.plan is not None:
        known = "" if bill.total is not None else f"; known: {money(bill.known)}, missing: {'; '.join(bill.missing)}"
        yield f"- Invoice: {money(bill.total)} on {bill.plan.name}{known}"
    yield from (f"- Assumes: {text}" for text in answer.assumptions)
    yield from (f"- Conflict: {text}" for text in card.conflicts)


# -- discovery --------------------------------------------------------------------------------------------------------


def _llms_txt(catalog: Catalog, base: str) -> str:
    lines = [
        "# Sandyard: what sandboxes for AI agents cost",
        "",
        "> The same month of work priced on every product from its published meters, each line with its source.",
        "",
        "## Prices",
        "",
        f"- [Every total, as text]({base}/pricing.md)",
        f"- [Every card and quote, as JSON]({base}/data/catalog.json): numbers are text, with all digits",
        "",
        "## Products",
        "",
        *(f"- [{card.name}]({base}/data/products/{card.id}.json): {card.evidence.state}" for card in catalog),
    ]
    return "\n".join(lines) + "\n"


def _robots_txt(base: str) -> str:
    groups = [f"User-agent: {name}\nAllow: /\n" for name in ("*", *CRAWLERS)]
    return "\n".join([*groups, f"Sitemap: {base}/sitemap.xml\n"])


def _sitemap_xml(addresses: Iterable[str]) -> str:
    urls = "".join(f"  <url><loc>{escape(address)}</loc></url>\n" for address in addresses)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'
    )


# -- data -------------------------------------------------------------------------------------------------------------


def _catalog(catalog: Catalog, gross: list[Quote], invoice: Mapping[str, Quote]) -> dict[str, Any]:
    return {
        "read_until": read_until(catalog),
        "workload": workload_values(CANONICAL),
        "reference": REFERENCE,
        "features": FEATURES,
        "products": [_product(catalog[answer.product], answer, invoice[answer.product]) for answer in gross],
    }


def _product(card: Card, answer: Quote, bill: Quote) -> dict[str, Any]:
    sources = {source.id: source_values(source) for source in card.sources}
    evidence = {
        name: {"value": claim.value, "source": sources[claim.source]}
        | ({"note": claim.note} if claim.note is not None else {})
        for name, claim in card.features.items()
    }
    return {
        "card": card.model_dump(mode="json", exclude_none=True, exclude={"features"}),
        "gross_usd_month": as_text(answer.total),
        "modeled_invoice_usd_month": as_text(bill.total),
        "gross": quote_values(answer, card),
        "invoice": quote_values(bill, card),
        "feature_evidence": {name: evidence.get(name, {"value": "unknown", "source": None}) for name in FEATURES},
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
