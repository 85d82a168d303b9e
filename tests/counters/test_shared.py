"""Waves that share a row's rings: certain bounds for every cell, with an error that is a share of the row's arrivals."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveSharedRow
from streams import Stream, cuts, epsilons, make, spans, streams

from lately.core.codec import Reader, Writer
from lately.core.plan import shared_capacity
from lately.counters import shared
from lately.counters.shared import SharedWave
from lately.counters.shared_row import phases

CELLS = 9
STARTS = (0, 2, 3)  # rows of two, one and six cells
ROW_OF = np.array([0, 0, 1, 2, 2, 2, 2, 2, 2])

coarse = st.sampled_from([0.9, 0.5, 0.3, 0.1])


def weighed(stream, kind, seed):
    """The stream with weights up to a million, or a few huge ones among small ones."""
    rng = np.random.default_rng(seed)
    if kind == "as it is":
        return stream
    counts = rng.integers(0, 10**6 if kind == "large" else 4, len(stream))
    if kind == "huge":
        counts[rng.random(len(stream)) < 0.05] = 2**40
    return Stream(stream.ticks, stream.cells, counts)


weighted_streams = st.builds(
    weighed, streams(cells=CELLS), st.sampled_from(["as it is", "as it is", "large", "huge"]), st.integers(0, 99)
)


def origin_of(stream, span):
    return int(stream.ticks[0]) - 2 * span - 2


def build(stream, span, eps, pieces=()):
    """An array fed with a stream, the stamp of its newest arrival, and all stamps."""
    array = SharedWave(CELLS, span, eps, STARTS)
    stamps = stream.ticks - origin_of(stream, span)
    for piece in stream.pieces(pieces):
        array.add(piece.cells, (piece.ticks - origin_of(stream, span)).astype(np.uint32), piece.counts)
    return array, int(stamps[-1]), stamps


def truth(stream, stamps, since):
    counted = np.zeros(CELLS, np.int64)
    np.add.at(counted, stream.cells[stamps >= since], stream.weights[stamps >= since])
    return counted


def every_suffix(stamps, now, span):
    """Each stamp at which an answer can change, inside the window."""
    edges = {now - span, now, now + 1} | {int(s) for s in stamps} | {int(s) + 1 for s in stamps}
    return sorted(s for s in edges if s >= max(1, now - span))


def some_suffixes(stamps, now, span, seed=0):
    edges = every_suffix(stamps, now, span)
    return sorted({edges[0], edges[-1], *np.random.default_rng(seed).choice(edges, 12).tolist()})


def notes_of(row, level):
    """The notes of a level as (stamp, cell, run), the oldest first."""
    stamps, cells, runs = row.notes(level)
    return [(int(s), int(c) + int(row.limits.start), int(r)) for s, c, r in zip(stamps, cells, runs, strict=True)]


def assert_contains(bounds, exact):
    assert (bounds.low <= exact).all()
    assert (exact <= bounds.high).all()
    assert (bounds.low <= bounds.value).all()
    assert (bounds.value <= bounds.high).all()


def assert_same(one, other):
    for mine, its in zip(one, other, strict=True):
        assert (mine == its).all()


def written(array, now):
    out = Writer()
    array.write(out, now)
    return out.bytes()


def read(data, like, now):
    twin = SharedWave(like.cells, like.span, like.eps, like.starts[:-1].tolist())
    source = Reader(memoryview(data), 2**30)
    twin.read(source, now, now, max(row.arrived for row in like.rows))
    source.finish()
    return twin


# -- bounds ------------------------------------------------------------------------------------------------------------


@given(stream=weighted_streams, span=spans, eps=epsilons, pieces=cuts)
def test_bounds_contain_the_truth_for_every_suffix(stream, span, eps, pieces):
    array, now, stamps = build(stream, span, eps, pieces)
    for since in every_suffix(stamps, now, span):
        assert_contains(array.all_since(since), truth(stream, stamps, since))
    (low,), _, (high,) = array.since(np.array([0], np.uint32), now + 1)
    assert low == 0
    assert high <= array.at(now + 1).spread[0]


@given(stream=weighted_streams, span=spans, eps=coarse)
def test_some_cells_are_told_as_all_are(stream, span, eps):
    array, now, stamps = build(stream, span, eps)
    asked = np.array([8, 0, 3, 3, 2, 7], np.uint32)
    for since in some_suffixes(stamps, now, span):
        everything, snapshot = array.all_since(since), array.at(since)
        assert_same(array.since(asked, since), [part[asked] for part in everything])
        assert_same(snapshot.raw(asked), [part[asked] for part in snapshot.raw_all()])
        exact, value = truth(stream, stamps, since), snapshot.raw_all().value
        assert (np.abs(value - exact) < 2.0 ** snapshot.levels[ROW_OF]).all()


@given(stream=weighted_streams, span=spans, eps=coarse, coarser=st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_a_count_comes_with_the_number_at_the_start_of_its_range(stream, span, eps, coarser):
    """At any level that is complete, and any coarser one; salts give other numbers."""
    for salt in (0, 77):
        array, stamps = SharedWave(CELLS, span, eps, STARTS), stream.ticks - origin_of(stream, span)
        array.begin_with(salt)
        first = array.n.copy()
        assert (first == phases(CELLS, np.uint64(salt << 8)).astype(np.uint32)).all()
        array.add(stream.cells, stamps.astype(np.uint32), stream.counts)
        for since in some_suffixes(stamps, int(stamps[-1]), span):
            snapshot, exact = array.at(since), truth(stream, stamps, since).astype(np.uint64)
            levels = snapshot.levels + np.array(coarser)
            at_start = (array.n - exact) % (np.uint64(1) << levels[ROW_OF].astype(np.uint64))
            assert (snapshot.dithered_at(levels) == (exact + at_start).astype(np.int64)).all()


def test_salts_stay_with_what_is_copied_and_merged():
    array, now, stamps = build(make(1, 300, CELLS, 1, 0), 50, 0.5)
    assert array.draw == 0
    salted = SharedWave(CELLS, 50, 0.5, STARTS)
    salted.begin_with(2**24 - 1)
    salted.add(np.arange(300, dtype=np.uint32) % CELLS, np.sort(stamps).astype(np.uint32))
    assert salted.copy().draw == salted.draw == 2**32 - 2**8
    merged = salted.merged([array], [0, 0], now - 50)
    assert merged.draw == salted.draw + np.uint64(1)
    twin = SharedWave(CELLS, 50, 0.5, STARTS)
    twin.salt = salted.salt
    source = Reader(memoryview(written(salted, now)), 2**30)
    twin.read(source, now, now, 300)
    assert (twin.n == salted.n).all()
    assert_same(twin.all_since(now - 20), salted.all_since(now - 20))


@given(stream=weighted_streams, span=spans, eps=coarse)
def test_a_row_pays_for_its_own_arrivals_only(stream, span, eps):
    """Another row's stream changes nothing in this one."""
    both, now, stamps = build(stream, span, eps)
    mine = ROW_OF[stream.cells] == 2
    alone = SharedWave(CELLS, span, eps, STARTS)
    alone.add(stream.cells[mine], stamps[mine].astype(np.uint32), None if stream.counts is None else stream.counts[mine])
    for since in some_suffixes(stamps, now, span):
        assert_same([part[3:] for part in both.all_since(since)], [part[3:] for part in alone.all_since(since)])


