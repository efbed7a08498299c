"""All that can be asked of a sandbox's agent, as methods."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import secrets
import time
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import Any

from sandyard.errors import InvalidRequestError, ResourceExhaustedError, SandboxGoneError, SandyardError, TransportError
from sandyard.frames import Channel
from sandyard.guest import answers
from sandyard.guest.answers import Entry, FileInfo, Hello, Info, ProcessEntry, Restored, Spawned, TarResult
from sandyard.guest.failures import printable
from sandyard.guest.link import Link, Orphans, new_session
from sandyard.guest.process import OUTPUT_LIMIT, STDERR, STDOUT, ExecResult, Process, PtySize
from sandyard.guest.stream import Stream
from sandyard.guest.transfer import CONTENT, FROM_PEER, Connection, Download, lines, upload

ANSWER_S = 60.0
"""How long a request may stay without an answer, or a transfer without progress, before it is given up."""

_SLOW = 10
"""How much longer that is for what walks whole trees."""

_KILL_GRACE_S = 30.0
"""How much later than its timeout a command's end must be told, before the agent is held to have hung."""

_MAX_TIMEOUT_S = 366 * 24 * 3600
_EXEC_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MAX_PROCESSES = 65_536
_MAX_LIST = 1_000_000


class Guest:
    """The host's end of one session with the agent in one sandbox.

    Every call ends: with its answer, an error of the agent, DeadlineExceededError where a quick answer is due, or the
    error that ended the session. Cancelling a call gives it up inside the sandbox as well.
    """

    def __init__(self, channel: Channel, *, session: str | None = None, answer_s: float = ANSWER_S) -> None:
        """Take ``channel`` over; ``attach`` makes it work."""
        self.session = session or new_session()
        self.on_hold: Callable[[int], None] | None = None
        """Called with ``held_until_unix_ms`` whenever something inside asks to be kept awake, or no longer."""
        self.held_until_unix_ms = 0
        self._link = Link(channel, self.session, self._on_event, answer_s)
        self._answer_s = answer_s
        self._renewer: asyncio.Task[None] | None = None

    # -- the session --------------------------------------------------------------------------------------------------

    async def attach(self, *, orphans: Orphans = "kill", timeout_s: float = 10) -> Hello:
        """Begin the session; ``orphans`` says what becomes of commands that an earlier one left running.

        Raises:
            StartTimeoutError: the agent did not answer in time.
            SandboxGoneError: the channel ended.
        """
        return await self._link.attach(orphans, timeout_s)

    async def reattach(self, channel: Channel | None = None, *, timeout_s: float = 10) -> Hello:
        """Go on after ``prepare_checkpoint``: every open stream continues where it was.

        Args:
            channel: that of the machine as it is now; None: the one in use.
            timeout_s: how long to wait for the agent.

        Raises:
            SandboxGoneError: the agent does not know the session, as it was started anew; open calls end with this.
            StartTimeoutError: the agent did not answer in time; open calls end with this.
        """
        return await self._link.reattach(channel, timeout_s)

    async def close(self, error: SandyardError | None = None) -> None:
        """End every open call with ``error``, and give the channel up; the machine lives on."""
        await self._stop_renewing()
        await self._link.close(
            error or TransportError("the connection to the sandbox was closed.", hint="Connect again.", code="closed")
        )

    @property
    def is_attached(self) -> bool:
        """Whether requests are answered now."""
        return self._link.is_up

    @property
    def open_streams(self) -> int:
        """Calls that have not ended, for telling idleness."""
        return self._link.open_streams

    @property
    def error(self) -> SandyardError | None:
        """Why the session is over; None while it is not."""
        return self._link.error

    async def wait_lost(self) -> SandyardError:
        """Return why the session is over, once it is."""
        return await self._link.wait_down()

    def _on_event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") != "hold":
            return
        until = answers.integer(event, "until_unix_ms")
        if until != self.held_until_unix_ms:
            self.held_until_unix_ms = until
            if self.on_hold is not None:
                self.on_hold(until)

    # -- commands -----------------------------------------------------------------------------------------------------

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "",
        stdin: bool = False,
        pty: PtySize | None = None,
        timeout_s: float | None = None,
        exec_id: str | None = None,
    ) -> Process:
        """Start a command; that it could not be started is told by the process's iteration or ``wait``.

        Args:
            argv: the program and its arguments; or else
            shell: a command line for ``/bin/sh -c``.
            env: the whole environment; HOME, USER, PATH and TERM are added where absent.
            cwd: empty: the user's home.
            user: empty: root; else a name or id, with ``:group`` if need be.
            stdin: whether input will be written; otherwise it is at its end from the start.
            pty: run it on a terminal of this size.
            timeout_s: after this its process group is killed.
            exec_id: unique; made up where none is given.

        Raises:
            InvalidRequestError: the command cannot be one.
        """
        exec_id = _exec_id(exec_id)
        fields = _command(argv, shell, env, cwd, user, timeout_s) | {
            "id": exec_id,
            "stdin": stdin,
            "pty": None if pty is None else pty._asdict(),
            "detach": False,
        }
        stream = await self._link.open("exec", fields, (STDOUT, STDERR))
        if timeout_s is not None:
            stream.expire_after(timeout_s + _KILL_GRACE_S)
        return Process(self._link, stream, exec_id)

    async def spawn(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "",
        pty: PtySize | None = None,
        timeout_s: float | None = None,
        exec_id: str | None = None,
    ) -> Spawned:
        """Start a detached command: it goes on whatever becomes of this session; ``attach_exec`` shows its output.

        Raises:
            CommandError: it could not be started; ``code`` says why.
        """
        exec_id = _exec_id(exec_id)
        fields = _command(argv, shell, env, cwd, user, timeout_s) | {
            "id": exec_id,
            "stdin": False,
            "pty": None if pty is None else pty._asdict(),
            "detach": True,
        }
        answer = await self._request("exec", fields)
        return Spawned(id=exec_id, pid=answers.integer(answer, "pid"))

    async def attach_exec(self, exec_id: str) -> Process:
        """Look at a running command: its last 256 KiB of output, then what comes.

        Iteration and ``wait`` raise NotFoundError (code ``exec-not-found``) where no such command runs.
        """
        return Process(self._link, await self._link.open("attach", {"exec": exec_id}, (STDOUT, STDERR)), exec_id)

    async def run(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "",
        stdin: bytes | None = None,
        pty: PtySize | None = None,
        timeout_s: float | None = None,
        limit: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        """Run a command to its end and return its output, of each channel the first ``limit`` bytes.

        Arguments and errors as in ``exec``; ``stdin`` is all of its input.
        """
        process = await self.exec(
            argv, shell=shell, env=env, cwd=cwd, user=user, stdin=stdin is not None, pty=pty, timeout_s=timeout_s
        )
        async with process:
            return await process.collect(stdin, limit=limit)

    async def processes(self) -> list[ProcessEntry]:
        """List the commands of ours that run, detached ones included."""
        answer = await self._request("processes")
        return [answers.process_entry(item) for item in answers.items(answer, "processes", most=_MAX_PROCESSES)]

    async def signal(self, exec_id: str, number: int, *, group: bool = True) -> None:
        """Send a signal to a running command.

        Raises:
            NotFoundError: no such command runs (code ``exec-not-found``).
        """
        await self._request("signal", {"exec": exec_id, "signal": number, "group": group})

    # -- files --------------------------------------------------------------------------------------------------------

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> Download[FileInfo]:
        """Read a file, or ``length`` bytes of it from ``offset``; see ``Download`` for how."""
        fields = _path(path) | {"offset": offset, "length": -1 if length is None else length}
        return self._download("read", fields, answers.file_info)

    async def read_bytes(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes:
        """Return a whole file.

        Raises:
            FileNotFoundInSandboxError: there is none.
            ResourceExhaustedError: it is longer than ``limit`` (code ``file-too-large``).
        """
        content = bytearray()
        async with self.read(path, length=limit + 1) as download:
            async for piece in download:
                content += piece
                if len(content) > limit:
                    raise ResourceExhaustedError(
                        f"the file is longer than {limit} bytes.", hint="Read it as a stream.", code="file-too-large"
                    )
        return bytes(content)

    async def write(
        self,
        path: str,
        source: bytes | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        parents: bool = False,
        user: str = "",
    ) -> int:
        """Write a file and return its size; it replaces what was there in one step, once it is complete.

        Args:
            path: followed through symlinks.
            source: its content; an iterable is read only as fast as the sandbox takes it.
            mode: permission bits; None: those of the file replaced, else 0644.
            parents: make missing directories.
            user: the owner; empty: root.

        Raises:
            NoSpaceError: the sandbox's disk is full; what was there before is untouched.
        """
        fields = _path(path) | {"parents": parents, "user": user}
        if mode is not None:
            fields["mode"] = mode
        stream = await self._link.open("write", fields)
        return answers.integer(await upload(stream, source, self._answer_s), "size")

    async def stat(self, path: str, *, follow: bool = True) -> Entry:
        """Describe what a path names; without ``follow`` a symlink itself."""
        return answers.entry(await self._request("stat", _path(path) | {"follow": follow}))

    async def list_dir(self, path: str, *, limit: int = _MAX_LIST) -> list[Entry]:
        """Describe what is in a directory.

        Raises:
            ResourceExhaustedError: there is more than ``limit`` (code ``directory-too-large``).
        """
        stream = await self._link.open("list", _path(path), (CONTENT,))
        entries: list[Entry] = []
        try:
            async for line in lines(stream, self._answer_s):
                entries.append(answers.listed_entry(line))
                if len(entries) > limit:
                    raise ResourceExhaustedError(
                        f"the directory has more than {limit} entries.",
                        hint="List it with a command inside the sandbox.",
                        code="directory-too-large",
                    )
        finally:
            stream.reset()
        return entries

    async def mkdir(self, path: str, *, parents: bool = False, mode: int = 0o755, user: str = "") -> bool:
        """Make a directory; False: with ``parents``, it was there."""
        fields = _path(path) | {"parents": parents, "mode": mode, "user": user}
        return answers.boolean(await self._request("mkdir", fields), "created")

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, an empty directory, or with ``recursive`` a whole tree."""
        await self._request("remove", _path(path) | {"recursive": recursive}, slow=recursive)

    async def move(self, source: str, target: str) -> None:
        """Move a file or directory; what a file lands on is replaced."""
        await self._request("move", _path(source, "from") | _path(target, "to"), slow=True)

    def tar_out(self, path: str) -> Download[None]:
        """Read a directory's content, or one file, as a tar archive; used as ``read`` is."""
        return self._download("tar_out", _path(path), lambda _: None)

    async def tar_in(self, path: str, source: bytes | AsyncIterable[bytes], *, user: str = "") -> TarResult:
        """Unpack a tar archive below ``path``; what would land elsewhere fails the whole (code ``unsafe-path``).

        Args:
            path: a directory.
            source: the archive.
            user: the owner of all of it; empty: the owners that the archive names.
        """
        stream = await self._link.open("tar_in", _path(path) | {"user": user})
        answer = await upload(stream, source, self._answer_s * _SLOW)
        return TarResult(files=answers.integer(answer, "files"), bytes=answers.integer(answer, "bytes"))

    def _download(self, op: str, fields: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], Any]) -> Download[Any]:
        async def opener() -> Stream:
            return await self._link.open(op, fields, (CONTENT,))

        return Download(opener, parse, self._answer_s)

    # -- connections and the machine ----------------------------------------------------------------------------------

    async def dial(self, network: str, address: str) -> Connection:
        """Connect to a server inside the sandbox: ``tcp`` and ``127.0.0.1:80``, or ``unix`` and a path.

        Raises:
            ConnectError: nothing answers there.
        """
        stream = await self._link.open("dial", {"network": network, "address": address}, (FROM_PEER,))
        try:
            await stream.credited(stall_s=self._answer_s)
        except BaseException:
            stream.reset()
            raise
        return Connection(stream)

    async def info(self) -> Info:
        """Return the state of the machine as its agent sees it."""
        return answers.info(await self._request("info"))

    async def ping(self) -> float:
        """Return the seconds that the agent took to answer."""
        start = time.perf_counter()
        await self._link.ping(stall_s=self._answer_s)
        return time.perf_counter() - start

    async def hold(self, seconds: float) -> int:
        """Keep the sandbox awake for so long, and return until when in Unix milliseconds; 0 ends it."""
        return answers.integer(await self._request("hold", {"seconds": seconds}), "held_until_unix_ms")

    async def lease(self, seconds: float) -> None:
        """Have the agent end the machine once it hears nothing of us for so long; renewed while attached, 0 ends it."""
        await self._stop_renewing()
        await self._request("lease", {"seconds": seconds})
        if seconds:
            self._renewer = asyncio.create_task(self._renew(seconds / 3))

    async def _renew(self, every_s: float) -> None:
        with contextlib.suppress(SandyardError):  # the session is over, which its calls tell
            while True:
                await asyncio.sleep(every_s)
                await self._link.ping()

    async def _stop_renewing(self) -> None:
        renewer, self._renewer = self._renewer, None
        if renewer is not None:
            await _end(renewer)

    async def prepare_checkpoint(self, *, timeout_s: float = 10) -> None:
        """Have the agent fall silent, both directions at a frame boundary, so that the machine can be saved.

        Calls may stay open; nothing of theirs moves until ``reattach``.

        Raises:
            SandyardError: the agent refused, and all goes on; or it did not answer, and the session is over.
        """
        await self._link.quiesce(timeout_s=timeout_s)

    async def after_restore(
        self,
        *,
        sandbox_id: str,
        hostname: str,
        entropy: bytes,
        time_unix_ns: int = 0,
        hooks_dir: str | None = None,
    ) -> Restored:
        """Tell a copy who it is: hostname, machine id, boot id, entropy, clock (0: left alone); then run its hooks."""
        fields: dict[str, Any] = {
            "id": sandbox_id,
            "hostname": hostname,
            "entropy": base64.b64encode(entropy).decode(),
            "time_unix_ns": time_unix_ns,
        }
        if hooks_dir is not None:
            fields["hooks_dir"] = hooks_dir
        return answers.restored(await self._request("after_restore", fields, slow=True))

    async def shutdown(self) -> None:
        """Have the agent end every process and then itself; the session ends with it."""
        with contextlib.suppress(SandboxGoneError):  # its end may overtake its answer
            await self._request("shutdown")

    async def _request(
        self, op: str, fields: Mapping[str, Any] | None = None, *, slow: bool = False
    ) -> Mapping[str, Any]:
        return await self._link.request(op, fields or {}, stall_s=self._answer_s * (_SLOW if slow else 1))


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _exec_id(wanted: str | None) -> str:
    if wanted is None:
        return f"ex_{secrets.token_hex(8)}"
    if not _EXEC_ID.fullmatch(wanted):
        raise InvalidRequestError(
            f"'{printable(wanted)}' cannot name a command.", hint="Use at most 128 letters, digits, '.', '_' and '-'."
        )
    return wanted


