"""Exit codes of the command line, where they are not a command's own; the numbers are a shell's and Docker's."""

from __future__ import annotations

from sandyard.errors import SandyardError
from sandyard.guest import ExecResult
from sandyard.runtime import OUT_OF_MEMORY

FAILED = 125
"""Sandyard itself could not do it."""
NOT_EXECUTABLE = 126
NOT_FOUND = 127
TIMED_OUT = 124
KILLED = 137
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141

_BY_CODE = {
    "command-not-found": NOT_FOUND,
    "no-shell": NOT_FOUND,
    "command-not-executable": NOT_EXECUTABLE,
    OUT_OF_MEMORY: KILLED,
}


def exit_code(ended: ExecResult | SandyardError) -> int:
    """Return the exit code for a command that ended, or for the error that kept it from that."""
    if isinstance(ended, ExecResult):
        return ended.exit_code
    return _BY_CODE.get(ended.code, FAILED)
