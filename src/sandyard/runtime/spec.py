"""What a caller asks for when a sandbox is made, and what is wrong with it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from sandyard.drivers import NetworkSpec
from sandyard.errors import InvalidSpecError
from sandyard.units import MIB

MIN_MEMORY_MIB = 64
"""Below this not even the sandbox kernel and the agent fit (tried: 48 MiB is killed at its start)."""

MIN_CPUS = 0.05
NETWORK_MODES = ("none",)
_METADATA_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox to be. Everything has a default."""

    image: str = "default"
    """An OCI reference, a folder, an archive, or ``default``."""

    cpus: float = 1.0
    """Processors, as a ceiling."""

    memory_mib: int = 1024
    """Memory, as a ceiling, the sandbox's own overhead of some 30 MiB included."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every command, over the image's and under the call's."""

    user: str | None = None
    """``name``, ``uid``, ``name:group`` or ``uid:gid``; None for the image's."""

    workdir: str | None = None
    """Where commands start; None for the image's."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    """The caller's own labels."""

    sleep_after_s: float | None = 30.0
    """Idle time after which it sleeps; None for never."""

    ttl_s: float | None = None
    """Life time after which it is deleted; None for no end."""

    network: NetworkSpec = field(default_factory=NetworkSpec)

    def expires_ms(self, now_ms: int) -> int | None:
        """Return when a sandbox made now is over, None for never."""
        return None if self.ttl_s is None else now_ms + round(self.ttl_s * 1000)

    def to_json(self) -> dict[str, Any]:
        """Return it as the store keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        return cls(**{**data, "network": NetworkSpec(**data["network"])})


@dataclass(frozen=True, slots=True)
class HostSize:
    """What this host has to give to one sandbox."""

    cpus: int
    memory_mib: int

    @classmethod
    def read(cls) -> Self:
        """Ask the kernel."""
        return cls(
            cpus=len(os.sched_getaffinity(0)),
            memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        )


def check_spec(spec: SandboxSpec, host: HostSize) -> None:
    """Refuse a spec that can never run here, naming everything that is wrong at once.

    Raises:
        InvalidSpecError: with one finding for each field.
    """
    findings = list(_findings(spec, host))
    if findings:
        raise InvalidSpecError(
            "the sandbox cannot be made as asked: " + "; ".join(findings) + ".",
            hint="Change what is named and ask again.",
        )


def _findings(spec: SandboxSpec, host: HostSize) -> Iterator[str]:
    if not math.isfinite(spec.cpus) or not MIN_CPUS <= spec.cpus <= host.cpus:
        yield f"cpus is {spec.cpus:g}, and this host can give {MIN_CPUS:g} to {host.cpus}"
    if not MIN_MEMORY_MIB <= spec.memory_mib <= host.memory_mib:
        yield f"memory is {spec.memory_mib} MiB, and this host can give {MIN_MEMORY_MIB} to {host.memory_mib}"
    yield from _env_findings(spec.env)
    for name, seconds in (("sleep_after", spec.sleep_after_s), ("ttl", spec.ttl_s)):
        if seconds is not None and not 0 < seconds < math.inf:
            yield f"{name} is {seconds:g} s, and must be more than 0, or absent for never"
    if spec.workdir is not None and (not spec.workdir.startswith("/") or "\0" in spec.workdir):
        yield f"workdir is {spec.workdir!r}, and must be an absolute path"
    if spec.network.mode not in NETWORK_MODES:
        yield f"network mode is {spec.network.mode!r}, and this version has: {', '.join(NETWORK_MODES)}"
    for key in spec.metadata:
        if not _METADATA_KEY.fullmatch(key):
            yield f"metadata key {key!r} is not 1 to 63 letters, digits, '.', '_', '-' or '/'"


def _env_findings(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            yield f"env name {name!r} is empty, or has '=' or NUL in it"
        if "\0" in value:
            yield f"env value of {name!r} has NUL in it"
