"""What every provider offers to the benchmark. Calls raise ProviderError; NotReadyError while a sandbox starts."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sandyard.errors import BenchError, NotOfferedError
from sandyard.providers.declaration import Declaration


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """One sandbox to be."""

    label: str
    """Every sandbox of a run carries it, so that none is lost."""
    lifetime_s: float
    """After it the provider itself ends the sandbox, where it can."""
    cpus: float = 2.0
    memory_mib: int = 4096


@dataclass(frozen=True, slots=True)
class Output:
    """How a command ended."""

    exit_code: int
    """124 where it was ended by its timeout."""
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False


class Provider(ABC):
    """One provider's sandboxes. Relative paths and commands start in the sandbox's working directory."""

    supports: ClassVar[frozenset[str]]
    """The capabilities that this adapter has code for."""

    def __init__(self, declaration: Declaration) -> None:
        """Work as declared.

        Raises:
            BenchError: the declaration promises what the adapter cannot do.
        """
        beyond = declaration.capabilities - self.supports
        if beyond:
            raise BenchError(
                f"the declaration of {declaration.name} promises {', '.join(sorted(beyond))}, and its adapter cannot.",
                hint="Take it out of the declaration's capabilities.",
            )
        self.declaration = declaration

    @property
    def name(self) -> str:
        """As in plans and records."""
        return self.declaration.name

    async def open(self) -> None:  # noqa: B027 - most have nothing to get ready
        """Get ready, images included, before anything is timed.

        Raises:
            HostError: a tool that it needs is missing.
        """

    async def close(self) -> None:  # noqa: B027 - or to let go of
        """Let go of what ``open`` took; sandboxes are not touched."""

    @abstractmethod
    async def version(self) -> str:
        """Say what exactly was measured."""

    async def image(self) -> str | None:
        """Return the digest of the image under every sandbox; None where there is none."""
        return None

    @abstractmethod
    async def create(self, request: CreateRequest) -> str:
        """Make a sandbox and return its id."""

    @abstractmethod
    async def exec(self, sandbox: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Output:
        """Run a command to its end."""

    @abstractmethod
    async def read(self, sandbox: str, path: str) -> bytes:
        """Return a file's content."""

    @abstractmethod
    async def write(self, sandbox: str, path: str, data: bytes) -> None:
        """Put a file in place."""

    @abstractmethod
    async def destroy(self, sandbox: str) -> None:
        """Delete a sandbox; one that is gone already is fine."""

    @abstractmethod
    async def list(self, label: str | None = None) -> list[str]:
        """Return the live sandboxes with this label; of the whole account for None."""

    async def snapshot(self, sandbox: str) -> str:  # noqa: ARG002 - for those who have it
        """Save a sandbox and return the snapshot's id."""
        raise self._not_offered("snapshot")

    async def restore(self, snapshot: str) -> str:  # noqa: ARG002 - for those who have it
        """Put a snapshot back to life and return the sandbox's id."""
        raise self._not_offered("restore")

    async def delete_snapshot(self, snapshot: str) -> None:  # noqa: ARG002 - for those who have it
        """Delete a snapshot; one that is gone already is fine."""
        raise self._not_offered("snapshot")

    async def snapshots(self, label: str) -> builtins.list[str]:
        """Return the snapshots of sandboxes with this label."""
        del label
        return []

    async def fork(self, sandbox: str, count: int) -> builtins.list[str]:  # noqa: ARG002 - for those who have it
        """Make new sandboxes that go on from this moment of another; they carry its label."""
        raise self._not_offered("fork")

    def _not_offered(self, what: str) -> NotOfferedError:
        return NotOfferedError(f"{self.name} has no {what}.", hint="Its declaration must not list it.")
