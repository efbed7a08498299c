"""Says where requirements.lock no longer satisfies pyproject.toml; needs no network."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def declared(project: dict[str, Any]) -> list[Requirement]:
    """Return every requirement written in pyproject.toml: base, extras, groups and build tools."""
    texts = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(text for extra in project["project"]["optional-dependencies"].values() for text in extra),
        *(text for group in project["dependency-groups"].values() for text in group if isinstance(text, str)),
    ]
    return [Requirement(text) for text in texts]


def locked(text: str) -> dict[str, str]:
    """Return the version of each package in a lock file."""
    return {
        canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    }


def drift(requirements: list[Requirement], lock: dict[str, str]) -> list[str]:
    """Return the requirements that the lock does not meet."""
    return [
        str(requirement)
        for requirement in requirements
        if (version := lock.get(canonicalize_name(requirement.name))) is None
        or not requirement.specifier.contains(version, prereleases=True)
    ]


def main() -> None:
    """Exit with 1 and the list of what does not match."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        requirements = declared(tomllib.load(file))
    unmet = drift(requirements, locked((ROOT / "requirements.lock").read_text()))
    if unmet:
        sys.exit(f"requirements.lock does not meet pyproject.toml: {', '.join(unmet)}; run scripts/lock")


if __name__ == "__main__":
    main()
