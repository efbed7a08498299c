"""A fault in a card, as a value with its place; and the one error that carries many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandyard.errors import SandyardError


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong with a card, where it stands and what to do about it."""

    file: str
    """Name of the file inside the catalog, ``products/e2b.yaml``."""

    line: int
    """Counted from 1; 0 where the fault concerns the whole file."""

    code: str
    """Stable, kebab-case."""

    message: str
    """What is wrong and what to do next."""

    def __str__(self) -> str:
        """As compilers print it, so that editors can jump to the place."""
        return f"{self.file}:{self.line}: {self.code}: {self.message}"


class CatalogError(SandyardError, ValueError):
    """The catalog holds faults; ``findings`` lists all of them."""

    code = "catalog-invalid"
    status = 422

    def __init__(self, findings: Sequence[Finding]) -> None:
        """Carry ``findings``, sorted by file and line."""
        self.findings = tuple(sorted(findings))
        first = self.findings[0]
        more = f" and {len(self.findings) - 1} more" if len(self.findings) > 1 else ""
        super().__init__(
            f"The catalog cannot be used: {first}{more}.",
            hint="`sandyard catalog check` lists every fault with its file and line.",
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Survive copying and pickling with the findings kept."""
        return CatalogError, (self.findings,)
