"""CI-MAX and CI-MIN: the same answers as a look at every arrival, in a tree that keeps its shape, its size and its speed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveCollectiveMax

from lately.exact.collective_max import CollectiveMax
from lately.exact.suffix_max import AFTER, BEFORE, JUMP, OLDER, OWNER
from lately.exact.treap import END, FIRST, LAST, LEFT, MIDDLE, PARENT, RIGHT, START, VALUE

IDS = 6
VALUES = [-math.inf, -2.5, -1.0, -0.0, 0.0, 1e-300, 1.0, 1.5, 7.0, math.inf]

values = st.sampled_from(VALUES) | st.floats(-3, 3)
ids = st.integers(0, IDS - 1)
# Repeats, steps and jumps; far enough from 0 on both sides to reach every height of the tree.
steps = st.sampled_from([0, 0, 0, 1, 1, 2, 5, 64, 1000]) | st.integers(0, 2**40)
starts = st.sampled_from([-(2**62), -(2**40) - 3, -5, 0, 1, 2**33, 2**62 - 2**50])
rows = st.lists(st.tuples(ids, steps, values), max_size=25)
operations = st.lists(
    st.tuples(
        st.sampled_from(["update", "update", "update", "expire", "forget"]), rows, st.sets(ids, max_size=2), st.floats(0, 1)
    ),
    max_size=12,
)


def questions(twin, floor):
    """Starts of windows: each tick of an arrival, just before it and just after, and far beyond."""
    ticks = {tick + step for _, tick, _ in twin.events for step in (-1, 0, 1)} | {floor, floor + 1, 2**62 + 1}
    return sorted(tick for tick in ticks if tick >= floor)


def check(fast, twin, since, low, high):
    found, largest = fast.lookup(since, low, high)
    assert found.size == len(set(found.tolist()))
    assert dict(zip(found.tolist(), largest.tolist(), strict=True)) == twin.lookup(since, low, high)
    expected = twin.values(since)
    listed = np.array([expected.get(i, math.nan) for i in range(IDS + 40)])
    np.testing.assert_array_equal(fast.values(np.arange(IDS + 40), since), listed)


def check_structure(fast):
    """What the tree, the list in time and the substreams' elements promise of each other."""
    tree, chain = fast.elements.tree, fast.elements.chain
    nodes, order, heights = [], [], np.zeros(64, int)

    def visit(node, parent):
        if node == 0:
            return 2**63 - 1, -(2**63)
        row = tree.rows[node].tolist()
        assert tree.links[node, PARENT] == parent
        first, last = visit(int(tree.links[node, LEFT]), node)
        nodes.append(node)
        order.append((row[MIDDLE], row[VALUE]))
        right = visit(int(tree.links[node, RIGHT]), node)
        assert row[START] < row[MIDDLE] <= row[END]
        bound = min(first, right[0], row[START]), max(last, right[1], row[END])
        assert bound == (row[FIRST], row[LAST])
        height = (row[START] ^ row[END] if (row[START] < 0) == (row[END] < 0) else 2**63).bit_length() - 1
        assert row[MIDDLE] == (row[END] >> height) << height
        heights[height] += 1
        return bound

    visit(int(tree.links[0, LEFT]), 0)
    assert order == sorted(order)
    assert heights.tolist() == tree.heights.tolist()
    timely, node = [], int(chain[0, AFTER])
    while node != 0:
        timely.append(node)
        assert chain[chain[node, BEFORE], AFTER] == node
        node = int(chain[node, AFTER])
    assert sorted(timely) == sorted(nodes)
    assert len(timely) == len(fast)
    assert np.all(tree.rows[timely[1:], END] >= tree.rows[timely[:-1], END])
    free, node = set(), int(fast.elements.free[0])
    while node != 0:
        free.add(node)
        node = int(chain[node, OLDER])
    assert len(free) == fast.elements.free[1]
    assert free | set(nodes) == set(range(1, len(chain)))
    for owner in range(fast.newest.size):
        mine = [node for node in timely if chain[node, OWNER] == owner]
        assert fast.newest[owner] == (mine[-1] if mine else 0)
        assert np.all(tree.rows[mine[1:], VALUE] < tree.rows[mine[:-1], VALUE])
        assert tree.rows[mine[1:], START].tolist() == tree.rows[mine[:-1], END].tolist()


