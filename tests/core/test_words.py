"""Numbers as people read them: exact ones have all their digits, bounds that differ look different."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from lately.core.words import answer_texts, estimate_texts, number

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def read(text):
    return float(text.replace(",", ""))


@given(FINITE)
@example(1234567.89)
@example(1e15 + 1)
@example(1e22)
def test_an_exact_answer_has_all_digits(value):
    told, bounds, confidence = answer_texts(value, value, value, 1.0)
    assert read(told) == value
    assert (bounds, confidence) == ("exact", "")


@given(st.integers(-(2**70), 2**70))
@example(2**63 - 1)
def test_integers_have_all_digits_also_as_estimates(value):
    assert int(number(value).replace(",", "")) == value
    assert estimate_texts(value, value, value + 1)[0] == f"{value:,}"


@given(st.lists(FINITE, min_size=3, max_size=3).map(sorted))
@example([5482.7511, 5482.7512, 5482.7513])
@example([1234567.1, 1234567.2, 1234567.3])
@example([0.1, 0.1, math.nextafter(0.1, 1)])
def test_bounds_that_differ_look_different_and_contain_the_value(ends):
    low, value, high = ends
    told, least, most = estimate_texts(value, low, high)
    assert (least == most) == (low == high)
    assert read(least) <= read(told) <= read(most)


def test_estimates_are_short_where_that_is_enough():
    assert answer_texts(1234.56789, 1200.123456, 1300.987654, 0.99) == ("1,234.57", "1,200.12 … 1,300.99", "99%")
    assert answer_texts(2.0, -math.inf, math.inf, 0.9) == ("2", "-∞ … ∞", "90%")
    assert answer_texts(1, None, 2, 0.9) == ("1", "-∞ … 2", "90%")
    assert answer_texts(math.nan, None, None, 0.5)[0] == "–"
