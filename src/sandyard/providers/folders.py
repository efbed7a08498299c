"""Sandboxes that are a folder on this host: the bare process, and the base of bubblewrap."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from sandyard.errors import ProviderError
from sandyard.providers import programs
from sandyard.providers.declaration import Declaration
from sandyard.providers.provider import CreateRequest, Output, Provider

MARK = "SANDYARD_BENCH_SANDBOX"
"""In the environment of every process of a sandbox, which is how its processes are found and ended."""

_RECORD = "sandbox.json"


class FolderProvider(Provider):
    """Keeps a folder for each sandbox, with its record and its working directory."""

    def __init__(self, declaration: Declaration, root: Path) -> None:
        """Keep sandboxes below ``root``."""
        super().__init__(declaration)
        self._root = root / declaration.name

    async def create(self, request: CreateRequest) -> str:
        """Make the folder, then whatever lives beside it."""
        sandbox = f"bx_{secrets.token_hex(8)}"
        folder = self._root / sandbox
        self.workspace(sandbox).mkdir(parents=True)
        self._write_record(folder, {"label": request.label, "expires_s": time.time() + request.lifetime_s})
        try:
            await self._start(sandbox, request)
        except BaseException:
            await self.destroy(sandbox)
            raise
        return sandbox

    @abstractmethod
    async def _start(self, sandbox: str, request: CreateRequest) -> None:
        """Start what the sandbox needs beside its folder."""

    def workspace(self, sandbox: str) -> Path:
        """Return where its commands start."""
        return self._root / sandbox / "workspace"

    def record(self, sandbox: str) -> dict[str, Any]:
        """Return what is noted of a sandbox.

        Raises:
            ProviderError: there is no such sandbox.
        """
        try:
            return dict(json.loads((self._root / sandbox / _RECORD).read_bytes()))
        except FileNotFoundError:
            raise ProviderError(f"there is no sandbox {sandbox}.", hint="It was destroyed, or never made.") from None

    def note(self, sandbox: str, **facts: Any) -> None:
        """Add to what is noted."""
        self._write_record(self._root / sandbox, self.record(sandbox) | facts)

    def _write_record(self, folder: Path, record: dict[str, Any]) -> None:
        draft = folder / f".{_RECORD}"
        draft.write_text(json.dumps(record))
        draft.replace(folder / _RECORD)

    async def read(self, sandbox: str, path: str) -> bytes:
        """Read from the working directory."""
        self.record(sandbox)
        try:
            return await asyncio.to_thread((self.workspace(sandbox) / path).read_bytes)
        except OSError as error:
            raise ProviderError(f"{path} cannot be read: {error.strerror}.", hint="Was it written?") from None

    async def write(self, sandbox: str, path: str, data: bytes) -> None:
        """Write into the working directory."""
        self.record(sandbox)
        target = self.workspace(sandbox) / path

        def put() -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

        try:
            await asyncio.to_thread(put)
        except OSError as error:
            raise ProviderError(f"{path} cannot be written: {error.strerror}.", hint="Is the disk full?") from None

    async def destroy(self, sandbox: str) -> None:
        """End every process of the sandbox, then remove its folder."""
        await asyncio.to_thread(_end_marked, sandbox)
        await asyncio.to_thread(shutil.rmtree, self._root / sandbox, ignore_errors=True)

    async def list(self, label: str | None = None) -> list[str]:
        """Read the records."""
        if not self._root.is_dir():
            return []
        found = []
        for folder in sorted(self._root.iterdir()):
            with suppress(ProviderError):
                if label is None or self.record(folder.name)["label"] == label:
                    found.append(folder.name)
        return found

    def environment(self, sandbox: str) -> dict[str, str]:
        """Return the environment of its commands."""
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/tmp", "LANG": "C.UTF-8", MARK: sandbox}  # noqa: S108 - a home that exists everywhere


def _end_marked(sandbox: str) -> None:
    """Kill every process with the sandbox's mark until there is none, for at most 5 s."""
    deadline = time.monotonic() + 5
    wanted = f"{MARK}={sandbox}".encode()
    while pids := [pid for pid in _pids() if wanted in _environment_of(pid)]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise ProviderError(f"processes of {sandbox} do not end: {pids}.", hint="They may wait for a disk.")
        time.sleep(0.005)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 - quicker, and only names


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it ended, or is another user's
        return []


class ProcessProvider(FolderProvider):
    """A bare process in a folder of its own: no isolation at all, the floor under every other figure."""

    supports: ClassVar[frozenset[str]] = frozenset({"exec", "files"})

    async def version(self) -> str:
        """The kernel and Python's platform stand for it."""
        return f"{os.uname().sysname} {os.uname().release} {sys.implementation.name}"

    async def _start(self, sandbox: str, request: CreateRequest) -> None:
        """Nothing lives beside the folder."""

    async def exec(self, sandbox: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Output:
        """Start the program as it is."""
        self.record(sandbox)
        try:
            return await programs.run(
                argv,
                timeout_s=timeout_s,
                stdin=stdin,
                cwd=str(self.workspace(sandbox)),
                env=self.environment(sandbox),
            )
        except (FileNotFoundError, PermissionError) as error:
            return Output(127, stderr=str(error).encode())
