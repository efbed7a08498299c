"""Whether anything happens in a sandbox: the clock behind ``sleep_after_s``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandyard.runtime.clock import Clock


class Activity:
    """Since when a sandbox has been idle.

    Idle means, for the whole window: no call in progress, no stream open, nothing inside that asked to be kept awake,
    and less processor time than a small share of one processor.
    """

    def __init__(self, clock: Clock, cpu_share: float) -> None:
        """Start idle now; use above ``cpu_share`` of one processor counts as activity."""
        self.calls = 0
        """Calls in progress."""
        self._clock = clock
        self._cpu_share = cpu_share
        self._idle_since_s = clock.monotonic_s()
        self._seen: tuple[float, int] | None = None

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call for as long as it lasts."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self.touch()

    def touch(self) -> None:
        """Start the window anew."""
        self._idle_since_s = self._clock.monotonic_s()

    def forget_cpu(self) -> None:
        """Take what the next look at the processor time says as a beginning: another machine counts from 0."""
        self._seen = None

    def look(self, *, is_used: bool, cpu_us: int) -> None:
        """Take note of what is going on now.

        Args:
            is_used: whether a stream is open or something inside keeps it awake.
            cpu_us: the machine's processor time so far.
        """
        if is_used or self.calls or self._computes(cpu_us):
            self.touch()

    def is_idle_for(self, seconds: float) -> bool:
        """Whether nothing has happened for that long."""
        return self.calls == 0 and self._clock.monotonic_s() - self._idle_since_s >= seconds

    def _computes(self, cpu_us: int) -> bool:
        now_s = self._clock.monotonic_s()
        before, self._seen = self._seen, (now_s, cpu_us)
        if before is None or now_s <= before[0]:
            return False
        return (cpu_us - before[1]) / 1e6 / (now_s - before[0]) > self._cpu_share
