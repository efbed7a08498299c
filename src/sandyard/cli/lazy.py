"""Commands that load when they are used: what one of them needs costs the others no time, and may be an extra."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sandyard.cli.messages import say


class Later(NamedTuple):
    """Where a command is."""

    module: str
    """Has ``app`` for a group of commands, or a function of the command's own name."""

    extra: str
    """What to install where something is missing."""


COMMANDS = {
    "run": Later("sandyard.cli.run", "server"),
    "sandboxes": Later("sandyard.cli.sandboxes", "server"),
    "images": Later("sandyard.cli.images", "server"),
    "usage": Later("sandyard.cli.usage", "server"),
    "doctor": Later("sandyard.cli.doctor", "server"),
    "price": Later("sandyard.cli.price", "pricing"),
    "catalog": Later("sandyard.cli.catalog", "pricing"),
    "site": Later("sandyard.cli.site", "pricing"),
    "bench": Later("sandyard.cli.bench", "bench,pricing,server"),
}
"""In the order in which help lists them."""


class LazyGroup(TyperGroup):
    """The group of ``COMMANDS``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every name."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command; its module is imported now."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        later = COMMANDS[cmd_name]
        try:
            module = import_module(later.module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "sandyard":
                raise
            command = get_command(_without(cmd_name, later.extra, str(error.name)))
        else:
            command = get_command(module.app if hasattr(module, "app") else _alone(getattr(module, cmd_name)))
        command.name = cmd_name
        return command


def _alone(function: Callable[..., None]) -> typer.Typer:
    """Make a command of one function; options after its first word are that word's business, as in ``docker run``."""
    app = typer.Typer(add_completion=False)
    app.command(context_settings={"allow_interspersed_args": function.__name__ != "run"})(function)
    return app


def _without(name: str, extra: str, package: str) -> typer.Typer:
    """Stand in where an extra is not installed, so that the help of the others works."""
    app = typer.Typer(add_completion=False, help=f"Needs the extra '{extra}': pip install 'sandyard[{extra}]'.")

    @app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def refuse() -> None:
        say(f"`sandyard {name}` needs the package {package}. Install it: pip install 'sandyard[{extra}]'.")
        raise typer.Exit(2)

    return app
