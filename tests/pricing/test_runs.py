"""The runtime's ledger becomes a trace: its runs, its idle and its CPU are those of the events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sandyard.catalog import Catalog
from sandyard.cli import price
from sandyard.cli.runs import records
from sandyard.errors import InvalidRequestError, SandboxNotFoundError
from sandyard.pricing import quote_trace, read_jsonl
from sandyard.runtime.layout import Layout
from sandyard.store import EventRow, SandboxRow, Store

GIB = 2**30


def _row(name: str = "sb") -> SandboxRow:
    return SandboxRow(
        id=name,
        host="host",
        driver="fake",
        state="asleep",
        doing=None,
        reason=None,
        image="default",
        image_digest="sha256:0",
        agent="agent",
        spec={"cpus": 0.25, "memory_mib": 512},
        is_ephemeral=False,
        parent=None,
        boot="pool",
        cpu_us=0,
        created_ms=1_000,
        expires_ms=None,
    )


def _state(at_ms: int, to: str, phase: str = "end", **data: Any) -> EventRow:
    return EventRow(at_ms, "sb", "state", {"to": to, "phase": phase, **data})


def _sample(at_ms: int, cpu_us: int, held: int, disk: int = 0) -> EventRow:
    return EventRow(at_ms, "sb", "usage", {"cpu_us": cpu_us, "memory_bytes": held, "disk_bytes": disk})


A_DAY = [
    _state(1_000, "creating", "begin"),
    _sample(2_000, 0, GIB // 4),
    _state(2_000, "running"),
    _sample(3_602_000, 600_000_000, GIB // 4, GIB),
    _state(3_602_000, "paused"),
    _sample(7_202_000, 600_000_000, GIB // 4, GIB),
    _state(7_202_000, "asleep", checkpoint_bytes=GIB // 2),
    _sample(14_402_000, 600_000_000, GIB // 8, GIB),
    _state(14_402_000, "running"),
    _sample(18_002_000, 900_000_000, GIB // 8, 2 * GIB),
    _state(18_002_000, "deleted"),
]


def test_two_runs_of_a_day_by_hand() -> None:
    first, second = records(_row(), A_DAY, now_ms=10**12)
    assert first == {
        "sandbox": "sb",
        "start": "2",
        "end": "7202",
        "vcpu": "0.25",
        "memory_gib": "0.5",
        "cpu_seconds": "600",
        "observed_memory_gib": "0.25",
        "hot_disk_gib": "1",
        "cold_disk_gib": "1",
        "snapshot_gib": "0.5",
        "created": "true",
    }
    assert (second["start"], second["end"], second["cpu_seconds"]) == ("14402", "18002", "300")
    assert (second["created"], second["observed_memory_gib"]) == ("false", "0.125")


def test_a_run_that_goes_on_ends_now() -> None:
    assert records(_row(), A_DAY[:3], now_ms=62_000)[0]["end"] == "62"


def test_a_clock_that_steps_back_makes_no_reversed_run() -> None:
    found = records(_row(), [*A_DAY[:3], _state(1_500, "asleep"), _state(1_700, "running")], now_ms=1_800)
    assert [(run["start"], run["end"]) for run in found] == [("2", "2"), ("2", "2")]
    assert read_jsonl(json.dumps(run) for run in found)


def test_the_ledger_is_priced_run_by_run(catalog: Catalog) -> None:
    lines = [json.dumps(record) for record in records(_row(), A_DAY, now_ms=10**12)]
    answer = quote_trace(catalog["aws-lambda-microvm"], read_jsonl(lines))
    amounts = {line.meter: line.quantity for line in answer.components}
    assert amounts["cpu"] == 3 * 0.25  # three hours awake or paused
    assert round(amounts["suspended"] * 720, 12) == 1  # 0.5 GB for two hours
    sprite = quote_trace(catalog["fly-sprites"], read_jsonl(lines))
    assert {line.meter: line.quantity for line in sprite.components}["cpu"] == 0.25  # 900 CPU-seconds


async def _fill(database: Path) -> None:
    database.parent.mkdir(parents=True, exist_ok=True)
    store = await Store.open(database)
    await store.insert_sandbox(_row(), *A_DAY)
    await store.close()


def test_the_command_reads_a_real_ledger(tmp_path: Path) -> None:
    database = Layout(tmp_path).database
    asyncio.run(_fill(database))
    result = CliRunner().invoke(price.app, ["runs", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in result.stdout.splitlines()] == records(_row(), A_DAY, now_ms=10**12)
    missing = CliRunner().invoke(price.app, ["runs", "nobody", "--state-dir", str(tmp_path)])
    assert isinstance(missing.exception, SandboxNotFoundError)


def test_a_host_without_a_ledger_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(price.app, ["runs", "--state-dir", str(tmp_path / "none")])
    assert isinstance(result.exception, InvalidRequestError)


@pytest.mark.parametrize("state", ["failed", "deleted"])
def test_what_never_ran_has_no_run(state: str) -> None:
    assert records(_row(), [A_DAY[0], _state(2_000, state)], now_ms=10**12) == []