@given(stream=streams(most=250, cells=CELLS), span=spans, eps=coarse, pieces=cuts)
def test_a_row_retains_what_its_naive_twin_retains(stream, span, eps, pieces):
    """Notes, runs, what was lost, and the bracket that these leave: all as found by counting every arrival by hand."""
    if stream.counts is not None:
        stream = Stream(stream.ticks, stream.cells, np.minimum(stream.counts, 40))
    array, now, stamps = build(stream, span, eps, pieces)
    alive = now - span
    for index, row in enumerate(array.rows):
        twin = NaiveSharedRow([int(p) for p in phases(CELLS, np.uint64(0))])
        for stamp, cell, count in zip(stamps.tolist(), stream.cells.tolist(), stream.weights.tolist(), strict=True):
            if ROW_OF[cell] == index:
                twin.add(stamp, cell, count)
        levels, size = row.levels, row.size
        assert size <= array.capacity
        assert levels == 1 or size == array.capacity  # rings reach their full size before one is split
        for level, expected in enumerate(twin.retained(levels, size)):
            assert [note for note in notes_of(row, level) if note[0] >= alive] == [
                note for note in expected if note[0] >= alive
            ]
        for mine, its in zip(row.lost.tolist(), twin.lost(levels, size), strict=True):
            assert max(mine, alive - 1) == max(its, alive - 1)  # what was lost and has left the window may be forgotten
        for since in some_suffixes(stamps, now, span):
            low, value, high = array.at(since).raw_all()
            for cell in np.flatnonzero(index == ROW_OF)[:3].tolist():
                assert (low[cell], value[cell], high[cell]) == twin.since(cell, since, levels, size)


