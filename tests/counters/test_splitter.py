"""SPLITTER: catching up when a cell must is the same as visiting every cell at every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import EagerSplitter

from lately.core.codec import Reader, Writer
from lately.counters.splitter import Splitter

CELLS = 3

parameters = {
    "seed": st.integers(0, 2**32),
    "size": st.integers(1, 250),
    "steps": st.integers(1, 60),
    "tau": st.sampled_from([0.05, 0.3, 1.0]),
    # Not a ratio of small numbers: on a tie, rounding would decide, and the eager twin rounds otherwise.
    "mu": st.sampled_from([1.1234567, 1.5432198, 3.0123456]),
}


def cells_of(seed, size):
    """A cell for each step, in phases that favour one or another."""
    rng = np.random.default_rng(seed)
    phase = np.cumsum(rng.random(size) < 0.03)
    return np.where(rng.random(size) < 0.7, phase % CELLS, rng.integers(0, CELLS, size)).astype(np.uint32)


def built(cells, stamps, steps, tau, mu, counts=None, by_arrival=True, pieces=1):
    array = Splitter(CELLS, steps - 1, tau, mu, CELLS, by_arrival)
    array.begin(-2 * steps)
    for part in np.array_split(np.arange(cells.size), pieces):
        array.add(cells[part], stamps[part], None if counts is None else counts[part])
    return array


def stored(array, now):
    out = Writer()
    array.write(out, now)
    return out.bytes()


def lists(array, now):
    """The (init, last, left) of the sub-cells of each cell that are in the window, caught up."""
    cells, where = array._walk()
    edge = now - array.steps
    found = [[] for _ in range(array.cells)]
    for cell, sub in zip(cells.tolist(), where.tolist(), strict=True):
        init, last, left = int(array.pool.init[sub]), int(array.pool.last[sub]), float(array.pool.left[sub])
        if last > edge:
            start = max(init, edge + 1)
            found[cell].append((start, last, left * (last - start + 1) / (last - init + 1)))
    return found


@given(**parameters)
def test_lazy_equals_eager(seed, size, steps, tau, mu):
    cells = cells_of(seed, size)
    stamps = (2 * steps + np.arange(size)).astype(np.uint32)
    lazy, eager = built(cells[:0], stamps[:0], steps, tau, mu), EagerSplitter(steps, CELLS, mu)
    for i in range(size):
        now = int(stamps[i])
        eager.step(now, [(int(cells[i]), 1)], tau * steps / CELLS)
        lazy.add(cells[i : i + 1], stamps[i : i + 1])
        for mine, its in zip(lists(lazy, now), eager.queues, strict=True):
            assert [sub[:2] for sub in mine] == [tuple(sub[:2]) for sub in its]
            assert [sub[2] for sub in mine] == pytest.approx([sub[2] for sub in its], abs=1e-6)
        low, value, high = lazy.all_since(now - steps + 1)
        assert np.abs(value - np.clip(eager.value, low, high)).max() <= 0.5 + 1e-6


@given(
    **parameters, gap=st.sampled_from([0, 1, 5]), weight=st.integers(1, 50), by_arrival=st.booleans(), later=st.integers(0, 90)
)
def test_the_bounds_hold_the_truth_and_splits_are_few(seed, size, steps, tau, mu, gap, weight, by_arrival, later):
    rng = np.random.default_rng(seed)
    cells, counts = cells_of(seed, size), rng.integers(0, weight + 1, size)
    gaps = np.ones(size, int) if by_arrival else rng.integers(0, gap + 1, size)
    stamps = (2 * steps + np.cumsum(gaps)).astype(np.uint32)
    array = built(cells, stamps, steps, tau, mu, counts, by_arrival)
    now = int(stamps[-1]) + later
    inside = stamps > now - steps
    truth = np.bincount(cells[inside], counts[inside], CELLS)
    low, value, high = array.all_since(now - steps + 1)
    assert (low <= truth).all()
    assert (truth <= high).all()
    assert ((low <= value) & (value <= high)).all()
    if by_arrival and weight == 1:
        assert array.splits(now) <= CELLS / tau


@given(**parameters, pieces=st.integers(1, 9), by_arrival=st.booleans())
def test_batches_do_not_matter_and_bytes_bring_it_back(seed, size, steps, tau, mu, pieces, by_arrival):
    cells = cells_of(seed, size)
    stamps = (2 * steps + (np.arange(size) if by_arrival else np.arange(size) // 3)).astype(np.uint32)
    now = int(stamps[-1])
    whole = built(cells, stamps, steps, tau, mu, by_arrival=by_arrival)
    assert stored(built(cells, stamps, steps, tau, mu, by_arrival=by_arrival, pieces=pieces), now) == stored(whole, now)
    twin = built(cells[:0], stamps[:0], steps, tau, mu, by_arrival=by_arrival)
    twin.read(Reader(memoryview(stored(whole, now)), 2**24), now, now, 2**40)
    assert stored(twin, now) == stored(whole, now)
    more = (now + np.arange(1, 2 * steps)).astype(np.uint32)
    for array in (whole, twin, copy := whole.copy()):
        array.add(np.zeros(more.size, np.uint32), more)
    assert stored(twin, int(more[-1] if more.size else now)) == stored(whole, int(more[-1] if more.size else now))
    assert lists(copy, now + steps) == lists(whole, now + steps)


@given(**parameters, shift=st.integers(0, 20), later=st.integers(0, 70))
def test_sites_add_up(seed, size, steps, tau, mu, shift, later):
    sites, shifts, now = [], [shift, 0], 0
    for site in range(2):
        cells, stamps = cells_of(seed + site, size), (2 * steps + np.arange(size) // 2).astype(np.uint32)
        array = built(cells, stamps, steps, tau, mu, by_arrival=False)
        array.begin(shifts[site])
        array.periods[:, 1:] = 0
        sites.append(array)
        now = max(now, int(stamps[-1]) + shifts[site] + later)
    merged = sites[0].merged(sites[1:], shifts, max(1, now - steps + 1))
    for moment in (now, now + 1, now + steps // 2, now + 2 * steps):
        since = moment - steps + 1
        parts = [site.all_since(since - by) for site, by in zip(sites, shifts, strict=True)]
        low, value, high = merged.all_since(since)
        assert low.tolist() == (parts[0].low + parts[1].low).tolist()
        assert high.tolist() == (parts[0].high + parts[1].high).tolist()
        assert np.abs(value - parts[0].value - parts[1].value).max() <= 1


def test_a_change_of_rate_splits_a_cell_and_an_even_rate_does_not():
    steps = 1000
    even = np.zeros(3000, np.uint32)
    stamps = (2 * steps + np.arange(3000)).astype(np.uint32)
    array = built(even, stamps, steps, 0.05, 1.5)
    assert array.splits(int(stamps[-1])) == 0
    bursts = ((np.arange(3000) // 100) % 2).astype(np.uint32)  # cell 0 and cell 1 by turns
    array = built(bursts, stamps, steps, 0.05, 1.5)
    assert array.splits(int(stamps[-1])) >= 0
    truth = np.bincount(bursts[-steps:], minlength=CELLS)
    assert np.abs(array.all_since(int(stamps[-1]) - steps + 1).value - truth).max() <= 60


def test_moving_the_origin_changes_nothing():
    cells, stamps = cells_of(1, 4000), (2000 + np.arange(4000)).astype(np.uint32)
    array, moved = (built(cells, stamps, 1000, 0.05, 1.5) for _ in range(2))
    moved.rebase(3900)
    since = int(stamps[-1]) - 999
    assert all((a == b).all() for a, b in zip(array.all_since(since), moved.all_since(since - 3900), strict=True))
