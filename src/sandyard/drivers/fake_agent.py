"""The fake machine's agent and processes: the guest's half of docs/agent-protocol.md over bytes in memory.

Nothing here waits: ``turn`` does what can be done now and says when to come back.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sandyard.drivers.fake_files import FileTree, Node, RefusedError, program_in, seeded
from sandyard.drivers.fake_programs import PROGRAMS, Run, step
from sandyard.drivers.fake_state import Command, MachineState, StreamState
from sandyard.errors import ProtocolError
from sandyard.frames import (
    CREDIT,
    MAX_DATA,
    MAX_PING,
    MAX_STREAMS,
    WINDOW,
    Decoder,
    Frame,
    FrameType,
    Scanner,
    encode,
    encode_data,
    encode_hello,
)
from sandyard.units import MIB

VERSION = "fake-1"

_REPLAY = 256 * 1024
_BACKLOG = 256 * 1024
"""Bytes of unsent output at which a command is made to wait."""

_HARMLESS = frozenset({0, 17, 18, 23, 28})
"""Signals that end nothing: 0, CHLD, CONT, URG, WINCH."""

_SIGSTOP, _SIGCONT, _SIGKILL = 19, 18, 9
_KEPT_ENDED = 32
_HOOK_STEPS = 10_000
_BASE_MEMORY = 20 * MIB
_BASE_CPU_US = 500
"""Processor time of one command, microseconds."""


@dataclass(slots=True)
class Clocks:
    """The two times that a machine sees."""

    machine_s: Callable[[], float]
    wall_ns: Callable[[], int]


_Operation = Callable[[StreamState], dict[str, Any] | None]
"""Returns the result, or None where the answer comes later; raises RefusedError."""


class FakeAgent:
    """A machine's memory at work. Feed it what the host wrote, and take what it has to say."""

    def __init__(self, state: MachineState, clocks: Clocks, *, capacity: int, was_saved: bool = False) -> None:
        """Boot from a fresh state, or go on from a saved one."""
        self.state = state
        self.files = FileTree(state.files, capacity)
        self.is_ended = False
        """Whether the agent ended its machine itself: by ``shutdown`` or a lease."""
        self.end_detail = ""
        self._clocks = clocks
        self._scanner: Scanner | None = Scanner()
        self._decoder = Decoder()
        self._control: list[bytes] = []
        self._operations: Mapping[str, _Operation] = {
            "exec": self._exec,
            "attach": self._attach,
            "signal": self._signal,
            "resize": self._resize,
            "processes": self._processes,
            "read": self._read,
            "write": self._write,
            "stat": self._stat,
            "list": self._list,
            "mkdir": self._mkdir,
            "remove": self._remove,
            "move": self._move,
            "tar_out": self._tar_out,
            "tar_in": self._tar_in,
            "dial": self._dial,
            "info": self._info,
            "hold": self._hold,
            "lease": self._lease,
            "prepare_checkpoint": self._prepare_checkpoint,
            "after_restore": self._after_restore,
            "shutdown": self._shutdown,
        }
        if not was_saved:
            self._await()

    @staticmethod
    def fresh(hostname: str) -> MachineState:
        """Return the state of a machine that has just booted."""
        return MachineState(files=seeded(sorted(PROGRAMS), hostname), hostname=hostname, boot_id=secrets.token_hex(16))

    # -- the wire -----------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """SIGUSR1: the frame under way, if there is one, will never be finished."""
        self._decoder = Decoder()
        self._scanner = Scanner()
        self.state.session = ""
        self._await()

    def _await(self) -> None:
        self._control = [_hello({"version": 1, "await": True})]

    @property
    def wants_input(self) -> bool:
        """Whether it reads on: not while a host that does not read has too many answers waiting."""
        return sum(map(len, self._control)) < _BACKLOG

    def feed(self, data: bytes) -> None:
        """Take bytes from the host."""
        while data:
            if self._scanner is not None:
                rest = self._scanner.feed(data, self._accept)
                if rest is None:
                    return
                self._scanner = None
                self._decoder = Decoder()
                data = rest
            try:
                for frame in self._decoder.feed(data):
                    self.state.heard_s = self.now_s()
                    self._handle(frame)
                    if self._scanner is not None:  # it was prepare_checkpoint
                        return
            except ProtocolError:
                data = self._decoder.rest
                self._scanner = Scanner()
                if not data.startswith(b"\xff"):
                    self.state.session = ""
                    self._await()
            else:
                return

    def _accept(self, payload: bytes) -> bool:
        try:
            said = json.loads(payload)
            session, orphans = str(said["session"]), str(said["orphans"])
        except (ValueError, KeyError, TypeError):
            return False
        if said.get("version") != 1 or not session or orphans not in {"kill", "keep"}:
            return False
        resumed = session == self.state.session
        if not resumed:
            self._end_session(keep=orphans == "keep")
            self.state.session, self.state.last_stream = session, 0
        self.state.heard_s = self.now_s()
        answer = {"version": 1, "session": session, "boot_id": self.state.boot_id, "agent": VERSION, "resumed": resumed}
        self._control.append(_hello(answer))
        return True

    def _end_session(self, *, keep: bool) -> None:
        self._control.clear()
        for command in self.state.commands:
            command.watchers.clear()
            if keep:
                command.detached, command.stdin_ended = True, True
        self.state.streams.clear()
        for command in [each for each in self.state.commands if not each.detached]:
            self._kill_group(command)

    def take(self) -> bytes:
        """Return the next bytes for the host: all small frames, or a frame of data; none: nothing to say."""
        if self._control:
            frames, self._control = b"".join(self._control), []
            return frames
        if self._scanner is not None:
            return b""
        for number, stream in list(self.state.streams.items()):
            frame = self._next_frame(stream)
            if frame:
                # To the back of the row, so that streams take turns.
                if number in self.state.streams:
                    self.state.streams[number] = self.state.streams.pop(number)
                return frame
        return b""

    def _next_frame(self, stream: StreamState) -> bytes:
        if stream.pending:
            channel, data = stream.pending[0]
            part = data[: min(stream.window, MAX_DATA)]
            if data and not part:
                return b""
            stream.window -= len(part)
            if len(part) == len(data):
                stream.pending.pop(0)
            else:
                stream.pending[0] = (channel, data[len(part) :])
            return encode_data(stream.number, channel, part)
        if stream.closing is not None:
            del self.state.streams[stream.number]
            return encode(FrameType.CLOSE, stream.number, json.dumps(stream.closing).encode())
        return b""

    def _handle(self, frame: Frame) -> None:
        if frame.type is FrameType.OPEN:
            self._open(frame)
        elif frame.type in {FrameType.PING, FrameType.PONG}:
            if frame.stream or len(frame.payload) > MAX_PING:
                raise _violation()
            if frame.type is FrameType.PING:
                self._control.append(encode(FrameType.PONG, 0, frame.payload))
        elif not 0 < frame.stream <= self.state.last_stream:
            raise _violation()
        else:
            self._handle_stream(frame, self.state.streams.get(frame.stream))

    def _handle_stream(self, frame: Frame, stream: StreamState | None) -> None:
        payload = frame.payload
        if frame.type is FrameType.DATA:
            if payload[:1] != b"\0":
                raise _violation()
            if stream is not None:
                self._data(stream, payload[1:])
        elif frame.type is FrameType.CREDIT:
            if len(payload) != CREDIT.size:
                raise _violation()
            if stream is not None:
                stream.window += CREDIT.unpack(payload)[0]
        elif frame.type is FrameType.RESET and not payload:
            if stream is not None:
                self._reset(stream)
        else:
            raise _violation()

    def _data(self, stream: StreamState, data: bytes) -> None:
        if len(data) > stream.room:
            raise _violation()
        stream.room -= len(data)
        if stream.op == "exec":
            command = self._of_stream(stream)
            if command is not None:
                command.stdin += data
                command.stdin_ended = command.stdin_ended or not data
        elif stream.op in {"write", "tar_in"}:
            stream.received.append(data)
            self._consume(stream, len(data))
            if not data:
                self._answer(stream, self._write_end if stream.op == "write" else self._tar_in_end)
        elif stream.op == "dial":
            stream.pending.append((1, data))
            self._consume(stream, len(data))
            if not data:
                stream.closing = {"result": {}}

    def _consume(self, stream: StreamState, count: int) -> None:
        stream.consumed += count
        if stream.consumed >= WINDOW // 4:
            stream.room += stream.consumed
            self._control.append(encode(FrameType.CREDIT, stream.number, CREDIT.pack(stream.consumed)))
            stream.consumed = 0

    def _reset(self, stream: StreamState) -> None:
        command = self._of_stream(stream)
        del self.state.streams[stream.number]
        if command is not None:
            command.watchers.remove(stream.number)
            if stream.op == "exec" and not command.detached:
                self._kill_group(command)

    def _open(self, frame: Frame) -> None:
        if frame.stream <= self.state.last_stream:
            raise _violation()
        self.state.last_stream = frame.stream
        stream = StreamState(frame.stream, "", {}, window=WINDOW, room=WINDOW)
        full = len(self.state.streams) >= MAX_STREAMS
        self.state.streams[frame.stream] = stream
        if full:
            stream.closing = _error("too-many-streams", "1,024 streams are open")
            return
        try:
            fields = json.loads(frame.payload)
            stream.op, stream.fields = fields["op"], fields
            operation = self._operations[stream.op]
        except (ValueError, TypeError):
            stream.closing = _error("bad-request", "the request is not a JSON object")
        except KeyError:
            stream.closing = _error("unknown-op", "this agent does not know the op")
        else:
            self._answer(stream, operation)

    def _answer(self, stream: StreamState, operation: _Operation) -> None:
        try:
            result = operation(stream)
        except RefusedError as error:
            stream.closing = _error(error.code, error.message)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            stream.closing = _error("bad-request", f"the request has a field missing or ill-typed: {error}")
        else:
            if result is not None:
                stream.closing = {"result": result}

    # -- time and processes -------------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Machine time."""
        return self._clocks.machine_s()

    def now_ns(self) -> int:
        """Wall time."""
        return self._clocks.wall_ns()

    def hostname(self) -> str:
        """The machine's name."""
        return self.state.hostname

    def turn(self) -> float | None:
        """Let every process work until all of them wait; return the machine time of the next that is due, if any."""
        state = self.state
        for command in list(state.commands):
            self._check_timeout(command)
            self._work(command, command)
        for orphan in list(state.orphans):
            self._work(orphan, orphan)
        state.orphans = [orphan for orphan in state.orphans if orphan.exit_code is None]
        if state.lease_s and self.now_s() - state.heard_s >= state.lease_s:
            self._end_machine("its lease was not renewed")
        due = [at for command in self._all() for at in (command.wake_at_s, command.kill_at_s) if at is not None]
        if state.lease_s:
            due.append(state.heard_s + state.lease_s)
        return min(due, default=None)

    def _work(self, root: Command, command: Command) -> None:
        run = Run(self, root, command)
        steps = 0
        while command.exit_code is None and not command.stopped and self._may_print(root) and step(run):
            steps += 1
            if steps == 64:  # noqa: PLR2004 - then others get their turn; an endless printer stops by its backlog
                break
        if command.exit_code is not None and command in self.state.commands:
            self._finish(command)

    def has_work(self) -> bool:
        """Whether some process could go on at once, were it given another turn."""
        return any(
            command.program == "yes" and not command.stopped and self._may_print(command)
            for command in self.state.commands
        )

    def _may_print(self, root: Command) -> bool:
        backlog = (self.state.streams[number].pending for number in root.watchers if number in self.state.streams)
        return all(sum(len(data) for _, data in pending) < _BACKLOG for pending in backlog)

    def _check_timeout(self, command: Command) -> None:
        if command.kill_at_s is not None and self.now_s() >= command.kill_at_s:
            command.timed_out = True
            self._kill_group(command)

    def _kill_group(self, command: Command, signal: int = _SIGKILL) -> None:
        self.state.orphans = [orphan for orphan in self.state.orphans if orphan.group != command.group]
        command.exit_code, command.signal = 128 + signal, signal
        self._finish(command)

    def _finish(self, command: Command) -> None:
        self.state.commands.remove(command)
        command.ended_s = self.now_s()
        if command.detached:
            self.state.over = [*self.state.over, command][-_KEPT_ENDED:]
        for number in command.watchers:
            if number in self.state.streams:
                self.state.streams[number].closing = {"result": _result(command)}

    def _all(self) -> Iterable[Command]:
        for root in [*self.state.commands, *self.state.orphans]:
            command: Command | None = root
            while command is not None:
                yield command
                command = command.child

    def output(self, root: Command, channel: int, data: bytes) -> None:
        """Send output to all who watch, and keep the end of it for those who come."""
        if not data:
            return
        channel = 1 if root.pty is not None else channel
        root.replay.append((channel, data))
        while sum(len(part) for _, part in root.replay) - len(root.replay[0][1]) >= _REPLAY:
            root.replay.pop(0)
        for number in root.watchers:
            self.state.streams[number].pending.append((channel, data))

    def input(self, root: Command, most: int) -> bytes:
        """Take bytes from stdin, and let the host send as many more."""
        data, root.stdin = root.stdin[:most], root.stdin[most:]
        for number in root.watchers:
            stream = self.state.streams.get(number)
            if stream is not None and stream.op == "exec":
                self._consume(stream, len(data))
        return data

    def start(self, parent: Command, words: list[str]) -> Command:
        """Make the process of a shell's command."""
        program, args, state = self._find(words, parent.env, parent.cwd)
        return self._process(program, args, state, parent, group=parent.group)

    def leave(self, command: Command) -> None:
        """Let a process go on without its shell."""
        self.state.orphans.append(command)

    def hold(self, seconds: float) -> int:
        """Keep the machine awake for so long."""
        until = self.now_ns() // 10**6 + round(seconds * 1000) if seconds else 0
        self.state.held_until_unix_ms = until
        event = json.dumps({"event": "hold", "until_unix_ms": until}).encode()
        self._control.append(encode_data(0, 0, event))
        return until

    def _process(
        self, program: str, args: list[str], state: dict[str, Any], like: Command, *, group: int = 0
    ) -> Command:
        pid = self.state.next_pid
        self.state.next_pid += 1
        return Command(
            id="", pid=pid, group=group or pid, program=program, args=args, env=like.env, cwd=like.cwd, uid=like.uid,
            gid=like.gid, started_s=self.now_s(), started_unix_ms=self.now_ns() // 10**6, state=state,
        )  # fmt: skip

    def _find(self, words: list[str], env: Mapping[str, str], cwd: str) -> tuple[str, list[str], dict[str, Any]]:
        """Return the built-in program that a command line runs, its arguments, and what it starts with."""
        name = words[0]
        paths = [name if name.startswith("/") else f"{cwd}/{name}"] if "/" in name else [
            f"{directory}/{name}" for directory in env.get("PATH", "").split(":") if directory
        ]  # fmt: skip
        for path in paths:
            try:
                node = self.files.read(path)
            except RefusedError as error:
                if error.code == "is-a-directory":
                    raise RefusedError("command-not-executable", "is a directory") from None
                continue
            if not node.mode & 0o111:
                raise RefusedError("command-not-executable", "permission denied")
            program = program_in(node.data)
            if program is None:
                return "sh", [path, *words[1:]], {"script": node.data.decode()}
            return program, words[1:], {}
        raise RefusedError("command-not-found", f"{name}: not found")

    def _end_machine(self, detail: str) -> None:
        self.is_ended = True
        self.end_detail = detail

    # -- what the host accounts ---------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Return what is held now."""
        held = sum(int(command.args[0]) * MIB for command in self._all() if command.program == "alloc")
        return _BASE_MEMORY + held

    def busy(self) -> int:
        """Return how many processes keep a processor busy."""
        return sum(command.program in {"burn", "yes"} and not command.stopped for command in self._all())

    # -- requests -----------------------------------------------------------------------------------------------------

    def _of_stream(self, stream: StreamState) -> Command | None:
        return next((each for each in self.state.commands if stream.number in each.watchers), None)

    def _by_id(self, fields: Mapping[str, Any]) -> Command:
        found = next((each for each in self.state.commands if each.id == fields["exec"]), None)
        if found is None:
            raise RefusedError("exec-not-found", f"no command {fields['exec']} runs")
        return found

    def _exec(self, stream: StreamState) -> dict[str, Any] | None:
        fields = stream.fields
        if any(each.id == fields["id"] for each in self.state.commands):
            raise RefusedError("exec-exists", f"the command {fields['id']} exists")
        user, uid, gid, home = self._user(fields.get("user", ""))
        cwd = fields.get("cwd") or home
        try:
            cwd = self.files.directory(cwd)
        except RefusedError:
            raise RefusedError("cwd-not-found", f"{cwd}: no such directory") from None
        env = {"HOME": home, "USER": user, "PATH": "/usr/local/bin:/usr/bin:/bin", **fields.get("env", {})}
        pty = fields.get("pty")
        if pty is not None:
            env.setdefault("TERM", "xterm")
        words = ["/bin/sh", "-c", fields["shell"]] if fields.get("shell") is not None else list(fields["argv"])
        try:
            program, args, state = self._find(words, env, cwd)
        except RefusedError:
            if fields.get("argv"):
                raise
            raise RefusedError("no-shell", "/bin/sh: not found") from None
        like = Command("", 0, 0, "", [], env, cwd, uid, gid, 0, 0)
        command = self._process(program, args, state, like)
        command.id = fields["id"]
        command.pty = None if pty is None else (pty["rows"], pty["cols"])
        command.detached = bool(fields.get("detach"))
        command.stdin_ended = not fields.get("stdin") or command.detached
        if fields.get("timeout_ms"):
            command.kill_at_s = self.now_s() + fields["timeout_ms"] / 1000
        self.state.commands.append(command)
        if command.detached:
            return {"pid": command.pid, "exec": command.id}
        command.watchers.append(stream.number)
        return None

    def _user(self, wanted: str) -> tuple[str, int, int, str]:
        """Return name, uid, gid and home, as the machine's own files say."""
        name, _, group = (wanted or "root").partition(":")
        rows = [line.split(":") for line in self.files.read("/etc/passwd").data.decode().splitlines()]
        row = next((row for row in rows if name in {row[0], row[2]}), None)
        if row is None and not name.isdigit():
            raise RefusedError("user-not-found", f"no user {name} in /etc/passwd")
        user, uid, gid, home = (row[0], int(row[2]), int(row[3]), row[5]) if row else (name, int(name), 0, "/")
        return user, uid, self._group(group) if group else gid, home

    def _group(self, wanted: str) -> int:
        rows = [line.split(":") for line in self.files.read("/etc/group").data.decode().splitlines()]
        row = next((row for row in rows if wanted in {row[0], row[2]}), None)
        if row is None and not wanted.isdigit():
            raise RefusedError("user-not-found", f"no group {wanted} in /etc/group")
        return int(row[2]) if row else int(wanted)

    def _owner(self, fields: Mapping[str, Any]) -> tuple[int, int]:
        return self._user(fields.get("user", ""))[1:3]

    def _attach(self, stream: StreamState) -> dict[str, Any] | None:
        over = next((each for each in self.state.over if each.id == stream.fields["exec"]), None)
        command = over or self._by_id(stream.fields)
        stream.pending.extend(command.replay)
        if over is not None:
            return _result(over)
        command.watchers.append(stream.number)
        return None

    def _signal(self, stream: StreamState) -> dict[str, Any]:
        command, number = self._by_id(stream.fields), int(stream.fields["signal"])
        if number == _SIGSTOP:
            command.stopped = True
        elif number == _SIGCONT:
            command.stopped = False
        elif number not in _HARMLESS:
            self._kill_group(command, number)
        return {}

    def _resize(self, stream: StreamState) -> dict[str, Any]:
        self._by_id(stream.fields).pty = (int(stream.fields["rows"]), int(stream.fields["cols"]))
        return {}

    def _processes(self, _: StreamState) -> dict[str, Any]:
        return {
            "processes": [
                {
                    "exec": each.id,
                    "pid": each.pid,
                    "argv": [each.program, *each.args],
                    "detached": each.detached,
                    "started_unix_ms": each.started_unix_ms,
                }
                for each in self.state.commands
            ]
        }

    def _read(self, stream: StreamState) -> dict[str, Any]:
        fields = stream.fields
        node = self.files.read(_path(fields))
        start, length = int(fields.get("offset", 0)), int(fields.get("length", -1))
        stream.pending.extend(_pieces(node.data[start:] if length < 0 else node.data[start : start + length]))
        return {"size": len(node.data), "mode": node.mode, "mtime_ns": node.mtime_ns}

    def _write(self, stream: StreamState) -> None:
        """Refuse at once what cannot succeed; the rest comes with the content."""
        real = self.files.resolve(_path(stream.fields)) if not stream.fields.get("parents") else ""
        node = self.files.nodes.get(real)
        if node is not None and node.type == "directory":
            raise RefusedError("is-a-directory", "a directory is there")
        if real:
            self.files.directory(real.rsplit("/", 1)[0] or "/")

    def _write_end(self, stream: StreamState) -> dict[str, Any]:
        fields = stream.fields
        uid, gid = self._owner(fields)
        content = b"".join(stream.received)
        node = Node("file", int(fields.get("mode", 0o644)), content, uid=uid, gid=gid, mtime_ns=self.now_ns())
        self.files.write(_path(fields), node, parents=bool(fields.get("parents")), keep_mode="mode" not in fields)
        return {"size": len(content)}

    def _stat(self, stream: StreamState) -> dict[str, Any]:
        real, _ = self.files.get(_path(stream.fields), follow=stream.fields.get("follow", True))
        return self.files.entry(real)

    def _list(self, stream: StreamState) -> dict[str, Any]:
        real = self.files.directory(_path(stream.fields))
        names = self.files.children(real)
        lines = [json.dumps(self.files.entry(f"{real.rstrip('/')}/{name}")) + "\n" for name in names]
        stream.pending.extend(_pieces("".join(lines).encode()))
        return {"count": len(names)}

    def _mkdir(self, stream: StreamState) -> dict[str, Any]:
        fields = stream.fields
        created = self.files.mkdir(
            _path(fields), parents=bool(fields.get("parents")), mode=int(fields.get("mode", 0o755)),
            owner=self._owner(fields), now_ns=self.now_ns(),
        )  # fmt: skip
        return {"created": created}

    def _remove(self, stream: StreamState) -> dict[str, Any]:
        self.files.remove(_path(stream.fields), recursive=bool(stream.fields.get("recursive")))
        return {}

    def _move(self, stream: StreamState) -> dict[str, Any]:
        self.files.move(_path(stream.fields, "from"), _path(stream.fields, "to"))
        return {}

    def _tar_out(self, stream: StreamState) -> dict[str, Any]:
        stream.pending.extend(_pieces(self.files.tar(_path(stream.fields))))
        return {}

    def _tar_in(self, stream: StreamState) -> None:
        self.files.mkdir(_path(stream.fields), parents=True, mode=0o755, owner=(0, 0), now_ns=self.now_ns())

    def _tar_in_end(self, stream: StreamState) -> dict[str, Any]:
        owner = self._owner(stream.fields) if stream.fields.get("user") else None
        files, size = self.files.untar(_path(stream.fields), b"".join(stream.received), owner)
        return {"files": files, "bytes": size}

    def _dial(self, stream: StreamState) -> None:
        address = str(stream.fields["address"])
        wanted = address if stream.fields["network"] == "unix" else address.rpartition(":")[2]
        if not any(command.program == "listen" and command.args == [wanted] for command in self._all()):
            raise RefusedError("connection-refused", f"nothing listens at {address}")
        self._control.append(encode(FrameType.CREDIT, stream.number, CREDIT.pack(0)))

    def _info(self, _: StreamState) -> dict[str, Any]:
        state = self.state
        return {
            "version": 1,
            "agent": VERSION,
            "boot_id": state.boot_id,
            "id": state.id,
            "hostname": state.hostname,
            "uptime_ms": round(self.now_s() * 1000),
            "processes": 1 + sum(1 for _ in self._all()),
            "memory_total_kib": 1024 * 1024,
            "memory_available_kib": 1024 * 1024 - self.memory_bytes() // 1024,
            "held_until_unix_ms": state.held_until_unix_ms,
            "execs": len(state.commands),
        }

    def _hold(self, stream: StreamState) -> dict[str, Any]:
        return {"held_until_unix_ms": self.hold(float(stream.fields["seconds"]))}

    def _lease(self, stream: StreamState) -> dict[str, Any]:
        self.state.lease_s = float(stream.fields["seconds"])
        return {}

    def _prepare_checkpoint(self, stream: StreamState) -> None:
        del self.state.streams[stream.number]
        self._control.append(encode(FrameType.CLOSE, stream.number, b'{"result": {}}'))
        self._scanner = Scanner()

    def _after_restore(self, stream: StreamState) -> dict[str, Any]:
        fields, state = stream.fields, self.state
        base64.b64decode(fields["entropy"], validate=True)
        state.id, state.hostname, state.boot_id = str(fields["id"]), str(fields["hostname"]), secrets.token_hex(16)
        self._rewrite("/etc/hostname", f"{state.hostname}\n")
        self._rewrite("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {state.hostname}\n")
        self._rewrite("/etc/machine-id", f"{state.id.encode().hex():0<32.32}\n")
        hooks_dir = str(fields.get("hooks_dir", "/etc/sandyard/after-restore.d"))
        return {"boot_id": state.boot_id, "hooks": [self._hook(path) for path in self._hooks(hooks_dir)]}

    def _rewrite(self, path: str, text: str) -> None:
        if path in self.files.nodes:
            self.files.write(path, Node("file", 0o644, text.encode(), mtime_ns=self.now_ns()), keep_mode=True)

    def _hooks(self, directory: str) -> list[str]:
        try:
            real = self.files.directory(directory)
        except RefusedError:
            return []
        paths = [f"{real.rstrip('/')}/{name}" for name in self.files.children(real)]
        return [path for path in paths if self.files.nodes[path].mode & 0o111]

    def _hook(self, path: str) -> dict[str, Any]:
        env = {"PATH": "/usr/bin:/bin"}
        program, args, state = self._find([path], env, "/")
        command = self._process(program, args, state, Command("", 0, 0, "", [], env, "/", 0, 0, 0, 0))
        run = Run(self, command, command)
        for _ in range(_HOOK_STEPS):
            if command.exit_code is not None or not step(run):
                break
        exit_code = 128 + _SIGKILL if command.exit_code is None else command.exit_code
        return {"name": path.rsplit("/", 1)[-1], "exit_code": exit_code}

    def _shutdown(self, _: StreamState) -> dict[str, Any]:
        self._end_machine("it was shut down from inside")
        return {}


