from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.errors import InsufficientSamplesError, InvalidRequestError
from sandyard.stats import geometric_mean, mean, median, percentile, rank, tail

values = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("p", "n", "expected"),
    [
        (50, 20, 10),
        (95, 20, 19),
        (5, 20, 1),
        (7, 100, 7),  # 0.07 * 100 is 7.000000000000001 in floats
        (55, 100, 55),  # 0.55 * 100 is 55.00000000000001 in floats
        (Decimal("97.5"), 10_000, 9750),
        (Fraction(5, 2), 10_000, 250),
        (0, 7, 1),
        (100, 7, 7),
    ],
)
def test_rank_is_exact(p, n, expected):
    assert rank(p, n) == expected


@given(st.integers(0, 1000), st.integers(1, 3000))
def test_rank_is_the_smallest_that_covers_the_share(tenths, n):
    r = rank(Fraction(tenths, 10), n)
    assert r * 1000 >= tenths * n
    assert r == 1 or (r - 1) * 1000 < tenths * n


@given(values, st.integers(0, 100))
def test_a_percentile_is_one_of_the_values_with_enough_at_or_below(xs, p):
    q = percentile(xs, p)
    assert q in xs
    assert sum(x <= q for x in xs) * 100 >= p * len(xs)


@given(values, st.randoms())
def test_order_does_not_matter(xs, random):
    shuffled = list(xs)
    random.shuffle(shuffled)
    assert median(xs) == median(shuffled)
    assert tail(xs) == tail(shuffled)


def test_median_of_an_even_number_is_the_lower_of_the_two():
    assert median([4, 1, 3, 2]) == 2


def test_float_percentiles_are_refused():
    with pytest.raises(InvalidRequestError):
        rank(97.5, 10)  # type: ignore[arg-type]


def test_nothing_of_no_values():
    for statistic in (median, tail, mean, geometric_mean):
        with pytest.raises(InsufficientSamplesError):
            statistic([])


def test_tail_from_twenty_values_and_below():
    twenty = list(range(1, 21))
    assert (tail(twenty).label, tail(twenty).value) == ("p95", 19)
    assert (tail(twenty, "higher").label, tail(twenty, "higher").value) == ("p5", 1)
    assert (tail(twenty[:19]).label, tail(twenty[:19]).value) == ("Slowest", 19)
    assert (tail(twenty[:19], "higher").label, tail(twenty[:19], "higher").value) == ("Lowest", 1)


def test_geometric_mean_by_hand():
    assert geometric_mean([2, 8]) == pytest.approx(4)
    with pytest.raises(InvalidRequestError):
        geometric_mean([1, 0])


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=20), st.floats(0.5, 2))
def test_a_unit_that_gets_faster_by_a_share_moves_the_value_the_same_whichever_it_is(xs, factor):
    whole = geometric_mean(xs)
    for i in range(len(xs)):
        changed = [x * factor if j == i else x for j, x in enumerate(xs)]
        assert geometric_mean(changed) / whole == pytest.approx(factor ** (1 / len(xs)))
