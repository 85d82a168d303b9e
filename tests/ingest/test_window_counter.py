"""One counter on its own: the friendly face of a family."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow
from streams import FAMILIES, cuts, epsilons, streams

import lately as lt


@pytest.mark.parametrize("counter", ["wave", "exphist", "exact"])
@given(
    stream=streams(),
    window=st.sampled_from([5, 60, 2000]),
    eps=epsilons,
    pieces=cuts,
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_answers_bracket_the_truth(counter, stream, window, eps, pieces, shares):
    one, twin = lt.WindowCounter(window=window, eps=eps, counter=counter), NaiveWindow(window)
    for piece in stream.pieces(pieces):
        one.add(piece.ticks, piece.counts)
        for tick, count in zip(piece.ticks, piece.weights, strict=True):
            twin.add(tick, None, count)
    older, newer = sorted((int(s * window) for s in shares), reverse=True)
    exact = twin.since(twin.now - older + 1)
    answer = one.count(last=older)
    assert exact in answer
    assert abs(answer.value - exact) <= eps * exact
    assert answer.confidence == 1
    inside = exact - (twin.since(twin.now - newer + 1) if newer else 0)
    assert inside in one.count(between=(older, newer))
    assert twin.since(twin.now - window + 1) in one.count()


@pytest.mark.parametrize("counter", FAMILIES)
def test_single_arrivals_dates_and_weights(counter):
    one = lt.WindowCounter(window="1h", eps=0.1, counter=counter, salt=1)
    one.add(datetime(2026, 1, 1, 12, 0, tzinfo=UTC))
    one.add(datetime(2026, 1, 1, 12, 30, tzinfo=UTC), 5)
    one.add(np.array(["2026-01-01T12:59", "2026-01-01T13:00:01"], "datetime64[s]"))
    assert one.count().value == 7  # the first has left
    assert one.count(last="10m").value == 2
    one.advance(datetime(2026, 1, 1, 13, 40, tzinfo=UTC))
    assert one.count().value == 2
    assert one.late == 0


def test_the_last_n_arrivals():
    one = lt.WindowCounter(window=lt.arrivals(4), eps=0.1)
    for weight in (1, 0, 0, 1, 1, 0):
        one.add(counts=weight)
    assert one.count().value == 2  # of 0, 1, 1, 0
    assert one.count(last=1).value == 0
    one.add(counts=[1, 1])
    assert one.count().value == 3
    with pytest.raises(lt.InputError, match="times given to a window of arrivals"):
        one.add(5)
    with pytest.raises(lt.ParameterError, match=r"advance\(\) is for windows of time"):
        one.advance(5)


def test_bad_input_is_refused_and_changes_nothing():
    one = lt.WindowCounter(window=100, eps=0.1)
    one.add(10, 3)
    before = one.to_bytes()
    for arguments, says in (
        ((None,), "times is None"),
        (([],), "empty column"),
        ((20, -1), "-1"),
        ((20, 1.5), "1.5"),
        (([20, 30], [1, 2, 3]), "3 counts for 2"),
        (("soon",), "cannot read times"),
    ):
        with pytest.raises(lt.InputError, match=says):
            one.add(*arguments)
    assert one.to_bytes() == before
    for options, says in (({"eps": 2}, "eps=2"), ({"delta": 0}, "delta=0"), ({"window": 0}, "longer than nothing")):
        with pytest.raises(lt.ParameterError, match=says):
            lt.WindowCounter(**({"window": 100, "eps": 0.1} | options))


def test_merging_nothing_or_strangers_is_refused():
    with pytest.raises(lt.MergeError, match="nothing to merge"):
        lt.merge([])
    with pytest.raises(lt.MergeError, match="cannot merge a str"):
        lt.merge(["a"])
    one = lt.WindowCounter(window=100, eps=0.1)
    with pytest.raises(lt.MergeError, match="WindowCounter with a int"):
        lt.merge([one, 3])
