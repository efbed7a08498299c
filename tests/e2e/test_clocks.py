"""The idle clock on real sandboxes: what the sandbox kernel does by itself is not taken for activity."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandyard.runtime import Command, Runtime, SandboxSpec, State


async def test_an_idle_sandbox_falls_asleep_and_a_busy_one_does_not(state_dir: Path) -> None:
    async with await Runtime.open(state_dir) as runtime:
        spec = SandboxSpec(sleep_after_s=3)
        idle, busy = await runtime.create(spec), await runtime.create(spec)
        await idle.spawn(Command(argv=["sleep", "10000"]))
        await busy.spawn(Command(shell="while :; do :; done"))
        async with asyncio.timeout(60):
            while idle.state is not State.ASLEEP:
                await asyncio.sleep(0.1)
        assert busy.state is State.RUNNING
        assert (await idle.run(Command(argv=["pgrep", "-x", "sleep"]))).exit_code == 0
        await idle.delete()
        await busy.delete()
