"""Every input of a workload as a flag, and a file that holds them, for the commands that price one."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from sandyard.catalog.yaml_text import read_yaml
from sandyard.errors import InvalidRequestError
from sandyard.pricing import Workload
from sandyard.pricing.workload import CANONICAL, INPUTS, Input

PANEL = "The work of a month"


def takes_workload(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command``, which takes ``workload``, one flag for each input and ``--workload FILE``."""

    @wraps(command)
    def run(**given: Any) -> None:
        flags = {name: value for name in INPUTS if (value := given.pop(name)) is not None}
        file: Path | None = given.pop("workload_file")
        inputs = _read(file) if file is not None else {}
        command(workload=Workload.from_mapping({**inputs, **flags}), **given)

    own = inspect.signature(command, eval_str=True)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "workload"]
    parameters += [_file_flag(), *(_flag(item) for item in INPUTS.values())]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
    return run


def _flag(item: Input) -> inspect.Parameter:
    unit = f", {item.unit}" if item.unit else ""
    help_text = f"{item.meaning[0].upper()}{item.meaning[1:]}{unit} [{getattr(CANONICAL, item.name)}]."
    option = typer.Option(f"--{item.name.replace('_', '-')}", help=help_text, rich_help_panel=PANEL, metavar="NUMBER")
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


def _file_flag() -> inspect.Parameter:
    option = typer.Option(
        "--workload", help="YAML or TOML file of inputs; flags win over it.", rich_help_panel=PANEL, metavar="FILE"
    )
    return inspect.Parameter(
        "workload_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option]
    )


def _read(path: Path) -> Mapping[str, object]:
    text = read_text(path)
    if path.suffix == ".toml":
        try:
            return {name: str(value) for name, value in tomllib.loads(text, parse_float=str).items()}
        except tomllib.TOMLDecodeError as error:
            raise InvalidRequestError(
                f"'{path}' is not TOML: {error}.", hint="Write one `name = value` a line."
            ) from None
    document = read_yaml(text, str(path))
    if document.findings:
        raise InvalidRequestError(f"{document.findings[0]}.", hint='Write one `name: "value"` a line.')
    if not isinstance(document.value, dict):
        raise InvalidRequestError(f"'{path}' is not a mapping of inputs.", hint='Write one `name: "value"` a line.')
    return document.value


def read_text(path: Path) -> str:
    """The text of a file that a person named.

    Raises:
        InvalidRequestError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"'{path}' cannot be read: {error}.", hint="Name a text file that exists.") from None
