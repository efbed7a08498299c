"""One suite for every provider that this machine has."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from sandyard.bench.runtime_provider import RuntimeProvider
from sandyard.errors import BenchError, NotOfferedError, ProviderError
from sandyard.images import ImageStore
from sandyard.providers import CreateRequest, Declaration, Provider, load_declaration
from sandyard.providers.bubblewrap import BubblewrapProvider
from sandyard.providers.declaration import CAPABILITIES, FOLDER
from sandyard.providers.fake import FakeProvider
from sandyard.providers.folders import ProcessProvider
from sandyard.providers.podman import PodmanProvider

REQUEST = CreateRequest(label="contract", lifetime_s=300, cpus=1, memory_mib=512)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def needs(tool):
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


FAKE = Declaration(name="fake", title="Fake", adapter="fake", region="nowhere", capabilities=frozenset(CAPABILITIES))


@pytest.fixture(
    params=[
        "fake",
        "process",
        pytest.param("bubblewrap", marks=[needs("bwrap"), needs_root]),
        pytest.param("podman", marks=[needs("podman"), needs_root]),
        pytest.param("sandyard", marks=[needs("runsc"), needs_root, pytest.mark.gvisor]),
    ]
)
def made(request, tmp_path):
    return build(request, tmp_path)


@pytest.fixture
async def provider(made):
    await made.open()
    yield made
    for sandbox in await made.list("contract"):
        await made.destroy(sandbox)
    await made.close()


def build(request, tmp_path: Path) -> Provider:
    if request.param == "fake":
        return FakeProvider(FAKE)
    declaration = load_declaration(request.param)
    if request.param == "process":
        return ProcessProvider(declaration, tmp_path)
    rootfs: Path = request.getfixturevalue("rootfs")
    if request.param == "sandyard":
        images = ImageStore(rootfs.parents[2])
        return RuntimeProvider(declaration, state_dir=tmp_path / "state", images=images, image="default")
    if request.param == "podman":
        return PodmanProvider(declaration, rootfs=rootfs, digest="sha256:x")
    return BubblewrapProvider(declaration, tmp_path, rootfs=rootfs, digest="sha256:x")


async def test_a_life(provider):
    sandbox = await provider.create(REQUEST)
    assert sandbox in await provider.list("contract")
    assert sandbox in await provider.list()
    assert await provider.list("another label") == []
    assert (await provider.exec(sandbox, ["true"], timeout_s=30)).exit_code == 0
    assert (await provider.exec(sandbox, ["sh", "-c", "exit 3"], timeout_s=30)).exit_code == 3
    assert (await provider.exec(sandbox, ["no-such-program"], timeout_s=30)).exit_code == 127
    assert (await provider.exec(sandbox, ["cat"], timeout_s=30, stdin=b"in")).stdout == b"in"
    data = bytes(range(256)) * 500
    await provider.write(sandbox, "sub/file.bin", data)
    assert await provider.read(sandbox, "sub/file.bin") == data
    assert (await provider.exec(sandbox, ["cat", "sub/file.bin"], timeout_s=30)).stdout == data
    await provider.destroy(sandbox)
    assert await provider.list("contract") == []
    await provider.destroy(sandbox)
    with pytest.raises(ProviderError):
        await provider.exec(sandbox, ["true"], timeout_s=30)


async def test_what_is_missing_is_an_error(provider):
    sandbox = await provider.create(REQUEST)
    with pytest.raises((ProviderError, LookupError)):
        await provider.read(sandbox, "never-written")


async def test_a_timeout_ends_the_command_and_not_the_sandbox(provider):
    if provider.name == "fake":
        pytest.skip("its commands take no time")
    sandbox = await provider.create(REQUEST)
    output = await provider.exec(sandbox, ["sleep", "60"], timeout_s=0.5)
    assert (output.exit_code, output.timed_out) == (124, True)
    assert (await provider.exec(sandbox, ["true"], timeout_s=30)).exit_code == 0


async def test_background_processes_end_with_the_sandbox(provider):
    if provider.name == "fake":
        pytest.skip("it has no processes")
    sandbox = await provider.create(REQUEST)
    mark = f"86{os.getpid()}"
    script = f"setsid nohup sleep {mark} > /dev/null 2>&1 < /dev/null &"
    assert (await provider.exec(sandbox, ["bash", "-c", script], timeout_s=30)).exit_code == 0
    assert b"sleep" in (await provider.exec(sandbox, ["sh", "-c", "cat /proc/*/cmdline"], timeout_s=30)).stdout
    await provider.destroy(sandbox)
    assert not [pid for pid in _pids() if mark in _cmdline(pid)]


async def test_snapshot_restore_and_fork_as_declared(provider):
    sandbox = await provider.create(REQUEST)
    can = provider.declaration.capabilities
    await provider.write(sandbox, "state", b"before")
    if "snapshot" in can:
        saved = await provider.snapshot(sandbox)
        assert await provider.snapshots("contract") == [saved]
        await provider.write(sandbox, "state", b"after")
        restored = await provider.restore(saved)
        assert await provider.read(restored, "state") == b"before"
        await provider.delete_snapshot(saved)
        sandbox = restored
        assert await provider.snapshots("contract") == []
    else:
        with pytest.raises(NotOfferedError):
            await provider.snapshot(sandbox)
    if "fork" in can:
        children = await provider.fork(sandbox, 2)
        await provider.write(children[0], "state", b"child")
        assert await provider.read(children[1], "state") == b"before"
        assert set(children) <= set(await provider.list("contract"))
    else:
        with pytest.raises(NotOfferedError):
            await provider.fork(sandbox, 1)


async def test_its_own_clock_ends_it(provider):
    if "lifetime" not in provider.declaration.capabilities or provider.name == "fake":
        pytest.skip("not declared, or no clock of its own")
    sandbox = await provider.create(CreateRequest(label="contract", lifetime_s=2, cpus=1, memory_mib=512))
    for _ in range(200):
        if sandbox not in await provider.list("contract"):
            return
        await asyncio.sleep(0.1)
    pytest.fail("it outlived its lifetime")


def test_a_declaration_cannot_promise_what_the_adapter_cannot_do(tmp_path):
    declared = load_declaration("process")
    with pytest.raises(BenchError, match="promises fork"):
        ProcessProvider(declared.model_copy(update={"capabilities": declared.capabilities | {"fork"}}), tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nname: x\n", "not YAML"),
        ("- a\n", "holds no keys"),
        ("name: x\n", "title"),
        ("name: x\ntitle: X\nadapter: x\nregion: r\ncapabilities: [fly]\n", "unknown capabilities fly"),
        ("name: y\ntitle: X\nadapter: x\nregion: r\ncapabilities: [exec]\n", "the name 'y'"),
        ("name: x\ntitle: X\nadapter: x\nregion: r\ncapabilities: [exec]\nspeed: 9\n", "speed"),
    ],
)
def test_bad_declarations_are_refused(tmp_path, text, message):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(BenchError, match=message):
        load_declaration("x", tmp_path)


def test_every_shipped_declaration_is_right():
    for path in FOLDER.glob("*.yaml"):
        assert load_declaration(path.stem).capabilities
    with pytest.raises(BenchError, match="Known: bubblewrap"):
        load_declaration("nobody")


def _pids():
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
