"""Deterministic waves (Gibbons & Tirthapura, as used in ECM-15 §4.2) in an implicit layout.

The n-th arrival of a cell is stored at level tz(n), its number of trailing zero bits; the top level takes all higher ones
too. A level is a ring of stamps whose index *is* the position, so an entry is one uint32 and an update is: increment, count
trailing zeros, one store. No cascade, no expiry, no heads:

    rings[level, cell, slot]
      level 0     1   3   5   7   9   11  …      position p = (2k + 1) << level   at slot k mod capacity
      level 1     2     6     10    14    …
      top = 2     4  8  12  16  20  24    …      position p = k << top            at slot k mod capacity

Within the last ``capacity << level`` arrivals every multiple of ``1 << level`` is retained, so the gap around the start of
a range is at most 1/(2·capacity - 1) of the arrivals in it.

Room grows with the stream: when a store on the top level would overwrite a stamp still inside the window, the rings are
doubled up to their capacity and then a level is added. So the state after a stream does not depend on its batches.
"""

from typing import Any

import numpy as np

from lately.core import plan
from lately.core.codec import Reader, Writer
from lately.core.jit import helper, kernel
from lately.counters.base import MAX_STAMP, Bounds, Cells, Counts, Stamps
from lately.counters.bits import newest_odd, trailing_zeros
from lately.counters.positional import PositionalArray, Walk, run_sizes

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_NEVER = np.uint32(MAX_STAMP)


@kernel
def _add(cells: Cells, stamps: Stamps, state: Any, span: Any) -> int:
    """Count one arrival each; returns how many were counted before the rings had to grow."""
    n, first, _, rings = state
    capacity = np.uint64(rings.shape[2])
    top, mask = np.uint64(rings.shape[0] - 1), capacity - _ONE
    for i in range(cells.size):
        cell, stamp = cells[i], stamps[i]
        position = n[cell] + _ONE
        level = trailing_zeros(position)
        if level < top:
            slot = (position >> (level + _ONE)) & mask
        else:
            level = top
            slot = (position >> top) & mask
            if (position >> top) > capacity and stamp - rings[level, cell, slot] <= span:
                return i
        rings[level, cell, slot] = stamp
        n[cell] = position
        if position == _ONE:
            first[cell] = stamp
    return int(cells.size)


@kernel
def add_weighted(cells: Cells, stamps: Stamps, counts: Counts, state: Any, span: Any) -> int:
    """Count ``counts[i]`` arrivals at once, in O(capacity · log count)."""
    n, first, _, rings = state
    capacity = np.uint64(rings.shape[2])
    top, mask = np.uint64(rings.shape[0] - 1), capacity - _ONE
    for i in range(cells.size):
        cell, stamp = cells[i], stamps[i]
        before = n[cell]
        after = before + np.uint64(counts[i])
        if after == before:
            continue
        old, new = before >> top, after >> top
        if new > old and new > capacity:
            lost = new - capacity  # the newest position on the top level that would be overwritten
            if lost > old or stamp - rings[top, cell, lost & mask] <= span:
                return i
        for level in range(top):
            start, stop = newest_odd(before, np.uint64(level)), newest_odd(after, np.uint64(level))
            for k in range(max(start, stop - min(stop, capacity)), stop):
                rings[level, cell, np.uint64(k) & mask] = stamp
        for k in range(max(old, new - min(new, capacity)) + _ONE, new + _ONE):
            rings[top, cell, np.uint64(k) & mask] = stamp
        if before == _ZERO:
            first[cell] = stamp
        n[cell] = after
    return int(cells.size)


@helper
def add_one(cell: Any, stamp: Any, n: Any, first: Any, rings: Any, span: Any) -> Any:
    """Count an arrival in one cell; False, with nothing changed, when the rings must grow first."""
    capacity = np.uint64(rings.shape[2])
    top, mask = np.uint64(rings.shape[0] - 1), capacity - _ONE
    position = n[cell] + _ONE
    level = min(trailing_zeros(position), top)
    slot = (position >> (level + _ONE if level < top else top)) & mask
    fits = level < top or (position >> top) <= capacity or stamp - rings[top, cell, slot] > span
    if fits:
        rings[level, cell, slot] = stamp
        n[cell] = position
        if position == _ONE:
            first[cell] = stamp
    return fits


