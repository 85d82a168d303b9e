"""A range is exactly as long as it says, wherever it is asked: now - a < t <= now - b, and now - a < t <= now without a b.

The streams here are so short that nothing is lost, so every answer must be the exact one, edges included.
"""

import itertools
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from carrier import Carrier
from hypothesis import example, given
from hypothesis import strategies as st
from streams import FAMILIES

import lately as lt
from lately import monitor

WINDOW = 12
START = datetime(2026, 1, 1, tzinfo=UTC)


def _counter(family):
    return lt.WindowCounter(window=WINDOW, eps=0.05, counter=family, samples=200, salt=3)


def _sketch(family):
    return lt.EcmSketch(window=WINDOW, eps=0.05, delta=0.05, counter=family, samples=60, salt=3)


#: How to build one, feed it ticks, and ask how many arrivals a range has.
CASES = {
    **{f"WindowCounter-{f}": (lambda f=f: _counter(f), lambda c, t: c.add(t), lambda c, **r: c.count(**r)) for f in FAMILIES},
    **{
        f"EcmSketch-{f}": (lambda f=f: _sketch(f), lambda s, t: s.update(t * 0, t), lambda s, **r: s.count(0, **r))
        for f in FAMILIES
    },
    "Dyadic": (
        lambda: lt.Dyadic(window=WINDOW, eps=0.05, delta=0.05, universe=64),
        lambda s, t: s.update(t * 0 + 5, t),
        lambda s, **r: s.count_range(0, 63, **r),
    ),
    "Quantiles": (
        lambda: lt.Quantiles(window=WINDOW, eps=0.05, delta=0.05, lo=0, hi=10, resolution=1),
        lambda s, t: s.update(t * 0 + 5.0, t),
        lambda s, **r: s.count_range(0, 10, **r),
    ),
    "TopK": (
        lambda: lt.TopK(k=3, window=WINDOW, eps=0.02, delta=0.05),
        lambda s, t: s.update(t * 0, t),
        lambda s, **r: next((row.count for row in s.top(1, **r)), lt.Estimate(0, 0, 0, 1.0)),
    ),
    "WindowedAmsSketch": (
        lambda: lt.WindowedAmsSketch(window=WINDOW, eps=0.2, delta=0.05, counter="exact"),
        lambda s, t: s.update(t * 0, t),
        lambda s, **r: s.total(**r),
    ),
}


def held(ticks, now, older, newer=0):
    """The definition."""
    return sum(now - older < tick <= now - newer for tick in ticks)


streams = st.lists(st.integers(0, 30), min_size=1, max_size=12).map(sorted)


@pytest.mark.parametrize("name", CASES)
@given(ticks=streams, more=st.integers(0, WINDOW + 2))
@example(ticks=list(range(0, 30, 3)), more=0)
@example(ticks=[5, 5, 17], more=0)  # the oldest are exactly as old as the window is long
def test_every_range_of_every_sketch_holds_exactly_its_ticks(name, ticks, more):
    build, feed, count = CASES[name]
    one = build()
    feed(one, np.array(ticks))
    now = ticks[-1] + more
    one.advance(now)
    for older in range(WINDOW + 1):
        assert count(one, last=older).value == held(ticks, now, older), f"last={older}"
        for newer in range(older + 1):
            assert count(one, between=(older, newer)).value == held(ticks, now, older, newer), f"between={older, newer}"
    assert count(one).value == held(ticks, now, WINDOW)


@pytest.mark.parametrize("algorithm", ["R-INT", None])
@given(ticks=streams, more=st.integers(0, WINDOW + 2))
def test_every_range_of_exact_windows_holds_exactly_its_ticks(algorithm, ticks, more):
    w, now = lt.Windows(tick=1), ticks[-1] + more
    for older in range(1, WINDOW + 1):
        w.add(f"last {older}", lt.agg.sum("x") if algorithm else lt.agg.count(), last=older, using=algorithm)
        w.add(f"which {older}", lt.agg.count() >= 1, per="x", last=older)
        for newer in range(older):
            w.add(f"{older} {newer}", lt.agg.sum("x") if algorithm else lt.agg.count(), between=(older, newer), using=algorithm)
    w.update({"x": np.ones(len(ticks), np.int64)}, ticks)
    w.advance(now)
    for older in range(1, WINDOW + 1):
        assert (w[f"last {older}"].value or 0) == held(ticks, now, older)
        assert list(w[f"which {older}"].value.value) == [held(ticks, now, older)] * (held(ticks, now, older) > 0)
        for newer in range(older):
            assert (w[f"{older} {newer}"].value or 0) == held(ticks, now, older, newer)


@pytest.mark.parametrize("tick", [1, 60])
def test_a_minute_is_a_minute_whatever_the_tick(tick):
    """One arrival a second: the last minute has 60 of them at ticks of a second, and at ticks of a minute those of one."""
    counter = lt.WindowCounter(window="10m", tick=timedelta(seconds=tick), eps=0.001)
    counter.add([START + timedelta(seconds=i) for i in range(600)])
    assert counter.count(last="1m").value == 60
    assert counter.count(last="10m").value == 600
    assert counter.count(between=("3m", "1m")).value == 120


def test_a_range_of_dates_begins_with_the_first_and_ends_before_the_second():
    counter = lt.WindowCounter(window="1h", eps=0.001)
    counter.add([START + timedelta(seconds=i) for i in range(300)])
    minute = [START + timedelta(minutes=i) for i in range(8)]
    assert [counter.count(between=pair).value for pair in itertools.pairwise(minute)] == [60] * 5 + [0] * 2
    newest = START + timedelta(seconds=299)
    assert counter.now == newest
    assert counter.count(between=(START, newest)).value == 299
    assert counter.count(between=(newest, newest + timedelta(seconds=1))).value == 1
    assert counter.count(between=(minute[4], "0s")).value == 60


@given(ticks=streams, more=st.integers(0, WINDOW + 2))
def test_a_monitored_count_is_of_the_window_and_no_more(ticks, more):
    carrier = Carrier(
        monitor.Monitor(monitor.Ecm(window=WINDOW, eps=0.05, delta=0.05), monitor.Count(key="a", theta=0.06)), [1]
    )
    now = ticks[-1] + more
    carrier.update(1, ["a"] * len(ticks), ticks)
    carrier.advance(now)
    carrier.settle()
    (announced,) = carrier.coordinator.announcements().values()
    assert announced.value == pytest.approx(held(ticks, now, WINDOW), rel=0.06)
