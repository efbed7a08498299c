"""The connection to one agent: its session, its streams, and the two tasks that read and write for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal

from sandyard.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    ProtocolError,
    ResourceExhaustedError,
    SandboxGoneError,
    SandyardError,
    StartTimeoutError,
    TransportError,
)
from sandyard.frames import (
    CREDIT,
    MAX_PAYLOAD,
    MAX_PING,
    MAX_STREAMS,
    Channel,
    Decoder,
    Frame,
    FrameType,
    Scanner,
    encode,
    encode_hello,
)
from sandyard.guest import answers
from sandyard.guest.failures import again, answer_of, violation
from sandyard.guest.outbox import Outbox
from sandyard.guest.stream import Stream

VERSION = 1
"""Of the protocol."""

_RESEND_AFTER_S = 0.25
"""After an agent said that it awaits a HELLO: how long ours may still be on its way before it is held to be lost."""

_INTERRUPTED_S = 2.0
"""How long to wait for an interrupted agent to say that it awaits a HELLO, before ours is written all the same."""

_BREATH = 512
"""Frames handled before other tasks of the event loop get their turn."""

_BREATH_BYTES = 16 * 1024
"""Bytes read before the same; each read counts as at least ``_READ_COST``."""

_READ_COST = 4096

_MAX_EVENT = 4096
_LAST_STREAM = 2**32 - 1

Orphans = Literal["kill", "keep"]


class _State(Enum):
    NEW = "new"
    UP = "up"
    QUIET = "quiet"
    """The agent has answered prepare_checkpoint and scans; the machine may be saved, or asleep."""
    DOWN = "down"


class Link:
    """One session with one agent. It dies as a whole, by the first breach of the protocol or the end of the channel."""

    def __init__(
        self, channel: Channel, session: str, on_event: Callable[[Mapping[str, Any]], None], answer_s: float
    ) -> None:
        """Take the channel over.

        Args:
            channel: to the agent.
            session: its name, not to be guessed.
            on_event: called with each event of stream 0.
            answer_s: how long a request may stay without an answer.
        """
        self.outbox = Outbox()
        self._channel = channel
        self._session = session
        self._on_event = on_event
        self._answer_s = answer_s
        self._state = _State.NEW
        self._streams: dict[int, Stream] = {}
        self._next = 1
        self._scanner: Scanner | None = None
        self._decoder = Decoder()
        self._greetings = 0
        self._awaited = asyncio.Event()
        self._hello: asyncio.Future[answers.Hello] | None = None
        self._pings: dict[bytes, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: SandyardError | None = None
        self._down = asyncio.Event()
        self._handlers: Mapping[FrameType, Callable[[Frame], None]] = {
            FrameType.DATA: self._on_data,
            FrameType.CREDIT: self._on_credit,
            FrameType.CLOSE: self._on_close,
            FrameType.PING: self._on_ping,
            FrameType.PONG: self._on_pong,
            FrameType.HELLO: self._on_hello,
        }

    @property
    def is_quiet(self) -> bool:
        """Whether the machine is being saved or asleep, so that no answer can come."""
        return self._state is _State.QUIET

    @property
    def is_up(self) -> bool:
        """Whether requests are answered now."""
        return self._state is _State.UP

    @property
    def open_streams(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    @property
    def error(self) -> SandyardError | None:
        """Why the session is over; None while it is not."""
        return self._error

    async def wait_down(self) -> SandyardError:
        """Return why the session is over, once it is."""
        await self._down.wait()
        return self._failure()

    # -- beginning ----------------------------------------------------------------------------------------------------

    async def attach(self, orphans: Orphans, timeout_s: float) -> answers.Hello:
        """Begin the session.

        Raises:
            StartTimeoutError: the agent did not answer in time.
            SandboxGoneError: the channel ended.
        """
        if self._state is not _State.NEW:
            raise self._failure()
        hello = await self._greet(orphans, timeout_s)
        self._start(self._write_all(self._channel))
        return hello

    async def reattach(self, channel: Channel | None, timeout_s: float) -> answers.Hello:
        """Go on with the session after ``prepare_checkpoint``, over a new channel where there is one.

        Raises:
            SandboxGoneError: the agent does not know the session any more.
            StartTimeoutError: the agent did not answer in time.
        """
        if self._state is not _State.QUIET:
            raise self._failure()
        await self._stop_tasks()
        if channel is not None and channel is not self._channel:
            self._channel.close()
            self._channel = channel
        hello = await self._greet("kill", timeout_s)
        if not hello.resumed:
            raise self.fail(
                SandboxGoneError("the sandbox's agent was started anew while it was away.", hint="Make the call again.")
            )
        self.outbox.release()
        self._start(self._write_all(self._channel))
        return hello

    async def _greet(self, orphans: Orphans, timeout_s: float) -> answers.Hello:
        """Write the HELLO, again if the agent may have missed it, and read what comes until it answers."""
        payload = {"version": VERSION, "session": self._session, "orphans": orphans}
        greeting = encode_hello(json.dumps(payload).encode())
        self._scanner = Scanner()
        self._hello = asyncio.get_running_loop().create_future()
        self._awaited.clear()
        self._greetings = 0
        self._start(self._read_all(self._channel))
        try:
            async with asyncio.timeout(timeout_s):
                if self._channel.is_interrupted:
                    # A signal that the agent handled only after our greeting would undo it.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_INTERRUPTED_S):
                            await self._awaited.wait()
                while True:
                    self._awaited.clear()
                    self._greetings += 1
                    await self._channel.write(greeting)
                    while not self._awaited.is_set():
                        await asyncio.wait({self._hello}, timeout=_RESEND_AFTER_S)
                        if self._hello.done():
                            return self._hello.result()
        except TimeoutError:
            raise self.fail(
                StartTimeoutError(
                    f"the sandbox's agent did not answer in {timeout_s:g} seconds.",
                    hint="The host may be overloaded or the sandbox short of memory; try again, or delete it.",
                )
            ) from None
        except BaseException as error:
            self.fail(error if isinstance(error, SandyardError) else _given_up())
            raise

    def _accept(self, payload: bytes) -> bool:
        """Judge a HELLO found while scanning: ours, if it names our session."""
        try:
            said = answers.parse(payload)
            if said.get("await") is True:
                self._awaited.set()
            if said.get("session") != self._session:
                return False
            if said.get("version") != VERSION:
                raise violation(f"a HELLO of another version than {VERSION}")
            hello = answers.hello(said)
        except ProtocolError:
            return False
        if self._hello is not None and not self._hello.done():
            self._hello.set_result(hello)
        if self._state is _State.NEW or hello.resumed:
            self._state = _State.UP  # frames may follow at once
        return True

    # -- requests -----------------------------------------------------------------------------------------------------

    async def open(self, op: str, fields: Mapping[str, Any], channels: tuple[int, ...] = ()) -> Stream:
        """Open a stream whose answers may carry data on ``channels``.

        Raises:
            SandyardError: the session is over.
            InvalidRequestError: the request is longer than a frame.
            ResourceExhaustedError: too many are open.
        """
        payload = json.dumps({"op": op, **fields}).encode()
        if len(payload) > MAX_PAYLOAD:
            raise InvalidRequestError(
                f"the request '{op}' takes {len(payload)} bytes; the most is {MAX_PAYLOAD}.",
                hint="Put long arguments or environment values into a file.",
                code="request-too-large",
            )
        self._check_room()
        while not self.outbox.takes_request(len(payload)):
            await self.outbox.room()
            self._check_room()
        stream = self._add_stream(channels)
        self.outbox.request(stream.number, encode(FrameType.OPEN, stream.number, payload))
        return stream

    def _add_stream(self, channels: tuple[int, ...]) -> Stream:
        stream = Stream(self, self._next, frozenset(channels))
        self._streams[self._next] = stream
        self._next += 1
        return stream

    def _check_room(self) -> None:
        if self._state in {_State.NEW, _State.DOWN} or self._next > _LAST_STREAM:
            raise self._failure()
        if len(self._streams) >= MAX_STREAMS:
            raise ResourceExhaustedError(
                f"{MAX_STREAMS} calls on this sandbox are open already.",
                hint="Wait for some to end.",
                code="too-many-streams",
            )

    async def request(self, op: str, fields: Mapping[str, Any], *, stall_s: float | None = None) -> Mapping[str, Any]:
        """Make a request without data and return its result.

        Raises:
            SandyardError: the agent answered with an error, or not in time: ``stall_s`` seconds where given.
        """
        stream = await self.open(op, fields)
        try:
            return await stream.ended(stall_s=self._answer_s if stall_s is None else stall_s)
        finally:
            stream.reset()

    def drop(self, number: int) -> None:
        """Reset a stream: tell the agent and forget it."""
        self._streams.pop(number, None)
        self.outbox.reset(number)

    async def ping(self, *, stall_s: float | None = None) -> None:
        """Wait for the agent to answer a PING.

        Raises:
            DeadlineExceededError: it did not in ``stall_s`` seconds.
        """
        if self._state in {_State.NEW, _State.DOWN}:
            raise self._failure()
        payload = secrets.token_bytes(8)
        waiter = asyncio.get_running_loop().create_future()
        self._pings[payload] = waiter
        try:
            self.outbox.control(encode(FrameType.PING, 0, payload))
            while not waiter.done():
                await asyncio.wait({waiter}, timeout=stall_s)
                if not waiter.done() and not self.is_quiet:
                    raise DeadlineExceededError(
                        f"the sandbox's agent did not answer in {stall_s:g} seconds.",
                        hint="Look whether the sandbox is paused, or out of processor time.",
                    )
            waiter.result()
        finally:
            del self._pings[payload]

    async def quiesce(self, *, timeout_s: float) -> None:
        """Have the agent fall silent with both directions at a frame boundary; ``reattach`` goes on.

        Raises:
            SandyardError: the agent refused; the session goes on.
            DeadlineExceededError: it did not answer; the session is over.
        """
        self._check_room()
        if self.outbox.is_held:
            raise ConflictError("the sandbox stands still already.", hint="Reattach first.", code="quiet-already")
        stream = self._add_stream(())
        self.outbox.hold(encode(FrameType.OPEN, stream.number, json.dumps({"op": "prepare_checkpoint"}).encode()))
        try:
            await stream.ended(stall_s=timeout_s)
        except BaseException:
            if stream.is_answered:
                self.outbox.release()
            else:
                self.fail(_given_up())
            raise
        self._state = _State.QUIET

    # -- the end ------------------------------------------------------------------------------------------------------

    def fail(self, error: SandyardError) -> SandyardError:
        """End the session and every open call with ``error``; the first reason given stands and is returned."""
        if self._error is not None:
            return self._error
        self._error = error
        self._state = _State.DOWN
        self._down.set()
        self._awaited.set()
        for stream in list(self._streams.values()):
            stream.on_end(error)
        self._streams.clear()
        waiters = [*self._pings.values(), self._hello]
        for waiter in waiters:
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # it may be that nobody waits
        self.outbox.close()
        self._channel.close()
        for task in self._tasks:
            task.cancel()
        return error

    async def close(self, error: SandyardError) -> None:
        """End the session with ``error``, and return when its tasks are gone."""
        self.fail(error)
        await self._stop_tasks()

    def _failure(self) -> SandyardError:
        if self._error is not None:
            return again(self._error)
        return TransportError(
            "the connection to the sandbox's agent is not in a state for this call.",
            hint="Attach once; reattach only after prepare_checkpoint.",
            code="not-attached",
        )

    async def _stop_tasks(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, SandyardError):
            broken = TransportError(f"the connection to the sandbox's agent broke: {error!r}.", hint="Connect again.")
            broken.__cause__ = error
            error = broken
        self.fail(error)

    # -- reading and writing ------------------------------------------------------------------------------------------

    async def _write_all(self, channel: Channel) -> None:
        while True:
            await channel.write(await self.outbox.take())

    async def _read_all(self, channel: Channel) -> None:
        taken = 0
        while data := await channel.read():
            await self._take(data)
            taken += len(data) + _READ_COST
            if taken >= _BREATH_BYTES:
                # A channel that always has something must not keep the event loop for itself.
                taken = 0
                await asyncio.sleep(0)
        if not self.is_quiet or self._scanner is not None:
            raise SandboxGoneError(
                "the sandbox ended, or its connection was cut, while it was in use.",
                hint="Look at its events for the reason; a new call wakes it if it only sleeps.",
            )

    async def _take(self, data: bytes) -> None:
        if self._scanner is not None:
            rest = self._scanner.feed(data, self._accept)
            if rest is None:
                return
            self._scanner = None
            # Where the greeting was repeated, the agent may have found both and answers twice.
            self._greetings -= 1
            self._decoder = Decoder(markers=self._greetings)
            data = rest
        for count, frame in enumerate(self._decoder.feed(data)):
            self._dispatch(frame)
            if count % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)

    def _dispatch(self, frame: Frame) -> None:
        if self.is_quiet:
            raise violation("a frame after it had promised silence")
        handler = self._handlers.get(frame.type)
        if handler is None:
            raise violation(f"a frame of type {frame.type.name}, which only a host may send here")
        handler(frame)

    def _stream_of(self, frame: Frame) -> Stream | None:
        """Return the stream of a frame; None where it has ended, for frames cross a RESET on their way."""
        if not 0 < frame.stream < self._next:
            raise violation("a frame on a stream that was never opened")
        return self._streams.get(frame.stream)

    def _on_data(self, frame: Frame) -> None:
        payload = frame.payload
        if not payload:
            raise violation("data without a channel")
        if frame.stream == 0:
            self._on_event_frame(payload)
            return
        stream = self._stream_of(frame)
        if stream is not None:
            stream.on_data(payload[0], payload[1:])

    def _on_event_frame(self, payload: bytes) -> None:
        if payload[0] != 0 or len(payload) > _MAX_EVENT:
            raise violation("an event that is too long or on another channel than 0")
        self._on_event(answers.parse(payload[1:]))

    def _on_credit(self, frame: Frame) -> None:
        if len(frame.payload) != CREDIT.size:
            raise violation("a credit that is not one number")
        stream = self._stream_of(frame)
        if stream is not None:
            stream.on_credit(CREDIT.unpack(frame.payload)[0])

    def _on_close(self, frame: Frame) -> None:
        stream = self._stream_of(frame)
        if stream is None:
            return
        outcome = answer_of(answers.parse(frame.payload))
        del self._streams[frame.stream]
        self.outbox.forget(frame.stream)
        stream.on_close(outcome)

    def _on_ping(self, frame: Frame) -> None:
        self._check_ping(frame)
        if not self.outbox.pong(encode(FrameType.PONG, 0, frame.payload)):
            raise violation("more PINGs than it reads the answers of")

    def _on_pong(self, frame: Frame) -> None:
        self._check_ping(frame)
        waiter = self._pings.get(frame.payload)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _on_hello(self, _: Frame) -> None:
        if not self._greetings:
            raise violation("a second answer to one HELLO")
        self._greetings -= 1

    def _check_ping(self, frame: Frame) -> None:
        if frame.stream != 0 or len(frame.payload) > MAX_PING:
            raise violation("a PING or PONG that is too long or on a stream of its own")


def new_session() -> str:
    """Return a session name that nobody guesses: leftovers of other connections must not be taken for an answer."""
    return secrets.token_hex(16)


def _given_up() -> SandyardError:
    return TransportError("the connection to the sandbox's agent was given up.", hint="Connect again.")
