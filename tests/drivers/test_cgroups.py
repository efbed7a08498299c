"""Control groups: the real ones of this host, and cgroup v2 as files where the host has v1."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.drivers.cgroups import Cgroup, CgroupV1, CgroupV2, Limits, open_cgroup, v1_controllers
from sandyard.errors import HostError

LIMITS = Limits(cpus=0.5, memory_mib=64, pids=20)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="making cgroups needs root")


@pytest.fixture
async def group() -> AsyncIterator[Cgroup]:
    made = open_cgroup(f"test-{os.getpid()}-{time.monotonic_ns()}")
    made.create(LIMITS)
    yield made
    await made.remove()
    assert [path for path in Path("/sys/fs/cgroup").glob(f"**/{made.name}") if path.exists()] == []


def start(group: Cgroup, *words: str) -> subprocess.Popen[bytes]:
    """Start a command inside the group, as the driver does."""
    joins = " ".join(f"echo $$ > {path};" for path in group.join_files())
    return subprocess.Popen(["/bin/sh", "-c", f'{joins} exec "$@"', "sh", *words], stderr=subprocess.DEVNULL)


@needs_root
async def test_freeze_stops_the_clock_of_a_busy_process_and_thaw_starts_it(group: Cgroup) -> None:
    busy = start(group, "sh", "-c", "while :; do :; done")
    while group.cpu_us() < 50_000:
        time.sleep(0.01)
    await group.freeze()
    assert group.is_frozen()
    frozen_at = group.cpu_us()
    time.sleep(0.2)
    assert group.cpu_us() == frozen_at
    await group.thaw()
    while group.cpu_us() == frozen_at:
        time.sleep(0.01)
    await group.kill()
    assert busy.wait() == -9


@needs_root
@pytest.mark.parametrize("is_frozen", [False, True])
async def test_kill_ends_everything_also_what_is_frozen(group: Cgroup, is_frozen) -> None:
    parent = start(group, "sh", "-c", "sleep 1000 & sleep 1000 & wait")
    while len(group.pids()) < 3:
        time.sleep(0.01)
    if is_frozen:
        await group.freeze()
    await group.kill()
    assert group.pids() == []
    assert parent.wait() == -9


@needs_root
async def test_reaching_the_memory_limit_is_counted(group: Cgroup) -> None:
    hungry = start(group, "python3", "-c", "x = bytearray(200_000_000)")
    assert hungry.wait() == -9
    assert group.oom_kills() == 1
    assert 0 < group.memory_peak_bytes() <= 64 * 1024 * 1024


@needs_root
async def test_the_task_limit_holds(group: Cgroup) -> None:
    forker = start(group, "bash", "-c", "for n in $(seq 40); do sleep 5 & done 2>/dev/null; sleep 5")
    until = time.monotonic() + 10
    while len(group.pids()) < 20 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(group.pids()) == 20
    await group.kill()
    forker.wait()


@needs_root
async def test_a_group_that_is_gone_reads_as_nothing(group: Cgroup) -> None:
    await group.remove()
    await group.remove()
    assert (group.pids(), group.cpu_us(), group.memory_bytes(), group.oom_kills()) == ([], 0, 0, 0)
    assert not group.is_frozen()


# -- cgroup v2, whose files are the kernel's documentation's ----------------------------------------------------------


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def test_v2_writes_the_limits_where_the_kernel_reads_them(unified: Path) -> None:
    group = CgroupV2("sb_1", unified)
    group.create(LIMITS)
    directory = unified / "sandyard" / "sb_1"
    assert (directory / "cpu.max").read_text() == "50000 100000"
    assert (directory / "memory.max").read_text() == "67108864"
    assert (directory / "pids.max").read_text() == "20"
    assert (unified / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (unified / "sandyard" / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert group.join_files() == [directory / "cgroup.procs"]


def test_v2_reads_the_kernels_figures(unified: Path) -> None:
    group = CgroupV2("sb_1", unified)
    directory = unified / "sandyard" / "sb_1"
    directory.mkdir(parents=True)
    (directory / "cpu.stat").write_text("usage_usec 123456\nuser_usec 100000\nsystem_usec 23456\n")
    (directory / "memory.current").write_text("30000000\n")
    (directory / "memory.stat").write_text("anon 1\ninactive_file 10000000\n")
    (directory / "memory.peak").write_text("40000000\n")
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert group.cpu_us() == 123456
    assert group.memory_bytes() == 20_000_000
    assert group.memory_peak_bytes() == 40_000_000
    assert group.oom_kills() == 1


async def test_v2_freezes_until_the_kernel_says_so(unified: Path) -> None:
    group = CgroupV2("sb_1", unified)
    directory = unified / "sandyard" / "sb_1"
    directory.mkdir(parents=True)
    (directory / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    await group.freeze()
    assert group.is_frozen()
    await group.thaw()
    assert not group.is_frozen()


# -- which of them a host has -----------------------------------------------------------------------------------------

V1_MOUNTS = """\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 24 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
34 24 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_a_hybrid_host_is_driven_through_v1(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(V1_MOUNTS)
    assert v1_controllers(mounts)["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    group = open_cgroup("sb_1", root=tmp_path, mountinfo=mounts)
    assert isinstance(group, CgroupV1)
    # one directory serves cpu and cpuacct: it is joined once
    assert len(group.join_files()) == 4


def test_a_unified_host_is_driven_through_v2(unified: Path, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    assert isinstance(open_cgroup("sb_1", root=unified, mountinfo=mounts), CgroupV2)


def test_a_host_without_controllers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no cgroup hierarchy"):
        open_cgroup("sb_1", root=tmp_path, mountinfo=tmp_path / "none")
