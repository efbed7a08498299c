from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Layout, Registry, Shim, entry, make_tar, until

SANDYARD = [sys.executable, "-c", "from sandyard.cli.main import main; main()"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def sandyard(state: Path, *argv: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SANDYARD_STATE_DIR": str(state), "COLUMNS": "300"} | ({"PATH": path} if path else {})
    return subprocess.run([*SANDYARD, "images", *argv], env=env, capture_output=True, text=True, check=False)


@pytest.mark.registry
def test_pull_prints_the_digest_and_list_shows_it(state: Path, registry: Registry, layout: Layout, small: str) -> None:
    assert json.loads(sandyard(state, "list", "--json").stdout) == []
    name = registry.push(layout, "small", "small:1")
    pulled = sandyard(state, "pull", name)
    assert (pulled.returncode, pulled.stdout) == (0, f"{small}\n"), pulled.stderr
    (image,) = json.loads(sandyard(state, "list", "--json").stdout)
    assert image["digest"] == small
    assert name in image["references"]
    assert Path(image["rootfs"], "etc/motd").read_bytes() == b"hello\n"
    shown = sandyard(state, "list").stdout
    assert name in shown
    assert small[:19] in shown


def test_errors_go_to_stderr_with_their_code(state: Path, tmp_path: Path) -> None:
    for argv, code in (
        (("pull", "127.0.0.1:1/x"), "registry-unreachable"),
        (("pull", "UPPER"), "invalid-request"),
        (("pull", f"rootfs:{tmp_path}/none.tar"), "image-not-found"),
        (("build", "debian"), "invalid-request"),
    ):
        done = sandyard(state, *argv)
        assert done.returncode == 125
        assert done.stdout == ""
        assert done.stderr.startswith("sandyard: ")
        assert f"[{code}]" in done.stderr


def test_off_a_terminal_a_long_step_is_a_line(state: Path, layout: Layout, small: str, shim: Shim) -> None:
    env = {**os.environ, "SANDYARD_STATE_DIR": str(state), "PATH": shim.path}
    argv = [*SANDYARD, "images", "pull", f"oci:{layout.path}:small"]
    puller = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert puller.stderr is not None
    until(shim.waits, "an unpacking begun")
    assert puller.stderr.readline() == f"sandyard: unpacking {layout.path} ...\n"
    shim.go()
    stdout, stderr = puller.communicate()
    assert (stdout, stderr) == (f"{small}\n", "")


def test_on_a_terminal_it_is_a_bar_that_goes_away(state: Path, layout: Layout, small: str) -> None:
    master, slave = os.openpty()
    env = {**os.environ, "SANDYARD_STATE_DIR": str(state), "TERM": "xterm", "COLUMNS": "120"}
    argv = [*SANDYARD, "images", "pull", f"oci:{layout.path}:small"]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=slave, text=True, check=True)
    os.close(slave)
    shown = os.read(master, 1 << 20).decode()
    os.close(master)
    assert done.stdout == f"{small}\n"
    assert "layout" in shown
    assert shown.endswith("\x1b[2K"), "the line is cleared"


def test_prune_removes_what_nothing_needs(state: Path, tmp_path: Path) -> None:
    tar = make_tar(tmp_path / "x.tar", entry("etc/x", b"x"))
    digest = sandyard(state, "pull", f"rootfs:{tar}").stdout.strip()
    pruned = sandyard(state, "prune")
    assert (pruned.returncode, pruned.stdout) == (0, f"{digest}\n"), pruned.stderr
    assert "removed 1 images" in pruned.stderr
    assert json.loads(sandyard(state, "list", "--json").stdout) == []
