"""What the gvisor driver refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandyard.drivers.gvisor import Gvisor
from sandyard.errors import HostError


@pytest.fixture
def only_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("said", ["runsc version 0.0~20221219.0", "runsc version release-20221219.0"])
async def test_an_old_runsc_is_refused_with_the_reason(only_on_path: Path, said: str) -> None:
    (only_on_path / "runsc").write_text(f"#!/bin/sh\necho '{said}'\n")
    (only_on_path / "runsc").chmod(0o755)
    with pytest.raises(HostError, match=r"too old.*2024 or later"):
        await Gvisor().version()


async def test_no_runsc_at_all_is_refused(only_on_path: Path) -> None:
    with pytest.raises(HostError, match="not installed"):
        await Gvisor().version()
