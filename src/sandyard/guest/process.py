"""A command that runs inside a sandbox, as its caller holds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from sandyard.errors import CommandFailedError, SandyardError
from sandyard.guest import answers
from sandyard.guest.link import Link
from sandyard.guest.stream import Stream

STDIN = 0
STDOUT = 1
STDERR = 2

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes of each of stdout and stderr that are collected by default."""


class PtySize(NamedTuple):
    """A terminal's size in characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended."""

    exit_code: int
    """128 + n after signal n."""
    signal: int | None
    """The signal that ended it."""
    timed_out: bool
    """Whether it was killed because its timeout had passed."""
    pid: int
    fork_exec_wait_us: int
    """From just before the fork to the return of wait, microseconds, measured inside the sandbox."""
    user_us: int
    system_us: int
    max_rss_kib: int
    stdout: bytes = b""
    """What was collected of it; a terminal's output is here too. Empty where it was read as a stream."""
    stderr: bytes = b""
    truncated: bool = False
    """Whether there was more output than was kept."""
    oom_killed: bool = False
    """Whether it was killed because the sandbox had reached its memory limit; only the host can tell."""

    def check(self) -> Self:
        """Return itself if the command succeeded.

        Raises:
            CommandFailedError: its exit code is not 0.
        """
        if self.exit_code != 0:
            what = f"ended with exit code {self.exit_code}"
            if self.timed_out or self.oom_killed:
                what = "was killed when its time was over" if self.timed_out else "was killed for want of memory"
            raise CommandFailedError(f"the command {what}.", hint="Its output says why.")
        return self


def read_result(source: Mapping[str, Any]) -> ExecResult:
    """Read the agent's answer to ``exec``.

    Raises:
        ProtocolError: it is not one.
    """
    signal = answers.integer(source, "signal", high=64) if source.get("signal") is not None else 0
    return ExecResult(
        exit_code=answers.integer(source, "exit_code", high=255),
        signal=signal or None,
        timed_out=answers.boolean(source, "timed_out"),
        pid=answers.integer(source, "pid"),
        fork_exec_wait_us=answers.integer(source, "fork_exec_wait_us"),
        user_us=answers.integer(source, "user_us"),
        system_us=answers.integer(source, "system_us"),
        max_rss_kib=answers.integer(source, "max_rss_kib"),
    )


def _as_told(result: ExecResult) -> ExecResult:
    return result


class Process:
    """A command's streams. Iterate it for (channel, bytes); its end is in ``wait``.

    A command whose output nobody reads stops after about a megabyte, as it would on a pipe. Leaving ``async with``
    before the end kills the command, unless it is detached.
    """

    def __init__(self, link: Link, stream: Stream, exec_id: str) -> None:
        """Hold an ``exec`` or ``attach`` that was opened."""
        self._link = link
        self._stream = stream
        self.id = exec_id
        self.judge: Callable[[ExecResult], ExecResult] = _as_told
        """What the host knows better of its end than the agent does; applied to every result."""

    @property
    def is_ended(self) -> bool:
        """Whether its end is known; output may still wait to be read."""
        return self._stream.is_ended

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what has not ended."""
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield output as it comes: (``STDOUT`` or ``STDERR``, bytes); a character may be cut in two between pieces.

        Raises:
            CommandError: it could not be started; ``code`` says why.
            SandyardError: the connection or the sandbox was lost; there is no exit code then.
        """
        while (piece := await self._stream.receive()) is not None:
            if piece[1]:
                yield piece

    async def wait(self) -> ExecResult:
        """Return how it ended, once it has; reads no output. Raises as iteration does."""
        return self.judge(read_result(await self._stream.ended()))

    async def collect(self, stdin: bytes | None = None, *, limit: int = OUTPUT_LIMIT) -> ExecResult:
        """Send all of its input, read all of its output, and return how it ended with the output in it.

        At most the first ``limit`` bytes of each channel are kept. Raises as iteration does.
        """
        if stdin is None:
            return await self._collect(limit)
        feeder = asyncio.create_task(self._feed(stdin))
        try:
            return await self._collect(limit)
        finally:
            feeder.cancel()
            await asyncio.wait({feeder})

    async def _feed(self, data: bytes) -> None:
        """Send all input; that the command ended without reading it, or was lost, is told by its result."""
        with contextlib.suppress(SandyardError):
            await self.write(data)
            await self.close_stdin()

    async def _collect(self, limit: int) -> ExecResult:
        kept = {STDOUT: bytearray(), STDERR: bytearray()}
        truncated = False
        async for channel, data in self:
            room = limit - len(kept[channel])
            kept[channel] += data if len(data) <= room else memoryview(data)[:room]
            truncated = truncated or len(data) > room
        result = self.judge(read_result(self._stream.answer()))
        return replace(result, stdout=bytes(kept[STDOUT]), stderr=bytes(kept[STDERR]), truncated=truncated)

    async def write(self, data: bytes) -> None:
        """Send ``data`` to its stdin, waiting while it reads none.

        Raises:
            ConflictError: it has ended (code ``stream-ended``).
        """
        await self._stream.send(STDIN, data)

    async def close_stdin(self) -> None:
        """Let its stdin end; raises as ``write`` does."""
        await self._stream.finish(STDIN)

    async def signal(self, number: int, *, group: bool = True) -> None:
        """Send a signal to its process group, or to it alone.

        Raises:
            NotFoundError: it has ended (code ``exec-not-found``).
        """
        await self._link.request("signal", {"exec": self.id, "signal": number, "group": group})

    async def kill(self) -> None:
        """End its process group at once; raises as ``signal`` does."""
        await self.signal(9)

    async def resize(self, size: PtySize) -> None:
        """Give its terminal another size."""
        await self._link.request("resize", {"exec": self.id, "rows": size.rows, "cols": size.cols})

    async def aclose(self) -> None:
        """Want nothing more of it: unless it has ended or is detached, its process group is killed."""
        self._stream.reset()
