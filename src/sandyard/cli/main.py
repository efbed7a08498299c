"""The command ``sandyard``."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from sandyard.cli.exits import exit_code
from sandyard.cli.lazy import LazyGroup
from sandyard.cli.messages import complain
from sandyard.errors import SandyardError

app = typer.Typer(
    name="sandyard",
    cls=LazyGroup,
    help="Computers for AI agents on your own hosts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if wanted:
        typer.echo(f"sandyard {version('sandyard')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Say the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Computers for AI agents on your own hosts: make one, use it, let it sleep."""


def main() -> None:
    """Run the command line; what a person did wrong is said without a traceback."""
    try:
        app()
    except SandyardError as error:
        complain(error)
        sys.exit(exit_code(error))
