"""Integers of 64 bits: their sums, maxima and quantiles are integers without rounding, however large, from every index.

The column that holds them is one of floats until an integer comes that no float is equal to, and again once those have left;
floats may come in between.
"""

import math
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from exact_race import Race
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveWindows, aggregated, agrees, nearest

import lately as lt
from lately.exact.column import Column
from lately.exact.running import Running
from lately.exact.wide import number, of_integers, of_list

TOP, BOTTOM = 2**63 - 1, -(2**63)
KINDS = {
    "sum": lt.agg.sum,
    "min": lt.agg.min,
    "max": lt.agg.max,
    "first": lt.agg.first,
    "last": lt.agg.last,
    "median": lambda column: lt.agg.quantile(column, 0.5),
    "high": lambda column: lt.agg.quantile(column, 0.9),
    "avg": lt.agg.avg,
    "variance": lambda column: lt.agg.variance(column, ddof=0),
    "stddev": lt.agg.stddev,
}
WHOLE = ("sum", "min", "max", "first", "last", "median", "high")

near = st.sampled_from([2**53, 2**54, 2**60, 2**63 - 1, -(2**53), -(2**63), 10**18]).flatmap(
    lambda middle: st.integers(max(middle - 1030, BOTTOM), min(middle + 1030, TOP))
)
integers = near | st.integers(BOTTOM, TOP) | st.integers(-9, 9)
crowded = st.integers(10**18, 10**18 + 400) | st.integers(BOTTOM, BOTTOM + 3000)  # many have the same nearest float


def windows(values=None, **window):
    w = lt.Windows(tick=1)
    for name, make in KINDS.items():
        w.add(name, make("x"), **(window or {"last": lt.arrivals(1000)}))
    if values is not None:
        w.update({"x": values})
    return w


def check(answers, values, pure=True):
    """All answers are those of the values, and integers where the values are."""
    for name, make in KINDS.items():
        value, expected = answers[name].value, aggregated(make("x"), values)
        if not pure and name == "sum" and expected is not None:
            expected = nearest(Fraction(expected))
        assert agrees(make("x"), value, expected), (name, value, expected)
        if pure and values and name in WHOLE:
            assert type(value) is int, (name, value)


# -- against the definition ------------------------------------------------------------------------------------------------


@given(st.lists(integers, min_size=1, max_size=60) | st.lists(crowded, min_size=1, max_size=60), st.integers(1, 60))
def test_answers_over_integers_are_exact(values, cut):
    w = windows()
    for start in range(0, len(values), cut):
        w.update({"x": values[start : start + cut]})
    check(w.answers(), values)
    check({name: w[name] for name in KINDS}, values)
    check(w.partials().answers(), values)
    for name, make in KINDS.items():
        assert agrees(make("x"), make("x").of(values), aggregated(make("x"), values)), name


def any_integer(random):
    return random.choice(
        [random.randint(-9, 9), random.randint(BOTTOM, TOP), 2 ** random.randint(53, 62) + random.randint(-3, 3)]
    )


def crowd(random):
    return random.choice([10**18, TOP - 200]) + random.randint(0, 200)


def anything(random):
    return random.choice(
        [any_integer(random), any_integer(random), float(random.randint(0, 9)), 0.1, 2.0**60, math.nan, math.inf]
    )


def seldom_large(random):
    """So seldom that columns turn to pairs and back."""
    return any_integer(random) if random.random() < 0.05 else random.randint(-9, 9)


class IntegerRace(Race):
    """Integers, whatever the columns make of them; with ``pure`` no float ever comes."""

    def __init__(self, seed, lateness, value, pure):
        super().__init__(seed, lateness, value, aggregates=list(KINDS.values()))
        self.pure = pure

    def _agrees(self, aggregate, value, expected):
        if self.pure and expected is not None and aggregate.kind in ("sum", "min", "max", "first", "last", "quantile"):
            return type(value) is int and value == expected
        if not self.pure and aggregate.kind == "sum" and isinstance(value, float) and isinstance(expected, int):
            expected = nearest(Fraction(expected))  # a float came once
        return super()._agrees(aggregate, value, expected)


@pytest.mark.parametrize(("value", "pure"), [(any_integer, True), (crowd, True), (seldom_large, True), (anything, False)])
@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40), lateness=st.sampled_from([0, 20]))
def test_every_index_is_exact_whatever_happens_to_the_windows(value, pure, seed, steps, lateness):
    IntegerRace(seed, lateness, value, pure).run(steps)


