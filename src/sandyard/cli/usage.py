"""``sandyard usage``: what one sandbox used."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from sandyard.cli.options import StateDir
from sandyard.cli.receipt import usage_lines
from sandyard.cli.session import open_runtime, perform
from sandyard.runtime import SystemClock
from sandyard.runtime.usage import add_up


def usage(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="A sandbox, deleted ones included.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Say what a sandbox used from its creation to now, or to its end."""

    async def go() -> None:
        async with open_runtime(state_dir) as runtime:
            total = add_up(await runtime.events(sandbox_id), now_ms=SystemClock().now_ms())
        if as_json:
            typer.echo(json.dumps(asdict(total)))
            return
        for name, value in usage_lines(total):
            typer.echo(f"{name:<10} {value}")

    perform(go)
