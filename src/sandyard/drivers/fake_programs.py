"""The programs of a fake machine. Each works in small steps and keeps what it needs in its command's ``state``."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Protocol

from sandyard.drivers.fake_files import FileTree, Node, RefusedError
from sandyard.drivers.fake_state import Command
from sandyard.units import MIB

_BLOCK = 64 * 1024
"""Bytes that one step reads or prints."""


class Kernel(Protocol):
    """What a program may ask of its machine."""

    files: FileTree

    def now_s(self) -> float:
        """Machine time."""
        ...

    def now_ns(self) -> int:
        """Wall time, nanoseconds since 1970."""
        ...

    def hostname(self) -> str:
        """The machine's name."""
        ...

    def hold(self, seconds: float) -> int:
        """Keep the machine awake, and return until when."""
        ...

    def output(self, root: Command, channel: int, data: bytes) -> None:
        """Send output of a command of the host's to all who watch it."""
        ...

    def input(self, root: Command, most: int) -> bytes:
        """Take bytes from a command's stdin."""
        ...

    def start(self, parent: Command, words: list[str]) -> Command:
        """Make the process of a shell's command, not yet run.

        Raises:
            RefusedError: there is no such program.
        """
        ...

    def leave(self, command: Command) -> None:
        """Let a process go on without its shell."""
        ...


class Run:
    """One program's view of the world during one step."""

    def __init__(self, kernel: Kernel, root: Command, command: Command) -> None:
        """Run ``command``, which is ``root`` or a process that ``root`` waits for."""
        self.kernel = kernel
        self.root = root
        self.command = command

    def out(self, data: bytes, channel: int = 1) -> None:
        """Print, to where the shell has redirected it."""
        where = self.command.redirects.get(str(channel), "")
        if where.startswith("&"):
            self.kernel.output(self.root, int(where[1:]), data)
        elif where:
            self._append(where.lstrip(">"), data)
        else:
            self.kernel.output(self.root, channel, data)

    def _append(self, path: str, data: bytes) -> None:
        files = self.kernel.files
        path = absolute(self.command, path)
        try:
            old = files.read(path).data
        except RefusedError:
            old = b""
        files.write(path, Node("file", 0o644, old + data, mtime_ns=self.kernel.now_ns()), keep_mode=True)

    def fail(self, text: str, code: int = 1) -> bool:
        """Say on stderr what is wrong, and end."""
        self.out(f"{self.command.program}: {text}\n".encode(), 2)
        return self.exit(code)

    def exit(self, code: int) -> bool:
        """End with an exit code."""
        self.command.exit_code = code
        return True

    def sleep(self, seconds: float) -> bool:
        """Do nothing for so long; True once it has passed."""
        command, now = self.command, self.kernel.now_s()
        if command.wake_at_s is None:
            command.wake_at_s = now + seconds
        if now < command.wake_at_s:
            return False
        command.wake_at_s = None
        return True


def absolute(command: Command, path: str) -> str:
    """Return a path as the command means it."""
    return path if path.startswith("/") else f"{command.cwd.rstrip('/')}/{path}"


def step(run: Run) -> bool:
    """Let a program do some work; False: it waits for input, time or room."""
    try:
        return PROGRAMS[run.command.program](run)
    except RefusedError as error:
        return run.fail(error.message)


# -- programs ----------------------------------------------------------------------------------------------------------


def _true(run: Run) -> bool:
    return run.exit(0)


def _false(run: Run) -> bool:
    return run.exit(1)


def _echo(run: Run) -> bool:
    words = run.command.args
    newline = words[:1] != ["-n"]
    run.out((" ".join(words if newline else words[1:]) + "\n" * newline).encode())
    return run.exit(0)


def _env(run: Run) -> bool:
    run.out("".join(f"{name}={value}\n" for name, value in run.command.env.items()).encode())
    return run.exit(0)


def _pwd(run: Run) -> bool:
    run.out(f"{run.command.cwd}\n".encode())
    return run.exit(0)


def _id(run: Run) -> bool:
    command = run.command
    wanted = {"-u": f"{command.uid}", "-g": f"{command.gid}"}.get("".join(command.args[:1]))
    run.out(f"{wanted or f'uid={command.uid} gid={command.gid}'}\n".encode())
    return run.exit(0)


def _hostname(run: Run) -> bool:
    run.out(f"{run.kernel.hostname()}\n".encode())
    return run.exit(0)


