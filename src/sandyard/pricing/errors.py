"""What can be wrong with a question about price."""

from __future__ import annotations

from sandyard.errors import InvalidRequestError, NotFoundError


class InvalidWorkloadError(InvalidRequestError):
    """A workload or trace cannot be priced as it is; ``problems`` names each place."""

    code = "invalid-workload"

    def __init__(self, what: str, problems: tuple[str, ...], *, hint: str) -> None:
        """Join all ``problems`` into one text after ``what``."""
        self.problems = problems
        super().__init__(f"{what}: {'; '.join(problems)}.", hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive copying and pickling with the problems kept."""
        return _rebuild, (self.what.partition(": ")[0], self.problems, self.hint)


def _rebuild(what: str, problems: tuple[str, ...], hint: str) -> InvalidWorkloadError:
    return InvalidWorkloadError(what, problems, hint=hint)


class UnknownVariantError(NotFoundError):
    """The card has no such variant or plan."""

    code = "unknown-variant"


class UnknownRuleError(NotFoundError):
    """A card cites a rule that is not registered."""

    code = "unknown-rule"