@pytest.mark.parametrize("using", ["B-INT", "L-INT"])
def test_integers_with_the_same_nearest_float_are_told_apart(using):
    values = [10**18 + i * i * 7919 % 401 for i in range(700)]
    assert len({float(value) for value in values}) < 10 < len(set(values))
    w, asked = lt.Windows(), {}
    for size in (1, 5, 17, 100, 333, 700):
        for what in (
            lt.agg.max("x"),
            lt.agg.min("x"),
            *(lt.agg.quantile("x", share) for share in (0.01, 0.3, 0.5, 0.77, 0.99)),
        ):
            w.add(f"{what} {size}", what, last=lt.arrivals(size), using=None if what.kind == "quantile" else using)
            asked[f"{what} {size}"] = what, size
    for start in range(0, 700, 70):
        w.update({"x": values[start : start + 70]})
    for name, answer in w.answers().items():
        what, size = asked[name]
        assert answer.value == aggregated(what, values[-size:]), name


@given(st.lists(integers | st.floats(allow_nan=False) | st.none(), min_size=1, max_size=40))
def test_pairs_hold_integers_and_floats_alike(values):
    column = of_list(values, "x")
    for value, held in zip(values, column, strict=True):
        assert held.real != held.real if value is None else number(held) == value


@given(st.lists(integers, min_size=1, max_size=40))
def test_a_pair_is_the_nearest_float_and_the_rest(values):
    column = of_integers(np.array(values, np.int64), "x")
    assert [int(held.real) + int(held.imag) for held in column] == values
    assert column.real.tolist() == [float(value) for value in values]


