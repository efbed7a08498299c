"""The sandbox's own clock: a Bash wrapper around a command, and the gate that refuses a clock that stepped.

``$EPOCHREALTIME`` before and after gives the runtime; ``/proc/uptime``, read before and after too, must agree with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sandyard.bench.outcomes import BenchmarkFault

TOLERANCE_US = 20_000
SHORTEST_GATED_US = 30_000
"""A counter of 10 ms cannot judge shorter spans."""

WRAPPER = r"""
export LC_ALL=C
s=$EPOCHREALTIME
IFS= read -r -N 64 u0 < /proc/uptime || :
"$@"
rc=$?
IFS= read -r -N 64 u1 < /proc/uptime || :
e=$EPOCHREALTIME
printf '__SANDBOX_CLOCK %s %s %s %s %s\n' "$s" "$e" "${u0%% *}" "${u1%% *}" "$rc" >&2
exit "$rc"
"""
"""``read -N 64`` takes the whole file at once, as some virtual procfs fail on a second read; at its end it gives 1."""

QUANTUM_PROBE = r"""
last= count=0
for ((i = 0; i < 3000 && count < 12; i++)); do
  IFS= read -r -N 64 u < /proc/uptime || :
  u=${u%% *}
  [[ $u == "$last" ]] || { echo "$u"; last=$u; ((++count)); }
done
"""

_LINE = re.compile(
    rb"__SANDBOX_CLOCK (\d{1,11})\.(\d{6}) (\d{1,11})\.(\d{6}) (\d{1,11})\.(\d{1,6}) (\d{1,11})\.(\d{1,6}) (\d{1,3})"
)


def wrap(argv: Sequence[str]) -> list[str]:
    """Return the command line that times ``argv`` without another process."""
    return ["bash", "-c", WRAPPER, "bash", *argv]


@dataclass(frozen=True, slots=True)
class GuestSpan:
    """A span on the sandbox's clocks, microseconds, exact."""

    wall_us: int
    up_us: int
    exit_code: int

    def agrees(self) -> bool:
        """Whether neither clock ran backwards and they differ by at most 20.000 ms."""
        return self.wall_us >= 0 and self.up_us >= 0 and abs(self.wall_us - self.up_us) <= TOLERANCE_US


def read_span(stderr: bytes) -> GuestSpan:
    """Read the trailer line, which is the last line of standard error.

    Raises:
        BenchmarkFault: it is not there, or is garbage; no number is made of it.
    """
    last = stderr.rstrip(b"\n").rsplit(b"\n", 1)[-1]
    found = _LINE.fullmatch(last)
    if found is None:
        raise BenchmarkFault(f"the sandbox printed no clock line, but {last[-80:]!r}")
    s, e, u0, u1 = (int(found[i]) * 1_000_000 + int(found[i + 1].ljust(6, b"0")) for i in (1, 3, 5, 7))
    return GuestSpan(e - s, u1 - u0, int(found[9]))


def read_quantum_us(stdout: bytes) -> int | None:
    """Return the smallest step between the uptimes of the probe; None where it saw none."""
    readings = []
    for line in stdout.split():
        whole, _, part = line.partition(b".")
        if not (whole.isdigit() and part.isdigit()):
            return None
        readings.append(int(whole) * 1_000_000 + int(part.ljust(6, b"0")[:6]))
    steps = [after - before for before, after in pairwise(readings) if after > before]
    return min(steps) if steps else None
