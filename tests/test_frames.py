from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.errors import ProtocolError
from sandyard.frames import (
    MAX_DATA,
    MAX_HELLO,
    MAX_PAYLOAD,
    SYNC,
    Decoder,
    Frame,
    FrameType,
    Scanner,
    encode,
    encode_data,
    encode_hello,
)

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "frames.json").read_text())


def golden_frame(case: dict[str, Any]) -> tuple[Frame, bytes]:
    """Return a golden frame and its bytes; the large ones are given as a repetition behind a header."""
    if "payload_repeat" in case:
        byte, count = case["payload_repeat"]
        payload = bytes.fromhex(byte) * count
        wire = bytes.fromhex(case["header_hex"]) + payload
    else:
        payload, wire = bytes.fromhex(case["payload_hex"]), bytes.fromhex(case["bytes_hex"])
    return Frame(FrameType(case["type"]), case["stream"], payload), wire


@pytest.mark.parametrize("case", GOLDEN["frames"], ids=lambda case: case["name"])
def test_golden_frames_are_written_and_read_byte_for_byte(case: dict[str, Any]) -> None:
    frame, wire = golden_frame(case)
    assert encode(frame.type, frame.stream, frame.payload) == wire
    assert list(Decoder().feed(wire)) == [frame]


def test_the_sync_marker_is_the_golden_one() -> None:
    assert bytes.fromhex(GOLDEN["sync_hex"]) == SYNC


INVALID_HEADERS = [case for case in GOLDEN["invalid"] if case["level"] == "header"]


@pytest.mark.parametrize("case", INVALID_HEADERS, ids=lambda case: case["name"])
def test_golden_invalid_headers_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        list(Decoder().feed(bytes.fromhex(case["bytes_hex"])))


def test_an_impossible_header_is_refused_before_its_payload_arrives() -> None:
    header = (MAX_PAYLOAD + 1).to_bytes(4, "big") + bytes(4) + bytes([FrameType.DATA])
    with pytest.raises(ProtocolError):
        list(Decoder().feed(header))


def test_frames_before_a_breach_are_still_given() -> None:
    good = encode(FrameType.PING, 0, b"x")
    cut = Decoder().feed(good + bytes(8) + b"\xff")
    assert next(cut) == Frame(FrameType.PING, 0, b"x")
    with pytest.raises(ProtocolError):
        next(cut)


def test_what_stands_behind_the_last_frame_is_kept_after_a_breach() -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError):
        list(decoder.feed(encode(FrameType.PING, 0) + SYNC + b"more"))
    assert decoder.rest == SYNC + b"more"


def test_more_than_a_frame_carries_is_not_encoded() -> None:
    assert len(encode_data(1, 0, bytes(MAX_DATA))) == 9 + 1 + MAX_DATA
    with pytest.raises(ProtocolError):
        encode_data(1, 0, bytes(MAX_DATA + 1))
    with pytest.raises(ProtocolError):
        encode(FrameType.OPEN, 1, bytes(MAX_PAYLOAD + 1))


frames = st.builds(
    Frame,
    st.sampled_from(FrameType),
    st.integers(0, 2**32 - 1),
    st.one_of(st.binary(max_size=40), st.integers(0, 3000).map(os.urandom)),
)


@given(st.lists(frames, max_size=8), st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(expected: list[Frame], data: st.DataObject) -> None:
    wire = b"".join(encode(*frame) for frame in expected)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    decoder = Decoder()
    found = [
        frame
        for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)
        for frame in decoder.feed(wire[start:end])
    ]
    assert found == expected
    assert decoder.rest == b""


@given(st.lists(frames, max_size=4))
def test_single_bytes_give_the_same_frames(expected: list[Frame]) -> None:
    wire = b"".join(encode(*frame) for frame in expected)
    decoder = Decoder()
    assert [frame for byte in wire for frame in decoder.feed(bytes([byte]))] == expected


@given(st.binary(max_size=400))
def test_arbitrary_bytes_give_frames_or_a_breach(junk: bytes) -> None:
    decoder = Decoder()
    try:
        found = list(decoder.feed(junk))
    except ProtocolError:
        return
    assert b"".join(encode(*frame) for frame in found) + decoder.rest == junk


def test_only_so_many_markers_are_passed_over() -> None:
    ping, pong = encode(FrameType.PING, 0, b"a"), encode(FrameType.PONG, 0, b"a")
    decoder = Decoder(markers=1)
    assert [frame.type for byte in ping + SYNC + pong for frame in decoder.feed(bytes([byte]))] == [
        FrameType.PING,
        FrameType.PONG,
    ]
    with pytest.raises(ProtocolError):
        list(decoder.feed(SYNC))


# -- scanning ----------------------------------------------------------------------------------------------------------

OURS = encode_hello(b"ours")


def scan(*pieces: bytes) -> tuple[bytes | None, list[bytes]]:
    """Feed the pieces until one is accepted; return what stood behind it, and all that was offered."""
    scanner = Scanner()
    offered: list[bytes] = []

    def accept(payload: bytes) -> bool:
        offered.append(payload)
        return payload == b"ours"

    for index, piece in enumerate(pieces):
        rest = scanner.feed(piece, accept)
        if rest is not None:
            return rest + b"".join(pieces[index + 1 :]), offered
    return None, offered


def test_a_hello_is_found_behind_leftovers() -> None:
    stale = encode_hello(b"theirs") + encode(FrameType.DATA, 7, b"\1old")
    assert scan(b"half a fra" + stale + OURS + b"next") == (b"next", [b"theirs", b"ours"])


def test_a_hello_that_was_cut_short_hides_nothing() -> None:
    cut = encode_hello(bytes(200))[:60]
    assert scan(cut + OURS + b"next") == (b"next", [b"ours"])


def test_what_claims_to_be_longer_than_a_hello_is_not_one() -> None:
    long = SYNC + encode(FrameType.HELLO, 0, bytes(MAX_HELLO + 1))
    elsewhere = SYNC + encode(FrameType.HELLO, 3, b"ours")
    assert scan(long + elsewhere + OURS) == (b"", [b"ours"])


@given(st.binary(max_size=60), st.binary(max_size=30), st.data())
def test_any_split_finds_the_hello(before: bytes, after: bytes, data: st.DataObject) -> None:
    wire = before + OURS + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=5)))
    rest, _ = scan(*(wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)))
    assert rest == after


@pytest.mark.parametrize("junk", [b"x" * 1000, SYNC * 60, (SYNC + encode(FrameType.HELLO, 0, bytes(4000)))[:-1]])
def test_scanning_holds_little_however_much_comes(junk: bytes) -> None:
    scanner = Scanner()
    for _ in range(500):
        assert scanner.feed(junk, lambda _: False) is None
        assert len(scanner._buffer) <= 2 * (MAX_HELLO + 25)
