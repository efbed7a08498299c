"""One function a figure; each interleaves ours and the raw tool's, so that a machine that drifts hurts both alike."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.raw import RawSandbox, checkpoint, processes_of
from sandyard.drivers.cgroups import open_cgroup
from sandyard.drivers.gvisor import CONTROL_ROOT, Gvisor
from sandyard.errors import SandyardError
from sandyard.runtime import Boot, Command, Runtime, Sandbox, SandboxSpec
from sandyard.runtime.layout import Layout
from sandyard.units import MIB

TRUE = Command(argv=["/bin/true"])
GIB_PIECE = bytes(256 * 1024)

_FILL = (
    "import os,sys,time\n"
    "block = os.urandom(1 << 20)\n"
    "held = [bytearray(block) for _ in range({mib})]\n"
    "for number, part in enumerate(held): part[:8] = number.to_bytes(8, 'big')\n"
    "open('/full', 'w').close()\n"
    "time.sleep(100000)\n"
)
"""Fills memory with what no compression and no zero page can make smaller."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    what: str
    ours: float
    unit: str
    bar: str
    raw: float | None = None
    raw_is: str = ""
    is_met: bool | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    """Every single value, in the order in which it was measured."""

    def show(self, value: float | None) -> str:
        """Write a value with its unit."""
        return "" if value is None else f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {self.unit}"


@dataclass(slots=True)
class Bench:
    """What the measurements share."""

    runtime: Runtime
    layout: Layout
    spec: SandboxSpec
    rounds: int
    _raws: int = 0

    @property
    def scratch(self) -> Path:
        """A place on the same disk as the state directory."""
        path = self.layout.root / "bench"
        path.mkdir(exist_ok=True)
        return path

    async def template(self, of: Sandbox) -> Path:
        """Where the template is that sandboxes like this one start from."""
        snapshots = self.runtime.snapshots
        row = await snapshots.template(snapshots.template_key(of.spec, of.row.image_digest, await Gvisor().version()))
        if row is None:
            raise RuntimeError("there is no template")
        return snapshots.path(row)

    @asynccontextmanager
    async def sandbox(self, **changes: object) -> AsyncIterator[Sandbox]:
        """Give a sandbox of our own, deleted after."""
        made = await self.runtime.create(replace(self.spec, **changes))  # type: ignore[arg-type]
        try:
            yield made
        finally:
            await made.delete()

    def leftovers(self, sandbox_id: str) -> list[str]:
        """Return what the host still has that carries this id."""
        paths = [self.layout.sandbox(sandbox_id), CONTROL_ROOT / sandbox_id]
        paths += Path("/sys/fs/cgroup").glob(f"**/sandyard/{sandbox_id}")
        found = [str(path) for path in paths if path.exists()]
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if sandbox_id in line]
        return found + [str(pid) for pid in processes_of(sandbox_id)]

    def raw(self, like: Sandbox) -> RawSandbox:
        """Lay out a sandbox for the raw tool."""
        self._raws += 1
        name = f"raw{self._raws}"
        return RawSandbox(like.machine_spec(), self.scratch / name, name)


class Watch:
    """Collects milliseconds by name."""

    def __init__(self) -> None:
        """Start empty."""
        self.ms: dict[str, list[float]] = {}

    def add(self, name: str, ms: float) -> None:
        """Add one value."""
        self.ms.setdefault(name, []).append(round(ms, 3))

    async def time(self, name: str, work: Awaitable[object]) -> None:
        """Time an awaitable."""
        began = time.perf_counter()
        await work
        self.add(name, (time.perf_counter() - began) * 1000)

    def call(self, name: str, work: Callable[[], object]) -> None:
        """Time a call."""
        began = time.perf_counter()
        work()
        self.add(name, (time.perf_counter() - began) * 1000)

    def median(self, name: str) -> float:
        """Return the median of one name."""
        return statistics.median(self.ms[name])


