"""``sandyard site``: the files that are published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandyard.catalog import load_catalog
from sandyard.errors import InvalidRequestError
from sandyard.site.texts import publications

app = typer.Typer(add_completion=False, help="The published files.", no_args_is_help=True)


@app.callback()
def site() -> None:
    """Build or check the published files."""


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")],
    *,
    base_url: Annotated[str, typer.Option(help="Where the site is served; sitemaps hold whole addresses.")],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where a file is not what it should be.")
    ] = False,
) -> None:
    """Write the text publications and the data; the same cards give the same bytes."""
    if not base_url.startswith(("https://", "http://")):
        raise InvalidRequestError(
            f"'{base_url}' is not an address.", hint="Give it with its scheme: https://example.org."
        )
    texts = publications(load_catalog(), base_url)
    if check:
        _check(folder, texts)
        return
    for name, text in texts.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
    typer.echo(f"{len(texts)} files in {folder}", err=True)


def _check(folder: Path, texts: dict[str, str]) -> None:
    stale = stale_files(folder, texts)
    for name in stale:
        typer.echo(f"{name}: stale; build the site again")
    raise typer.Exit(1 if stale else 0)


def stale_files(folder: Path, texts: dict[str, str]) -> list[str]:
    """Which published files are missing or hold other bytes than they should."""
    return [name for name, text in texts.items() if _read(folder / name) != text.encode()]


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
