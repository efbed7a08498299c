"""``sandyard sandboxes``: use sandboxes that are kept."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sandyard.cli import files, terminal
from sandyard.cli.command import run_command
from sandyard.cli.options import Env, Interactive, StateDir, Timeout, Tty, User, Words, Workdir, read_env, read_timeout
from sandyard.cli.session import open_runtime, perform
from sandyard.errors import InvalidRequestError
from sandyard.runtime import Command, Runtime, Sandbox
from sandyard.units import format_bytes

app = typer.Typer(
    add_completion=False, help="Use sandboxes that are kept: they sleep, and any call wakes them.", no_args_is_help=True
)
app.add_typer(files.app, name="files")

SandboxId = Annotated[str, typer.Argument(metavar="ID", help="A sandbox, as 'sandyard sandboxes list' names it.")]
SnapshotId = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="A snapshot, as 'snapshots' names it.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def _with_runtime(state_dir: StateDir, work: Callable[[Runtime], Awaitable[int | None]]) -> None:
    async def go() -> int | None:
        async with open_runtime(state_dir) as runtime:
            return await work(runtime)

    perform(go)


def _with_sandbox(state_dir: StateDir, sandbox_id: str, work: Callable[[Sandbox], Awaitable[int | None]]) -> None:
    async def go(runtime: Runtime) -> int | None:
        return await work(await runtime.get(sandbox_id))

    _with_runtime(state_dir, go)


@app.command("list")
def list_sandboxes(*, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the sandboxes that exist."""

    async def go(runtime: Runtime) -> None:
        rows = await runtime.sandboxes()
        if as_json:
            typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
            return
        table = Table("id", "state", "image", "cpus", "memory", "created", box=None)
        for row in rows:
            spec = row.spec
            table.add_row(
                row.id, row.state, row.image, f"{spec['cpus']:g}", f"{spec['memory_mib']} MiB", _time(row.created_ms)
            )
        Console().print(table)

    _with_runtime(state_dir, go)


@app.command("exec", context_settings={"allow_interspersed_args": False})
def exec_command(
    sandbox_id: SandboxId,
    words: Words = None,
    *,
    env: Env = None,
    user: User = None,
    workdir: Workdir = None,
    timeout: Timeout = None,
    interactive: Interactive = False,
    tty: Tty = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Let it go on by itself; print its id.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Run a command in a sandbox, waking it first; options go before ID."""
    if not words:
        raise InvalidRequestError("there is no command to run.", hint="Write it behind the id.", code="no-command")
    if tty and interactive:
        terminal.require_terminal()
    command = Command(
        argv=words,
        env=read_env(env),
        user=user,
        workdir=workdir,
        stdin=interactive,
        pty=terminal.window_size() if tty else None,
        timeout_s=read_timeout(timeout),
    )

    async def go(sandbox: Sandbox) -> int:
        if detach:
            typer.echo((await sandbox.spawn(command)).id)
            return 0
        return await run_command(sandbox, command)

    _with_sandbox(state_dir, sandbox_id, go)


@app.command()
def pause(sandbox_id: SandboxId, *, state_dir: StateDir = None) -> None:
    """Stop a sandbox's processes; without a server nobody stays to hold its memory, so it then sleeps on disk."""
    _with_sandbox(state_dir, sandbox_id, Sandbox.pause)


@app.command()
def resume(sandbox_id: SandboxId, *, state_dir: StateDir = None) -> None:
    """Let a paused or sleeping sandbox go on, for as long as this command runs."""
    _with_sandbox(state_dir, sandbox_id, Sandbox.resume)


@app.command()
def sleep(sandbox_id: SandboxId, *, state_dir: StateDir = None) -> None:
    """Save a sandbox to disk and free all it holds."""
    _with_sandbox(state_dir, sandbox_id, Sandbox.sleep)


@app.command()
def wake(sandbox_id: SandboxId, *, state_dir: StateDir = None) -> None:
    """Wake a sandbox and see that it answers."""
    _with_sandbox(state_dir, sandbox_id, Sandbox.wake)


@app.command()
def snapshot(sandbox_id: SandboxId, *, state_dir: StateDir = None) -> None:
    """Save memory, processes and disk as they are now; print the snapshot's id."""

    async def go(runtime: Runtime) -> None:
        row = await runtime.snapshots.take(await runtime.get(sandbox_id))
        typer.echo(row.id)

    _with_runtime(state_dir, go)


@app.command()
def snapshots(*, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List snapshots."""

    async def go(runtime: Runtime) -> None:
        rows = await runtime.snapshots.kept()
        if as_json:
            typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
            return
        table = Table("id", "sandbox", "size", "created", box=None)
        for row in rows:
            table.add_row(row.id, row.sandbox_id, format_bytes(row.size_bytes), _time(row.created_ms))
        Console().print(table)

    _with_runtime(state_dir, go)


@app.command()
def restore(sandbox_id: SandboxId, snapshot_id: SnapshotId, *, state_dir: StateDir = None) -> None:
    """Put a sandbox back to a snapshot of it; what happened since is lost."""

    async def go(runtime: Runtime) -> None:
        await runtime.restore(sandbox_id, snapshot_id)

    _with_runtime(state_dir, go)


@app.command()
def fork(
    sandbox_id: SandboxId,
    *,
    count: Annotated[int, typer.Option("--count", "-n", help="How many.")] = 1,
    state_dir: StateDir = None,
) -> None:
    """Make sandboxes that go on from this moment of another; print their ids."""

    async def go(runtime: Runtime) -> None:
        for made in await runtime.fork(sandbox_id, count):
            typer.echo(made.id)

    _with_runtime(state_dir, go)


@app.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Sandboxes or snapshots.")],
    *,
    state_dir: StateDir = None,
) -> None:
    """Delete sandboxes (sb_...) and snapshots (sn_...)."""

    async def go(runtime: Runtime) -> None:
        for one in ids:
            if one.startswith("sn_"):
                await runtime.snapshots.delete(await runtime.snapshots.get(one))
            else:
                await (await runtime.get(one)).delete()
            typer.echo(one)

    _with_runtime(state_dir, go)


@app.command()
def events(sandbox_id: SandboxId, *, state_dir: StateDir = None) -> None:
    """Print all that happened to a sandbox, one JSON object a line."""

    async def go(runtime: Runtime) -> None:
        for event in await runtime.events(sandbox_id):
            typer.echo(json.dumps(asdict(event)))

    _with_runtime(state_dir, go)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
