"""Install and build: what a coding session does to a repository; read, write, install, build, test."""

from __future__ import annotations

from sandyard.bench.benchmarks.staged import StagedWorkload, files_of, scripts, stages, units_of

_LIMITS_S = {"read": 60, "write": 60, "install": 300, "build": 300, "test": 300}


class InstallAndBuild(StagedWorkload):
    """Units are projects that a script makes, untimed, in the sandbox."""

    name = "install-and-build"
    title = "Install and build"
    units = units_of("install_and_build")
    metrics = stages(tuple(_LIMITS_S))
    steps = scripts(_LIMITS_S)
    payload = files_of("install_and_build")
