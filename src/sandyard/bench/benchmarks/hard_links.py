"""Hard links: a tree of 20,000 of them made and removed, as package managers do."""

from __future__ import annotations

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks.programs import need_space
from sandyard.bench.outcomes import ProviderFailed
from sandyard.bench.records import Metric
from sandyard.bench.session import Session, StepSpec

_FOLDERS, _FILES = 200, 100
_STORE = f"""
set -e
mkdir store
data=$(head -c 2048 /dev/zero | tr '\\0' x)
for ((d = 0; d < {_FOLDERS}; d++)); do
  mkdir "store/$d"
  for ((f = 0; f < {_FILES}; f++)); do printf %s "$data" > "store/$d/$f"; done
done
sync
"""


class HardLinks(Benchmark):
    """``cp -al`` of a store of small files, then ``rm -rf`` of the copy; the store is made untimed."""

    name = "hard-links"
    title = "Hard links"
    section = "machine"
    requires = frozenset({"exec"})
    metrics = (
        Metric(name="total", unit="ms"),
        Metric(name="link", unit="ms", is_main=False, stage_of="total"),
        Metric(name="remove", unit="ms", is_main=False, stage_of="total"),
    )
    steps = (
        StepSpec("link", "sandbox", 120, ("cp", "-al", "store", "tree")),
        StepSpec("remove", "sandbox", 120, ("rm", "-rf", "tree")),
    )
    payload = {"store.sh": _STORE.encode()}  # noqa: RUF012 - a class's constant

    async def run(self, session: Session, unit: str) -> None:
        """Link, count the links untimed, remove."""
        del unit
        sandbox = await session.create()
        await session.ready(sandbox)
        await need_space(session, sandbox, 512)
        await session.run(sandbox, ["bash", "-c", _STORE], timeout_s=300)
        output, link = await session.guest("link", sandbox, self.steps[0].command)
        counted = await session.run(sandbox, ["sh", "-c", "find tree -type f -links 2 | wc -l"])
        if output.exit_code != 0 or int(counted.stdout) != _FOLDERS * _FILES:
            raise ProviderFailed(f"{int(counted.stdout)} hard links, and {_FOLDERS * _FILES} were asked for")
        output, remove = await session.guest("remove", sandbox, self.steps[1].command)
        if output.exit_code != 0:
            raise ProviderFailed(f"rm ended with {output.exit_code}")
        times = {"link": link.runtime_ms or 0.0, "remove": remove.runtime_ms or 0.0}
        session.metrics |= times | {"total": sum(times.values())}
