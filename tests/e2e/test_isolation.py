"""What a sandbox cannot reach: the host's network, processes, files and devices, more than its share of it."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard.drivers.cgroups import Cgroup, open_cgroup
from sandyard.errors import FileNotFoundInSandboxError, SandboxGoneError
from sandyard.runtime import Command, Runtime, Sandbox, SandboxSpec

AWAKE = SandboxSpec(sleep_after_s=None)


async def python(sandbox: Sandbox, script: str) -> str:
    return (await sandbox.run(Command(argv=["python3", "-c", script]))).check().stdout.decode()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on the host's loopback that a sandbox must not find."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


async def test_loopback_is_all_the_network_there_is(runtime: Runtime, listener: socket.socket) -> None:
    sandbox = await runtime.create(AWAKE)
    script = f"""
import errno, json, socket
def connect(kind, address):
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.settimeout(5)
        return errno.errorcode.get(one.connect_ex(address))
print(json.dumps({{
    "interfaces": [name for _, name in socket.if_nameindex()],
    "outside": connect(socket.AF_INET, ("192.0.2.1", 80)),
    "outside6": connect(socket.AF_INET6, ("2001:db8::1", 80)),
    "host": connect(socket.AF_INET, ("127.0.0.1", {listener.getsockname()[1]})),
}}))
"""
    said = json.loads(await python(sandbox, script))
    assert said.pop("interfaces") == ["lo"]
    assert said.pop("host") == "ECONNREFUSED"
    assert set(said.values()) <= {"ENETUNREACH", "EHOSTUNREACH"}, said
    with pytest.raises(BlockingIOError):
        listener.accept()


async def test_two_sandboxes_do_not_share_a_loopback(runtime: Runtime) -> None:
    one, other = await runtime.create(AWAKE), await runtime.create(AWAKE)
    await one.spawn(Command(argv=["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"]))
    look = "curl -sf --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 20 -o /dev/null localhost:8000"
    assert (await one.run(Command(shell=look))).exit_code == 0
    assert (await other.run(Command(shell="curl -sf localhost:8000"))).exit_code == 7  # could not connect


async def test_processes_of_the_host_are_not_seen_and_not_signalled(runtime: Runtime) -> None:
    sandbox = await runtime.create(AWAKE)
    neighbour = subprocess.Popen(["sleep", "31415.92"])
    try:
        script = f"""
