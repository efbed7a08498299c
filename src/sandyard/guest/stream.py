"""One open request: its data in both directions, its flow control, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from sandyard.errors import ConflictError, DeadlineExceededError, SandyardError
from sandyard.frames import MAX_DATA, WINDOW, encode_data
from sandyard.guest.failures import again, violation
from sandyard.guest.outbox import Outbox

_SMALL_BYTES = 4 * 1024
"""Pieces below this are joined while they wait: a megabyte of single bytes is not a million objects."""

_MERGE_BYTES = 64 * 1024
"""Bytes that small pieces are joined up to."""

_MERGE_ACROSS = 256
"""With more pieces than this waiting, pieces are joined even across those of the other channel."""

_CREDIT_AT = WINDOW // 2
"""Bytes consumed before the agent is told so: few frames, and it never runs dry."""


class Owner(Protocol):
    """The connection that a stream belongs to."""

    outbox: Outbox

    @property
    def is_quiet(self) -> bool:
        """Whether the machine is being saved or asleep, so that no answer can come."""
        ...

    def drop(self, number: int) -> None:
        """Reset the stream: tell the agent and forget it."""
        ...


class Stream:
    """A request and its answer. One task reads it, one writes to it; any number may await its end."""

    def __init__(self, owner: Owner, number: int, channels: frozenset[int]) -> None:
        """Expect data from the agent on ``channels`` only."""
        self._owner = owner
        self.number = number
        self.is_answered = False
        self._channels = channels
        self._queue: deque[tuple[int, bytes | bytearray]] = deque()
        self._last: dict[int, bytearray] = {}
        self._ended_channels: set[int] = set()
        self._receive_window = WINDOW
        self._send_window = WINDOW
        self._consumed = 0
        self._credited = False
        self._answer: Mapping[str, Any] | None = None
        self._error: SandyardError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    # -- what the connection reports ----------------------------------------------------------------------------------

    def on_data(self, channel: int, data: bytes) -> None:
        """Keep data until it is read.

        Raises:
            ProtocolError: beyond the window, after the channel's end, or on a channel that this request does not have.
        """
        if channel not in self._channels or channel in self._ended_channels:
            raise violation("data on a channel that is not open")
        if len(data) > self._receive_window:
            raise violation("more data than it was allowed")
        self._receive_window -= len(data)
        if data:
            self._keep(channel, data)
        else:
            self._ended_channels.add(channel)
            self._queue.append((channel, b""))
        _wake(self._reader)

    def _keep(self, channel: int, data: bytes) -> None:
        if len(data) >= _SMALL_BYTES:
            self._last.pop(channel, None)
            self._queue.append((channel, data))
            return
        last = self._last.get(channel)
        adjacent = bool(self._queue) and self._queue[-1][1] is last
        if (
            last is not None
            and len(last) + len(data) <= _MERGE_BYTES
            and (adjacent or len(self._queue) > _MERGE_ACROSS)
        ):
            last += data
            return
        last = bytearray(data)
        self._last[channel] = last
        self._queue.append((channel, last))

    def on_credit(self, count: int) -> None:
        """Let as much more be sent.

        Raises:
            ProtocolError: the agent gives back more than it was sent.
        """
        if self._send_window + count > WINDOW:
            raise violation("credit for more data than it had received")
        self._send_window += count
        self._credited = True
        _wake(self._writer)

    def on_close(self, outcome: Mapping[str, Any] | SandyardError) -> None:
        """Take the agent's own answer."""
        self.is_answered = True
        self.on_end(outcome)

    def on_end(self, outcome: Mapping[str, Any] | SandyardError) -> None:
        """Take the answer, or the reason why there will be none; what waits to be read stays readable."""
        if self._ended.is_set():
            return
        if isinstance(outcome, SandyardError):
            self._error = outcome
        else:
            self._answer = outcome
        self._ended.set()
        if self._deadline is not None:
            self._deadline.cancel()
        _wake(self._reader)
        _wake(self._writer)

    # -- what its user calls ------------------------------------------------------------------------------------------

    @property
    def is_ended(self) -> bool:
        """Whether the answer, or the reason why there will be none, is there."""
        return self._ended.is_set()

    def answer(self) -> Mapping[str, Any]:
        """Return the result of an ended stream, or raise the error it ended with."""
        if self._error is not None:
            raise again(self._error)
        if self._answer is None:
            raise AssertionError
        return self._answer

    async def ended(self, *, stall_s: float | None = None) -> Mapping[str, Any]:
        """Wait for the end without reading, and return the result or raise the error."""
        while not self._ended.is_set():
            await self._within(stall_s, self._ended.wait())
        return self.answer()

    async def wait_end(self) -> None:
        """Wait for the end, whichever it is."""
        await self._ended.wait()

    async def receive(self, *, stall_s: float | None = None) -> tuple[int, bytes] | None:
        """Return the next data as (channel, bytes); no bytes: the channel ended. None at the stream's end.

        Raises:
            SandyardError: the stream ended with an error; all that came before it has been returned.
            DeadlineExceededError: nothing came for ``stall_s`` seconds; the stream is reset.
        """
        while not self._queue:
            if self._ended.is_set():
                self.answer()
                return None
            await self._wait_readable(stall_s)
        channel, data = self._queue.popleft()
        if self._last.get(channel) is data:
            del self._last[channel]
        self._consume(len(data))
        return channel, data if isinstance(data, bytes) else bytes(data)

    def _consume(self, count: int) -> None:
        self._consumed += count
        if self._consumed >= _CREDIT_AT and not self._ended.is_set():
            self._owner.outbox.credit(self.number, self._consumed)
            self._receive_window += self._consumed
            self._consumed = 0

    async def send(self, channel: int, data: bytes | bytearray | memoryview, *, stall_s: float | None = None) -> None:
        """Send ``data``, waiting while the agent takes no more.

        Raises:
            ConflictError: the stream ended well before all was sent (code ``stream-ended``).
            SandyardError: it ended with this error.
            DeadlineExceededError: the agent took nothing for ``stall_s`` seconds; the stream is reset.
        """
        rest = memoryview(data).cast("B")
        while rest:
            while not self._send_window and not self._ended.is_set():
                await self._wait_writable(stall_s)
            part = rest[: min(self._send_window, MAX_DATA)]
            await self._send_frame(channel, part, stall_s)
            self._send_window -= len(part)
            rest = rest[len(part) :]

    async def finish(self, channel: int, *, stall_s: float | None = None) -> None:
        """Say that nothing more comes on ``channel``; raises as ``send`` does."""
        await self._send_frame(channel, b"", stall_s)

    async def credited(self, *, stall_s: float | None = None) -> None:
        """Wait for the agent's first CREDIT, its way of saying that a connection stands; raises as ``send`` does."""
        while not self._credited and not self._ended.is_set():
            await self._wait_writable(stall_s)
        if not self._credited:
            self._require_open()

    def expire_after(self, seconds: float) -> None:
        """End it with DeadlineExceededError unless it ends by itself in so many seconds awake."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_deadline, seconds)

    def reset(self, reason: SandyardError | None = None) -> None:
        """Want nothing more of it, and let whoever waits for it know; an ended stream is left as it is."""
        if self._ended.is_set():
            return
        self._owner.drop(self.number)
        self._queue.clear()
        self._last.clear()
        self.on_end(reason or ConflictError("the call was given up.", hint="Call again.", code="call-cancelled"))

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _send_frame(self, channel: int, part: bytes | memoryview, stall_s: float | None) -> None:
        frame = encode_data(self.number, channel, part)
        self._require_open()
        while not self._owner.outbox.data(self.number, frame):
            await self._within(stall_s, self._owner.outbox.room())
            self._require_open()

    async def _within(self, stall_s: float | None, awaitable: Awaitable[object]) -> None:
        """Await something for so long; while the machine is asleep the time does not count, and this returns early."""
        try:
            async with asyncio.timeout(stall_s):
                await awaitable
        except TimeoutError:
            if not self._owner.is_quiet:
                self._expire(f"the sandbox's agent did nothing for {stall_s:g} seconds.")
                self.answer()

    def _on_deadline(self, seconds: float) -> None:
        if self._owner.is_quiet:
            self.expire_after(seconds)
        else:
            self._expire(f"the command did not end in {seconds:g} seconds, though it was to be killed before.")

    def _expire(self, what: str) -> None:
        if self._ended.is_set():
            return
        self.reset(
            DeadlineExceededError(
                what, hint="Look whether the sandbox is out of processor time or memory, then try again."
            )
        )

    def _require_open(self) -> None:
        if self._ended.is_set():
            self.answer()
            raise ConflictError(
                "the other end finished before all was sent.",
                hint="Send less, or only while it reads.",
                code="stream-ended",
            )

    async def _wait_readable(self, stall_s: float | None) -> None:
        if self._reader is not None:
            raise ConflictError("two tasks read one stream.", hint="Read it in one of them.", code="stream-busy")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._within(stall_s, self._reader)
        finally:
            self._reader = None

    async def _wait_writable(self, stall_s: float | None) -> None:
        if self._writer is not None:
            raise ConflictError("two tasks write to one stream.", hint="Write in one of them.", code="stream-busy")
        self._writer = asyncio.get_running_loop().create_future()
        try:
            await self._within(stall_s, self._writer)
        finally:
            self._writer = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
