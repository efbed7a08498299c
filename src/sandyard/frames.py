"""The agent protocol's frames, and the byte channel they travel on.

This is the format only; docs/agent-protocol.md says what the frames mean. The host's half of the protocol is
``sandyard.guest``, the other half is ``agent/``, and tests/golden/frames.json holds both to the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

from sandyard.errors import ProtocolError

SYNC = b"\xffSANDYARD\x00SYNC\r\n"
"""Sixteen bytes before a HELLO. The first one makes it an impossible length, so it is never taken for a frame."""

MAX_PAYLOAD = 256 * 1024 + 1
"""Bytes of payload that one frame may carry: one channel byte and 256 KiB of data."""

MAX_DATA = MAX_PAYLOAD - 1
"""Bytes of data in one DATA frame, without its channel byte."""

MAX_HELLO = 4096
"""Bytes of payload in a HELLO; what claims to be longer is not one."""

MAX_PING = 64
"""Bytes of payload in a PING and in its PONG."""

WINDOW = 1024 * 1024
"""Bytes of data that each direction of each stream may carry before the first CREDIT."""

MAX_STREAMS = 1024
"""Streams open at once."""

HEADER = struct.Struct(">IIB")
"""Payload length, stream, type; all big-endian."""

CREDIT = struct.Struct(">I")
"""The payload of a CREDIT frame: bytes of data."""


class FrameType(IntEnum):
    """What a frame is for."""

    OPEN = 1
    DATA = 2
    CREDIT = 3
    CLOSE = 4
    RESET = 5
    PING = 6
    HELLO = 7
    PONG = 8


_TYPES = {int(kind): kind for kind in FrameType}


class Frame(NamedTuple):
    """One frame as read from the other side."""

    type: FrameType
    stream: int
    payload: bytes


class Channel(Protocol):
    """A full-duplex byte stream to an agent; what a driver gives and the guest protocol takes."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the agent was told (SIGUSR1) to forget the frame that it is in; it will say that it awaits HELLO."""
        ...

    async def read(self) -> bytes:
        """Return the next bytes that arrived, at most 1 MiB; ``b""`` once the other side is gone for good."""
        ...

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand all of ``data`` over, waiting where the other side is slow.

        Raises:
            SandboxGoneError: the other side is gone.
        """
        ...

    def close(self) -> None:
        """Give the channel up; a pending read returns ``b""``. The machine lives on."""
        ...


def encode(kind: FrameType, stream: int, payload: bytes | bytearray | memoryview = b"") -> bytes:
    """Return the bytes of one frame.

    Raises:
        ProtocolError: the payload is longer than ``MAX_PAYLOAD``.
    """
    _check_payload(len(payload))
    return b"".join((HEADER.pack(len(payload), stream, kind), payload))


def encode_data(stream: int, channel: int, data: bytes | bytearray | memoryview) -> bytes:
    """Return the bytes of one DATA frame; no ``data`` says that the channel ends.

    Raises:
        ProtocolError: there is more than ``MAX_DATA``.
    """
    length = 1 + len(data)
    _check_payload(length)
    return b"".join((HEADER.pack(length, stream, FrameType.DATA), bytes((channel,)), data))


def encode_hello(payload: bytes) -> bytes:
    """Return the sync marker and a HELLO frame behind it."""
    return SYNC + encode(FrameType.HELLO, 0, payload)


def _check_payload(length: int) -> None:
    if length > MAX_PAYLOAD:
        raise ProtocolError(
            f"a frame of {length} bytes is larger than the {MAX_PAYLOAD} that the protocol allows.",
            hint="Send less at once; this is a defect worth reporting.",
        )


class Scanner:
    """Looks for the sync marker and an acceptable HELLO in bytes of any kind; holds less than two HELLOs of them."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._buffer = bytearray()

    def feed(self, data: bytes, accept: Callable[[bytes], bool]) -> bytes | None:
        """Return the bytes behind the first HELLO whose payload ``accept`` takes; None while there is none.

        A HELLO that is refused hides nothing: the search goes on right behind its marker.
        """
        buffer = self._buffer
        buffer += data
        unfinished: int | None = None
        at = buffer.find(SYNC)
        while at >= 0:
            start = at + len(SYNC)
            end = _hello_end(buffer, start)
            if end is not None and end <= len(buffer):
                if accept(bytes(buffer[start + HEADER.size : end])):
                    rest = bytes(buffer[end:])
                    buffer.clear()
                    return rest
            elif end is not None and unfinished is None:
                unfinished = at
            at = buffer.find(SYNC, start)
        keep = len(buffer) - len(SYNC) + 1 if unfinished is None else unfinished
        del buffer[: max(keep, 0)]
        return None


def _hello_end(buffer: bytearray, start: int) -> int | None:
    """Return where the HELLO at ``start`` ends, beyond the buffer where that is unknown; None: it is no HELLO."""
    if len(buffer) < start + HEADER.size:
        return start + HEADER.size + 1
    length, stream, kind = HEADER.unpack_from(buffer, start)
    if length > MAX_HELLO or stream != 0 or kind != FrameType.HELLO:
        return None
    return start + HEADER.size + int(length)


class Decoder:
    """Cuts arriving bytes into frames; holds at most one incomplete frame."""

    def __init__(self, *, markers: int = 0) -> None:
        """Start at a frame boundary; so many sync markers may still stand at one, and are passed over."""
        self._markers = markers
        self._rest = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the frames that ``data`` completed, oldest first.

        Exhaust the iterator before feeding more: frames are cut as they are asked for, so that a megabyte of tiny
        ones need not be handled at one go.

        Raises:
            ProtocolError: a length beyond ``MAX_PAYLOAD`` or an unknown type; nothing after it can be trusted.
        """
        source: bytes | bytearray | memoryview = data
        if self._rest:
            source = self._rest
            source += data
        view = memoryview(source)
        start = 0
        try:
            while len(view) - start >= HEADER.size:
                length, stream, kind = HEADER.unpack_from(view, start)
                if self._markers and SYNC.startswith(bytes(view[start : start + len(SYNC)])):
                    if len(view) - start < len(SYNC):
                        break
                    self._markers -= 1
                    start += len(SYNC)
                    continue
                check_header(length, kind)
                end = start + HEADER.size + length
                if len(view) < end:
                    break
                payload = bytes(view[start + HEADER.size : end])
                start = end
                yield Frame(_TYPES[kind], stream, payload)
        finally:
            self._rest = bytearray(view[start:])

    @property
    def rest(self) -> bytes:
        """What is not cut yet: less than a frame, or all that stands behind the last one before a breach."""
        return bytes(self._rest)


def check_header(length: int, kind: int) -> None:
    """Refuse a header that no honest peer sends.

    Raises:
        ProtocolError: the length or the type is impossible.
    """
    if length > MAX_PAYLOAD or kind not in _TYPES:
        raise ProtocolError(
            f"the agent sent a frame of {length} bytes and type {kind}, which the protocol does not know.",
            hint="The sandbox may be tampering with its agent; delete it, or report this if you trust it.",
        )