def _command(  # noqa: PLR0917 - the same six in every caller
    argv: Sequence[str] | None,
    shell: str | None,
    env: Mapping[str, str] | None,
    cwd: str,
    user: str,
    timeout_s: float | None,
) -> dict[str, Any]:
    """Return the fields of a command that can be one.

    Raises:
        InvalidRequestError: no program, both forms, or text that no process can be given.
    """
    if (argv is None) == (shell is None) or (argv is not None and not argv):
        raise InvalidRequestError(
            "a command is either a list with at least a program, or a shell line.", hint="Give one of the two."
        )
    if timeout_s is not None and not 0 < timeout_s <= _MAX_TIMEOUT_S:
        raise InvalidRequestError(
            f"a timeout cannot be {timeout_s:g} seconds.",
            hint=f"Give more than 0 and at most {_MAX_TIMEOUT_S}, or none.",
        )
    fields: dict[str, Any] = {"env": _environment(env or {}), "cwd": _text("cwd", cwd), "user": _text("user", user)}
    if argv is not None:
        fields["argv"] = [_text("argument", part) for part in argv]
    else:
        fields["shell"] = _text("shell line", shell or "")
    fields["timeout_ms"] = 0 if timeout_s is None else max(1, round(timeout_s * 1000))
    return fields


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    for name in env:
        if not name or "=" in name:
            raise InvalidRequestError(
                f"'{name}' cannot be the name of an environment variable.",
                hint="Use a name that is not empty and has no '='.",
                code="invalid-env",
            )
    return {_text("variable name", name): _text(f"value of {name}", value) for name, value in env.items()}


def _text(what: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        fault = "bytes that are not UTF-8"
    else:
        if "\0" not in value:
            return value
        fault = "a NUL character"
    raise InvalidRequestError(
        f"the {what} has {fault} in it.", hint="Put such data into a file or on stdin.", code="invalid-argument"
    )


def _path(path: str, key: str = "path") -> dict[str, Any]:
    """Return the field for a path, as base64 where it is not UTF-8."""
    if not path or "\0" in path:
        raise InvalidRequestError("a path is empty or has a NUL in it.", hint="Name a file.", code="invalid-path")
    try:
        path.encode()
    except UnicodeEncodeError:
        return {f"{key}_b64": base64.b64encode(path.encode("utf-8", "surrogateescape")).decode()}
    return {key: path}
