"""Cells after merges: judged by their own bracket, which must contain the log that was replayed into them.

Merging widens bounds for what it may have moved, and that hides faults of the merging itself. So these tests work out by
brute force which log a merge replays, and hold the bracket before the widening against it: merged once, twice and thrice,
with copies, with empty and expired inputs, counted into afterwards, stored and read back.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import noted, replayed
from streams import Stream, epsilons, streams

import lately as lt
from lately.core.codec import Reader, Writer
from lately.counters.families import counter_array
from lately.counters.shared import SharedWave
from lately.counters.wave import Wave

CELLS = 3
WHOLE = ("wave", "exphist", "exact", "shared")


@dataclass(frozen=True)
class Cells:
    """An array with what it should hold: for each cell the log that it was given, and what truly arrived."""

    array: object
    origin: int  # the tick whose stamp would be 0
    now: int
    logs: list[list[tuple[int, int]]]
    truths: list[list[tuple[int, int]]]


def empty(family, span, eps, salt=1, cells=CELLS):
    if family == "shared":
        return SharedWave(cells, span, eps, (0, 1))
    return counter_array(family, cells, span, eps, delta=0.05, salt=salt)


def site(family, stream, span, eps, salt=1, cells=CELLS):
    """A site that counted a stream."""
    first, nothing = int(stream.ticks[0]), [[] for _ in range(cells)]
    return later(Cells(empty(family, span, eps, salt, cells), first - 2 * span - 2, first, nothing, nothing), stream)


def later(cells, stream):
    """The same after counting a stream that begins at its now or later."""
    cells.array.add(stream.cells, (stream.ticks - cells.origin).astype(np.uint32), stream.counts)
    came = [[] for _ in range(cells.array.cells)]
    for tick, cell, count in zip(stream.ticks.tolist(), stream.cells.tolist(), stream.weights.tolist(), strict=True):
        came[cell].append((tick, count))
    logs, truths = ([had + new for had, new in zip(old, came, strict=True)] for old in (cells.logs, cells.truths))
    return replace(cells, now=int(stream.ticks[-1]), logs=logs, truths=truths)


def merged(family, inputs, span):
    """All of them merged at the latest now, and the log that this replays, cell by cell."""
    now = max(one.now for one in inputs)
    origin = now - 2 * span - 2
    first, *rest = (one.array for one in inputs)
    array = first.merged(rest, [one.origin - origin for one in inputs], now - span - origin)
    truths = [[came for one in inputs for came in one.truths[cell]] for cell in range(array.cells)]
    if family in ("exact", "randwave"):  # nothing is lost
        logs = truths
    elif family == "shared":
        notes = [note for one in inputs for row in one.array.rows for note in at_ticks(noted_in(row), one.origin)]
        logs = [[(tick, weight) for tick, its, weight in notes if its == cell] for cell in range(array.cells)]
    else:
        bits = fraction_bits(int(sum(one.array.n for one in inputs).max()))
        logs = [replayed([segments_of(one, cell, now - span) for one in inputs], bits) for cell in range(array.cells)]
    logs = [[(tick, weight) for tick, weight in log if tick >= now - span] for log in logs]
    if family in ("wave", "exphist"):
        for cell in range(array.cells):
            check_lemma_5([log for one in inputs for log in one.logs[cell]], logs[cell], array.merge_error, now - span)
    return Cells(array, origin, now, logs, truths)


def check_lemma_5(had, replay, error, live_from):
    """A merge moves no more than a share of ``error`` of a range's arrivals across its start."""
    ticks = sorted({live_from} | {t + i for t, _ in (*had, *replay) for i in (0, 1) if t >= live_from})
    for before, after in zip(counted(had, ticks), counted(replay, ticks), strict=True):
        assert abs(after - before) <= error * before * (1 + 1e-12)


def fraction_bits(most):
    """How many bits a weight has after the point, so that ``most`` arrivals fit into 63 bits, if one bit is enough for that."""
    return next((bits for bits in range(8, 1, -1) if most * 2**bits < 2**63), 1)


def segments_of(one, cell, live_from):
    """A cell as the log of its segments, in ticks; None for a start that has left the window."""
    start, end, size = one.array.segments(cell, min(max(1, live_from - one.origin), 2**32 - 1))
    starts = [int(s) + one.origin if s > 0 and int(s) + one.origin >= live_from else None for s in start]
    return starts, [int(e) + one.origin for e in end], [int(s) for s in size]


