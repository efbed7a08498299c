"""Every benchmark, one file each."""

from collections.abc import Mapping

from sandyard.bench.benchmark import Benchmark
from sandyard.bench.benchmarks.ci_actions import CiActions
from sandyard.bench.benchmarks.cpu import Cpu
from sandyard.bench.benchmarks.disk import Disk
from sandyard.bench.benchmarks.file_transfer import FileTransfer
from sandyard.bench.benchmarks.fork import Fork
from sandyard.bench.benchmarks.hard_links import HardLinks
from sandyard.bench.benchmarks.install_and_build import InstallAndBuild
from sandyard.bench.benchmarks.latency_per_call import LatencyPerCall
from sandyard.bench.benchmarks.memory import Memory
from sandyard.bench.benchmarks.reliability import Reliability
from sandyard.bench.benchmarks.replay import Replay
from sandyard.bench.benchmarks.sequential_tti import SequentialTti
from sandyard.bench.benchmarks.snapshot_and_restore import SnapshotAndRestore

_ALL: tuple[type[Benchmark], ...] = (
    SequentialTti,
    LatencyPerCall,
    SnapshotAndRestore,
    Fork,
    FileTransfer,
    Reliability,
    Cpu,
    Memory,
    Disk,
    HardLinks,
    InstallAndBuild,
    CiActions,
    Replay,
)


def all_benchmarks() -> Mapping[str, Benchmark]:
    """Return each by its name."""
    return {kind.name: kind() for kind in _ALL}


__all__ = ["all_benchmarks"]
