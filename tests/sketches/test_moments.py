"""Moments from a heavy part and a bound on the rest: whatever the truth is, given truthful bounds it lies inside."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive import entropy, second_moment

import lately as lt
from lately.sketches import moments

tables = st.lists(st.one_of(st.integers(1, 4), st.integers(1, 60), st.integers(1, 100_000)), max_size=12)
errors = st.integers(0, 50)


@st.composite
def truthful(draw):
    """The frequencies of some keys, and bounds around them of which none is wrong: what a sketch could know."""
    counts = draw(tables)
    missed = draw(st.one_of(st.integers(1, 70), st.integers(1, 120_000))) + draw(st.sampled_from([0.0, 0.5]))
    heavy = [c for c in counts if c >= missed]
    light = [c for c in counts if c < missed]
    listed = draw(st.integers(0, len(light)))  # some light ones are listed too, and some that never came
    heavy += light[:listed] + [0] * draw(st.integers(0, 2))
    low = [max(c - draw(errors), 0) for c in heavy]
    high = [c + draw(errors) for c in heavy]
    value = [draw(st.integers(a, b)) for a, b in zip(low, high, strict=True)]
    total = sum(counts)
    fewest, most = max(total - draw(errors), 0), total + draw(errors)
    columns = (np.array(column, np.int64) for column in (value, low, high))
    known = lt.Estimates(*columns, 0.9), missed, lt.Estimate(draw(st.integers(fewest, most)), fewest, most, 1.0)
    return Counter(dict(enumerate(counts))), known


def assert_inside(truth, answer):
    slack = 1e-9 * max(1.0, abs(truth))
    assert answer.low - slack <= truth <= answer.high + slack
    assert answer.low <= answer.value <= answer.high
    assert answer.confidence == 0.9


@given(truthful())
def test_the_largest_frequency_lies_inside(case):
    frequencies, known = case
    answer = moments.largest(*known)
    assert_inside(max(frequencies.values(), default=0), answer)
    assert type(answer.value) is type(answer.low) is type(answer.high) is int


@given(truthful())
def test_the_second_moment_lies_inside(case):
    frequencies, known = case
    assert_inside(second_moment(frequencies), moments.second_moment(*known))


@given(truthful())
def test_the_entropy_lies_inside(case):
    frequencies, known = case
    answer = moments.entropy(*known)
    assert_inside(entropy(frequencies) if frequencies else 0.0, answer)
    assert answer.low >= 0


@given(counts=st.lists(st.integers(1, 1000), min_size=1, max_size=20))
@example([1])
@example([1000])
@example([5, 5])
def test_what_is_known_exactly_is_answered_exactly(counts):
    """All keys listed with their true counts: nothing is left to guess."""
    column = np.array(counts, np.int64)
    known = lt.Estimates(column, column, column, 0.9), 1.0, lt.Estimate(sum(counts), sum(counts), sum(counts), 1.0)
    frequencies = dict(enumerate(counts))
    for answer, truth in (
        (moments.largest(*known), max(counts)),
        (moments.second_moment(*known), second_moment(frequencies)),
        (moments.entropy(*known), entropy(frequencies)),
    ):
        assert answer.low == pytest.approx(truth)
        assert answer.value == pytest.approx(truth)
        assert answer.high == pytest.approx(truth)


@pytest.mark.parametrize(("rest", "missed"), [(100, 10), (1000, 100), (64, 64)])
def test_the_rest_is_bounded_by_its_two_extremes(rest, missed):
    """Nothing is heavy: the rest may be keys of one arrival each, or as few keys as can be."""
    nothing = np.empty(0, np.int64)
    known = lt.Estimates(nothing, nothing, nothing, 0.9), float(missed), lt.Estimate(rest, rest, rest, 1.0)
    joined, bits, most = moments.second_moment(*known), moments.entropy(*known), moments.largest(*known)
    assert (joined.low, joined.high) == (rest, rest * missed)
    assert bits.low == pytest.approx(math.log2(rest / missed))
    assert bits.high == pytest.approx(math.log2(rest))
    assert (most.low, most.high) == (1, missed)


def test_nothing_has_no_moments():
    nothing = np.empty(0, np.int64)
    known = lt.Estimates(nothing, nothing, nothing, 0.9), 1.0, lt.Estimate(0, 0, 0, 1.0)
    for ask in (moments.largest, moments.second_moment, moments.entropy):
        answer = ask(*known)
        assert (answer.low, answer.value, answer.high) == (0, 0, 0)


def test_likely_bounds_that_are_wrong_do_not_cross():
    """Two keys in one cell, each taken for all that is there: of the total no more than all of it is left."""
    pair = np.array([200, 200])
    known = lt.Estimates(pair, pair, pair, 0.5), 1.0, lt.Estimate(100, 100, 100, 1.0)
    for ask, most in ((moments.largest, 100), (moments.second_moment, 100**2), (moments.entropy, math.log2(100))):
        answer = ask(*known)
        assert 0 <= answer.low <= answer.value <= answer.high <= most