def _result(command: Command) -> dict[str, Any]:
    """Return what is told of a command's end."""
    elapsed_us = round((command.ended_s - command.started_s) * 1e6)
    return {
        "exit_code": command.exit_code,
        "signal": command.signal,
        "timed_out": command.timed_out,
        "pid": command.pid,
        "fork_exec_wait_us": elapsed_us,
        "user_us": _BASE_CPU_US + (elapsed_us if command.program in {"burn", "yes"} else 0),
        "system_us": 0,
        "max_rss_kib": 1024,
    }


def _path(fields: Mapping[str, Any], key: str = "path") -> str:
    encoded = fields.get(f"{key}_b64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
    path = fields[key]
    if not isinstance(path, str) or not path or "\0" in path:
        raise RefusedError("bad-request", "a path is empty, has a NUL, or is no string")
    return path


def _pieces(content: bytes) -> list[tuple[int, bytes]]:
    """Cut file content into what a frame carries."""
    return [(0, content[start : start + MAX_DATA]) for start in range(0, len(content), MAX_DATA)]


def _hello(body: Mapping[str, Any]) -> bytes:
    return encode_hello(json.dumps(body).encode())


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _violation() -> ProtocolError:
    return ProtocolError("the host sent what the protocol forbids.", hint="This is a defect worth reporting.")
