"""Time as the runtime sees it: the one seam through which tests move it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that long on the monotonic clock."""
        ...


class SystemClock:
    """The host's clocks."""

    def now_ms(self) -> int:
        """Read the wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Read the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)
