"""Fast-AMS over a window against exact counts: certain where it says certain, within eps as often as it says.

Shared waves, the default counter, are in ``test_dithered``.
"""

import math

import numpy as np
import pytest
from ecm_cases import KINDS, duration, feed, first_tick
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, fast_ams, hoeffding, inner_product, second_moment
from streams import cuts, make, streams

import lately as lt
from lately.core.plan import ams_size, merged_error
from lately.sketches.fourwise import signed_cells
from lately.sketches.windowed_ams import Rows

COUNTERS = ("wave", "exphist", "exact")
WINDOWS = st.sampled_from([5, 60, 5000])


def build(kind, window, **options):
    """An empty sketch over a window of so many ticks of this kind, with its naive twin."""
    options = {"eps": 0.8, "delta": 0.01, "counter": "wave"} | options
    if kind == "arrivals":
        return lt.WindowedAmsSketch(window=lt.arrivals(window), **options), NaiveWindow(window - 1)
    return lt.WindowedAmsSketch(window=duration(kind, window), **options), NaiveWindow(window)


def questions(kind, twin, window, shares):
    """Ranges as they are asked, and the exact frequencies in them."""
    older, newer = sorted((int(share * window) for share in shares), reverse=True)
    ages = duration(kind, older), duration(kind, newer)
    yield {}, twin.frequencies(first_tick(kind, twin, window))
    yield {"last": ages[0]}, twin.frequencies(first_tick(kind, twin, older))
    stop = first_tick(kind, twin, newer) if newer else None
    yield {"between": ages}, twin.frequencies(first_tick(kind, twin, older), stop)


def exact_rows(sketch, frequencies):
    return fast_ams(frequencies, sketch._words, sketch.width).astype(float)


def test_there_is_a_median_to_speak_of():
    assert build("integer", 100)[0].depth == 5


def near(sketch):
    """The share by which the table alone may be off."""
    return sketch.eps / 2


@given(st.lists(st.tuples(*[st.integers(-9, 9)] * 6), min_size=1, max_size=3))
def test_sums_over_intervals_hold_all_that_can_be_and_no_more(numbers):
    """Squares and products of numbers that are only known to lie between two others, by trying all of them."""
    mine, its = [tuple(sorted(row[:3])) for row in numbers], [tuple(sorted(row[3:])) for row in numbers]
    left, right = (Rows(*np.array(cells, float).T[:, None]) for cells in (mine, its))

    def inside(cells):
        return [range(low, high + 1) for low, _, high in cells]

    squares = [{x * x for x in cell} for cell in inside(mine)]
    products = [{x * y for x in one for y in other} for one, other in zip(inside(mine), inside(its), strict=True)]
    for found, possible, value in (
        (left.squared(), squares, sum(x * x for _, x, _ in mine)),
        (left.times(right), products, sum(x[1] * y[1] for x, y in zip(mine, its, strict=True))),
    ):
        assert found.medians() == (sum(map(min, possible)), value, sum(map(max, possible)))