@helper
def _index(ends: Any, arrival: Any) -> Any:
    """Which entry of a run the arrival is in; a run without counts has one arrival in each."""
    return np.int64(arrival) - 1 if ends.size == 0 else np.searchsorted(ends, arrival)


@kernel
def _append(cell: Any, stamps: Stamps, ends: Any, state: Any, span: Any) -> bool:
    """Append a sorted run with cumulative counts to one cell, in O(levels · capacity) however long the run.

    Empty ``ends`` say one arrival each. Returns False, with nothing changed, when the rings must grow first.
    """
    n, first, base, rings = state
    capacity = np.uint64(rings.shape[2])
    top, mask = np.uint64(rings.shape[0] - 1), capacity - _ONE
    before = n[cell]
    after = before + (ends[-1] if ends.size else np.uint64(stamps.size))
    if after == before:
        return True
    old, new = before >> top, after >> top
    for k in range(max(old + _ONE, capacity + _ONE), new + _ONE):
        position, lost = np.uint64(k) << top, np.uint64(k) - capacity
        stamp = stamps[_index(ends, position - before)]
        if lost > old:
            overwritten = stamps[_index(ends, (lost << top) - before)]
        else:
            overwritten = rings[top, cell, lost & mask]
        if stamp - overwritten <= span:
            return False
    for level in range(top + _ONE):
        if np.uint64(level) == top:
            start, stop = old + _ONE, new + _ONE
        else:
            start, stop = newest_odd(before, np.uint64(level)), newest_odd(after, np.uint64(level))
        for k in range(max(start, stop - min(stop, capacity)), stop):
            if np.uint64(level) == top:
                position = np.uint64(k) << top
            else:
                position = (np.uint64(2) * np.uint64(k) + _ONE) << np.uint64(level)
            rings[level, cell, np.uint64(k) & mask] = stamps[_index(ends, position - before)]
    if before == base[cell]:
        first[cell] = stamps[_index(ends, _ONE)]
    n[cell] = after
    return True


@kernel
def _append_all(start: Any, stamps: Stamps, ends: Any, offsets: Counts, state: Any, span: Any) -> int:
    """``_append`` a run to each cell from ``start`` on; returns the first for which the rings must grow, or their number."""
    for cell in range(start, offsets.size - 1):
        if offsets[cell + 1] > offsets[cell]:
            own = slice(offsets[cell], offsets[cell + 1])
            if not _append(cell, stamps[own], ends[own], state, span):
                return int(cell)
    return int(offsets.size - 1)


@helper
def _gap(cell: Any, since: Any, n: Any, rings: Any) -> Any:
    """Positions around the start of a range: one stamped before it, one stamped in it or beyond the newest.

    Halves the gap level by level while it is retained.
    """
    capacity = np.uint64(rings.shape[2])
    top, mask = np.uint64(rings.shape[0] - 1), capacity - _ONE
    last = n[cell]
    # On the top level: the newest multiple stamped before the range. Older ones than the ring have left the window.
    newest = last >> top
    left, right = newest - min(newest, capacity), newest
    while left < right:
        middle = (left + right + _ONE) >> _ONE
        if rings[top, cell, middle & mask] < since:
            left = middle
        else:
            right = middle - _ONE
    before = left << top  # stamped too early (or position 0)
    after = before + (_ONE << top)  # stamped in range (or beyond the newest)
    level = top
    while level > _ZERO:
        level -= _ONE
        middle = before + (_ONE << level)
        if middle > last:
            after = middle
            continue
        index = middle >> (level + _ONE)
        if index + capacity < newest_odd(last, level):
            break  # no longer retained: the gap stays as wide as this
        if rings[level, cell, index & mask] < since:
            before = middle
        else:
            after = middle
    return before, after


