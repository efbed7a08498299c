"""Commands that load when they are used: pricing's models and cards cost other commands no time, and are an extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sandyard.cli.session import say

LATER = {
    "bench": "sandyard.cli.bench",
    "price": "sandyard.cli.price",
    "catalog": "sandyard.cli.catalog",
    "site": "sandyard.cli.site",
}
"""Name of the command, and the module whose ``app`` it is."""

EXTRAS = {"bench": "bench,pricing"}
"""The extra that a command needs where it is not ``pricing``."""


class LazyGroup(TyperGroup):
    """A group that also has the commands of ``LATER``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, those of ``LATER`` last."""
        return [*super().list_commands(ctx), *LATER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; its module is imported now where it is one of ``LATER``."""
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        try:
            command = get_command(import_module(LATER[cmd_name]).app)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "sandyard":
                raise
            command = get_command(_without(cmd_name, str(error.name)))
        command.name = cmd_name
        return command


def _without(name: str, package: str) -> typer.Typer:
    """Stands in where an extra is not installed, so that the help of the others works."""
    install = f"pip install 'sandyard[{EXTRAS.get(name, 'pricing')}]'"
    app = typer.Typer(help=f"Needs an extra: {install}.")

    @app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def refuse() -> None:
        say(f"`sandyard {name}` needs the package {package}. Install it: {install}.")
        raise typer.Exit(2)

    return app
