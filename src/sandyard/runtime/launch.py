"""From a started machine to an agent that knows who it is."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from sandyard.drivers import Driver, ExitReason, Machine, MachineExit, MachineSpec
from sandyard.errors import SandboxGoneError, StartError
from sandyard.guest import Guest
from sandyard.runtime.services import hostname

Orphans = Literal["kill", "keep"]
"""What becomes of commands that run in a machine whose callers are gone."""

BeforeLife = Callable[[Machine], Awaitable[None]]
"""Looks at a machine that stands still before it becomes anybody's: where templates are written."""


class Steps:
    """How long each step of a start took, in milliseconds, in the order in which they ran."""

    def __init__(self) -> None:
        """Start with none."""
        self.ms: dict[str, float] = {}

    @asynccontextmanager
    async def measure(self, name: str) -> AsyncIterator[None]:
        """Time what is inside."""
        began = time.perf_counter()
        yield
        self.ms[name] = round((time.perf_counter() - began) * 1000, 2)


class Launcher:
    """Starts machines for one driver."""

    def __init__(self, driver: Driver, timeout_s: float) -> None:
        """Give each agent ``timeout_s`` to answer after its machine has started."""
        self._driver = driver
        self._timeout_s = timeout_s

    async def launch(
        self,
        spec: MachineSpec,
        steps: Steps,
        *,
        checkpoint: Path | None,
        orphans: Orphans,
        former: Guest | None = None,
        before_life: BeforeLife | None = None,
    ) -> tuple[Machine, Guest]:
        """Bring a machine up, cold or from a checkpoint; on failure nothing of it is left.

        Args:
            spec: the machine.
            steps: where the times go.
            checkpoint: None for a cold boot.
            orphans: what becomes of commands in the checkpoint.
            former: the connection that was open when the checkpoint was made, whose streams then go on.
            before_life: called with the machine while it stands still and has no identity yet.

        Raises:
            StartError: it did not start, or ended at once.
            StartTimeoutError: its agent did not answer.
        """
        async with steps.measure("boot" if checkpoint is None else "restore"):
            machine = await (self._driver.boot(spec) if checkpoint is None else self._driver.restore(spec, checkpoint))
        try:
            async with steps.measure("attach"):
                guest = await self.attach(machine, orphans=orphans, former=former)
            if before_life is not None:
                async with steps.measure("template"), self.standstill(machine, guest):
                    await before_life(machine)
            async with steps.measure("introduce"):
                await introduce(guest, spec.id)
        except BaseException:
            await machine.remove()
            raise
        return machine, guest

    async def attach(self, machine: Machine, *, orphans: Orphans, former: Guest | None = None) -> Guest:
        """Connect to a machine's agent.

        Raises:
            StartError: it ended meanwhile.
            StartTimeoutError: it did not answer.
        """
        channel = await machine.connect()
        guest = former or Guest(channel)
        try:
            if former is None:
                await guest.attach(orphans=orphans, timeout_s=self._timeout_s)
            else:
                await guest.reattach(channel, timeout_s=self._timeout_s)
        except SandboxGoneError as error:
            end = await machine.wait()
            raise StartError(
                f"the sandbox ended while it started: {describe(end)}.", hint="Give it more memory, or try again."
            ) from error
        return guest

    @asynccontextmanager
    async def standstill(self, machine: Machine, guest: Guest) -> AsyncIterator[None]:
        """Have the agent stand at a frame boundary while a checkpoint is written, and go on after."""
        await guest.prepare_checkpoint()
        try:
            yield
        finally:
            await self.attach(machine, orphans="keep", former=guest)


async def introduce(guest: Guest, sandbox_id: str) -> None:
    """Tell the agent who it is now: copies of one checkpoint differ from here on."""
    await guest.after_restore(
        sandbox_id=sandbox_id,
        hostname=hostname(sandbox_id),
        entropy=secrets.token_bytes(64),
        time_unix_ns=time.time_ns(),
    )


def describe(end: MachineExit) -> str:
    """Say in half a sentence how a machine ended."""
    if end.reason is ExitReason.MEMORY:
        return f"out of memory: {end.detail}"
    return f"{end.reason}: {end.detail}" if end.detail else str(end.reason)
