"""``sandyard run``: make a sandbox, run one command in it, delete it."""

from __future__ import annotations

import shlex
import time
from typing import Annotated

import typer

from sandyard.cli import terminal
from sandyard.cli.command import run_command
from sandyard.cli.messages import say
from sandyard.cli.options import (
    Env,
    Interactive,
    StateDir,
    Timeout,
    Tty,
    User,
    Words,
    Workdir,
    read_env,
    read_timeout,
)
from sandyard.cli.progress import progress_bar
from sandyard.cli.receipt import print_receipt
from sandyard.cli.session import open_runtime, perform
from sandyard.errors import InvalidRequestError
from sandyard.images import ImageConfig
from sandyard.runtime import Command, SandboxSpec
from sandyard.units import parse_mib


def run(
    words: Words = None,
    *,
    image: Annotated[
        str,
        typer.Option("--image", metavar="IMAGE", help="An OCI reference, folder or archive.", envvar="SANDYARD_IMAGE"),
    ] = "default",
    cpus: Annotated[float, typer.Option("--cpus", help="Processors, as a ceiling.")] = 1.0,
    memory: Annotated[str, typer.Option("--memory", "-m", metavar="SIZE", help="512, 512m, 2g, 1.5GiB.")] = "1g",
    env: Env = None,
    user: User = None,
    workdir: Workdir = None,
    timeout: Timeout = None,
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", metavar="CMD", help="Instead of the image's; '' for none.")
    ] = None,
    interactive: Interactive = False,
    tty: Tty = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Put the sandbox to sleep after, instead of deleting it.")
    ] = False,
    receipt: Annotated[bool, typer.Option("--receipt", help="Say on stderr what it used.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Run a command in a new sandbox and delete the sandbox.

    The exit code is the command's own; 124 when its time was over, 137 when the sandbox was killed for memory.
    """
    if tty and interactive:
        terminal.require_terminal()
    spec = SandboxSpec(
        image=image,
        cpus=cpus,
        memory_mib=parse_mib(memory),
        env=read_env(env),
        user=user,
        workdir=workdir,
        sleep_after_s=None,
    )
    timeout_s = read_timeout(timeout)
    began = time.monotonic()

    async def go() -> int:
        async with open_runtime(state_dir) as runtime:
            with progress_bar() as progress:
                sandbox = await runtime.create(spec, is_ephemeral=not keep, progress=progress)
            command = Command(
                argv=_argv(words or [], entrypoint, sandbox.image_config),
                stdin=interactive,
                pty=terminal.window_size() if tty else None,
                timeout_s=timeout_s,
            )
            try:
                code = await run_command(sandbox, command)
            finally:
                if keep:
                    say(f"kept {sandbox.id}")
                else:
                    await sandbox.delete("its command ended")
            if keep:
                await sandbox.sleep()
            if receipt:
                print_receipt(
                    sandbox, await runtime.events(sandbox.id), exit_code=code, wall_s=time.monotonic() - began
                )
            return code

    perform(go)


def _argv(words: list[str], entrypoint: str | None, config: ImageConfig) -> list[str]:
    """Return the command as Docker would: entry point, then the words given or else the image's own.

    Raises:
        InvalidRequestError: neither says what to run.
    """
    first = list(config.entrypoint) if entrypoint is None else shlex.split(entrypoint)
    argv = first + (words or (list(config.cmd) if entrypoint is None else []))
    if not argv:
        raise InvalidRequestError(
            "there is nothing to run: no command was given and the image has none of its own.",
            hint="Write it behind --: sandyard run -- python3 -c 'print(6*7)'.",
            code="no-command",
        )
    return argv
