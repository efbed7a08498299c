"""A host that speaks the protocol byte by byte, so that it can also break it. Blocking, with a limit on every wait."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

from sandyard.frames import HEADER, SYNC, FrameType, encode

WAIT_S = 30
WINDOW = 1024 * 1024


class Stream:
    """What arrived on one stream."""

    def __init__(self) -> None:
        self.data: dict[int, bytearray] = defaultdict(bytearray)
        self.ended: set[int] = set()
        self.credit = 0
        self.answer: dict[str, Any] | None = None


class Host:
    """The far end of an agent that runs as an ordinary process."""

    def __init__(self, binary: Path, *, prefix: tuple[str, ...] = ()) -> None:
        """Start the agent; ``prefix`` is a command that starts it as somebody else."""
        self.socket = f"@sandyard-test-{uuid.uuid4()}"
        environment = {"PATH": os.environ["PATH"], "SANDYARD_AGENT_SOCKET": self.socket}
        self.process = subprocess.Popen(
            [*prefix, str(binary), "agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to_agent, self.from_agent = self.process.stdin, self.process.stdout
        os.set_blocking(self.to_agent.fileno(), False)
        self.buffer = bytearray()
        self.streams: dict[int, Stream] = defaultdict(Stream)
        self.pongs: list[bytes] = []
        self.last = 0
        self.grants_credit = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.to_agent.close()
        try:
            self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.from_agent.close()
            assert self.process.stderr is not None
            self.process.stderr.close()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def write_some(self, data: bytes | memoryview) -> int:
        """Write what the pipe takes at once."""
        try:
            return os.write(self.to_agent.fileno(), data)
        except BlockingIOError:
            return 0

    def write(self, data: bytes) -> None:
        """Write all; meanwhile nothing is read, so an agent that waits for us shows as a failure."""
        rest = memoryview(data)
        while rest:
            assert select.select([], [self.to_agent], [], WAIT_S)[1], "the agent does not read"
            rest = rest[self.write_some(rest) :]

    def frame(self, kind: FrameType, stream: int, payload: bytes = b"") -> None:
        self.write(encode(kind, stream, payload))

    def _receive(self, until: float) -> None:
        left = max(0.0, until - time.monotonic())
        assert select.select([self.from_agent], [], [], left)[0], "nothing came from the agent"
        data = os.read(self.from_agent.fileno(), 1 << 20)
        assert data, "the agent has closed its end"
        self.buffer += data

    # -- frames -------------------------------------------------------------------------------------------------------

    def next_hello(self) -> dict[str, Any]:
        """Scan for the agent's next HELLO."""
        until = time.monotonic() + WAIT_S
        while True:
            at = self.buffer.find(SYNC)
            head = at + len(SYNC)
            if at >= 0 and len(self.buffer) >= head + HEADER.size:
                length, stream, kind = HEADER.unpack_from(self.buffer, head)
                body = head + HEADER.size
                assert (stream, kind) == (0, FrameType.HELLO)
                if len(self.buffer) >= body + length:
                    said: dict[str, Any] = json.loads(self.buffer[body : body + length])
                    del self.buffer[: body + length]
                    return said
            self._receive(until)

    def hello(self, session: str = "s", orphans: str = "kill") -> dict[str, Any]:
        """Begin a session, and read until the agent answers."""
        payload = json.dumps({"version": 1, "session": session, "orphans": orphans}).encode()
        self.write(SYNC + encode(FrameType.HELLO, 0, payload))
        while (said := self.next_hello()).get("session") != session:
            assert said == {"version": 1, "await": True}
        if not said["resumed"]:
            self.streams.clear()
            self.last = 0
        return said

    def pump(self, until: float | None = None) -> None:
        """Take one frame and sort it."""
        until = time.monotonic() + WAIT_S if until is None else until
        while len(self.buffer) < HEADER.size or len(self.buffer) < HEADER.size + HEADER.unpack_from(self.buffer)[0]:
            self._receive(until)
        length, number, kind = HEADER.unpack_from(self.buffer)
        payload = bytes(self.buffer[HEADER.size : HEADER.size + length])
        del self.buffer[: HEADER.size + length]
        stream = self.streams[number]
        match FrameType(kind):
            case FrameType.DATA:
                stream.data[payload[0]] += payload[1:]
                if len(payload) == 1:
                    stream.ended.add(payload[0])
                elif self.grants_credit and number:
                    self.frame(FrameType.CREDIT, number, (length - 1).to_bytes(4, "big"))
            case FrameType.CREDIT:
                stream.credit += int.from_bytes(payload, "big")
            case FrameType.CLOSE:
                assert stream.answer is None
                stream.answer = json.loads(payload)
            case FrameType.PONG:
                self.pongs.append(payload)
            case other:
                raise AssertionError(other)

    # -- requests -----------------------------------------------------------------------------------------------------

    def open(self, op: str, **fields: Any) -> int:
        self.last += 1
        self.frame(FrameType.OPEN, self.last, json.dumps({"op": op, **fields}).encode())
        return self.last

    def data(self, number: int, data: bytes) -> None:
        self.frame(FrameType.DATA, number, b"\x00" + data)

    def answer(self, number: int) -> Stream:
        """Read until a stream is closed."""
        until = time.monotonic() + WAIT_S
        while self.streams[number].answer is None:
            self.pump(until)
        return self.streams[number]

    def received(self, number: int, channel: int, count: int) -> bytes:
        """Read until a channel has brought ``count`` bytes."""
        until = time.monotonic() + WAIT_S
        while len(self.streams[number].data[channel]) < count:
            self.pump(until)
        return bytes(self.streams[number].data[channel])

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Make a request and return its CLOSE."""
        answer = self.answer(self.open(op, **fields)).answer
        assert answer is not None
        return answer

    def run(self, *argv: str, **fields: Any) -> Stream:
        """Run a command to its end."""
        return self.answer(self.open("exec", id=f"ex_{uuid.uuid4()}", argv=list(argv), **fields))

    def ping(self, payload: bytes) -> None:
        """Ask for a sign of life and wait for it."""
        self.frame(FrameType.PING, 0, payload)
        until = time.monotonic() + WAIT_S
        while payload not in self.pongs:
            self.pump(until)

    def memory_kib(self) -> int:
        """What the agent holds in memory of its own."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")))


def code(answer: dict[str, Any] | None) -> str | None:
    """Return the error's code, None for a result."""
    assert answer is not None
    return None if "result" in answer else answer["error"]["code"]