@given(stream=streams(most=80, cells=CELLS), span=spans, eps=coarse)
def test_a_weight_counts_as_so_many_arrivals_or_better(stream, span, eps):
    """One arrival of a large count takes one note a level, so that fewer are lost; the numbers are the same."""
    weights = np.minimum(stream.weights, 60)
    origin = origin_of(stream, span)
    heavy, single = (SharedWave(CELLS, span, eps, STARTS) for _ in range(2))
    stamps = (stream.ticks - origin).astype(np.uint32)
    heavy.add(stream.cells, stamps, weights)
    single.add(np.repeat(stream.cells, weights), np.repeat(stamps, weights))
    assert (heavy.n == single.n).all()
    now = int(stamps[-1])
    for since in some_suffixes(stamps, now, span):
        assert (heavy.at(since).levels <= single.at(since).levels).all()
        inside, outside = heavy.all_since(since), single.all_since(since)
        assert (outside.low <= inside.low).all()
        assert (inside.high <= outside.high).all()


# -- state -------------------------------------------------------------------------------------------------------------


@given(stream=weighted_streams, span=spans, eps=coarse, pieces=cuts)
def test_state_does_not_depend_on_batches(stream, span, eps, pieces):
    whole, now, _ = build(stream, span, eps)
    assert written(build(stream, span, eps, pieces)[0], now) == written(whole, now)
    by_row = SharedWave(CELLS, span, eps, STARTS)
    stamps = (stream.ticks - origin_of(stream, span)).astype(np.uint32)
    for index in range(len(STARTS)):
        mine = ROW_OF[stream.cells] == index
        by_row.add_to_row(index, stream.cells[mine], stamps[mine], None if stream.counts is None else stream.counts[mine])
    assert written(by_row, now) == written(whole, now)


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("eps", [0.5, 0.1, 0.02])
def test_blocks_much_longer_than_the_rings_note_what_single_arrivals_would(eps, gap):
    """A block writes only the notes that it does not overwrite itself; also where the top ring splits in the middle of it."""
    rng = np.random.default_rng(int(1 / eps) + gap)
    cells = np.minimum(rng.zipf(1.3, 60_000) - 1, 19).astype(np.uint32)
    stamps = (9_000_000 + np.cumsum(rng.integers(0, gap + 1, cells.size))).astype(np.uint32)
    stamps[40_000:] += 30_000  # a silence
    in_blocks, in_pieces = SharedWave(20, 40_000, eps), SharedWave(20, 40_000, eps)
    at = 0
    while at < cells.size:
        size = int(rng.choice([1, 40, 700, 16_384, 30_000]))
        in_blocks.add(cells[at : at + size], stamps[at : at + size])
        at += size
    for at in range(0, cells.size, 16):  # shorter than any ring of full size
        in_pieces.add(cells[at : at + 16], stamps[at : at + 16])
    now = int(stamps[-1])
    assert written(in_blocks, now) == written(in_pieces, now)
    for since in (now - 40_000, now - 9_000, now - 50, now):
        assert_contains(in_blocks.all_since(since), np.bincount(cells[stamps >= since], minlength=20))


