"""Adding up the counts of equal hashes, without sorting, and keeping the largest sums."""

from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.core.keys import Hashes
from lately.counters.base import Counts

_SMALL = 1024  # sums below this are ranked by counting, which is faster than sorting


def tally(hashes: Hashes, counts: Counts) -> tuple[Hashes, Counts, Ints]:
    """The distinct hashes in the order of their first row, the sum of the counts of each, and its first row."""
    columns = np.empty(hashes.size, np.uint64), np.zeros(hashes.size, np.int64), np.empty(hashes.size, np.int64)
    table = np.full(1 << max(2 * hashes.size - 1, 1).bit_length(), -1, np.int32)
    size = _tally(hashes, counts, table, *columns)
    return columns[0][:size], columns[1][:size], columns[2][:size]


def surplus(counts: Counts, size: int) -> int:
    """The largest count after the ``size`` largest; 0 if there are no more."""
    return 0 if counts.size <= size else int(_rank(counts, size))


@kernel
def _tally(hashes: Any, counts: Any, table: Any, distinct: Any, sums: Any, first: Any) -> Any:
    mask, size = np.uint64(table.size - 1), 0
    for i in range(hashes.size):
        at = (hashes[i] ^ (hashes[i] >> np.uint64(32))) & mask
        while table[at] >= 0 and distinct[table[at]] != hashes[i]:
            at = (at + np.uint64(1)) & mask
        if table[at] < 0:
            table[at] = size
            distinct[size] = hashes[i]
            first[size] = i
            size += 1
        sums[table[at]] += counts[i]
    return size


@kernel
def _rank(counts: Any, size: Any) -> Any:
    """The largest count after the ``size`` largest."""
    often = np.zeros(_SMALL + 1, np.int64)
    for i in range(counts.size):
        often[min(counts[i], _SMALL)] += 1
    left = size
    for count in range(_SMALL, -1, -1):
        if left < often[count]:
            if count < _SMALL:
                return np.int64(count)
            return np.sort(counts)[counts.size - size - 1]
        left -= often[count]
    return np.int64(0)
