"""Queries: estimates, tolerances as the papers write them, and refusals that say what to do instead."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.keys import hash_keys
from lately.monitor.layout import Layout
from lately.monitor.queries import LOWER, UPPER, Count, InnerProduct, KeyRange, RangeSum, SelfJoin
from lately.monitor.sketch import Ecm, FastAms

ECM, AMS = Ecm(window=100, eps=0.1, delta=0.1, seed=20_120_615), FastAms(eps=0.1, delta=0.1, seed=20_120_615)
thetas = st.floats(0.01, 0.95)
values = st.one_of(st.just(0.0), st.floats(1e-6, 1e12))
numbers = st.floats(-1e6, 1e6)


# -- tolerances --------------------------------------------------------------------------------------------------------


@given(values, thetas, st.floats(0, 0.9))
def test_equation_1_of_gm_ams(value, theta, share):
    eps = theta * share
    low, high = SelfJoin(theta=theta).tolerance(value, None, eps)
    assert low == pytest.approx(value * (1 + eps) / (1 + theta))
    assert high == pytest.approx(value * (1 - eps) / (1 - theta))
    # wherever the estimate is in there, and the truth within eps of it, what was announced is within theta of the truth
    for estimate in (low, value, high):
        for truth in (estimate / (1 + eps), estimate / (1 - eps)):
            assert (1 - theta) * truth <= value * (1 + 1e-9)
            assert value <= (1 + theta) * truth * (1 + 1e-9)


@given(values, thetas)
def test_without_eps_it_is_the_interval_of_ecm_15(value, theta):
    assert SelfJoin(theta=theta).tolerance(value, None, 0.0) == pytest.approx((value / (1 + theta), value / (1 - theta)))


@given(numbers, st.floats(0, 1e6), thetas, st.floats(0, 0.9))
def test_where_theta_is_a_share_of_something_else_it_is_the_same_on_both_sides(value, unit, theta, share):
    low, high = InnerProduct(of=("a", "b"), theta=theta).tolerance(value, unit, theta * share)
    assert high - value == pytest.approx(value - low, abs=1e-9 * (abs(value) + 1))
    # the drift and the error of the sketch together
    assert high - value + theta * share * unit == pytest.approx(theta * unit, rel=1e-6, abs=1e-9 * (abs(value) + 1))


@given(numbers, thetas, st.floats(0, 100), st.sampled_from([None, 7.0]))
def test_a_floor_widens_and_never_narrows(value, theta, floor, unit):
    value = value if unit else abs(value)
    plain, wide = (SelfJoin(theta=theta, floor=x).tolerance(value, unit, 0.0) for x in (0.0, floor))
    assert wide == (min(plain[0], value - floor), max(plain[1], value + floor))


@given(numbers, numbers, st.floats(0, 0.9), st.floats(0, 0.9))
def test_an_alarm_limits_the_side_it_is_on(value, above, theta, share):
    eps = theta * share
    low, high = SelfJoin(above=above, theta=theta).tolerance(value, None, eps)
    if value >= above:
        assert high == math.inf
        if above > 0:
            assert low == pytest.approx(above * (1 - theta) * (1 + eps))
        assert low <= above + 1e-9 * abs(above) or eps > theta / 2
    else:
        assert low == -math.inf
        if above > 0:
            assert high == pytest.approx(above * (1 + theta) * (1 - eps))


@given(st.floats(1, 1e6), st.floats(0.01, 0.5))
def test_a_negative_threshold_has_as_wide_a_margin(above, theta):
    (low, _), (less, _) = (SelfJoin(above=x, theta=theta).tolerance(1e7, None, 0.0) for x in (above, -above))
    assert above - low == pytest.approx(-above - less)
    (_, high), (_, more) = (SelfJoin(above=x, theta=theta).tolerance(-1e7, None, 0.0) for x in (above, -above))
    assert high - above == pytest.approx(more + above)


@given(st.floats(0.001, 0.5), st.floats(1.0001, 3), values.filter(bool))
def test_what_check_lets_pass_leaves_room_for_drift(eps, times, value):
    sketch = FastAms(eps=eps, delta=0.1, seed=20_120_615)
    for above in (None, value):
        theta = times * (eps if above is None else eps / (1 - eps))
        if theta < 1:
            query = SelfJoin(theta=theta, above=above)
            query.check(sketch)
            for now in (value, value * 0.999999):
                low, high = query.tolerance(now, None, eps)
                assert low < now < high


# -- estimates ---------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 50), min_size=1, max_size=20), st.booleans())
def test_estimates_are_those_of_the_sketches(counts, signed):
    layout = Layout(3, 7, 5, signed)
    keys, weights = np.array(list(counts)), np.array(list(counts.values()))
    table = layout.sketch(hash_keys(keys), weights).astype(float).reshape(3, 7)
    twin = naive.fast_ams(counts, layout._words, 7) if signed else naive.count_min(counts, layout._words.reshape(3, -1), 7)
    assert (table == twin).all()
    squares, middle = (twin**2).sum(axis=1), np.median if signed else np.min
    assert SelfJoin(theta=0.2).estimate([table], layout) == pytest.approx(middle(squares))
    assert InnerProduct(of=("a", "b"), theta=0.2).estimate([table, -table], layout) == pytest.approx(middle(-squares))
    if signed:
        picked = dict.fromkeys(keys[:3].tolist(), 2)
        query = RangeSum(keys=list(picked), weights=[2] * len(picked), theta=0.2)
        expected = np.median((twin * naive.fast_ams(picked, layout._words, 7)).sum(axis=1))
        assert query.estimate([table], layout) == pytest.approx(expected)
        lengths = np.median(np.sqrt(squares))
        assert query.theta_unit([table], layout) == pytest.approx(lengths * math.sqrt(4 * len(picked)))
        assert InnerProduct(of=("a", "b"), theta=0.2).theta_unit([table, -3 * table], layout) == pytest.approx(3 * lengths**2)


def test_a_key_of_its_own_has_a_counter_of_its_own():
    layout = Count(key=1, theta=0.1).layout(ECM)
    assert (layout.rows, layout.width, layout.eps) == (1, 1, ECM.eps)
    assert Count(key=1, theta=0.1).estimate([np.array([[7.0]])], layout) == 7
    assert SelfJoin(theta=0.1).theta_unit([np.ones((1, 1))], layout) is None


def test_what_is_picked():
    keys = np.array([1, 5, 9, 10, -3])
    assert Count(key=5, theta=0.1).picks(hash_keys(keys), keys).tolist() == [False, True, False, False, False]
    assert Count(key="a", theta=0.1).picks(hash_keys(["b", "a"]), None).tolist() == [False, True]
    assert KeyRange(start=1, stop=10, theta=0.1).picks(hash_keys(keys), keys).tolist() == [True, True, True, False, False]
    with pytest.raises(lt.InputError, match="keys must be integers"):
        KeyRange(start=1, stop=10, theta=0.1).picks(hash_keys(["a"]), None)


def test_how_many_rows_must_hold():
    query = SelfJoin(theta=0.1)
    assert [query.quorum(side, ECM.layout()) for side in (UPPER, LOWER)] == [1, ECM.layout().rows]
    for rows in (1, 3, 5, 7):
        assert {query.quorum(side, Layout(rows, 2, 1, True)) for side in (UPPER, LOWER)} == {(rows + 1) // 2}


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SelfJoin(), r"SelfJoin\(\) has neither.*give theta=0.1.*or above="),
        (lambda: SelfJoin(theta=0), r"theta=0\).*between 0 and 1, such as 0.1"),
        (lambda: SelfJoin(theta=1), r"theta=1\).*between 0 and 1"),
        (lambda: SelfJoin(theta=-0.5), r"theta=-0.5\).*between 0 and 1"),
        (lambda: SelfJoin(above=5, theta=-0.1), r"theta=-0.1\).*between 0 and 1"),
        (lambda: SelfJoin(theta=True), r"theta=True\).*; give a number"),
        (lambda: SelfJoin(theta="0.1"), r"theta='0.1'\).*; give a number"),
        (lambda: SelfJoin(theta=math.nan), r"theta=nan\).*; give a number"),
        (lambda: SelfJoin(above=math.inf), r"above=inf\).*; give a number"),
        (lambda: SelfJoin(above=5, below=3), r"SelfJoin\(above=5, below=3\) has two thresholds; give one of them"),
        (lambda: SelfJoin(below="few"), r"below='few'\).*; give a number"),
        (lambda: SelfJoin(above="many"), r"above='many'\).*; give a number"),
        (lambda: SelfJoin(theta=0.1, floor=-1), r"floor=-1\) is negative; give the smallest tolerance, 0 or more"),
        (lambda: InnerProduct(of=("a", "b")), r"InnerProduct\(\) has neither.*give theta"),
        (lambda: InnerProduct(of=("a", "a"), theta=0.1).streams(["a", "b"]), r"\('a', 'a'\).*a SelfJoin"),
        (lambda: InnerProduct(of=("a",), theta=0.1).streams(["a", "b"]), r"does not name two streams"),
        (lambda: InnerProduct(of=("a", "c"), theta=0.1).streams(["a", "b"]), r"no stream 'c'.*'a', 'b'.*streams="),
        (lambda: SelfJoin(stream="c", theta=0.1).streams(["a", "b"]), r"no stream 'c'.*'a', 'b'"),
        (lambda: RangeSum(keys=[], theta=0.5), r"0 keys and 0 weights.*at least one key, and one weight for each"),
        (lambda: RangeSum(keys=[1, 2], weights=[1], theta=0.5), r"2 keys and 1 weights"),
        (lambda: RangeSum(keys=[1], theta=0.5).check(ECM), r"RangeSum needs Fast-AMS.*KeyRange or a Count"),
        (lambda: Count(key=1, theta=0.5).check(AMS), r"a Count needs the windowed counters of Ecm.*RangeSum"),
        (lambda: KeyRange(start=0, stop=9, theta=0.5).check(AMS), r"a KeyRange needs the windowed counters of Ecm"),
        (lambda: KeyRange(start=5, stop=5, theta=0.5), r"start=5, stop=5\) is empty; give a stop above start"),
        (lambda: KeyRange(start=0, stop=2**63, theta=0.5), r"9223372036854775808 is not a 64-bit integer"),
        (lambda: KeyRange(start=0.5, stop=2, theta=0.5), r"0.5 is not a 64-bit integer"),
        (lambda: KeyRange(start=True, stop=2, theta=0.5), r"True is not a 64-bit integer"),
        (
            lambda: SelfJoin(theta=0.1).check(AMS),
            r"theta=0.1 with eps=0.1.*nothing would be left for drift.*above 0.1,.*smaller eps",
        ),
        (lambda: SelfJoin(theta=0.05).check(AMS), r"theta=0.05 with eps=0.1"),
        (lambda: SelfJoin(above=5).check(AMS), r"theta=None with eps=0.1.*above 0.1111"),
        (lambda: SelfJoin(above=5, theta=0.11).check(AMS), r"theta=0.11 with eps=0.1.*above 0.1111"),
        (lambda: Ecm(window=lt.arrivals(9), eps=0.1, delta=0.1, seed=20_120_615), r"arrivals.*give a window of time"),
        (lambda: FastAms(window=lt.arrivals(9), eps=0.1, delta=0.1, seed=20_120_615), r"arrivals.*give a window of time"),
        (lambda: Ecm(window=10, eps=0, delta=0.1), r"eps=0"),
        (lambda: Ecm(window=10, eps=0.1, delta=1, seed=20_120_615), r"delta=1"),
        (lambda: Ecm(window=10, eps=0.1, delta=0.1, seed=-1), r"seed=-1"),
        (lambda: FastAms(eps=2, delta=0.1), r"eps=2"),
        (lambda: FastAms(eps=0.1, delta=0, seed=20_120_615), r"delta=0"),
        (lambda: FastAms(eps=0.1, delta=0.1, window=0, seed=20_120_615), r"window=0"),
    ],
)
def test_refusals_name_the_value_and_what_to_do(build, message):
    with pytest.raises(lt.ParameterError, match=message):
        build()


def test_what_is_allowed():
    for query in (
        SelfJoin(theta=0.1),
        SelfJoin(theta=0.01),
        SelfJoin(above=5),
        SelfJoin(above=-5, theta=0),
        Count(key="a", above=1),
    ):
        query.check(ECM)  # theta comes on top of eps there
    SelfJoin(theta=0.1001).check(AMS)
    SelfJoin(theta=0.112, above=3).check(AMS)
    RangeSum(keys=range(3), theta=0.2).check(AMS)
    assert SelfJoin(theta=0.1).streams(["a"]) == (0,)
    assert SelfJoin(theta=0.1, stream="b").streams(["a", "b"]) == (1,)
    assert InnerProduct(of=("b", "a"), theta=0.1).streams(["a", "b"]) == (1, 0)
    KeyRange(start=-(2**63), stop=2**63 - 1, theta=0.5)


def test_weights_that_are_no_integers_are_refused():
    with pytest.raises(lt.LatelyError):
        RangeSum(keys=[1, 2], weights=[0.5, 1.7], theta=0.2)
