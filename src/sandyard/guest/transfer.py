"""Files and archives on their way in and out, and connections to servers inside the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from sandyard.errors import ConflictError
from sandyard.guest import answers
from sandyard.guest.failures import violation
from sandyard.guest.stream import Stream

CONTENT = 0
"""The channel of file content, and of what goes to a dialled server."""

FROM_PEER = 1
"""The channel of what a dialled server says."""

_MAX_LINE = 64 * 1024

Result = TypeVar("Result")


class Download(Generic[Result]):
    """Bytes coming out of the sandbox, opened by ``async with`` and iterated; at the end ``result`` is there.

    Only what is read is sent: a reader that stops, stops the sender. Leaving early costs nothing.
    """

    def __init__(
        self, opener: Callable[[], Awaitable[Stream]], parse: Callable[[Mapping[str, Any]], Result], stall_s: float
    ) -> None:
        """Open by ``opener`` when entered."""
        self._opener = opener
        self._parse = parse
        self._stall_s = stall_s
        self._stream: Stream | None = None

    async def __aenter__(self) -> Self:
        """Send the request; an error of the agent comes with the first piece."""
        self._stream = await self._opener()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what has not been read."""
        if self._stream is not None:
            self._stream.reset()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces, each of at most 256 KiB.

        Raises:
            FileNotFoundInSandboxError: there is no such path.
            DeadlineExceededError: nothing came for too long.
            SandyardError: it broke off; what was yielded is not the whole.
        """
        stream = self._opened()
        while (piece := await stream.receive(stall_s=self._stall_s)) is not None:
            if piece[1]:
                yield piece[1]

    @property
    def result(self) -> Result:
        """What the agent said at the end; only after the last piece."""
        stream = self._opened()
        if not stream.is_ended:
            raise ConflictError("the download has not ended.", hint="Read it to its end first.")
        return self._parse(stream.answer())

    def _opened(self) -> Stream:
        if self._stream is None:
            raise ConflictError("the download has not begun.", hint="Enter it with 'async with'.")
        return self._stream


async def upload(stream: Stream, source: bytes | AsyncIterable[bytes], stall_s: float) -> Mapping[str, Any]:
    """Send ``source`` and its end, and return the answer; on any failure nothing of it stays in the sandbox."""
    try:
        if isinstance(source, bytes):
            await stream.send(CONTENT, source, stall_s=stall_s)
        else:
            await _send_all(stream, source, stall_s)
        await stream.finish(CONTENT, stall_s=stall_s)
        return await stream.ended(stall_s=stall_s)
    finally:
        stream.reset()


async def _send_all(stream: Stream, source: AsyncIterable[bytes], stall_s: float) -> None:
    """Send what comes; a source that has nothing to give does not hide that the stream has ended."""

    async def send() -> None:
        async for piece in source:
            await stream.send(CONTENT, piece, stall_s=stall_s)

    sender = asyncio.create_task(send())
    ender = asyncio.create_task(stream.wait_end())
    try:
        await asyncio.wait({sender, ender}, return_when=asyncio.FIRST_COMPLETED)
        if sender.done():
            sender.result()
    finally:
        for task in (sender, ender):
            task.cancel()
        await asyncio.wait({sender, ender})


async def lines(stream: Stream, stall_s: float) -> AsyncIterator[answers.Json]:
    """Yield the JSON objects that come one a line."""
    rest = bytearray()
    while (piece := await stream.receive(stall_s=stall_s)) is not None:
        rest += piece[1]
        *complete, last = rest.split(b"\n")
        for line in complete:
            yield answers.parse(line)
        if len(last) > _MAX_LINE:
            raise violation(f"a line of more than {_MAX_LINE} bytes")
        rest = last
    if rest:
        raise violation("a last line without an end")


class Connection:
    """A byte stream to a server inside the sandbox."""

    def __init__(self, stream: Stream) -> None:
        """Hold a ``dial`` that has succeeded."""
        self._stream = stream
        self._at_end = False

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut it."""
        await self.aclose()

    async def read(self) -> bytes:
        """Return what the server sent next; ``b""`` when it has finished.

        Raises:
            SandyardError: the connection broke.
        """
        if self._at_end:
            return b""
        piece = await self._stream.receive()
        self._at_end = piece is None or not piece[1]
        return b"" if piece is None else piece[1]

    async def write(self, data: bytes) -> None:
        """Send ``data``, waiting while the server takes none.

        Raises:
            ConflictError: the server has closed the connection (code ``stream-ended``).
        """
        await self._stream.send(CONTENT, data)

    async def write_eof(self) -> None:
        """Finish this direction; the other may go on. Raises as ``write`` does."""
        await self._stream.finish(CONTENT)

    async def aclose(self) -> None:
        """Cut it, both ways."""
        self._stream.reset()
