from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard import host
from sandyard.host import Check, Status

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")
SANDYARD = [sys.executable, "-c", "from sandyard.cli.main import main; main()"]


@pytest.mark.parametrize(
    ("version", "date"),
    [
        ("0.0~20240729.0", 20240729),
        ("0.0~20221219.0", 20221219),
        ("release-20260105.0", 20260105),
        ("release-20240807.0-12-g1a2b3c4d5e6f", 20240807),
        ("20250101.0", 20250101),
        ("90a116890fce", None),
        ("VERSION_MISSING", None),
        ("1.20240101", None),
    ],
)
def test_the_date_of_a_runsc(version: str, date: int | None) -> None:
    assert host.runsc_date(version) == date


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (None, Status.FAIL),
        ("0.0~20221219.0", Status.FAIL),
        ("release-20231218.0", Status.FAIL),
        ("VERSION_MISSING", Status.WARN),
        ("0.0~20240729.0", Status.OK),
        ("release-20260105.0", Status.OK),
    ],
)
def test_an_old_runsc_is_refused(version: str | None, status: Status) -> None:
    check = host.runsc(version)
    assert check.status is status
    assert bool(check.how) == (status is not Status.OK)


@pytest.mark.parametrize(
    ("system", "release", "machine", "status"),
    [
        ("Linux", "6.1.0-28-amd64", "x86_64", Status.OK),
        ("Linux", "4.14.77", "aarch64", Status.OK),
        ("Linux", "4.9.0", "x86_64", Status.FAIL),
        ("Linux", "6.1.0", "riscv64", Status.FAIL),
        ("Linux", "strange", "x86_64", Status.FAIL),
        ("Darwin", "24.1.0", "arm64", Status.FAIL),
    ],
)
def test_kernels(system: str, release: str, machine: str, status: Status) -> None:
    assert host.kernel(system, release, machine).status is status


def test_root() -> None:
    assert host.root(0).status is Status.OK
    assert host.root(1000).status is Status.FAIL
    assert "sudo" in host.root(1000).how


# -- control groups ---------------------------------------------------------------------------------------------------


def line(mount: Path, kind: str, options: str) -> str:
    return f"30 23 0:26 / {mount} rw,nosuid shared:9 - {kind} {kind} rw,{options}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("cpu,cpuacct", "memory", "pids", "freezer", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "unified/cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def v1(tree: Path, *names: str) -> str:
    return "".join(line(tree / name, "cgroup", name) for name in names)


def look(tree: Path, text: str) -> Check:
    (tree / "mountinfo").write_text("22 1 254:0 / / rw - ext4 /dev/vda rw\n" + text)
    return host.cgroups(tree / "mountinfo")


ALL_OF_V1 = ("cpu,cpuacct", "memory", "pids", "freezer")


def test_control_groups_of_every_version(tree: Path) -> None:
    unified = line(tree / "unified", "cgroup2", "nsdelegate")
    for text, version in (
        (v1(tree, *ALL_OF_V1), "v1,"),
        (unified, "v2,"),
        (v1(tree, *ALL_OF_V1) + unified, "hybrid"),
        (line(tree, "cgroup", "name=systemd") + unified, "hybrid"),
    ):
        check = look(tree, text)
        assert check.status is Status.OK, check
        assert check.found.startswith(version)
        assert check.how == ""


def test_control_groups_that_lack_something(tree: Path) -> None:
    check = look(tree, v1(tree, "cpu,cpuacct", "memory"))
    assert (check.status, check.found) == (Status.FAIL, "v1, without pids, freezer")
    (tree / "unified/cgroup.controllers").write_text("cpu\n")
    check = look(tree, line(tree / "unified", "cgroup2", "x"))
    assert (check.status, check.found) == (Status.FAIL, "v2, without memory, pids")
    assert look(tree, "").found == "none, without cpu, memory, pids"


@pytest.fixture
def read_only(tree: Path) -> Iterator[Path]:
    """A file system that root cannot write to either."""
    folder = tree / "locked"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@needs_root
def test_control_groups_that_cannot_be_written(tree: Path, read_only: Path) -> None:
    text = v1(tree, "cpu,cpuacct", "pids", "freezer") + line(read_only, "cgroup", "memory")
    check = look(tree, text)
    assert (check.status, check.found) == (Status.FAIL, "v1, but not writable: memory")
    assert "cgroupns" in check.how


