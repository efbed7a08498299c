"""Exit codes of the command line, where they are not a command's own; the numbers are a shell's and Docker's."""

from __future__ import annotations

from sandyard.errors import OutOfMemoryError, SandyardError

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
    OutOfMemoryError.code: KILLED,
}


def exit_code(error: SandyardError) -> int:
    """Return the exit code for what kept a command from running to its end."""
    return _BY_CODE.get(error.code, FAILED)
