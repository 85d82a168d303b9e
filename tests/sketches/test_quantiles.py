"""Quantiles of numbers against sorted arrays: the truth in the bounds, ranks within eps, odd numbers refused whole."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import hoeffding
from streams import Stream, cuts, streams

import lately as lt

SHARES = [0.0, 0.01, 0.07, 0.25, 0.5, 0.9, 0.99, 1.0]

#: So small that what is likely can be taken for certain.
SURE = 1e-7

#: (lo, hi, resolution): steps that fit, steps that do not, far from zero, below zero, two steps, very many.
GRIDS = [
    (0, 60, 0.5),
    (0, 1, 0.1),
    (-3.7, 11.2, 1 / 3),
    (1e6, 1e6 + 10, 0.001),
    (-5, -4, 0.7),
    (0, 10, 10),
    (-1e5, 1e5, 1e-4),
]


def build(grid=(0, 60, 0.5), **options):
    lo, hi, resolution = grid
    return lt.Quantiles(**({"window": 1000, "eps": 0.3, "delta": SURE, "lo": lo, "hi": hi, "resolution": resolution} | options))


def numbers_of(stream, grid, seed=0):
    """A number for each cell: both ends, multiples of the resolution and their neighbours, and any others."""
    lo, hi, resolution = grid
    rng = np.random.default_rng(seed)
    steps = lo + rng.integers(0, math.floor((hi - lo) / resolution) + 1, 12) * resolution
    near = [np.nextafter(steps[:4], -np.inf), np.nextafter(steps[4:8], np.inf), rng.uniform(lo, hi, 15)]
    pool = np.clip(np.concatenate([[lo, hi, np.nextafter(hi, lo)], steps, *near]), lo, hi)
    return pool[stream.cells % pool.size]


def quantile(values, q):
    """The least number up to which a share of q came, and at least one arrival."""
    ranks = np.arange(1, values.size + 1)
    return np.sort(values)[np.flatnonzero(ranks >= max(q * values.size - 1e-9, 1))[0]]


def asked(values, ticks, now):
    """Ranges of time, and the numbers of each."""
    yield {}, values[ticks > now - 1000]
    yield {"last": 300}, values[ticks > now - 300]
    yield {"between": (700, 200)}, values[(ticks > now - 700) & (ticks <= now - 200)]


grids = st.sampled_from(GRIDS)


# -- answers -----------------------------------------------------------------------------------------------------------


def assert_truthful(sketch, values, ticks, xs):
    """Every answer contains the truth about these numbers; what was clipped is counted where it was."""
    now = int(ticks.max())
    for question, inside in asked(values, ticks, now):
        assert inside.size in sketch.total(**question)
        for x in xs:
            answer = sketch.rank(x, **question)
            assert int((inside <= x).sum()) in answer
            assert answer.low <= answer.value <= answer.high
            for y in xs[1:3]:
                lo, hi = min(x, y), max(x, y)
                assert int(((inside >= lo) & (inside <= hi)).sum()) in sketch.count_range(lo, hi, **question)
        if inside.size:
            for q, answer in sketch.quantile(SHARES, **question):
                assert min(max(quantile(inside, q), sketch.lo), sketch.hi) in answer
                assert sketch.lo <= answer.low <= answer.value <= answer.high <= sketch.hi


def points(grid, values):
    lo, hi, resolution = grid
    ends = [lo, hi, (lo + hi) / 2, lo - 1, hi + 1, np.nextafter(hi, lo), lo + resolution]
    return [float(x) for x in [*ends, *values[:3]]]


@given(stream=streams(most=400, cells=30), grid=grids, seed=st.integers(0, 99), pieces=cuts)
def test_every_answer_contains_the_truth(stream, grid, seed, pieces):
    values = numbers_of(stream, grid, seed)
    sketch = build(grid, eps=0.5)
    for piece in Stream(stream.ticks, values, None).pieces(pieces):
        sketch.update(piece.cells, piece.ticks)
    assert_truthful(sketch, values, stream.ticks, points(grid, values))


@given(stream=streams(most=200, cells=30), grid=grids, seed=st.integers(0, 99), beyond=st.sampled_from([0.1, 3, 1e9]))
def test_clipped_numbers_are_counted_at_the_nearer_end(stream, grid, seed, beyond):
    """What lies outside is in the answers; a quantile that falls there is ``lo`` or ``hi``."""
    values = numbers_of(stream, grid, seed)
    rng = np.random.default_rng(seed)
    outside = rng.random(values.size)
    lo, hi, _ = grid
    values = np.where(outside < 0.2, lo - beyond * rng.random(values.size), values)
    values = np.where(outside > 0.8, hi + beyond * rng.random(values.size), values)
    sketch = build(grid, outside="clip", eps=0.5)
    sketch.update(values, stream.ticks)
    assert_truthful(sketch, values, stream.ticks, [*points(grid, values), lo - beyond / 2, hi + beyond / 2])


def test_a_clipped_quantile_is_bounded_by_the_ends():
    sketch = build(outside="clip")
    sketch.update([-7, 5, 5, 5, 100], 1)
    low, middle, high = sketch.quantile([0.1, 0.5, 1.0])
    assert (low.value.low, middle.value.low, middle.value.high, high.value.high) == (0, 5, 5.5, 60)
    assert (low.value.high, high.value.low) == (0.5, 59.5)
    assert 0 <= low.value.value <= 0.5
    assert 59.5 <= high.value.value <= 60
    assert 2 in sketch.rank(-1) or sketch.rank(-1).high == 1
    refusing = build()
    refusing.update([0, 5, 5, 5, 60], 1)
    low, _, high = refusing.quantile([0.1, 0.5, 1.0])
    assert (low.value.low, low.value.high, high.value.low, high.value.high) == (0, 0.5, 59.5, 60)


def test_clipped_numbers_do_not_pretend_to_be_small():
    """Of 1000, 1000, -5 and 3 two are at most 100; what was clipped at 60 may be either."""
    sketch = build(outside="clip")
    sketch.update([1000.0, 1000.0, -5, 3], 1)
    assert 2 in sketch.rank(100)
    assert 2 in sketch.rank(60)
    assert sketch.rank(59.75).high == 4
    assert 1 in sketch.rank(-5)
    assert 0 in sketch.rank(-10)


@pytest.mark.parametrize(("lo", "hi", "resolution"), [(0, 10.0000004, 1), (0, 1, 0.3), (-1, 1, 0.7), (0, 0.1, 0.1), (0, 7, 7)])
def test_the_largest_number_is_hi_itself(lo, hi, resolution):
    sketch = build((lo, hi, resolution))
    sketch.update([hi, hi, lo], 1)
    answer = sketch.quantile(1.0)
    assert hi in answer
    assert answer.high == hi
    assert answer.high - answer.low <= resolution * 1.000001
    assert lo in sketch.quantile(0.0)
    assert 3 in sketch.rank(hi)
    assert sketch.rank(hi).low == 3
    assert sketch.rank(math.nextafter(lo, -math.inf)).high == 0


@pytest.mark.parametrize("grid", GRIDS)
def test_bounds_are_no_wider_than_the_resolution_while_nothing_is_lost(grid):
    lo, hi, resolution = grid
    values = np.random.default_rng(0).uniform(lo, hi, 50)
    sketch = build(grid)
    sketch.update(values, 1)
    for q, answer in sketch.quantile(SHARES):
        assert quantile(values, q) in answer
        if sketch._layout.width == 0:  # with sketched levels, collisions are in the bounds
            assert answer.high - answer.low <= resolution * 1.0001
        assert abs(answer.value - quantile(values, q)) <= resolution * 0.5001


@pytest.mark.parametrize("grid", [(0, 60, 0.5), (-3.7, 11.2, 1 / 3)])
def test_all_numbers_are_in_the_whole_range(grid):
    """Nothing lies outside of lo..hi where that is refused, so the steps at the ends lie inside as a whole."""
    lo, hi, _ = grid
    sketch = build(grid)
    sketch.update(np.random.default_rng(0).uniform(lo, hi, 50), 1)
    for answer in (sketch.count_range(lo, hi), sketch.count_range(lo - 5, hi + 5)):
        assert 50 in answer
        assert answer.value == 50


# -- how often ---------------------------------------------------------------------------------------------------------


def latencies(seed, size):
    """Lognormal numbers that slow down with time, with a slow tail."""
    rng = np.random.default_rng(seed)
    numbers = np.exp(rng.normal(-2 + 1.5 * np.arange(size) / size, 0.6))
    return np.where(rng.random(size) < 0.02, numbers + 20, numbers)


@pytest.mark.parametrize("sites", [1, 6])
def test_ranks_miss_no_more_often_than_delta(sites):
    """Over seeds: the rank of each answer is within eps of what was asked, and the truth within the bounds."""
    eps, delta, seeds, off, outside = 0.1, 0.2, 30, 0, 0
    errors = []
    for seed in range(seeds):
        values, ticks = latencies(seed, 12_000), np.arange(12_000) // 3
        where = np.random.default_rng(seed).integers(0, sites, values.size)
        parts = []
        for site in range(sites):
            part = build((0, 60, 0.001), window=5000, eps=eps, delta=delta, outside="clip", seed=1000 * seed, merge_height=1)
            part.update(values[where == site], ticks[where == site])
            parts.append(part)
        sketch = lt.merge(parts)
        for last in (100, 900, 5000):
            inside = np.sort(values[ticks > ticks[-1] - last])
            q = float(np.random.default_rng([seed, last]).random())
            answer = sketch.quantile(q, last=last)
            truth = quantile(inside, q)
            bottom, top = (np.searchsorted(inside, answer.value + step) / inside.size for step in (-0.001, 0.001))
            error = max(bottom - q, q - top, 0)
            errors.append(error)
            off += error > eps
            x = float(inside[seed * 7 % inside.size])
            exact = int((inside <= x).sum())
            off += abs(sketch.rank(x, last=last).value - exact) > eps * inside.size + 2
            outside += (truth not in answer) + (exact not in sketch.rank(x, last=last))
    assert off <= hoeffding(6 * seeds, delta)
    assert outside <= hoeffding(6 * seeds, delta)
    assert off + outside <= 1  # the proof is careful
    assert np.mean(errors) < 0.2 * eps


# -- merging, bytes, time ----------------------------------------------------------------------------------------------


@settings(max_examples=settings().max_examples // 2 + 1)
@given(inputs=st.lists(streams(most=200, cells=30), min_size=1, max_size=4), grid=grids)
def test_merged_sketches_bound_the_union(inputs, grid):
    sites, values, ticks = [], [], []
    for i, stream in enumerate(inputs):
        site = build(grid, eps=0.5)
        numbers = numbers_of(stream, grid, i)
        site.update(numbers, stream.ticks)
        sites.append(site)
        values.append(numbers)
        ticks.append(stream.ticks)
    merged = lt.merge(sites)
    start = max(int(column[-1]) for column in ticks) - merged.window.span
    assert merged.merges == (sum(column[-1] >= start for column in ticks) > 1)  # old ones add nothing, and cost nothing
    for one in (merged, lt.from_bytes(merged.to_bytes())):
        values_, ticks_ = np.concatenate(values), np.concatenate(ticks)
        now = int(ticks_.max())
        for last in (300, 1000):
            inside = values_[ticks_ > now - last]
            for q, answer in one.quantile(SHARES, last=last):
                assert quantile(inside, q) in answer
            for x in points(grid, values_)[:3]:
                assert int((inside <= x).sum()) in one.rank(x, last=last)


@pytest.mark.parametrize("outside", ["reject", "clip"])
@pytest.mark.parametrize("grid", [*GRIDS[:-1], (0, 70, np.float32(0.7)), (Fraction(1, 3), 5, Fraction(1, 7))])
def test_bytes_bring_back_the_same(grid, outside):
    sketch = build(grid, outside=outside, lateness="10s", window="1h", merge_height=2, delta=0.3)
    lo, hi, _ = grid
    sketch.update(np.linspace(float(lo), float(hi), 200), np.arange(200), np.arange(200))
    for twin in (lt.from_bytes(sketch.to_bytes()), pickle.loads(pickle.dumps(sketch)), sketch.copy()):
        assert twin.to_bytes() == sketch.to_bytes()
        assert (twin.lo, twin.hi, twin.resolution) == (sketch.lo, sketch.hi, sketch.resolution) == tuple(map(float, grid))
        assert twin.quantile(SHARES) == sketch.quantile(SHARES)
        assert twin.rank(float(lo) + 0.1, last="2m") == sketch.rank(float(lo) + 0.1, last="2m")
        if outside == "clip":
            twin.update(float(hi) + 1e6, 300)
        else:
            with pytest.raises(lt.InputError, match="lies outside"):
                twin.update(float(hi) + 1e6, 300)


def test_windows_of_arrivals_and_what_comes_late():
    sketch = build(window=lt.arrivals(10))
    sketch.update(np.arange(50))
    assert (sketch.quantile(0.0).low, sketch.quantile(1.0).low) == (40, 49)
    assert sketch.rank(44.6).low == 5
    assert sketch.quantile(0.5, last=4).low == 47
    patient = build(window=100, lateness=20)
    patient.update([5.0, 7.0], [50, 31])
    patient.update([6.0, 8.0], [30, 29])
    assert (patient.late, patient.total().value, patient.quantile(0.0).low) == (1, 3, 5)
    assert patient.rank(6.6).low == patient.rank(6.6).high == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lo": 1}, "lo is 0.0 in one and 1.0"),
        ({"hi": 50}, "universe is 120 in one and 100"),
        ({"resolution": 0.25}, "universe is 120 in one and 240"),
        ({"hi": 59.9}, "hi is 60.0 in one and 59.9"),
        ({"outside": "clip"}, "clip is False in one and True"),
        ({"eps": 0.2}, "eps is 0.3 in one and 0.2"),
    ],
)
def test_merging_says_what_differs(change, says):
    if change == {"lo": 1}:
        change = {"lo": 1, "hi": 61}
    with pytest.raises(lt.MergeError, match=says):
        lt.merge([build(), build(**change)])


def test_counts_are_arrivals():
    sketch = build()
    sketch.update([10, 20, 30], [1, 2, 3], [5, 0, 5])
    assert sketch.total().value == 10
    assert sketch.quantile(0.5).low == 10
    assert sketch.rank(25).value == 5
    assert sketch.count_range(15, 25).high == 0


def test_numbers_are_taken_from_any_column():
    from decimal import Decimal

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    expected = None
    for values in (
        [1.5, 2, 3],
        (1.5, 2, 3),
        np.array([1.5, 2, 3], np.float32),
        pd.Series([1.5, 2, 3]),
        pd.Series([1.5, 2, 3], dtype="Float64"),
        pl.Series([1.5, 2, 3]),
        pa.array([1.5, 2, 3]),
        pa.chunked_array([[1.5], [2.0, 3.0]]),
        [Decimal("1.5"), 2, Fraction(3)],
    ):
        sketch = build()
        sketch.update(values, [1, 2, 3])
        expected = expected or sketch.to_bytes()
        assert sketch.to_bytes() == expected
    one = build()
    for value, time in ((1.5, 1), (np.int64(2), 2), (np.float32(3), 3)):
        one.update(value, time)
    assert one.to_bytes() == expected


def test_an_empty_sketch_answers_nothing_seen():
    sketch = build(window="1h")
    for one in (sketch, lt.merge([sketch, sketch]), lt.from_bytes(sketch.to_bytes())):
        for answer in (one.total(), one.rank(5), one.count_range(3, 9)):
            assert (answer.low, answer.value, answer.high) == (0, 0, 0)
        with pytest.raises(lt.RangeError, match="no arrivals in this range"):
            one.quantile(0.5)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lo": 60}, "lo=60, hi=60, resolution=0.5; give lo < hi"),
        ({"lo": 61}, "lo=61, hi=60"),
        ({"lo": float("nan")}, "lo=nan; give a finite number"),
        ({"lo": -float("inf")}, "lo=-inf; give a finite number"),
        ({"hi": float("inf")}, "hi=inf; give a finite number"),
        ({"hi": "60"}, "hi='60'; give a finite number"),
        ({"hi": None}, "hi=None; give a finite number"),
        ({"hi": True}, "hi=True"),
        ({"hi": 10**400}, "hi=1000"),
        ({"lo": -1.7e308, "hi": 1.7e308}, "lo|resolution"),
        ({"hi": 1e300, "resolution": 1e-300}, "resolution=1e-300"),
        ({"resolution": 0}, "resolution=0"),
        ({"resolution": -1}, "resolution=-1"),
        ({"resolution": 61}, "resolution=61"),
        ({"resolution": float("nan")}, "resolution=nan; give a finite number"),
        ({"resolution": 1e-15}, "resolution=1e-15 makes .* steps from 0 to 60; give a coarser one"),
        ({"outside": "drop"}, "outside='drop'; give 'reject' or 'clip'"),
        ({"outside": None}, "outside=None"),
        ({"eps": 0}, "eps=0"),
        ({"delta": 1}, "delta=1"),
        ({"window": "soon"}, "cannot read the duration 'soon'"),
        ({"merge_height": -1}, "merge_height=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"eps": 1e-7, "resolution": 1e-9}, "cells; give a larger eps"),
    ],
)
def test_what_cannot_be_built_is_refused(options, says):
    with pytest.raises(lt.ParameterError, match=says):
        build(**options)


@pytest.mark.parametrize("outside", ["reject", "clip"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([5, float("nan")], [10, 11]), "values has the value nan; fill or drop it first"),
        (([5, float("inf")], [10, 11]), "values has the value inf"),
        (([5, -float("inf")], [10, 11]), "values has the value -inf"),
        (([5, None], [10, 11]), "nan|None"),
        ((["a", "b"], [10, 11]), "give numbers"),
        ((["5", "6"], [10, 11]), "give numbers"),
        ((np.array(["5", "6"], object), [10, 11]), "give numbers"),
        (([b"5", b"6"], [10, 11]), "give numbers"),
        (([5, "6"], [10, 11]), "give numbers"),
        (([True, False], [10, 11]), "give numbers"),
        (([5.0, True], [10, 11]), "give numbers"),
        ((np.array([5, True], object), [10, 11]), "give numbers"),
        (([5, 1j], [10, 11]), "give numbers"),
        ((np.array([5, 6], "m8[ns]"), [10, 11]), "give numbers"),
        ((np.array([5, 6], "M8[ns]"), [10, 11]), "give numbers"),
        (([[1, 2], [3, 4]], [10, 11]), "2 dimensions; give one column"),
        (([[1, 2], [3]], [10, 11]), "cannot read values"),
        ((np.ma.array([1.0, 2.0], mask=[0, 1]), [10, 11]), "1 of the values are masked"),
        (([], []), "empty column"),
        (([5, 6], [10]), "2 keys but 1 times|2 values but 1 times"),
        (([5, 6], [10, 11], [1, -1]), "-1"),
        (([5, 6], None), "times is None"),
    ],
)
def test_bad_batches_are_refused_whole(outside, arguments, says):
    sketch = build(outside=outside)
    sketch.update([1, 60, 0], [1, 5, 9])
    before = sketch.to_bytes()
    with pytest.raises(lt.InputError, match=says):
        sketch.update(*arguments)
    assert sketch.to_bytes() == before


@pytest.mark.parametrize(("value", "text"), [(60.001, "60.001"), (-0.5, "-0.5"), (1e300, "1e\\+300")])
def test_numbers_outside_are_refused_unless_clipped(value, text):
    sketch, clipping = build(), build(outside="clip")
    for one in (sketch, clipping):
        one.update([1, 2], [1, 2])
    before = sketch.to_bytes()
    with pytest.raises(lt.InputError, match=f"the value {text} lies outside of 0..60; filter it, or build with outside='clip'"):
        sketch.update([5, value, 6], [3, 4, 5])
    assert sketch.to_bytes() == before
    clipping.update([5, value, 6], [3, 4, 5])
    assert clipping.total().value == 5


def test_nulls_in_columns_are_refused():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    sketch = build()
    for values in (
        pa.array([1.5, None]),
        pl.Series([1.5, None]),
        pd.Series([1.5, None], dtype="Float64"),
        pd.Series([1, None]),
    ):
        with pytest.raises(lt.InputError, match=r"null|NA|nan"):
            sketch.update(values, [10, 11])
    assert sketch.now is None


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda s: s.quantile(1.5), lt.ParameterError, "q=1.5; give a share from 0 to 1"),
        (lambda s: s.quantile([0.5, -1]), lt.ParameterError, "q=\\[0.5, -1\\]"),
        (lambda s: s.quantile([]), lt.ParameterError, "q=\\[\\]"),
        (lambda s: s.quantile("p99"), lt.ParameterError, "q='p99'"),
        (lambda s: s.quantile(0.5, between=(50, 20)), lt.RangeError, "no arrivals in this range"),
        (lambda s: s.quantile(0.5, last=5000), lt.RangeError, "does not lie in the window"),
        (lambda s: s.rank(float("nan")), lt.InputError, "nan"),
        (lambda s: s.rank("a"), lt.InputError, "give numbers"),
        (lambda s: s.rank(None), lt.InputError, "."),
        (lambda s: s.rank([1, 2]), lt.InputError, "."),
        (lambda s: s.rank([]), lt.InputError, "."),
        (lambda s: s.rank(5, last=5000), lt.RangeError, "does not lie in the window"),
        (lambda s: s.count_range(5, 4), lt.RangeError, r"count_range\(5, 4\) runs backwards; give the smaller number first"),
        (lambda s: s.count_range(5, float("nan")), lt.InputError, "nan"),
        (lambda s: s.count_range([], 5), lt.InputError, "."),
        (lambda s: s.count_range([1, 2], 5), lt.InputError, "."),
        (lambda s: s.plot(points=1), lt.ParameterError, "points=1 is not an integer from 2 to 10,000"),
        (lambda s: s.plot(points=2.5), lt.ParameterError, "points=2.5"),
    ],
)
def test_bad_questions_are_refused(ask, error, says):
    sketch = build()
    sketch.update([1, 60, 0], [1, 5, 9])
    with pytest.raises(error, match=says):
        ask(sketch)


def test_a_curve_is_drawn_and_it_says_what_it_is():
    from matplotlib.figure import Figure

    sketch = build()
    sketch.update(np.arange(50), 1)
    ax = sketch.plot(points=5, ax=Figure().subplots())
    assert any(len(line.get_xdata()) == 5 for line in ax.lines)
    assert repr(sketch).startswith(
        "Quantiles(Window(1000, tick=1), eps=0.3, lo=0, hi=60, resolution=0.5, delta=1e-07, merges=0"
    )
