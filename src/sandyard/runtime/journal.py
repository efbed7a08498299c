"""A sandbox's row and events: every transition is written down before it is acted on, and after."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sandyard.errors import NoSpaceError, SandyardError
from sandyard.runtime.clock import Clock
from sandyard.runtime.states import Doing, State
from sandyard.store import EventRow, SandboxRow, Store


@dataclass(slots=True)
class Note:
    """What a transition wants written down when it ends."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Columns of the sandbox's row."""

    data: dict[str, Any] = field(default_factory=dict)
    """Facts for the event."""

    samples: Sequence[EventRow] = ()
    """Usage, where it had to be looked at before the end."""

    failed_state: State | None = None
    """Where it is when the transition fails; None for where it was."""

    is_done: bool = False
    """It has happened for good, even where the disk has no room to write that down; recovery finds the same."""


class Journal:
    """The one writer of a sandbox's row."""

    def __init__(self, row: SandboxRow, store: Store, clock: Clock, sample: Callable[[], Sequence[EventRow]]) -> None:
        """Go on from ``row``; ``sample`` looks at the machine's usage, if there is a machine."""
        self.row = row
        self._store = store
        self._clock = clock
        self._sample = sample

    async def write(self, changes: Mapping[str, Any], *happened: EventRow) -> None:
        """Change the row and add what happened, both or neither."""
        await self._store.update_sandbox(self.row.id, dict(changes), *happened)
        self.row = replace(self.row, **changes)

    async def begin(self, doing: Doing) -> None:
        """Write that a transition begins."""
        event = self.state_event(self.row.state, doing, "begin")
        await self.write({"doing": doing}, *self._sample(), event)

    async def end(self, state: State, doing: Doing | None, note: Note) -> None:
        """Write where the sandbox is now, and that nothing is under way any more."""
        samples = note.samples or self._sample()
        changes = {"state": state, "doing": None, "reason": note.data.get("reason")} | note.changes
        await self.write(changes, *samples, self.state_event(state, doing, "end", note.data))

    @asynccontextmanager
    async def transition(self, doing: Doing, to: State) -> AsyncIterator[Note]:
        """Write that it begins, then that it ended; on an error, that the sandbox is back where it was."""
        before = State(self.row.state)
        await self.begin(doing)
        note = Note()
        try:
            yield note
        except BaseException as error:
            await self._fail(note.failed_state or before, doing, note, error)
            raise
        try:
            await self.end(to, doing, note)
        except NoSpaceError:
            if note.is_done:
                self.row = replace(self.row, **({"state": to, "doing": None} | note.changes))
            raise

    async def _fail(self, state: State, doing: Doing, note: Note, error: BaseException) -> None:
        reason = error.what if isinstance(error, SandyardError) else repr(error)
        changes = note.changes | {"state": state, "doing": None}
        if note.failed_state is not None:
            changes["reason"] = reason
        try:
            await self.write(changes, self.state_event(state, doing, "failed", {"reason": reason}))
        except NoSpaceError:  # what a failed checkpoint took may come back a moment later; recovery finds the same
            self.row = replace(self.row, **changes)

    def state_event(self, to: str, doing: Doing | None, phase: str, data: Mapping[str, Any] | None = None) -> EventRow:
        """Return the event of one phase (``begin``, ``end``, ``failed``) of a transition."""
        return self.event("state", {"from": self.row.state, "to": to, "doing": doing, "phase": phase, **(data or {})})

    def event(self, kind: str, data: dict[str, Any]) -> EventRow:
        """Return an event that happens now."""
        return EventRow(self._clock.now_ms(), self.row.id, kind, data)