@given(operations, starts, st.sampled_from([1, -1]), st.tuples(values, values), st.integers(0, 50))
def test_answers_are_those_of_a_look_at_every_arrival(done, now, sign, between, pick):
    fast, twin, floor = CollectiveMax(sign), NaiveCollectiveMax(sign), -(2**62) - 5
    for name, arrivals, faded, share in done:
        if name == "update":
            owners, later, what = (list(column) for column in zip(*arrivals, strict=True)) if arrivals else ([], [], [])
            ticks = [int(now + tick) for tick in np.cumsum(later, dtype=object)]
            now = ticks[-1] if ticks else now
            fast.update(owners, ticks, what)
            twin.update(owners, ticks, what)
        elif name == "expire":
            ticks = questions(twin, floor)
            floor = ticks[int(share * (len(ticks) - 1))]
            fast.expire(floor)
        else:
            fast.forget(list(faded) * 2)
            twin.forget(faded)
        ticks = questions(twin, floor)
        check(fast, twin, ticks[pick % len(ticks)], *between)
    check_structure(fast)
    again = CollectiveMax(sign)
    again.update(*fast.rows())
    check_structure(again)
    for since in questions(twin, floor):
        check(fast, twin, since, *between)
        check(fast, twin, since, -math.inf, math.inf)
        check(again, twin, since, *between)
    assert len(again) == len(fast)


