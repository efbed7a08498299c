"""File transfer: seeded, incompressible bytes into a sandbox and out again."""

from __future__ import annotations

import hashlib

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.outcomes import ProviderFailed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

_SIZES = {"1KiB": (1, 1 << 10), "10MiB": (1, 10 << 20), "100MiB": (1, 100 << 20), "100x10KiB": (100, 10 << 10)}


class FileTransfer(Benchmark):
    """Write and read on the job host's clock; hashes are compared outside it, on both sides."""

    name = "file-transfer"
    title = "File transfer"
    section = "operation"
    requires = frozenset({"exec", "files"})
    units = tuple(_SIZES)
    metrics = (Metric(name="up", unit="ms"), Metric(name="down", unit="ms"))
    steps = (StepSpec("up", "host", 120), StepSpec("down", "host", 120))

    async def run(self, session: Session, unit: str) -> None:
        """All files up, then all down."""
        count, size = _SIZES[unit]
        files = {f"transfer/{index}": session.random.randbytes(size) for index in range(count)}
        sandbox = await session.create()
        await session.ready(sandbox)
        async with session.span("up") as up:
            for path, data in files.items():
                await session.provider.write(sandbox, path, data)
        inside = (await session.run(sandbox, ["sh", "-c", "cd transfer && sha256sum $(ls | sort -n)"])).stdout.split()[
            ::2
        ]
        if [word.decode() for word in inside] != [hashlib.sha256(data).hexdigest() for data in files.values()]:
            raise ProviderFailed("what arrived in the sandbox is not what was sent")
        async with session.span("down") as down:
            back = {path: await session.provider.read(sandbox, path) for path in files}
        if back != files:
            raise ProviderFailed("what came back is not what was sent")
        session.metrics |= {"up": up[0], "down": down[0]}
