"""Every counter family against the window that keeps everything: bounds hold, eps holds, merging and bytes keep both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveHistogram, NaiveWave, hoeffding, replayed
from streams import FAMILIES, cuts, epsilons, make, spans, streams

from lately.core.codec import Reader, Writer
from lately.core.plan import counter_bytes
from lately.counters.exphist import ExponentialHistogram
from lately.counters.families import counter_array
from lately.counters.wave import Wave

DETERMINISTIC = ("wave", "exphist", "exact")
POSITIONAL = {"wave": Wave, "exphist": ExponentialHistogram}


def build(family, stream, span, eps, pieces=(), salt=1):
    """A counter array fed with a stream, and the stamp of its newest arrival."""
    array = counter_array(family, 3, span, eps, delta=0.05, salt=salt)
    origin = int(stream.ticks[0]) - 2 * span - 2
    for piece in stream.pieces(pieces):
        array.add(piece.cells, (piece.ticks - origin).astype(np.uint32), piece.counts)
    return array, int(stream.ticks[-1]) - origin, (stream.ticks - origin).astype(np.int64)


def truth(stream, stamps, since):
    return np.bincount(stream.cells, stream.weights * (stamps >= since), minlength=3).astype(np.int64)


def stamps_asked(now, span, seed):
    inside = np.random.default_rng(seed).integers(now - span, now + 1, 12)
    return [now - span, now - 1, now, now + 1, *inside.tolist()]


def assert_within(bounds, exact, eps):
    assert (bounds.low <= exact).all()
    assert (exact <= bounds.high).all()
    assert (np.abs(bounds.value - exact) <= eps * exact + 1e-9).all()


@pytest.mark.parametrize("family", DETERMINISTIC)
@given(stream=streams(), span=spans, eps=epsilons, pieces=cuts)
def test_bounds_are_certain_and_eps_holds(family, stream, span, eps, pieces):
    array, now, stamps = build(family, stream, span, eps, pieces)
    for since in stamps_asked(now, span, len(stream)):
        if since >= 1:
            assert_within(array.all_since(since), truth(stream, stamps, since), eps if family != "exact" else 0)


@pytest.mark.parametrize("family", ["wave", "exphist"])
@pytest.mark.parametrize("eps", [0.9, 0.5, 0.3, 0.15, 0.1, 0.05, 0.02, 0.01])
def test_eps_holds_for_every_range_of_a_steady_stream(family, eps):
    """No luck involved: every boundary that there is, at moments where n is round, odd, and one off."""
    for n in (1, 63, 1024, 1025, 4095, 20_000):
        array = counter_array(family, 1, 10**6, eps)
        array.add(np.zeros(n, np.uint32), np.arange(2_000_001, 2_000_001 + n, dtype=np.uint32))
        for exact in range(n + 1):
            (low,), (value,), (high,) = array.all_since(2_000_001 + n - exact)
            assert low <= exact <= high
            assert abs(value - exact) <= eps * exact


@pytest.mark.parametrize("family", FAMILIES)
@given(stream=streams(most=200), span=spans, eps=st.sampled_from([0.5, 0.3]), pieces=cuts)
def test_state_does_not_depend_on_batches(family, stream, span, eps, pieces):
    written = []
    for split in ((), pieces):
        array, now, _ = build(family, stream, span, eps, split)
        out = Writer()
        array.write(out, now)
        written.append(out.bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("merged", [False, True])
@given(stream=streams(most=200), span=spans, eps=st.sampled_from([0.5, 0.3]), share=st.floats(0, 1))
def test_rebasing_moves_stamps_and_nothing_else(family, merged, stream, span, eps, share):
    array, now, _ = build(family, stream, span, eps)
    if merged:
        array = array.merged([array], [0, 0], now - span)
    shift = int(share * (now - span - 1))  # everything inside the window stays after the new origin
    moved = array.copy()
    moved.rebase(shift)
    for since in stamps_asked(now, span, 8):
        for mine, its in zip(array.all_since(since), moved.all_since(since - shift), strict=True):
            assert (mine == its).all()
    more = make(6, 60, 3, 2, 0, start=now)
    array.add(more.cells, more.ticks.astype(np.uint32))
    moved.add(more.cells, (more.ticks - shift).astype(np.uint32))
    written = []
    for one, end in ((array, int(more.ticks[-1])), (moved, int(more.ticks[-1]) - shift)):
        out = Writer()
        one.write(out, end)
        written.append(out.bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("family", FAMILIES)
@given(stream=streams(most=200), span=spans, eps=st.sampled_from([0.5, 0.3]))
def test_bytes_bring_the_same_answers_back(family, stream, span, eps):
    array, now, _ = build(family, stream, span, eps)
    out = Writer()
    array.write(out, now)
    twin = counter_array(family, 3, span, eps, delta=0.05, salt=9)
    source = Reader(memoryview(out.bytes()), 2**30)
    twin.read(source, now, now, int(stream.weights.sum()))
    source.finish()
    for since in stamps_asked(now, span, 1):
        for mine, its in zip(array.all_since(since), twin.all_since(since), strict=True):
            assert (mine == its).all()
    again = Writer()
    twin.write(again, now)
    assert again.bytes() == out.bytes()
    # and the twin goes on counting as the original would
    more = make(5, 50, 3, 2, 0, start=now)
    for one in (array, twin):
        one.add(more.cells, more.ticks.astype(np.uint32))
    end = int(more.ticks[-1])
    for since in stamps_asked(end, span, 2):
        for mine, its in zip(array.all_since(since), twin.all_since(since), strict=True):
            assert (mine == its).all()


@pytest.mark.parametrize("family", ["wave", "exphist"])
@given(inputs=st.lists(streams(most=250), min_size=1, max_size=5), span=spans, eps=epsilons, levels=st.integers(1, 3))
def test_merging_keeps_bounds_and_the_error_of_theorem_4(family, inputs, span, eps, levels):
    arrays, shifts, origin = [], [], max(int(s.ticks[-1]) for s in inputs) - 2 * span - 2
    for i, stream in enumerate(inputs):
        array, _, _ = build(family, stream, span, eps, salt=i)
        arrays.append(array)
        shifts.append(int(stream.ticks[0]) - 2 * span - 2 - origin)
    now = 2 * span + 2
    merged = arrays[0].merged(arrays[1:], shifts, now - span)
    height = 1
    for _ in range(levels - 1):  # a tree: the merged one with itself again and again, twice the arrivals each time
        merged = merged.merged([merged], [0, 0], now - span)
        height += 1
    assert merged.height == height
    times = 2 ** (height - 1)
    for since in stamps_asked(now, span, 3):
        exact = times * sum(truth(s, s.ticks - origin, since) for s in inputs)
        low, value, high = merged.all_since(since)
        assert (low <= exact).all()
        assert (exact <= high).all()
        # ECM-15 adds the levels up to h·eps(1 + eps) + eps; what the proof gives for every h is (1 + eps)^(h + 1) - 1.
        assert (np.abs(value - exact) <= ((1 + eps) ** (height + 1) - 1) * exact + 1e-9).all()


@pytest.mark.parametrize("family", ["wave", "exphist"])
@given(inputs=st.lists(streams(most=250), min_size=2, max_size=4), span=spans, eps=epsilons)
def test_merging_replays_a_part_of_each_segment_at_either_end(family, inputs, span, eps):
    arrays, shifts, origin = [], [], max(int(s.ticks[-1]) for s in inputs) - 2 * span - 2
    logs = [[] for _ in range(3)]
    now = 2 * span + 2
    for stream in inputs:
        array, _, _ = build(family, stream, span, eps)
        shift = int(stream.ticks[0]) - 2 * span - 2 - origin
        arrays.append(array)
        shifts.append(shift)
        for c in range(3):
            start, end, size = array.segments(c, max(1, now - span - shift))
            starts = [int(s) + shift if s > 0 else None for s in start]
            logs[c].append((starts, [int(e) + shift for e in end], size.tolist()))
    merged = arrays[0].merged(arrays[1:], shifts, now - span)
    for c in range(3):
        points = [(t, w) for t, w in replayed(logs[c]) if t >= now - span]
        for since in stamps_asked(now, span, 4):
            expected = sum(w for t, w in points if t >= since)
            low, _, high = merged._since(np.array([c], np.uint32), np.uint32(since))
            assert low[0] <= expected <= high[0]


@given(stream=streams(most=150), span=spans, eps=epsilons)
def test_wave_retains_what_the_papers_wave_retains(stream, span, eps):
    array, now, stamps = build("wave", stream, span, eps)
    for c in range(3):
        twin = NaiveWave(array.capacity)
        for stamp, count in zip(stamps[stream.cells == c].tolist(), stream.weights[stream.cells == c].tolist(), strict=True):
            twin.add(stamp, min(count, 50))
        if (stream.weights > 50).any():
            continue
        for since in stamps_asked(now, span, 5):
            low, _, high = array.since(np.array([c], np.uint32), since)
            naive_low, naive_high = twin.since(since)
            # Few levels can only retain more than many do: never less.
            assert naive_low <= low[0] <= high[0] <= naive_high


@given(stream=streams(most=120), eps=epsilons)
def test_exponential_histogram_has_the_papers_buckets_and_invariant_1_after_each_step(stream, eps):
    span = 10**6  # nothing leaves the window
    array = ExponentialHistogram(1, span, eps)
    twin = NaiveHistogram(array.k)
    for tick, count in zip((stream.ticks + 2 * span + 2).tolist(), np.minimum(stream.weights, 40).tolist(), strict=True):
        array.add(np.zeros(1, np.uint32), np.array([tick], np.uint32), np.array([count]))
        twin.add(tick, count)
        _, end, size = array.segments(0)
        assert [[s, e] for s, e in zip(size[::-1].tolist(), end[::-1].tolist(), strict=True)] == twin.buckets
        newer = np.cumsum(size[::-1]) - size[::-1]
        large = size[::-1] > 1  # a bucket of one arrival cannot be cut
        assert (size[::-1][large] <= 2 * eps * (1 + newer[large]) + 1e-9).all()


@given(stream=streams(most=300), span=st.sampled_from([7, 60, 900]), eps=epsilons, weighted=st.booleans())
def test_invariant_1_holds_while_buckets_leave_the_window(stream, span, eps, weighted):
    array = ExponentialHistogram(1, span, eps)
    for tick, count in zip((stream.ticks + 2 * span + 2).tolist(), np.minimum(stream.weights, 300).tolist(), strict=True):
        if weighted:
            array.add(np.zeros(1, np.uint32), np.array([tick], np.uint32), np.array([count]))
        else:
            array.add(np.zeros(count, np.uint32), np.full(count, tick, np.uint32))
        size = array.segments(0, tick - span).size[::-1]
        newer = np.cumsum(size) - size
        assert (size[size > 1] <= 2 * eps * (1 + newer[size > 1]) + 1e-9).all()


@pytest.mark.parametrize("family", ["wave", "exphist", "exact"])
@given(stream=streams(most=80), span=spans, eps=epsilons)
def test_a_weight_counts_as_so_many_arrivals(family, stream, span, eps):
    weights = np.minimum(stream.weights, 60)
    origin = int(stream.ticks[0]) - 2 * span - 2
    stamps = (stream.ticks - origin).astype(np.uint32)
    heavy, single = (counter_array(family, 3, span, eps) for _ in range(2))
    heavy.add(stream.cells, stamps, weights)
    single.add(np.repeat(stream.cells, weights), np.repeat(stamps, weights))
    now = int(stamps[-1])
    for since in stamps_asked(now, span, 6):
        for mine, its in zip(heavy.all_since(since), single.all_since(since), strict=True):
            assert (mine == its).all()


@pytest.mark.parametrize("family", ["wave", "exphist"])
@given(stream=streams(), span=spans, eps=epsilons, pieces=cuts)
def test_extend_is_add_to_cell_0(family, stream, span, eps, pieces):
    origin = int(stream.ticks[0]) - 2 * span - 2
    one, other = (POSITIONAL[family](1, span, eps) for _ in range(2))
    for piece in stream.pieces(pieces):
        stamps = (piece.ticks - origin).astype(np.uint32)
        one.extend(stamps, piece.counts)
        other.add(np.zeros(len(piece), np.uint32), stamps, piece.counts)
    now = int(stream.ticks[-1]) - origin
    written = []
    for array in (one, other):
        out = Writer()
        array.write(out, now)
        written.append(out.bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_weight_of_a_million_million_is_quick_and_right(family):
    array = counter_array(family, 1, 1000, 0.3, delta=0.05, salt=3)
    for stamp in range(3000, 3010):
        array.add(np.zeros(1, np.uint32), np.array([stamp], np.uint32), np.array([10**12]))
    for since, exact in ((3000, 10**13), (3005, 5 * 10**12), (3009, 10**12), (3010, 0)):
        assert_within(array.all_since(since), np.array([exact]), 0.3)
    assert array.nbytes < 10**6


@pytest.mark.parametrize("family", FAMILIES)
@given(stream=streams(), eps=st.sampled_from([0.5, 0.3]))
def test_memory_stays_within_the_plan(family, stream, eps):
    array, _, _ = build(family, stream, 10**6, eps)
    arrivals = int(np.bincount(stream.cells, stream.weights).max()) or 1
    planned = counter_bytes(family, eps, 0.05, arrivals if family != "exact" else len(stream), 6)
    assert array.nbytes <= planned * (1 if family == "exact" else 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_memory_stays_bounded_as_the_window_slides(family):
    rng = np.random.default_rng(0)
    array = counter_array(family, 4, 1000, 0.3, delta=0.2, salt=5)
    sizes = []
    for block in range(30):
        stamps = np.arange(3000 + 1000 * block, 4000 + 1000 * block, dtype=np.uint32)
        array.add(rng.integers(0, 4, 1000).astype(np.uint32), stamps)
        sizes.append(array.nbytes)
    assert max(sizes[10:]) <= max(sizes[:10])


def test_randomized_waves_fail_no_more_often_than_delta():
    """c = 36 is the proven constant; counted over independent salts with Hoeffding's slack."""
    for samples, delta in ((36, 0.2), (6, 0.2)):
        failures = trials = 0
        for salt in range(60):
            array = counter_array("randwave", 1, 10_000, 0.5, delta=delta, samples=samples, salt=salt)
            array.add(np.zeros(20_000, np.uint32), np.arange(20_001, 40_001, dtype=np.uint32))
            for exact in (50, 700, 5000, 10_000):
                (low,), (value,), (high,) = array.all_since(40_001 - exact)
                failures += not (low <= exact <= high and abs(value - exact) <= 0.5 * exact)
                trials += 1
        assert failures <= hoeffding(trials, delta)


