"""The laws of every aggregate's states: nothing changes nothing, grouping does not matter, what went in comes out."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from exact_cases import AGGREGATES
from hypothesis import given
from hypothesis import strategies as st
from naive import aggregated, agrees

import lately as lt
from lately.exact.aggregates import stored_function
from lately.exact.algebra import Algebra, Moments, as_float, rank
from lately.exact.built_in import built_in

every = pytest.mark.parametrize("aggregate", AGGREGATES, ids=str)
values = st.floats(allow_nan=False) | st.integers(-5, 5).map(float)
lists = st.lists(values, max_size=12)


def same(a, b):
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def state_of(algebra, column, start=0):
    """The state of values at the ticks from ``start`` on."""
    lifted = (algebra.lift(value, tick) for tick, value in enumerate(column, start))
    return functools.reduce(algebra.combine, lifted, algebra.identity)


@every
@given(column=lists)
def test_nothing_changes_nothing(aggregate, column):
    algebra = aggregate.function.algebra
    state = state_of(algebra, column)
    assert same(algebra.combine(state, algebra.identity), state)
    assert same(algebra.combine(algebra.identity, state), state)


@every
@given(a=lists, b=lists, c=lists)
def test_states_combine_in_any_grouping(aggregate, a, b, c):
    algebra = aggregate.function.algebra
    x, y, z = state_of(algebra, a), state_of(algebra, b, len(a)), state_of(algebra, c, len(a) + len(b))
    left = algebra.combine(algebra.combine(x, y), z)
    assert same(left, algebra.combine(x, algebra.combine(y, z)))
    assert same(left, state_of(algebra, a + b + c))


@every
@given(a=lists, b=lists)
def test_states_of_different_times_combine_in_any_order(aggregate, a, b):
    """Sites may report in any order: what is first and last is told by ticks, not by who came first."""
    algebra = aggregate.function.algebra
    x, y = state_of(algebra, a), state_of(algebra, b, len(a))
    assert same(algebra.combine(x, y), algebra.combine(y, x))


@pytest.mark.parametrize("aggregate", [a for a in AGGREGATES if a.function.algebra.inverse is not None], ids=str)
@given(a=lists, b=lists)
def test_an_inverse_takes_out_what_went_in(aggregate, a, b):
    algebra = aggregate.function.algebra
    x, y = state_of(algebra, a), state_of(algebra, b)
    assert algebra.inverse(algebra.combine(x, y), x) == y
    assert algebra.inverse(x, x) == algebra.identity
    assert algebra.inverse(x, algebra.identity) == x


@every
@given(column=lists)
def test_the_answer_is_what_the_definition_says(aggregate, column):
    algebra = aggregate.function.algebra
    found = algebra.lower(state_of(algebra, column))
    assert agrees(aggregate, None if found is not None and math.isnan(found) else found, aggregated(aggregate, column), ulps=0)


def test_which_have_an_inverse():
    assert {a.kind for a in AGGREGATES if a.function.algebra.inverse is not None} == {
        "count",
        "sum",
        "avg",
        "variance",
        "stddev",
    }


def test_aggregates_of_few_values():
    assert built_in("count").algebra.of([]) == 0
    for kind in ("sum", "avg", "max", "min", "first", "last"):
        assert built_in(kind).algebra.of([]) is None
        assert built_in(kind).algebra.of([2.5]) == 2.5
    assert built_in("quantile", 0.5).algebra.of([]) is None
    assert built_in("variance", 1.0).algebra.of([3.0]) is None
    assert built_in("variance", 0.0).algebra.of([3.0]) == 0
    assert built_in("stddev", 1.0).algebra.of([]) is None
    assert built_in("stddev", 1.0).algebra.of([1.0, 3.0]) == math.sqrt(2)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_moments_agree_with_numpy(column):
    scale = max(map(abs, column)) + 1e-300
    assert built_in("avg").algebra.of(column) == pytest.approx(np.mean(column), rel=1e-9, abs=1e-12 * scale)
    assert built_in("stddev", 1.0).algebra.of(column) == pytest.approx(np.std(column, ddof=1), rel=1e-6, abs=1e-7 * scale)


def test_sums_do_not_depend_on_the_order():
    column = [1e100, 1.0, -1e100, 1e-100, 0.1] * 3
    assert built_in("sum").algebra.of(column) == built_in("sum").algebra.of(sorted(column)) == math.fsum(column)
    assert Moments.lift(0.1).total == Fraction(0.1)


def test_what_is_beyond_the_largest_float_is_infinite():
    assert as_float(Fraction(10) ** 400) == math.inf
    assert as_float(-(Fraction(10) ** 400)) == -math.inf
    assert built_in("sum").algebra.of([1e308, 1e308]) == math.inf
    assert built_in("avg").algebra.of([1e308, 1e308]) == 1e308


# -- ranks ---------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 100), st.integers(1, 300))
def test_a_rank_is_the_first_that_a_share_does_not_exceed(percent, count):
    """Of the share as it is written: 0.07 of 100 is 7, though the float 0.07 is a little more."""
    place = rank(percent / 100, count) + 1
    assert 1 <= place <= count
    assert place >= Fraction(percent, 100) * count
    assert place == 1 or place - 1 < Fraction(percent, 100) * count


@given(st.floats(0, 1), st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=40))
def test_quantiles_are_those_of_numpy(share, column):
    if abs(share * len(column) - round(share * len(column))) > 1e-9:  # at a step NumPy goes by the last bit of a product
        assert built_in("quantile", share).algebra.of(column) == np.quantile(column, share, method="inverted_cdf")


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 10**6, 10**9])
def test_ranks_at_the_ends(count):
    assert rank(0.0, count) == 0
    assert rank(1.0, count) == count - 1
    assert rank(5e-324, count) == 0
    assert rank(0.5, count) == (count - 1) // 2
    assert rank(1 - 2**-53, count) == count - 1


# -- aggregates and conditions as users write them -----------------------------------------------------------------------


def test_aggregates_look_as_they_are_written():
    written = [
        "count()",
        "count('x')",
        "sum('x')",
        "avg('x')",
        "min('x')",
        "max('x')",
        "first('x')",
        "last('x')",
        "variance('x')",
        "variance('x', ddof=0)",
        "stddev('x')",
        "stddev('x', ddof=0)",
        "quantile('x', 0.0)",
        "quantile('x', 0.5)",
        "quantile('x', 1.0)",
    ]
    for text in written:
        assert repr(eval(f"lt.agg.{text}")) == text
    assert repr(lt.agg.count() > 1000) == "count() > 1000"
    assert repr(lt.agg.sum("x") <= 2.5) == "sum('x') <= 2.5"
    assert repr(lt.agg.max("x").between(20, 200)) == "20 <= max('x') <= 200"


def test_conditions_know_their_bounds():
    x = lt.agg.max("x")
    assert ((x >= 3).low, (x >= 3).high) == (3, math.inf)
    assert ((x <= 3).low, (x <= 3).high) == (-math.inf, 3)
    assert ((x > 3).low, (x < 3).high) == (math.nextafter(3, 4), math.nextafter(3, 2))
    assert ((x > 3).low, (x <= 3).high) == (math.nextafter(3, 4), 3)
    assert (x.between(3, 3).low, x.between(3, 3).high) == (3, 3)


def test_stored_aggregates_come_back():
    mine = lt.agg.custom("algebra_mine", identity=0.0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda s: s)
    for aggregate in [*AGGREGATES, lt.agg.count(), mine("x")]:
        function = stored_function(aggregate.kind, aggregate.function.parameter)
        assert function is not None
        again = lt.Aggregate(function, aggregate.column)
        assert (again.key, repr(again)) == (aggregate.key, repr(aggregate))
    assert stored_function("nobody_defined_this", None) is None


@pytest.mark.parametrize(("name", "parameter"), [("sum", 1.0), ("quantile", None), ("quantile", 2.0), ("stddev", 0.5)])
def test_stored_parameters_are_those_of_their_functions(name, parameter):
    with pytest.raises(ValueError, match=f"no aggregate function '{name}' with the parameter"):
        stored_function(name, parameter)


def test_functions_of_users_have_no_stored_parameter():
    lt.agg.custom("algebra_plain", identity=0.0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda s: s)
    with pytest.raises(ValueError, match="'algebra_plain' takes no parameter"):
        stored_function("algebra_plain", 1.0)


def test_an_algebra_computes_one_value_after_the_other():
    words = Algebra(lambda x: f"{x:g}", lambda a, b: a + b, lambda s: s[::-1], "")
    assert words.state([1, 2, 3]) == "123"
    assert words.of([1, 2, 3]) == "321"
    assert words.of([]) == ""