@kernel
def _count_since(cells: Cells, since: Any, state: Any, low: Counts, high: Counts) -> None:
    n, first, base, rings = state
    for i in range(cells.size):
        cell = cells[i]
        last = n[cell]
        if first[cell] >= since:  # the whole cell is in range
            low[i] = high[i] = last - base[cell]
            continue
        before, after = _gap(cell, since, n, rings)
        low[i] = last + _ONE - min(after, last + _ONE)
        high[i] = last - max(before, np.uint64(base[cell]))


@helper
def count_and_expiry(cell: Any, since: Any, n: Any, first: Any, base: Any, rings: Any) -> Any:
    """(value, due) of a cell: what it counts since a stamp, as ``Wave.since`` does, and until which stamp that stays so."""
    last = n[cell]
    value, due = np.int64(last - base[cell]), first[cell]
    if value == 0 or due < since:
        before, after = _gap(cell, since, n, rings)
        value, due = np.int64(0), _NEVER  # where the newest, which is always retained, is not in range
        if after <= last:
            low, high = np.int64(last + _ONE - after), np.int64(last - max(before, np.uint64(base[cell])))
            top, mask = np.uint64(rings.shape[0] - 1), np.uint64(rings.shape[2]) - _ONE
            level = min(trailing_zeros(after), top)
            slot = (after >> (level + _ONE if level < top else top)) & mask
            value, due = low + (high - low) // 2, rings[level, cell, slot]
    return value, due


@helper
def _is_retained(position: Any, level: Any, top: Any, last: Any, capacity: Any) -> Any:
    if level == top:
        return (position >> top) + capacity > (last >> top)
    return (position >> (level + _ONE)) + capacity >= newest_odd(last, level)


@kernel
def _walk(live_from: Any, state: Any, positions: Any, places: Any, offsets: Any) -> None:
    """Every cell's retained positions, newest first, and where in the rings each is; see ``PositionalArray._walk``.

    Steps down at the finest level that is still retained, which coarsens as it goes back in time.
    """
    n, _, base, rings = state
    cells, capacity = np.uint64(rings.shape[1]), np.uint64(rings.shape[2])
    top, mask = np.uint64(rings.shape[0] - 1), capacity - _ONE
    at = 0
    for cell in range(n.size):
        last = n[cell]
        position, step, stop = last, _ZERO, last == _ZERO
        while not stop:
            positions[at], places[at] = max(position, np.uint64(base[cell])), -1
            if position <= base[cell]:
                stop = True
            else:
                level = min(trailing_zeros(position), top)
                if _is_retained(position, level, top, last, capacity):
                    slot = (position >> top) & mask if level == top else (position >> (level + _ONE)) & mask
                    if rings[level, cell, slot] >= live_from:
                        places[at] = np.int64((level * cells + np.uint64(cell)) * capacity + slot)
                    else:
                        stop = True
                    position -= _ONE << step
                    while position > _ZERO and step < top:
                        level = min(trailing_zeros(position), top)
                        if _is_retained(position, level, top, last, capacity):
                            break
                        step += _ONE  # the gap widens: go on at multiples of the next power of two
                        position = (position >> step) << step
                else:
                    stop = True
            at += 1
        offsets[cell + 1] = at


@kernel
def _move_top(n: Any, rings: Any, larger: Any) -> None:
    """Move the top level into rings of twice its capacity, or to its place in rings of one more level."""
    top, capacity = np.uint64(rings.shape[0] - 1), np.uint64(rings.shape[2])
    mask, wide = capacity - _ONE, np.uint64(larger.shape[2]) - _ONE
    for cell in range(n.size):
        newest = n[cell] >> top
        for back in range(min(newest, capacity)):
            index = newest - np.uint64(back)
            stamp = rings[top, cell, index & mask]
            if wide > mask:
                larger[top, cell, index & wide] = stamp
            else:
                larger[top + _ONE - (index & _ONE), cell, (index >> _ONE) & mask] = stamp