@given(st.lists(integers | st.floats(-1e6, 1e6), min_size=1, max_size=40), st.integers(1, 40))
def test_running_sums_of_pairs_are_exact(values, cut):
    column = Column()
    index = column.index("squares", lambda: Running(squares=True))
    for start in range(0, len(values), cut):
        column.append(of_list(values[start : start + cut], "x"), 0)
    for left, right in ((0, len(values)), (len(values) // 2, len(values)), (0, len(values) // 3)):
        total, squares = index.exact(left, right)
        unit = Fraction(2) ** index.unit
        inside = [Fraction(value) for value in values[left:right]]
        assert (total * unit, squares * unit**2) == (sum(inside), sum(value * value for value in inside))


# -- how integers come -----------------------------------------------------------------------------------------------------

LARGE = [2**53 + 1, TOP, BOTTOM, 7]
FORMS = {
    "list": LARGE,
    "tuple": tuple(LARGE),
    "int64": np.array(LARGE),
    "uint64": np.array([2**53 + 1, TOP, 5], np.uint64),
    "objects": np.array(LARGE, object),
    "Arrow": pa.array(LARGE),
    "chunks": pa.chunked_array([LARGE[:2], LARGE[2:]]),
    "Arrow uint64": pa.array([TOP, 3], pa.uint64()),
    "pandas": pd.Series(LARGE),
    "pandas nullable": pd.Series(LARGE, dtype="Int64"),
    "polars": pl.Series(LARGE),
    "a scalar": TOP,
    "a NumPy scalar": np.int64(BOTTOM + 1),
}


@pytest.mark.parametrize("column", FORMS.values(), ids=FORMS)
def test_a_column_of_large_integers_in_any_form(column):
    values = np.atleast_1d(column.to_pylist() if hasattr(column, "to_pylist") else column).tolist()
    check(windows(column).answers(), values)


@pytest.mark.parametrize(
    "column", [[TOP, None, BOTTOM], pa.array([TOP, None, BOTTOM]), pd.Series([TOP, None, BOTTOM], dtype="Int64")]
)
def test_missing_integers_are_counted_and_left_out(column):
    answers = windows(column).answers()
    check(answers, [TOP, BOTTOM])
    assert {answer.missing for answer in answers.values()} == {1}


def test_integers_and_floats_in_one_list_lose_nothing():
    values = [2**60 + 1, 0.5, None, 2**60]
    answers = windows(values).answers()
    check(answers, [2**60 + 1, 0.5, 2**60], pure=False)
    assert (answers["max"].value, answers["first"].value, answers["min"].value) == (2**60 + 1, 2**60 + 1, 0.5)


def test_a_column_of_integers_that_gets_floats_answers_in_floats_where_they_are_exact():
    w = windows([2**60 + 1, 3])
    assert (w["sum"].value, type(w["last"].value)) == (2**60 + 4, int)
    w.update({"x": [0.5]})
    check(w.answers(), [2**60 + 1, 3, 0.5], pure=False)
    assert (w["max"].value, type(w["max"].value)) == (2**60 + 1, int)  # no float is equal to it
    assert (w["sum"].value, type(w["sum"].value)) == (float(2**60 + 4), float)  # the nearest float to the exact sum


@pytest.mark.parametrize("missing", [[None, None], pa.nulls(2), pa.array([None, None], pa.int64())])
def test_a_batch_in_which_all_is_missing_does_not_make_integers_floats(missing):
    w = windows([TOP])
    w.update({"x": missing})
    assert (w["sum"].value, type(w["sum"].value), w["sum"].missing) == (TOP, int, 2)


# -- what becomes of them --------------------------------------------------------------------------------------------------


def test_sums_grow_beyond_64_bits():
    w = windows(np.full(500, TOP))
    assert (w["sum"].value, w["avg"].value) == (500 * TOP, float(TOP))
    assert windows(np.full(500, BOTTOM))["sum"].value == 500 * BOTTOM
    small = windows(np.full(500, 2**53 - 1))  # which are floats, and their sum is none
    assert small["sum"].value == 500 * (2**53 - 1)


def test_copies_bytes_and_pickles_keep_them():
    w = windows([TOP, BOTTOM, None, 2**53 + 1])
    for twin in (w.copy(), lt.from_bytes(w.to_bytes()), pickle.loads(pickle.dumps(w))):
        assert twin.to_bytes() == w.to_bytes()
        assert dict(twin.answers()) == dict(w.answers())
        twin.update({"x": [TOP - 1]})
        check(twin.answers(), [TOP, BOTTOM, 2**53 + 1, TOP - 1])


def test_partials_of_sites_add_up_exactly():
    values = [TOP, TOP - 5, BOTTOM, 2**53 + 1, 12, TOP]
    sites = [windows(last=10) for _ in range(3)]
    for i, site in enumerate(sites):
        site.update({"x": values[i::3]}, [1] * 2)
        site.advance(5)
    parts = [lt.from_bytes(site.partials().to_bytes()) for site in sites]
    combined = lt.from_bytes(lt.merge(parts).to_bytes())
    assert combined["sum"].value == sum(values)
    for name in ("min", "max", "median", "high", "avg", "variance", "stddev"):
        assert agrees(KINDS[name]("x"), combined[name].value, aggregated(KINDS[name]("x"), values)), name


def test_bytes_do_not_tell_that_large_integers_have_been_there():
    small, large = windows(last=lt.arrivals(1000)), windows(last=lt.arrivals(1000))
    for w, value in ((small, 2**53), (large, 2**53 + 1)):
        w.update({"x": [value]})
        for _ in range(3):
            w.update({"x": np.arange(700)})
    assert large.to_bytes() == small.to_bytes()


def test_a_column_takes_the_memory_of_floats_again_once_large_integers_have_left():
    narrow, wide = windows(last=lt.arrivals(100)), windows(last=lt.arrivals(100))
    for w, value in ((narrow, 1), (wide, 2**53 + 1)):
        w.update({"x": [value]})
        for size in (50, 5000, 50):
            w.update({"x": np.arange(size)})
    assert wide.nbytes == narrow.nbytes


@pytest.mark.parametrize("value", [TOP + 1, BOTTOM - 1, 2**64, -(2**70), 10**30])
def test_integers_beyond_64_bits_are_refused_whole(value):
    w = windows([1, 2])
    for column in ([3, value], [3.5, value], [None, value], np.array([3, value], object), value):
        with pytest.raises(
            lt.InputError, match=rf"'x' has the value {value}, which is not a 64-bit integer .*cast it to float"
        ):
            w.update({"x": column})
    check(w.answers(), [1, 2])


def test_what_takes_floats_refuses_integers_that_are_none():
    mine = lt.agg.custom("integers_mine", lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda s: s, identity=0.0)
    w = windows([1, 2])
    w.add("mine", mine("x"), last=lt.arrivals(5))
    with pytest.raises(
        lt.InputError, match=rf"'x' has the value {TOP}, .*the aggregate 'integers_mine' takes floats; .*drop the query"
    ):
        w.update({"x": [3, TOP]})
    check({name: w[name] for name in KINDS}, [1, 2])
    w.update({"x": [2**60]})  # which is a float
    w = windows([3, TOP])
    with pytest.raises(lt.ParameterError, match=r"'mine' asks for a custom aggregate, .*cast to float"):
        w.add("mine", mine("x"), last=lt.arrivals(5))
    assert "mine" not in w
    check(w.answers(), [3, TOP])


def test_answers_as_columns_have_the_nearest_float():
    w = windows([TOP, TOP])
    answers = w.answers()
    assert answers.value.tolist()[:3] == [2.0**64, 2.0**63, 2.0**63]
    assert answers.to_arrow().column("value").to_pylist()[:3] == [2.0**64, 2.0**63, 2.0**63]
    w = lt.Windows()
    w.add("max", lt.agg.max("x"), last=lt.arrivals(5))
    w.add("rows", lt.agg.count(), last=lt.arrivals(5))
    w.update({"x": [TOP, TOP]})
    assert w.answers().to_arrow().column("value").to_pylist() == [TOP, 2]
    assert f"{TOP:_}" in repr(w.answers())


def test_a_late_integer_takes_its_place():
    w, twin = lt.Windows(tick=1, lateness=50), NaiveWindows(50)
    for name, make in KINDS.items():
        w.add(name, make("x"), last=30)
    for ticks, values in (([0, 10, 20], [1, 2, 3]), ([5, 15], [TOP, BOTTOM]), ([12, 40], [2**53 + 1, 4])):
        for each in (w, twin):
            each.update({"x": values}, ticks)
        check(w.answers(), [row["x"] for row in twin.window(last=30)])
