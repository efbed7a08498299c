"""What the command line says to a person: on stderr, so that stdout stays data."""

from __future__ import annotations

import typer

from sandyard.errors import SandyardError


def say(text: str) -> None:
    """Tell a person something, with our name before it."""
    typer.echo(f"sandyard: {text}", err=True)


def complain(error: SandyardError) -> None:
    """Say what went wrong, with the code by which it can be looked up."""
    say(f"{error} [{error.code}]")
