"""A host that reads slowly, or not at all, harms nothing but itself; and no stream makes another one wait."""

from __future__ import annotations

import json
import select
from pathlib import Path

from sandyard.frames import MAX_DATA, FrameType, encode
from tests.agent.wire import WINDOW, Host, code

ROOM_KIB = 64 * 1024
"""What the agent may grow by under any pressure below: far less than what is pressed."""


def test_a_stream_without_credit_gets_one_window_and_the_others_all_they_want(host: Host) -> None:
    host.grants_credit = False
    endless = host.open("exec", id="endless", argv=["cat", "/dev/zero"])
    host.received(endless, 1, WINDOW)
    for _ in range(20):
        assert bytes(host.run("echo", "quick").data[1]) == b"quick\n"
    upload = host.open("write", path="/dev/null")
    for _ in range(4 * WINDOW // MAX_DATA):
        host.data(upload, bytes(MAX_DATA))
        while host.streams[upload].credit < MAX_DATA:
            host.pump()
        host.streams[upload].credit -= MAX_DATA
    host.data(upload, b"")
    assert host.answer(upload).answer == {"result": {"size": 4 * WINDOW}}
    assert len(host.streams[endless].data[1]) == WINDOW
    host.frame(FrameType.CREDIT, endless, (1000).to_bytes(4, "big"))
    host.received(endless, 1, WINDOW + 1000)
    host.ping(b"x")
    assert len(host.streams[endless].data[1]) == WINDOW + 1000


def test_both_outputs_share_the_window_and_neither_shuts_the_other_out(host: Host) -> None:
    host.grants_credit = False
    stream = host.open("exec", id="both", shell="cat /dev/zero & cat /dev/zero >&2")
    granted = WINDOW
    outputs = host.streams[stream].data
    while not (outputs[1] and outputs[2]):
        while len(outputs[1]) + len(outputs[2]) < granted:
            host.pump()
        host.ping(b"%d" % granted)
        assert len(outputs[1]) + len(outputs[2]) == granted
        host.frame(FrameType.CREDIT, stream, (65536).to_bytes(4, "big"))
        granted += 65536


def test_a_command_that_does_not_read_holds_up_only_its_own_input(host: Host) -> None:
    deaf = host.open("exec", id="deaf", argv=["sleep", "100"], stdin=True)
    for _ in range(WINDOW // MAX_DATA):
        host.data(deaf, bytes(MAX_DATA))
    assert bytes(host.run("echo", "quick").data[1]) == b"quick\n"


def test_a_host_that_never_reads_makes_nothing_grow(host: Host, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(8 * WINDOW))
    host.run("true")
    before = host.memory_kib()
    for n in range(30):
        host.open("exec", id=f"yes{n}", argv=["yes"])
        host.open("read", path=str(tmp_path / "large"))
        host.open("exec", id=f"none{n}", argv=["nonexistent"])
    # PINGs and impossible requests until it takes no more: it must stop reading, and not keep the answers.
    pressed = memoryview(encode(FrameType.PING, 0, bytes(64)) * 1000)
    sent = 0
    while select.select([], [host.to_agent], [], 1)[1]:
        sent += host.write_some(pressed[sent % len(pressed) :])
        assert sent < 64 * WINDOW, "the agent reads on although nobody takes its answers"
    assert host.memory_kib() - before < ROOM_KIB
    # All of it was answered as soon as somebody read.
    host.grants_credit = False
    until = sent // 73
    while len(host.pongs) < until:
        host.pump()


def test_input_that_fifty_commands_do_not_take_is_held_once(host: Host) -> None:
    deaf = [host.open("exec", id=f"deaf{n}", argv=["sleep", "100"], stdin=True) for n in range(50)]
    host.ping(b"opened")
    before = host.memory_kib()
    for number in deaf:
        for _ in range(WINDOW // 1024):
            host.data(number, bytes(1024))
    host.ping(b"all read")
    for number in deaf:  # the pipes to the commands took the first of it, so there is credit for more
        host.data(number, bytes(host.streams[number].credit % MAX_DATA or MAX_DATA))
    host.ping(b"again")
    assert host.memory_kib() - before < 50 * WINDOW // 1024 + ROOM_KIB


def test_what_a_command_left_behind_never_sees_a_broken_pipe(host: Host, tmp_path: Path) -> None:
    mark = tmp_path / "done"
    much = "head -c 3000000 /dev/zero && head -c 3000000 /dev/zero >&2"
    result = host.run("sh", "-c", f"({much} && sleep 0.1 && echo more && touch {mark}) & echo started")
    assert b"started\n" in result.data[1]
    while not mark.exists():
        host.ping(b"waiting")
        host.pongs.clear()


def test_output_arrives_whole_when_the_host_takes_it_in_sips(host: Host) -> None:
    host.grants_credit = False
    stream = host.open("exec", id="sips", shell="seq 300000")
    expected = "".join(f"{n}\n" for n in range(1, 300_001)).encode()
    host.received(stream, 1, WINDOW)
    while host.streams[stream].answer is None:
        host.frame(FrameType.CREDIT, stream, (7919).to_bytes(4, "big"))
        host.pump()
    assert bytes(host.streams[stream].data[1]) == expected


def test_many_small_frames_are_not_many_small_pieces(host: Host) -> None:
    stream = host.open("exec", id="small", argv=["sleep", "100"], stdin=True)
    host.ping(b"opened")
    before = host.memory_kib()
    host.write(encode(FrameType.DATA, stream, b"\x00x") * WINDOW)
    host.ping(b"all read")
    assert host.memory_kib() - before < 16 * 1024
    assert code(host.call("signal", exec="small", signal=9)) is None
    answer = host.answer(stream).answer
    assert json.dumps(answer).count("137") == 1
