"""How a command of ours runs: an event loop, a runtime, signals that end it cleanly, errors said in plain words."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import typer

from sandyard.cli.exits import BROKEN_PIPE, FAILED, INTERRUPTED, TERMINATED, exit_code
from sandyard.cli.messages import complain, say
from sandyard.cli.settings import CliSettings
from sandyard.errors import SandyardError
from sandyard.runtime import Runtime


@asynccontextmanager
async def open_runtime(state_dir: Path | None) -> AsyncIterator[Runtime]:
    """Open the state directory, the default one for None; on the way out nothing is left running."""
    async with await Runtime.open(state_dir or CliSettings().state_dir) as runtime:
        yield runtime


def perform(work: Callable[[], Awaitable[int | None]]) -> None:
    """Do the work of one command and end the process with the right exit code."""
    raise typer.Exit(asyncio.run(_perform(work)))


async def _perform(work: Callable[[], Awaitable[int | None]]) -> int:
    """Cancel the work on the first signal; it cleans up on its way out, which a second one does not cut short."""
    task = asyncio.ensure_future(work())
    caught: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not caught:
            caught.append(number)
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task or 0
    except asyncio.CancelledError:
        return INTERRUPTED if caught == [signal.SIGINT] else TERMINATED
    except BrokenPipeError:
        return BROKEN_PIPE
    except SandyardError as error:
        complain(error)
        return exit_code(error)
    except ExceptionGroup as group:
        failures, rest = group.split(SandyardError)
        if rest is not None or failures is None:
            raise
        for failure in failures.exceptions:
            say(str(failure))
        return FAILED
