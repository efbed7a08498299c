"""Pricing loads without the server's dependencies, without pydantic, YAML or NumPy, and touches nothing outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sandyard.catalog
import sandyard.pricing

SOURCES = [path for package in (sandyard.catalog, sandyard.pricing) for path in Path(package.__path__[0]).rglob("*.py")]
FORBIDDEN = ("import time", "datetime.now", "date.today", "import socket", "import subprocess", "asyncio", "float(")


def test_the_public_names_load_alone() -> None:
    code = (
        "import sys; from sandyard.pricing import Workload, quote, quote_trace; "
        "print(sorted({'pydantic', 'ruamel', 'numpy', 'sqlalchemy', 'asyncio', 'typer', 'socket'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_module_reads_a_clock_or_leaves_the_process(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for word in FORBIDDEN:
        if word == "float(" and path.name in {"vector.py", "sweep.py"}:
            continue
        assert word not in text, word