async def from_pool(bench: Bench) -> list[Figure]:
    """Create from the pool to the first ``true`` answered."""
    watch = Watch()
    await bench.runtime.warm(bench.spec, 2)
    for _ in range(bench.rounds):
        began = time.perf_counter()
        sandbox = await bench.runtime.create(bench.spec)
        result = (await sandbox.run(TRUE)).check()
        watch.add("ours", (time.perf_counter() - began) * 1000)
        if sandbox.row.boot != Boot.POOL:
            raise RuntimeError("the pool was empty")
        watch.add("fork", result.fork_exec_wait_us / 1000)
        await sandbox.delete()
        await bench.runtime.warm(bench.spec, 2)  # waits until it is full again
        await asyncio.sleep(0.3)
    await bench.runtime.warm(bench.spec, 0)
    ours = watch.median("ours")
    return [
        Figure(
            "create from the pool to the first `true`",
            ours,
            "ms",
            "20 ms",
            watch.median("fork"),
            "fork, exec and wait inside",
            ours <= 20,
            watch.ms,
        )
    ]


async def from_template(bench: Bench) -> list[Figure]:
    """Create from the template against ``runsc restore`` and one answer."""
    watch = Watch()
    async with bench.sandbox() as first:
        for _ in range(bench.rounds):
            template = await bench.template(first)
            raw = bench.raw(first)
            watch.call("raw", lambda raw=raw, at=template: (raw.restore(at), raw.answer()))  # type: ignore[misc]
            raw.remove()
            began = time.perf_counter()
            sandbox = await bench.runtime.create(bench.spec)
            async with sandbox.awake() as guest:
                await guest.ping()
            watch.add("ours", (time.perf_counter() - began) * 1000)
            await sandbox.delete()
            await asyncio.sleep(0.1)
    ours, raw_ms = watch.median("ours"), watch.median("raw")
    is_met = ours <= 1.3 * raw_ms
    what = "create from the template to an answer"
    return [Figure(what, ours, "ms", "1.3 x raw", raw_ms, "`runsc restore` + answer", is_met, watch.ms)]


async def execs(bench: Bench) -> list[Figure]:
    """``/bin/true`` against what the agent measured itself, and against ``runsc exec``."""
    watch = Watch()
    async with bench.sandbox() as sandbox:
        raw = bench.raw(sandbox)
        raw.run()
        await sandbox.run(TRUE)
        for _ in range(bench.rounds * 4):
            began = time.perf_counter()
            result = await sandbox.run(TRUE)
            ms = (time.perf_counter() - began) * 1000
            watch.add("ours", ms)
            watch.add("over", ms - result.fork_exec_wait_us / 1000)
        for _ in range(bench.rounds):
            watch.call("raw", lambda: raw.exec("/bin/true"))
        raw.remove()
    ours, over, raw_ms = watch.median("ours"), watch.median("over"), watch.median("raw")
    return [
        Figure("exec of `/bin/true`", ours, "ms", "raw / 4", raw_ms, "`runsc exec`", ours * 4 <= raw_ms, watch.ms),
        Figure("... over the agent's own fork, exec and wait", over, "ms", "1.5 ms", None, "", over <= 1.5),
    ]


async def pauses(bench: Bench) -> list[Figure]:
    """Pause, resume and an answer."""
    watch = Watch()
    async with bench.sandbox() as sandbox:
        raw = bench.raw(sandbox)
        raw.run()
        raw.answer()
        for _ in range(bench.rounds):
            began = time.perf_counter()
            await sandbox.pause()
            async with sandbox.awake() as guest:
                await guest.ping()
            watch.add("ours", (time.perf_counter() - began) * 1000)
            watch.call("raw", raw.pause_and_resume)
        raw.remove()
    ours = watch.median("ours")
    what = "pause, resume and an answer"
    return [Figure(what, ours, "ms", "10 ms", watch.median("raw"), "`runsc pause`, `resume`", ours <= 10, watch.ms)]


async def sleeps(bench: Bench) -> list[Figure]:
    """Sleep and wake with 64, 256 and 1024 MB in use, against raw checkpoint and restore of the same sandbox."""
    found = []
    for mib in (64, 256, 1024):
        found += await _sleeps_with(bench, mib)
    return found


