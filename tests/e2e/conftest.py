"""The command line as its users run it: a real process and real sandboxes, on a state directory of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandyard.drivers.gvisor import CONTROL_ROOT
from sandyard.runtime import Runtime

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
        # An empty PYTHONDONTWRITEBYTECODE lets Python keep what it compiled, as users have it: half a second a command.
        env = {**os.environ, "SANDYARD_STATE_DIR": str(self.state_dir), "PYTHONDONTWRITEBYTECODE": ""}
        return [str(SANDYARD), *words], env

    def start(self, *words: str, **options: object) -> subprocess.Popen[bytes]:
        argv, env = self.command(*words)
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]

    def __call__(self, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        argv, env = self.command(*words)
        if stdin is not None:
            return subprocess.run(argv, env=env, capture_output=True, timeout=100, check=False, input=stdin)
        return subprocess.run(argv, env=env, capture_output=True, timeout=100, check=False, stdin=subprocess.DEVNULL)

    def ok(self, *words: str, stdin: bytes | None = None) -> str:
        done = self(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def keep(self, *words: str) -> str:
        """Run a command in a sandbox that is kept, and return its id."""
        done = self("run", "--keep", "--", *words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stderr.decode().split("kept ")[1].split()[0]


def new_state_dir(path: Path, rootfs: Path) -> Path:
    """Make a state directory that shares its images with all other tests: building the default one takes a while."""
    path.mkdir(exist_ok=True)
    (path / "images").symlink_to(rootfs.parents[2])
    return path


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory, rootfs: Path) -> Path:
    """One for all tests of a file, so that only the first boots cold; each test leaves no sandbox in it."""
    return new_state_dir(tmp_path_factory.mktemp("e2e") / "state", rootfs)


@pytest.fixture
def cli(state_dir: Path) -> Iterator[Cli]:
    """The command line; whatever happened in the test, nothing of its sandboxes is left on the host after it."""
    yield from checked(state_dir)


@pytest.fixture
def fresh_cli(tmp_path: Path, rootfs: Path) -> Iterator[Cli]:
    """The command line on a state directory that nobody has used."""
    yield from checked(new_state_dir(tmp_path / "state", rootfs))


@pytest.fixture
async def runtime(cli: Cli) -> AsyncIterator[Runtime]:
    """The same in process."""
    async with await Runtime.open(cli.state_dir) as opened:
        yield opened


def checked(state_dir: Path, *, before: Callable[[], None] | None = None) -> Iterator[Cli]:
    """Give the command line on a state directory, then delete what sandboxes are left and see that they are gone.

    ``before`` is called ahead of the deleting.
    """
    made = Cli(state_dir)
    yield made
    if before is not None:
        before()
    if left := [path.name for path in (state_dir / "sandboxes").glob("sb_*")]:
        made("sandboxes", "delete", *left)
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
        ids = {row[0] for row in connection.execute("SELECT id FROM sandboxes")}
    connection.close()
    found = [str(path) for path in (state_dir / "sandboxes").iterdir()]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(state_dir) in line]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob("**/sandyard/sb_*") if path.name in ids]
    found += [str(path) for path in CONTROL_ROOT.glob("sb_*") if path.name in ids]
    found += [f"process {pid} of {sandbox_id}" for sandbox_id, pid in _sandbox_processes() if sandbox_id in ids]
    return found


def _sandbox_processes() -> Iterator[tuple[str, int]]:
    """Yield each process of the host that has a sandbox's id in its command line, with that id."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                for found in re.findall(rb"sb_[0-9a-z]{16}", (entry / "cmdline").read_bytes()):
                    yield found.decode(), int(entry.name)


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
