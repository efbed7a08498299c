"""One trial's hands: its sandboxes, its clocks, and the declared steps that it may time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sandyard.bench import clock
from sandyard.bench.outcomes import BenchmarkFault, Diverged, ProviderFailed
from sandyard.bench.records import Attempt, Placement, Step
from sandyard.errors import NotReadyError, ProviderError, SandyardError
from sandyard.providers import CreateRequest, Output, Provider

T = TypeVar("T")

READY_ATTEMPT_S = 30.0
READY_DEADLINE_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S, _GROWTH, _JITTER = 0.020, 0.200, 1.5, 0.20
CLEANUP_S = 60.0
POLL_S = 10.0
_RESOLUTION_MS = 0.001
"""Of the sandbox's clock."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step as its benchmark declares it; what is declared is what is hashed and what may run."""

    name: str
    clock: str
    """``host`` or ``sandbox``."""
    limit_s: float
    command: tuple[str, ...] = ()
    """Of the sandbox clock; ``{...}`` stands for what differs between trials."""


@dataclass
class Session:
    """What a benchmark's procedure works with; it never sees the provider."""

    provider: Provider
    request: CreateRequest
    declared: dict[str, StepSpec]
    random: random.Random
    identity: str = ""
    """The trial's id, left in its sandboxes so that one that is handed out again is recognised."""
    tied_to: str | None = None
    """The earlier trial whose mark was found."""
    steps: list[Step] = field(default_factory=list)
    readiness: list[Attempt] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    calls: dict[str, list[float]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    placement: Placement | None = None
    sandbox_s: float = 0.0
    step: str | None = None
    """The step that runs, or ran last."""
    _sandboxes: dict[str, float] = field(default_factory=dict)
    _snapshots: list[str] = field(default_factory=list)

    # -- timed steps ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def span(self, name: str) -> AsyncIterator[list[float]]:
        """Time what is inside on the job host's monotonic clock; the list gets the milliseconds at its end."""
        spec = self._enter(name)
        found: list[float] = []
        began = _now()
        async with _failing(spec):
            yield found
        found.append((_now() - began) * 1000)
        self.steps.append(Step(name=name, clock="host", total_ms=found[0]))

    async def create(self) -> str:
        """Make a sandbox; it is cleaned up whatever happens."""
        began = _now()
        sandbox = await self.provider.create(self.request)
        self._sandboxes[sandbox] = began
        return sandbox

    async def adopt(self, making: Awaitable[str]) -> str:
        """Take over a sandbox that a restore gives."""
        began = _now()
        sandbox = await making
        self._sandboxes.setdefault(sandbox, began)
        return sandbox

    async def fork(self, sandbox: str, count: int) -> list[str]:
        """Fork, and take the children over."""
        began = _now()
        children = await self.provider.fork(sandbox, count)
        self._sandboxes.update(dict.fromkeys(children, began))
        return children

    async def snapshot(self, sandbox: str) -> str:
        """Save a sandbox; the snapshot is cleaned up whatever happens."""
        saved = await self.provider.snapshot(sandbox)
        self._snapshots.append(saved)
        return saved

    async def guest(self, name: str, sandbox: str, argv: Sequence[str], *, stdin: bytes = b"") -> tuple[Output, Step]:
        """Time a command on the sandbox's own clock, through the gate.

        Raises:
            ProviderFailed: it was cut short, or the clock stepped.
            BenchmarkFault: the clock line cannot be read.
        """
        spec = self._enter(name)
        began = _now()
        async with _failing(spec):
            output = await self.provider.exec(sandbox, clock.wrap(argv), timeout_s=spec.limit_s, stdin=stdin)
        total_ms = (_now() - began) * 1000
        if output.timed_out:
            await self._hung(sandbox, name, spec.limit_s)
        step = await self._judge(name, sandbox, output, total_ms)
        self.steps.append(step)
        return output, step

    async def background(self, name: str, sandbox: str, argv: Sequence[str]) -> tuple[Output, Step]:
        """Run a long command apart from the call that starts it, and poll every 10 s until it has ended.

        Start and end come from the sandbox's clock, so polling adds nothing to the runtime.
        """
        spec = self._enter(name)
        tag = f".bench-{self.random.getrandbits(32):08x}"
        start = (
            f"setsid nohup bash -c '\"$@\" > {tag}.out 2> {tag}.err; echo $? > {tag}.rc.new; mv {tag}.rc.new {tag}.rc'"
            ' bash "$@" > /dev/null 2>&1 < /dev/null &'
        )
        began = _now()
        async with _failing(spec):
            await self.provider.exec(sandbox, ["bash", "-c", start, "bash", *clock.wrap(argv)], timeout_s=30)
            while True:
                seen = await self.provider.exec(
                    sandbox, ["sh", "-c", f"test -e {tag}.rc && cat {tag}.rc"], timeout_s=30
                )
                if seen.exit_code == 0:
                    break
                if _now() - began > spec.limit_s:
                    await self._hung(sandbox, name, spec.limit_s)
                await asyncio.sleep(POLL_S)
            stdout = await self.provider.read(sandbox, f"{tag}.out")
            stderr = await self.provider.read(sandbox, f"{tag}.err")
        output = Output(int(seen.stdout.strip() or b"1"), stdout, stderr)
        step = await self._judge(name, sandbox, output, (_now() - began) * 1000)
        self.steps.append(step)
        return output, step

    def _enter(self, name: str) -> StepSpec:
        self.step = name
        if name not in self.declared:
            raise BenchmarkFault(f"the step {name!r} is not declared, so its hash would not cover it")
        return self.declared[name]

    async def _hung(self, sandbox: str, name: str, limit_s: float) -> None:
        """Tell a slow command in a sandbox that answers (excluded) from a sandbox that no longer does (failed)."""
        try:
            answer = await self.provider.exec(sandbox, ["true"], timeout_s=READY_ATTEMPT_S)
        except ProviderError as error:
            raise ProviderFailed(f"{name} hung, and the sandbox stopped answering: {error.what}") from error
        if answer.exit_code != 0:
            raise ProviderFailed(f"{name} hung, and the sandbox stopped answering")
        raise Diverged(f"{name} did not end in {limit_s:g} s (exit 124), while the sandbox still answers")

    async def _judge(self, name: str, sandbox: str, output: Output, total_ms: float) -> Step:
        if output.exit_code in {126, 127} and b"__SANDBOX_CLOCK" not in output.stderr:
            raise BenchmarkFault(f"{name}: bash did not start: {output.stderr[-120:]!r}")
        span = clock.read_span(output.stderr)
        gate = "held"
        if not span.agrees():
            quantum = await self._quantum(sandbox)
            if span.wall_us < 0 or span.up_us < 0 or quantum is None or quantum <= clock.TOLERANCE_US:
                raise ProviderFailed(
                    f"stepped clock in {name}: {span.wall_us / 1000:.3f} ms by the wall clock, "
                    f"{span.up_us / 1000:.3f} ms by the uptime"
                )
            gate = "not-gateable"
        if span.wall_us < clock.SHORTEST_GATED_US:
            gate = "not-gateable"
        if span.wall_us / 1000 > total_ms + _RESOLUTION_MS:
            raise ProviderFailed(f"stepped clock in {name}: runtime {span.wall_us / 1000:.3f} ms exceeds the total")
        return Step(name=name, clock="sandbox", total_ms=total_ms, runtime_ms=span.wall_us / 1000, gate=gate)  # type: ignore[arg-type]

    async def _quantum(self, sandbox: str) -> int | None:
        output = await self.provider.exec(sandbox, ["bash", "-c", clock.QUANTUM_PROBE], timeout_s=READY_ATTEMPT_S)
        return clock.read_quantum_us(output.stdout)

    # -- untimed -------------------------------------------------------------------------------------------------------

    async def ready(self, sandbox: str) -> None:
        """Wait until the sandbox takes commands: 20 ms, times 1.5, at most 200 ms, ±20%; no try after 10 s.

        Raises:
            ProviderFailed: it did not, or answered with another error than "not ready".
        """
        self.step = "ready"
        began, wait = _now(), _FIRST_WAIT_S
        while True:
            try:
                output = await self.provider.exec(sandbox, ["true"], timeout_s=READY_ATTEMPT_S)
            except NotReadyError as error:
                self.readiness.append(Attempt(at_ms=(_now() - began) * 1000, answer=error.code))
            except SandyardError as error:
                self.readiness.append(Attempt(at_ms=(_now() - began) * 1000, answer=error.code))
                raise ProviderFailed(f"the readiness check failed: {error.what}") from error
            else:
                ready = output.exit_code == 0
                self.readiness.append(Attempt(at_ms=(_now() - began) * 1000, answer="ready" if ready else "error"))
                if not ready:
                    raise ProviderFailed(f"the readiness check ended with {output.exit_code}")
                return
            pause = wait * self.random.uniform(1 - _JITTER, 1 + _JITTER)
            if _now() - began + pause > READY_DEADLINE_S:
                raise ProviderFailed(f"not ready {READY_DEADLINE_S:g} s after the first try")
            await asyncio.sleep(pause)
            wait = min(wait * _GROWTH, _LONGEST_WAIT_S)

    async def run(self, sandbox: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120) -> Output:
        """Run an untimed command that must succeed.

        Raises:
            ProviderFailed: it did not.
        """
        try:
            output = await self.provider.exec(sandbox, argv, timeout_s=timeout_s, stdin=stdin)
        except SandyardError as error:
            raise ProviderFailed(error.what) from error
        if output.exit_code != 0:
            raise ProviderFailed(
                f"{argv[0]} ended with {output.exit_code}: {output.stderr[-200:].decode(errors='replace')}"
            )
        return output

    async def probe(self, sandbox: str) -> None:
        """Record what the sandbox says of itself, as far as it says it; after the timed steps, untimed."""
        try:
            facts = await self.provider.exec(sandbox, ["sh", "-c", _PROBE], timeout_s=READY_ATTEMPT_S)
            quantum = await self._quantum(sandbox)
        except SandyardError:
            return
        lines = dict(line.split("=", 1) for line in facts.stdout.decode(errors="replace").splitlines() if "=" in line)

        def number(name: str) -> int | None:
            return int(lines[name]) if lines.get(name, "").isdigit() else None

        self.placement = Placement(
            cpu_model=lines.get("model") or None,
            cpu_count=number("count"),
            memory_kib=number("memory"),
            kernel=lines.get("kernel") or None,
            filesystem=lines.get("filesystem") or None,
            boot_id=lines.get("boot") or None,
            uptime_quantum_us=quantum,
        )

    async def mark(self, sandbox: str) -> None:
        """Leave the trial's id in the sandbox, and note the id that is there already; untimed."""
        script = 'cat .bench-mark 2> /dev/null; printf %s "$1" > .bench-mark'
        output = await self.run(sandbox, ["sh", "-c", script, "sh", self.identity])
        found = output.stdout.decode(errors="replace").strip()
        if found:
            self.tied_to = found

    @property
    def sandboxes(self) -> list[str]:
        """Those that the trial has made and not destroyed."""
        return list(self._sandboxes)

    async def destroy(self, sandbox: str) -> None:
        """Delete one and wait until it is confirmed gone.

        Raises:
            ProviderFailed: it is still listed after 60 s.
        """
        began, wait = _now(), _FIRST_WAIT_S
        try:
            async with asyncio.timeout(CLEANUP_S):
                await self.provider.destroy(sandbox)
                while sandbox in await self.provider.list(self.request.label):
                    await asyncio.sleep(wait)
                    wait = min(wait * _GROWTH, 1.0)
        except TimeoutError as error:
            raise ProviderFailed(f"{sandbox} is still there {_now() - began:.0f} s after its destroy") from error
        except SandyardError as error:
            raise ProviderFailed(f"{sandbox} could not be destroyed: {error.what}") from error
        self.sandbox_s += _now() - self._sandboxes.pop(sandbox, began)

    async def cleanup(self) -> list[str]:
        """Delete everything the trial made, and return what could not be confirmed gone, with the reason."""
        left: list[str] = []
        for sandbox in list(self._sandboxes):
            try:
                await self.destroy(sandbox)
            except ProviderFailed as error:
                left.append(str(error))
        for saved in self._snapshots:
            try:
                async with asyncio.timeout(CLEANUP_S):
                    await self.provider.delete_snapshot(saved)
                    if saved in await self.provider.snapshots(self.request.label):
                        left.append(f"snapshot {saved} is still there")
            except (TimeoutError, SandyardError) as error:
                left.append(f"snapshot {saved} could not be deleted: {error}")
        return left


_PROBE = r"""
echo "count=$(nproc)"
echo "model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)"
echo "memory=$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
echo "kernel=$(uname -sr)"
echo "filesystem=$(df -PT . | awk 'END { print $2 " on " $1 }')"
echo "boot=$(cat /proc/sys/kernel/random/boot_id 2> /dev/null)"
"""


@asynccontextmanager
async def _failing(spec: StepSpec) -> AsyncIterator[None]:
    """Hold a step to its limit; an error of the provider, or a hung call, is the provider's failure."""
    try:
        async with asyncio.timeout(spec.limit_s + 5 if spec.clock == "sandbox" else spec.limit_s):
            yield
    except TimeoutError as error:
        raise ProviderFailed(f"{spec.name} hung for {spec.limit_s:g} s") from error
    except NotReadyError as error:
        raise ProviderFailed(f"{spec.name}: {error.what}") from error


def _now() -> float:
    """The event loop's clock, which is the job host's monotonic one."""
    return asyncio.get_running_loop().time()
