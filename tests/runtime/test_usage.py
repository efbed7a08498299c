"""What a sandbox used, added up by hand beside."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.runtime.usage import add_up
from sandyard.store import EventRow

GIB = 2**30


def state(at_ms: int, to: str, phase: str = "end", **data: Any) -> EventRow:
    return EventRow(at_ms, "sb", "state", {"to": to, "phase": phase, **data})


def sample(at_ms: int, *, cpu_us: int = 0, held: int = 0, disk: int = 0, limit_mib: int = 1024) -> EventRow:
    data = {
        "cpu_us": cpu_us,
        "memory_bytes": held,
        "memory_peak_bytes": held,
        "memory_limit_mib": limit_mib,
        "disk_bytes": disk,
    }
    return EventRow(at_ms, "sb", "usage", data)


A_DAY = [
    state(1_000, "creating", "begin"),
    sample(2_000, cpu_us=100, held=GIB // 4),
    state(2_000, "running"),
    sample(3_602_000, cpu_us=5_000_000, held=GIB // 2, disk=7),
    state(3_602_000, "running", "begin", doing="pause"),
    state(3_602_000, "paused"),
    state(7_202_000, "running"),
    sample(7_202_000, cpu_us=5_000_100, held=GIB // 2, disk=9),
    state(7_202_000, "running", "begin", doing="sleep"),
    state(7_202_000, "asleep", checkpoint_bytes=1234),
]


def test_a_day_by_hand() -> None:
    usage = add_up(A_DAY, now_ms=10_802_000)
    assert usage.running_ms == 3_600_000
    assert usage.paused_ms == 3_600_000
    assert usage.asleep_ms == 3_600_000
    assert usage.memory_held_gib_hours == pytest.approx(2.0)  # 1 GiB limit, 1 h running and 1 h paused
    assert usage.memory_observed_gib_hours == pytest.approx(0.25 + 0.5)  # a quarter GiB, then half of one
    assert (usage.cpu_us, usage.disk_bytes, usage.checkpoint_bytes) == (5_000_100, 9, 1234)
    assert usage.until_ms == 10_802_000


# scenario 26 and 42 (P0): what has ended uses nothing more
@pytest.mark.parametrize("end", ["deleted", "failed"])
def test_after_the_end_nothing_is_counted(end: str) -> None:
    events = [*A_DAY[:3], sample(5_000, cpu_us=1), state(5_000, end)]
    assert add_up(events, now_ms=10**12) == add_up(events, now_ms=6_000)
    assert add_up(events, now_ms=10**12).running_ms == 3_000


# scenario 41 (P0): a clock that stepped back makes an interval of 0, never a negative one
def test_a_clock_that_steps_back_counts_nothing() -> None:
    events = [*A_DAY[:3], sample(1_500, cpu_us=50), state(1_800, "paused"), state(2_500, "deleted")]
    usage = add_up(events, now_ms=0)
    assert (usage.running_ms, usage.paused_ms) == (0, 500)
    assert usage.cpu_us == 100


def test_snapshots_count_until_they_are_deleted_and_templates_never() -> None:
    saved = [("snapshot", 500), ("template", 9000), ("snapshot", 70), ("fork", 400), ("fork", -400), ("snapshot", -500)]
    events = [EventRow(1, "sb", "snapshot", {"kind": kind, "bytes": count}) for kind, count in saved]
    assert add_up(events, now_ms=5).snapshot_bytes == 70


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(["running", "paused", "asleep"])), min_size=1, max_size=30
    ),
    st.integers(0, 2**32),
)
def test_every_millisecond_is_counted_once(steps: list[tuple[int, str]], seed: int) -> None:
    """The states' times add up to the life, wherever samples fall in between."""
    at_ms = 1_000
    events = [state(at_ms, "running")]
    rng = random.Random(seed)
    for passed_ms, to in steps:
        if passed_ms:
            events.append(sample(at_ms + rng.randrange(passed_ms), cpu_us=1))
        at_ms += passed_ms
        events.append(state(at_ms, to))
    usage = add_up(events, now_ms=at_ms)
    assert usage.running_ms + usage.paused_ms + usage.asleep_ms == at_ms - 1_000
