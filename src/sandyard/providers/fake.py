"""A provider that does as it is told: every outcome and every fault, in whatever time the event loop keeps."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sandyard.errors import NotReadyError, ProviderError
from sandyard.providers.declaration import CAPABILITIES, Declaration
from sandyard.providers.provider import CreateRequest, Output, Provider

CLOCK_MARK = "__SANDBOX_CLOCK"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the script sees it."""

    op: str
    """``create``, ``exec``, ``read``, ``write``, ``snapshot``, ``restore``, ``fork``, ``destroy`` or ``list``."""
    number: int
    """How many calls of this op came before."""
    sandbox: int
    """How many sandboxes were made before this one."""
    argv: tuple[str, ...] = ()
    now_s: float = 0.0
    age_s: float = 0.0
    """Since the sandbox's create returned."""
    others: int = 0
    """Other live sandboxes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the script makes of a call."""

    duration_s: float = 0.0
    error: Exception | None = None
    """Raised after the duration."""
    output: Output | None = None
    """Of a command; None lets the fake run it."""
    wall_step_us: int = 0
    """The guest's wall clock jumps by this during the command; its uptime does not."""
    clock_line: str | None = None
    """Printed instead of the true clock line."""
    kills: bool = False
    """The sandbox dies during the call."""
    stays: bool = False
    """A destroyed sandbox stays in the listing."""


Script = Callable[[Call], Reply]


def well(call: Call) -> Reply:
    """Everything works and takes no time."""
    del call
    return Reply()


@dataclass(slots=True)
class _Sandbox:
    label: str
    number: int
    made_s: float
    files: dict[str, bytes] = field(default_factory=dict)


