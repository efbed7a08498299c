"""The audit of a run: one file for each check, one function in it, all on one series of one data point a trial."""

from sandyard.bench.audit.audit import Audit, PairAudit, audit, audit_series
from sandyard.bench.audit.finding import Finding, Verdict

__all__ = ["Audit", "Finding", "PairAudit", "Verdict", "audit", "audit_series"]
