"""The states of a sandbox and the transitions between them, in the words that the store, the CLI and the API use."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a sandbox is between two transitions."""

    CREATING = "creating"
    RUNNING = "running"
    PAUSED = "paused"
    """In memory: frozen, no CPU, memory still held."""
    ASLEEP = "asleep"
    """On disk: nothing held but the checkpoint."""
    FAILED = "failed"
    DELETED = "deleted"


class Doing(StrEnum):
    """A transition under way; written before it is acted on, cleared after."""

    CREATE = "create"
    WAIT_IN_POOL = "wait-in-pool"
    PAUSE = "pause"
    RESUME = "resume"
    SLEEP = "sleep"
    WAKE = "wake"
    SNAPSHOT = "snapshot"
    RESTORE = "restore"
    FORK = "fork"
    DELETE = "delete"


class Boot(StrEnum):
    """Where a sandbox came from."""

    POOL = "pool"
    TEMPLATE = "template"
    COLD = "cold"
    FORK = "fork"


AWAKE = frozenset({State.RUNNING, State.PAUSED})
"""States in which a machine holds memory."""
