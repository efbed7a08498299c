"""The tables, and one frozen record for a row of each. Times are whole milliseconds since 1970, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table

metadata = MetaData()

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", String, primary_key=True),
    Column("host", String, nullable=False),
    Column("driver", String, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("doing", String),
    Column("reason", String),
    Column("image", String, nullable=False),
    Column("image_digest", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("is_ephemeral", Boolean, nullable=False),
    Column("parent", String),
    Column("boot", String),
    Column("cpu_us", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("key", String, index=True),
    Column("sandbox_id", String, nullable=False, index=True),
    Column("is_complete", Boolean, nullable=False),
    Column("driver", String, nullable=False),
    Column("driver_version", String, nullable=False),
    Column("image", String, nullable=False),
    Column("image_digest", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("sandbox_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("data", JSON, nullable=False),
    Index("ix_events_sandbox_id_seq", "sandbox_id", "seq"),
)


@dataclass(frozen=True, slots=True)
class SandboxRow:
    """One sandbox, alive or deleted."""

    id: str
    host: str
    """Which host it is on."""
    driver: str
    state: str
    doing: str | None
    """The transition under way; a row that still has one when its owner is gone was cut short."""
    reason: str | None
    """Why it is in this state, where a person would ask."""
    image: str
    """The reference it was asked for by."""
    image_digest: str
    agent: str
    """The digest of the agent's binary that it was booted with."""
    spec: dict[str, Any]
    is_ephemeral: bool
    """Not worth keeping once its owner is gone: a one-off run, or a copy waiting in the pool."""
    parent: str | None
    """The sandbox it was forked of."""
    boot: str | None
    """``pool``, ``template``, ``cold`` or ``fork``."""
    cpu_us: int
    """Processor time of all its machines that have ended."""
    created_ms: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One saved machine on disk: a snapshot somebody asked for, or a template."""

    id: str
    kind: str
    """``snapshot``, ``template`` or ``fork``."""
    key: str | None
    """What a template is found by."""
    sandbox_id: str
    is_complete: bool
    driver: str
    driver_version: str
    image: str
    image_digest: str
    agent: str
    spec: dict[str, Any]
    size_bytes: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened to a sandbox."""

    at_ms: int
    sandbox_id: str
    kind: str
    data: dict[str, Any] = field(default_factory=dict)