def _cat(run: Run) -> bool:
    if not run.command.args:
        return _each_input(run, run.out)
    at = run.command.state.setdefault("at", 0)
    left = run.command.state.setdefault("left", run.command.args.copy())
    if not left:
        return run.exit(0)
    data = run.kernel.files.read(absolute(run.command, left[0])).data
    run.out(data[at : at + _BLOCK])
    run.command.state["at"] = at + _BLOCK
    if at + _BLOCK >= len(data):
        left.pop(0)
        run.command.state["at"] = 0
    return True


def _wc(run: Run) -> bool:
    state = run.command.state

    def count(data: bytes) -> None:
        state["count"] = state.get("count", 0) + len(data)

    if run.root.stdin_ended and not run.root.stdin:
        run.out(f"{state.get('count', 0)}\n".encode())
    return _each_input(run, count)


def _each_input(run: Run, use: Callable[[bytes], None]) -> bool:
    data = run.kernel.input(run.root, _BLOCK)
    if data:
        use(data)
        return True
    return run.root.stdin_ended and run.exit(0)


def _sleep(run: Run) -> bool:
    if run.command.args == ["infinity"]:
        return False
    return run.sleep(float(run.command.args[0])) and run.exit(0)


def _yes(run: Run) -> bool:
    line = (" ".join(run.command.args) or "y").encode() + b"\n"
    run.out(line * (_BLOCK // len(line) or 1))
    return True


def _head(run: Run) -> bool:
    flag, amount, *path = run.command.args
    if flag != "-c":
        return run.fail("only 'head -c N [FILE]' is known here", 2)
    total = _amount(amount)
    done = run.command.state.setdefault("done", 0)
    if done >= total:
        return run.exit(0)
    most = min(_BLOCK, total - done)
    data = _source(run, path[0], done, most) if path else run.kernel.input(run.root, most)
    run.out(data)
    run.command.state["done"] = done + len(data)
    if data:
        return True
    return (bool(path) or run.root.stdin_ended) and run.exit(0)


def _source(run: Run, path: str, start: int, most: int) -> bytes:
    if path == "/dev/zero":
        return bytes(most)
    if path == "/dev/urandom":
        return random.Random(f"{run.command.pid} {start}").randbytes(most)  # noqa: S311 - noise, not a secret
    return run.kernel.files.read(absolute(run.command, path)).data[start : start + most]


def _amount(text: str) -> int:
    factor = {"K": 1024, "M": MIB, "G": 1024 * MIB}.get(text[-1:].upper())
    return int(text) if factor is None else int(text[:-1]) * factor


def _touch(run: Run) -> bool:
    for path in run.command.args:
        there = absolute(run.command, path)
        try:
            data = run.kernel.files.read(there).data
        except RefusedError:
            data = b""
        run.kernel.files.write(there, Node("file", 0o644, data, mtime_ns=run.kernel.now_ns()), keep_mode=True)
    return run.exit(0)


def _rm(run: Run) -> bool:
    flags = {"-f", "-r", "-rf"} & set(run.command.args)
    for path in run.command.args:
        if path not in flags:
            run.kernel.files.remove(absolute(run.command, path), recursive="-r" in flags or "-rf" in flags)
    return run.exit(0)


def _stty(run: Run) -> bool:
    size = run.root.pty
    if size is None:
        return run.fail("standard input is not a terminal")
    run.out(f"{size[0]} {size[1]}\n".encode())
    return run.exit(0)


def _stay(_: Run) -> bool:
    """Do nothing for ever: the machine looks for ``alloc MIB`` (memory held) and ``listen PORT`` (an echo server)."""
    return False


def _burn(run: Run) -> bool:
    """Keep one processor busy for so many seconds, which its machine counts by this command's being there."""
    return run.sleep(float(run.command.args[0]) if run.command.args else 1e9) and run.exit(0)


def _agent(run: Run) -> bool:
    match run.command.args:
        case ["hold", duration] if match := re.fullmatch(r"(\d+)([smh]?)", duration):
            run.kernel.hold(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]])
            return run.exit(0)
        case _:
            return run.fail("usage: sandyard-agent hold 10m", 2)


def _count(run: Run) -> bool:
    """Count in memory, and write each number to a file: the loop that ``sh -c`` knows by its text."""
    state = run.command.state
    if state["i"] and not run.sleep(state["every_s"]):
        return False
    state["i"] += 1
    text = Node("file", 0o644, f"{state['i']}\n".encode(), mtime_ns=run.kernel.now_ns())
    run.kernel.files.write(absolute(run.command, state["file"]), text, keep_mode=True)
    return True


