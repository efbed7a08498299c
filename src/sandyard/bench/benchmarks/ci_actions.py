"""CI actions: a job from clone to test, with its packages from an index on the sandbox's own loopback."""

from __future__ import annotations

from sandyard.bench.benchmarks.staged import StagedWorkload, files_of, scripts, stages, units_of

_LIMITS_S = {"clone": 120, "install": 120, "build": 300, "test": 300}


class CiActions(StagedWorkload):
    """Units are jobs; a registry that fails or another exit code excludes the trial."""

    name = "ci-actions"
    title = "CI actions"
    units = units_of("ci_actions")
    metrics = stages(tuple(_LIMITS_S))
    steps = scripts(_LIMITS_S)
    payload = files_of("ci_actions")