def noted_in(row):
    """The notes of a shared row as what they stand for."""
    levels = []
    for level in range(row.levels):
        stamps, cells, runs = row.notes(level)
        levels.append([(int(s), int(c) + int(row.limits.start), int(r)) for s, c, r in zip(stamps, cells, runs, strict=True)])
    return noted(levels, row.lost.tolist())


def at_ticks(notes, origin):
    return [(stamp + origin, cell, weight) for stamp, cell, weight in notes]


def stored(family, cells, span, eps):
    """The same written and read back."""
    out = Writer()
    stamp = cells.now - cells.origin
    cells.array.write(out, stamp)
    twin = empty(family, span, eps, 9, cells.array.cells)
    source = Reader(memoryview(out.bytes()), 2**30)
    # Read as a sketch reads it, two windows after a new origin.
    twin.read(source, 2 * span + 2, 2 * span + 2, 2**62)
    source.finish()
    again = Writer()
    twin.write(again, 2 * span + 2)
    assert again.bytes() == out.bytes()
    return replace(cells, array=twin, origin=cells.now - 2 * span - 2)


def unwidened(family, array):
    """What the cells themselves say since a stamp, before the answer is widened for merges."""
    if family != "shared":
        return lambda stamp: array._since(np.arange(array.cells, dtype=np.uint32), np.uint32(stamp))
    twin = array.copy()
    twin.until[...] = 0
    return twin.all_since


def counted(log, ticks):
    """How much of a log came at each of these ticks or later."""
    when, weight = np.array(log, np.int64).reshape(-1, 2).T
    return [int(weight[when >= tick].sum()) for tick in ticks]


