"""Host type: trials by the processors that their sandboxes saw; a note at most."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sandyard.bench.audit.finding import LEAST_GROUP, Finding, Verdict, percent, unassessed
from sandyard.bench.series import Series
from sandyard.stats import rank_tests

MINIMUM = 0.20
LEAST_MEMBERS = 3
NAME = "host-type"


def check(series: Series) -> list[Finding]:
    """Compare each group of at least 3 with the most common one, of at least 5."""
    kinds = [
        None if (p := trial.placement) is None or p.cpu_model is None else f"{p.cpu_count} x {p.cpu_model}"
        for trial in series.trials
    ]
    if any(kind is None for kind in kinds):
        return [unassessed(NAME, "the sandboxes' processors were not recorded")]
    counts = Counter(kinds).most_common()
    common, size = counts[0]
    if size < LEAST_GROUP:
        return [unassessed(NAME, f"the most common processor has {size} trials: 5 needed")]
    names = np.array(kinds)
    findings = []
    for kind, members in counts[1:]:
        if members < LEAST_MEMBERS:
            continue
        effect, test = rank_tests.two_groups(series.values[names == kind], series.values[names == common])
        text = f"{kind} {percent(effect)} against {common} ({members} and {size} trials)"
        findings.append(
            Finding(
                NAME,
                text,
                effect=effect,
                minimum=MINIMUM,
                is_large=abs(effect) >= MINIMUM,
                test=test,
                if_large=Verdict.NOTE,
                is_significant_alone=False,
                in_family=False,
            )
        )
    return findings or [Finding(NAME, f"all on {common}", Verdict.PASS)]
