"""Where everything of a runtime lies below its state directory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandyard.errors import HostError, NoSpaceError


@dataclass(frozen=True, slots=True)
class Layout:
    """The state directory's map; nothing else in the runtime joins paths below it."""

    root: Path

    def make(self) -> None:
        """Make the folders and the store's file, for their owner only: memory images and environments hold secrets.

        Raises:
            NoSpaceError: the disk is full.
            HostError: they cannot be made there.
        """
        try:
            with self.full_disk_told():
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                for directory in (self.sandboxes, self.snapshots, self.images, self.agents, self.locks):
                    directory.mkdir(mode=0o700, exist_ok=True)
                self.database.touch(mode=0o600)
        except OSError as error:
            raise HostError(
                f"the state directory {self.root} cannot be made or written: {error.strerror}.",
                hint="Name another one with --state-dir, or run as a user who may write there.",
                code="state-unusable",
            ) from error

    @contextmanager
    def full_disk_told(self) -> Iterator[None]:
        """Say in plain words that a file here could not be written for want of space.

        Raises:
            NoSpaceError: that is why what is inside failed.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise NoSpaceError(
                f"the disk under {self.root} is full.",
                hint="Free space there: delete sandboxes and snapshots, or run 'sandyard images prune'.",
            ) from error

    @property
    def database(self) -> Path:
        """The store's file."""
        return self.root / "state.db"

    @property
    def images(self) -> Path:
        """The image store's folder."""
        return self.root / "images"

    @property
    def sandboxes(self) -> Path:
        """One folder a sandbox."""
        return self.root / "sandboxes"

    @property
    def snapshots(self) -> Path:
        """One folder a snapshot or template."""
        return self.root / "snapshots"

    @property
    def agents(self) -> Path:
        """One binary a version of the agent, named by digest; checkpoints need the one that they were made with."""
        return self.root / "agents"

    @property
    def locks(self) -> Path:
        """One file a sandbox, locked by the process that owns it, and one a template in the making."""
        return self.root / "locks"

    def sandbox(self, sandbox_id: str) -> Path:
        """The folder of one sandbox."""
        return self.sandboxes / sandbox_id

    def sleep(self, sandbox_id: str) -> Path:
        """The checkpoint that a sleeping sandbox wakes from."""
        return self.sandboxes / sandbox_id / "sleep"

    def snapshot(self, snapshot_id: str) -> Path:
        """The checkpoint of one snapshot or template."""
        return self.snapshots / snapshot_id

    def agent(self, digest: str) -> Path:
        """The agent's binary of this digest."""
        return self.agents / digest / "sandyard-agent"

    def lock(self, name: str) -> Path:
        """The lock file of this name."""
        return self.locks / f"{name}.lock"
