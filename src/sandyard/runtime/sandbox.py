"""One sandbox and its transitions: alone, written down before and after, and run to their end once begun."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar

from sandyard.drivers import After, ExitReason, Machine, MachineSpec
from sandyard.errors import (
    CommandError,
    NoSpaceError,
    OutOfMemoryError,
    SandboxGoneError,
    SandboxStateError,
    SandyardError,
    TransportError,
)
from sandyard.guest import ExecResult, Guest, Process, PtySize, Spawned
from sandyard.images import ImageConfig
from sandyard.runtime import checkpoints
from sandyard.runtime.activity import Activity
from sandyard.runtime.command import Command
from sandyard.runtime.ids import new_id
from sandyard.runtime.journal import Journal, Note
from sandyard.runtime.launch import BeforeLife, Launcher, Orphans, Steps, describe
from sandyard.runtime.owner import OwnerLock
from sandyard.runtime.services import Services
from sandyard.runtime.spec import SandboxSpec
from sandyard.runtime.states import AWAKE, Boot, Doing, State
from sandyard.store import EventRow, SandboxRow

OUTPUT_LIMIT = 16 * 1024 * 1024

_SIGKILLED = 128 + signal.SIGKILL

_LAST_WORDS_S = 5.0
"""How long a broken call waits to learn how the machine ended."""

P = ParamSpec("P")
T = TypeVar("T")


class Sandbox:
    """One sandbox that this process owns."""

    def __init__(self, row: SandboxRow, services: Services, lock: OwnerLock) -> None:
        """Take the sandbox over in the state that ``row`` says; nothing runs yet."""
        self.spec = SandboxSpec.from_json(row.spec)
        self.steps_ms: dict[str, float] = {}
        self._services = services
        self._owner = lock
        self._journal = Journal(row, services.store, services.clock, self._sample)
        self._launcher = Launcher(services.driver, services.settings.start_timeout_s)
        self._activity = Activity(services.clock, services.settings.idle_cpu_share)
        self._machine: Machine | None = None
        self._guest: Guest | None = None
        self._mutex = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._removal: asyncio.Task[None] | None = None
        self._sampled_s = services.clock.monotonic_s()

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def row(self) -> SandboxRow:
        """What the store says of it."""
        return self._journal.row

    @property
    def id(self) -> str:
        """Its id, ``sb_`` and 16 characters."""
        return self.row.id

    @property
    def state(self) -> State:
        """Where it is now."""
        return State(self.row.state)

    @cached_property
    def image_config(self) -> ImageConfig:
        """What its image says about commands."""
        return self._services.images.get(self.row.image_digest).config

    @property
    def _directory(self) -> Path:
        return self._services.layout.sandbox(self.id)

    @property
    def _sleep_dir(self) -> Path:
        return self._services.layout.sleep(self.id)

    def machine_spec(self) -> MachineSpec:
        """What its machine is made with."""
        return self._services.machine_spec(self.row, self.spec)

    # -- using it ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[Guest]:
        """Give the agent's calls, waking or resuming the sandbox first; it does not count as idle meanwhile.

        Raises:
            SandboxStateError: it has failed or is deleted.
            SandboxGoneError: it ended while it was used; the text says of what.
        """
        with self._activity.call():
            try:
                yield await self._ensure_running()
            except (SandboxGoneError, TransportError) as error:
                raise await self._why_gone(error) from error

    @asynccontextmanager
    async def exec(self, command: Command) -> AsyncIterator[Process]:
        """Start a command and give its streams; one that is left before its end is killed."""
        async with self.awake() as guest:
            machine, before = self._machine, self._oom_kills()
            process = await guest.exec(command.argv, stdin=command.stdin, **self._exec_options(command))
            process.judge = partial(self._blame_memory, machine=machine, before=before)
            async with process:
                yield process

    def _blame_memory(self, result: ExecResult, *, machine: Machine | None, before: int) -> ExecResult:
        """Say of a failed command that it was killed for memory, where the kernel killed something meanwhile.

        The kernel may kill the host process behind one process of the sandbox, and the sandbox lives on; inside, that
        process then seems to have ended by itself. Another machine than the command began in, after a sleep, counts
        from 0.
        """
        kills = self._oom_kills() - (before if self._machine is machine else 0)
        if result.exit_code == 0 or result.timed_out or kills == 0:
            return result
        return replace(result, exit_code=_SIGKILLED, signal=signal.SIGKILL, oom_killed=True)

    def _oom_kills(self) -> int:
        return 0 if self._machine is None else self._machine.oom_kills()

    async def run(self, command: Command, *, stdin: bytes | None = None, limit: int = OUTPUT_LIMIT) -> ExecResult:
        """Run a command to its end and return its output, at most ``limit`` bytes of each stream."""
        async with self.exec(replace(command, stdin=stdin is not None)) as process:
            return await process.collect(stdin, limit=limit)

    async def spawn(self, command: Command) -> Spawned:
        """Start a command that goes on by itself; the last 256 KiB of its output wait in the sandbox."""
        async with self.awake() as guest:
            return await guest.spawn(command.argv, **self._exec_options(command))

    def _exec_options(self, command: Command) -> _ExecOptions:
        config = self.image_config
        users = (command.user, self.spec.user, config.user)
        return {
            "shell": command.shell,
            "env": {**config.env, **self.spec.env, **command.env},
            "cwd": command.workdir or self.spec.workdir or config.workdir,
            "user": next(user for user in users if user is not None),
            "pty": command.pty,
            "timeout_s": command.timeout_s,
            "exec_id": new_id("ex"),
        }

    async def _ensure_running(self) -> Guest:
        if self.state is State.RUNNING and self.row.doing is None and self._guest is not None:
            return self._guest
        return await self._uninterrupted(self._wake_or_resume)

    async def _wake_or_resume(self) -> Guest:
        if self.state is State.PAUSED:
            await self._resume()
        elif self.state is State.ASLEEP:
            await self._wake()
        if self.state is not State.RUNNING or self._guest is None:
            raise self._wrong_state("used")
        return self._guest

    def _wrong_state(self, verb: str) -> SandboxStateError:
        why = f" ({self.row.reason})" if self.row.reason else ""
        return SandboxStateError(
            f"sandbox {self.id} cannot be {verb}: it is {self.state}{why}.",
            hint="Delete it, or restore it from a snapshot." if self.state is State.FAILED else "Make another one.",
        )

    async def _why_gone(self, error: SandyardError) -> SandyardError:
        """Give the watcher a moment to learn how the machine ended, and say that instead of "the stream broke"."""
        if self._watcher is not None:
            await asyncio.wait({self._watcher}, timeout=_LAST_WORDS_S)
        if self.state is not State.FAILED or self.row.reason is None:
            return error
        what = f"sandbox {self.id} ended while it was in use: {self.row.reason}."
        if self.row.reason.startswith("out of memory"):
            return OutOfMemoryError(what, hint="Give it more memory.")
        return SandboxGoneError(what, hint="Its events say what happened before.")

    # -- being made ----------------------------------------------------------------------------------------------------

    async def start(
        self,
        boot: Boot,
        steps: Steps,
        *,
        checkpoint: Path | None = None,
        before_life: BeforeLife | None = None,
    ) -> None:
        """Bring the machine up, from a checkpoint or cold; on failure nothing of the sandbox is left but its row.

        One that is made for the pool stays in the making until it is claimed: it is nobody's yet.

        Raises:
            StartError: it did not start.
            StartTimeoutError: its agent did not answer.
        """
        try:
            await self._uninterrupted(self._start, boot, steps, checkpoint, before_life)
        except BaseException:
            await self._uninterrupted(self._delete, "it did not start")
            raise

    async def _start(self, boot: Boot, steps: Steps, checkpoint: Path | None, before_life: BeforeLife | None) -> None:
        self._directory.mkdir(mode=0o700)
        for_pool = self.row.doing == Doing.WAIT_IN_POOL
        doing, to = (Doing.WAIT_IN_POOL, State.CREATING) if for_pool else (Doing.CREATE, State.RUNNING)
        async with self._journal.transition(doing, to) as note:
            guest = await self._launch(steps, checkpoint, orphans="keep", before_life=before_life)
            note.changes["boot"] = boot
            note.data |= {"boot": boot, "steps_ms": steps.ms}
            if for_pool:
                await self._wait_in_pool(guest)
                note.changes["doing"] = doing
        self.steps_ms = steps.ms

    async def _wait_in_pool(self, guest: Guest) -> None:
        """Run something once, as the first command after a restore takes twice as long as those after it; then freeze.

        A sandbox kernel that has nothing to do still takes some hundredths of a processor.
        """
        with suppress(CommandError):  # an image need not have it
            await guest.run(["/bin/true"])
        if self._machine is not None:
            await self._machine.pause()

    async def claim(self, spec: SandboxSpec, *, is_ephemeral: bool) -> None:
        """Hand a copy from the pool to whoever asked for ``spec``.

        Raises:
            SandboxStateError: it died while it waited.
        """
        await self._uninterrupted(self._claim, spec, is_ephemeral=is_ephemeral)

    async def _claim(self, spec: SandboxSpec, *, is_ephemeral: bool) -> None:
        if self.row.doing != Doing.WAIT_IN_POOL or self._machine is None or self._guest is None:
            raise self._wrong_state("claimed")
        try:
            await self._machine.resume()
            await (self._guest.ping() if is_ephemeral else self._guest.lease(0))
        except (SandboxGoneError, TransportError) as error:
            raise self._wrong_state("claimed") from error
        now_ms = self._services.clock.now_ms()
        note = Note(data={"boot": Boot.POOL})
        note.changes = {
            "boot": Boot.POOL,
            "image": spec.image,
            "spec": spec.to_json(),
            "is_ephemeral": is_ephemeral,
            "created_ms": now_ms,
            "expires_ms": spec.expires_ms(now_ms),
        }
        await self._journal.end(State.RUNNING, Doing.CREATE, note)
        self.spec = spec
        self._activity.touch()

    async def _launch(
        self,
        steps: Steps,
        checkpoint: Path | None,
        *,
        orphans: Orphans,
        former: Guest | None = None,
        before_life: BeforeLife | None = None,
    ) -> Guest:
        if self._removal is not None:  # what is left of the machine that was saved has the same names
            await self._removal
        machine, guest = await self._launcher.launch(
            self.machine_spec(), steps, checkpoint=checkpoint, orphans=orphans, former=former, before_life=before_life
        )
        if self.row.is_ephemeral:
            await guest.lease(self._services.settings.lease_s)
        self._take(machine, guest)
        return guest

    def _take(self, machine: Machine, guest: Guest) -> None:
        self._machine, self._guest = machine, guest
        self._activity.forget_cpu()
        self._activity.touch()
        self._watcher = self._spawn(self._watch(machine))

    async def _watch(self, machine: Machine) -> None:
        """Learn of an end that nobody asked for."""
        end = await machine.wait()
        if end.reason not in {ExitReason.MEMORY, ExitReason.FAULT}:
            return
        async with self._mutex:
            if self._machine is machine:
                note = Note(changes={"cpu_us": self._cpu_us()}, data={"reason": describe(end)})
                await self._journal.end(State.FAILED, None, note)
                await self._drop_machine()

    # -- pause, sleep, wake --------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Stop all its processes and keep them in memory; a paused or sleeping sandbox stays as it is."""
        await self._uninterrupted(self._pause)

    async def _pause(self) -> None:
        if self.state in {State.PAUSED, State.ASLEEP}:
            return
        machine, _ = self._awake("paused")
        async with self._journal.transition(Doing.PAUSE, State.PAUSED):
            await machine.pause()
        self._wake_for_late_calls()

    async def resume(self) -> None:
        """Let it go on, from memory or from disk; a running one just does."""
        await self._uninterrupted(self._wake_or_resume)

    wake = resume

    async def _resume(self) -> None:
        machine, _ = self._awake("resumed")
        async with self._journal.transition(Doing.RESUME, State.RUNNING):
            await machine.resume()
        self._activity.touch()

    async def sleep(self) -> None:
        """Save it to disk and free all it holds; open streams go on when it wakes.

        Raises:
            NoSpaceError: the disk is full; the sandbox goes on as it was.
        """
        await self._uninterrupted(self._sleep)

    async def _sleep(self) -> None:
        if self.state is State.ASLEEP:
            return
        machine, guest = self._awake("put to sleep")
        async with self._journal.transition(Doing.SLEEP, State.ASLEEP) as note, self._thawed(machine):
            await guest.prepare_checkpoint()
            try:
                await machine.checkpoint(self._sleep_dir, After.STOP)
            except BaseException:
                await self._launcher.attach(machine, orphans="keep", former=guest)
                raise
            note.samples = self._sample()
            note.changes["cpu_us"] = self._cpu_us()
            note.data["checkpoint_bytes"] = checkpoints.size_of(self._sleep_dir)
            self._machine = None
            self._removal = self._spawn(machine.remove())
            note.is_done = True
        self._wake_for_late_calls()

    def _wake_for_late_calls(self) -> None:
        """Wake again for a call that got hold of the agent just before and has not opened its stream yet."""
        if self._guest is not None and self._activity.calls > self._guest.open_streams:
            self._spawn(self.resume())

    async def _wake(self) -> None:
        """Restore; the connection, if this process had one, keeps its streams."""
        async with self._journal.transition(Doing.WAKE, State.RUNNING) as note:
            steps = Steps()
            await self._launch(steps, self._sleep_dir, orphans="kill", former=self._guest)
            note.data["steps_ms"] = steps.ms
        self._discard_sleep()

    @asynccontextmanager
    async def _thawed(self, machine: Machine) -> AsyncIterator[None]:
        """Let a paused machine go for as long as it takes to save it; one that still is there is paused again."""
        if self.state is not State.PAUSED:
            yield
            return
        await machine.resume()
        try:
            yield
        finally:
            if self._machine is machine:
                await machine.pause()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    async def save(self, to: Path, doing: Literal[Doing.SNAPSHOT, Doing.FORK]) -> None:
        """Write its state at this moment to the new directory ``to``; it goes on, or sleeps on.

        Raises:
            NoSpaceError: the disk is full; nothing is left at ``to``.
        """
        await self._uninterrupted(self._save, to, doing)

    async def _save(self, to: Path, doing: Doing) -> None:
        if self.state is State.ASLEEP:
            async with self._journal.transition(doing, State.ASLEEP) as note:
                await asyncio.to_thread(checkpoints.link, self._sleep_dir, to)
                note.data["checkpoint_bytes"] = checkpoints.size_of(self._sleep_dir)
            return
        machine, guest = self._awake("saved")
        async with (
            self._journal.transition(doing, self.state),
            self._thawed(machine),
            self._launcher.standstill(machine, guest),
        ):
            await machine.checkpoint(to, After.RUN)

    async def restore(self, checkpoint: Path) -> None:
        """Go back to a snapshot, in place; what happened since is lost, and a failed sandbox lives again."""
        await self._uninterrupted(self._restore, checkpoint)

    async def _restore(self, checkpoint: Path) -> None:
        if self.state is State.DELETED:
            raise self._wrong_state("restored")
        async with self._journal.transition(Doing.RESTORE, State.RUNNING) as note:
            note.failed_state = State.FAILED
            note.changes["cpu_us"] = self._cpu_us()
            await self._drop_machine()
            steps = Steps()
            await self._launch(steps, checkpoint, orphans="keep")
            note.data["steps_ms"] = steps.ms
        self._discard_sleep()

    # -- the end -------------------------------------------------------------------------------------------------------

    async def delete(self, reason: str = "asked") -> None:
        """End it; returns when its processes are gone, and the rest is cleaned up behind. Deleting twice is nothing."""
        await self._uninterrupted(self._delete, reason)

    async def _delete(self, reason: str) -> None:
        if self.state is State.DELETED:
            return
        try:
            await self._journal.begin(Doing.DELETE)
        except NoSpaceError:  # deleting is how a full disk is emptied, so it makes room for its own record first
            if self._machine is not None:
                await self._machine.kill()
            await asyncio.to_thread(shutil.rmtree, self._sleep_dir, ignore_errors=True)
            await self._journal.begin(Doing.DELETE)
        if self._machine is not None:
            await self._machine.kill()
        note = Note(changes={"cpu_us": self._cpu_us(), "doing": Doing.DELETE}, data={"reason": reason})
        await self._journal.end(State.DELETED, Doing.DELETE, note)
        self._spawn(self._clean_up())

    async def _clean_up(self) -> None:
        """Remove every trace, and only then say that nothing is left to do."""
        await self._drop_machine()
        if self._removal is not None:
            await self._removal
        await self._services.driver.sweep(self.machine_spec())
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        await self._journal.write({"doing": None})

    async def close(self) -> None:
        """Let go of it as the process ends: a one-off is deleted, any other one that is awake goes to sleep.

        Raises:
            NoSpaceError: there was no room to sleep; it runs on, and the next process takes it over.
        """
        try:
            if self.row.is_ephemeral:
                await self.delete("its process ended")
            elif self.state in AWAKE:
                await self.sleep()
        finally:
            await self._settle()
            if self._guest is not None:
                await self._guest.close()
            self._owner.release(remove=self.state is State.DELETED)

    async def _settle(self) -> None:
        """Return when nothing that it began is still under way."""
        while pending := [task for task in self._tasks if task is not self._watcher]:
            await asyncio.wait(pending)
        if self._watcher is not None:
            self._watcher.cancel()

    # -- clocks and usage ----------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Look at the clocks: end it when its time is over, put it to sleep when idle, write usage down."""
        if self.is_expired():
            await self.delete("ttl")
        elif self.state is State.RUNNING and self.row.doing is None:
            self._look()
            if self._is_idle():
                await self._uninterrupted(self._sleep_if_idle)
        now_s = self._services.clock.monotonic_s()
        if self._machine is not None and now_s - self._sampled_s >= self._services.settings.sample_s:
            await self._services.store.add_events(*self._sample())

    def is_expired(self) -> bool:
        """Whether its life time is over."""
        return self.row.expires_ms is not None and self._services.clock.now_ms() >= self.row.expires_ms

    def _look(self) -> None:
        guest = self._guest
        held = guest is not None and guest.held_until_unix_ms > self._services.clock.now_ms()
        is_used = guest is None or guest.open_streams > 0 or held
        self._activity.look(is_used=is_used, cpu_us=self._machine_cpu_us())

    def _is_idle(self) -> bool:
        return self.spec.sleep_after_s is not None and self._activity.is_idle_for(self.spec.sleep_after_s)

    async def _sleep_if_idle(self) -> None:
        """Look again now that nobody else is in the middle of a transition."""
        if self.state is State.RUNNING and self._is_idle():
            await self._sleep()

    def _machine_cpu_us(self) -> int:
        return 0 if self._machine is None else self._machine.usage().cpu_us

    def _cpu_us(self) -> int:
        return self.row.cpu_us + self._machine_cpu_us()

    def _sample(self) -> list[EventRow]:
        """Return what its machine uses now, as an event; nothing where it has none."""
        if self._machine is None:
            return []
        self._sampled_s = self._services.clock.monotonic_s()
        usage = self._machine.usage()
        data = {
            "cpu_us": self.row.cpu_us + usage.cpu_us,
            "memory_bytes": usage.memory_bytes,
            "memory_peak_bytes": usage.memory_peak_bytes,
            "memory_limit_mib": self.spec.memory_mib,
            "disk_bytes": usage.disk_bytes,
            "oom_kills": self._machine.oom_kills(),
        }
        return [self._journal.event("usage", data)]

    # -- taking over after a crash -------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Bring row and machine together again after their process died."""
        await self._uninterrupted(self._recover)

    async def _recover(self) -> None:
        machine = await self._services.driver.adopt(self.machine_spec())
        if self.row.is_ephemeral or self.state in {State.CREATING, State.DELETED}:
            await self._finish_off(machine)
            return
        self._remove_parts()
        if machine is not None and self.row.doing == Doing.WAKE:
            # Nobody was answered yet, and the checkpoint it was waking from is whole: it sleeps on.
            await machine.remove()
            machine = None
        reason: str | None = "it ended while no process watched it"
        if machine is not None:
            reason = await self._adopt(machine)
        if reason is None or (self.state is State.FAILED and self.row.doing is None):
            return
        if self._sleeps_on_disk():
            kept = checkpoints.size_of(self._sleep_dir)
            await self._journal.end(State.ASLEEP, None, Note(data={"recovered": True, "checkpoint_bytes": kept}))
        else:
            await self._services.driver.sweep(self.machine_spec())
            await self._journal.end(State.FAILED, None, Note(data={"recovered": True, "reason": reason}))

    def _sleeps_on_disk(self) -> bool:
        """Whether the checkpoint on disk is its last state, not one that it has woken from since."""
        return self._sleep_dir.exists() and (self.state is State.ASLEEP or self.row.doing == Doing.SLEEP)

    async def _finish_off(self, machine: Machine | None) -> None:
        self._machine = machine
        if self.state is State.DELETED:
            await self._clean_up()
        else:
            await self._delete("its process ended")

    async def _adopt(self, machine: Machine) -> str | None:
        """Take over a machine that runs; return None, or why that was not possible."""
        was_paused = self.state is State.PAUSED
        try:
            guest = await self._launcher.attach(machine, orphans="kill")
        except SandyardError as error:
            await machine.remove()
            return f"its agent did not answer after a restart: {error.what}"
        self._take(machine, guest)
        if was_paused:
            await machine.pause()
        self._discard_sleep()
        await self._journal.end(State.PAUSED if was_paused else State.RUNNING, None, Note(data={"recovered": True}))
        return None

    # -- how work is done ----------------------------------------------------------------------------------------------

    async def _uninterrupted(self, do: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it alone and to its end, even when whoever asked is cancelled: half a transition helps nobody."""

        async def alone() -> T:
            async with self._mutex:
                with self._services.layout.full_disk_told():
                    return await do(*args, **kwargs)

        return await asyncio.shield(self._spawn(alone()))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits is told; for the rest the events have it

    async def _drop_machine(self) -> None:
        """Remove the machine, if there is one, and end every call that still uses it."""
        machine, self._machine = self._machine, None
        guest, self._guest = self._guest, None
        if machine is not None:
            await machine.remove()
        if guest is not None:
            await guest.close()

    def _discard_sleep(self) -> None:
        """Remove the checkpoint that it woke from, behind the caller's back: unlinking a GiB takes a while."""
        checkpoints.set_aside(self._sleep_dir)
        self._remove_parts()

    def _remove_parts(self) -> None:
        """Remove what is set aside, and what a killed process was writing or removing, behind the caller's back."""
        checkpoints.set_aside(self._sleep_dir.with_name(f"{self._sleep_dir.name}.part"))  # the next one has its name
        for path in self._directory.glob("*.part"):
            self._spawn(asyncio.to_thread(shutil.rmtree, path, ignore_errors=True))

    def _awake(self, verb: str) -> tuple[Machine, Guest]:
        if self.state not in AWAKE or self._machine is None or self._guest is None:
            raise self._wrong_state(verb)
        return self._machine, self._guest


class _ExecOptions(TypedDict):
    """What the agent is told about a command whichever way it is started."""

    shell: str | None
    env: dict[str, str]
    cwd: str
    user: str
    pty: PtySize | None
    timeout_s: float | None
    exec_id: str
