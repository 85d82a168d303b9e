"""Merging deterministic counters by replaying what they retained (ECM-15 §5.1).

Each input cell is a log of segments between retained positions. Half of a segment's arrivals are replayed at its start and
half at its end (an odd one out at its end), the logs of all inputs interleaved in time:

    retained      p0 ......... p1 ..... p2          positions, with their stamps
    segments         p1 - p0     p2 - p1            arrivals between them
    replayed    ½(p1-p0)  ½(p1-p0)+½(p2-p1)  ½(p2-p1)
"""

from typing import Any

import numpy as np

from lately.core.jit import kernel

_ONE, _32, _LOW = np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)


@kernel
def halves(positions: Any, places: Any, offsets: Any, stamps_of: Any, shift: Any, live_from: Any) -> Any:
    """A walk as weighted points, oldest first: half of each segment at its start, the rest at its end."""
    rings, first, base = stamps_of
    out_stamps = np.empty(positions.size, np.uint32)
    out_weights = np.empty(positions.size, np.int64)
    out_offsets = np.zeros(offsets.size, np.int64)
    at = 0
    for cell in range(offsets.size - 1):
        before = np.int64(0)  # the half of the previous (older) segment that belongs to its end
        for i in range(offsets[cell + 1] - 1, offsets[cell] - 1, -1):
            weight = before
            if i > offsets[cell]:
                size = positions[i - 1] - positions[i]
                weight += size // 2
                before = size - size // 2
            stamp = np.int64(0)  # unknown, but it has left the window
            if places[i] >= 0:
                stamp = np.int64(rings[places[i]]) + shift
            elif positions[i] == base[cell] and first[cell] > 0:
                stamp = np.int64(first[cell]) + shift
            if stamp >= live_from and weight > 0:
                out_stamps[at] = np.uint32(stamp)
                out_weights[at] = weight
                at += 1
        out_offsets[cell + 1] = at
    return out_stamps[:at], out_weights[:at], out_offsets


@kernel
def _merge_two(words: Any, out: Any, start: Any, middle: Any, stop: Any) -> None:
    """Merge the sorted runs start:middle and middle:stop of ``words`` into ``out``."""
    # Unsigned, so that no index has to be checked for counting from the end.
    a, b, k = np.uint64(start), np.uint64(middle), np.uint64(start)
    end_a, end_b = np.uint64(middle), np.uint64(stop)
    while a < end_a and b < end_b:
        left, right = words[a], words[b]
        earlier = np.uint64(left <= right)
        out[k] = min(left, right)  # selected, not branched to: nobody can predict it
        a += earlier
        b += _ONE - earlier
        k += _ONE
    while a < end_a:
        out[k] = words[a]
        a += _ONE
        k += _ONE
    while b < end_b:
        out[k] = words[b]
        b += _ONE
        k += _ONE


@kernel
def interleave(stamps: Any, weights: Any, offsets: Any) -> Any:
    """Merge, cell by cell, the sorted points of all inputs (row i of ``offsets`` is input i) into one sorted run each.

    Returns stamps, the cumulative counts within the cell, and the offsets of the cells.
    """
    inputs, cells = offsets.shape[0], offsets.shape[1] - 1
    most = 0
    for cell in range(cells):
        size = 0
        for i in range(inputs):
            size += offsets[i, cell + 1] - offsets[i, cell]
        most = max(most, size)
    # A point is one word, its stamp above its index: they sort by time, and one load moves both.
    here, there = np.empty(most, np.uint64), np.empty(most, np.uint64)
    runs = np.empty(inputs + 1, np.int64)
    out_stamps, out_ends = np.empty(stamps.size, np.uint32), np.empty(stamps.size, np.uint64)
    out_offsets = np.zeros(cells + 1, np.int64)
    for cell in range(cells):
        size = 0
        for i in range(inputs):
            runs[i] = size
            for j in range(offsets[i, cell], offsets[i, cell + 1]):
                here[size] = (np.uint64(stamps[j]) << _32) | np.uint64(j)
                size += 1
        runs[inputs] = size
        count = inputs
        while count > 1:  # merge neighbouring runs two by two until one is left
            kept = 0
            for r in range(0, count, 2):
                _merge_two(here, there, runs[r], runs[r + 1], runs[min(r + 2, count)])
                runs[kept] = runs[r]
                kept += 1
            runs[kept] = size
            count = kept
            here, there = there, here
        start = out_offsets[cell]
        total = np.uint64(0)
        for k in range(size):
            total += np.uint64(weights[here[k] & _LOW])
            out_stamps[start + k] = np.uint32(here[k] >> _32)
            out_ends[start + k] = total
        out_offsets[cell + 1] = start + size
    return out_stamps, out_ends, out_offsets
