"""Adding up equal hashes and keeping the largest sums, against a Counter and a sorted list."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.sketches.tally import surplus, tally

#: Some that begin at one place of any table, also when their upper half is folded in, and the ends of what there is.
HASHES = [
    0,
    1,
    2**64 - 1,
    2**63,
    *(i << 16 for i in range(1, 9)),
    *(i << 48 for i in range(1, 9)),
    *(i | i << 32 for i in (5, 9)),
]
few = st.sampled_from(HASHES)
rows = st.lists(st.tuples(few | st.integers(0, 2**64 - 1), st.integers(0, 2**40)), max_size=80)


@given(rows)
def test_a_tally_is_a_counter_in_the_order_of_first_coming(pairs):
    hashes = np.array([h for h, _ in pairs], np.uint64)
    counts = np.array([c for _, c in pairs], np.int64)
    exact = Counter()
    for h, c in pairs:
        exact[h] += c  # a dictionary remembers who came first
    distinct, sums, first = tally(hashes, counts)
    assert dict(zip(distinct.tolist(), sums.tolist(), strict=True)) == exact
    assert distinct.tolist() == list(exact)
    assert first.tolist() == [hashes.tolist().index(h) for h in exact]
    assert (distinct.dtype, sums.dtype, first.dtype) == (np.uint64, np.int64, np.int64)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 127, 128, 129, 5000])
def test_a_table_has_room_for_keys_that_all_differ_and_for_one_key(size):
    """Sizes around powers of two, with hashes that all begin at one place: the table must neither run over nor lose any."""
    for hashes in (np.arange(size), np.arange(size) << 20, np.zeros(size, int)):
        hashes = hashes.astype(np.uint64)
        distinct, sums, first = tally(hashes, np.full(size, 3))
        assert distinct.tolist() == (hashes.tolist() if hashes.any() else [0])
        assert sums.sum() == 3 * size
        assert hashes[first].tolist() == distinct.tolist()


def test_sums_reach_all_arrivals_that_there_can_be():
    _, sums, _ = tally(np.array([7, 7, 8], np.uint64), np.array([2**61, 2**61, 2**62]))
    assert sums.tolist() == [2**62, 2**62]


def test_the_columns_are_left_as_they_are():
    hashes, counts = np.array([7, 7, 8], np.uint64), np.array([1, 2, 3])
    tally(hashes, counts)
    surplus(counts, 1)
    assert (hashes.tolist(), counts.tolist()) == ([7, 7, 8], [1, 2, 3])


counted = st.integers(0, 5) | st.integers(1020, 1030) | st.integers(0, 2**62)


@given(st.lists(counted, max_size=60), st.integers(1, 62))
def test_a_surplus_is_the_first_count_too_many(counts, size):
    expected = sorted(counts, reverse=True)[size] if len(counts) > size else 0
    assert surplus(np.array(counts, np.int64), size) == expected


@given(st.lists(counted, max_size=60), st.integers(1, 62))
def test_no_more_than_size_are_above_the_surplus_and_it_is_small_beside_all(counts, size):
    """What Misra and Gries count on: size + 1 keys have at least the surplus each, so it is at most a share of all."""
    error = surplus(np.array(counts, np.int64), size)
    assert sum(count > error for count in counts) <= size
    assert error * (size + 1) <= sum(counts)
