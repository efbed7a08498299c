"""bubblewrap: namespaces around an image's root file system, read-only, with a working directory of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from sandyard.errors import ProviderError
from sandyard.providers import programs
from sandyard.providers.declaration import Declaration
from sandyard.providers.folders import FolderProvider
from sandyard.providers.provider import CreateRequest, Output

WORKDIR = "/var/tmp"  # noqa: S108 - of the sandbox
_START_S = 10


class BubblewrapProvider(FolderProvider):
    """One bwrap for each sandbox, whose first process sleeps for the lifetime; its end ends all of them."""

    supports: ClassVar[frozenset[str]] = frozenset({"exec", "files", "lifetime"})

    def __init__(self, declaration: Declaration, root: Path, *, rootfs: Path, digest: str) -> None:
        """Run on an unpacked image."""
        super().__init__(declaration, root)
        self._rootfs, self._digest = rootfs, digest
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def open(self) -> None:
        """Check for the two programs."""
        programs.require("bwrap", "bubblewrap")
        programs.require("nsenter", "util-linux")

    async def version(self) -> str:
        """As bwrap says it."""
        return (await programs.run(["bwrap", "--version"], timeout_s=10)).stdout.decode().strip()

    async def image(self) -> str | None:
        """The unpacked image's digest."""
        return self._digest

    async def _start(self, sandbox: str, request: CreateRequest) -> None:
        info, ready = os.pipe(), os.pipe()
        try:
            self._running[sandbox] = await asyncio.create_subprocess_exec(
                *self._command(sandbox, request.lifetime_s, info[1], ready[1]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(info[1], ready[1]),
                env=self.environment(sandbox),
                start_new_session=True,
            )
        finally:
            os.close(info[1])
            os.close(ready[1])
        try:
            async with asyncio.timeout(_START_S):
                said = await asyncio.to_thread(_read_all, info[0])
                is_ready = await asyncio.to_thread(_read_all, ready[0])  # mounts are made after the pid is told
        finally:
            os.close(info[0])
            os.close(ready[0])
        if not said or not is_ready:
            command = " ".join(self._command(sandbox, request.lifetime_s, 2, 2))
            raise ProviderError("bwrap did not start the sandbox.", hint=f"By hand it says why: {command}")
        self.note(sandbox, pid=json.loads(said)["child-pid"])

    def _command(self, sandbox: str, lifetime_s: float, info_fd: int, ready_fd: int) -> list[str]:
        return [
            "bwrap",
            "--unshare-all",
            *("--ro-bind", str(self._rootfs), "/"),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - of the sandbox
            *("--bind", str(self.workspace(sandbox)), WORKDIR, "--chdir", WORKDIR),
            *("--info-fd", str(info_fd)),
            *("--", "bash", "-c", f"echo ready >&{ready_fd}; exec {ready_fd}>&-; exec sleep {lifetime_s:g}"),
        ]

    async def exec(self, sandbox: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Output:
        """Enter the sandbox's namespaces."""
        pid = self.record(sandbox)["pid"]
        if not Path(f"/proc/{pid}").exists():
            raise ProviderError(f"sandbox {sandbox} has ended.", hint="Its lifetime was over, or it was killed.")
        enter = ["nsenter", "-t", str(pid), "-m", "-p", "-n", "-i", "-u", "-r", "-w", "--", *argv]
        return await programs.run(enter, timeout_s=timeout_s, stdin=stdin, env=self.environment(sandbox))

    async def destroy(self, sandbox: str) -> None:
        """End it, and reap the bwrap that this process started."""
        await super().destroy(sandbox)
        if (bwrap := self._running.pop(sandbox, None)) is not None:
            await bwrap.wait()

    async def list(self, label: str | None = None) -> list[str]:
        """Return those whose first process lives; the folder of one whose lifetime is over is removed."""
        alive = []
        for sandbox in await super().list(label):
            with suppress(ProviderError):
                pid = self.record(sandbox).get("pid")
                if pid is not None and Path(f"/proc/{pid}").exists():
                    alive.append(sandbox)
                else:
                    await self.destroy(sandbox)
        return alive


def _read_all(descriptor: int) -> bytes:
    """Read until every writer has closed its end."""
    parts = []
    while part := os.read(descriptor, 4096):
        parts.append(part)
    return b"".join(parts)
