"""The state database: tables, migrations, queries; and nothing of what they mean."""

from sandyard.store.store import Store
from sandyard.store.tables import EventRow, SandboxRow, SnapshotRow

__all__ = ["EventRow", "SandboxRow", "SnapshotRow", "Store"]
