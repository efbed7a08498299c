"""How the end of a trial is said from inside it. None of these leaves the trial that raised it."""

from __future__ import annotations


class TrialEnd(Exception):  # noqa: N818 - ends that are no errors are among them
    """A trial ends here; the text is its cause."""


class ProviderFailed(TrialEnd):
    """The provider or its sandbox failed."""


class BenchmarkFault(TrialEnd):
    """Our own script failed, as with output that cannot be read after a command succeeded."""


class Diverged(TrialEnd):
    """A deterministic replay took another path here; it does not count against the provider."""


class Missed(TrialEnd):
    """A check before the measured procedure says that it cannot be run here."""
