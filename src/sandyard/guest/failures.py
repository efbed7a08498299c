"""What the agent's error codes mean on the host, and what may be believed of the text that comes with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from typing import Any

from sandyard.errors import (
    CommandError,
    ConflictError,
    ConnectError,
    FileNotFoundInSandboxError,
    GuestAgentError,
    InvalidRequestError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    ResourceExhaustedError,
    SandyardError,
)

_KINDS: Mapping[str, tuple[type[SandyardError], str]] = {
    "bad-request": (InvalidRequestError, "Correct the request."),
    "command-not-found": (CommandError, "Check the name and PATH, or install the program in the image."),
    "command-not-executable": (CommandError, "Make the file executable, or name its interpreter."),
    "no-shell": (CommandError, "Give the command as a list of arguments: the image has no shell."),
    "user-not-found": (CommandError, "Name a user of the image's /etc/passwd, or give a numeric id."),
    "cwd-not-found": (CommandError, "Make the directory first, or choose one that exists."),
    "exec-not-found": (NotFoundError, "List the sandbox's processes for those that still run."),
    "exec-exists": (ConflictError, "Give every command an id of its own."),
    "file-not-found": (FileNotFoundInSandboxError, "Check the path."),
    "is-a-directory": (ConflictError, "Name a file, or use the operation for directories."),
    "not-a-directory": (ConflictError, "Name a directory, or use the operation for files."),
    "file-exists": (ConflictError, "Remove what is there first, or choose another path."),
    "directory-not-empty": (ConflictError, "Remove it recursively if all in it may go."),
    "permission-denied": (GuestAgentError, "Choose a path that may be changed."),
    "no-space": (NoSpaceError, "Remove files inside the sandbox, or give it more room."),
    "symlink-loop": (InvalidRequestError, "Name the file without going through the links."),
    "unsafe-path": (InvalidRequestError, "Unpack archives only from names and links that stay below their root."),
    "bad-archive": (InvalidRequestError, "Send a complete tar archive."),
    "io-error": (GuestAgentError, "Try again; if it stays, look at the disk of the sandbox."),
    "connection-refused": (ConnectError, "Start the server first, and have it listen on this address."),
    "connection-reset": (ConnectError, "Look at the server's own log: it broke the connection off."),
    "unreachable": (ConnectError, "Check the address."),
    "too-many-streams": (ResourceExhaustedError, "Wait for some of the sandbox's open calls to end."),
}

_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+){0,7}")
_MAX_CODE = 64
_MAX_TEXT = 300


def from_agent(error: object) -> SandyardError:
    """Return the error that the agent's answer stands for; its code is kept where it looks like one.

    Raises:
        ProtocolError: it is not an object with a ``code`` and a ``message``.
    """
    match error:
        case {"code": str(code), "message": str(message)}:
            return _translate(code, message)
        case _:
            raise violation("an error without code and message")


def _translate(code: str, message: str) -> SandyardError:
    text = printable(message) or "no reason given."
    known = _KINDS.get(code)
    if known is not None:
        kind, hint = known
        return kind(text, hint=hint, code=code)
    kept = code if len(code) <= _MAX_CODE and _CODE.fullmatch(code) else None
    return GuestAgentError(text, hint="The sandbox's agent may be of another version than the host.", code=kept)


def again(error: SandyardError) -> SandyardError:
    """Return a copy to raise: one object raised many times would keep the traceback of every time."""
    copied = copy(error)
    copied.__cause__ = error.__cause__
    return copied


def printable(text: str) -> str:
    """Return untrusted text as one line of at most 300 characters that no terminal acts upon."""
    clean = "".join(char if char.isprintable() else " " for char in text[: _MAX_TEXT * 4])
    line = " ".join(clean.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def violation(what: str) -> ProtocolError:
    """Return the error for an agent that broke the protocol; ``what`` it sent completes the sentence."""
    return ProtocolError(
        f"the agent sent {what}.",
        hint="The sandbox may be tampering with its agent; delete it, or report this if you trust it.",
    )


def answer_of(payload: Mapping[str, Any]) -> Mapping[str, Any] | SandyardError:
    """Return the result, or the error, that a CLOSE carries.

    Raises:
        ProtocolError: it carries neither, or both.
    """
    match payload:
        case {"result": dict(result), **rest} if "error" not in rest:
            return result
        case {"error": error, **rest} if "result" not in rest:
            return from_agent(error)
        case _:
            raise violation("an answer that is neither a result nor an error")
