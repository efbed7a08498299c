"""What Go itself says of the agent: vet, format, its unit tests, and a short run of two fuzzers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


def run_go(builder: ModuleType, *arguments: str, **environment: str) -> str:
    result = subprocess.run(
        [str(builder.find_go()), *arguments],
        cwd=ROOT / "agent",
        env=builder.go_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.timeout(600)
def test_go_finds_nothing_wrong_on_either_architecture(builder: ModuleType) -> None:
    for architecture in ("amd64", "arm64"):
        run_go(builder, "vet", "./...", GOARCH=architecture)


def test_the_sources_are_formatted(builder: ModuleType) -> None:
    formatter = builder.find_go().with_name("gofmt")
    listed = subprocess.run([formatter, "-l", "."], cwd=ROOT / "agent", capture_output=True, text=True, check=True)
    assert listed.stdout == ""


@pytest.mark.timeout(600)
def test_the_unit_tests_pass(builder: ModuleType) -> None:
    assert "ok" in run_go(builder, "test", "-count=1", "./...")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["FuzzDecoder", "FuzzTarIn"])
def test_fuzzing_finds_nothing(builder: ModuleType, target: str, tmp_path: Path) -> None:
    # The corpus found is kept between runs by Go's build cache; what is made on the way goes to tmp_path.
    limits = ("-fuzztime=5s", "-fuzzminimizetime=10x", f"-parallel={min(2, os.cpu_count() or 1)}")
    assert "ok" in run_go(builder, "test", "-run=^$", f"-fuzz=^{target}$", *limits, ".", TMPDIR=str(tmp_path))
