"""One command to run inside a sandbox, as its caller asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandyard.guest import PtySize


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments, or a line for the sandbox's own shell; and how it is run."""

    argv: Sequence[str] | None = None
    """Program and arguments; or ``shell``."""

    shell: str | None = None
    """A line for ``/bin/sh -c``; or ``argv``."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Over the sandbox's and the image's."""

    workdir: str | None = None
    """None for the sandbox's, or else the image's."""

    user: str | None = None
    """None for the sandbox's, or else the image's."""

    stdin: bool = False
    """Whether input will be sent; without, the command finds its stdin at the end."""

    pty: PtySize | None = None
    """Run it on a terminal of this size."""

    timeout_s: float | None = None
    """After this its process group is killed."""
