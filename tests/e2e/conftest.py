"""The command line as its users run it: a real process and real sandboxes, on a state directory of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandyard.drivers.gvisor import CONTROL_ROOT

SANDYARD = Path(sys.executable).with_name("sandyard")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, and say so, what this host cannot run."""
    reasons = [] if shutil.which("runsc") else ["runsc is not installed"]
    reasons += ["not root"] if os.geteuid() else []
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gvisor)
            if reasons:
                item.add_marker(pytest.mark.skip(reason=f"real sandboxes need more than this: {', '.join(reasons)}"))


@dataclass
class Cli:
    """``sandyard`` on one state directory."""

    state_dir: Path

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        return [str(SANDYARD), *words], {**os.environ, "SANDYARD_STATE_DIR": str(self.state_dir)}

    def start(self, *words: str, **options: object) -> subprocess.Popen[bytes]:
        argv, env = self.command(*words)
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]

    def __call__(self, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        argv, env = self.command(*words)
        with_input = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(argv, env=env, capture_output=True, timeout=100, check=False, **with_input)  # type: ignore[call-overload,no-any-return]

    def ok(self, *words: str, stdin: bytes | None = None) -> str:
        done = self(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def keep(self, *words: str) -> str:
        """Run a command in a sandbox that is kept, and return its id."""
        done = self("run", "--keep", "--", *words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stderr.decode().split("kept ")[1].split()[0]


@pytest.fixture
def state_dir(tmp_path: Path, rootfs: Path) -> Path:
    """A new state directory that shares its images with all other tests: building the default one takes a while."""
    path = tmp_path / "state"
    path.mkdir()
    (path / "images").symlink_to(rootfs.parents[2])
    return path


@pytest.fixture
def cli(state_dir: Path) -> Iterator[Cli]:
    """The command line; whatever happened in the test, nothing of its sandboxes is left on the host after it."""
    made = Cli(state_dir)
    yield made
    for path in (state_dir / "sandboxes").glob("sb_*"):
        made("sandboxes", "delete", path.name)
    assert leftovers(state_dir) == []


def leftovers(state_dir: Path) -> list[str]:
    """Return what the host still has of the sandboxes that ever were in a state directory; waits for what is going."""
    until = time.monotonic() + 5
    while found := _leftovers(state_dir):
        if time.monotonic() > until:
            return found
        time.sleep(0.1)
    return []


def _leftovers(state_dir: Path) -> list[str]:
    if not (state_dir / "state.db").exists():
        return []
    with sqlite3.connect(state_dir / "state.db") as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM sandboxes")]
    connection.close()
    found = [str(path) for path in (state_dir / "sandboxes").iterdir()]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(state_dir) in line]
    for sandbox_id in ids:
        found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/sandyard/{sandbox_id}")]
        found += [str(path) for path in [CONTROL_ROOT / sandbox_id] if path.exists()]
        found += [f"process {pid}" for pid in processes(sandbox_id)]
    return found


def processes(text: str) -> list[int]:
    """Return the processes whose command line has this in it."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def wait_for_line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline()


def kill_hard(process: subprocess.Popen[bytes]) -> None:
    """End a process of the test's own as kill -9 does."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
