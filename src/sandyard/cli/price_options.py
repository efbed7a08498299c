"""Options that the price commands share, and how their values are read."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

import typer

from sandyard.errors import InvalidRequestError
from sandyard.pricing.quote import Mode
from sandyard.pricing.workload import exact


class Modes(StrEnum):
    """Gross is the public meters; invoice adds the cheapest plan."""

    GROSS = "gross"
    INVOICE = "invoice"


ModeFlag = Annotated[Modes, typer.Option("--mode", help="Public meters alone, or with the cheapest plan.")]
OnFlag = Annotated[str | None, typer.Option("--on", metavar="DATE", help="Prices of this day; today by default.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="As JSON, all digits.")]
CsvFlag = Annotated[bool, typer.Option("--csv", help="As CSV, all digits.")]
Products = Annotated[list[str] | None, typer.Argument(metavar="[PRODUCT]...", help="Only these.")]
Variant = Annotated[str | None, typer.Option(help="A region, discount or other reading that the card names.")]


def to_mode(mode: Modes) -> Mode:
    """The engine's word."""
    return "gross" if mode is Modes.GROSS else "invoice"


def to_day(text: str | None) -> date:
    """A day that a person wrote; today for none."""
    if text is None:
        return datetime.now(tz=UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(f"'{text}' is not a day.", hint="Write it as 2026-11-30.") from None


def to_exact(name: str, text: str) -> Decimal:
    """A number that a person wrote, exactly."""
    try:
        return exact(text)
    except ValueError as error:
        raise InvalidRequestError(f"{name}: {error}.", hint="Give a number such as 0.25.") from None


def to_number(name: str, text: str | None) -> Decimal | None:
    """The same where it may be left out."""
    return None if text is None else to_exact(name, text)


def print_json(value: object) -> None:
    """Data for a program, on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
