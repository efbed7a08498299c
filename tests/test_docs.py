"""What the documents say is so: every test, command, option and error code that they name exists; none is left out."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sandyard import errors
from sandyard.guest.failures import _KINDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/sandyard"
SPECIFICATION = ROOT / "docs/specification.md"


# -- the specification -------------------------------------------------------------------------------------------------


def named_tests() -> list[str]:
    return re.findall(r"`((?:tests|agent)/[\w/]+\.(?:py|go)::\w+)`", SPECIFICATION.read_text())


def test_every_test_in_the_specification_exists() -> None:
    named = named_tests()
    missing = [one for one in named if one.partition("::")[2] not in names_in(ROOT / one.partition("::")[0])]
    assert missing == []
    assert len(named) > 100


@cache
def names_in(path: Path) -> frozenset[str]:
    pattern = r"^func ((?:Test|Fuzz)\w+)\(" if path.suffix == ".go" else r"^(?:async )?def (test_\w+)\("
    return frozenset(re.findall(pattern, path.read_text(), re.MULTILINE)) if path.exists() else frozenset()


def test_every_promise_has_a_number_of_its_own_and_a_test_or_says_that_it_has_none() -> None:
    rows = re.findall(r"^\| (S\d+) \| (.+) \| (.+) \|$", SPECIFICATION.read_text(), re.MULTILINE)
    assert [number for number, _, _ in rows] == [f"S{n}" for n in range(1, len(rows) + 1)]
    bare = [number for number, _, held in rows if not re.search(r"`[\w/]+\.(py|go)::|\[.*\]\(|test pending", held)]
    assert bare == []


# -- the README --------------------------------------------------------------------------------------------------------


def commands_in_the_readme() -> list[list[str]]:
    """Return every ``sandyard`` command line of the README, split as a shell would, without its comment."""
    found = re.findall(r"(?:^|[|`$] *)(sandyard [^|`\n]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    return [words for line in found if len(words := shlex.split(line, comments=True)) > 1]


def own_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Split into the command's name and its own options, without what is the sandboxed command's."""
    name = []
    for word in words[1:]:
        if word.startswith("-") or not re.fullmatch(r"[a-z-]+", word):
            break
        name.append(word)
    ours = words[1:]
    if "--" in ours:
        ours = ours[: ours.index("--")]
    identifier = next((position for position, word in enumerate(ours) if word.startswith("sb_")), None)
    if "exec" in name and identifier is not None:
        ours = ours[:identifier]
    return name, [word for word in ours if word.startswith("-")]


@cache
def help_of(*name: str) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("sandyard"), *name, "--help"],
        capture_output=True,
        check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )
    return done.stdout.decode() if done.returncode == 0 else ""


def test_commands_and_options_of_the_readme_exist() -> None:
    commands = commands_in_the_readme()
    assert len(commands) > 8
    for words in commands:
        name, options = own_words(words)
        known = help_of(*name)
        assert known, f"'sandyard {' '.join(name)}' is in the README and not in the program"
        for option in options:
            singles = [f"-{letter}" for letter in option[1:]] if not option.startswith("--") else [option]
            for single in singles:
                assert re.search(rf"(?<![\w-]){re.escape(single)}(?![\w-])", known), f"{single} of {shlex.join(words)}"


# -- the table of errors -----------------------------------------------------------------------------------------------


def rows_of_errors() -> list[tuple[str, str, str]]:
    table = (ROOT / "docs/errors.md").read_text()
    return re.findall(r"^\| `([a-z-]+)` \| `(\w+)` \| (\d+) \|", table, re.MULTILINE)


def codes_in_source() -> dict[str, set[str]]:
    """Return every error code of the source, with the classes that it is raised as."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.SandyardError):
            found[kind.code].add(name)
    for code, (kind, _) in _KINDS.items():  # what the agent answers
        found[code].add(kind.__name__)
    for path in SOURCE.rglob("*.py"):
        for code, kind_name in _raised(ast.parse(path.read_text())):
            found[code].add(kind_name)
    return found


def _raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each code that is given to an error as ``code="..."``, with the name of the error's class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            names = [name.id for name in [node.func, *node.args] if isinstance(name, ast.Name)]
            kinds = [name for name in names if hasattr(errors, name)]
            for keyword in node.keywords:
                if keyword.arg == "code" and isinstance(keyword.value, ast.Constant) and kinds:
                    yield str(keyword.value.value), kinds[0]


def test_every_error_code_is_in_the_table_once_for_each_class_and_no_other_is() -> None:
    rows = rows_of_errors()
    assert len(rows) == len(set(rows))
    said: dict[str, set[str]] = defaultdict(set)
    for code, kind, _ in rows:
        said[code].add(kind)
    assert said == codes_in_source()


@pytest.mark.parametrize(("code", "kind", "status"), rows_of_errors())
def test_classes_and_statuses_of_the_table_are_those_of_the_source(code, kind, status) -> None:
    del code
    assert getattr(errors, kind).status == int(status)
