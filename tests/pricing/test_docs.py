"""The method page names tests that exist, fields that are read, and an example that runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from sandyard.pricing.trace import FIELDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "pricing.md", *sorted((ROOT / "docs" / "pricing-rules").glob("*.md"))]
METHOD = PAGES[0].read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((pricing-rules/[\w.-]+)\)", METHOD):
        assert (ROOT / "docs" / target).is_file()


def test_the_fields_of_a_trace_are_those_that_are_read() -> None:
    section = METHOD.split("## Traces")[1].split("## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == dict(FIELDS)


def test_the_example_runs() -> None:
    code = METHOD.split("```python\n")[1].split("```")[0]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {})
    assert said.getvalue().startswith("10.89")  # 100 h x (2 x 0.0504 + 0.5 x 0.0162)
