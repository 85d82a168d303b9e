"""Exponential histograms (Datar et al.; ECM-15 §3, ECM-12 §7.1): buckets whose sizes double with age.

Level l holds buckets of ``1 << l`` arrivals, each known by the stamp of its last arrival. When a level would exceed its
most, its two oldest buckets become one bucket of the next level. How many buckets a level ever received follows from the
number of arrivals alone, so a bucket's number gives its slot and nothing but stamps is stored:

    rings[cell]   [ level 0: 2k slots | level 1: k + 1 slots | level 2: k + 1 slots | … ]
                    bucket j of a level covers the positions ((j - 1) << level, j << level], at slot (j - 1) mod size

At least 2k - 1 buckets of size one and k of every other size but the largest keep invariant 1 of the paper,
``C_j / (2(1 + C_1 + … + C_{j-1})) ≤ eps``, for k = ⌈1/(2 eps)⌉. ``cursors`` remember each ring's newest slot, which spares
the division. On the top level a bucket that has left the window is overwritten; one that has not makes a level grow.
"""

from typing import Any

import numpy as np

from lately.core import plan
from lately.core.codec import Reader, Writer
from lately.core.jit import helper, kernel
from lately.counters.base import Bounds, Cells, Counts, Stamps
from lately.counters.positional import PositionalArray, Walk, run_sizes

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_MOST_LEVELS = 64


@helper
def _carried(buckets: Any, size: Any) -> Any:
    """How many of the ``buckets`` that a level of ``size`` received it has passed on to the next."""
    return (buckets - size + _ONE) >> _ONE if buckets > size else _ZERO


@helper
def _size(level: Any, k: Any) -> Any:
    return k + k if level == _ZERO else k + _ONE


@helper
def _place(level: Any, bucket: Any, k: Any) -> Any:
    """Where bucket number ``bucket`` of a level is in its cell's row of the rings."""
    if level == _ZERO:
        return (bucket - _ONE) % (k + k)
    return k + k + (level - _ONE) * (k + _ONE) + (bucket - _ONE) % (k + _ONE)


@helper
def _received(n: Any, k: Any, levels: Any, out: Any) -> None:
    """How many buckets each level has received after ``n`` arrivals."""
    buckets = n
    for level in range(levels):
        out[level] = buckets
        buckets = _carried(buckets, _size(np.uint64(level), k))


@kernel
def _add(cells: Cells, stamps: Stamps, k: Any, state: Any, span: Any) -> int:
    """Count one arrival each; returns how many were counted before a level had to be added."""
    n, first, _, rings, cursors = state
    top = np.uint64(cursors.shape[1] - 1)
    for i in range(cells.size):
        cell, stamp = cells[i], stamps[i]
        # How far the cascade goes is decided by the count alone, before anything is touched.
        depth, buckets, size, base = _ZERO, n[cell] + _ONE, k + k, _ZERO
        while depth < top and buckets > size and (buckets - size) & _ONE:
            buckets = (buckets - size + _ONE) >> _ONE
            base += size
            size = k + _ONE
            depth += _ONE
        if depth == top and buckets > size:
            oldest = np.uint64(cursors[cell, top]) + _ONE
            if stamp - rings[cell, base + (_ZERO if oldest == size else oldest)] <= span:
                return i
        if n[cell] == _ZERO:
            first[cell] = stamp
        n[cell] += _ONE
        base, size = _ZERO, k + k
        for level in range(depth + _ONE):
            slot = np.uint64(cursors[cell, level]) + _ONE
            if slot == size:
                slot = _ZERO
            second = slot + _ONE
            if second == size:
                second = _ZERO
            carry = rings[cell, base + second]  # the pair (slot, second) becomes one bucket that ends with its second
            rings[cell, base + slot] = stamp
            cursors[cell, level] = slot
            stamp = carry
            base += size
            size = k + _ONE
    return int(cells.size)


@kernel
def _add_weighted(cells: Cells, stamps: Stamps, counts: Counts, k: Any, state: Any, span: Any) -> int:
    """Count ``counts[i]`` arrivals at once, in O(k · log count)."""
    n, first, _, rings, cursors = state
    levels = cursors.shape[1]
    top = np.uint64(levels - 1)
    had, has = np.empty(_MOST_LEVELS, np.uint64), np.empty(_MOST_LEVELS, np.uint64)
    for i in range(cells.size):
        cell, stamp, before = cells[i], stamps[i], n[cells[i]]
        after = before + np.uint64(counts[i])
        if after == before:
            continue
        _received(before, k, levels, had)
        _received(after, k, levels, has)
        size = _size(top, k)
        if has[top] > had[top] and has[top] > size:
            lost = has[top] - size
            if lost > had[top] or stamp - rings[cell, _place(top, lost, k)] <= span:
                return i
        for down in range(levels):  # from the top, because what a level receives comes out of those below it
            level = top - np.uint64(down)
            size = _size(level, k)
            for bucket in range(max(had[level], has[level] - min(has[level], size)) + _ONE, has[level] + _ONE):
                position = np.uint64(bucket) << level
                value = stamp
                if position <= before:
                    below = level - _ONE
                    while position >> below > had[below]:
                        below -= _ONE
                    value = rings[cell, _place(below, position >> below, k)]
                rings[cell, _place(level, np.uint64(bucket), k)] = value
            if has[level] > _ZERO:
                cursors[cell, level] = (has[level] - _ONE) % size
        if before == _ZERO:
            first[cell] = stamp
        n[cell] = after
    return int(cells.size)