@pytest.mark.parametrize("seed", range(4))
def test_gaps_beyond_two_bytes_are_bridged(seed):
    """Windows of many times 65,535 ticks: with stamps far apart, through bytes, copies and merges."""
    rng = np.random.default_rng(seed)
    span, size = 900_000, 3_000
    gaps = rng.choice([0, 1, 5, 300, 65_534, 65_535, 65_536, 131_071, 400_000], size, p=[0.5, 0.2, 0.1, 0.1, *[0.02] * 5])
    stamps = (2 * span + 2 + np.cumsum(gaps)).astype(np.uint32)
    cells = np.minimum(rng.zipf(1.5, size) - 1, 9).astype(np.uint32)
    array = SharedWave(10, span, 0.004)
    assert array.rows[0].gaps.dtype == np.uint16
    for at in range(0, size, 500):
        array.add(cells[at : at + 500], stamps[at : at + 500])
        now = int(stamps[at : at + 500][-1])
        twin = read(written(array, now), array, now)
        for one in (array, twin, array.copy(), array.merged([], [0], now - span)):
            for since in (now - span, now - 500_000, now - 65_536, now - 200, now):
                seen = stamps[: at + 500] >= since
                assert_contains(one.all_since(since), np.bincount(cells[: at + 500][seen], minlength=10))
        assert written(twin, now) == written(array, now)


def test_numbers_of_32_bits_may_run_over():
    """After four billion arrivals numbers begin again, and answers about the window do not notice."""
    array = SharedWave(3, 1_000, 0.1)
    for block in range(10):
        stamps = np.full(3, 5_000 + 400 * block, np.uint32)
        array.add(np.arange(3, dtype=np.uint32), stamps, np.array([2**31 - 7, 2**30, 3]))
    assert array.n.dtype == np.uint32
    now = 5_000 + 400 * 9
    for one in (array, read(written(array, now), array, now), array.copy()):
        exact = np.array([2**31 - 7, 2**30, 3])
        assert_contains(one.all_since(now), exact)
        assert_contains(one.all_since(now - 1_000), 3 * exact)
        one.add(np.zeros(1, np.uint32), np.array([now], np.uint32))
        assert_contains(one.all_since(now), exact + np.array([1, 0, 0]))


@pytest.mark.parametrize("merged", [False, True])
@given(stream=weighted_streams, span=spans, eps=coarse, share=st.floats(0, 1))
def test_rebasing_moves_stamps_and_nothing_else(merged, stream, span, eps, share):
    array, now, stamps = build(stream, span, eps)
    if merged:
        array = array.merged([array], [0, 0], now - span)
    shift = int(share * (now - span - 1))
    moved = array.copy()
    moved.rebase(shift)
    for since in some_suffixes(stamps, now, span):
        assert_same(array.all_since(since), moved.all_since(since - shift))
    more = make(6, 60, CELLS, 2, 3, start=now)
    array.add(more.cells, more.ticks.astype(np.uint32), more.counts)
    moved.add(more.cells, (more.ticks - shift).astype(np.uint32), more.counts)
    end = int(more.ticks[-1])
    assert written(array, end) == written(moved, end - shift)


@pytest.mark.parametrize("merges", [0, 1, 2])
@given(stream=weighted_streams, span=spans, eps=coarse)
def test_bytes_bring_the_same_array_back(merges, stream, span, eps):
    array, now, stamps = build(stream, span, eps)
    for _ in range(merges):
        array = array.merged([array], [0, 0], now - span)
    data = written(array, now)
    twin = read(data, array, now)
    assert written(twin, now) == data
    assert twin.height == merges
    for since in some_suffixes(stamps, now, span):
        assert_same(array.all_since(since), twin.all_since(since))
    more = make(5, 80, CELLS, 2, 0, start=now)
    for one in (array, twin, array.copy()):
        one.add(more.cells, more.ticks.astype(np.uint32))
    end = int(more.ticks[-1])
    assert written(twin, end) == written(array, end)


def test_copies_are_independent():
    array, now, stamps = build(make(1, 200, CELLS, 2, 3), 900, 0.3)
    array = array.merged([array], [0, 0], 1)
    before = written(array, now)
    twin = array.copy()
    twin.add(np.zeros(50, np.uint32), np.full(50, now, np.uint32))
    twin.rebase(int(stamps[0]) - 1)
    assert written(array, now) == before