class FakeProvider(Provider):
    """Sandboxes in memory, driven by a script."""

    supports: ClassVar[frozenset[str]] = frozenset(CAPABILITIES)

    def __init__(self, declaration: Declaration, script: Script = well) -> None:
        """Do as ``script`` says."""
        super().__init__(declaration)
        self.script = script
        self.live: dict[str, _Sandbox] = {}
        self.saved: dict[str, _Sandbox] = {}
        self._counts: dict[str, int] = {}
        self._made = 0

    async def version(self) -> str:
        """A fixed word."""
        return "fake 1"

    async def image(self) -> str | None:
        """A fixed digest."""
        return "sha256:fake"

    async def _play(self, op: str, sandbox: _Sandbox | None = None, argv: Sequence[str] = ()) -> Reply:
        now = asyncio.get_running_loop().time()
        number = self._counts.get(op, 0)
        self._counts[op] = number + 1
        call = Call(
            op,
            number,
            self._made if sandbox is None else sandbox.number,
            tuple(argv),
            now,
            0.0 if sandbox is None else now - sandbox.made_s,
            len(self.live) - (sandbox is not None),
        )
        reply = self.script(call)
        if reply.duration_s:
            await asyncio.sleep(reply.duration_s)
        if reply.error is not None:
            raise reply.error
        return reply

    def _get(self, sandbox: str) -> _Sandbox:
        if sandbox not in self.live:
            raise ProviderError(f"sandbox {sandbox} is gone.", hint="It was destroyed or killed.")
        return self.live[sandbox]

    def _make(self, label: str, files: dict[str, bytes]) -> str:
        sandbox = f"fk_{self._made}"
        self.live[sandbox] = _Sandbox(label, self._made, asyncio.get_running_loop().time(), dict(files))
        self._made += 1
        return sandbox

    async def create(self, request: CreateRequest) -> str:
        """Make one."""
        await self._play("create")
        return self._make(request.label, {})

    async def exec(self, sandbox: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Output:
        """Run one of the few commands it knows, or answer what the script says."""
        box = self._get(sandbox)
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._play("exec", box, argv)
        except TimeoutError:
            return Output(124, timed_out=True)
        if reply.kills:
            self.live.pop(sandbox, None)
            raise ProviderError(f"sandbox {sandbox} died.", hint="It was killed.")
        is_timed = len(argv) > 2 and CLOCK_MARK in argv[2]  # noqa: PLR2004 - bash -c SCRIPT
        command = list(argv[4:]) if is_timed else list(argv)
        output = reply.output or _run(command, box.files, stdin)
        if not is_timed:
            return output
        line = reply.clock_line
        if line is None:
            ended = asyncio.get_running_loop().time()
            line = _clock_line(begun, ended, reply.wall_step_us, output.exit_code)
        return Output(output.exit_code, output.stdout, output.stderr + line.encode() + b"\n")

    async def read(self, sandbox: str, path: str) -> bytes:
        """From memory."""
        box = self._get(sandbox)
        await self._play("read", box)
        if path not in box.files:
            raise ProviderError(f"there is no file {path}.", hint="Write it first.")
        return box.files[path]

    async def write(self, sandbox: str, path: str, data: bytes) -> None:
        """Into memory."""
        box = self._get(sandbox)
        await self._play("write", box)
        box.files[path] = data

    async def snapshot(self, sandbox: str) -> str:
        """Copy."""
        box = self._get(sandbox)
        reply = await self._play("snapshot", box)
        del reply
        name = f"fs_{len(self.saved)}_{box.number}"
        self.saved[name] = _Sandbox(box.label, box.number, box.made_s, dict(box.files))
        return name

    async def restore(self, snapshot: str) -> str:
        """A new sandbox with the copy's files."""
        if snapshot not in self.saved:
            raise ProviderError(f"there is no snapshot {snapshot}.", hint="It was deleted.")
        await self._play("restore")
        return self._make(self.saved[snapshot].label, self.saved[snapshot].files)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Forget it."""
        self.saved.pop(snapshot, None)

    async def snapshots(self, label: str) -> builtins.list[str]:
        """Those kept."""
        return [name for name, box in self.saved.items() if box.label == label]

    async def fork(self, sandbox: str, count: int) -> builtins.list[str]:
        """Copies."""
        box = self._get(sandbox)
        await self._play("fork", box)
        return [self._make(box.label, box.files) for _ in range(count)]

    async def destroy(self, sandbox: str) -> None:
        """Forget it, unless the script lets it stay."""
        reply = await self._play("destroy", self.live.get(sandbox))
        if not reply.stays:
            self.live.pop(sandbox, None)

    async def list(self, label: str | None = None) -> list[str]:
        """Those alive."""
        await self._play("list")
        return [name for name, box in self.live.items() if label is None or box.label == label]


def not_ready_for(seconds: float, call: Call) -> Reply:
    """Refuse commands for this long after the create, as a gateway does."""
    if call.op == "exec" and call.age_s < seconds:
        return Reply(error=NotReadyError("HTTP 503.", hint="Try again."))
    return Reply()


def _run(argv: Sequence[str], files: dict[str, bytes], stdin: bytes) -> Output:  # noqa: PLR0911 - one a command
    match list(argv):
        case ["true", *_]:
            return Output(0)
        case ["false", *_]:
            return Output(1)
        case ["echo", *words]:
            return Output(0, " ".join(words).encode() + b"\n")
        case ["cat"]:
            return Output(0, stdin)
        case ["cat", path] if path in files:
            return Output(0, files[path])
        case ["sh", "-c", script] if script.startswith("exit "):
            return Output(int(script.split()[1]))
        case ["sleep", _]:
            return Output(0)
        case _:
            return Output(127, stderr=b"the fake does not know this command")


def _clock_line(begun_s: float, ended_s: float, step_us: int, code: int) -> str:
    start, end = round(begun_s * 1e6), round(ended_s * 1e6)
    up = [f"{at // 1_000_000}.{at % 1_000_000 // 10_000:02}" for at in (start, end)]
    wall = [f"{1_700_000_000 + at // 1_000_000}.{at % 1_000_000:06}" for at in (start, end + step_us)]
    return f"{CLOCK_MARK} {wall[0]} {wall[1]} {up[0]} {up[1]} {code}"
