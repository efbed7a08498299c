"""Copies of a template that already run when somebody asks; none is ever handed out twice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from sandyard.errors import SandyardError
from sandyard.images import Image
from sandyard.runtime.launch import Steps
from sandyard.runtime.sandbox import Sandbox
from sandyard.runtime.spec import SandboxSpec


class Make(Protocol):
    """Starts a sandbox."""

    def __call__(
        self, spec: SandboxSpec, image: Image, steps: Steps, *, is_ephemeral: bool, for_pool: bool
    ) -> Awaitable[Sandbox]:
        """Return it, running."""
        ...


@dataclass(slots=True)
class _Shelf:
    """The copies of one template."""

    spec: SandboxSpec
    image: Image
    size: int
    ready: deque[Sandbox] = field(default_factory=deque)
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pool:
    """Shelves of running copies, by template key; a copy taken is replaced behind the caller's back."""

    def __init__(self, make: Make, refill_after_s: float) -> None:
        """Fill the shelves with what ``make`` starts, ``refill_after_s`` after a copy was taken."""
        self._make = make
        self._refill_after_s = refill_after_s
        self._shelves: dict[str, _Shelf] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, key: str) -> Sandbox | None:
        """Return a copy for the caller alone, None where none is ready."""
        shelf = self._shelves.get(key)
        if shelf is None or not shelf.ready:
            return None
        sandbox = shelf.ready.popleft()
        task = asyncio.create_task(self._refill(shelf))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return sandbox

    async def fill(self, key: str, spec: SandboxSpec, image: Image, size: int) -> None:
        """Keep ``size`` copies on this shelf from now on, and return when they are there; fewer are let go.

        Raises:
            StartError: one could not be started.
        """
        shelf = self._shelves.setdefault(key, _Shelf(spec, image, size))
        shelf.size = size
        while len(shelf.ready) > size:
            await shelf.ready.pop().delete("the pool shrank")
        await self._top_up(shelf)

    async def close(self) -> None:
        """Stop refilling; the copies are one-offs, which their runtime deletes."""
        for shelf in self._shelves.values():
            shelf.size = 0
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._shelves.clear()

    async def _refill(self, shelf: _Shelf) -> None:
        """Start another one, but not while the caller's first command wants the processors for itself."""
        await asyncio.sleep(self._refill_after_s)
        with suppress(SandyardError):  # the next create starts one by itself, and its caller sees why
            await self._top_up(shelf)

    async def _top_up(self, shelf: _Shelf) -> None:
        async with shelf.filling:
            while len(shelf.ready) < shelf.size:
                sandbox = await self._make(shelf.spec, shelf.image, Steps(), is_ephemeral=True, for_pool=True)
                shelf.ready.append(sandbox)
