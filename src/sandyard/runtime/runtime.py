"""All sandboxes of one state directory that this process owns: making, finding, forking, and the clocks over them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sandyard.drivers import Driver, Machine
from sandyard.drivers.gvisor import Gvisor
from sandyard.errors import (
    InvalidRequestError,
    SandboxLockedError,
    SandboxNotFoundError,
    SandboxStateError,
    SandyardError,
    StartError,
)
from sandyard.images import Image, ImageStore, Progress
from sandyard.images.progress import silent
from sandyard.runtime.agents import install_agent
from sandyard.runtime.clock import Clock, SystemClock
from sandyard.runtime.ids import new_id
from sandyard.runtime.launch import Steps
from sandyard.runtime.layout import Layout
from sandyard.runtime.owner import OwnerLock, holder
from sandyard.runtime.pool import Pool
from sandyard.runtime.sandbox import Sandbox
from sandyard.runtime.services import Services, Settings
from sandyard.runtime.snapshots import Kind, Snapshots
from sandyard.runtime.spec import HostSize, SandboxSpec, check_spec
from sandyard.runtime.states import Boot, Doing, State
from sandyard.store import EventRow, SandboxRow, Store

MAX_FORKS = 100

T = TypeVar("T")


class Runtime:
    """Sandboxes on this host, kept under one state directory.

    Several processes may use one directory at a time; each sandbox has one owner. Use ``open``, as a context manager:
    on the way out one-off sandboxes are deleted and all others that are awake go to sleep, so nothing runs unowned.
    """

    def __init__(self, services: Services) -> None:
        """Work with these parts; ``open`` makes them."""
        self._services = services
        self.snapshots = Snapshots(services)
        self.pool = Pool(self._make, services.settings.refill_after_s)
        self._owned: dict[str, Sandbox] = {}
        self._loading = asyncio.Lock()
        self._starts = asyncio.Semaphore(services.settings.starts_at_once)
        self._ticker: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        state_dir: Path,
        *,
        driver: Driver | None = None,
        images: ImageStore | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
    ) -> Self:
        """Open the state directory, made if need be, and take over what an earlier process left.

        Raises:
            StateVersionError: a newer version has written it.
            HostError: this host lacks what is needed.
            NoSpaceError: the disk is full.
        """
        layout = Layout(state_dir.absolute())
        layout.make()
        services = Services(
            store=await Store.open(layout.database),
            driver=driver or Gvisor(),
            images=images or ImageStore(layout.images),
            layout=layout,
            clock=clock or SystemClock(),
            settings=settings or Settings(),
            size=HostSize.read(),
            host=socket.gethostname(),
            agent=install_agent(layout),
        )
        runtime = cls(services)
        try:
            await runtime._recover()
        except BaseException:
            await runtime.close()
            raise
        runtime._ticker = asyncio.create_task(runtime._tick_forever())
        return runtime

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Delete one-offs, put the rest to sleep and let go of everything. Closing twice is nothing.

        Raises:
            ExceptionGroup: of what kept sandboxes from sleeping; those run on until the next process takes them over.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker
        await self.pool.close()
        owned, self._owned = self._owned, {}
        outcomes = await asyncio.gather(*(sandbox.close() for sandbox in owned.values()), return_exceptions=True)
        await self._services.store.close()
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if errors:
            raise ExceptionGroup("some sandboxes could not be put to sleep", errors)

    # -- making --------------------------------------------------------------------------------------------------------

    async def create(
        self, spec: SandboxSpec | None = None, *, is_ephemeral: bool = False, progress: Progress = silent
    ) -> Sandbox:
        """Make a sandbox: from the pool, else from its image's template, else cold, which makes the template.

        Args:
            spec: what is wanted.
            is_ephemeral: a one-off: deleted when this process closes or dies.
            progress: told how far pulls and builds are.

        Raises:
            InvalidSpecError: it can never run here.
            ImageError: the image cannot be had.
            StartError: it did not start.
        """
        spec = spec or SandboxSpec()
        check_spec(spec, self._services.size)
        steps = Steps()
        async with steps.measure("image"):
            image = await self._services.images.resolve(spec.image, progress)
            key = await self._key(spec, image)
        while (pooled := self.pool.take(key)) is not None:
            try:
                async with steps.measure("claim"):
                    await pooled.claim(spec, is_ephemeral=is_ephemeral)
            except SandboxStateError:
                await pooled.delete("it died in the pool")
            else:
                pooled.steps_ms = steps.ms
                return pooled
        progress("Starting the sandbox", None, None)
        return await self._make(spec, image, steps, is_ephemeral=is_ephemeral)

    async def warm(self, spec: SandboxSpec, size: int, *, progress: Progress = silent) -> None:
        """Keep ``size`` copies of what ``spec`` asks for running ahead of need; returns when they are there.

        Raises:
            StartError: they could not be started.
        """
        check_spec(spec, self._services.size)
        image = await self._services.images.resolve(spec.image, progress)
        await self.pool.fill(await self._key(spec, image), spec, image, size)

    async def fork(self, sandbox_id: str, count: int = 1) -> list[Sandbox]:
        """Make ``count`` new sandboxes that go on from this moment of another; all of them or none.

        Raises:
            SandboxNotFoundError: there is no such sandbox.
            NoSpaceError: the disk is full; the sandbox goes on.
        """
        if not 1 <= count <= MAX_FORKS:
            raise InvalidRequestError(f"a fork into {count} is not possible.", hint=f"Ask for 1 to {MAX_FORKS}.")
        parent = await self.get(sandbox_id)
        saved = await self.snapshots.take(parent, Kind.FORK)
        try:
            made = await asyncio.gather(
                *(self._fork_one(parent, self.snapshots.path(saved)) for _ in range(count)), return_exceptions=True
            )
        finally:
            await self.snapshots.delete(saved)
        forks = [fork for fork in made if isinstance(fork, Sandbox)]
        errors = [error for error in made if isinstance(error, BaseException)]
        if errors:
            await asyncio.gather(*(fork.delete("its fork failed") for fork in forks))
            raise errors[0]
        return forks

    async def _fork_one(self, parent: Sandbox, checkpoint: Path) -> Sandbox:
        row = replace(self._new_row(parent.spec), image_digest=parent.row.image_digest, agent=parent.row.agent)
        row = replace(row, parent=parent.id, is_ephemeral=parent.row.is_ephemeral)
        fork = await self._register(row)
        async with self._starts:
            await fork.start(Boot.FORK, Steps(), checkpoint=checkpoint)
        return fork

    async def _key(self, spec: SandboxSpec, image: Image) -> str:
        return self.snapshots.template_key(spec, image.digest, await self._services.driver.version())

    async def _make(
        self, spec: SandboxSpec, image: Image, steps: Steps, *, is_ephemeral: bool, for_pool: bool = False
    ) -> Sandbox:
        """Start a sandbox from the template, or make the template with it."""
        row = replace(self._new_row(spec), image_digest=image.digest, is_ephemeral=is_ephemeral)
        if for_pool:
            row = replace(row, doing=Doing.WAIT_IN_POOL)
        async with self._starts:
            with self._services.images.pin(image.digest):
                return await self._start(row, await self._key(spec, image), steps)

    async def _start(self, row: SandboxRow, key: str, steps: Steps) -> Sandbox:
        template = await self.snapshots.template(key)
        if template is None:
            async with self.snapshots.making_template(key):
                template = await self.snapshots.template(key)
                if template is None:
                    return await self._start_cold(row, key, steps)
        sandbox = await self._register(row)
        try:
            await sandbox.start(Boot.TEMPLATE, steps, checkpoint=self.snapshots.path(template))
        except StartError:
            if self.snapshots.path(template).exists() and (await self.snapshots.template(key)) == template:
                await self.snapshots.delete(template)  # it does not start: the next one makes it anew
            raise
        return sandbox

    async def _start_cold(self, row: SandboxRow, key: str, steps: Steps) -> Sandbox:
        sandbox = await self._register(row)

        async def save(machine: Machine) -> None:
            await self.snapshots.save_template(sandbox, machine, key)

        await sandbox.start(Boot.COLD, steps, before_life=save)
        return sandbox

    def _new_row(self, spec: SandboxSpec) -> SandboxRow:
        services = self._services
        now_ms = services.clock.now_ms()
        return SandboxRow(
            id=new_id("sb"),
            host=services.host,
            driver=services.driver.name,
            state=State.CREATING,
            doing=Doing.CREATE,
            reason=None,
            image=spec.image,
            image_digest="",
            agent=services.agent,
            spec=spec.to_json(),
            is_ephemeral=False,
            parent=None,
            boot=None,
            cpu_us=0,
            created_ms=now_ms,
            expires_ms=spec.expires_ms(now_ms),
        )

    async def _register(self, row: SandboxRow) -> Sandbox:
        """Own the id first and write the row second, so that nobody takes a sandbox in the making for an orphan."""
        lock = self._take_lock(row.id)
        event = EventRow(row.created_ms, row.id, "state", {"from": None, "to": row.state, "phase": "begin"})
        try:
            await self._services.store.insert_sandbox(row, event)
        except BaseException:
            lock.release(remove=True)
            raise
        sandbox = Sandbox(row, self._services, lock)
        self._owned[row.id] = sandbox
        return sandbox

    # -- finding -------------------------------------------------------------------------------------------------------

    async def sandboxes(self) -> list[SandboxRow]:
        """Return all sandboxes that are not deleted, whoever owns them, without the pool's."""
        rows = await self._services.store.sandboxes(without_states=[State.DELETED])
        return [row for row in rows if row.state != State.DELETED and row.doing != Doing.WAIT_IN_POOL]

    async def get(self, sandbox_id: str) -> Sandbox:
        """Return a sandbox, owned by this process from now on.

        Raises:
            SandboxNotFoundError: there is none of this id, or no longer.
            SandboxLockedError: another process owns it.
        """
        async with self._loading:
            sandbox = self._owned.get(sandbox_id) or await self._load(sandbox_id)
        if sandbox.state is State.DELETED:
            raise self._not_found(sandbox_id)
        return sandbox

    async def _load(self, sandbox_id: str) -> Sandbox:
        row = await self._services.store.sandbox(sandbox_id)
        if row is None or row.state == State.DELETED:
            raise self._not_found(sandbox_id)
        lock = self._take_lock(sandbox_id)
        row = await self._services.store.sandbox(sandbox_id)  # again: its former owner may just have let it go
        if row is None:
            lock.release(remove=True)
            raise self._not_found(sandbox_id)
        sandbox = Sandbox(row, self._services, lock)
        self._owned[sandbox_id] = sandbox
        if row.doing is not None or row.state not in {State.ASLEEP, State.FAILED}:
            await sandbox.recover()
        return sandbox

    async def events(self, sandbox_id: str) -> list[EventRow]:
        """Return what happened to a sandbox, deleted ones included.

        Raises:
            SandboxNotFoundError: there never was one of this id.
        """
        if await self._services.store.sandbox(sandbox_id) is None:
            raise self._not_found(sandbox_id)
        return await self._services.store.events(sandbox_id)

    async def restore(self, sandbox_id: str, snapshot_id: str) -> Sandbox:
        """Put a sandbox back to one of its snapshots, in place.

        Raises:
            SnapshotNotFoundError: there is no such snapshot of this sandbox.
            SnapshotError: another version of the driver made it.
        """
        row = await self.snapshots.get(snapshot_id)
        if row.sandbox_id != sandbox_id:
            raise InvalidRequestError(
                f"{snapshot_id} is a snapshot of {row.sandbox_id}, not of {sandbox_id}.",
                hint="Restore that one, or fork it.",
            )
        self.snapshots.check_fits(row, await self._services.driver.version())
        sandbox = await self.get(sandbox_id)
        await sandbox.restore(self.snapshots.path(row))
        return sandbox

    async def prune_images(self) -> Sequence[Image]:
        """Remove images that no sandbox, snapshot or pull under way needs, and return them."""
        removed = await self._services.images.prune(self._used_images)
        gone = {image.digest for image in removed}
        for row in await self._services.store.snapshots():
            if row.kind == Kind.TEMPLATE and row.image_digest in gone:
                await self.snapshots.delete(row)
        return removed

    async def _used_images(self) -> set[str]:
        sandboxes = await self._services.store.sandboxes(without_states=[State.DELETED])
        snapshots = await self._services.store.snapshots()
        return {row.image_digest for row in sandboxes} | {
            row.image_digest for row in snapshots if row.kind == Kind.SNAPSHOT
        }

    # -- clocks and recovery -------------------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            await self._services.clock.sleep(self._services.settings.tick_s)
            await self.tick()

    async def tick(self) -> None:
        """Look at the clocks of every sandbox once."""
        with suppress(SandyardError):  # a full disk; it must not stop the clocks
            await self._load_expired()
        await _gather_limited(map(self._tick_one, list(self._owned.values())), self._services.settings.starts_at_once)

    async def _tick_one(self, sandbox: Sandbox) -> None:
        if sandbox.state is State.DELETED:
            await self._let_go(sandbox)
            return
        with suppress(SandyardError):  # its events have it, and the next tick tries again
            await sandbox.tick()

    async def _load_expired(self) -> None:
        """Load what sleeps past its time, so that its clock is seen."""
        for row in await self._services.store.expired(self._services.clock.now_ms()):
            # Another process has it, or its events have why not; the next tick tries again.
            with suppress(SandyardError):
                await self.get(row.id)

    async def _let_go(self, sandbox: Sandbox) -> None:
        self._owned.pop(sandbox.id, None)
        await sandbox.close()

    async def _recover(self) -> None:
        """Take over what no process owns: whatever was running goes on, whatever was half made goes away."""
        unowned = []
        for row in await self._services.store.sandboxes(without_states=[State.DELETED, State.ASLEEP, State.FAILED]):
            with suppress(SandboxLockedError):
                unowned.append(await self._claim(row))
        await _gather_limited((sandbox.recover() for sandbox in unowned), self._services.settings.starts_at_once)
        await self.snapshots.collect(await self._services.driver.version(), self._owned)

    async def _claim(self, row: SandboxRow) -> Sandbox:
        lock = self._take_lock(row.id)
        current = await self._services.store.sandbox(row.id)
        sandbox = Sandbox(current or row, self._services, lock)
        self._owned[row.id] = sandbox
        return sandbox

    def _take_lock(self, sandbox_id: str) -> OwnerLock:
        """Become the owner of a sandbox.

        Raises:
            SandboxLockedError: another process is.
        """
        path = self._services.layout.lock(sandbox_id)
        with self._services.layout.full_disk_told():
            lock = OwnerLock.take(path)
        if lock is None:
            raise SandboxLockedError(
                f"sandbox {sandbox_id} is in use by another process (pid {holder(path)}).",
                hint="Wait until that one is done with it, or end it.",
            )
        return lock

    def _not_found(self, sandbox_id: str) -> SandboxNotFoundError:
        return SandboxNotFoundError(
            f"there is no sandbox {sandbox_id}.", hint="'sandyard sandboxes list' shows those that exist."
        )


async def _gather_limited(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """Await all of them, ``limit`` at a time."""
    semaphore = asyncio.Semaphore(limit)

    async def one(item: Awaitable[T]) -> T:
        async with semaphore:
            return await item

    return await asyncio.gather(*(one(item) for item in work))
