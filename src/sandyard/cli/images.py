"""``sandyard images``: what is here, getting more, removing what nobody needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from sandyard.cli.messages import say
from sandyard.cli.options import StateDir
from sandyard.cli.progress import progress_bar
from sandyard.cli.session import open_runtime, perform
from sandyard.cli.settings import CliSettings
from sandyard.errors import InvalidRequestError
from sandyard.images import Image, ImageStore
from sandyard.runtime.layout import Layout
from sandyard.units import format_bytes

app = typer.Typer(add_completion=False, help="Root file systems that sandboxes start from.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Insecure = Annotated[
    list[str] | None,
    typer.Option("--insecure-registry", metavar="HOST[:PORT]", help="Do without TLS there; on loopback it always may."),
]


def open_store(state_dir: Path | None, insecure_registries: Sequence[str] = ()) -> ImageStore:
    """Return the images below the state directory, the default one for None."""
    layout = Layout((state_dir or CliSettings().state_dir).absolute())
    return ImageStore(layout.images, insecure_registries=insecure_registries)


@app.command("list")
def list_images(*, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the images on this host, oldest first."""
    images = open_store(state_dir).list()
    if as_json:
        typer.echo(json.dumps([_as_data(image) for image in images], indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("reference", "digest", "size", "unpacked"):
        table.add_column(column, overflow="fold")
    for image in images:
        created = image.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        names = "\n".join(image.references) or "-"
        table.add_row(names, image.digest[:19], format_bytes(image.size_bytes), created)
    Console().print(table)


@app.command()
def pull(
    reference: Annotated[str, typer.Argument(help="A name in a registry, or oci:DIR, docker-archive:, rootfs:FILE.")],
    *,
    insecure_registry: Insecure = None,
    state_dir: StateDir = None,
) -> None:
    """Fetch an image and unpack it, unless what its source has now is here already; print its digest."""
    store = open_store(state_dir, insecure_registry or ())

    async def go() -> None:
        with progress_bar() as progress:
            image = await store.pull(reference, progress)
        typer.echo(image.digest)

    perform(go)


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="The one that can be built is 'default'.")] = "default",
    *,
    state_dir: StateDir = None,
) -> None:
    """Build the default image from this host's own Debian mirror; print its digest."""
    store = open_store(state_dir)

    async def go() -> None:
        if name != "default":
            raise InvalidRequestError(
                f"there is no recipe for '{name}'.",
                hint="Only 'default' can be built here; build others with a tool for images, then pull them.",
            )
        with progress_bar() as progress:
            image = await store.build_default(progress)
        typer.echo(image.digest)

    perform(go)


@app.command()
def prune(*, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Remove every image that no sandbox and no snapshot needs, and what broken pulls left behind."""

    async def go() -> None:
        async with open_runtime(state_dir) as runtime:
            removed = await runtime.prune_images()
        if as_json:
            typer.echo(json.dumps([_as_data(image) for image in removed], indent=2))
            return
        for image in removed:
            typer.echo(image.digest)
        say(f"removed {len(removed)} images, {format_bytes(sum(image.size_bytes for image in removed))}")

    perform(go)


def _as_data(image: Image) -> dict[str, Any]:
    return {
        "digest": image.digest,
        "references": image.references,
        "rootfs": str(image.rootfs),
        "size_bytes": image.size_bytes,
        "created_at": image.created_at.isoformat(),
        "config": image.config.to_oci(),
    }
