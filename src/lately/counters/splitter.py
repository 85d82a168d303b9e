"""Counters whose cells split when their rate changes: SPLITTER of the windowed Count-Min (WCM §3.4).

A cell is a list of sub-cells, each with its arrivals, the step at which it began and that of its last arrival. A sub-cell is
taken to have had an even rate: as the window's start passes through it, it drains evenly. The newest one is joined to the one
before when their rates differ by a factor of at most ``mu``, and else the cell splits:

    window's start                                   now
          v                                           v
    [·····|····· 90 ·······]   [ 400 ][··· 60 ···][ 7 ]
      draining, 36 counted       a burst             too young to judge: fewer than tau·N/width

The paper visits every cell at every step. Here a cell catches up when it has to: to be judged, and when read. In between an
arrival is two stores. The rates are those of the text, not of Listing 3.5, whose denominators are misprinted. What a sub-cell
had in all, and what came since it last drained, bound the count for certain.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.jit import helper, kernel
from lately.counters.base import MAX_COUNT, MAX_STAMP, NO_COUNTS, Bounds, Cells, CounterArray, Counts, Stamps

#: No sub-cell.
NONE = np.uint32(2**32 - 1)


class Pool(NamedTuple):
    """Sub-cells of all cells, a row each: their numbers, and their stamps and links.

    ``left`` is the number of a sub-cell's arrivals inside the window, ``gone`` of those that left it: together all it had.
    ``unsure`` is the number that it had when it last drained, any of which may have left since. ``after`` and ``before``
    link the sub-cells of a cell, ``after`` also the free ones.
    """

    numbers: NDArray[np.float64]  # left, gone, unsure, nothing: a row is half a cache line
    marks: NDArray[np.uint32]  # init, last, after, before

    @classmethod
    def of(cls, size: int) -> "Pool":
        return cls(np.zeros((size, 4)), np.full((size, 4), NONE, np.uint32))

    def take(self, places: Any) -> "Pool":
        """A copy of some of them, in this order."""
        return Pool(self.numbers[places], self.marks[places])

    @property
    def left(self) -> NDArray[np.float64]:
        return self.numbers[:, 0]

    @property
    def init(self) -> Stamps:
        return self.marks[:, 0]

    @property
    def last(self) -> Stamps:
        return self.marks[:, 1]


class Splitter(CounterArray):
    """An array of splitting cells in rows of ``width``; it answers for the whole window only.

    ``tau`` and ``mu`` are the paper's. Where steps are ticks rather than arrivals, the share tau is of what lately came in N
    ticks: in the period before, or in this one if it goes on as it began.

    >>> cells = Splitter(cells=1, span=99, tau=0.1, mu=1.5, width=1)
    >>> cells.add(np.zeros(150, np.uint32), np.arange(301, 451, dtype=np.uint32))
    >>> low, value, high = cells.all_since(351)
    >>> bool(low[0] <= 100 <= high[0]), abs(int(value[0]) - 100) <= 2
    (True, True)
    """

    family = "splitter"

    def __init__(self, cells: int, span: int, tau: float, mu: float, width: int, by_arrival: bool = True) -> None:
        super().__init__(cells, span, 0.0)
        self.tau, self.mu, self.width, self.by_arrival = tau, mu, width, by_arrival
        self.steps, self.origin = span + 1, 0
        self.head, self.tail = np.full(cells, NONE), np.full(cells, NONE)
        self.pool, self.free = Pool.of(0), np.array([NONE])
        # For each row: when its period began (0: not yet), and the arrivals of the one before and of this one.
        self.periods = np.zeros((cells // width, 3), np.int64)

    @property
    def merge_error(self) -> float:
        return 0.0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.pool, self.head, self.tail, self.periods))

    def splits(self, now: int) -> int:
        """Sub-cells in the window that ends at ``now``, beyond the two that every cell has after warm-up."""
        cells, where = self._walk()
        live = self.pool.last[where] >= self.live_from(now)
        return int(np.maximum(np.bincount(cells[live], minlength=self.cells) - 2, 0).sum())

    def begin(self, origin: int) -> None:
        self.origin = origin

    # -- write ---------------------------------------------------------------------------------------------------------

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        rows = cells // np.uint32(self.width)
        for row in np.unique(rows):
            in_row = rows == row
            self.add_to_row(int(row), cells[in_row], stamps[in_row], None if counts is None else counts[in_row])

    def add_to_row(self, row: int, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        weights = NO_COUNTS if counts is None else counts
        least = np.float64(self.tau / self.width * (self.steps if self.by_arrival else 1))
        limits = np.int64(self.steps), least, np.float64(self.mu), self.by_arrival
        done = 0
        while done < cells.size:
            state = self.head, self.tail, self.free, self.periods[row]
            rest = cells[done:], stamps[done:], weights[done:] if weights.size else weights
            done += _add(*rest, state, self.pool, limits)
            if done < cells.size:
                self._grow()

    def _grow(self) -> None:
        size = self.pool.left.size
        larger = Pool.of(max(16, 2 * size))
        larger.numbers[:size], larger.marks[:size] = self.pool
        larger.marks[size:-1, 2] = np.arange(size + 1, larger.left.size)
        self.pool, self.free[0] = larger, size

    def rebase(self, shift: int) -> None:
        self.origin += shift
        self.periods[:, 0] = np.maximum(self.periods[:, 0] - shift, np.minimum(self.periods[:, 0], 1))
        cells, where = self._walk()
        kept = self.pool.last[where] > shift
        self._relink(cells[kept], self.pool.take(where[kept]))
        for stamps in (self.pool.init, self.pool.last):
            stamps[...] = np.where(stamps > shift, stamps - np.uint32(min(shift, MAX_STAMP)), 1)

    # -- read ----------------------------------------------------------------------------------------------------------

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        bounds = Bounds(*(np.zeros(cells.size, np.int64) for _ in range(3)))
        _read(cells, np.int64(stamp), self.head, self.pool, bounds)
        return bounds

    def _walk(self) -> tuple[Counts, Counts]:
        """Every sub-cell in the order of cells and of time: its cell, and its place in the pool."""
        cells, places = np.empty(self.pool.left.size, np.int64), np.empty(self.pool.left.size, np.int64)
        count = _walk(self.head, self.pool.marks, cells, places)
        return cells[:count], places[:count]

    def _relink(self, cells: Counts, pool: Pool) -> None:
        """Replace all sub-cells by these, which come in the order of cells and of time."""
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        ends = np.flatnonzero(np.diff(cells, append=-1))
        pool.marks[:, 2], pool.marks[:, 3] = np.arange(1, cells.size + 1), np.arange(cells.size) - 1 & 2**32 - 1
        pool.marks[ends, 2], pool.marks[starts, 3] = NONE, NONE
        self.head[:], self.tail[:] = NONE, NONE
        self.head[cells[starts]], self.tail[cells[ends]] = starts, ends
        self.pool, self.free = pool, np.array([NONE])

    # -- merging and storing -------------------------------------------------------------------------------------------

    def copy(self) -> Self:
        twin = type(self)(self.cells, self.span, self.tau, self.mu, self.width, self.by_arrival)
        twin.origin, twin.height = self.origin, self.height
        twin.pool = Pool(self.pool.numbers.copy(), self.pool.marks.copy())
        twin.head, twin.tail, twin.free = self.head.copy(), self.tail.copy(), self.free.copy()
        twin.periods = self.periods.copy()
        return twin

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        """All sub-cells of all inputs side by side: counts and bounds are the sums of theirs."""
        result = type(self)(self.cells, self.span, self.tau, self.mu, self.width, self.by_arrival)
        result.height = 1 + max(array.height for array in (self, *others))
        result.begin(self.origin - shifts[0])
        now = live_from + self.span
        owners, pools = [], []
        for array, shift in zip((self, *others), shifts, strict=True):
            cells, where = array._walk()
            init, last = (stamps[where].astype(np.int64) + shift for stamps in (array.pool.init, array.pool.last))
            live = last >= live_from
            part = array.pool.take(where[live])
            part.init[:], part.last[:] = np.maximum(init[live], 1), last[live]
            owners.append(cells[live])
            pools.append(part)
            began, earlier, recent = array.periods.T
            ago = (now - began - shift) // self.steps  # whole periods since
            result.periods[:, 1] += np.where(ago == 0, earlier, np.where(ago == 1, recent, 0))
            result.periods[:, 2] += np.where(ago == 0, recent, 0)
        result.periods[:, 0] = max(now - self.span, 1)  # the periods of sites differ: the merged period starts with the window
        cells = np.concatenate(owners)
        pool = Pool(np.concatenate([p.numbers for p in pools]), np.concatenate([p.marks for p in pools]))
        order = np.lexsort((pool.last, pool.init, cells))
        result._relink(cells[order], pool.take(order))
        return result

    def write(self, out: Writer, now: int) -> None:
        cells, where = self._walk()
        live = self.pool.last[where] >= self.live_from(now)
        cells, where = cells[live], where[live]
        out.u8(self.height)
        out.integers(np.bincount(cells, minlength=self.cells))
        for numbers in self.pool.numbers[where, :3].T:
            out.u64s(numbers.copy().view(np.uint64))
        for stamps in (self.pool.init, self.pool.last):
            out.integers(now - stamps[where].astype(np.int64))
        out.integers(now - self.periods[:, 0])
        out.integers(self.periods[:, 1:].ravel())

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height = source.u8()
        sizes = source.integers(0, 2**31)
        source.check(sizes.size == self.cells, "cells are missing")
        numbers = [source.u64s().view(np.float64) for _ in range(3)]
        source.check(all(int(sizes.sum()) == column.size < 2**31 for column in numbers), "the sub-cells do not add up")
        left, gone, unsure = numbers
        source.check(all(bool(((n >= 0) & (n <= MAX_COUNT)).all()) for n in numbers), "a count out of range")
        source.check(float(left.sum() + gone.sum()) <= MAX_COUNT * len(self.periods), "more arrivals than can be counted")
        init, last = source.integers(0, min(2 * self.span + 1, now - 1)), source.integers(now - newest, min(self.span, now - 1))
        source.check(init.size == last.size == left.size, "columns of different lengths")
        source.check(
            bool((unsure <= (left + gone) * (1 + 1e-9)).all() and (last <= init).all()),
            "inconsistent counts or stamps in a sub-cell",
        )
        cells = np.repeat(np.arange(self.cells), sizes)
        rising = np.diff(init, prepend=0) <= 0
        rising[(np.cumsum(sizes) - sizes)[sizes > 0]] = True
        source.check(bool(rising.all()), "sub-cells are out of order")
        began, arrived = source.integers(-(2**40), 2**40), source.integers(0, MAX_COUNT)
        source.check(began.size == len(self.periods) and arrived.size == 2 * began.size, "periods are missing")
        pool = Pool.of(left.size)
        pool.numbers[:, :3] = np.column_stack(numbers)
        pool.init[:], pool.last[:] = now - init, now - last
        self._relink(cells, pool)
        self.periods = np.column_stack((now - began, arrived.reshape(-1, 2)))


@helper
def _threshold(period: Any, stamp: Any, weight: Any, limits: Any) -> Any:
    """The minimum number of arrivals before the rate of a sub-cell is compared; with ticks it scales with the recent rate."""
    steps, least, _, by_arrival = limits
    if by_arrival:
        return least
    if period[0] == 0:
        period[0] = stamp
    if stamp >= period[0] + steps:
        periods = (stamp - period[0]) // steps
        period[1] = period[2] if periods == 1 else 0
        period[2] = 0
        period[0] += periods * steps
    period[2] += weight
    # As many as the last period had, or as this one will have if it goes on like this.
    return least * max(np.float64(period[1]), period[2] * np.float64(steps) / (stamp - period[0] + 1))


@kernel
def _add(cells: Any, stamps: Any, counts: Any, state: Any, pool: Any, limits: Any) -> Any:
    """Count arrivals; returns how many were counted before the pool had to grow."""
    head, tail, free, period = state
    numbers, marks = pool
    steps, _, mu, _ = limits
    single = counts.size == 0
    for i in range(cells.size):
        if free[0] == NONE:
            return i
        cell, stamp, weight = cells[i], np.int64(stamps[i]), np.int64(1) if single else counts[i]
        edge = stamp - steps
        threshold = _threshold(period, stamp, weight, limits)
        newest = tail[cell]
        if weight == 0:
            continue
        if newest != NONE and marks[newest, 0] > edge and numbers[newest, 0] < threshold:
            numbers[newest, 0] += weight
            marks[newest, 1] = stamps[i]
            continue
        # Catch up with the window's start. (Written out: Numba counts references when arrays are passed on from a loop.)
        sub = head[cell]
        while sub != NONE and marks[sub, 0] <= edge:
            after, before = marks[sub, 2], marks[sub, 3]
            if marks[sub, 1] > edge:
                length, expired = np.int64(marks[sub, 1]) - marks[sub, 0] + 1, edge - marks[sub, 0] + 1
                drained = numbers[sub, 0] * expired / length
                numbers[sub, 2] = numbers[sub, 0] + numbers[sub, 1]
                numbers[sub, 0] -= drained
                numbers[sub, 1] += drained
                marks[sub, 0] = edge + 1
            else:  # it has left the window
                if before != NONE:
                    marks[before, 2] = after
                else:
                    head[cell] = after
                if after != NONE:
                    marks[after, 3] = before
                else:
                    tail[cell] = before
                marks[sub, 2] = free[0]
                free[0] = sub
            sub = after
        newest = tail[cell]
        if newest != NONE and numbers[newest, 0] < threshold:
            numbers[newest, 0] += weight
            marks[newest, 1] = stamps[i]
            continue
        joins = False
        if newest != NONE and marks[newest, 3] != NONE:
            pred = marks[newest, 3]
            # Compares two rates by cross-multiplication, without a division.
            old = numbers[pred, 0] * (np.int64(marks[newest, 1]) - marks[newest, 0] + 1)
            new = numbers[newest, 0] * max(np.int64(marks[newest, 0]) - marks[pred, 0], 1)
            joins = max(old, new) <= mu * min(old, new)
            if joins:
                marks[pred, 1] = max(marks[pred, 1], marks[newest, 1])
                for j in range(3):
                    numbers[pred, j] += numbers[newest, j]
        if not joins:
            sub = free[0]
            free[0] = marks[sub, 2]
            marks[sub, 2] = NONE
            marks[sub, 3] = newest
            if newest != NONE:
                marks[newest, 2] = sub
            else:
                head[cell] = sub
            tail[cell] = sub
            newest = sub
        marks[newest, 0] = marks[newest, 1] = stamps[i]
        numbers[newest, 0] = weight
        numbers[newest, 1] = numbers[newest, 2] = 0.0
    return cells.size


@kernel
def _read(cells: Any, since: Any, head: Any, pool: Any, bounds: Any) -> None:
    """What each cell has since a stamp."""
    numbers, marks = pool
    low, value, high = bounds
    for i in range(cells.size):
        sub, total, least, most = head[cells[i]], 0.0, 0.0, 0.0
        while sub != NONE:
            init, last = np.int64(marks[sub, 0]), np.int64(marks[sub, 1])
            left, had = numbers[sub, 0], numbers[sub, 0] + numbers[sub, 1]
            if last >= since:
                most += had
                if init >= since:
                    total += left
                    least += had - numbers[sub, 2]
                else:
                    total += left * (last - since + 1) / (last - init + 1)
            sub = marks[sub, 2]
        # Whole numbers, but for the rounding of what drained.
        low[i], high[i] = np.int64(round(least * (1 - 1e-15))), np.int64(round(most * (1 + 1e-15)))
        value[i] = min(max(np.int64(round(total)), low[i]), high[i])


@kernel
def _walk(head: Any, marks: Any, cells: Any, places: Any) -> Any:
    count = 0
    for cell in range(head.size):
        sub = head[cell]
        while sub != NONE:
            cells[count] = cell
            places[count] = sub
            count += 1
            sub = marks[sub, 2]
    return count
