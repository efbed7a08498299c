"""The three commands are part of ``sandyard``, and load only when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sandyard.cli import lazy
from sandyard.cli.main import app


@pytest.mark.parametrize("name", ["price", "catalog", "site"])
def test_the_command_is_mounted(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert name in CliRunner().invoke(app, ["--help"]).stdout


def test_other_commands_do_not_load_pricing() -> None:
    code = "import sys, sandyard.cli.main; print([name for name in sys.modules if name.startswith('sandyard.pricing')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise ModuleNotFoundError("No module named 'ruamel'", name="ruamel.yaml")

    monkeypatch.setattr(lazy, "import_module", missing)
    result = CliRunner().invoke(app, ["price", "--vcpu", "2"])
    assert result.exit_code == 2
    assert "pip install 'sandyard[pricing]'" in result.stderr