def check(family, cells, span):
    """Every suffix of the window that is cut at, before or after something that was logged or that came."""
    edges = {t for logs in (cells.logs, cells.truths) for log in logs for t, _ in log if cells.now - span <= t <= cells.now}
    ticks = sorted({cells.now - span, cells.now, cells.now + 1} | edges | {t + 1 for t in edges})
    ticks = ticks[:: max(1, len(ticks) // 25)]
    brackets = [unwidened(family, cells.array)(tick - cells.origin) for tick in ticks]
    answers = [cells.array.all_since(tick - cells.origin) for tick in ticks]
    for cell in range(cells.array.cells):
        for bracket, replay, came, answer in zip(
            brackets, counted(cells.logs[cell], ticks), counted(cells.truths[cell], ticks), answers, strict=True
        ):
            assert bracket.low[cell] <= replay <= bracket.high[cell]
            assert answer.low[cell] <= came <= answer.high[cell]
            assert answer.low[cell] <= answer.value[cell] <= answer.high[cell]


@dataclass(frozen=True)
class Round:
    """A merge and what comes after it: fresh sites (how long before now each ends), copies of what there is, arrivals."""

    sites: list[tuple[Stream, float]]
    copies: int
    more: Stream
    again: Stream


sites = st.tuples(streams(most=80), st.sampled_from([0, 0, 0.3, 0.9, 1.5, 40]))
rounds = st.builds(
    Round, st.lists(sites, max_size=3), st.integers(0, 2), streams(most=40), streams(most=40)
)  # a round may end up with one input, or with none


def moved(stream, start):
    return Stream(stream.ticks - stream.ticks[0] + start, stream.cells, stream.counts)


def ending(stream, end):
    return Stream(stream.ticks - stream.ticks[-1] + end, stream.cells, stream.counts)


def unweighted(stream):
    return replace(stream, counts=None)


def follow(family, first, plan, span, eps, gap):
    """Merge, count, store, count, and so on, with a check after each step."""
    current, salt = None, 1
    for index, part in enumerate(plan):
        now = current.now if current else 10**6
        inputs = [current] if current else [site(family, ending(first, now), span, eps, salt)]
        if current and family != "randwave":  # randomized waves unite streams, and so take each only once
            inputs += [replace(current, array=current.array.copy()) for _ in range(part.copies)]
        for stream, ago in part.sites:
            salt += 1
            inputs.append(site(family, ending(stream, now - int(ago * span)), span, eps, salt))
        nothing = [[] for _ in range(CELLS)]
        if index % 2:
            salt += 1
            inputs.insert(0, Cells(empty(family, span, eps, salt), now - 2 * span - 2, now + gap, nothing, nothing))
        current = merged(family, inputs, span)
        check(family, current, span)
        current = later(current, moved(part.more, current.now + gap))
        check(family, current, span)
        current = stored(family, current, span, eps)
        check(family, current, span)
        current = later(current, moved(part.again, current.now))
        check(family, current, span)


@pytest.mark.parametrize("family", WHOLE)
@given(
    first=streams(most=200),
    plan=st.lists(rounds, min_size=1, max_size=3),
    span=st.sampled_from([7, 60, 900]),
    eps=epsilons,
    gap=st.sampled_from([0, 1, 5, 70, 3000]),
)
def test_merged_cells_contain_what_was_replayed_and_what_came(family, first, plan, span, eps, gap):
    follow(family, first, plan, span, eps, gap)


@given(
    first=streams(most=30),
    plan=st.lists(st.builds(Round, st.lists(sites, max_size=2), st.just(0), streams(most=20), streams(most=20)), max_size=3),
    span=st.sampled_from([7, 60, 900]),
    gap=st.sampled_from([0, 1, 70, 3000]),
)
def test_randomized_waves_that_dropped_nothing_are_exact_after_merges(first, plan, span, gap):
    """As long as all arrivals fit into the sample, chance plays no part."""
    plan = [
        Round([(unweighted(stream), ago) for stream, ago in part.sites], 0, unweighted(part.more), unweighted(part.again))
        for part in plan
    ]
    follow("randwave", unweighted(first), plan, span, 0.05, gap)


@pytest.mark.parametrize("family", ["wave", "exphist"])
@pytest.mark.parametrize("eps", [0.5, 0.2, 0.05])
def test_merged_cells_of_every_size(family, eps):
    """Rings are made for the fullest cell, here the only one: with every number of arrivals, every edge of them is met."""
    span, rng = 100, np.random.default_rng(7)

    def arrivals(size, first, last):
        return Stream(np.sort(rng.integers(first, last + 1, size)), np.zeros(size, np.uint32), None)

    def fresh(size, first, last):
        return site(family, arrivals(size, first, last), span, eps, cells=1)

    for size in (*range(1, 70), *range(70, 800, 23)):
        current = merged(family, [fresh(size, 1000, 1090), fresh(1 + size // 7, 950, 1010)], span)
        check(family, current, span)
        current = merged(family, [current, fresh(3, 1050, 1095)], span)
        check(family, current, span)
        current = later(stored(family, current, span, eps), arrivals(1 + size // 5, 1096, 1120))
        check(family, current, span)


# -- right on average ----------------------------------------------------------------------------------------------------


def site_streams(kind, sites, copies, span, rng):
    """For each site a stream for ``copies`` cells, over one and a half windows.

    Sites differ in how busy they are, and cells by up to a factor of two, so that no power of two is near all counts.
    """
    busy = 2.0 ** -rng.random(copies)
    for _ in range(sites):
        burst = 8 if kind == "bursts" else 1
        size = rng.poisson(120 * copies / burst)
        where = rng.integers(0, copies, size)
        if kind == "gaps":  # most arrivals close to the one before, and long silences
            jumps = rng.pareto(1.1, size)
            ticks = (np.cumsum(jumps) / jumps.sum() * (1.5 * span - 1)).astype(np.int64)
        else:
            ticks = np.sort(rng.integers(0, 3 * span // 2, size))
        counts = rng.geometric(1 / burst, size)
        kept = rng.random(size) < (busy * rng.uniform(0.2, 1, copies))[where]
        yield Stream(ticks[kept], where[kept].astype(np.uint32), counts[kept])


def tree(arrays, live_from):
    """Merge two by two until one is left."""
    while len(arrays) > 1:
        arrays = [one.merged([other], [0, 0], live_from) for one, other in zip(arrays[::2], arrays[1::2], strict=True)]
    return arrays[0]


def signed_errors(family, kind, seed):
    """(estimate - truth) / truth after 256 sites were merged two by two: 64 trees across, suffixes down."""
    span, copies, rng = 1000, 64, np.random.default_rng(seed)
    came = np.zeros((copies, 3 * span // 2), np.int64)
    origin, arrays = 2 * span + 2, []
    for stream in site_streams(kind, 256, copies, span, rng):
        array = counter_array(family, copies, span, 0.1)  # a cell for each tree
        array.add(stream.cells, (stream.ticks + origin).astype(np.uint32), stream.counts)
        np.add.at(came, (stream.cells, stream.ticks), stream.counts)
        arrays.append(array)
    now = origin + came.shape[1] - 1
    root = tree(arrays, now - span + 1)
    exact = np.cumsum(came[:, ::-1], axis=1)  # column i: what came in the last i + 1 ticks
    ages = np.flatnonzero(exact.min(axis=0) >= 100)
    return np.array([root.all_since(now - age).value / exact[:, age] - 1 for age in ages[ages < span]])


@pytest.mark.parametrize("family", ["wave", "exphist"])
@pytest.mark.parametrize("kind", ["steady", "bursts", "gaps"])
def test_trees_of_merges_are_right_on_average(family, kind):
    """Signed errors of all suffixes of the window cancel out; with halves of segments, rounded down, they were -2 to -4 %."""
    errors = signed_errors(family, kind, seed=12)
    noise = errors.mean(axis=0).std() / np.sqrt(errors.shape[1])
    assert abs(errors.mean()) < max(0.005, 3 * noise) < 0.01
    assert np.abs(errors).mean() < (0.035 if family == "wave" else 0.05)


# -- one by one ----------------------------------------------------------------------------------------------------------


def histogram(tick, count, window=60, eps=0.05):
    counter = lt.WindowCounter(window=window, eps=eps, counter="exphist")
    counter.add([tick], [count])
    return counter


def test_a_histogram_counts_on_after_its_inputs_have_expired():
    expired, late = histogram(0, 1, 10, 0.1), lt.WindowCounter(window=10, eps=0.1, counter="exphist")
    late.advance(100)
    both = lt.merge([expired, late])
    both.add([100])
    both.add([105])
    assert (both.count(last=3).low, both.count(last=3).value, both.count().value) == (1, 1, 2)


def test_a_merged_histogram_keeps_all_buckets_that_are_in_the_window():
    once = lt.merge([histogram(0, 1), histogram(48, 701), histogram(-1000, 44)])
    twice = lt.merge([once, histogram(0, 1), histogram(48, 46), histogram(-1000, 60)])
    assert 747 in twice.count(last=30)


def test_a_histogram_that_was_merged_and_counted_into_can_be_stored():
    both = lt.merge([histogram(35, 29, eps=0.2), histogram(30, 1, eps=0.2)])
    both.add([44], [16])
    assert lt.from_bytes(both.to_bytes()).count() == both.count()
    assert 46 in both.count()


def test_waves_grow_for_runs_that_they_have_no_room_for():
    """A merge makes room first; were it ever too little, no cell may lose its run."""
    wave = Wave(CELLS, 1000, 0.1)
    sizes = np.array([3, 0, 500])
    stamps = np.concatenate([np.arange(3001, 3001 + size, dtype=np.uint32) for size in sizes])
    ends = np.concatenate([np.arange(1, 1 + size, dtype=np.uint64) for size in sizes])
    wave._append_runs(stamps, ends, np.cumsum([0, *sizes]))
    assert wave.all_since(1).value.tolist() == sizes.tolist()
    for since in range(3001, 3502):
        low, _, high = wave.all_since(since)
        exact = np.maximum(3001 + sizes - since, 0)
        assert (low <= exact).all()
        assert (exact <= high).all()


@pytest.mark.parametrize("counter", ["wave", "exphist"])
def test_the_largest_counts_can_be_merged(counter):
    """Up to 2**62 arrivals in all: weights of points have as many bits after the point as are left."""
    for most in (2**53, 2**55 + 1, 2**61):
        counters = [lt.WindowCounter(window=100, eps=0.1, counter=counter) for _ in range(2)]
        for one in counters:
            one.add([10, 60, 90], [most // 4, most // 2, most // 4])
        both = lt.merge(counters)
        for last, exact in ((95, 2), (50, 1.5), (15, 0.5)):
            assert int(exact * 4) * (most // 4) in both.count(last=last)
        assert lt.from_bytes(both.to_bytes()).count() == both.count()
