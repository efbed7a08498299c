"""An agent in the hands of somebody else: nothing that it sends may crash, hang, deceive or grow the host's half."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandyard.errors import (
    CommandError,
    ConflictError,
    GuestAgentError,
    NoSpaceError,
    ProtocolError,
    SandboxGoneError,
    SandyardError,
    StartTimeoutError,
    TransportError,
)
from sandyard.frames import CREDIT, MAX_DATA, SYNC, WINDOW, Decoder, Frame, FrameType, encode, encode_data, encode_hello
from sandyard.guest import Guest, Process
from tests.guest.harness import ScriptedChannel

SESSION = "0123456789abcdef"
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent.parent / "golden" / "frames.json").read_text())


def hello(**changes: object) -> bytes:
    said = {"version": 1, "session": SESSION, "boot_id": "b", "agent": "evil", "resumed": False, **changes}
    return encode_hello(json.dumps(said).encode())


def close(stream: int, body: object) -> bytes:
    return encode(FrameType.CLOSE, stream, json.dumps(body).encode())


def credit(stream: int, count: int) -> bytes:
    return encode(FrameType.CREDIT, stream, CREDIT.pack(count))


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


@pytest.fixture
async def guest(channel: ScriptedChannel) -> AsyncIterator[Guest]:
    """A session with an agent that is the test."""
    guest = await attached(channel)
    yield guest
    await guest.close()


async def attached(channel: ScriptedChannel, **options: float) -> Guest:
    guest = Guest(channel, session=SESSION, **options)
    channel.push(hello())
    await guest.attach()
    return guest


def frames_of(channel: ScriptedChannel) -> list[Frame]:
    """Return the frames that the host wrote after its HELLO."""
    _, _, rest = bytes(channel.written).partition(SYNC)
    found = list(Decoder().feed(rest))
    assert found[0].type is FrameType.HELLO
    return found[1:]


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


# -- the beginning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00" * 100_000,
        SYNC * 1000,
        hello(session="another"),
        hello(version=2),
        hello(boot_id=7),
        hello(resumed="no"),
        hello(boot_id="x" * 1000),
        encode(FrameType.HELLO, 0, hello()[len(SYNC) + 9 :]),
        encode_hello(b"[1, 2]"),
        encode_hello(b"not json"),
        encode_hello(b'{"await": true, "version": 1}'),
        SYNC + encode(FrameType.HELLO, 1, hello()[len(SYNC) + 9 :]),
    ],
    ids=range(13),
)
async def test_what_is_no_answer_is_waited_beyond(answer: bytes) -> None:
    channel = ScriptedChannel()
    guest = Guest(channel, session=SESSION)
    channel.push(answer) if answer else None
    with pytest.raises(StartTimeoutError):
        await guest.attach(timeout_s=0.03)
    assert channel.is_closed
    await guest.close()


@pytest.mark.parametrize("answer", [b"", SYNC, hello(session="another"), hello(version=2), b"junk" * 100])
async def test_an_answer_behind_junk_counts(answer: bytes) -> None:
    channel = ScriptedChannel()
    guest = Guest(channel, session=SESSION)
    channel.push(answer + hello() + encode(FrameType.PING, 0, b"at once"))
    said = await guest.attach(timeout_s=5)
    assert (said.boot_id, said.agent) == ("b", "evil")
    await settle()
    assert frames_of(channel) == [Frame(FrameType.PONG, 0, b"at once")]
    await guest.close()


async def test_a_channel_that_ends_before_the_answer() -> None:
    channel = ScriptedChannel()
    guest = Guest(channel, session=SESSION)
    channel.end()
    with pytest.raises(SandboxGoneError):
        await guest.attach(timeout_s=60)
    await guest.close()


async def test_a_greeting_is_repeated_for_an_agent_that_missed_it() -> None:
    channel = ScriptedChannel()
    guest = Guest(channel, session=SESSION)
    begun = asyncio.create_task(guest.attach(timeout_s=30))
    await settle()
    channel.push(encode_hello(b'{"version": 1, "await": true}'))
    while bytes(channel.written).count(SYNC) < 2:
        await asyncio.sleep(0.01)
    # It had not missed it after all: both answers come, and the second one is passed over. A third would be too many.
    channel.push(hello() + hello(resumed=True) + encode(FrameType.PING, 0, b"p"))
    await begun
    await settle()
    assert guest.error is None
    channel.push(hello(resumed=True))
    assert isinstance(await guest.wait_lost(), ProtocolError)
    await guest.close()


async def test_an_interrupted_agent_is_greeted_only_once_it_awaits_that() -> None:
    channel = ScriptedChannel()
    channel.is_interrupted = True
    guest = Guest(channel, session=SESSION)
    begun = asyncio.create_task(guest.attach(timeout_s=30))
    await settle()
    assert not channel.written
    channel.push(b"rest of something" + encode_hello(b'{"version": 1, "await": true}'))
    await settle()
    assert bytes(channel.written).count(SYNC) == 1
    channel.push(hello())
    await begun
    await guest.close()


async def test_cancelling_the_beginning_gives_the_channel_up() -> None:
    channel = ScriptedChannel()
    channel.blocks_writes = True
    guest = Guest(channel, session=SESSION)
    begun = asyncio.create_task(guest.attach(timeout_s=30))
    await settle()
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert channel.is_closed
    assert isinstance(guest.error, TransportError)
    await guest.close()


# -- breaches ---------------------------------------------------------------------------------------------------------

BREACHES = {
    "data-on-a-stream-never-opened": encode_data(2, 1, b"x"),
    "credit-on-a-stream-never-opened": credit(9, 1),
    "close-of-a-stream-never-opened": close(9, {"result": {}}),
    "data-without-channel": encode(FrameType.DATA, 1),
    "data-on-a-channel-that-exec-has-not": encode_data(1, 0, b"x"),
    "data-on-channel-255": encode_data(1, 255, b"x"),
    "data-after-the-channel-ended": encode_data(1, 1, b"") + encode_data(1, 1, b"x"),
    "a-channel-that-ends-twice": encode_data(1, 1, b"") * 2,
    "data-beyond-the-window": encode_data(1, 1, bytes(MAX_DATA)) * (WINDOW // MAX_DATA) + encode_data(1, 2, b"x"),
    "credit-never-earned": credit(1, 1),
    "credit-of-four-billion": credit(1, 2**32 - 1),
    "credit-too-short": encode(FrameType.CREDIT, 1, b"\0\0\0"),
    "credit-too-long": encode(FrameType.CREDIT, 1, bytes(5)),
    "open": encode(FrameType.OPEN, 1, b"{}"),
    "reset": encode(FrameType.RESET, 1),
    "hello-without-need": encode(FrameType.HELLO, 0, b"{}"),
    "marker": SYNC,
    "ping-on-a-stream": encode(FrameType.PING, 1, b""),
    "ping-too-long": encode(FrameType.PING, 0, bytes(65)),
    "pong-too-long": encode(FrameType.PONG, 0, bytes(65)),
    "length-impossible": b"\xff\xff\xff\xff" + bytes(5),
    "type-unknown": bytes(8) + b"\x63",
    "close-without-json": encode(FrameType.CLOSE, 1, b"not json"),
    "close-with-a-list": close(1, []),
    "close-with-nothing": close(1, {}),
    "close-with-both": close(1, {"result": {}, "error": {"code": "x", "message": "y"}}),
    "close-with-a-number": close(1, {"result": 7}),
    "close-with-an-error-without-code": close(1, {"error": {"message": "x"}}),
    "close-with-an-error-of-wrong-types": close(1, {"error": {"code": 1, "message": ["x"]}}),
    "close-nested-beyond-reason": encode(FrameType.CLOSE, 1, b'{"result":' + b"[" * 200_000),
    "close-with-nan": encode(FrameType.CLOSE, 1, b'{"result": {"x": NaN}}'),
    "close-with-a-number-of-100000-digits": encode(FrameType.CLOSE, 1, b'{"result": {"x": ' + b"9" * 100_000 + b"}}"),
    "close-in-utf16": encode(FrameType.CLOSE, 1, json.dumps({"result": {}}).encode("utf-16")),
    "event-on-channel-1": encode_data(0, 1, b"{}"),
    "event-without-json": encode_data(0, 0, b"x"),
    "event-too-long": encode_data(0, 0, json.dumps({"event": "x" * 5000}).encode()),
    "hold-of-a-string": encode_data(0, 0, b'{"event": "hold", "until_unix_ms": "now"}'),
    "hold-before-time": encode_data(0, 0, b'{"event": "hold", "until_unix_ms": -1}'),
    "hold-beyond-time": encode_data(0, 0, b'{"event": "hold", "until_unix_ms": 1e400}'),
    "credit-on-stream-0": credit(0, 1),
    "close-of-stream-0": close(0, {"result": {}}),
}


@pytest.mark.parametrize("name", BREACHES)
async def test_a_breach_ends_every_call_and_gives_the_connection_up(name: str, channel: ScriptedChannel) -> None:
    guest = await attached(channel)
    process = await guest.exec(["x"], stdin=True)
    waiting = [asyncio.create_task(call) for call in (process.wait(), process.collect(), guest.ping())]
    await settle()
    channel.push(BREACHES[name])
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    assert [type(result) for result in results] == [ProtocolError] * 3
    assert channel.is_closed
    with pytest.raises(ProtocolError):
        await guest.info()
    assert guest.open_streams == 0
    await guest.close()


PAYLOAD_BREACHES = [case for case in GOLDEN["invalid"] if case["level"] == "payload"]


@pytest.mark.parametrize("case", PAYLOAD_BREACHES, ids=lambda case: case["name"])
async def test_golden_invalid_payloads_are_breaches(case: dict[str, Any], channel: ScriptedChannel) -> None:
    guest = await attached(channel)
    process = await guest.exec(["x"])
    await settle()
    channel.push(bytes.fromhex(case["bytes_hex"]))
    with pytest.raises(ProtocolError):
        await process.wait()
    await guest.close()


@pytest.mark.parametrize(
    "late",
    [
        encode_data(1, 1, b"late"),
        credit(1, 5),
        close(1, {"result": {"exit_code": 0}}),
        close(1, {}),
        encode_data(1, 9, b"x"),
    ],
)
async def test_late_frames_of_a_stream_that_was_given_up_are_ignored(
    guest: Guest, channel: ScriptedChannel, late: bytes
) -> None:
    process = await guest.exec(["x"])
    await settle()
    await process.aclose()
    channel.push(late)
    pinged = asyncio.create_task(guest.ping())
    await settle()
    assert [frame.type for frame in frames_of(channel)] == [FrameType.OPEN, FrameType.RESET, FrameType.PING]
    channel.push(encode(FrameType.PONG, 0, frames_of(channel)[-1].payload))
    await pinged
    assert guest.error is None


async def test_a_request_given_up_before_it_was_written_is_never_heard_of(
    guest: Guest, channel: ScriptedChannel
) -> None:
    channel.blocks_writes = True
    await guest.exec(["first"])
    await settle()  # the writer holds this one
    second = await guest.exec(["second"])
    await second.aclose()
    channel.blocks_writes = False
    channel.push(encode(FrameType.PING, 0, b""))
    await settle()
    assert [frame.type for frame in frames_of(channel)] == [FrameType.OPEN, FrameType.PONG]


# -- answers that are not what they should be -------------------------------------------------------------------------

GOOD_EXIT = {
    "exit_code": 0, "signal": 0, "timed_out": False, "pid": 5, "fork_exec_wait_us": 1, "user_us": 1, "system_us": 1,
    "max_rss_kib": 1,
}  # fmt: skip


async def answer(channel: ScriptedChannel, call: Coroutine[Any, Any, Any], body: object, data: bytes = b"") -> Any:
    """Make a call and let the agent answer its one stream."""
    task = asyncio.create_task(call)
    await settle()
    stream = frames_of(channel)[-1].stream
    channel.push((encode_data(stream, 0, data) if data else b"") + close(stream, body))
    return await asyncio.wait_for(task, 10)


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": None}, {"exit_code": "0"}, {"exit_code": True}, {"exit_code": 256}, {"exit_code": -1},
        {"exit_code": 0.0}, {"signal": 65}, {"signal": "KILL"}, {"timed_out": 0}, {"pid": 2**63}, {"user_us": -1},
        {"max_rss_kib": []},
    ],
)  # fmt: skip
async def test_no_exit_code_is_made_up(guest: Guest, channel: ScriptedChannel, change: dict[str, object]) -> None:
    # 66: what is not understood is an error and never success.
    with pytest.raises(ProtocolError):
        await answer(channel, guest.run(["x"]), {"result": GOOD_EXIT | change})
    with pytest.raises(ProtocolError):
        await answer(channel, guest.run(["x"]), {"result": {}})
    assert (await answer(channel, guest.run(["x"]), {"result": GOOD_EXIT})).exit_code == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda guest: guest.info(), lambda guest: guest.processes(), lambda guest: guest.stat("/x"),
        lambda guest: guest.mkdir("/x"), lambda guest: guest.hold(1), lambda guest: guest.write("/x", b""),
        lambda guest: guest.tar_in("/x", b""), lambda guest: guest.spawn(["x"]),
        lambda guest: guest.after_restore(sandbox_id="x", hostname="x", entropy=b""),
    ],
    ids=["info", "processes", "stat", "mkdir", "hold", "write", "tar_in", "spawn", "after_restore"],
)  # fmt: skip
@pytest.mark.parametrize(
    "result", [{}, {"processes": 5}, {"processes": [5]}, {"hooks": {}, "boot_id": "x"}, {"name": "x"}]
)
async def test_an_answer_of_the_wrong_shape_is_a_breach(
    guest: Guest, channel: ScriptedChannel, call: Callable[[Guest], Coroutine[Any, Any, Any]], result: object
) -> None:
    with pytest.raises(ProtocolError):
        await answer(channel, call(guest), {"result": result})


ENTRY = {"name": "n", "type": "file", "size": 1, "mode": 0o644, "uid": 0, "gid": 0, "mtime_ns": 1}


# 94: a name from inside is never a path.
@pytest.mark.parametrize("name", ["..", ".", "", "/", "a/b", "../x", "/etc/passwd", "a\0b", "x" * 1000])
async def test_a_listing_cannot_name_what_is_elsewhere(guest: Guest, channel: ScriptedChannel, name: str) -> None:
    line = json.dumps(ENTRY | {"name": name}).encode() + b"\n"
    with pytest.raises(ProtocolError):
        await answer(channel, guest.list_dir("/x"), {"result": {"count": 1}}, line)


@pytest.mark.parametrize("encoded", ["Li4=", "L2V0Yw==", "YS9i", "AA==", "not base64!", 5, ["x"]])
async def test_nor_can_it_in_base64(guest: Guest, channel: ScriptedChannel, encoded: object) -> None:
    line = json.dumps(ENTRY | {"name": "harmless", "name_b64": encoded}).encode() + b"\n"
    with pytest.raises(ProtocolError):
        await answer(channel, guest.list_dir("/x"), {"result": {"count": 1}}, line)


@pytest.mark.parametrize(
    "data",
    [b"no end", b"\n", b"[]\n", b"x" * 70_000, json.dumps(ENTRY | {"type": "door"}).encode() + b"\n",
     json.dumps(ENTRY | {"type": ["file"]}).encode() + b"\n", json.dumps(ENTRY | {"size": -1}).encode() + b"\n",
     json.dumps(ENTRY | {"type": "symlink"}).encode() + b"\n"],
    ids=range(8),
)  # fmt: skip
async def test_a_listing_of_the_wrong_shape_is_a_breach(guest: Guest, channel: ScriptedChannel, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        await answer(channel, guest.list_dir("/x"), {"result": {"count": 1}}, data)


async def test_texts_of_the_agent_do_not_reach_a_terminal_as_they_are(guest: Guest, channel: ScriptedChannel) -> None:
    nasty = "\x1b[2J\x07\u202eevil\r\n\ud800\x9b31m" + "A" * 100_000
    with pytest.raises(NoSpaceError) as failed:
        await answer(channel, guest.info(), {"error": {"code": "no-space", "message": nasty}})
    text = str(failed.value)
    assert text.isprintable()
    assert len(text) < 500
    assert "evil" in text
    info = {
        "agent": nasty[:200], "boot_id": "b", "id": "i", "hostname": "\x1b]0;x\x07", "uptime_ms": 1, "processes": 1,
        "memory_total_kib": 1, "memory_available_kib": 1, "held_until_unix_ms": 0, "execs": 0,
    }  # fmt: skip
    said = await answer(channel, guest.info(), {"result": info})
    assert said.hostname.isprintable()
    assert said.agent.isprintable()


@pytest.mark.parametrize(
    ("code", "kind", "kept"),
    [
        ("command-not-found", CommandError, "command-not-found"),
        ("file-exists", ConflictError, "file-exists"),
        ("some-new-code", GuestAgentError, "some-new-code"),
        ("SandboxGoneError", GuestAgentError, "guest-agent-error"),
        ("\x1b[2J", GuestAgentError, "guest-agent-error"),
        ("x" * 1000, GuestAgentError, "guest-agent-error"),
        ("a--b", GuestAgentError, "guest-agent-error"),
        ("", GuestAgentError, "guest-agent-error"),
    ],
)
async def test_error_codes_become_errors_by_a_table(
    guest: Guest, channel: ScriptedChannel, code: str, kind: type[SandyardError], kept: str
) -> None:
    with pytest.raises(SandyardError) as failed:
        await answer(channel, guest.info(), {"error": {"code": code, "message": ""}})
    assert type(failed.value) is kind
    assert failed.value.code == kept
    assert str(failed.value)


# -- growth -----------------------------------------------------------------------------------------------------------


async def test_many_single_bytes_are_not_as_many_objects(guest: Guest, channel: ScriptedChannel) -> None:
    process = await guest.exec(["x"])
    await settle()
    pairs = 100_000
    channel.push((encode_data(1, 1, b"o") + encode_data(1, 2, b"e")) * pairs)
    while channel._arrived or process._stream._receive_window > WINDOW - 2 * pairs:
        await asyncio.sleep(0)
    assert len(process._stream._queue) < 300
    channel.push(close(1, {"result": GOOD_EXIT}))
    result = await process.collect()
    assert (result.stdout, result.stderr) == (b"o" * pairs, b"e" * pairs)


async def test_pings_whose_answers_it_does_not_read_are_a_breach(guest: Guest, channel: ScriptedChannel) -> None:
    channel.blocks_writes = True
    channel.push(encode(FrameType.PING, 0, bytes(64)) * 200)
    assert isinstance(await asyncio.wait_for(guest.wait_lost(), 10), ProtocolError)


async def test_events_without_end_do_not_grow_and_let_others_work(guest: Guest, channel: ScriptedChannel) -> None:
    told: list[int] = []
    guest.on_hold = told.append
    same = encode_data(0, 0, b'{"event": "hold", "until_unix_ms": 7}')
    unknown = encode_data(0, 0, b'{"event": "something-new"}')
    channel.push((same + unknown) * 5000)
    assert (await answer(channel, guest.mkdir("/x"), {"result": {"created": True}})) is True
    assert told == [7]


@pytest.mark.parametrize("at_once", [1, 5000])
async def test_a_flood_does_not_keep_the_event_loop_for_itself(
    guest: Guest, channel: ScriptedChannel, at_once: int
) -> None:
    frame = encode(FrameType.PONG, 0, b"")
    for _ in range(20_000 // at_once):
        channel.push(frame * at_once)
    turns = 0
    while channel._arrived:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 20
    assert guest.error is None


async def test_pieces_of_both_channels_keep_their_order(guest: Guest, channel: ScriptedChannel) -> None:
    process = await guest.exec(["x"])
    await settle()
    pieces = [(1, b"a"), (2, b"b"), (1, b"c"), (1, b"d"), (2, b"e"), (1, bytes(100_000)), (1, b"f")]
    channel.push(b"".join(encode_data(1, *piece) for piece in pieces) + close(1, {"result": GOOD_EXIT}))
    await settle()
    joined = [(1, b"a"), (2, b"b"), (1, b"cd"), (2, b"e"), (1, bytes(100_000)), (1, b"f")]
    assert [piece async for piece in process] == joined


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 3, 4096, 70_000])), min_size=1, max_size=20),
    st.integers(0, 400),
)
@settings(max_examples=60)
def test_each_channel_keeps_its_order_however_much_waits(large: list[tuple[int, int]], small: int) -> None:
    asyncio.run(_wait_in_order([(1 + number % 2, 1) for number in range(small)] + large))


async def _wait_in_order(pieces: list[tuple[int, int]]) -> None:
    channel = ScriptedChannel()
    guest = await attached(channel)
    process = await guest.exec(["x"])
    await settle()
    sent = {1: bytearray(), 2: bytearray()}
    for number, (to, size) in enumerate(pieces):
        data = bytes([number % 251]) * size
        if len(sent[1]) + len(sent[2]) + size > WINDOW:
            break
        sent[to] += data
        channel.push(encode_data(1, to, data))
    channel.push(close(1, {"result": GOOD_EXIT}))
    await process.wait()
    result = await process.collect()
    assert (result.stdout, result.stderr) == (sent[1], sent[2])
    await guest.close()


async def test_callers_wait_when_the_agent_does_not_read(channel: ScriptedChannel) -> None:
    guest = await attached(channel, answer_s=0.1)
    channel.blocks_writes = True
    long = ["x" * 100_000]
    calls = [asyncio.create_task(guest.run(long, timeout_s=0.05)) for _ in range(40)]
    uploads = [asyncio.create_task(guest.write("/x", bytes(8 * WINDOW))) for _ in range(5)]
    await asyncio.sleep(0.05)
    waiting = sum(len(frame) for _, frame in [*guest._link.outbox._urgent, *guest._link.outbox._bulk])
    assert waiting <= 2 * WINDOW + 200_000
    for upload in uploads:
        with pytest.raises(SandyardError):  # it stalls, and says so
            await asyncio.wait_for(upload, 10)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert guest.open_streams == 0
    await guest.close()


async def test_an_agent_that_ignores_a_timeout_is_not_waited_for(
    guest: Guest, channel: ScriptedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandyard.guest.guest._KILL_GRACE_S", 0.05)
    with pytest.raises(SandyardError) as hung:
        await asyncio.wait_for(guest.run(["x"], timeout_s=0.01), 10)
    assert hung.value.code == "deadline-exceeded"
    await settle()
    assert frames_of(channel)[-1].type is FrameType.RESET


async def test_an_error_raised_again_and_again_keeps_nothing_of_its_former_callers(
    guest: Guest, channel: ScriptedChannel
) -> None:
    channel.push(BREACHES["marker"])
    await guest.wait_lost()
    depths = set()
    for _ in range(5):
        with pytest.raises(ProtocolError) as failed:
            await guest.info()
        depths.add(len(failed.traceback))
    assert len(depths) == 1


async def test_a_download_that_stalls_is_given_up(channel: ScriptedChannel) -> None:
    guest = await attached(channel, answer_s=0.05)
    with pytest.raises(SandyardError) as stalled:
        await asyncio.wait_for(guest.read_bytes("/x"), 10)
    assert stalled.value.code == "deadline-exceeded"
    await settle()
    assert frames_of(channel)[-1].type is FrameType.RESET
    await guest.close()


async def test_a_checkpoint_that_is_never_answered_ends_the_session(guest: Guest, channel: ScriptedChannel) -> None:
    with pytest.raises(SandyardError):
        await asyncio.wait_for(guest.prepare_checkpoint(timeout_s=0.05), 10)
    assert guest.error is not None
    assert channel.is_closed


async def test_a_checkpoint_that_is_refused_leaves_all_as_it_was(guest: Guest, channel: ScriptedChannel) -> None:
    with pytest.raises(GuestAgentError):
        await answer(channel, guest.prepare_checkpoint(), {"error": {"code": "busy", "message": "not now"}})
    assert guest.is_attached
    assert (await answer(channel, guest.mkdir("/x"), {"result": {"created": True}})) is True


async def test_a_frame_after_the_promise_of_silence_is_a_breach(guest: Guest, channel: ScriptedChannel) -> None:
    await answer(channel, guest.prepare_checkpoint(), {"result": {}})
    channel.push(encode(FrameType.PING, 0, b""))
    assert isinstance(await asyncio.wait_for(guest.wait_lost(), 10), ProtocolError)


async def test_a_channel_that_breaks_is_an_error_of_transport(guest: Guest, channel: ScriptedChannel) -> None:
    async def broken() -> bytes:
        raise OSError(5, "Input/output error")

    channel.read = broken  # type: ignore[method-assign]  # the seam of this test
    channel.push(encode(FrameType.PING, 0, b""))
    lost = await asyncio.wait_for(guest.wait_lost(), 10)
    assert type(lost) is TransportError
    assert "Input/output error" in str(lost)


# -- fuzz -------------------------------------------------------------------------------------------------------------

CALLS: list[Callable[[Guest], Awaitable[object]]] = [
    lambda guest: guest.run(["x"], stdin=bytes(100)),
    lambda guest: guest.read_bytes("/x"),
    lambda guest: guest.write("/x", bytes(3 * MAX_DATA)),
    lambda guest: guest.list_dir("/x"),
    lambda guest: guest.tar_in("/x", b"x"),
    lambda guest: guest.info(),
    lambda guest: guest.ping(),
    lambda guest: guest.dial("tcp", "x:1"),
    lambda guest: guest.prepare_checkpoint(),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
results = st.fixed_dictionaries(
    {}, optional=dict.fromkeys([*GOOD_EXIT, *ENTRY, "created", "hooks", "count"], json_values)
)
bodies = st.one_of(
    json_values,
    results.map(lambda result: {"result": result}),
    st.tuples(st.text(max_size=8), st.text(max_size=8)).map(
        lambda error: {"error": {"code": error[0], "message": error[1]}}
    ),
    st.just({"result": GOOD_EXIT}),
    st.just({"result": {}}),
)
numbers = st.one_of(st.integers(0, 12), st.integers(0, 2**32 - 1))
wires = st.one_of(
    st.tuples(numbers, st.integers(0, 3), st.binary(max_size=50)).map(lambda args: encode_data(*args)),
    st.tuples(numbers, st.integers(0, MAX_DATA)).map(lambda args: encode_data(args[0], 1, bytes(args[1]))),
    st.tuples(numbers, st.integers(0, 2**32 - 1)).map(lambda args: credit(*args)),
    st.tuples(numbers, bodies).map(lambda args: close(*args)),
    st.tuples(st.sampled_from(FrameType), numbers, st.binary(max_size=70)).map(lambda args: encode(*args)),
    st.just(hello(resumed=True)),
    st.binary(max_size=40),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(wires, max_size=25), st.integers(1, 5000), st.booleans())
def test_nothing_that_an_agent_sends_crashes_hangs_or_grows_the_host(
    sent: list[bytes], step: int, begins: bool
) -> None:
    asyncio.run(_suffer(b"".join(sent), step, begins=begins))


async def _suffer(sent: bytes, step: int, *, begins: bool) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    channel = ScriptedChannel()
    guest = Guest(channel, session=SESSION, answer_s=30)
    if begins:
        channel.push(hello())
        await guest.attach()
    begun = asyncio.create_task(guest.attach(timeout_s=30)) if not begins else None
    calls = [asyncio.ensure_future(call(guest)) for call in CALLS] if begins else []
    await settle()
    for start in range(0, len(sent), step):
        channel.push(sent[start : start + step])
    while channel._arrived and not channel.is_closed:
        await asyncio.sleep(0)
    await settle()
    channel.end()
    await settle()
    await guest.close()  # where the machine was to be saved, calls rightly wait for it until now
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, *([begun] if begun else []), return_exceptions=True), 10)
    assert [
        outcome for outcome in outcomes if isinstance(outcome, BaseException) and not isinstance(outcome, SandyardError)
    ] == []
    assert guest.open_streams == 0
    assert guest.error is not None
    assert len(asyncio.all_tasks()) == 1
    assert faults == []


@settings(max_examples=100)
@given(st.binary(max_size=3000), st.integers(1, 700))
def test_arbitrary_bytes_end_in_an_error(sent: bytes, step: int) -> None:
    asyncio.run(_suffer(sent, step, begins=True))


async def test_a_process_needs_its_agent(guest: Guest, channel: ScriptedChannel) -> None:
    process: Process = await guest.exec(["x"], stdin=True)
    await settle()
    channel.end()
    for call in (process.wait(), process.collect(), process.write(b"x"), process.kill(), guest.processes()):
        with pytest.raises(SandboxGoneError):
            await call
