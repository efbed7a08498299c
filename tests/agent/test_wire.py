"""What the agent does with bytes that no honest host sends, and with requests at the limits."""

from __future__ import annotations

import json
import os
import select
import signal
from pathlib import Path

import pytest

from sandyard.frames import MAX_DATA, MAX_PAYLOAD, SYNC, FrameType, encode
from tests.agent.wire import WINDOW, Host, code

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "frames.json").read_text())
AWAIT = {"version": 1, "await": True}


def test_the_agent_says_that_it_waits_once_and_then_nothing(binary: Path) -> None:
    with Host(binary) as host:
        assert host.next_hello() == AWAIT
        host.write(b"noise" * 1000 + SYNC + SYNC)
        said = host.hello("first")
        assert said["resumed"] is False
        assert said["session"] == "first"
        assert not host.buffer


# Each of them is refused, and a host that begins anew is answered.
@pytest.mark.parametrize("invalid", GOLDEN["invalid"], ids=lambda frame: frame["name"])
def test_a_violation_makes_the_agent_scan_and_forget_the_session(host: Host, invalid: dict[str, str]) -> None:
    host.open("exec", id="stream-1", argv=["cat"], stdin=True)
    host.received(host.open("exec", id="stream-2", argv=["echo", "started"]), 1, 8)
    host.write(bytes.fromhex(invalid["bytes_hex"]))
    if invalid["name"] != "sync-marker-as-a-header":
        assert host.next_hello() == AWAIT
    assert host.hello("s")["resumed"] is (invalid["name"] == "sync-marker-as-a-header")
    assert host.run("true").answer is not None


@pytest.mark.parametrize(
    "frames",
    [
        encode(FrameType.DATA, 5, b"\x00x"),
        encode(FrameType.CREDIT, 5, bytes(4)),
        encode(FrameType.RESET, 5),
        encode(FrameType.CLOSE, 1, b"{}"),
        encode(FrameType.DATA, 0, b"\x00x"),
        encode(FrameType.DATA, 1, b"\x01x"),
        encode(FrameType.OPEN, 1, b'{"op":"info"}'),
        encode(FrameType.HELLO, 0, b'{"version":1,"session":"s","orphans":"kill"}'),
        encode(FrameType.DATA, 1, b"\x00") * 2,
        encode(FrameType.DATA, 1, bytes(MAX_DATA + 1)) * 9,  # a window, and what the pipe to the command holds
    ],
    ids=[
        "data-never-opened",
        "credit-never-opened",
        "reset-never-opened",
        "close-from-the-host",
        "data-on-stream-0",
        "data-on-stdout",
        "a-number-used-twice",
        "hello-without-marker",
        "data-behind-the-end",
        "more-than-the-window",
    ],
)
def test_frames_out_of_order_are_violations(host: Host, frames: bytes) -> None:
    stream = host.open("exec", id="reads-nothing", argv=["sleep", "100"], stdin=True)
    assert stream == 1
    host.write(frames)
    assert host.next_hello() == AWAIT


