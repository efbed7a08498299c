"""The first tables: sandboxes, snapshots, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("driver", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("doing", sa.String),
        sa.Column("reason", sa.String),
        sa.Column("image", sa.String, nullable=False),
        sa.Column("image_digest", sa.String, nullable=False),
        sa.Column("agent", sa.String, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("is_ephemeral", sa.Boolean, nullable=False),
        sa.Column("parent", sa.String),
        sa.Column("boot", sa.String),
        sa.Column("cpu_us", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
    )
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("key", sa.String, index=True),
        sa.Column("sandbox_id", sa.String, nullable=False, index=True),
        sa.Column("is_complete", sa.Boolean, nullable=False),
        sa.Column("driver", sa.String, nullable=False),
        sa.Column("driver_version", sa.String, nullable=False),
        sa.Column("image", sa.String, nullable=False),
        sa.Column("image_digest", sa.String, nullable=False),
        sa.Column("agent", sa.String, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("sandbox_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Index("ix_events_sandbox_id_seq", "sandbox_id", "seq"),
    )