@kernel
def _count_since(cells: Cells, since: Any, k: Any, state: Any, low: Counts, high: Counts) -> None:
    """The oldest bucket that ends in range may have begun before it: everything newer counts for certain."""
    n, first, base, rings, cursors = state
    levels = cursors.shape[1]
    has = np.empty(_MOST_LEVELS + 1, np.uint64)
    for i in range(cells.size):
        cell, last = cells[i], n[cells[i]]
        low[i] = high[i] = 0
        if first[cell] >= since:
            low[i] = high[i] = last - base[cell]
            continue
        _received(last, k, levels, has)
        has[levels] = _ZERO
        for down in range(levels):
            level = np.uint64(levels - 1 - down)
            newest, size = has[level], _size(level, k)
            left = max(has[level + _ONE] << _ONE, newest - min(newest, size))
            right = newest + _ONE  # the first bucket that ends in range lies in (left, right]
            while left + _ONE < right:
                middle = (left + right) >> _ONE
                if rings[cell, _place(level, middle, k)] < since:
                    left = middle
                else:
                    right = middle
            if right <= newest:
                low[i] = last - (right << level) + _ONE
                high[i] = last - max((right - _ONE) << level, np.uint64(base[cell]))
                break


@kernel
def _walk(live_from: Any, k: Any, state: Any, positions: Any, places: Any, offsets: Any) -> None:
    """Every cell's bucket ends, newest first, and where in the rings each is; see ``PositionalArray._walk``."""
    n, _, base, rings, cursors = state
    levels = cursors.shape[1]
    room = rings.shape[1]
    has = np.empty(_MOST_LEVELS + 1, np.uint64)
    at = 0
    for cell in range(n.size):
        if n[cell] > _ZERO:
            _received(n[cell], k, levels, has)
            has[levels] = _ZERO
            stop = False
            elder = _ZERO
            for index in range(levels):
                level = np.uint64(index)
                bucket = has[level]
                oldest = max(has[level + _ONE] << _ONE, bucket - min(bucket, _size(level, k)))
                while bucket > oldest and not stop:
                    place = _place(level, bucket, k)
                    positions[at] = bucket << level
                    places[at] = np.int64(cell * room) + np.int64(place)
                    stop = rings[cell, place] < live_from or (bucket << level) <= base[cell]
                    if not stop:
                        at += 1
                        bucket -= _ONE
                        elder = bucket << level
                if stop:
                    elder = bucket << level
                    break
            positions[at], places[at] = max(elder, np.uint64(base[cell])), -1
            at += 1
        offsets[cell + 1] = at


@kernel
def _fill(stamps: Stamps, ends: Any, offsets: Counts, k: Any, state: Any) -> None:
    """Fill fresh cells from sorted runs with cumulative counts; the rings must already be large enough."""
    n, first, _, rings, cursors = state
    levels = cursors.shape[1]  # the cursors themselves are aimed when all cells are filled
    has = np.empty(_MOST_LEVELS + 1, np.uint64)
    for cell in range(n.size):
        start, stop = offsets[cell], offsets[cell + 1]
        if start == stop:
            continue
        run, counts = stamps[start:stop], ends[start:stop]
        begin = n[cell]
        n[cell], first[cell] = begin + counts[-1], run[0]
        _received(n[cell], k, levels, has)
        has[levels] = _ZERO
        for index in range(levels):
            level = np.uint64(index)
            for bucket in range((has[level + _ONE] << _ONE) + _ONE, has[level] + _ONE):
                position = np.uint64(bucket) << level
                if position > begin:
                    rings[cell, _place(level, np.uint64(bucket), k)] = run[np.searchsorted(counts, position - begin)]


