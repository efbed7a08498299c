from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest

from sandyard.drivers import Driver, Machine, MachineSpec
from sandyard.guest import Guest
from tests.contract.kits import FakeKit, GvisorKit, Kit, why_no_gvisor

_WHY_NOT = why_no_gvisor()


@pytest.fixture(
    params=[
        "fake",
        pytest.param(
            "gvisor",
            marks=[pytest.mark.gvisor, pytest.mark.skipif(_WHY_NOT is not None, reason=_WHY_NOT or "")],
        ),
    ]
)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Each driver in turn; what is asked of all of them is the same."""
    if request.param == "fake":
        return FakeKit(tmp_path)
    return GvisorKit(tmp_path, request.getfixturevalue("rootfs"))


@pytest.fixture
async def driver(kit: Kit) -> Driver:
    return kit.driver()


@pytest.fixture
async def specs(kit: Kit, driver: Driver) -> AsyncIterator[Callable[[str], MachineSpec]]:
    """Name machines; whatever is left of them is removed in the end."""
    made: list[MachineSpec] = []

    def make(name: str) -> MachineSpec:
        made.append(kit.spec(name))
        return made[-1]

    yield make
    for spec in made:
        await driver.sweep(spec)


@pytest.fixture
async def attach() -> AsyncIterator[Callable[..., Awaitable[Guest]]]:
    """Speak with a machine's agent; every session is closed in the end."""
    sessions: list[Guest] = []

    async def begin(machine: Machine, *, orphans: Literal["kill", "keep"] = "kill") -> Guest:
        guest = Guest(await machine.connect())
        sessions.append(guest)
        await guest.attach(orphans=orphans, timeout_s=30)
        return guest

    yield begin
    for guest in sessions:
        await guest.close()


@pytest.fixture
async def machine(driver: Driver, specs: Callable[[str], MachineSpec]) -> Machine:
    """A machine that has just been booted."""
    return await driver.boot(specs("one"))
