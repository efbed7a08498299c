"""The providers of this machine, made from a plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sandyard.bench.runtime_provider import RuntimeProvider
from sandyard.errors import BenchError, HostError
from sandyard.images import Image, ImageStore
from sandyard.providers import CreateRequest, Declaration, Provider, load_declaration
from sandyard.providers.bubblewrap import BubblewrapProvider
from sandyard.providers.folders import ProcessProvider
from sandyard.providers.podman import PodmanProvider


@asynccontextmanager
async def open_providers(
    names: Sequence[str],
    state_dir: Path,
    *,
    image: str,
    request: CreateRequest,
    skip_missing: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[dict[str, Provider]]:
    """Open providers, with their image prepared; all on the same unpacked root file system.

    Args:
        names: of declarations.
        state_dir: where images and sandboxes are kept.
        image: an OCI reference, folder or archive.
        request: the size to prepare for.
        skip_missing: leave out a provider whose tool is missing, and say so.
        say: told what is left out.

    Raises:
        HostError: a provider's tool is missing.
        BenchError: there is no such provider.
    """
    declarations = [load_declaration(name) for name in names]
    images = ImageStore((state_dir / "images").absolute())
    unpacked = await images.resolve(image)
    async with AsyncExitStack() as stack:
        opened: dict[str, Provider] = {}
        for declaration in declarations:
            provider = _make(declaration, state_dir / "bench", images, image, unpacked)
            try:
                await provider.open()
            except HostError as error:
                if not skip_missing:
                    raise
                say(f"{declaration.name} is left out: {error}")
                continue
            stack.push_async_callback(provider.close)
            if isinstance(provider, RuntimeProvider):
                await provider.prepare(request)
            opened[declaration.name] = provider
        yield opened


def _make(declaration: Declaration, root: Path, images: ImageStore, image: str, unpacked: Image) -> Provider:
    match declaration.adapter:
        case "process":
            return ProcessProvider(declaration, root)
        case "bubblewrap":
            return BubblewrapProvider(declaration, root, rootfs=unpacked.rootfs, digest=unpacked.digest)
        case "podman":
            return PodmanProvider(declaration, rootfs=unpacked.rootfs, digest=unpacked.digest)
        case "sandyard":
            return RuntimeProvider(declaration, state_dir=root / "runtime", images=images, image=image)
        case other:
            raise BenchError(
                f"the declaration of {declaration.name} names no adapter of ours: {other}.", hint="Correct it."
            )
