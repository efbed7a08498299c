from __future__ import annotations

from decimal import Decimal

import pytest

from sandyard.catalog.measures import Dimension, Gigabyte, PricingUnit, Size


@pytest.mark.parametrize(
    ("text", "gigabyte", "gib"),
    [
        ("5 GiB", Gigabyte.DECIMAL, "5"),
        ("512 MiB", Gigabyte.DECIMAL, "0.5"),
        ("5 GB", Gigabyte.DECIMAL, "4.656612873077392578125"),  # 5e9 / 2^30
        ("5 GB", Gigabyte.AS_GIB, "5"),
        ("768 MB", Gigabyte.AS_GIB, "0.75"),
        ("1 TB", Gigabyte.DECIMAL, "931.322574615478515625"),  # 1e12 / 2^30
    ],
)
def test_a_size_is_told_apart_by_bytes(text: str, gigabyte: Gigabyte, gib: str) -> None:
    assert Size.parse(text).gib(gigabyte) == Decimal(gib)


@pytest.mark.parametrize("text", ["5", "5GB", "5 gb", "-5 GB", "5 GBs", "1e3 GB", ""])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        Size.parse(text)


@pytest.mark.parametrize(
    ("text", "dimension", "base"),
    [
        ("vCPU-Hours", Dimension.VCPU_TIME, "3600"),
        ("Core-Seconds", Dimension.VCPU_TIME, "2"),
        ("1000000 vCPU-Milliseconds", Dimension.VCPU_TIME, "1000"),
        ("GiB-Hours", Dimension.GIB_TIME, "3600"),
        ("GB-Months", Dimension.GIB_TIME, "2447515.7260894775390625"),  # 730 * 3600 * 1e9 / 2^30
        ("GB", Dimension.GIB, "0.931322574615478515625"),
        ("Minutes", Dimension.TIME, "60"),
        ("Unit-Hours", Dimension.UNIT_TIME, "3600"),
        ("1000000 Requests", Dimension.COUNT, "1000000"),
    ],
)
def test_a_unit_says_what_it_prices_and_how_much_of_it(text: str, dimension: Dimension, base: str) -> None:
    unit = PricingUnit.parse(text)
    assert unit.dimension is dimension
    assert unit.in_base(Gigabyte.DECIMAL, Decimal(730)) == Decimal(base)
    assert str(unit) == text


@pytest.mark.parametrize("text", ["vcpu-hours", "GB-Fortnights", "Widgets", "0.5 GB", "GB-Hours/2"])
def test_what_is_no_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pricing unit|known time"):
        PricingUnit.parse(text)
