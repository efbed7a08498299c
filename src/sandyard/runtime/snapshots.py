"""Saved machines on disk: snapshots that somebody asked for, templates that later sandboxes start from."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path

from sandyard.drivers import After, Machine
from sandyard.errors import NoSpaceError, SnapshotError, SnapshotNotFoundError
from sandyard.runtime.checkpoints import set_aside, size_of
from sandyard.runtime.ids import new_id
from sandyard.runtime.owner import OwnerLock
from sandyard.runtime.sandbox import Sandbox
from sandyard.runtime.services import Services
from sandyard.runtime.spec import SandboxSpec
from sandyard.runtime.states import Doing
from sandyard.store import EventRow, SnapshotRow


class Kind(StrEnum):
    """What a saved machine is for."""

    SNAPSHOT = "snapshot"
    TEMPLATE = "template"
    FORK = "fork"
    """Lives only as long as the fork that needed it."""


class Snapshots:
    """Rows and directories of saved machines; a row is there before its directory and goes after it."""

    def __init__(self, services: Services) -> None:
        """Work on the state directory of ``services``."""
        self._services = services

    async def take(self, sandbox: Sandbox, kind: Kind = Kind.SNAPSHOT) -> SnapshotRow:
        """Save a sandbox at this moment; it goes on, or sleeps on.

        Raises:
            NoSpaceError: the disk is full; nothing is left of it.
        """
        row = await self._begin(sandbox, kind)
        try:
            await sandbox.save(self.path(row), Doing.FORK if kind is Kind.FORK else Doing.SNAPSHOT)
        except BaseException:
            await self._forget(row)
            raise
        return await self._complete(row)

    async def get(self, snapshot_id: str) -> SnapshotRow:
        """Return a complete snapshot.

        Raises:
            SnapshotNotFoundError: there is none of this id.
        """
        row = await self._services.store.snapshot(snapshot_id)
        if row is None or not row.is_complete or row.kind != Kind.SNAPSHOT:
            raise SnapshotNotFoundError(
                f"there is no snapshot {snapshot_id}.", hint="'sandyard sandboxes snapshots' lists them."
            )
        return row

    async def kept(self) -> list[SnapshotRow]:
        """Return the complete snapshots that somebody asked for, oldest first."""
        rows = await self._services.store.snapshots()
        return [row for row in rows if row.is_complete and row.kind == Kind.SNAPSHOT]

    async def delete(self, row: SnapshotRow) -> None:
        """Remove a snapshot; sandboxes made from it have their own copy of what they need."""
        event = self._event(row, {"id": row.id, "kind": row.kind, "bytes": -row.size_bytes})
        aside = set_aside(self.path(row))
        if aside is not None:  # before the row: on a full disk this makes the room to write that it is gone
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
        await self._services.store.delete_snapshot(row.id, event)

    def check_fits(self, row: SnapshotRow, driver_version: str) -> None:
        """Refuse a snapshot that this host's isolation layer did not write.

        Raises:
            SnapshotError: it was made by another driver, or another version of it.
        """
        made_by, here = (row.driver, row.driver_version), (self._services.driver.name, driver_version)
        if made_by != here:
            raise SnapshotError(
                f"{row.id} was saved by {' '.join(made_by)}, and this host runs {' '.join(here)}.",
                hint="Restore it where it was made, or make a new sandbox.",
                code="snapshot-version",
            )

    def path(self, row: SnapshotRow) -> Path:
        """Return where its checkpoint is."""
        return self._services.layout.snapshot(row.id)

    # -- templates -----------------------------------------------------------------------------------------------------

    def template_key(self, spec: SandboxSpec, image_digest: str, driver_version: str) -> str:
        """Return what two sandboxes must share to start from one template."""
        parts = {
            "driver": [self._services.driver.name, driver_version],
            "agent": self._services.agent,
            "image": image_digest,
            "machine": [spec.cpus, spec.memory_mib, asdict(spec.network)],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    async def template(self, key: str) -> SnapshotRow | None:
        """Return the template of this key, if one is made."""
        row = await self._services.store.template(key)
        return row if row is not None and self.path(row).exists() else None

    @asynccontextmanager
    async def making_template(self, key: str) -> AsyncIterator[None]:
        """Make others that want the same template wait, in this process and in every other."""
        lock = await OwnerLock.wait(self._services.layout.lock(f"template-{key}"))
        try:
            yield
        finally:
            lock.release(remove=True)

    async def save_template(self, sandbox: Sandbox, machine: Machine, key: str) -> None:
        """Write a machine that stands still as a template; without room for it, sandboxes just start cold."""
        row = await self._begin(sandbox, Kind.TEMPLATE, key)
        try:
            await machine.checkpoint(self.path(row), After.RUN)
        except (NoSpaceError, SnapshotError) as error:
            await self._forget(row)
            event = EventRow(self._services.clock.now_ms(), sandbox.id, "template-failed", {"reason": error.what})
            await self._services.store.add_events(event)
        except BaseException:
            await self._forget(row)
            raise
        else:
            await self._complete(row)

    # -- cleaning up ---------------------------------------------------------------------------------------------------

    async def collect(self, driver_version: str, owned: Collection[str]) -> None:
        """Remove what nobody can use any more: what was cut short, and templates of another agent or driver version.

        Args:
            driver_version: of the driver now.
            owned: sandboxes that this process has just taken over; it is not saving any of them.
        """
        parts = list(self._services.layout.snapshots.glob("*.part"))
        rows = await self._services.store.snapshots()  # after the files: a row is there before they are
        for row in rows:
            if _is_passing(row):
                await self._collect_passing(row, owned)
            elif row.kind == Kind.TEMPLATE and (row.driver_version, row.agent) != (
                driver_version,
                self._services.agent,
            ):
                await self._forget(row)
        known = {row.id for row in rows}
        for path in parts:
            if path.name.split(".")[0] not in known:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    async def _collect_passing(self, row: SnapshotRow, owned: Collection[str]) -> None:
        """Remove what was being made, unless its maker lives: who saves or forks a sandbox owns it meanwhile."""
        lock = None
        if row.sandbox_id not in owned:
            lock = OwnerLock.take(self._services.layout.lock(row.sandbox_id))
            if lock is None:
                return
        try:
            now = await self._services.store.snapshot(row.id)  # it may have been completed just before we took the lock
            if now is not None and _is_passing(now):
                await self._forget(now)
        finally:
            if lock is not None:
                lock.release(remove=True)

    async def _begin(self, sandbox: Sandbox, kind: Kind, key: str | None = None) -> SnapshotRow:
        services, of = self._services, sandbox.row
        row = SnapshotRow(
            id=new_id("sn"),
            kind=kind,
            key=key,
            sandbox_id=sandbox.id,
            is_complete=False,
            driver=services.driver.name,
            driver_version=await services.driver.version(),
            image=of.image,
            image_digest=of.image_digest,
            agent=of.agent,
            spec=of.spec,
            size_bytes=0,
            created_ms=services.clock.now_ms(),
        )
        await services.store.insert_snapshot(row)
        return row

    async def _complete(self, row: SnapshotRow) -> SnapshotRow:
        size = size_of(self.path(row))
        event = self._event(row, {"id": row.id, "kind": row.kind, "bytes": size})
        await self._services.store.complete_snapshot(row.id, size, event)
        return replace(row, is_complete=True, size_bytes=size)

    async def _forget(self, row: SnapshotRow) -> None:
        """Remove a row and all of its files."""
        for path in (self.path(row), self.path(row).with_name(f"{row.id}.part")):
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        await self._services.store.delete_snapshot(row.id)

    def _event(self, row: SnapshotRow, data: dict[str, object]) -> EventRow:
        return EventRow(self._services.clock.now_ms(), row.sandbox_id, "snapshot", data)


def _is_passing(row: SnapshotRow) -> bool:
    """Whether it is only there for as long as somebody makes it, or makes forks of it."""
    return not row.is_complete or row.kind == Kind.FORK