class ExponentialHistogram(PositionalArray):
    """An array of exponential histograms: any suffix of the window to within ``eps``, with certain bounds.

    Update O(1) amortised and O(log n) at worst, query O(log n · log k), about ``k·log2(n/k)`` entries of 4 bytes a cell.

    Parameters
    ----------
    cells
        The number of counters.
    span
        The age of the oldest tick inside the window, in ticks; the newest has age 0.
    eps
        The error, as a share of the arrivals in the range, between 0 and 1; k is 1/(2·eps), rounded up.

    >>> histogram = ExponentialHistogram(cells=1, span=1000, eps=0.1)
    >>> histogram.add(np.zeros(500, np.uint32), np.arange(1001, 1501, dtype=np.uint32))
    >>> low, value, high = histogram.all_since(1201)
    >>> low[0] <= 300 <= high[0], abs(value[0] - 300) <= 0.1 * 300
    (np.True_, np.True_)
    """

    family = "exphist"
    arrays = ("n", "first", "base", "rings", "cursors")

    def __init__(self, cells: int, span: int, eps: float) -> None:
        super().__init__(cells, span, eps)
        self.k = plan.exphist_capacity(eps)
        self._room(1)
        self._aim()

    @property
    def merge_error(self) -> float:
        return 1 / (2 * self.k)

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        k, span = np.uint64(self.k), np.uint32(self.span)
        done = 0
        while done < cells.size:
            if counts is None:
                done += _add(cells[done:], stamps[done:], k, self._state, span)
            else:
                done += _add_weighted(cells[done:], stamps[done:], counts[done:], k, self._state, span)
            if done < cells.size:
                self._grow()

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        low, high = np.empty(cells.size, np.int64), np.empty(cells.size, np.int64)
        _count_since(cells, stamp, np.uint64(self.k), self._state, low, high)
        return Bounds(low, low + (high - low) // 2, high)

    def _walk(self, live_from: int) -> Walk:
        size = self.rings.size + 2 * self.cells
        positions, places = np.empty(size, np.int64), np.empty(size, np.int64)
        offsets = np.zeros(self.cells + 1, np.int64)
        _walk(np.uint32(live_from), np.uint64(self.k), self._state, positions, places, offsets)
        return Walk(positions[: offsets[-1]], places[: offsets[-1]], offsets)

    def _fill(self, stamps: Stamps, ends: Any, offsets: Counts, newest: Any) -> None:
        sizes = run_sizes(ends, offsets)
        self._draw_bases(sizes, newest, 1 << self._levels(int(sizes.max())))
        self._room(self._levels(int((self.n + sizes).max())))  # levels follow from positions, wherever those begin
        _fill(stamps, ends, offsets, np.uint64(self.k), self._state)
        self._aim()

    def _levels(self, newest: int) -> int:
        """How many levels a cell needs that has dropped nothing up to this position."""
        levels, buckets, size = 1, newest, 2 * self.k
        while buckets > size:
            levels, buckets, size = levels + 1, (buckets - size + 1) // 2, self.k + 1
        return levels

    def _room(self, levels: int) -> None:
        """Allocate empty rings of ``levels`` levels; ``_aim`` must set the cursors after it."""
        self.rings = np.zeros((self.cells, 2 * self.k + (levels - 1) * (self.k + 1)), np.uint32)
        self.cursors = np.zeros((self.cells, levels), np.uint16 if self.k < 2**15 else np.uint32)

    def _aim(self) -> None:
        """Point each cursor at the slot of the newest bucket, which follows from the number of arrivals."""
        buckets = self.n.astype(np.int64)
        for level in range(self.cursors.shape[1]):
            size = self.k + 1 if level else 2 * self.k
            self.cursors[:, level] = np.where(buckets > 0, (buckets - 1) % size, size - 1)
            buckets = np.where(buckets > size, (buckets - size + 1) >> 1, 0)

    def _grow(self) -> None:
        """Add a level, and hand it the bucket that the old top level no longer keeps."""
        old, levels = self.rings, self.cursors.shape[1]
        self._room(levels + 1)
        self._aim()
        self.rings[:, : old.shape[1]] = old
        buckets, size, base = self.n.astype(np.int64), 2 * self.k, 0
        for _ in range(levels - 1):
            buckets = np.where(buckets > size, (buckets - size + 1) >> 1, 0)
            base, size = base + size, self.k + 1
        carried = np.where(buckets > size, (buckets - size + 1) >> 1, 0)
        (cell,) = np.nonzero(buckets - 2 * carried < np.minimum(buckets, size))
        stamp = old[cell, base + (2 * carried[cell] - 1) % size]
        self.rings[cell, base + size + (carried[cell] - 1) % (self.k + 1)] = stamp

    def _write_shape(self, out: Writer) -> None:
        out.u8(self.cursors.shape[1])

    def _read_shape(self, source: Reader) -> None:
        levels = source.within(source.u8(), 1, _MOST_LEVELS)
        source.fits(self.cells * (8 * self.k + levels * (4 * self.k + 8)))
        self._room(levels)
        self._aim()
