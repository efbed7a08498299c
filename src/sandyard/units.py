"""Sizes and durations as people write them, read into plain numbers and back."""

from __future__ import annotations

import re

from sandyard.errors import InvalidRequestError

MIB = 1024 * 1024
GIB = 1024 * MIB

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|k|kb|kib|m|mb|mib|g|gb|gib)?", re.IGNORECASE)
_BYTES = {
    "b": 1,
    "k": 1024,
    "kib": 1024,
    "kb": 1000,
    "m": MIB,
    "mib": MIB,
    "mb": 1000**2,
    "g": GIB,
    "gib": GIB,
    "gb": 1000**3,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_mib(text: str) -> int:
    """Read ``512``, ``512m``, ``2g``, ``1.5GiB`` or ``1GB`` as whole MiB, rounded up; a bare number is MiB.

    Raises:
        InvalidRequestError: not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidRequestError(
            f"'{text}' is not a size.", hint="Write MiB as a number, or a unit with it: 512, 512m, 2g, 1.5GiB."
        )
    number, unit = match.groups()
    count = float(number) * _BYTES[(unit or "m").lower()]
    return -int(-count // MIB)


def parse_seconds(text: str) -> float:
    """Read ``90``, ``90s``, ``10m``, ``1.5h`` or ``500ms`` as seconds; a bare number is seconds.

    Raises:
        InvalidRequestError: not a duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidRequestError(
            f"'{text}' is not a duration.", hint="Write seconds as a number, or a unit with it: 90, 90s, 10m, 1.5h."
        )
    number, unit = match.groups()
    return float(number) * _SECONDS[(unit or "s").lower()]


def format_bytes(count: int) -> str:
    """Write a byte count for a person in binary units: ``17.3 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":  # noqa: PLR2004 - the size of each step
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
