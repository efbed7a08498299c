"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sandyard.errors import InvalidRequestError, InvalidSpecError
from sandyard.units import parse_seconds

StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", help="Where images, sandboxes and snapshots are kept.", envvar="SANDYARD_STATE_DIR"),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable; NAME alone passes yours on."),
]
User = Annotated[str | None, typer.Option("--user", "-u", metavar="USER[:GROUP]", help="By name or id.")]
Workdir = Annotated[str | None, typer.Option("--workdir", "-w", metavar="DIR", help="Where the command starts.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="End the command after 90, 90s, 10m, 1h; exit code 124.")
]
Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Send stdin to the command.")]
Tty = Annotated[bool, typer.Option("--tty", "-t", help="Run it on a terminal.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="[--] CMD...", show_default=False)]


def read_env(pairs: list[str] | None) -> dict[str, str]:
    """Read ``NAME=VALUE`` and ``NAME``.

    Raises:
        InvalidSpecError: a pair has no name, or names a variable that is not set here.
    """
    env = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not name:
            raise InvalidSpecError(f"--env '{pair}' has no name.", hint="Write NAME=VALUE.")
        if not equals and name not in os.environ:
            raise InvalidSpecError(f"--env {name} is not set here.", hint=f"Write {name}=VALUE, or set it first.")
        env[name] = value if equals else os.environ[name]
    return env


def read_timeout(text: str | None) -> float | None:
    """Read a duration that must be more than nothing.

    Raises:
        InvalidRequestError: it is not a duration, or 0.
    """
    if text is None:
        return None
    seconds = parse_seconds(text)
    if seconds <= 0:
        raise InvalidRequestError(f"a timeout of '{text}' leaves no time to run.", hint="Give more than 0, or none.")
    return seconds
