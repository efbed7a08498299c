"""The state database: SQLite in write-ahead mode, each call one transaction that is on disk when the call returns."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Executable, Row, Select, create_engine, delete, event, insert, select, update
from sqlalchemy.exc import DatabaseError

from sandyard.errors import HostError, NoSpaceError, StateVersionError
from sandyard.store import tables
from sandyard.store.tables import EventRow, SandboxRow, SnapshotRow

SCHEMA = "0001"
"""The newest revision under migrations/versions."""

_INDEX_BYTES = 32 * 1024
"""What SQLite's write-ahead log needs for its index, at least."""

T = TypeVar("T")

BUSY_TIMEOUT_S = 30
"""How long one process waits for another's transaction; each lasts milliseconds."""


class Store:
    """Rows in, rows out; what they mean is the runtime's business.

    One connection in a thread of its own: a transaction is one hop there and back (docs/decisions/0003).
    """

    def __init__(self, path: Path) -> None:
        """Take a database that has the newest schema; use ``open`` to get there."""
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandyard-store")
        self._engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(self._engine, "connect", _configure)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the database at ``path``, made or migrated first where needed.

        Raises:
            StateVersionError: a newer version of Sandyard has written it.
            NoSpaceError: the disk is full; so it is with every other call that writes.
            HostError: it is no database, or cannot be read or written.
        """
        await asyncio.to_thread(migrate, path)
        return cls(path)

    async def close(self) -> None:
        """Close the connection."""
        await self._call(self._engine.dispose)
        self._thread.shutdown()

    async def insert_sandbox(self, row: SandboxRow, *happened: EventRow) -> None:
        """Add a sandbox and what happened."""
        await self._write(insert(tables.sandboxes).values(**asdict(row)), happened)

    async def update_sandbox(self, sandbox_id: str, changes: dict[str, Any], *happened: EventRow) -> None:
        """Change columns of a sandbox and add what happened, both or neither."""
        table = tables.sandboxes
        await self._write(update(table).where(table.c.id == sandbox_id).values(**changes), happened)

    async def sandbox(self, sandbox_id: str) -> SandboxRow | None:
        """Return one sandbox."""
        rows = await self._read(select(tables.sandboxes).where(tables.sandboxes.c.id == sandbox_id))
        return _sandbox(rows[0]) if rows else None

    async def sandboxes(self, *, without_states: Collection[str] = ()) -> list[SandboxRow]:
        """Return the sandboxes in any other state than these, and all with a transition under way, oldest first."""
        table = tables.sandboxes
        chosen = table.c.state.not_in(without_states) | table.c.doing.is_not(None)
        rows = await self._read(select(table).where(chosen).order_by(table.c.created_ms, table.c.id))
        return [_sandbox(row) for row in rows]

    async def expired(self, now_ms: int) -> list[SandboxRow]:
        """Return the sandboxes that are not deleted and should be by now."""
        table = tables.sandboxes
        rows = await self._read(select(table).where((table.c.expires_ms <= now_ms) & (table.c.state != "deleted")))
        return [_sandbox(row) for row in rows]

    async def add_events(self, *happened: EventRow) -> None:
        """Add what happened."""
        await self._write(None, happened)

    async def events(self, sandbox_id: str) -> list[EventRow]:
        """Return all that happened to a sandbox, in the order in which it was written."""
        table = tables.events
        rows = await self._read(select(table).where(table.c.sandbox_id == sandbox_id).order_by(table.c.seq))
        return [EventRow(row.at_ms, row.sandbox_id, row.kind, row.data) for row in rows]

    async def insert_snapshot(self, row: SnapshotRow) -> None:
        """Add a snapshot."""
        await self._write(insert(tables.snapshots).values(**asdict(row)))

    async def complete_snapshot(self, snapshot_id: str, size_bytes: int, *happened: EventRow) -> None:
        """Say that a snapshot is wholly on disk."""
        table = tables.snapshots
        done = update(table).where(table.c.id == snapshot_id).values(is_complete=True, size_bytes=size_bytes)
        await self._write(done, happened)

    async def delete_snapshot(self, snapshot_id: str, *happened: EventRow) -> None:
        """Forget a snapshot."""
        await self._write(delete(tables.snapshots).where(tables.snapshots.c.id == snapshot_id), happened)

    async def snapshot(self, snapshot_id: str) -> SnapshotRow | None:
        """Return one snapshot, complete or not."""
        rows = await self._read(select(tables.snapshots).where(tables.snapshots.c.id == snapshot_id))
        return _snapshot(rows[0]) if rows else None

    async def template(self, key: str) -> SnapshotRow | None:
        """Return the newest complete template of this key."""
        table = tables.snapshots
        chosen = select(table).where((table.c.key == key) & table.c.is_complete)
        rows = await self._read(chosen.order_by(table.c.created_ms.desc()).limit(1))
        return _snapshot(rows[0]) if rows else None

    async def snapshots(self) -> list[SnapshotRow]:
        """Return every snapshot and template, oldest first."""
        table = tables.snapshots
        return [_snapshot(row) for row in await self._read(select(table).order_by(table.c.created_ms, table.c.id))]

    async def _read(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        def read() -> Sequence[Row[Any]]:
            with self._engine.connect() as connection:
                return connection.execute(statement).all()

        return await self._call(read)

    async def _write(self, statement: Executable | None, happened: Sequence[EventRow] = ()) -> None:
        def write() -> None:
            with self._engine.begin() as connection:
                if statement is not None:
                    connection.execute(statement)
                if happened:
                    connection.execute(insert(tables.events), [asdict(row) for row in happened])

        await self._call(write)

    async def _call(self, work: Callable[[], T]) -> T:
        """Run it in the store's thread, to its end even when the caller is cancelled."""

        def told() -> T:
            with _troubles_told(self._path):
                return work()

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, told))


