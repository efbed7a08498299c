"""``sandyard doctor``: what this host has, what it lacks, and how to get it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sandyard.cli.options import StateDir
from sandyard.cli.settings import CliSettings
from sandyard.host import Check, Status, checks

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Look at this host; the exit code is 1 when something is missing that sandboxes cannot do without."""
    found = checks(state_dir or CliSettings().state_dir)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in found], indent=2))
    else:
        _print(found)
    raise typer.Exit(any(check.status is Status.FAIL for check in found))


def _print(found: Sequence[Check]) -> None:
    console = Console()
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "check", "found"):
        table.add_column(column, overflow="fold")
    for check in found:
        table.add_row(f"[{_STYLES[check.status]}]{check.status}[/]", check.name, escape(check.found))
    console.print(table)
    for check in found:
        if check.status is not Status.OK:
            text = escape(f"{check.found}. {check.why}\n  {check.how}")
            console.print(f"[{_STYLES[check.status]}]{check.name}[/]: {text}", highlight=False)
    if all(check.status is not Status.FAIL for check in found):
        console.print("Sandboxes can run on this host.")