@given(st.integers(0, 2**32), st.sampled_from([1, 7, 400]), st.integers(1, 40))
def test_the_tree_keeps_its_promises(seed, distinct, substreams):
    rng = np.random.default_rng(seed)
    fast, twin, now, floor = CollectiveMax(), NaiveCollectiveMax(), -200, -1000
    for _ in range(6):
        size = int(rng.integers(0, 60))
        ticks = now + np.cumsum(rng.integers(0, 9, size) * (rng.random(size) < 0.6))
        owners, what = rng.integers(0, substreams, size), rng.integers(0, distinct, size).astype(float)
        now = int(ticks[-1]) if size else now
        fast.update(owners, ticks, what)
        twin.update(owners.tolist(), ticks.tolist(), what.tolist())
        check_structure(fast)
        faded = set(rng.integers(0, substreams + 3, 2).tolist())
        fast.forget(list(faded))
        twin.forget(faded)
        check_structure(fast)
        floor = max(floor, now - int(rng.integers(0, 300)))
        fast.expire(floor)
        check_structure(fast)
        for since in (floor, (floor + now) // 2, now):
            check(fast, twin, since, distinct / 4, distinct / 2)


def test_batches_do_not_matter(monkeypatch):
    rng = np.random.default_rng(5)
    size = 400
    owners, ticks = rng.integers(0, 9, size), np.cumsum(rng.integers(0, 3, size))
    what = rng.integers(0, 50, size).astype(float)
    whole = CollectiveMax()
    whole.update(owners, ticks, what)
    monkeypatch.setattr("lately.exact.collective_max.BLOCK", 7)
    small = CollectiveMax()
    small.update(owners, ticks, what)
    check_structure(small)
    for mine, its in zip(whole.rows(), small.rows(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_one_row_and_none():
    fast = CollectiveMax(-1)
    fast.update([], [], [])
    assert fast.lookup(0, -math.inf, math.inf)[0].size == 0
    assert np.isnan(fast.values([0, 99], 0)).all()
    assert [column.size for column in fast.rows()] == [0, 0, 0]
    fast.update([3], [10], [-0.0])
    assert fast.lookup(10, 0.0, 0.0)[0].tolist() == [3]
    assert fast.lookup(11, 0.0, 0.0)[0].size == 0
    assert fast.lookup(10, 1.0, -1.0)[0].size == 0
    assert fast.lookup(10, math.nan, 1.0)[0].size == 0
    assert fast.lookup(-(2**70), 0.0, 0.0)[0].tolist() == [3]
    assert fast.lookup(2**70, 0.0, 0.0)[0].size == 0
    fast.forget([3, 3, 500])
    assert len(fast) == 0
    with pytest.raises(ValueError, match="sign"):
        CollectiveMax(2)


def test_arrivals_that_nobody_can_ask_for_are_not_kept():
    fast = CollectiveMax()
    fast.expire(100)
    fast.update([0, 1], [99, 100], [9.0, 1.0])
    assert len(fast) == 1
    # A question beyond the promise is answered for the longest window that it allows.
    assert fast.lookup(5, 0.0, 10.0)[0].tolist() == [1]


def test_what_comes_and_goes_leaves_nothing_behind():
    rng = np.random.default_rng(1)
    fast, size, sizes = CollectiveMax(), 500, []
    for cycle in range(60):
        ticks = np.arange(size) + cycle * size
        # Falling values: every arrival is an element. Then the substreams fade, or their elements expire.
        fast.update(rng.integers(0, 100, size), ticks, -ticks.astype(float))
        if cycle % 2:
            fast.forget(np.arange(100))
            assert len(fast) == 0
        else:
            fast.expire((cycle + 1) * size - 50)
            assert len(fast) == 50
        sizes.append(fast.nbytes)
    assert sizes[-1] == sizes[3]
    check_structure(fast)


def test_a_lookup_takes_as_long_as_its_answer():
    rng = np.random.default_rng(2)
    substreams, size = 2_000, 12_000
    fast = CollectiveMax()
    fast.update(rng.integers(0, substreams, size), np.arange(size), rng.random(size))
    # What a lookup must look at even if it finds nothing: a path to either end of the range, at each height in use.
    paths = 2 * 2.5 * np.log2(len(fast)) * np.count_nonzero(fast.elements.tree.heights)
    for since in rng.integers(0, size, 40).tolist():
        low = rng.random()
        for width in (0.0, 0.001, 0.01, 0.5):
            nodes, visited = fast._stab(since, low, low + width)
            assert visited <= paths + 2.5 * np.log2(len(fast)) * nodes.size
    assert fast._stab(0, 0.0, 1.0)[0].size > 0.99 * substreams


@pytest.mark.parametrize("seed", range(5))
def test_a_lookup_passes_by_what_is_in_range_but_not_in_time(seed):
    # Two arrivals each: intervals (…, i] of large values, then (i, later] of small ones, all of which share a middle.
    size, later = 1_000, 2**13
    rng = np.random.default_rng(seed)
    ticks = np.concatenate((np.arange(size), np.arange(size) + later))
    fast = CollectiveMax()
    fast.update(np.tile(np.arange(size), 2), ticks, np.concatenate((rng.random(size) + 2, rng.random(size))))
    once = 2.5 * np.log2(len(fast))
    most = once * np.count_nonzero(fast.elements.tree.heights)
    # Right of the middle by their ends, left of it by their starts: only one of a thousand holds the tick.
    for since, owner, low in ((later + size - 1, size - 1, 0.0), (1, 0, 0.0), (size - 1, size - 1, 2.0)):
        nodes, visited = fast._stab(since, low, low + 1)
        assert fast.elements.chain[nodes, OWNER].tolist() == [owner]
        assert visited <= 2 * most + once


def test_a_long_substream_is_searched_in_few_hops():
    fast, size, worst = CollectiveMax(), 3_000, 0
    rng = np.random.default_rng(3)
    for first in range(0, 4 * size, size):
        ticks = np.arange(first, first + size)
        fast.update(np.zeros(size, int), ticks, -ticks.astype(float))
        fast.expire(first + int(rng.integers(0, size)))
        rows, chain, landing = fast.elements.tree.rows, fast.elements.chain, fast.elements.landing
        for since in rng.integers(int(fast.floor), first + size, 200).tolist():
            assert fast.values([0], since)[0] == -since
            node, hops = fast.newest[0], 0
            while rows[node, START] >= since:
                node, hops = chain[node, JUMP if landing[node] >= since else OLDER], hops + 1
            worst = max(worst, hops)
    assert worst <= 3 * np.log2(size)