@pytest.mark.parametrize("kind", KINDS)
@given(stream=streams(most=120, cells=40), window=WINDOWS, pieces=cuts, shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_exact_counters_leave_the_plain_fast_ams(kind, stream, window, pieces, shares):
    sketch, twin = build(kind, window, counter="exact")
    feed(sketch, twin, stream, pieces)
    for question, frequencies in questions(kind, twin, window, shares):
        plain = sketch._plain()
        if frequencies:
            plain.update(list(frequencies), counts=list(frequencies.values()))
        assert (plain.table == exact_rows(sketch, frequencies)).all()
        assert sketch.self_join(**question) == plain.self_join()
        assert sketch.range_sum(range(3, 30), **question).value == max(plain.range_sum(range(3, 30)).value, 0)
        weighted = [1, 7, 2], [2, -5, 1]
        assert sketch.range_sum(weighted[0], weights=weighted[1], **question) == plain.range_sum(
            weighted[0], weights=weighted[1]
        )
        assert sum(frequencies.values()) in sketch.total(**question)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counter", COUNTERS)
@given(stream=streams(most=120, cells=40), window=WINDOWS, pieces=cuts, shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_bounds_hold_the_exact_median_for_certain(kind, counter, stream, window, pieces, shares):
    """What the counters may be off by is not left to chance; only the table's own error is."""
    sketch, twin = build(kind, window, counter=counter)
    feed(sketch, twin, stream, pieces)
    for question, frequencies in questions(kind, twin, window, shares):
        exact = exact_rows(sketch, frequencies)
        own = sketch.self_join(**question)
        median = np.median((exact**2).sum(axis=1))
        rounding = 1e-9 * (1 + own.high)
        assert own.low * (1 + near(sketch)) <= median + rounding
        assert median - rounding <= own.high * (1 - near(sketch))
        product = sketch.inner_product(sketch, **question)
        off = near(sketch) * own.high
        assert product.low <= max(median - off, 0) + rounding
        assert median + off - rounding <= product.high
        weights = {key: 2 - key % 3 * 3 for key in range(10)}
        vector = exact_rows(sketch, weights)
        found = sketch.range_sum(list(weights), weights=list(weights.values()), **question)
        median, off = np.median((exact * vector).sum(axis=1)), near(sketch) * math.sqrt(own.high * second_moment(weights))
        assert found.low - rounding <= median - off
        assert median + off <= found.high + rounding
        for answer in (own, product, found):
            assert answer.low <= answer.value <= answer.high


@pytest.mark.parametrize("counter", ["wave", "exphist"])
@pytest.mark.parametrize("sites", [1, 3])
@given(stream=streams(most=300, cells=20), share=st.floats(0, 1))
def test_the_window_costs_no_more_than_is_proved(counter, sites, stream, share):
    """(2s + s²)·|c|² of the largest row, where s is the error of the counters, also after a merge that was planned for."""
    twin = NaiveWindow(200)
    parts = []
    for site in range(sites):
        mine = slice(site, None, sites)
        sketch, _ = build("integer", 200, counter=counter, merge_height=int(sites > 1))
        if len(stream.ticks[mine]):
            sketch.update(stream.cells[mine], stream.ticks[mine], stream.weights[mine])
            parts.append(sketch)
    for tick, key, count in zip(stream.ticks.tolist(), stream.cells.tolist(), stream.weights.tolist(), strict=True):
        twin.add(tick, key, count)
    whole = lt.merge(parts) if sites > 1 else parts[0]
    s = math.sqrt(1 + near(whole)) - 1
    assert whole.error == merged_error(whole._shape.eps_sw, whole.merges)
    assert whole.error <= s + 1e-12
    age = int(share * 200)
    frequencies = twin.frequencies(twin.now - age + 1)
    exact = exact_rows(whole, frequencies)
    unsigned = fast_ams(frequencies, whole._words, whole.width, signed=False).astype(float)
    allowed = (2 * s + s * s) * (unsigned**2).sum(axis=1).max()
    assert allowed == pytest.approx(near(whole) * (unsigned**2).sum(axis=1).max())
    assert abs(whole.self_join(last=age).value - np.median((exact**2).sum(axis=1))) <= allowed * (1 + 1e-9) + 1e-6


def missed(build, streams, now, eps):
    """How often answers over many seeds are off by more than promised, and how often their bounds miss the truth."""
    off, outside, trials = [0, 0, 0], [0, 0, 0], 0
    for seed in range(60):
        a, b = build(seed)
        for last in (300, 2000):
            left, right = ({k: int(c) for k, c in enumerate(_recent(stream, now - last + 1))} for stream in streams)
            f2, product, some = second_moment(left), inner_product(left, right), sum(left[k] for k in range(10, 150))
            unsigned = [math.sqrt(_meeting(sketch, f)) for sketch, f in ((a, left), (b, right))]
            norms = [math.sqrt(f2), math.sqrt(second_moment(right))]
            for i, (answer, truth, allowed) in enumerate(
                (
                    (a.self_join(last=last), f2, f2 + unsigned[0] ** 2),
                    (a.inner_product(b, last=last), product, math.prod(norms) + math.prod(unsigned)),
                    (a.range_sum(range(10, 150), last=last), some, math.sqrt(140) * (norms[0] + 2 * unsigned[0])),
                )
            ):
                off[i] += abs(answer.value - truth) > eps / 2 * allowed
                outside[i] += truth not in answer
            trials += 1
    return off, outside, trials


def _recent(stream, start):
    return np.bincount(stream.cells[stream.ticks >= start], minlength=200)


def _meeting(sketch, frequencies):
    """|c|², the largest row's, as the sketch of the same hash functions without signs has it."""
    hashes, counts = lt.hash_keys(list(frequencies)), np.array(list(frequencies.values()))
    best = 0
    cells = np.empty(hashes.size, np.uint32)
    for row in range(sketch.depth):
        signed_cells(hashes, row, sketch._words, sketch._width, cells)
        best = max(best, int((np.bincount(cells >> 1, counts) ** 2).sum()))
    return best


@pytest.mark.parametrize("counter", ["wave", "exphist"])
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("delta", [0.2, 0.01])
def test_answers_miss_no_more_often_than_delta(counter, merged, delta):
    eps = 0.5
    both = make(1, 4000, 200, 1, 0), make(2, 4000, 200, 1, 0)
    now = int(max(stream.ticks[-1] for stream in both))

    def sketches(seed):
        for stream in both:
            parts = []
            for site in range(2 if merged else 1):
                sketch = lt.WindowedAmsSketch(
                    window=2000, eps=eps, delta=delta, seed=seed, counter=counter, merge_height=int(merged)
                )
                mine = slice(site, None, 2 if merged else 1)
                sketch.update(stream.cells[mine], stream.ticks[mine])
                sketch.advance(now)
                parts.append(sketch)
            yield lt.merge(parts) if merged else parts[0]

    off, outside, trials = missed(sketches, both, now, eps)
    assert max(off) <= hoeffding(trials, delta)
    assert outside[0] <= hoeffding(trials, delta)
    assert outside[1] <= hoeffding(trials, 3 * delta)
    assert outside[2] <= hoeffding(trials, 2 * delta)


@given(stream=streams(most=120, cells=20), lateness=st.sampled_from([1, 10, 90]), seed=st.integers(0, 999))
def test_lateness_sorts_in_what_comes_late(stream, lateness, seed):
    rng = np.random.default_rng(seed)
    order = np.argsort(stream.ticks + rng.integers(0, lateness + 1, len(stream)), kind="stable")
    held, _ = build("integer", 100, counter="exact", lateness=lateness)
    plain, _ = build("integer", 100, counter="exact")
    for part in np.array_split(order, 3):
        if part.size:
            held.update(stream.cells[part], stream.ticks[part], stream.weights[part])
    plain.update(stream.cells, stream.ticks, stream.weights)
    for question in ({}, {"last": 7}, {"between": (60, 20)}):
        assert held.self_join(**question) == plain.self_join(**question)
        assert (
            held.inner_product(plain, **question)
            == plain.inner_product(held, **question)
            == plain.inner_product(plain, **question)
        )
        assert held.range_sum(range(5), **question) == plain.range_sum(range(5), **question)
    assert held.late == 0
    assert lt.from_bytes(held.to_bytes()).self_join() == plain.self_join()
    assert lt.merge([held, held, held]).self_join().value == 9 * plain.self_join().value


def test_two_streams_are_compared_at_one_time():
    one, other = (lt.WindowedAmsSketch(window=100, eps=0.5, delta=0.1, counter="exact") for _ in range(2))
    assert one.inner_product(other).value == 0
    one.update(["a"] * 3, [10, 50, 60])
    other.update(["a", "b"], [60, 120])
    assert one.inner_product(other, last=71).value == 2  # since 50
    assert one.inner_product(other, last=50).value == 0
    assert one.inner_product(other, between=(71, 61)).value == 0
    assert one.inner_product(other, between=(71, 60)).value == 2


def test_streams_outlive_32_bits_of_ticks():
    sketch = lt.WindowedAmsSketch(window=500, eps=0.5, delta=0.3)
    for start in (0, 2**32 - 600, 2**33 + 5):
        sketch.update(np.arange(300) % 3, start + np.arange(300))
        assert 3 * 100**2 in sketch.self_join()
        assert sketch.self_join(last=3).value == 3


def test_arrivals_are_never_negative_and_neither_are_sums_of_them():
    for seed in range(30):
        one, other = (lt.WindowedAmsSketch(window=100, eps=0.9, delta=0.4, seed=seed) for _ in range(2))
        one.update(np.arange(100), np.zeros(100, int))
        other.update(np.arange(100, 200), np.zeros(100, int))
        product, some, taken = one.inner_product(other), one.range_sum([200, 201]), one.range_sum([200, 5], weights=[1, -1])
        assert 0 <= product.low <= product.value <= product.high
        assert 0 <= some.low <= some.value <= some.high
        assert taken.low < 0


def test_sizes_are_those_of_the_proof():
    for eps, delta, height in ((0.2, 0.05, 0), (0.5, 0.001, 2)):
        sketch = lt.WindowedAmsSketch(window="1h", eps=eps, delta=delta, merge_height=height, counter="wave")
        assert (sketch.width, sketch.depth) == ams_size(eps / 2, delta)
        assert sketch._parts[0].cells == 2 * sketch.width * sketch.depth
        s = merged_error(sketch._parts[0].eps, height)
        assert 2 * s + s * s == pytest.approx(eps / 2)
    exact = lt.WindowedAmsSketch(window="1h", eps=0.5, delta=0.1, counter="exact")
    assert (exact.error, exact.counter, exact.merges) == (0, "exact", 0)
    assert repr(exact).startswith("WindowedAmsSketch(Window('1h', tick='1s'), eps=0.5, delta=0.1, counter='exact', width=")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": 0}, "eps=0"),
        ({"eps": 1.0}, "eps=1.0"),
        ({"delta": 1}, "delta=1"),
        ({"window": "soon"}, "cannot read the duration 'soon'"),
        ({"window": lt.arrivals(5), "tick": 1}, "leave tick out"),
        ({"lateness": "2h"}, "lateness='2h' is negative or longer"),
        ({"counter": "bucket"}, "counter='bucket'; give one of"),
        ({"counter": "randwave"}, "randomized waves give no guarantee for self-joins"),
        ({"seed": -1}, "seed=-1"),
        ({"merge_height": -1}, "merge_height=-1"),
        ({"eps": 1e-6}, "cells; give a larger eps"),
    ],
)
def test_what_cannot_be_built_is_refused(options, says):
    with pytest.raises(lt.ParameterError, match=says):
        lt.WindowedAmsSketch(**({"window": "1h", "eps": 0.5, "delta": 0.3} | options))


