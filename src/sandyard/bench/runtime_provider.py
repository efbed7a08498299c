"""This project's own runtime as a provider, in this process."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from sandyard.drivers import Driver
from sandyard.errors import CommandError, NotFoundError, ProviderError, SandyardError
from sandyard.images import ImageStore
from sandyard.providers import CreateRequest, Declaration, Output, Provider
from sandyard.runtime import Command, Runtime, Sandbox, SandboxSpec

LABEL = "bench"
WORKDIR = "/var/tmp"  # noqa: S108 - of the sandbox


class RuntimeProvider(Provider):
    """Sandboxes under a state directory of the benchmark's own, so that the account is empty.

    They never sleep, as idling is not what is timed; the runtime deletes them after their lifetime.
    """

    supports: ClassVar[frozenset[str]] = frozenset(
        {"exec", "files", "lifetime", "snapshot", "memory-snapshot", "fork", "limits"}
    )

    def __init__(
        self, declaration: Declaration, *, state_dir: Path, images: ImageStore, image: str, driver: Driver | None = None
    ) -> None:
        """Keep state in ``state_dir`` and take images from ``images``."""
        super().__init__(declaration)
        self._state_dir, self._images, self._image, self._driver = state_dir, images, image, driver
        self._opened: Runtime | None = None
        self._digest: str | None = None

    @property
    def _runtime(self) -> Runtime:
        if self._opened is None:
            raise ProviderError("the runtime is not open.", hint="Open the provider first.")
        return self._opened

    async def open(self) -> None:
        """Open the runtime and unpack the image."""
        self._opened = await Runtime.open(self._state_dir, driver=self._driver, images=self._images)
        self._digest = (await self._images.resolve(self._image)).digest

    async def prepare(self, request: CreateRequest) -> None:
        """Make the image's template, as an image is prepared in every account before a run."""
        await self.destroy(await self.create(request))

    async def close(self) -> None:
        """Close the runtime; nothing is left running."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def version(self) -> str:
        """The driver's."""
        services = self._runtime._services  # noqa: SLF001 - the one place that says which driver this is
        return f"{services.driver.name} {await services.driver.version()}"

    async def image(self) -> str | None:
        """The image's digest."""
        return self._digest

    async def create(self, request: CreateRequest) -> str:
        """Through the runtime, from the template."""
        spec = SandboxSpec(
            image=self._image,
            cpus=request.cpus,
            memory_mib=request.memory_mib,
            workdir=WORKDIR,
            metadata={LABEL: request.label},
            sleep_after_s=None,
            ttl_s=request.lifetime_s,
        )
        with _translated():
            return (await self._runtime.create(spec)).id

    async def exec(self, sandbox: str, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Output:
        """Through the agent; a command that is not there ends with 127."""
        with _translated():
            box = await self._runtime.get(sandbox)
            try:
                result = await box.run(Command(argv=argv, timeout_s=timeout_s, stdin=bool(stdin)), stdin=stdin or None)
            except CommandError as error:
                return Output(127, stderr=str(error).encode())
        code = 124 if result.timed_out else result.exit_code
        return Output(code, result.stdout, result.stderr, result.timed_out)

    async def read(self, sandbox: str, path: str) -> bytes:
        """Through the agent."""
        with _translated():
            async with (await self._runtime.get(sandbox)).awake() as guest:
                return await guest.read_bytes(f"{WORKDIR}/{path}", limit=1 << 30)

    async def write(self, sandbox: str, path: str, data: bytes) -> None:
        """Through the agent."""
        with _translated():
            async with (await self._runtime.get(sandbox)).awake() as guest:
                await guest.write(f"{WORKDIR}/{path}", data, parents=True)

    async def destroy(self, sandbox: str) -> None:
        """Through the runtime; its snapshots go one by one."""
        with _translated(), suppress(NotFoundError):
            await (await self._runtime.get(sandbox)).delete("the trial is over")

    async def list(self, label: str | None = None) -> list[str]:
        """From the store."""
        rows = await self._runtime.sandboxes()
        return [row.id for row in rows if label is None or row.spec.get("metadata", {}).get(LABEL) == label]

    async def snapshot(self, sandbox: str) -> str:
        """Memory, processes and disk."""
        with _translated():
            return (await self._runtime.snapshots.take(await self._runtime.get(sandbox))).id

    async def restore(self, snapshot: str) -> str:
        """In place: the sandbox goes back to that moment."""
        with _translated():
            row = await self._runtime.snapshots.get(snapshot)
            return (await self._runtime.restore(row.sandbox_id, snapshot)).id

    async def delete_snapshot(self, snapshot: str) -> None:
        """From the store and the disk."""
        with _translated(), suppress(NotFoundError):
            await self._runtime.snapshots.delete(await self._runtime.snapshots.get(snapshot))

    async def snapshots(self, label: str) -> builtins.list[str]:
        """Those of sandboxes with this label."""
        rows = await self._runtime.snapshots.kept()
        return [row.id for row in rows if row.spec.get("metadata", {}).get(LABEL) == label]

    async def fork(self, sandbox: str, count: int) -> builtins.list[str]:
        """Through the runtime."""
        with _translated():
            forks: list[Sandbox] = await self._runtime.fork(sandbox, count)
        return [fork.id for fork in forks]


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the runtime's errors into the provider's, with their text and code."""
    try:
        yield
    except ProviderError:
        raise
    except SandyardError as error:
        raise ProviderError(error.what, hint=error.hint, code=error.code) from error
