"""SIMPLE and PROPORTIONAL: catching up when touched is the same as visiting every cell at every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import EagerPeriods

from lately.core.codec import Reader, Writer
from lately.counters.periodic import Proportional, Simple

CELLS = 4


def stream(seed, size, steps):
    """Arrivals with gaps of every kind, as stamps from 2·steps on; weights may be 0."""
    rng = np.random.default_rng(seed)
    stamps = 2 * steps + np.cumsum(rng.choice([0, 0, 1, 1, 2, steps, 3 * steps], size))
    return stamps.astype(np.uint32), rng.integers(0, CELLS, size).astype(np.uint32), rng.integers(0, 5, size)


def by_step(stamps, cells, counts, last):
    """What arrives at each step."""
    for step in range(int(stamps[0]), last + 1):
        here = stamps == step
        yield step, list(zip(cells[here].tolist(), counts[here].tolist(), strict=True))


def stored(array, now):
    out = Writer()
    array.write(out, now)
    return out.bytes()


given_streams = given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 80),
    steps=st.integers(1, 30),
    origin=st.integers(-40, 40),
    later=st.integers(0, 70),
)


@given_streams
def test_lazy_equals_eager(seed, size, steps, origin, later):
    stamps, cells, counts = stream(seed, size, steps)
    simple, lazy, eager = Simple(CELLS, steps - 1), Proportional(CELLS, steps - 1), EagerPeriods(steps, CELLS)
    for array in (simple, lazy):
        array.begin(origin)
    for step, arrivals in by_step(stamps, cells, counts, int(stamps[-1]) + later):
        eager.step(step + origin, arrivals)
        here = stamps == step
        for array in (simple, lazy):
            array.add(cells[here], stamps[here], counts[here])
        assert lazy._at(step).values == pytest.approx(eager.value, abs=1e-6)
        assert simple.all_since(step - steps + 1).value.tolist() == eager.simple.tolist()


@given_streams
def test_the_bounds_hold_the_truth(seed, size, steps, origin, later):
    stamps, cells, counts = stream(seed, size, steps)
    now = int(stamps[-1]) + later
    inside = stamps > now - steps
    truth = np.bincount(cells[inside], counts[inside], CELLS)
    for kind in (Simple, Proportional):
        array = kind(CELLS, steps - 1)
        array.begin(origin)
        array.add(cells, stamps, counts)
        low, value, high = array.all_since(now - steps + 1)
        assert (low <= truth).all()
        assert (truth <= high).all()
        assert ((low <= value) & (value <= high)).all()


@given_streams
def test_batches_do_not_matter_and_bytes_bring_it_back(seed, size, steps, origin, later):
    stamps, cells, counts = stream(seed, size, steps)
    now = int(stamps[-1]) + later
    for kind in (Simple, Proportional):
        whole, parts, twin = (kind(CELLS, steps - 1) for _ in range(3))
        for array in (whole, parts, twin):
            array.begin(origin)
        whole.add(cells, stamps, counts)
        for i in range(size):
            parts.add(cells[i : i + 1], stamps[i : i + 1], counts[i : i + 1])
        assert stored(whole, now) == stored(parts, now)
        twin.read(Reader(memoryview(stored(whole, now)), 2**20), now, now, 2**40)
        since = now - steps + 1
        assert all((a == b).all() for a, b in zip(twin.all_since(since), whole.all_since(since), strict=True))
        assert stored(twin, now) == stored(whole, now)


@given_streams
def test_sites_add_up(seed, size, steps, origin, later):
    """Merged, the cells of two sites are the sums of theirs, now and ever after."""
    now = 0
    for kind in (Simple, Proportional):
        sites, shifts = [], [3, 0]
        for site in range(2):
            stamps, cells, counts = stream(seed + site, size, steps)
            array = kind(CELLS, steps - 1)
            array.begin(origin + shifts[site])  # the same ticks, counted from another origin
            array.add(cells, stamps, counts)
            sites.append(array)
            now = max(now, int(stamps[-1]) + shifts[site] + later)
        merged = sites[0].merged(sites[1:], shifts, max(1, now - steps + 1))
        for moment in (now, now + 1, now + steps // 2, now + 2 * steps):
            since = moment - steps + 1
            parts = [site.all_since(since - shift) for site, shift in zip(sites, shifts, strict=True)]
            together = merged.all_since(since)
            assert together.low.tolist() == (parts[0].low + parts[1].low).tolist()
            assert np.abs(together.value - parts[0].value - parts[1].value).max() <= 1  # rounded once, not twice


@given_streams
def test_moving_the_origin_changes_nothing(seed, size, steps, origin, later):
    stamps, cells, counts = stream(seed, size, steps)
    now = int(stamps[-1]) + later
    for kind in (Simple, Proportional):
        array, moved = kind(CELLS, steps - 1), kind(CELLS, steps - 1)
        for one in (array, moved):
            one.begin(origin)
            one.add(cells, stamps, counts)
        shift = max(now - 2 * steps, 0)
        moved.rebase(shift)
        since = now - steps + 1
        assert all((a == b).all() for a, b in zip(array.all_since(since), moved.all_since(since - shift), strict=True))