def test_a_window_may_be_used_to_the_last_byte(host: Host) -> None:
    stream = host.open("exec", id="late", shell="sleep 0.2; wc -c", stdin=True)
    for _ in range(WINDOW // MAX_DATA):
        host.data(stream, bytes(MAX_DATA))
    host.data(stream, b"")
    assert bytes(host.answer(stream).data[1]) == b"%d\n" % WINDOW


def test_frames_that_crossed_the_end_of_their_stream_are_ignored(host: Host) -> None:
    host.run("true")
    host.data(1, b"late")
    host.data(1, b"")
    host.frame(FrameType.CREDIT, 1, b"\xff\xff\xff\xff")
    host.frame(FrameType.RESET, 1)
    host.ping(b"still here")


def test_a_frame_of_the_largest_size_is_a_frame(host: Host) -> None:
    request = json.dumps({"op": "info", "padding": ""}).encode()
    request = request.replace(b'""', b'"' + b"x" * (MAX_PAYLOAD - len(request)) + b'"')
    assert len(request) == MAX_PAYLOAD
    host.frame(FrameType.OPEN, 1, request)
    assert code(host.answer(1).answer) is None


def test_requests_that_cannot_be_are_answered(host: Host) -> None:
    for payload, expected in (
        (b"", "bad-request"),
        (b"{", "bad-request"),
        (b"[]", "bad-request"),
        (b'{"op": 1}', "bad-request"),
        (b"{}", "unknown-op"),
        (b'{"op": "reboot"}', "unknown-op"),
        (b'{"op": "exec", "argv": ["true"]}', "bad-request"),
        (b'{"op": "exec", "id": "a"}', "bad-request"),
        (b'{"op": "exec", "id": "b", "argv": ["true"], "shell": "true"}', "bad-request"),
        (b'{"op": "signal", "exec": "none", "signal": 9}', "exec-not-found"),
        (b'{"op": "read"}', "bad-request"),
        (b'{"op": "read", "path": "/", "offset": -1}', "bad-request"),
        (b'{"op": "read", "path": "/"}', "is-a-directory"),
        (b'{"op": "remove", "path": "/", "recursive": true}', "bad-request"),
        (b'{"op": "remove", "path": "/..//./", "recursive": true}', "bad-request"),
        (b'{"op": "dial", "network": "udp", "address": "127.0.0.1:1"}', "bad-request"),
        (b'{"op": "dial", "network": "tcp", "address": "nowhere"}', "bad-request"),
        (b'{"op": "dial", "network": "unix", "address": "/nonexistent"}', "unreachable"),
        (b'{"op": "lease", "seconds": -1}', "bad-request"),
        (b'{"op": "hold", "seconds": 1e300}', "bad-request"),
    ):
        host.last += 1
        host.frame(FrameType.OPEN, host.last, payload)
        assert code(host.answer(host.last).answer) == expected, payload


def test_answers_about_long_requests_fit_into_a_frame(host: Host) -> None:
    long = "\x01" * 30_000
    assert code(host.call(long)) == "unknown-op"
    assert code(host.call("stat", path="/" + long)) == "io-error"
    assert code(host.call("signal", exec=long, signal=9)) == "exec-not-found"
    for number in range(100):
        started = host.call("exec", id=f"{number}", argv=["sh", "-c", "sleep 100", "x" * 100_000], detach=True)
        assert code(started) is None
    listed = host.call("processes")["result"]["processes"]
    assert len(listed) == 100
    assert all(entry["argv"][:3] == ["sh", "-c", "sleep 100"] for entry in listed)
    assert all(400 < len(entry["argv"][3]) < 512 for entry in listed)
    for number in range(100):
        assert code(host.call("signal", exec=f"{number}", signal=9)) is None


def test_an_id_is_taken_until_its_command_has_ended(host: Host) -> None:
    first = host.open("exec", id="same", argv=["sleep", "100"])
    assert code(host.call("exec", id="same", argv=["true"])) == "exec-exists"
    assert code(host.call("signal", exec="same", signal=15)) is None
    answer = host.answer(first).answer
    assert answer is not None
    assert (answer["result"]["exit_code"], answer["result"]["signal"]) == (143, 15)
    assert code(host.call("exec", id="same", argv=["true"])) is None


def test_one_stream_too_many(host: Host) -> None:
    waiting = [host.open("exec", id=f"w{n}", argv=["nonexistent"]) for n in range(10)]
    for number in waiting:
        assert code(host.answer(number).answer) == "command-not-found"
    # Uploads that never end hold streams without holding processes.
    for n in range(1024):
        host.open("write", path=f"/dev/shm/{os.getpid()}.{n}")
    assert code(host.call("info")) == "too-many-streams"
    for number in range(11, 1035):
        host.frame(FrameType.RESET, number)
    assert code(host.call("info")) is None


def test_a_signal_makes_it_scan_wherever_it_is(binary: Path) -> None:
    with Host(binary) as host:
        assert host.next_hello() == AWAIT
        host.process.send_signal(signal.SIGUSR1)
        assert host.next_hello() == AWAIT  # it was scanning already
        host.hello("one")
        assert host.run("true").answer is not None
        host.process.send_signal(signal.SIGUSR1)
        assert host.next_hello() == AWAIT  # between two frames
        host.hello("two")
        host.write(encode(FrameType.OPEN, 1, bytes(1000))[:500])
        host.process.send_signal(signal.SIGUSR1)
        assert host.next_hello() == AWAIT  # in the middle of one
        assert host.hello("two")["resumed"] is False
        assert code(host.call("info")) is None


def test_nothing_but_the_answer_comes_while_the_machine_is_to_be_saved(host: Host) -> None:
    ticking = host.open("exec", id="ticks", shell="while echo tick; do sleep 0.01; done")
    host.received(ticking, 1, 50)
    host.answer(host.open("prepare_checkpoint"))
    before = len(host.streams[ticking].data[1])
    assert not host.buffer
    assert not select.select([host.from_agent], [], [], 0.2)[0]
    assert host.hello()["resumed"] is True
    after = host.received(ticking, 1, before + 50)
    assert after.count(b"tick\n") == len(after) // 5  # none lost, none doubled


def test_an_end_of_the_host_ends_all_that_the_agent_started(binary: Path) -> None:
    with Host(binary) as host:
        host.hello()
        detached = host.call("exec", id="a", argv=["sleep", "1000"], detach=True)
        orphan = host.run("sh", "-c", "trap '' TERM; setsid sleep 1001 >/dev/null & echo $!")
        pids = [detached["result"]["pid"], int(orphan.data[1])]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert host.process.returncode == 0
