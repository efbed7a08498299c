"""The agent protocol's frames, and the byte channel they travel on.

This is the format only; docs/agent-protocol.md says what the frames mean. The host's half of the protocol is
``sandyard.guest``, the other half is ``agent/``, and tests/golden/frames.json holds both to the same bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from sandyard.errors import ProtocolError

SYNC = b"\xffSANDYARD\x00SYNC\r\n"
"""Sixteen bytes before a HELLO. The first one makes it an impossible length, so it is never taken for a frame."""

MAX_PAYLOAD = 256 * 1024 + 1
"""Bytes of payload that one frame may carry: one channel byte and 256 KiB of data."""

MAX_DATA = MAX_PAYLOAD - 1
"""Bytes of data in one DATA frame, without its channel byte."""

HEADER = struct.Struct(">IIB")
"""Payload length, stream, type; all big-endian."""


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


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as read from the other side."""

    type: FrameType
    stream: int
    payload: bytes


class Channel(Protocol):
    """A full-duplex byte stream to an agent; what a driver gives and the guest protocol takes."""

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
    if len(payload) > MAX_PAYLOAD:
        raise ProtocolError(
            f"a frame of {len(payload)} bytes is larger than the {MAX_PAYLOAD} that the protocol allows.",
            hint="Send less at once; this is a defect worth reporting.",
        )
    return b"".join((HEADER.pack(len(payload), stream, kind), payload))


class Decoder:
    """Cuts arriving bytes into frames; holds at most one incomplete frame."""

    def __init__(self) -> None:
        """Start at a frame boundary."""
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Return the frames that ``data`` completed, oldest first.

        Raises:
            ProtocolError: a length beyond ``MAX_PAYLOAD`` or an unknown type; nothing after it can be trusted.
        """
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            length, stream, kind = HEADER.unpack_from(buffer, start)
            check_header(length, kind)
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append(Frame(FrameType(kind), stream, bytes(memoryview(buffer)[start + HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames


def check_header(length: int, kind: int) -> None:
    """Refuse a header that no honest peer sends.

    Raises:
        ProtocolError: the length or the type is impossible.
    """
    if length > MAX_PAYLOAD or kind not in FrameType._value2member_map_:
        raise ProtocolError(
            f"the agent sent a frame of {length} bytes and type {kind}, which the protocol does not know.",
            hint="The sandbox may be tampering with its agent; delete it, or report this if you trust it.",
        )
