"""``sandyard sandboxes files``: files of a sandbox, from outside."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from sandyard.cli.blocking import read, write
from sandyard.cli.options import StateDir
from sandyard.cli.session import open_runtime, perform
from sandyard.errors import InvalidRequestError
from sandyard.guest import Download, Entry, EntryType, Guest

app = typer.Typer(
    add_completion=False, help="Read and write a sandbox's files; '-' stands for stdin or stdout.", no_args_is_help=True
)

SandboxId = Annotated[str, typer.Argument(metavar="ID")]
Local = Annotated[str, typer.Argument(metavar="[FILE]", help="Where to; '-' is stdout.")]
Remote = Annotated[str, typer.Argument(metavar="PATH", help="A path in the sandbox.")]

_CHUNK = 256 * 1024
_LETTERS = {EntryType.DIRECTORY: "d", EntryType.SYMLINK: "l", EntryType.FILE: "-", EntryType.OTHER: "?"}


def _with_guest(state_dir: StateDir, sandbox_id: str, work: Callable[[Guest], Awaitable[None]]) -> None:
    async def go() -> None:
        async with open_runtime(state_dir) as runtime:
            sandbox = await runtime.get(sandbox_id)
            async with sandbox.awake() as guest:
                await work(guest)

    perform(go)


@app.command("list")
def list_files(sandbox_id: SandboxId, path: Remote, *, state_dir: StateDir = None) -> None:
    """List a directory."""

    async def go(guest: Guest) -> None:
        for entry in sorted(await guest.list_dir(path), key=lambda entry: entry.name):
            typer.echo(_line(entry))

    _with_guest(state_dir, sandbox_id, go)


@app.command("stat")
def stat_file(sandbox_id: SandboxId, path: Remote, *, state_dir: StateDir = None) -> None:
    """Describe a file as JSON."""

    async def go(guest: Guest) -> None:
        entry = await guest.stat(path)
        typer.echo(
            json.dumps({name: getattr(entry, name) for name in entry.__slots__ if getattr(entry, name) is not None})
        )

    _with_guest(state_dir, sandbox_id, go)


@app.command("get")
def get_file(
    sandbox_id: SandboxId,
    path: Remote,
    to: Local = "-",
    *,
    state_dir: StateDir = None,
) -> None:
    """Copy a file out of a sandbox."""
    _with_guest(state_dir, sandbox_id, lambda guest: _keep(guest.read(path), to))


@app.command("put")
def put_file(
    sandbox_id: SandboxId,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file here; '-' is stdin.")],
    path: Remote,
    *,
    parents: Annotated[bool, typer.Option("--parents", "-p", help="Make missing directories.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Copy a file into a sandbox; what was there is replaced once all of it has arrived."""

    async def go(guest: Guest) -> None:
        with _open(source) as file:
            mode = None if source == "-" else stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            await guest.write(path, _pieces(file), mode=mode, parents=parents)

    _with_guest(state_dir, sandbox_id, go)


@app.command("remove")
def remove_file(
    sandbox_id: SandboxId,
    path: Remote,
    *,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="With all below it.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Remove a file or directory."""
    _with_guest(state_dir, sandbox_id, lambda guest: guest.remove(path, recursive=recursive))


@app.command("mkdir")
def make_directory(
    sandbox_id: SandboxId,
    path: Remote,
    *,
    parents: Annotated[bool, typer.Option("--parents", "-p", help="Also those above it; no error if there.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Make a directory."""

    async def go(guest: Guest) -> None:
        await guest.mkdir(path, parents=parents)

    _with_guest(state_dir, sandbox_id, go)


@app.command("move")
def move_file(
    sandbox_id: SandboxId,
    path: Remote,
    to: Annotated[str, typer.Argument(metavar="TO", help="A path in the sandbox.")],
    *,
    state_dir: StateDir = None,
) -> None:
    """Rename or move a file or directory."""
    _with_guest(state_dir, sandbox_id, lambda guest: guest.move(path, to))


@app.command("tar-get")
def get_tree(
    sandbox_id: SandboxId,
    path: Remote,
    to: Local = "-",
    *,
    state_dir: StateDir = None,
) -> None:
    """Copy a directory out as a tar archive."""
    _with_guest(state_dir, sandbox_id, lambda guest: _keep(guest.tar_out(path), to))


@app.command("tar-put")
def put_tree(
    sandbox_id: SandboxId,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A tar archive here; '-' is stdin.")],
    path: Remote,
    *,
    state_dir: StateDir = None,
) -> None:
    """Unpack a tar archive below a directory; nothing is ever written outside of it."""

    async def go(guest: Guest) -> None:
        with _open(source) as file:
            await guest.tar_in(path, _pieces(file))

    _with_guest(state_dir, sandbox_id, go)


def _open(source: str) -> AbstractContextManager[BinaryIO]:
    """Open a file here, or stdin for ``-``.

    Raises:
        InvalidRequestError: it cannot be read.
    """
    if source == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(source).open("rb")
    except OSError as error:
        raise InvalidRequestError(
            f"'{source}' cannot be read: {error.strerror}.",
            hint="Name a file here, or - for stdin.",
            code="no-such-file",
        ) from error


async def _keep(download: Download[Any], to: str) -> None:
    """Put what comes into a file here, or on stdout for ``-``."""
    async with download:
        if to == "-":
            await _copy(download, sys.stdout.fileno())
        else:
            await _replace(Path(to), download)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while data := await read(file.fileno(), _CHUNK):
        yield data


async def _copy(pieces: AsyncIterable[bytes], fd: int) -> None:
    async for piece in pieces:
        await write(fd, piece)


async def _replace(target: Path, pieces: AsyncIterable[bytes]) -> None:
    """Write beside the target and rename, so that a download cut short leaves what was there.

    Raises:
        InvalidRequestError: nothing can be written there.
    """
    try:
        fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InvalidRequestError(
            f"'{target}' cannot be written: {error.strerror}.",
            hint="Name a file in a directory that exists here and may be written.",
            code="cannot-write",
        ) from error
    try:
        with os.fdopen(fd, "wb") as file:
            await _copy(pieces, file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def _line(entry: Entry) -> str:
    name = f"{entry.name} -> {entry.target}" if entry.target else entry.name
    return f"{_LETTERS[entry.type]}{entry.mode & 0o7777:04o} {entry.uid:>5} {entry.gid:>5} {entry.size:>12} {name}"
