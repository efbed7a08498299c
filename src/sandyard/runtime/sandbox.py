"""One sandbox and its transitions: each is written down before it is acted on and after, and runs to its end once begun."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from sandyard.drivers import After, ExitReason, Machine, MachineExit, MachineSpec
from sandyard.errors import (
    DeadlineExceededError,
    SandboxGoneError,
    SandboxStateError,
    SandyardError,
    StartError,
    StartTimeoutError,
    TransportError,
)
from sandyard.guest import ExecResult, Guest, Process, PtySize
from sandyard.images import ImageConfig
from sandyard.runtime.ids import new_id
from sandyard.runtime.owner import OwnerLock
from sandyard.runtime.services import Services, hostname
from sandyard.runtime.spec import SandboxSpec, check_env
from sandyard.runtime.states import AWAKE, Boot, Doing, State
from sandyard.store import EventRow, SandboxRow

OUT_OF_MEMORY = "out-of-memory"
"""The error code of a sandbox that was killed for reaching its memory limit."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command to run inside."""

    argv: Sequence[str] | None = None
    """Program and arguments; or ``shell``."""

    shell: str | None = None
    """A line for the sandbox's own shell; or ``argv``."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Over the sandbox's and the image's."""

    workdir: str | None = None
    user: str | None = None

    stdin: bool = False
    """Whether input will be sent; without, the command finds its stdin at the end."""

    pty: PtySize | None = None

    timeout_s: float | None = None
    detach: bool = False


class Steps:
    """How long each step of a transition took, in milliseconds, in the order in which they ran."""

    def __init__(self) -> None:
        """Start with none."""
        self.ms: dict[str, float] = {}

    @asynccontextmanager
    async def measure(self, name: str) -> AsyncIterator[None]:
        """Time what is inside."""
        began = time.perf_counter()
        yield
        self.ms[name] = round((time.perf_counter() - began) * 1000, 2)


P = ParamSpec("P")
T = TypeVar("T")

SaveTemplate = Callable[["Sandbox", Machine], Awaitable[None]]
"""Writes a template of a machine that stands still for it."""


@dataclass(slots=True)
class Note:
    """What a transition wants written down when it ends."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Columns of the sandbox's row."""

    data: dict[str, Any] = field(default_factory=dict)
    """Facts for the event."""

    samples: list[EventRow] = field(default_factory=list)
    """Usage events, where they had to be taken before the end."""

    failed_state: State | None = None
    """Where it is when the transition fails; None for where it was."""