def test_randomized_waves_are_unbiased_and_as_spread_as_their_sample():
    """The samples must be binomial: a median of 400 estimates lies at the truth, and their spread is what c/eps² buys."""
    values = []
    for salt in range(400):
        array = counter_array("randwave", 1, 10**6, 0.5, delta=0.9, samples=6, salt=salt)
        assert array.repetitions == 1
        array.add(np.zeros(4000, np.uint32), np.arange(2_000_003, 2_004_003, dtype=np.uint32))
        values.append(int(array.all_since(1).value[0]))
    assert abs(np.mean(values) - 4000) < 5 * 4000 * 0.2 / np.sqrt(400)
    assert np.std(values) < 4000 * 0.2 * 1.2  # a sample of 24 or more has a relative spread below 1/√24 = 0.204


def test_weighted_and_single_arrivals_are_sampled_alike():
    """The binomial shortcut for weights has the distribution of as many single arrivals."""
    spread = {}
    for weighted in (False, True):
        values = []
        for salt in range(300):
            array = counter_array("randwave", 1, 10**6, 0.5, delta=0.9, samples=6, salt=salt)
            if weighted:
                array.add(np.zeros(4, np.uint32), np.full(4, 2_000_003, np.uint32), np.full(4, 1000))
            else:
                array.add(np.zeros(4000, np.uint32), np.full(4000, 2_000_003, np.uint32))
            values.append(int(array.all_since(1).value[0]))
        spread[weighted] = (np.mean(values), np.std(values))
    assert abs(spread[True][0] - spread[False][0]) < 5 * 800 / np.sqrt(300) * np.sqrt(2)
    assert 0.75 < spread[True][1] / spread[False][1] < 1.33


@given(inputs=st.lists(streams(most=300), min_size=2, max_size=4), span=spans)
def test_merging_randomized_waves_loses_nothing(inputs, span):
    """Whatever the tree, the merged samples are the same: grouping cannot change a single bit of an answer."""
    origin = max(int(s.ticks[-1]) for s in inputs) - 2 * span - 2
    now = 2 * span + 2
    arrays, shifts = [], []
    for i, stream in enumerate(inputs):
        array, _, _ = build("randwave", stream, span, 0.5, salt=i)
        arrays.append(array)
        shifts.append(int(stream.ticks[0]) - 2 * span - 2 - origin)
    flat = arrays[0].merged(arrays[1:], shifts, now - span)
    tree = arrays[0].merged(arrays[1:2], shifts[:2], now - span)
    for array, shift in zip(arrays[2:], shifts[2:], strict=True):
        tree = tree.merged([array], [0, shift], now - span)
    for since in stamps_asked(now, span, 7):
        exact = sum(truth(s, s.ticks - origin, since) for s in inputs)
        for mine, its in zip(flat.all_since(since), tree.all_since(since), strict=True):
            assert (mine == its).all()
        assert (np.abs(flat.all_since(since).value - exact) <= 0.75 * exact).all()
