"""Merging deterministic counters by replaying what they retained (ECM-15 §5.1).

Each input cell is a log of segments between retained positions. About half of a segment's arrivals are replayed at its start
and half at its end, the logs of all inputs interleaved in time:

    retained      p0 ......... p1 ..... p2          positions, with their stamps
    segments         p1 - p0     p2 - p1            arrivals between them
    replayed    ½(p1-p0)  ½(p1-p0)+½(p2-p1)  ½(p2-p1)

Plain halves bias trees of merges, whose errors add up, so they are corrected in two ways:

- The last arrival of a segment is at its end for certain; only the others can be on either side of a range's start. So a
  range that begins in a segment has from ``a`` to ``b`` arrivals: ``a`` is one more than came after the segment, ``b`` is
  all that came after its start. What is replayed at the end makes it a + (b - a)·3a/(4a + 2b). That is below the middle, by
  (b - a)²/(6a) at most: an error counts relative to the truth, so being too high weighs more than being too low. It is
  the value whose relative error is zero on average if ranges of all orders of magnitude are as likely.
- That is not a whole number. Rounded for each segment of each input, ranges would lose half an arrival for each input
  and level of the tree. So weights are fixed-point numbers, and only sums over all inputs are rounded: the arrivals since
  any stamp, down or up in such a way that they are right on average.

The bound of ECM-15 (Lemma 5) holds as with halves. A range's count x becomes x', where both are sums over the inputs of
numbers from ``a`` to ``b``. With g arrivals in a segment and a ``merge_error`` of m, retained positions are so dense that
g ≤ 2·m·a. So before rounding x' - x ≤ (g - 1)/2 and x - x' ≤ (g - 1)/2 + (g - 1)²/(6a) in each input, each at least 1/2
less than m·x at its worst (x = a, and x = b). Where two or more inputs are cut, that makes up for the rounding, by less
than 1. Where only one is, x' is one of the two whole numbers around its value, and still within m·x: rounded up it exceeds a
by g/2 at most; rounded down it is below b by g/2 at most, or else (g - 1)² > 3a and m·b has the room. (An odd g is what is
left of a gap of g + 1 or more: as good as even.)
"""

from typing import Any

import numpy as np

from lately.core.jit import helper, kernel
from lately.core.splitmix64 import GAMMA

_ZERO, _ONE, _32, _64, _LOW = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(64), np.uint64(2**32 - 1)


def fraction_bits(most: int) -> np.uint64:
    """How many bits after the point weights may have, so that ``most`` arrivals fit into 64 bits."""
    return np.uint64(max(1, min(8, 63 - most.bit_length())))


@kernel
def split_segments(positions: Any, places: Any, offsets: Any, stamps_of: Any, limits: Any, bits: Any) -> Any:
    """Converts retained positions into weighted points, oldest first: a part of each segment at its start, the rest at its end.

    Weights have ``bits`` bits after the point.
    """
    rings, first, base = stamps_of
    shift, live_from = limits
    unit = _ONE << bits
    out_stamps = np.empty(positions.size, np.uint32)
    out_weights = np.empty(positions.size, np.uint64)
    out_offsets = np.zeros(offsets.size, np.int64)
    at = 0
    for cell in range(offsets.size - 1):
        before = np.uint64(0)  # the part of the previous (older) segment that belongs to its end
        newest = positions[offsets[cell]] if offsets[cell] < offsets[cell + 1] else 0
        for i in range(offsets[cell + 1] - 1, offsets[cell] - 1, -1):
            weight = before
            if i > offsets[cell]:
                size, before = positions[i - 1] - positions[i], unit  # the last of a segment is at its end
                if size > 1:
                    least = np.float64(newest - positions[i - 1] + 1)
                    others = np.float64(size - 1)
                    before = np.uint64((1.0 + others / (2.0 + others / (1.5 * least))) * np.float64(unit))
                    weight += (np.uint64(size) << bits) - before
            stamp = np.int64(0)  # unknown, but it has left the window
            if places[i] >= 0:
                stamp = np.int64(rings[places[i]]) + shift
            elif positions[i] == base[cell] and first[cell] > 0:
                stamp = np.int64(first[cell]) + shift
            if stamp >= live_from and weight > _ZERO:
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
        out[k] = min(left, right)  # selected, not branched to: the branch would be unpredictable
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


@helper
def _rounded(weight: Any, bits: Any) -> Any:
    """Rounds a weight up or down; the share that is rounded up is its fractional part."""
    integral = weight >> bits
    return integral + np.uint64(weight - (integral << bits) > (integral * GAMMA) >> (_64 - bits))


@kernel
def interleave(stamps: Any, weights: Any, offsets: Any, bits: Any) -> Any:
    """Merge, cell by cell, the sorted points of all inputs (row i of ``offsets`` is input i) into one sorted run each.

    Returns stamps, the cumulative counts within the cell, and the offsets of the cells. The counts are whole numbers:
    the total after each stamp is rounded once, not once per input.
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
        size, left = 0, _ZERO  # points, and the weight of those that come later
        for i in range(inputs):
            runs[i] = size
            for j in range(offsets[i, cell], offsets[i, cell + 1]):
                here[size] = (np.uint64(stamps[j]) << _32) | np.uint64(j)
                left += weights[j]
                size += 1
        runs[inputs] = size
        count = inputs
        while count > 1:  # merge neighbouring runs two by two until one is left
            runs_left = 0
            for r in range(0, count, 2):
                _merge_two(here, there, runs[r], runs[r + 1], runs[min(r + 2, count)])
                runs[runs_left] = runs[r]
                runs_left += 1
            runs[runs_left] = size
            count = runs_left
            here, there = there, here
        total, end, at = _rounded(left, bits), _ZERO, out_offsets[cell]
        for k in range(size):
            left -= weights[here[k] & _LOW]
            until = total - _rounded(left, bits)
            out_stamps[at], out_ends[at] = np.uint32(here[k] >> _32), until
            at += int(until > end)  # a point whose weight rounds to 0 is overwritten by the next
            end = until
        out_offsets[cell + 1] = at
    return out_stamps[: out_offsets[cells]], out_ends[: out_offsets[cells]], out_offsets