def test_bad_input_is_refused_and_changes_nothing():
    sketch, _ = build("integer", 100)
    sketch.update(["a"], [5])
    before = sketch.to_bytes()
    for arguments, says in (
        ([[], []], "empty column"),
        ([["a"], [6], [-1]], "-1; a sliding window only adds"),
        ([["a", "b"], [6]], "2 keys but 1 times"),
        ([["a"], [6], [2**62]], "more than 2"),
    ):
        with pytest.raises(lt.InputError, match=says):
            sketch.update(*arguments)
    for question, says in (
        (lambda: sketch.range_sum([]), "no keys"),
        (lambda: sketch.range_sum(["a"], weights=[0.5]), "weights has the value 0.5"),
    ):
        with pytest.raises(lt.InputError, match=says):
            question()
    with pytest.raises(lt.RangeError):
        sketch.self_join(last=101)
    assert sketch.to_bytes() == before


def test_what_does_not_fit_is_refused():
    one, _ = build("integer", 100)
    for options, says in (
        ({"eps": 0.5}, "eps"),
        ({"delta": 0.3}, "delta"),
        ({"seed": 1}, "seed"),
        ({"window": 50}, "window"),
    ):
        other, _ = build("integer", options.pop("window", 100), **options)
        with pytest.raises(lt.MergeError, match=f"differ in {says}: .* build their sketches alike"):
            one.inner_product(other)
        with pytest.raises(lt.MergeError, match=says):
            lt.merge([one, other])
    with pytest.raises(lt.MergeError, match="EcmSketch; give two WindowedAmsSketches"):
        one.inner_product(lt.EcmSketch(window=100, eps=0.5, delta=0.1))
    last, _ = build("arrivals", 10)
    last.update(["a"])
    with pytest.raises(lt.MergeError, match="windows of arrivals cannot be merged"):
        lt.merge([last, last])
