from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.guest import Guest
from tests.guest.harness import FakePeer, Peer, RealPeer, unavailable

_WHY_NO_AGENT = unavailable()


@pytest.fixture(
    params=[
        "fake",
        pytest.param("agent", marks=pytest.mark.skipif(_WHY_NO_AGENT is not None, reason=_WHY_NO_AGENT or "")),
    ]
)
async def peer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Peer]:
    """An agent; what is asked of both kinds is the same."""
    started: FakePeer | RealPeer = await (FakePeer if request.param == "fake" else RealPeer).start(tmp_path)
    yield started
    await started.stop()


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealPeer]:
    """The real agent, for what only a real kernel has."""
    if _WHY_NO_AGENT is not None:
        pytest.skip(_WHY_NO_AGENT)
    started = await RealPeer.start(tmp_path)
    yield started
    await started.stop()


@pytest.fixture
async def guest(peer: Peer) -> AsyncIterator[Guest]:
    """A session with the agent."""
    async for attached in _attached(peer):
        yield attached


@pytest.fixture
async def real_guest(real: RealPeer) -> AsyncIterator[Guest]:
    """A session with the real agent."""
    async for attached in _attached(real):
        yield attached


async def _attached(peer: Peer) -> AsyncIterator[Guest]:
    guest = Guest(await peer.connect())
    await guest.attach()
    yield guest
    await guest.close()