# -- programs and room ------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_missing_tool_is_named_with_the_way_to_get_it(path: Path) -> None:
    skopeo, umoci, *_ = host._TOOLS
    check = host.tool(skopeo)
    assert (check.name, check.status, check.found) == ("skopeo", Status.FAIL, "not installed")
    assert "containers/skopeo" in check.how
    install(path, "apt-get", "exit 0")
    assert "apt-get install umoci" in host.tool(umoci).how
    assert host.basics().found == "not installed: tar, setpriv, unshare, sync"
    assert host.runsc_version() is None


def test_what_programs_say_of_their_version(path: Path) -> None:
    skopeo = host._TOOLS[0]
    install(path, "skopeo", "echo skopeo version 1.9.3")
    assert host.tool(skopeo).found == "1.9.3"
    install(path, "runsc", "echo runsc version release-20260105.0; echo spec: 1.1.0")
    assert host.runsc_version() == "release-20260105.0"
    install(path, "runsc", "echo broken >&2; exit 1")
    assert host.runsc_version() == "broken"
    assert host.runsc(host.runsc_version()).status is Status.WARN


def test_namespaces_that_the_kernel_lacks_or_refuses(path: Path, tmp_path: Path) -> None:
    check = host.namespaces(tmp_path / "none")
    assert check.status is Status.FAIL
    assert "mnt" in check.found
    assert host.namespaces(Path("/proc/self/ns")).found == "none may be made: there is no 'unshare' to try it with"
    install(path, "unshare", "echo unshare failed: Operation not permitted >&2; exit 1")
    check = host.namespaces(Path("/proc/self/ns"))
    assert (check.status, check.found) == (Status.FAIL, "none may be made: unshare failed: Operation not permitted")


@needs_root
def test_the_mismatch_is_looked_for_in_a_new_namespace() -> None:
    listed = subprocess.run(
        ["unshare", "--net", "ls", "/proc/sys/net/core"], check=True, capture_output=True, text=True
    )
    shows = "rmem_default" in listed.stdout.split()
    assert host.network("0.0~20240729.0").status is (Status.WARN if shows else Status.OK)
    assert host.network("release-20260105.0").status is Status.OK


def test_the_mismatch_where_nobody_may_look(path: Path) -> None:
    install(path, "unshare", "echo unshare failed: Operation not permitted >&2; exit 1")
    assert host.network("0.0~20240729.0").status is Status.WARN
    install(path, "unshare", "exit 1")
    assert host.network("0.0~20240729.0").status is Status.OK
    install(path, "unshare", "exit 0")
    assert "workaround" in host.network("0.0~20240729.0").found


@pytest.mark.parametrize(
    ("free_kib", "status"),
    [(8_000_000, Status.OK), (1_048_576, Status.OK), (500_000, Status.WARN), (200_000, Status.FAIL)],
)
def test_memory(tmp_path: Path, free_kib: int, status: Status) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal:       99999999 kB\nMemAvailable:   {free_kib} kB\n")
    assert host.memory(tmp_path / "meminfo").status is status


@needs_root
def test_disk_is_looked_at_where_the_state_will_be(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], check=True)
    try:
        check = host.disk(tmp_path / "not/yet/there")
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert check.status is Status.FAIL
    assert check.found == f"64.0 MiB free at {tmp_path}"
    assert "--state-dir" in check.how


# -- the command ------------------------------------------------------------------------------------------------------


@needs_root
def test_doctor_on_this_host(tmp_path: Path) -> None:
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")
    done = subprocess.run([*SANDYARD, "doctor", "--json", "--state-dir", tmp_path], capture_output=True, check=False)
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == (1 if any(check["status"] == "fail" for check in found.values()) else 0)
    said = subprocess.run(["runsc", "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0]
    assert said == f"runsc version {found['runsc']['found']}"
    said = subprocess.run(["umoci", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    assert said == f"umoci version {found['umoci']['found']}"
    assert set(found) >= {
        "kernel",
        "root",
        "cgroups",
        "namespaces",
        "runsc",
        "runsc network",
        "skopeo",
        "disk",
        "memory",
    }


def test_doctor_says_what_is_missing_and_fails(path: Path, tmp_path: Path) -> None:
    install(path, "apt-get", "exit 0")
    done = subprocess.run(
        [*SANDYARD, "doctor", "--state-dir", tmp_path],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PATH": str(path), "COLUMNS": "200"},
    )
    assert done.returncode == 1
    assert "runsc: not installed." in done.stdout
    assert "apt-get install runsc" in done.stdout
    assert "apt-get install skopeo" in done.stdout
    assert "Sandboxes can run" not in done.stdout