import json, os, pathlib
lines = {{int(path.parent.name): path.read_bytes().decode() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")}}
try:
    os.kill({neighbour.pid}, 9)
    killed = True
except ProcessLookupError:
    killed = False
print(json.dumps([lines[1], sorted(lines), killed, os.getpid()]))
"""
        first, pids, killed, own = json.loads(await python(sandbox, script))
        assert first.split("\0")[:2] == ["/usr/bin/sandyard-guest", "agent"]
        assert pids == [1, own]
        assert not killed
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()


# scenario 94 (P0): a link in a sandbox leads to the sandbox's own files, also when the host reads it
async def test_files_of_the_host_are_not_there(runtime: Runtime, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    sandbox = await runtime.create(AWAKE)
    state = runtime._services.layout.root
    ways = [str(secret), f"/proc/1/root{secret}", f"/proc/self/cwd/../../../..{secret}", str(state), "/run/sandyard"]
    script = f"import os; print([os.path.lexists(path) for path in {ways}])"
    assert await python(sandbox, script) == f"{[False] * len(ways)}\n"
    await python(sandbox, f"import os; os.symlink({str(secret)!r}, '/root/link')")
    async with sandbox.awake() as guest:
        for path in ("/root/link", f"/root/../../..{secret}", str(secret)):
            with pytest.raises(FileNotFoundInSandboxError):
                await guest.read_bytes(path)


async def test_what_one_sandbox_does_to_its_image_no_other_sees(runtime: Runtime, rootfs: Path) -> None:
    one, other = await runtime.create(AWAKE), await runtime.create(AWAKE)
    original = (rootfs / "etc/os-release").read_bytes()
    await one.run(Command(shell="echo broken > /etc/os-release; rm -rf /usr/share /home; touch /new"))
    for sandbox in (other, await runtime.create(AWAKE)):
        async with sandbox.awake() as guest:
            assert await guest.read_bytes("/etc/os-release") == original
            with pytest.raises(FileNotFoundInSandboxError):
                await guest.stat("/new")
    assert (rootfs / "etc/os-release").read_bytes() == original
    assert not (rootfs / "new").exists()
    assert (rootfs / "usr/share").is_dir()


async def test_root_inside_has_no_power_over_the_host(runtime: Runtime) -> None:
    """Each of these would be felt on the host if a capability inside were one of the host's; 'h' only prints help."""
    sandbox = await runtime.create(AWAKE)
    disk = Path("/").stat().st_dev
    script = f"""
import json, os, pathlib, time, stat, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def fails(do):
    try:
        do()
    except OSError:
        return True
    return False
def mount():
    os.mknod("/root/disk", 0o600 | stat.S_IFBLK, os.makedev({os.major(disk)}, {os.minor(disk)}))
    os.makedirs("/root/mnt", exist_ok=True)
    for kind in (b"ext4", b"xfs", b"btrfs"):
        if libc.mount(b"/root/disk", b"/root/mnt", kind, 0, None) == 0:
            return
    raise OSError("no mount")
print(json.dumps({{
    "sysrq": fails(lambda: pathlib.Path("/proc/sysrq-trigger").write_text("h")),
    "mount": fails(mount),
    "disk": fails(lambda: os.open("/root/disk", os.O_RDONLY)),
    "clock": fails(lambda: time.clock_settime(time.CLOCK_REALTIME, 86400)),
    "memory": fails(lambda: os.open("/dev/mem", os.O_RDONLY)),
    "modules": fails(lambda: os.open("/dev/kmsg", os.O_WRONLY)),
    "devices": [path.name for path in pathlib.Path("/dev").iterdir() if stat.S_ISBLK(path.stat().st_mode)],
    "kernel": os.uname().release,
}}))
"""
    said = json.loads(await python(sandbox, script))
    assert said.pop("kernel") != platform.release()
    assert said.pop("devices") == []
    assert set(said.values()) == {True}, said


def kernel_file(cgroup: Cgroup, name: str) -> Path:
    """Return a file of the kernel's for a group; the names are the same on v1 and v2."""
    return next(path.with_name(name) for path in cgroup.join_files() if path.with_name(name).exists())


def read_stat(cgroup: Cgroup, name: str) -> int:
    figures = dict(line.split() for line in kernel_file(cgroup, "cpu.stat").read_text().splitlines())
    return int(figures[name])


async def test_a_fork_bomb_ends_its_own_sandbox_and_nothing_else(runtime: Runtime) -> None:
    """The kernel refuses what goes beyond the limit; without it the bomb would take every task of the host."""
    bombed, other = await runtime.create(AWAKE), await runtime.create(AWAKE)
    limit = kernel_file(open_cgroup(bombed.id), "pids.max")
    assert limit.read_text() == f"{bombed.machine_spec().pids}\n"
    limit.write_text("150")  # so that the test need not start thousands of processes
    bomb = "import os, time\nwhile True:\n    os.fork() or time.sleep(1000)"
    with pytest.raises(SandboxGoneError, match="host tasks"):
        await bombed.run(Command(argv=["python3", "-c", bomb]))
    assert await python(other, "print('unharmed')") == "unharmed\n"
    await bombed.delete()


# the kernel's own count says that the limit held it back: no wall clock decides
async def test_the_cpu_limit_holds(runtime: Runtime) -> None:
    sandbox = await runtime.create(SandboxSpec(cpus=0.5, sleep_after_s=None))
    cgroup = open_cgroup(sandbox.id)
    periods, throttled, used_us = read_stat(cgroup, "nr_periods"), read_stat(cgroup, "nr_throttled"), cgroup.cpu_us()
    burn = "import os, time\nos.fork()\nwhile time.process_time() < 0.5: pass"
    await python(sandbox, burn)
    periods = read_stat(cgroup, "nr_periods") - periods
    assert read_stat(cgroup, "nr_throttled") - throttled > 0
    used_us = cgroup.cpu_us() - used_us
    slack_periods = 3  # what was under way at both ends
    assert 0 < used_us <= (periods + slack_periods) * 50_000 * 1.2