@pytest.mark.parametrize(("weight", "arrivals"), [(2**40, 3000), (2**50, 2000), (2**62 // 3000, 3000)])
def test_the_largest_counts_can_be_stored_and_merged(weight, arrivals):
    """Two to the 62 arrivals is what a sketch may take: every level notes half of them."""
    stamps = np.arange(2_000_003, 2_000_003 + arrivals, dtype=np.uint32)
    now = int(stamps[-1])
    cells = np.arange(arrivals, dtype=np.uint32) % 20
    array = SharedWave(20, 10**6, 0.01)
    array.add(cells, stamps, np.full(arrivals, weight))
    for one in (array, array.merged([], [0], now - 10**6)):
        twin = read(written(one, now), one, now)
        for since in (1_000_003, int(stamps[arrivals // 2]), now):
            exact = np.bincount(cells[stamps >= since], minlength=20) * weight
            assert_contains(one.all_since(since), exact)
            assert_same(one.all_since(since), twin.all_since(since))


# -- merging -----------------------------------------------------------------------------------------------------------


def gathered(inputs, span, eps):
    """An array for each input, what to add to its stamps, the origin and the newest stamp of all."""
    origin = max(int(s.ticks[-1]) for s in inputs) - 2 * span - 2
    arrays = [build(stream, span, eps)[0] for stream in inputs]
    return arrays, [origin_of(stream, span) - origin for stream in inputs], origin, 2 * span + 2


@given(inputs=st.lists(weighted_streams, min_size=1, max_size=5), span=spans, eps=epsilons, starts=st.data())
def test_merged_bounds_contain_the_union(inputs, span, eps, starts):
    """Inputs whose clocks differ, merged flat, as a chain, and again with themselves; through bytes and with more to come."""
    moved = [Stream(s.ticks + starts.draw(st.sampled_from([0, 0, 3, span // 2, 3 * span])), s.cells, s.counts) for s in inputs]
    arrays, shifts, origin, now = gathered(moved, span, eps)
    flat = arrays[0].merged(arrays[1:], shifts, now - span)
    chain = arrays[0].merged([], shifts[:1], now - span)
    for array, shift in zip(arrays[1:], shifts[1:], strict=True):
        chain = chain.merged([array], [0, shift], now - span)
    again = flat.merged([chain, flat], [0, 0, 0], now - span)
    assert (flat.height, chain.height, again.height) == (1, len(inputs), 1 + len(inputs))
    all_stamps = np.concatenate([s.ticks - origin for s in moved])
    for merged, times in ((flat, 1), (chain, 1), (again, 3)):
        twin = read(written(merged, now), merged, now)
        for since in some_suffixes(all_stamps, now, span):
            exact = times * sum(truth(s, s.ticks - origin, since) for s in moved)
            assert_contains(merged.all_since(since), exact)
            assert_same(merged.all_since(since), twin.all_since(since))
    more = make(4, 100, CELLS, 1, 0, start=now)
    flat.add(more.cells, more.ticks.astype(np.uint32))
    end = int(more.ticks[-1])
    for since in some_suffixes(np.concatenate([all_stamps, more.ticks]), end, span):
        exact = sum(truth(s, s.ticks - origin, since) for s in moved) + truth(more, more.ticks, since)
        assert_contains(flat.all_since(since), exact)


@given(inputs=st.lists(streams(most=300, cells=CELLS), min_size=1, max_size=4), span=spans, eps=coarse)
def test_merging_leaves_its_inputs_alone_and_loses_nothing_that_is_all_there(inputs, span, eps):
    arrays, shifts, origin, now = gathered(inputs, span, eps)
    ends = [int(s.ticks[-1]) - origin_of(s, span) for s in inputs]
    before = [written(array, end) for array, end in zip(arrays, ends, strict=True)]
    merged = arrays[0].merged(arrays[1:], shifts, now - span)
    assert [written(array, end) for array, end in zip(arrays, ends, strict=True)] == before
    for since in some_suffixes(np.concatenate([s.ticks - origin for s in inputs]), now, span):
        complete = np.ones(len(STARTS), bool)
        for array, shift in zip(arrays, shifts, strict=True):
            complete &= array.at(since - shift).levels == 0
        slack = merged.slack_at(since)
        assert (slack[complete] == 0).all()
        assert (slack[~complete] > 0).all()
        exact = sum(truth(s, s.ticks - origin, since) for s in inputs)
        sure = complete & (merged.at(since).levels == 0)
        assert (merged.all_since(since).value[sure[ROW_OF]] == exact[sure[ROW_OF]]).all()


def test_what_one_input_lost_counts_against_it_alone():
    """The other begins later than all that is asked for, in stamps of its own that begin at 1, and lost nothing."""
    one, other = (SharedWave(1, 1000, 0.3) for _ in range(2))
    one.add(np.zeros(500, np.uint32), np.arange(5000, 5500, dtype=np.uint32))
    other.add(np.zeros(5, np.uint32), np.arange(1, 6, dtype=np.uint32))
    merged, alone = one.merged([other], [0, 5500], 4600), one.merged([], [0], 4600)
    for since in (4600, 5100, 5400, 5499, 5505):
        assert (merged.slack_at(since) == alone.slack_at(since)).all()
        assert_contains(merged.all_since(since), np.array([max(5500 - max(since, 5000), 0) + (5 if since <= 5501 else 1)]))


# -- how wide, how large -----------------------------------------------------------------------------------------------


def row_stream(seed, size, cells, kind):
    """Cells of one row: even, skewed, or each cell in a burst of its own."""
    rng = np.random.default_rng(seed)
    if kind == "even":
        return rng.integers(0, cells, size).astype(np.uint32)
    if kind == "skewed":
        return (rng.zipf(1.3, size) % cells).astype(np.uint32)
    return np.sort(rng.integers(0, cells, size)).astype(np.uint32)


@pytest.mark.parametrize("kind", ["even", "skewed", "bursts"])
@pytest.mark.parametrize("cells", [1, 30, 1000])
def test_bounds_are_wider_than_eps_no_more_often_than_once_in_a_hundred(kind, cells):
    """The width is a power of two that depends on luck; capacity leaves room for four standard deviations of it."""
    wide = trials = 0
    for seed in range(25):
        eps = (0.3, 0.1, 0.02)[seed % 3]
        size = 4000 + 37 * seed
        array = SharedWave(cells, 10**6, eps)
        array.add(row_stream(seed, size, cells, kind), np.arange(2_000_003, 2_000_003 + size, dtype=np.uint32))
        for exact in np.geomspace(40, 3999, 20).astype(int).tolist():
            low, _, high = array.all_since(2_000_003 + size - exact)
            wide += (high - low).max() > eps * exact + 1
            trials += 1
    assert wide <= trials / 100


@pytest.mark.parametrize("inputs", [1, 2, 7])
def test_merging_widens_bounds_as_planned(inputs):
    """A level of merging costs at most 2.4 times what a row costs itself: the plan of a tree of counters relies on it."""
    wide = trials = 0
    for seed in range(20):
        eps = (0.3, 0.1, 0.05)[seed % 3]
        arrays = []
        for i in range(inputs):
            array = SharedWave(50, 10**6, eps)
            array.add(row_stream(100 * seed + i, 3000, 50, "skewed"), np.arange(2_000_003, 2_003_003, dtype=np.uint32))
            arrays.append(array)
        merged = arrays[0].merged(arrays[1:], [0] * inputs, 1_003_003)
        for exact in np.geomspace(300, 2999, 12).astype(int).tolist():
            low, _, high = merged.all_since(2_003_003 - exact)
            wide += (high - low).max() > 3.4 * eps * inputs * exact + 1
            trials += 1
    assert wide <= trials / 100


@pytest.mark.parametrize("weight", [1, 7])
@pytest.mark.parametrize("merged", [False, True])
def test_values_are_unbiased_over_cells(weight, merged):
    """Errors of many cells cancel: their mean is zero to within a few of its standard deviations, on several levels."""
    cells, each = 6000, 24
    rng = np.random.default_rng(3)
    where = np.repeat(np.arange(cells, dtype=np.uint32), each)
    rng.shuffle(where)
    stamps = np.arange(2_000_003, 2_000_003 + where.size, dtype=np.uint32)
    counts = None if weight == 1 else rng.integers(0, weight + 1, where.size)
    weights = np.ones(where.size) if counts is None else counts
    array = SharedWave(cells, 10**6, 2e-4)
    array.add(where, stamps, counts)
    if merged:
        array = array.merged([], [0], 1)
    levels = set()
    for since in (stamps[0], stamps[where.size // 3], stamps[where.size // 2], stamps[-where.size // 8]):
        snapshot = array.at(int(since))
        error = snapshot.raw_all().value - np.bincount(where, weights * (stamps >= since), cells)
        assert abs(error.mean()) < 5 * max(error.std(), 1) / math.sqrt(cells)
        assert error.std() <= snapshot.spread[0] / 2
        levels.add(int(snapshot.levels[0]))
    assert len(levels) > 1
    assert min(levels) > 0


def test_phases_are_spread_evenly_and_differ_from_height_to_height():
    drawn = [phases(20_000, np.uint64(height)) for height in range(4)]
    for numbers in drawn:
        assert numbers.max() < 2**61
        for level in range(1, 12):
            share = np.mean(numbers >> np.uint64(level - 1) & np.uint64(1))
            assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(20_000)
    for one, other in itertools.pairwise(drawn):
        assert not (one == other).any()


@pytest.mark.parametrize("weight", [0, 1000])
@given(seed=st.integers(0, 99), eps=epsilons, size=st.integers(1, 3000))
def test_memory_is_a_note_for_each_place_of_few_levels(weight, seed, eps, size):
    stream = make(seed, size, CELLS, 1, weight)
    array, _, _ = build(stream, 10**6, eps)
    capacity = shared_capacity(eps)
    assert capacity <= 1 / eps + 4 * math.sqrt(1 / eps) + 1
    ring = 16 if weight else 8
    most = 8 * CELLS + array.until.nbytes
    for row in range(len(STARTS)):
        arrivals = int(stream.weights[ROW_OF[stream.cells] == row].sum())
        levels = 2 + max(0, math.ceil(math.log2(max(arrivals, 1) / capacity)))
        most += levels * (ring * capacity + 12)
    assert array.nbytes <= most


def test_memory_stays_bounded_as_the_window_slides():
    rng = np.random.default_rng(0)
    array = SharedWave(40, 1000, 0.1)
    sizes = []
    for block in range(40):
        stamps = np.arange(3000 + 1000 * block, 4000 + 1000 * block, dtype=np.uint32)
        array.add(rng.integers(0, 40, 1000).astype(np.uint32), stamps)
        sizes.append(array.nbytes)
    assert max(sizes[10:]) <= max(sizes[:10])


def test_what_left_the_window_makes_room():
    """After a silence longer than the window nothing is lost until as many came again as there are notes."""
    array = SharedWave(1, 100, 0.3)
    array.add(np.zeros(5000, np.uint32), np.full(5000, 1000, np.uint32))
    levels, size = array.rows[0].levels, array.rows[0].size
    assert array.at(1000).levels[0] > 0
    array.add(np.zeros(size, np.uint32), np.full(size, 2000, np.uint32))
    assert (array.rows[0].levels, array.rows[0].size) == (levels, size)
    assert array.at(1900).levels[0] == 0
    (low,), (value,), (high,) = array.all_since(1900)
    assert low == value == high == size


@pytest.mark.parametrize("seed", range(20))
def test_few_cells_are_told_the_same_with_a_table_of_their_own(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    cells, size = int(rng.integers(1, 60)), int(rng.integers(1, 4_000))
    array = SharedWave(cells=cells, span=10**6, eps=float(rng.choice([0.5, 0.1, 0.02])))
    array.add(rng.integers(0, cells, size).astype(np.uint32), np.sort(rng.integers(10, 1000, size)).astype(np.uint32))
    asked, since = rng.integers(0, cells, 9).astype(np.uint32), int(rng.integers(1, 1000))
    answers = []
    for few in (0, 10**9):  # a table of the cells asked for; one of all
        monkeypatch.setattr(shared, "_FEW", few)
        answers.append([column.tolist() for column in array.since(asked, since)])
    assert answers[0] == answers[1]
