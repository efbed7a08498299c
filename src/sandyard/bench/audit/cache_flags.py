"""Cache flags: what each trial's own data says of ceilings, cached reads, processor-bound runs and throttling."""

from __future__ import annotations

from collections import Counter

from sandyard.bench.audit.finding import Finding, Verdict
from sandyard.bench.series import Series

SHARE = 0.15
NAME = "cache-flags"
_STATED = {"ceiling", "cached-read"}


def check(series: Series) -> Finding:
    """Say which flags fired in at least 15% of the trials; never a failure."""
    counts = Counter(flag for trial in series.trials for flag in set(trial.flags))
    said = []
    for flag, count in sorted(counts.items()):
        if count >= SHARE * len(series.trials):
            where = "to be stated beside the result" if flag in _STATED else "noted"
            said.append(f"{flag} in {count} of {len(series.trials)} trials ({where})")
    return Finding(NAME, "; ".join(said) or "no flag in 15% of the trials", Verdict.NOTE if said else Verdict.PASS)
