"""What a run finds out about this machine before its first trial."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandyard.bench.load import HostProbe, others_mean
from sandyard.bench.run import network_baseline
from sandyard.errors import HostError
from sandyard.providers import load_declaration
from sandyard.providers.bubblewrap import BubblewrapProvider
from sandyard.providers.podman import PodmanProvider


async def test_the_baseline_opens_ten_connections_and_makes_no_request():
    seen: list[bytes] = []

    async def listen(reader, writer):
        seen.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = await network_baseline([f"127.0.0.1:{port}"])
    assert list(found) == [f"127.0.0.1:{port}"]
    assert found[f"127.0.0.1:{port}"] > 0
    while len(seen) < 10:
        await asyncio.sleep(0.01)
    assert seen == [b""] * 10
    server.close()
    await server.wait_closed()
    assert await network_baseline([f"127.0.0.1:{port}"]) == {}


async def test_a_missing_tool_is_named_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for provider in (
        BubblewrapProvider(load_declaration("bubblewrap"), tmp_path, rootfs=tmp_path, digest="x"),
        PodmanProvider(load_declaration("podman"), rootfs=tmp_path, digest="x"),
    ):
        with pytest.raises(HostError, match="not on PATH"):
            await provider.open()


def files(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_hosts_load_is_read_and_what_is_not_there_is_none(tmp_path):
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    files(proc, stat="cpu 100 0 100 800 0 0 0 0 0 0\n", meminfo="MemTotal: 9 kB\nMemAvailable:  5000 kB\n")
    files(proc, pressure__memory="some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n")
    (tmp_path / "cgroup").mkdir()
    (cgroup / "cpu.stat").write_text("nr_periods 9\nnr_throttled 3\n")
    probe = HostProbe(proc, cgroup)
    files(proc, stat="cpu 190 0 100 810 0 0 0 0 0 0\n")
    (cgroup / "cpu.stat").write_text("nr_periods 9\nnr_throttled 5\n")
    load = probe.end()
    assert (load.peak_cpu_share, load.throttled_periods) == (0.9, 2)
    assert (load.pressure_avg10, load.available_kib) == (12.5, 5000)
    nothing = HostProbe(tmp_path / "no", tmp_path / "no").end()
    assert nothing.is_saturated() is None
    assert nothing.peak_cpu_share is None


def test_others_by_hand():
    """Two that overlap for half of each, and one alone."""
    assert others_mean([(0, 2), (1, 3), (10, 11)]) == [0.5, 0.5, 0.0]
    assert others_mean([(0, 4), (1, 2), (2, 3)]) == [0.5, 1.0, 1.0]
    assert others_mean([]) == []
