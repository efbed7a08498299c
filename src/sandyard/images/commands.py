"""Runs the programs that images are made with; none outlives its caller, whether cancelled or killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sandyard.errors import HostError, ImageError

_STDERR_KEPT = 16 * 1024
_STDOUT_LIMIT = 16 * 1024 * 1024
"""Manifests and configs are 4 MiB at most in every registry."""

_DIE_WITH_CALLER = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True, slots=True)
class Completed:
    """How a program ended and what it said."""

    program: str
    returncode: int
    stdout: bytes
    stderr: str
    """The last 16 KiB."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a program runs."""

    folder: Path
    held: int
    """A descriptor that it inherits, so that a lock on it lasts until the program is gone, even after its caller."""


async def run(
    argv: Sequence[str],
    *,
    scene: Scene | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Completed:
    """Run a program to its end.

    Args:
        argv: the program, found on PATH, and its arguments.
        scene: its working directory and lock; it gets ``TMPDIR`` there too.
        env: variables beside those of this process.
        on_line: gets each line of standard error as it comes.

    Raises:
        HostError: the program is not installed.
        ImageError: it printed more than any manifest or config has.
    """
    async with started(argv, scene=scene, env=env) as process:
        assert process.stdout is not None  # noqa: S101 - asked for as a pipe
        assert process.stderr is not None  # noqa: S101 - the same
        stdout, stderr = await asyncio.gather(_read_all(process.stdout, argv[0]), _read_last(process.stderr, on_line))
        return Completed(argv[0], await process.wait(), stdout, stderr)


@asynccontextmanager
async def started(
    argv: Sequence[str], *, scene: Scene | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a program with its output piped; on leaving, it and its children are killed where they still run.

    Raises:
        HostError: the program is not installed.
    """
    if shutil.which(argv[0]) is None:
        raise HostError(
            f"'{argv[0]}' is not installed on this host, or not on PATH; images need it.",
            hint="Run 'sandyard doctor': it lists what is missing and how to get it.",
        )
    variables = {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}
    if scene is not None:
        variables["TMPDIR"] = str(scene.folder)
    process = await asyncio.create_subprocess_exec(
        *_DIE_WITH_CALLER,
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=scene.folder if scene else None,
        env=variables,
        start_new_session=True,
        pass_fds=(scene.held,) if scene else (),
        umask=0o022,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())


async def _read_all(stream: asyncio.StreamReader, program: str) -> bytes:
    data = bytearray()
    while chunk := await stream.read(1 << 16):
        data += chunk
        if len(data) > _STDOUT_LIMIT:
            raise ImageError(
                f"{program} printed more than {_STDOUT_LIMIT} bytes, more than any manifest has.",
                hint="The image or its registry is broken; ask its owner.",
            )
    return bytes(data)


async def _read_last(stream: asyncio.StreamReader, on_line: Callable[[str], None] | None) -> str:
    kept = bytearray()
    line = bytearray()
    while chunk := await stream.read(1 << 12):
        kept = (kept + chunk)[-_STDERR_KEPT:]
        *lines, rest = (line + chunk).split(b"\n")
        line = rest[-_STDERR_KEPT:]
        if on_line is not None:
            for text in lines:
                on_line(text.decode(errors="replace"))
    return kept.decode(errors="replace")
