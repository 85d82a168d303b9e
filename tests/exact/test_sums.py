"""Sums and variances without rounding: of any magnitude, whatever has passed through the window, however long ago."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import aggregated, nearest

import lately as lt
from lately.exact.column import Column
from lately.exact.fixed_point import spread
from lately.exact.running import Running
from lately.exact.variances import variances

finite = st.floats(allow_nan=False, allow_infinity=False)
alike = st.floats(-1e6, 1e6) | st.integers(-1000, 1000).map(float)
extreme = st.sampled_from([5e-324, -5e-324, 2.2e-308, 1e308, -1e308, 1.7e308, -1.7e308, 1.0, -1.0, 0.1, 2.0**53, 0.0, -0.0])
odd = st.sampled_from([math.nan, math.inf, -math.inf])
tiny = st.floats(-1e-300, 1e-300) | st.floats(-1e-150, 1e-150)
huge = st.floats(1e150, 1e308) | st.floats(-1e155, -1e150)
columns = st.one_of(
    st.lists(of, min_size=1, max_size=size)
    for of, size in ((finite, 60), (alike, 90), (extreme | alike, 90), (tiny, 40), (huge, 40))
)


def running(values, *, squares=False, cut=1):
    """Running sums over a column that arrives in pieces."""
    column = Column()
    index = column.index("sums", lambda: Running(squares=squares))
    for start in range(0, len(values), cut):
        column.append(np.array(values[start : start + cut], np.float64), 0)
    return index


def windows_of(size, cuts):
    """Some windows of so many positions: all, each end, and between the cuts."""
    edges = sorted({0, size, *(cut % (size + 1) for cut in cuts)})
    return [(left, right) for left in edges for right in edges if left <= right]


def one(aggregate, values, **window):
    w = lt.Windows(tick=1)
    w.add("q", aggregate, **(window or {"last": lt.arrivals(len(values))}))
    w.update({"x": np.array(values, np.float64)})
    return w["q"].value


cuts = st.lists(st.integers(0, 100), max_size=4)


@given(columns, cuts, st.integers(1, 100))
def test_sums_are_the_exact_ones_rounded_once(values, cuts, cut):
    index = running(values, cut=cut)
    for left, right in windows_of(len(values), cuts):
        exact = sum(map(Fraction, values[left:right]), Fraction(0))
        assert index.lookup(np.array([left]), np.array([right]))[0] == nearest(exact)
        assert index.exact(left, right)[0] * Fraction(2) ** index.unit == exact


@given(columns, cuts)
def test_sums_of_squares_are_exact(values, cuts):
    index = running(values, squares=True, cut=7)
    for left, right in windows_of(len(values), cuts):
        expected = sum((Fraction(value) ** 2 for value in values[left:right]), Fraction(0))
        assert index.exact(left, right)[1] * Fraction(2) ** (2 * index.unit) == expected


@given(columns, cuts, st.sampled_from([0, 1]))
def test_variances_are_the_exact_ones_to_four_ulps(values, cuts, ddof):
    index = running(values, squares=True, cut=11)
    aggregate = lt.agg.variance("x", ddof=ddof)
    for left, right in windows_of(len(values), cuts):
        lefts, rights = np.array([left]), np.array([right])
        found = float(variances(index, lefts, rights, rights - lefts, ddof)[0])
        expected = aggregated(aggregate, values[left:right])
        if expected is None:
            assert math.isnan(found)
        else:
            assert found == expected or abs(found - expected) <= 4 * math.ulp(expected), (values[left:right], found, expected)


@pytest.mark.parametrize(
    "values",
    [
        [5e-324, 0.0],
        [1e-300, 1e-300, 2e-300],
        [1e-200, 3e-200],
        [1e-160, 2e-160, 3e-160],
        [1e-155, 1.5, 3.0],
        [1e12 + 0.001, 1e12 - 0.001, 1e12],
        [1e15, 1e15 + 1, 1e15 + 2],
        [1e100, 1e100, 1e100],
        [1e153] * 50 + [1.1e153] * 50,
        [1.1e154, 1.2e154, 1.3e154],
        [0.0, 1.6e154, 0.8e154] * 100,
        [1e200, -1e200],
        [1e300, 2e300],
        [1.0, 1e300],
        [1.7e308, -1.7e308],
    ],
    ids=lambda values: f"{values[0]:g} … {values[-1]:g}",
)
@pytest.mark.parametrize("aggregate", [lt.agg.variance("x"), lt.agg.variance("x", ddof=0), lt.agg.stddev("x")], ids=str)
def test_variances_of_any_magnitude(aggregate, values):
    """Below the smallest float it is 0, beyond the largest infinite, as it would be of the exact one."""
    expected, found = aggregated(aggregate, values), one(aggregate, values)
    assert found == expected or abs(found - expected) <= 4 * math.ulp(expected)


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308], [1.7e308, 1.7e308, -1.7e308], [-1e308] * 50, [5e-324] * 3, [5e-324, 0]])
def test_means_lie_among_the_values(values):
    """Also where the sum is beyond the largest float."""
    mean, expected = one(lt.agg.avg("x"), values), aggregated(lt.agg.avg("x"), values)
    assert abs(mean - expected) <= math.ulp(expected)


def test_a_large_value_leaves_no_trace():
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(3))
    w.add("variance", lt.agg.variance("x"), last=lt.arrivals(3))
    for value in (1e300, -1e308, 1e-300, math.inf, -math.inf, math.nan):
        w.update({"x": [value, 0.1, 0.2, 0.3]})
        assert w["sum"].value == math.fsum([0.1, 0.2, 0.3])
        assert w["variance"].value == pytest.approx(0.01, rel=1e-15)


@given(st.lists(alike | odd | extreme, min_size=4, max_size=150), st.integers(1, 12), st.integers(1, 150))
def test_what_is_no_number_is_gone_once_it_left_the_window(values, size, cut):
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(size))
    w.add("stddev", lt.agg.stddev("x"), last=lt.arrivals(size))
    for start in range(0, len(values), cut):
        w.update({"x": values[start : start + cut]})
        inside = [v for v in values[: start + cut][-size:] if v == v]
        assert w["sum"].value == aggregated(lt.agg.sum("x"), inside)
        if all(abs(v) < 1e150 and (v == 0 or abs(v) > 1e-150) for v in inside):
            expected = aggregated(lt.agg.stddev("x"), inside)
            assert (w["stddev"].value is None) == (expected is None)
            assert expected is None or abs(w["stddev"].value - expected) <= 4 * math.ulp(expected)


def test_a_sum_beyond_the_largest_float_is_not_taken_for_an_infinity_that_came():
    assert one(lt.agg.sum("x"), [1e308, 1e308]) == math.inf
    assert one(lt.agg.sum("x"), [1e308, 1e308, -math.inf]) == -math.inf
    assert one(lt.agg.sum("x"), [-1e308, -1e308, math.inf]) == math.inf
    assert one(lt.agg.sum("x"), [math.inf, -math.inf]) is None


def test_many_zeros_make_a_sum_of_zero():
    assert one(lt.agg.sum("x"), [0.0, -0.0, 0.0]) == 0
    assert one(lt.agg.sum("x"), [1e308, -1e308, 5e-324]) == 5e-324
    assert one(lt.agg.sum("x"), [1.0, 1e100, 1.0, -1e100]) == 2


# -- memory --------------------------------------------------------------------------------------------------------------


@given(columns)
def test_the_spread_is_of_the_lowest_and_the_highest_digit(values):
    low, high = spread(np.array(values).view(np.uint64))
    numbers = [Fraction(value) for value in values if value]
    if not numbers:
        assert low > high
        return
    assert all((number / Fraction(2) ** low).denominator == 1 for number in numbers)
    assert any((number / Fraction(2) ** (low + 1)).denominator > 1 for number in numbers)
    assert all(abs(number) < Fraction(2) ** high for number in numbers)


@pytest.mark.parametrize("aggregate", [lt.agg.sum("x"), lt.agg.variance("x")], ids=str)
def test_memory_shrinks_again_after_an_outlier(aggregate):
    """A value of 1e300 among prices takes many words for each position, but not long after it left the window."""
    w = lt.Windows(tick=1)
    w.add("q", aggregate, last=lt.arrivals(500))
    prices = np.round(np.random.default_rng(1).uniform(1, 100, 500), 2)
    w.update({"x": prices})
    before = w.nbytes
    w.update({"x": 1e300})
    w.update({"x": prices[:10]})
    assert w.nbytes > 3 * before
    for _ in range(12):
        w.update({"x": prices})
    assert w.nbytes == before
    assert w["q"].value == pytest.approx(aggregated(aggregate, prices.tolist()), rel=1e-14)


def test_prices_and_counts_take_two_words():
    rng = np.random.default_rng(2)
    for values in (np.round(rng.uniform(0, 1e5, 3000), 2), rng.integers(0, 10**9, 3000).astype(float)):
        assert running(values.tolist(), cut=100).words.shape[1] == 2


# -- long streams --------------------------------------------------------------------------------------------------------


def mixed(rng, size):
    """Values whose magnitudes drift over sixty orders, with both signs and a few that nearly cancel."""
    values = rng.normal(0, 1, size) * 10.0 ** rng.integers(-3, 4, size)
    values *= 10.0 ** float(rng.integers(-30, 30))
    values[1::97] = -values[::97][: values[1::97].size] * (1 + 2e-16)
    return values


def long_stream(total, block, size=1000):
    rng = np.random.default_rng(9)
    w = lt.Windows(tick=1)
    w.add("window", lt.agg.sum("x"), last=lt.arrivals(size))
    w.add("past", lt.agg.sum("x"), between=(lt.arrivals(size), lt.arrivals(size // 3)))
    kept = np.empty(0)
    for _ in range(total // block):
        values = mixed(rng, block)
        w.update({"x": values})
        kept = np.concatenate([kept, values])[-size:]
        assert w["window"].value == math.fsum(kept)
        assert w["past"].value == math.fsum(kept[: size - size // 3])
    assert w.now == total - 1
    assert w.nbytes < 100 * 8 * size


def test_a_long_stream_loses_nothing():
    long_stream(2_000_000, 1_000)


@pytest.mark.slow
def test_a_very_long_stream_loses_nothing():
    long_stream(int(os.environ.get("LATELY_ARRIVALS", "1_000_000_000")), 100_000)
