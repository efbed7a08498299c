"""How long work on images tells somebody how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with each step of a pull or build as it begins, and again as it goes on."""

    def __call__(self, step: str, done: int | None, total: int | None) -> None:
        """Take ``step`` (a text for a person) and how many bytes of it are done; None where nobody knows."""
        ...


def silent(step: str, done: int | None, total: int | None) -> None:
    """Tell nobody."""
    del step, done, total
