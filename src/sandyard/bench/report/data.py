"""The report as JSON: every number of the other forms, unrounded."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from sandyard.bench.report.view import Report


def to_json(report: Report) -> str:
    """Return the whole report; a missing number is null."""
    body = {
        "manifest": report.manifest.model_dump(),
        "outcomes": {name: dict(counts) for name, counts in report.summary.outcomes.items()},
        "cells": [asdict(cell) | {"metric": cell.metric.model_dump()} for cell in report.summary.cells.values()],
        "workloads": [asdict(value) for value in report.summary.workloads],
        "composites": dict(report.summary.composites),
        "scores": {"levels": report.scores.levels, "ranks": report.scores.ranks, "tests": report.scores.tests},
        "audit": {
            "family": report.audit.family,
            "threshold": report.audit.threshold,
            "pairs": [asdict(pair) | {"is_publishable": pair.is_publishable} for pair in report.audit.pairs],
            "unassessed": [{"key": asdict(key), "reason": why} for key, why in report.audit.unassessed],
            "changes": [asdict(change) for change in report.audit.changes],
            "shared_change": [asdict(change) for change in report.audit.shared_change],
        },
    }
    return json.dumps(_plain(body), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    """Turn what JSON does not have into what it has: an infinite effect is null, a cost is text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124 - NaN is unequal to itself
    return value.item() if hasattr(value, "item") else value