async def _sleeps_with(bench: Bench, mib: int) -> list[Figure]:
    watch = Watch()
    async with bench.sandbox(memory_mib=mib + 512) as sandbox:
        await _fill(sandbox, mib)
        for number in range(max(3, bench.rounds // 3)):
            saved = bench.scratch / f"raw-checkpoint-{number}"
            watch.call("raw sleep", lambda saved=saved: checkpoint(sandbox.machine_spec(), saved))  # type: ignore[misc]
            shutil.rmtree(saved)
            await watch.time("sleep", sandbox.sleep())
            raw = bench.raw(sandbox)
            watch.call("raw wake", lambda raw=raw: (raw.restore(bench.layout.sleep(sandbox.id)), raw.answer()))  # type: ignore[misc]
            raw.remove()
            await watch.time("wake", _wake(sandbox))
    return [
        Figure(
            f"{verb} with {mib} MB in use",
            watch.median(verb),
            "ms",
            "1.3 x raw",
            watch.median(f"raw {verb}"),
            is_,
            watch.median(verb) <= 1.3 * watch.median(f"raw {verb}"),
            {"ours": watch.ms[verb], "raw": watch.ms[f"raw {verb}"]},
        )
        for verb, is_ in (("sleep", "`runsc checkpoint`"), ("wake", "`runsc restore` + answer"))
    ]


async def _wake(sandbox: Sandbox) -> None:
    async with sandbox.awake() as guest:
        await guest.ping()


async def _fill(sandbox: Sandbox, mib: int) -> None:
    await sandbox.spawn(Command(argv=["python3", "-c", _FILL.format(mib=mib)]))
    async with sandbox.awake() as guest:
        while True:
            try:
                await guest.stat("/full")
            except SandyardError:
                await asyncio.sleep(0.1)
            else:
                return


async def forks(bench: Bench) -> list[Figure]:
    """Fork a running sandbox that uses 64 MB, to the first answer in the copy."""
    watch = Watch()
    async with bench.sandbox() as parent:
        await _fill(parent, 64)
        for number in range(bench.rounds):
            saved = bench.scratch / f"raw-fork-{number}"
            raw = bench.raw(parent)
            began = time.perf_counter()
            checkpoint(parent.machine_spec(), saved)
            raw.restore(saved)
            watch.add("raw", (time.perf_counter() - began) * 1000)
            raw.remove()
            shutil.rmtree(saved)
            began = time.perf_counter()
            [copy] = await bench.runtime.fork(parent.id)
            async with copy.awake() as guest:
                await guest.ping()
            watch.add("ours", (time.perf_counter() - began) * 1000)
            await copy.delete()
            await asyncio.sleep(0.1)
    ours = watch.median("ours")
    what, is_ = "fork of a running 64 MB sandbox to an answer", "`runsc checkpoint` + `restore`, no answer"
    return [Figure(what, ours, "ms", "300 ms", watch.median("raw"), is_, ours <= 300, watch.ms)]


async def files(bench: Bench) -> list[Figure]:
    """Move 1 GiB each way, and see what memory that takes on both sides."""
    watch = Watch()
    size = 1024 * MIB
    grown: dict[str, list[float]] = {"host": [], "agent": []}
    async with bench.sandbox(memory_mib=3072) as sandbox, sandbox.awake() as guest:
        raw = bench.raw(sandbox)
        raw.run()

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(size // len(GIB_PIECE)):
                yield GIB_PIECE

        async def down() -> None:
            got = 0
            async with guest.read("/big") as download:
                async for piece in download:
                    got += len(piece)
            if got != size:
                raise RuntimeError(f"{got} bytes came back of {size}")

        for _ in range(3):
            host_before, agent_before = _rss_mib("self"), await _agent_rss_mib(sandbox)
            await watch.time("up", guest.write("/big", pieces()))
            await watch.time("down", down())
            grown["host"].append(_rss_mib("self") - host_before)
            grown["agent"].append(await _agent_rss_mib(sandbox) - agent_before)
            watch.call("raw up", lambda: raw.pour_in(size))
            watch.call("raw down", lambda: raw.pour_out(size))
        raw.remove()
    found = []
    for way in ("up", "down"):
        mb_s, raw_mb_s = (size / 1e6 / (watch.median(name) / 1000) for name in (way, f"raw {way}"))
        what = f"1 GiB file {way}"
        found.append(Figure(what, mb_s, "MB/s", "300 MB/s", raw_mb_s, "`runsc exec cat`", mb_s >= 300, watch.ms))
    for side, values in grown.items():
        worst = max(values)
        found.append(Figure(f"... memory grown, {side}", max(worst, 0), "MiB", "flat", None, "", worst < 32, grown))
    return found


def _rss_mib(pid: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no memory figure for {pid}")


async def _agent_rss_mib(sandbox: Sandbox) -> float:
    result = await sandbox.run(Command(argv=["cat", "/proc/1/status"]))
    line = next(line for line in result.stdout.decode().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def idle(bench: Bench) -> list[Figure]:
    """What an idle sandbox holds, and a hundred of them at once."""
    async with bench.sandbox() as sandbox:
        raw = bench.raw(sandbox)
        raw.run()
        raw.answer()
        await asyncio.sleep(2)
        raw_mib = sum(map(_pss_mib, raw.processes()))
        ours_mib = _sandbox_pss_mib(sandbox)
        raw.remove()
    what = "idle sandbox, all its processes"
    single = Figure(what, ours_mib, "MiB PSS", "45 MiB", raw_mib, "`runsc run`, same PID 1", ours_mib <= 45)
    return [single, *await _hundred(bench)]


async def _hundred(bench: Bench) -> list[Figure]:
    count = 100
    began = time.perf_counter()
    many = await asyncio.gather(*(bench.runtime.create(bench.spec) for _ in range(count)))
    made_s = time.perf_counter() - began
    try:
        results = await asyncio.gather(*(sandbox.run(Command(argv=["echo", sandbox.id])) for sandbox in many))
        answered = sum(
            result.stdout.decode().strip() == sandbox.id for result, sandbox in zip(results, many, strict=True)
        )
        each_mib = sum(_sandbox_pss_mib(sandbox) for sandbox in many) / count
    finally:
        await asyncio.gather(*(sandbox.delete() for sandbox in many))
    return [
        Figure(f"{count} at once: how many answer", answered, "answers", "100", None, "", answered == count),
        Figure("... made, four at a time, in", made_s, "s", "", None, ""),
        Figure("... each holds", each_mib, "MiB PSS", "45 MiB", None, "", each_mib <= 45),
    ]


def _sandbox_pss_mib(sandbox: Sandbox) -> float:
    return sum(map(_pss_mib, open_cgroup(sandbox.id).pids()))


def _pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def deletes(bench: Bench) -> list[Figure]:
    """Delete, and what is left a moment later."""
    watch = Watch()
    left = 0
    for _ in range(bench.rounds):
        sandbox = await bench.runtime.create(bench.spec)
        await sandbox.run(TRUE)
        raw = bench.raw(sandbox)
        raw.run()
        raw.answer()
        watch.call("raw", lambda raw=raw: raw.verb("delete", "-force"))  # type: ignore[misc]
        raw.remove()
        await watch.time("ours", sandbox.delete())
        await asyncio.sleep(0.5)
        left += len(bench.leftovers(sandbox.id))
    ours = watch.median("ours")
    return [
        Figure("delete", ours, "ms", "50 ms", watch.median("raw"), "`runsc delete -force`", ours <= 50, watch.ms),
        Figure("... processes, mounts, cgroups, files left", left, "", "0", None, "", left == 0),
    ]


ALL: dict[str, Callable[[Bench], Awaitable[list[Figure]]]] = {
    "pool": from_pool,
    "template": from_template,
    "exec": execs,
    "pause": pauses,
    "sleep": sleeps,
    "fork": forks,
    "files": files,
    "idle": idle,
    "delete": deletes,
}