class Sandbox:
    """One sandbox that this process owns."""

    def __init__(self, row: SandboxRow, services: Services, lock: OwnerLock) -> None:
        """Take the sandbox over in the state that ``row`` says; nothing runs yet."""
        self.row = row
        self.spec = SandboxSpec.from_json(row.spec)
        self.steps_ms: dict[str, float] = {}
        self._services = services
        self._owner = lock
        self._machine: Machine | None = None
        self._guest: Guest | None = None
        self._mutex = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._active = 0
        self._idle_since = services.clock.monotonic_s()
        self._cpu_seen: tuple[float, int] | None = None
        self._sampled_s = services.clock.monotonic_s()

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its id, ``sb_`` and 16 characters."""
        return self.row.id

    @property
    def state(self) -> State:
        """Where it is now."""
        return State(self.row.state)

    @property
    def machine(self) -> Machine | None:
        """The machine under it while it is awake."""
        return self._machine

    @property
    def _layout_dir(self) -> Path:
        return self._services.layout.sandbox(self.id)

    @property
    def _sleep_dir(self) -> Path:
        return self._services.layout.sleep(self.id)

    def machine_spec(self) -> MachineSpec:
        """What its machine is made with."""
        row = self.row
        return self._services.machine_spec(self.id, self.spec, image_digest=row.image_digest, agent=row.agent)

    # -- using it ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[Guest]:
        """Give the agent's calls, waking or resuming the sandbox first; it does not count as idle meanwhile.

        Raises:
            SandboxStateError: it has failed or is deleted.
            SandboxGoneError: it ended while it was used; the text says of what.
        """
        self._active += 1
        try:
            yield await self._ensure_running()
        except (SandboxGoneError, TransportError) as error:
            raise await self._why_gone(error) from error
        finally:
            self._active -= 1
            self._touch()

    @asynccontextmanager
    async def exec(self, command: Command) -> AsyncIterator[Process]:
        """Start a command and give its streams; one that is left before its end is killed, unless detached."""
        check_env(command.env)
        config = self._services.images.get(self.row.image_digest).config
        async with self.awake() as guest:
            process = await guest.exec(
                command.argv,
                shell=command.shell,
                env={**config.env, **self.spec.env, **command.env},
                cwd=command.workdir or self.spec.workdir or config.workdir or "",
                user=self._user(command, config),
                stdin=command.stdin,
                pty=command.pty,
                timeout_s=command.timeout_s,
                detach=command.detach,
                exec_id=new_id("ex"),
            )
            try:
                yield process
            finally:
                await process.aclose()

    async def run(self, command: Command, *, stdin: bytes | None = None, limit: int = 16 * 1024 * 1024) -> ExecResult:
        """Run a command to its end and return its output, at most ``limit`` bytes of each stream."""
        command = replace(command, stdin=stdin is not None)
        async with self.exec(command) as process:
            return await process.collect(stdin, limit=limit)

    def _user(self, command: Command, config: ImageConfig) -> str:
        return (
            command.user if command.user is not None else self.spec.user if self.spec.user is not None else config.user
        )

    async def _ensure_running(self) -> Guest:
        if self.state is State.RUNNING and self.row.doing is None and self._guest is not None:
            return self._guest
        return await self._uninterrupted(self._wake_or_resume)

    async def _wake_or_resume(self) -> Guest:
        if self.state is State.PAUSED:
            await self._resume()
        elif self.state is State.ASLEEP:
            await self._wake()
        elif self.state is not State.RUNNING:
            raise self._wrong_state("used")
        if self._guest is None:
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
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._watcher), 5)
        if self.state is not State.FAILED or self.row.reason is None:
            return error
        memory = self.row.reason.startswith("out of memory")
        return SandboxGoneError(
            f"sandbox {self.id} ended while it was in use: {self.row.reason}.",
            hint="Give it more memory." if memory else "Its events say what happened before.",
            code=OUT_OF_MEMORY if memory else None,
        )

    # -- being made ----------------------------------------------------------------------------------------------------

    async def start(
        self, boot: Boot, steps: Steps, *, checkpoint: Path | None = None, save_template: SaveTemplate | None = None
    ) -> None:
        """Bring the machine up, from a checkpoint or cold; on failure nothing of the sandbox is left but its row.

        Raises:
            StartError: it did not start.
            StartTimeoutError: its agent did not answer.
        """

        async def begin() -> None:
            self._layout_dir.mkdir(mode=0o700)
            async with self._transition(Doing.CREATE, State.RUNNING) as note:
                await self._bring_up(steps, checkpoint, save_template, orphans="keep")
                note.changes["boot"] = boot
                note.data |= {"boot": boot, "steps_ms": steps.ms}
            self.steps_ms = steps.ms

        try:
            await self._uninterrupted(begin)
        except BaseException:
            await self._uninterrupted(self._delete)
            raise

    async def _bring_up(
        self,
        steps: Steps,
        checkpoint: Path | None,
        save_template: SaveTemplate | None,
        *,
        orphans: Literal["kill", "keep"],
    ) -> None:
        driver, spec = self._services.driver, self.machine_spec()
        async with steps.measure("boot" if checkpoint is None else "restore"):
            machine = await (driver.boot(spec) if checkpoint is None else driver.restore(spec, checkpoint))
        try:
            async with steps.measure("attach"):
                guest = await self._attach(machine, orphans=orphans)
            if save_template is not None:
                async with steps.measure("template"), self._standstill(machine, guest):
                    await save_template(self, machine)
            async with steps.measure("introduce"):
                await self._introduce(guest)
        except BaseException:
            await machine.remove()
            raise
        self._take(machine, guest)

    async def _attach(
        self, machine: Machine, *, orphans: Literal["kill", "keep"], former: Guest | None = None
    ) -> Guest:
        timeout_s = self._services.settings.start_timeout_s
        channel = await machine.connect()
        guest = former or Guest(channel)
        try:
            if former is None:
                await guest.attach(orphans=orphans, timeout_s=timeout_s)
            else:
                await guest.reattach(channel, timeout_s=timeout_s)
        except DeadlineExceededError as error:
            raise StartTimeoutError(
                f"the agent in sandbox {self.id} did not answer within {timeout_s:g} s.",
                hint="The host may be overloaded: try again with fewer sandboxes at once.",
            ) from error
        except TransportError as error:
            raise StartError(f"sandbox {self.id} broke off while it started: {error}", hint="Try again.") from error
        except SandboxGoneError as error:
            end = await machine.wait()
            raise StartError(
                f"sandbox {self.id} ended while it started: {describe(end)}.", hint="Give it more memory, or try again."
            ) from error
        return guest

    async def _introduce(self, guest: Guest) -> None:
        """Tell the agent who it is now: copies of one checkpoint differ from here on."""
        await guest.after_restore(
            id=self.id,
            hostname=hostname(self.id),
            entropy=secrets.token_bytes(64),
            time_unix_ns=time.time_ns(),
        )
        if self.row.is_ephemeral:
            await guest.lease(self._services.settings.lease_s)

    @asynccontextmanager
    async def _standstill(self, machine: Machine, guest: Guest) -> AsyncIterator[None]:
        """Have the agent stand at a frame boundary while a checkpoint is written, and go on after."""
        await guest.prepare_checkpoint()
        try:
            yield
        finally:
            await self._attach(machine, orphans="keep", former=guest)

    def _take(self, machine: Machine, guest: Guest) -> None:
        self._machine, self._guest = machine, guest
        self._cpu_seen = None
        self._touch()
        self._watcher = self._spawn(self._watch(machine))

    async def _watch(self, machine: Machine) -> None:
        """Learn of an end that nobody asked for."""
        end = await machine.wait()
        if end.reason not in {ExitReason.MEMORY, ExitReason.FAULT}:
            return
        async with self._mutex:
            if self._machine is machine:
                await self._fail(describe(end))

    async def _fail(self, reason: str) -> None:
        """Write down that it ended, with what it had used, and clean up after it."""
        sample = self._sample()
        changes = {"state": State.FAILED, "doing": None, "reason": reason, "cpu_us": self._cpu_us()}
        await self._write(changes, *sample, self._state_event(State.FAILED, None, "end", {"reason": reason}))
        await self._drop_machine()

    # -- pause, sleep, wake --------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Stop all its processes and keep them in memory; a paused or sleeping sandbox stays as it is."""
        await self._uninterrupted(self._pause)

    async def _pause(self) -> None:
        if self.state in {State.PAUSED, State.ASLEEP}:
            return
        machine, _ = self._running("paused")
        async with self._transition(Doing.PAUSE, State.PAUSED):
            await machine.pause()

    async def resume(self) -> None:
        """Let it go on, from memory or from disk."""
        await self._uninterrupted(self._wake_or_resume)

    async def _resume(self) -> None:
        machine = self._awake("resumed")
        async with self._transition(Doing.RESUME, State.RUNNING):
            await machine.resume()
        self._touch()

    async def wake(self) -> None:
        """Let it go on; the same as ``resume``, whichever sleep it is in."""
        await self.resume()

    async def sleep(self) -> None:
        """Save it to disk and free all it holds; open streams go on when it wakes.

        Raises:
            NoSpaceError: the disk is full; the sandbox goes on as it was.
        """
        await self._uninterrupted(self._sleep)

    async def _sleep(self) -> None:
        if self.state is State.ASLEEP:
            return
        machine = self._awake("put to sleep")
        async with self._transition(Doing.SLEEP, State.ASLEEP) as note, self._thawed(machine):
            await self._save_and_stop(machine, note)

    async def _save_and_stop(self, machine: Machine, note: Note) -> None:
        guest = self._guest_of("put to sleep")
        await guest.prepare_checkpoint()
        try:
            await machine.checkpoint(self._sleep_dir, After.STOP)
        except BaseException:
            await self._attach(machine, orphans="keep", former=guest)
            raise
        note.samples = self._sample()
        note.changes["cpu_us"] = self._cpu_us()
        note.data["checkpoint_bytes"] = directory_bytes(self._sleep_dir)
        self._machine = None
        await machine.remove()

    async def _wake(self) -> None:
        """Restore; the guest object, if this process has one, keeps its streams."""
        async with self._transition(Doing.WAKE, State.RUNNING) as note:
            steps = Steps()
            async with steps.measure("restore"):
                machine = await self._services.driver.restore(self.machine_spec(), self._sleep_dir)
            try:
                async with steps.measure("attach"):
                    guest = await self._attach(machine, orphans="kill", former=self._guest)
                async with steps.measure("introduce"):
                    await self._introduce(guest)
            except BaseException:
                await machine.remove()
                raise
            self._take(machine, guest)
            note.data["steps_ms"] = steps.ms
        self._discard(self._sleep_dir)

    @asynccontextmanager
    async def _thawed(self, machine: Machine) -> AsyncIterator[None]:
        """Let a paused machine go for as long as it takes to save it; on failure it is paused again."""
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

    async def save(self, to: Path, doing: Literal[Doing.SNAPSHOT, Doing.FORK], *written: EventRow) -> None:
        """Write its state at this moment to the new directory ``to``; it goes on, or sleeps on."""

        async def begin() -> None:
            if self.state is State.ASLEEP:
                async with self._transition(doing, State.ASLEEP):
                    await asyncio.to_thread(link_tree, self._sleep_dir, to)
                return
            machine = self._awake("saved")
            guest = self._guest_of("saved")
            async with (
                self._transition(doing, self.state) as note,
                self._thawed(machine),
                self._standstill(machine, guest),
            ):
                await machine.checkpoint(to, After.RUN)
                note.samples = list(written)

        await self._uninterrupted(begin)

    async def restore(self, checkpoint: Path) -> None:
        """Go back to a snapshot, in place; what happened since is lost, and a failed sandbox lives again."""

        async def begin() -> None:
            if self.state is State.DELETED:
                raise self._wrong_state("restored")
            async with self._transition(Doing.RESTORE, State.RUNNING) as note:
                note.changes["cpu_us"] = self._cpu_us()
                await self._drop_machine()
                steps = Steps()
                try:
                    await self._bring_up(steps, checkpoint, None, orphans="keep")
                except BaseException:
                    note.failed_state = State.FAILED
                    raise
                note.data["steps_ms"] = steps.ms
            self._discard(self._sleep_dir)

        await self._uninterrupted(begin)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def delete(self, reason: str = "asked") -> None:
        """End it; returns when its processes are gone, and the rest is cleaned up behind. Deleting twice is nothing."""
        await self._uninterrupted(self._delete, reason)

    async def _delete(self, reason: str = "asked") -> None:
        if self.state is State.DELETED:
            return
        await self._begin(Doing.DELETE)
        machine = self._machine
        if machine is not None:
            await machine.kill()
        changes = {"state": State.DELETED, "reason": reason, "cpu_us": self._cpu_us()}
        await self._write(
            changes, *self._sample(), self._state_event(State.DELETED, Doing.DELETE, "end", {"reason": reason})
        )
        self._spawn(self._clean_up())

    async def _clean_up(self) -> None:
        """Remove every trace, and only then say that nothing is left to do."""
        await self._drop_machine()
        await self._services.driver.sweep(self.machine_spec())
        await asyncio.to_thread(shutil.rmtree, self._layout_dir, ignore_errors=True)
        await self._write({"doing": None})

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
            await self.settled()
            if self._guest is not None:
                await self._guest.close()
            self._owner.release(remove=self.state is State.DELETED)

    async def settled(self) -> None:
        """Return when nothing that it began is still under way."""
        while pending := [task for task in self._tasks if task is not self._watcher]:
            await asyncio.wait(pending)
        if self._watcher is not None:
            self._watcher.cancel()

    # -- clocks and usage ----------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Look at the clocks: end it when its time is over, put it to sleep when idle, write usage down."""
        now_s = self._services.clock.monotonic_s()
        if self.is_expired():
            await self.delete("ttl")
        elif self.state is State.RUNNING and self.row.doing is None:
            if self.is_idle(now_s):
                await self._uninterrupted(self._sleep_if_idle)
            elif now_s - self._sampled_s >= self._services.settings.sample_s:
                await self._services.store.add_events(*self._sample())

    def is_expired(self) -> bool:
        """Whether its life time is over."""
        return self.row.expires_ms is not None and self._services.clock.now_ms() >= self.row.expires_ms

    def is_idle(self, now_s: float) -> bool:
        """Whether nobody used it, nothing inside holds it awake and it hardly computed, for all of its window."""
        if self._is_busy(now_s):
            self._touch()
        after_s = self.spec.sleep_after_s
        return after_s is not None and now_s - self._idle_since >= after_s

    def _is_busy(self, now_s: float) -> bool:
        guest = self._guest
        if self._active or guest is None or guest.open_streams or guest.is_held(self._services.clock.now_ms()):
            return True
        seen, self._cpu_seen = self._cpu_seen, (now_s, self._machine_cpu_us())
        if seen is None or now_s <= seen[0]:
            return False
        share = (self._cpu_seen[1] - seen[1]) / 1e6 / (now_s - seen[0])
        return share > self._services.settings.idle_cpu_share

    async def _sleep_if_idle(self) -> None:
        """Look again now that nobody else is in the middle of a transition."""
        if self.state is State.RUNNING and self.is_idle(self._services.clock.monotonic_s()):
            await self._sleep()

    def _touch(self) -> None:
        self._idle_since = self._services.clock.monotonic_s()

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
        return [
            self._event(
                "usage",
                {
                    "cpu_us": self.row.cpu_us + usage.cpu_us,
                    "memory_bytes": usage.memory_bytes,
                    "memory_peak_bytes": usage.memory_peak_bytes,
                    "memory_limit_mib": self.spec.memory_mib,
                    "disk_bytes": usage.disk_bytes,
                },
            )
        ]

    # -- taking over after a crash -------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Bring row and machine together again after their process died."""
        await self._uninterrupted(self._recover)

    async def _recover(self) -> None:
        if self.state is State.DELETED or self.row.is_ephemeral or self.state is State.CREATING:
            await self._forget()
            return
        machine = await self._services.driver.adopt(self.machine_spec())
        if machine is not None and self.row.doing == Doing.WAKE:
            # Nobody was answered yet and the checkpoint is whole: waking again is the safe way.
            await machine.remove()
            machine = None
        if machine is not None:
            await self._adopt(machine)
        elif self.state is State.FAILED:
            await self._write({"doing": None})
        elif self._sleep_dir.exists() and self.row.doing in {None, Doing.SLEEP, Doing.WAKE, Doing.SNAPSHOT, Doing.FORK}:
            await self._recovered(State.ASLEEP)
        else:
            await self._recovered(State.FAILED, "it ended while no process watched it")
        self._discard(self._sleep_dir.with_name(f"{self._sleep_dir.name}.part"))

    async def _forget(self) -> None:
        machine = await self._services.driver.adopt(self.machine_spec())
        if machine is not None:
            self._machine = machine
        if self.state is State.DELETED:
            await self._clean_up()
        else:
            await self._delete("its process ended")

    async def _adopt(self, machine: Machine) -> None:
        was_paused = self.state is State.PAUSED
        try:
            guest = await self._attach(machine, orphans="kill")
        except SandyardError as error:
            await machine.remove()
            await self._recovered(State.FAILED, f"its agent did not answer after a restart: {error.what}")
            return
        self._take(machine, guest)
        if was_paused:
            await machine.pause()
        self._discard(self._sleep_dir)
        await self._recovered(State.PAUSED if was_paused else State.RUNNING)

    async def _recovered(self, state: State, reason: str | None = None) -> None:
        data = {"recovered": True} | ({"reason": reason} if reason else {})
        event = self._state_event(state, None, "end", data)
        await self._write({"state": state, "doing": None, "reason": reason}, *self._sample(), event)

    # -- transitions ---------------------------------------------------------------------------------------------------

    async def _uninterrupted(self, do: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it alone and to its end, even when whoever asked is cancelled: half a transition helps nobody."""

        async def alone() -> T:
            async with self._mutex:
                return await do(*args, **kwargs)

        return await asyncio.shield(self._spawn(alone()))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @asynccontextmanager
    async def _transition(self, doing: Doing, to: State) -> AsyncIterator[Note]:
        """Write that it begins, then that it ended; on an error, that it is back where it was."""
        before = self.state
        await self._begin(doing)
        note = Note()
        try:
            yield note
        except BaseException as error:
            state = note.failed_state or before
            reason = error.what if isinstance(error, SandyardError) else repr(error)
            changes = note.changes | {"state": state, "doing": None}
            if note.failed_state is not None:
                changes["reason"] = reason
            await self._write(changes, self._state_event(state, doing, "failed", {"reason": reason}))
            raise
        samples = note.samples or self._sample()
        event = self._state_event(to, doing, "end", note.data)
        await self._write({"reason": None} | note.changes | {"state": to, "doing": None}, *samples, event)

    async def _begin(self, doing: Doing) -> None:
        await self._write({"doing": doing}, *self._sample(), self._state_event(self.state, doing, "begin", {}))

    async def _write(self, changes: dict[str, Any], *happened: EventRow) -> None:
        await self._services.store.update_sandbox(self.id, changes, *happened)
        self.row = replace(self.row, **changes)

    def _state_event(self, to: State, doing: Doing | None, phase: str, data: Mapping[str, Any]) -> EventRow:
        return self._event("state", {"from": self.row.state, "to": to, "doing": doing, "phase": phase, **data})

    def _event(self, kind: str, data: dict[str, Any]) -> EventRow:
        return EventRow(self._services.clock.now_ms(), self.id, kind, data)

    async def _drop_machine(self) -> None:
        """Remove the machine, if there is one, and end every call that still uses it."""
        machine, self._machine = self._machine, None
        guest, self._guest = self._guest, None
        if machine is not None:
            await machine.remove()
        if guest is not None:
            await guest.close()

    def _discard(self, directory: Path) -> None:
        """Remove a checkpoint nobody needs any more, behind the caller's back: unlinking a GiB takes a while."""
        if directory.exists():
            trash = directory.with_name(f"{directory.name}.{secrets.token_hex(4)}.part")
            directory.rename(trash)
            self._spawn(asyncio.to_thread(shutil.rmtree, trash, ignore_errors=True))

    def _running(self, verb: str) -> tuple[Machine, Guest]:
        if self.state is not State.RUNNING:
            raise self._wrong_state(verb)
        return self._awake(verb), self._guest_of(verb)

    def _awake(self, verb: str) -> Machine:
        if self.state not in AWAKE or self._machine is None:
            raise self._wrong_state(verb)
        return self._machine

    def _guest_of(self, verb: str) -> Guest:
        if self._guest is None:
            raise self._wrong_state(verb)
        return self._guest


def describe(end: MachineExit) -> str:
    """Say in half a sentence how a machine ended."""
    if end.reason is ExitReason.MEMORY:
        return f"out of memory: {end.detail}"
    return f"{end.reason}: {end.detail}" if end.detail else str(end.reason)


def directory_bytes(directory: Path) -> int:
    """Return the bytes that a checkpoint's files hold."""
    return sum(path.stat().st_size for path in directory.iterdir())


def link_tree(source: Path, to: Path) -> None:
    """Make a checkpoint appear at a second place without copying: the file system counts who still needs it."""
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for path in source.iterdir():
        (part / path.name).hardlink_to(path)
    part.rename(to)
