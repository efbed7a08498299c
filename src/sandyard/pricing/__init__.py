"""Prices the same work on any rate card: exact, pure, and with every line's source.

    from sandyard.catalog import load_catalog
    from sandyard.pricing import Workload, quote

    answer = quote(load_catalog()["e2b"], Workload.of(vcpu=2, running_hours=100))

No network, clock, subprocess or file: cards, time and data are arguments.
"""

from sandyard.pricing.quote import Quote, Status, quote, quote_all, quote_trace, ranked
from sandyard.pricing.trace import Run, Trace, read_csv, read_jsonl
from sandyard.pricing.workload import CANONICAL, Workload

__all__ = [
    "CANONICAL",
    "Quote",
    "Run",
    "Status",
    "Trace",
    "Workload",
    "quote",
    "quote_all",
    "quote_trace",
    "ranked",
    "read_csv",
    "read_jsonl",
]