def migrate(path: Path) -> None:
    """Bring the database at ``path`` to the newest schema; two processes at once do it one after the other.

    Raises:
        StateVersionError: its schema is newer than this version knows.
        NoSpaceError: the disk is full.
        HostError: it is no database, or cannot be read or written.
    """
    with _troubles_told(path):
        if _revision(path) != SCHEMA:
            _upgrade(path)


def _upgrade(path: Path) -> None:
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _revision(path)
        if found == SCHEMA:
            return
        # Alembic is imported here only: nearly every start finds the schema as it should be and saves the 0.2 s.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415
        from alembic.util import CommandError  # noqa: PLC0415

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        config.attributes["url"] = f"sqlite:///{path}"
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise StateVersionError(
                f"the state in {path.parent} is of a newer version of Sandyard (schema {found}, here {SCHEMA}).",
                hint="Upgrade Sandyard, or use another state directory.",
            ) from error


def _revision(path: Path) -> str | None:
    """Return the schema that the database has; None for one that is new."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # no such table: a first migration was cut short
                return None
            raise
    return None if row is None else str(row[0])


@contextmanager
def _troubles_told(path: Path) -> Iterator[None]:
    """Say in plain words what SQLite could not do."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        cause = error.orig if isinstance(error, DatabaseError) else error
        # A write-ahead log that finds no room for its index is told as an I/O error.
        if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or not _has_room(path.parent):
            raise NoSpaceError(
                f"the disk under {path.parent} is full: nothing could be written down, so nothing was begun.",
                hint="Free space there, and ask again.",
            ) from error
        raise HostError(
            f"the state database {path} cannot be used: {cause}.",
            hint="See that the disk is sound and the file is Sandyard's own, or use another state directory.",
            code="state-unusable",
        ) from error


def _has_room(directory: Path) -> bool:
    free = os.statvfs(directory)
    return free.f_bavail * free.f_frsize >= _INDEX_BYTES


def _configure(connection: Any, _record: Any) -> None:
    """Set up each connection: write-ahead log, synced at each commit, so that a power cut loses nothing."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _sandbox(row: Row[Any]) -> SandboxRow:
    return SandboxRow(**{field.name: getattr(row, field.name) for field in fields(SandboxRow)})


def _snapshot(row: Row[Any]) -> SnapshotRow:
    return SnapshotRow(**{field.name: getattr(row, field.name) for field in fields(SnapshotRow)})
