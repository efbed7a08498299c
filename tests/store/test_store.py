"""The state database: what is written is there, whoever else writes and however the writer ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from sandyard import store as store_package
from sandyard.errors import StateVersionError
from sandyard.store import EventRow, SandboxRow, Store
from sandyard.store.store import SCHEMA, migrate
from sandyard.store.tables import metadata

ROW = SandboxRow(
    id="sb_1",
    host="here",
    driver="fake",
    state="creating",
    doing="create",
    reason=None,
    image="default",
    image_digest="sha256:0",
    agent="a",
    spec={"env": {"A": "ü\n"}},
    is_ephemeral=False,
    parent=None,
    boot=None,
    cpu_us=2**40,
    created_ms=1_700_000_000_000,
    expires_ms=None,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_rows_come_back_as_they_went_in(path: Path) -> None:
    store = await Store.open(path)
    event = EventRow(5, "sb_1", "state", {"to": "creating"})
    await store.insert_sandbox(ROW, event)
    await store.update_sandbox("sb_1", {"state": "running", "doing": None})
    assert await store.sandbox("sb_1") == replace(ROW, state="running", doing=None)
    assert await store.events("sb_1") == [event]
    assert await store.sandbox("sb_2") is None
    await store.close()


async def test_a_change_and_its_event_are_written_both_or_neither(path: Path) -> None:
    store = await Store.open(path)
    await store.insert_sandbox(ROW)
    broken = EventRow(1, "sb_1", "state", {"not JSON": object()})
    with pytest.raises(Exception, match="JSON"):
        await store.update_sandbox("sb_1", {"state": "running"}, broken)
    assert await store.sandbox("sb_1") == ROW
    await store.close()


async def test_the_migrations_make_the_tables_that_the_code_uses(path: Path) -> None:
    migrate(path)
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()
    config = Config()
    config.set_main_option("script_location", str(Path(store_package.__file__).with_name("migrations")))
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA


async def test_a_migration_that_was_cut_short_is_done_again(path: Path) -> None:
    sqlite3.connect(path).close()
    path.write_bytes(b"")
    migrate(path)
    migrate(path)
    store = await Store.open(path)
    await store.insert_sandbox(ROW)
    await store.close()


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    migrate(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StateVersionError, match="schema 9999"):
        await Store.open(path)
    assert path.read_bytes() == before


async def test_two_stores_on_one_file_wait_for_each_other(path: Path) -> None:
    one, two = await Store.open(path), await Store.open(path)
    await asyncio.gather(
        *(one.insert_sandbox(replace(ROW, id=f"a{n}")) for n in range(50)),
        *(two.insert_sandbox(replace(ROW, id=f"b{n}")) for n in range(50)),
    )
    assert len(await one.sandboxes()) == 100
    await one.close()
    await two.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.store.test_store import ROW, replace
from sandyard.store import EventRow, Store

async def main():
    store = await Store.open(Path(sys.argv[1]))
    for n in range(100000):
        await store.insert_sandbox(replace(ROW, id=f"sb_{n}"), EventRow(n, f"sb_{n}", "state", {}))
        print(n, flush=True)

asyncio.run(main())
"""


async def test_kill_9_loses_nothing_that_was_acknowledged(path: Path) -> None:
    root = Path(__file__).parents[2]
    for _ in range(3):
        path.unlink(missing_ok=True)
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(40)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split(b"\n")[:-1]
        acknowledged += [int(line) for line in rest]
        store = await Store.open(path)
        there = {row.id for row in await store.sandboxes()}
        assert {f"sb_{n}" for n in acknowledged} <= there
        for sandbox_id in there:  # a row is never without its event
            assert len(await store.events(sandbox_id)) == 1
        await store.close()