# -- the shell ---------------------------------------------------------------------------------------------------------

_COUNTER = re.compile(r"i=0; while :; do i=\$\(\(i\+1\)\); echo \$i > (?P<file>\S+); sleep (?P<every>[\d.]+); done")
_ENDS = {";", "&&", "||", "&"}


def _sh(run: Run) -> bool:
    """Run commands joined by ``;``, ``&&``, ``||`` or ``&``, with ``>``, ``>>`` and ``>&2``; and one counting loop."""
    command, state = run.command, run.command.state
    if "steps" not in state:
        script = command.args[1] if command.args[:1] == ["-c"] else state["script"]
        counter = _COUNTER.fullmatch(script.strip())
        if counter is not None:
            command.program = "count"
            state |= {"i": 0, "file": counter["file"], "every_s": float(counter["every"])}
            return True
        state |= {"steps": _parse(script), "status": 0}
    if command.child is not None:
        return _wait_for(run, command.child)
    if not state["steps"]:
        return run.exit(state["status"])
    words, redirects, after = state["steps"].pop(0)
    if words:
        _begin(run, _expand(words, command.env), redirects, after)
    return True


def _begin(run: Run, words: list[str], redirects: dict[str, str], after: str) -> None:
    command, state = run.command, run.command.state
    if words[0] == "exit":
        run.exit(int(words[1]) if words[1:] else state["status"])
        return
    if words[0] == "cd":
        command.cwd = run.kernel.files.directory(absolute(command, words[1]))
        return
    try:
        child = run.kernel.start(command, words)
    except RefusedError as error:
        run.out(f"sh: {words[0]}: {error.message}\n".encode(), 2)
        _ended(state, 126 if error.code == "command-not-executable" else 127, after)
        return
    child.redirects = {**command.redirects, **redirects}
    for where in redirects.values():
        if where.startswith(">") and not where.startswith(">>"):
            run.kernel.files.write(absolute(child, where[1:]), Node("file", 0o644, mtime_ns=run.kernel.now_ns()))
    if after == "&":
        run.kernel.leave(child)
        return
    state["after"] = after
    command.child = child


def _wait_for(run: Run, child: Command) -> bool:
    worked = step(Run(run.kernel, run.root, child))
    if child.exit_code is not None:
        run.command.child = None
        _ended(run.command.state, child.exit_code, run.command.state["after"])
        return True
    return worked


def _ended(state: dict[str, object], status: int, after: str) -> None:
    """Take a status; after ``&&`` a failure, and after ``||`` a success, skips the command behind it."""
    state["status"] = status
    steps = state["steps"]
    if isinstance(steps, list) and ((after == "&&" and status != 0) or (after == "||" and status == 0)):
        del steps[:1]


def _parse(script: str) -> list[tuple[list[str], dict[str, str], str]]:
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("#")]
    lexer = shlex.shlex(";".join(lines), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    steps: list[tuple[list[str], dict[str, str], str]] = []
    words: list[str] = []
    redirects: dict[str, str] = {}
    for symbol in lexer:
        if symbol in _ENDS:
            steps.append((words, redirects, symbol))
            words, redirects = [], {}
        elif symbol in {">", ">>"}:
            redirects["1"] = symbol + next(lexer)
        elif symbol == ">&":
            redirects["1"] = "&" + next(lexer)
        else:
            words.append(symbol)
    return [*steps, (words, redirects, ";")]


def _expand(words: list[str], env: Mapping[str, str]) -> list[str]:
    return [re.sub(r"\$\{?(\w+)\}?", lambda name: env.get(name[1], ""), word) for word in words]


PROGRAMS: Mapping[str, Callable[[Run], bool]] = {
    "alloc": _stay,
    "burn": _burn,
    "cat": _cat,
    "count": _count,
    "echo": _echo,
    "env": _env,
    "false": _false,
    "head": _head,
    "hostname": _hostname,
    "id": _id,
    "listen": _stay,
    "pwd": _pwd,
    "rm": _rm,
    "sandyard-agent": _agent,
    "sh": _sh,
    "sleep": _sleep,
    "stty": _stty,
    "touch": _touch,
    "true": _true,
    "wc": _wc,
    "yes": _yes,
}
