"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest

from sandyard.errors import InvalidRequestError
from sandyard.units import format_bytes, parse_mib, parse_seconds


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512m", 512),
        ("512MiB", 512),
        ("2g", 2048),
        ("1.5GiB", 1536),
        ("1GB", 954),  # 10^9 / 2^20 = 953.67, rounded up
        ("1500kib", 2),  # 1500 / 1024 = 1.46, rounded up
        ("0", 0),
    ],
)
def test_sizes(text: str, mib: int) -> None:
    assert parse_mib(text) == mib


@pytest.mark.parametrize("text", ["", "lots", "-1", "1t", "1 2", "0x10", "1e3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a size"):
        parse_mib(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("500ms", 0.5), ("2d", 172800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1y", "1m30s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536 * 1024, "1.5 MiB"), (2**40, "1024.0 GiB")],
)
def test_byte_counts(count: int, text: str) -> None:
    assert format_bytes(count) == text
