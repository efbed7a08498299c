"""What every test may use."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sandyard.images import ImageStore

settings.register_profile("sandyard", deadline=None, max_examples=100)
settings.load_profile("sandyard")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def rootfs() -> Path:
    """An unpacked root file system with Python and coreutils, kept from one session of tests to the next."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("no root file system: building one needs root and mmdebstrap")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandyard-tests"
    cache.mkdir(parents=True, exist_ok=True)
    return asyncio.run(ImageStore(cache / "images").resolve("default")).rootfs


@pytest.fixture
def open_files() -> Iterator[None]:
    """Fail the test if this process has more descriptors open afterwards."""
    before = _descriptors()
    yield
    after = _descriptors()
    assert len(after) <= len(before), sorted(after - before)


def _descriptors() -> set[str]:
    return {f"{entry.name} {_target(entry)}" for entry in Path("/proc/self/fd").iterdir()}


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except FileNotFoundError:  # the one that listed the directory
        return ""