class Wave(PositionalArray):
    """An array of deterministic waves: any suffix of the window to within ``eps``, with certain bounds.

    Update O(1), query O(log n), 4 bytes an entry, about ``log2(2·eps·n) / (2·eps)`` entries a cell.

    Parameters
    ----------
    cells
        The number of counters.
    span
        The age of the oldest tick inside the window, in ticks; the newest has age 0.
    eps
        The error, as a share of the arrivals in the range, between 0 and 1.

    >>> wave = Wave(cells=1, span=1000, eps=0.1)
    >>> wave.add(np.zeros(500, np.uint32), np.arange(1001, 1501, dtype=np.uint32))
    >>> low, value, high = wave.all_since(1201)
    >>> low[0] <= 300 <= high[0], abs(value[0] - 300) <= 0.1 * 300
    (np.True_, np.True_)
    """

    family = "wave"
    arrays = ("n", "first", "base", "rings")

    def __init__(self, cells: int, span: int, eps: float) -> None:
        super().__init__(cells, span, eps)
        self.capacity = plan.wave_capacity(eps)
        self.rings = np.zeros((1, cells, 1), np.uint32)

    @property
    def merge_error(self) -> float:
        return 1 / (2 * self.capacity - 1)

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        span = np.uint32(self.span)
        done = 0
        while done < cells.size:
            if counts is None:
                done += _add(cells[done:], stamps[done:], self._state, span)
            else:
                done += add_weighted(cells[done:], stamps[done:], counts[done:], self._state, span)
            if done < cells.size:
                self._grow()

    def extend(self, stamps: Stamps, counts: Counts | None = None) -> None:
        if stamps.size:
            ends = np.empty(0, np.uint64) if counts is None else np.cumsum(counts).astype(np.uint64)
            while not _append(0, stamps, ends, self._state, np.uint32(self.span)):
                self._grow()

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        low, high = np.empty(cells.size, np.int64), np.empty(cells.size, np.int64)
        _count_since(cells, stamp, self._state, low, high)
        return Bounds(low, low + (high - low) // 2, high)

    def _grow(self) -> None:
        """Double the only ring, or when it has its full capacity, split the top level in two."""
        levels, cells, capacity = self.rings.shape
        if capacity < self.capacity:
            rings = np.zeros((1, cells, 2 * capacity), np.uint32)
        else:
            rings = np.zeros((levels + 1, cells, capacity), np.uint32)
            rings[: levels - 1] = self.rings[:-1]
        _move_top(self.n, self.rings, rings)
        self.rings = rings

    def _walk(self, live_from: int) -> Walk:
        size = self.rings.size + 2 * self.cells
        positions, places = np.empty(size, np.int64), np.empty(size, np.int64)
        offsets = np.zeros(self.cells + 1, np.int64)
        _walk(np.uint32(live_from), self._state, positions, places, offsets)
        return Walk(positions[: offsets[-1]], places[: offsets[-1]], offsets)

    def _fill(self, stamps: Stamps, ends: Any, offsets: Counts, newest: Any) -> None:
        sizes = run_sizes(ends, offsets)
        live = int(sizes.max())
        capacity = min(self.capacity, 1 << max(0, live - 1).bit_length())
        levels = 1 if capacity < self.capacity else plan.levels(max(live, capacity), capacity)
        self.rings = np.zeros((levels, self.cells, capacity), np.uint32)
        self._draw_bases(sizes, newest, 1 << levels)
        self._append_runs(stamps, ends, offsets)

    def _append_runs(self, stamps: Stamps, ends: Any, offsets: Counts) -> None:
        """Append a run to each cell, growing the rings where they are too small for it."""
        cell, span = 0, np.uint32(self.span)
        while (cell := _append_all(cell, stamps, ends, offsets, self._state, span)) < self.cells:
            self._grow()

    def _write_shape(self, out: Writer) -> None:
        out.u8(self.rings.shape[0])
        out.u8(self.rings.shape[2].bit_length() - 1)

    def _read_shape(self, source: Reader) -> None:
        levels = source.within(source.u8(), 1, 64)
        capacity = 1 << source.within(source.u8(), 0, 40)
        source.check(capacity == self.capacity or (capacity < self.capacity and levels == 1), "rings of a wrong size")
        source.fits(4 * levels * self.cells * capacity)
        self.rings = np.zeros((levels, self.cells, capacity), np.uint32)
