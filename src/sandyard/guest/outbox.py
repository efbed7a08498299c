"""What the host still has to write to an agent: bounded, and in an order in which no stream holds up another."""

from __future__ import annotations

import asyncio
from collections import deque

from sandyard.frames import CREDIT, FrameType, encode

_MAX_URGENT = 1024 * 1024
"""Bytes of requests that may wait; a caller whose request would go beyond waits itself."""

_MAX_BULK = 1024 * 1024
"""Bytes of data that may wait."""

_MAX_PONGS = 64
"""PONGs that may wait before an agent that sends PINGs and does not read is held to be hostile."""

_BATCH = 64 * 1024
"""Bytes of small frames that are joined into one write."""


class Outbox:
    """Frames on their way out: small ones first, then data in turn.

    A frame is taken whole by the writer or withdrawn whole, so that cancelling a caller never leaves half a frame.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._urgent: deque[tuple[int, bytes]] = deque()
        self._bulk: deque[tuple[int, bytes]] = deque()
        self._urgent_bytes = 0
        self._bulk_bytes = 0
        self._credits: dict[int, int] = {}
        self._pongs = 0
        self._last: bytes | None = None
        self._held = False
        self._closed = False
        self._writer: asyncio.Future[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    # -- filling ------------------------------------------------------------------------------------------------------

    def takes_request(self, size: int) -> bool:
        """Whether a frame of this size that opens a stream may be queued; if not, wait for ``room`` and ask again."""
        return self._closed or not self._urgent_bytes or self._urgent_bytes + size <= _MAX_URGENT

    def request(self, stream: int, frame: bytes) -> None:
        """Queue a frame that opens a stream; streams reach the agent in the order in which they come here."""
        self._put_urgent(stream, frame)

    def data(self, stream: int, frame: bytes) -> bool:
        """Queue a data frame; False: too much waits already, so wait for ``room`` and try again."""
        if self._closed:
            return True
        if self._bulk_bytes and self._bulk_bytes + len(frame) > _MAX_BULK:
            return False
        self._bulk.append((stream, frame))
        self._bulk_bytes += len(frame)
        self._wake()
        return True

    async def room(self) -> None:
        """Wait until something was taken or withdrawn."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def control(self, frame: bytes) -> None:
        """Queue a PING."""
        self._put_urgent(0, frame)

    def pong(self, frame: bytes) -> bool:
        """Queue a PONG; False: too many wait already."""
        if self._pongs == _MAX_PONGS:
            return False
        self._pongs += 1
        self._put_urgent(0, frame)
        return True

    def credit(self, stream: int, count: int) -> None:
        """Let the agent send ``count`` more bytes on this stream."""
        if self._closed:
            return
        self._credits[stream] = self._credits.get(stream, 0) + count
        self._wake()

    def reset(self, stream: int) -> None:
        """Withdraw all that waits for this stream; tell the agent only if it has heard of the stream."""
        unopened = self._withdraw(stream)
        if not unopened:
            self._put_urgent(stream, encode(FrameType.RESET, stream))

    def forget(self, stream: int) -> None:
        """Withdraw all that waits for a stream that has ended."""
        self._withdraw(stream)

    def hold(self, last: bytes) -> None:
        """Write what opens streams, then ``last``, and then nothing more until ``release``."""
        self._last = last
        self._held = True
        self._wake()

    def release(self) -> None:
        """Undo ``hold``."""
        self._last = None
        self._held = False
        self._wake()

    def close(self) -> None:
        """Drop everything, now and from now on; nobody waits for room any more."""
        self._closed = True
        self._urgent.clear()
        self._bulk.clear()
        self._credits.clear()
        self._make_room()

    @property
    def is_held(self) -> bool:
        """Whether nothing is written until ``release``."""
        return self._held

    # -- emptying -----------------------------------------------------------------------------------------------------

    async def take(self) -> bytes:
        """Return the bytes to write next, waiting until there are some."""
        while True:
            if self._last is not None:
                last, self._last = self._last, None
                return self._take_urgent() + last
            if not self._held:
                batch = self._take_batch()
                if batch:
                    return batch
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def _take_batch(self) -> bytes:
        parts = [encode(FrameType.CREDIT, stream, CREDIT.pack(count)) for stream, count in self._credits.items()]
        self._credits.clear()
        parts.append(self._take_urgent(_BATCH))
        # One data frame goes along, so that no flood of requests can starve an upload.
        parts.append(self._take_data())
        return b"".join(parts) if any(parts[:-1]) else parts[-1]

    def _take_urgent(self, most: int | None = None) -> bytes:
        frames = []
        size = 0
        while self._urgent and (most is None or size < most):
            _, frame = self._urgent.popleft()
            frames.append(frame)
            size += len(frame)
        self._urgent_bytes -= size
        if not self._urgent:
            self._pongs = 0
        if size:
            self._make_room()
        return b"".join(frames)

    def _take_data(self) -> bytes:
        if not self._bulk:
            return b""
        _, frame = self._bulk.popleft()
        self._bulk_bytes -= len(frame)
        self._make_room()
        return frame

    # -- inside -------------------------------------------------------------------------------------------------------

    def _put_urgent(self, stream: int, frame: bytes) -> None:
        if self._closed:
            return
        self._urgent.append((stream, frame))
        self._urgent_bytes += len(frame)
        self._wake()

    def _withdraw(self, stream: int) -> bool:
        """Drop what waits for ``stream``; True if its opening frame was among it."""
        self._credits.pop(stream, None)
        unopened = any(number == stream for number, _ in self._urgent)
        if unopened:
            self._urgent = deque(item for item in self._urgent if item[0] != stream)
            self._urgent_bytes = sum(len(frame) for _, frame in self._urgent)
        if any(number == stream for number, _ in self._bulk):
            self._bulk = deque(item for item in self._bulk if item[0] != stream)
            self._bulk_bytes = sum(len(frame) for _, frame in self._bulk)
        self._make_room()
        return unopened

    def _make_room(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _wake(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
