"""Waves that share their rings: a whole row of cells in the space of one wave.

A sketch promises an error of eps times *all* arrivals, not of eps times each cell's. So the cells of a row need not keep a
wave each: they share one, whose notes (see ``shared_row``) say which cell they are of. With C notes a level, every cell is
known to within N/C of the N arrivals that the row had in a range, whatever their number: width·1/eps entries become 1/eps.

    since s:   the finest level l from which on no note since s was lost; 1 << l is at most N/C, as notes are evenly spread
    count:     (multiples of 1 << l that the cell passed) << l, right on average, and never off by 1 << l

Each cell numbers its arrivals from a random phase, so that what a level gets is N >> (l + 1) on average with a spread of
its root, however the stream is spread over cells, and so that errors of many cells cancel in sums.

Merging replays the notes of all inputs in time order, each as the arrivals that it represents. That moves a cell's count
by less than 1 << l once more; ``slack`` has the largest such change for each age, and every answer is widened by it.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.plan import shared_capacity
from lately.counters import shared_range, shared_row
from lately.counters.base import MAX_COUNT, MAX_STAMP, Bounds, Cells, CounterArray, Counts, Dithered, Stamps
from lately.counters.shared_row import Row, room

#: Slack is kept as the newest stamp at which it exceeded each of these: a quarter of an octave apart.
_STEPS = np.unique(np.floor(2 ** (np.arange(4 * 63) / 4))).astype(np.int64)
_1, _32, _LOW = np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)
_MOST_STAMPS = 2  # the two ends of a range
_FEW = 16  # from this many notes for each cell of a query, a table of those cells alone is faster


class Snapshot:
    """What every cell counted since a stamp, ready to be asked for many cells.

    Parameters
    ----------
    array
        The cells.
    stamp
        The first stamp of the range.
    """

    def __init__(self, array: "SharedWave", stamp: int) -> None:
        self._since = np.uint32(max(stamp, 1))
        self._array = array
        self.levels = np.array([shared_range.finest(row.lost, self._since) for row in array.rows], np.int64)
        self.slack = array.slack_at(stamp)

    @property
    def spread(self) -> NDArray[np.float64]:
        """For each row, the largest difference between two possible estimates of one cell."""
        return 2.0**self.levels + 2.0 * self.slack

    def raw(self, cells: Cells) -> Bounds:
        """Bounds with unbiased estimates; an estimate is not clipped and may lie outside its bounds."""
        array = self._array
        bounds = Bounds(*(np.empty(cells.size, np.int64) for _ in range(3)))
        shared_range.look_up(cells, self._multiples_of(cells), array.n, array.numbering, self._rows, bounds)
        return bounds

    def raw_all(self) -> Bounds:
        """``raw`` of every cell."""
        array = self._array
        bounds = Bounds(*(np.empty(array.cells, np.int64) for _ in range(3)))
        shared_range.bracket_all(self.multiples, array.n, array.numbering, self._rows, bounds)
        return bounds

    def dithered(self, cells: Cells | None = None) -> Dithered:
        """The counts of cells, or of all, plus their remainders.

        A remainder is what the cell's number had above a multiple of 1 << level where the range begins. Cells number
        their arrivals from random phases, so it is independent of the count. Merging moves counts by up to ``slack``.
        """
        array = self._array
        if cells is None:
            rows, multiples, numbers = np.repeat(np.arange(len(array.rows)), np.diff(array.starts)), self.multiples, array.n
        else:
            rows = np.searchsorted(array.starts, cells, "right") - 1
            multiples, numbers = self._multiples_of(cells), array.n[cells]
        levels = self.levels[rows].astype(np.uint64)
        remainder = ((_1 << levels) - _1).astype(np.int64)
        value = (multiples << levels).astype(np.int64) + (numbers.astype(np.int64) & remainder)
        slack = self.slack[rows]
        return Dithered(value - slack, value, value + slack, remainder)

    def dithered_at(self, levels: NDArray[np.int64]) -> Counts:
        """The count of every cell plus its number at the start of the range modulo 1 << level, at the level of its row.

        Over the random phases the second part is uniform on 0 .. (1 << level) - 1 whatever the count, and independent from
        cell to cell (subtractive dithering), so its mean and variance are known.

        Parameters
        ----------
        levels
            A level for each row, none of them below ``levels`` of the snapshot; chosen without a look at the notes.
        """
        array, edges = self._array, self._array.starts.astype(np.int64)
        shift, finest = (np.repeat(each, edges[1:] - edges[:-1]).astype(np.uint64) for each in (levels, self.levels))
        numbers = array.n.astype(np.uint64)
        rest = numbers & ((_1 << finest) - _1)
        start = numbers - (self.multiples << finest) - rest  # the number there, cut to the finest level
        return (numbers - ((start >> shift) << shift)).astype(np.int64)

    @property
    def multiples(self) -> NDArray[np.uint64]:
        """How many multiples of 1 << level each cell passed."""
        multiples = self._array.multiples_since.get(int(self._since))
        if multiples is None:
            multiples = np.zeros(self._array.cells, np.uint64)
            for row, level in zip(self._array.rows, self.levels, strict=True):
                shared_range.add_up(row.state, self._since, level, row.limits, multiples)
            if len(self._array.multiples_since) == _MOST_STAMPS:
                self._array.multiples_since.clear()
            self._array.multiples_since[int(self._since)] = multiples
        return multiples

    def _multiples_of(self, cells: Cells) -> NDArray[np.uint64]:
        """``multiples`` of these cells; of few cells alone, in a table that stays in the processor's cache."""
        if int(self._since) in self._array.multiples_since or _FEW * cells.size >= sum(row.size for row in self._array.rows):
            return self.multiples[cells]
        size = 1 << max(2, (4 * cells.size).bit_length())
        keys, sums, places = np.full(size, shared_row.NO_CELL), np.zeros(size, np.uint64), np.empty(cells.size, np.int64)
        shared_range.place_all(cells, keys, places)
        for row, level in zip(self._array.rows, self.levels, strict=True):
            shared_range.tabulate(row.state, self._since, level, row.limits, keys, sums)
        return sums[places]

    @property
    def _rows(self) -> tuple[Any, ...]:
        return self._array.starts, self.levels, self.slack


class SharedWave(CounterArray):
    """An array of cells in rows, each cell counted to within ``eps`` of its row's arrivals, with certain bounds.

    An update costs O(1). A cell takes 4 bytes, a row about log2(eps·N)/eps notes of 4 bytes each: 2 more in rows of 65,535
    cells or more, 2 more where windows are so long that gaps of two bytes need many fillers, and 4 more once counts are given.

    Parameters
    ----------
    cells
        The number of counters.
    span
        The age of the oldest tick inside the window, in ticks; the newest has age 0.
    eps
        The error, as a share of the arrivals of the cell's row in the range, between 0 and 1.
    starts
        The first cell of each row, in increasing order; by default all cells are one row.

    >>> array = SharedWave(cells=3, span=1000, eps=0.1)
    >>> array.add(np.arange(900, dtype=np.uint32) % 3, np.arange(1001, 1901, dtype=np.uint32))
    >>> low, value, high = array.all_since(1301)
    >>> bool((low <= 200).all() and (high >= 200).all() and (high - low < 0.1 * 600).all())
    True
    """

    family = "shared"

    def __init__(self, cells: int, span: int, eps: float, starts: Sequence[int] = (0,)) -> None:
        super().__init__(cells, span, eps)
        notes = shared_capacity(eps)
        self.starts = np.array([*starts, cells], np.uint32)
        ends = [*starts[1:], cells]
        self.rows = [Row(start, end - start, span, notes) for start, end in zip(starts, ends, strict=True)]
        self.capacity = self.rows[0].capacity
        self.salt = 0
        #: The number of each cell's newest arrival. Where 32 bits run over, only how much a cell counted in all is forgotten,
        #: so they are enough until there are more than 32 levels. Merged cells keep all bits.
        self.n: NDArray[Any] = shared_row.phases(cells, self.draw).astype(np.uint32)
        #: The multiples that every cell passed since the stamps that were asked last, until the next arrival.
        self.multiples_since: dict[int, NDArray[np.uint64]] = {}
        self.until = np.zeros((len(starts), 0), np.uint32)  # as many columns as there are steps, once merged

    @property
    def draw(self) -> np.uint64:
        """What the random phases are drawn from, of 32 bits: arrays with the same one have the same phases."""
        return np.uint64(self.height | self.salt << 8)

    def begin_with(self, salt: int) -> None:
        """Draw the phases of an empty array with a salt, so that its errors are independent of those of other arrays.

        Parameters
        ----------
        salt
            A number of 24 bits; 0 for arrays that were never given one.
        """
        self.salt = salt
        self.n = shared_row.phases(self.cells, self.draw).astype(np.uint32)

    @property
    def merge_error(self) -> float:
        return self.eps

    @property
    def error(self) -> float:
        """The largest error of a value as a share of its row's arrivals, merges included."""
        return (1 + 2 * self.height) * self.eps

    @property
    def nbytes(self) -> int:
        return self.n.nbytes + self.until.nbytes + sum(row.nbytes for row in self.rows)

    # -- write ---------------------------------------------------------------------------------------------------------

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        if len(self.rows) == 1:
            self.add_to_row(0, cells, stamps, counts)
            return
        row_of = np.searchsorted(self.starts, cells, "right") - 1
        for row in np.unique(row_of):
            in_row = row_of == row
            self.add_to_row(int(row), cells[in_row], stamps[in_row], None if counts is None else counts[in_row])

    def add_to_row(self, index: int, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        """``add`` to cells that all lie in one row; their stamps must not decrease, whatever the cell.

        Parameters
        ----------
        index
            The number of the row.
        cells, stamps, counts
            As in ``add``; by default every arrival counts once.
        """
        row, done = self.rows[index], 0
        self.multiples_since.clear()
        longest = 1 if counts is None else int(counts.max(initial=1))
        if counts is not None:
            row.with_runs(longest)
        row.arrived += cells.size if counts is None else int(counts.sum())
        if longest >= 2**32 or (self.height and row.arrived >= 2**32):
            self._widen()
        while done < cells.size:
            rest = cells[done:], stamps[done:]
            if counts is None:
                done += row.count(*rest, self.n)
            else:
                done += shared_row.add_weighted(*rest, counts[done:], self.n, row.state, row.limits)
            if done < cells.size:
                if row.levels == 32:
                    self._widen()
                row.grow(self.n)

    def _widen(self) -> None:
        """Give numbers 64 bits."""
        if self.n.dtype == np.uint32:
            start = shared_row.phases(self.cells, self.draw)
            self.n = start + (self.n - start.astype(np.uint32))

    @property
    def numbering(self) -> tuple[Any, ...]:
        """What tells kernels how much a cell counted so far: the height, the bits of numbers, and which rows may have more."""
        overflowed = [not self.height and row.arrived >= 2**32 for row in self.rows]
        return self.draw, np.uint64(np.iinfo(self.n.dtype).max), np.array(overflowed)

    def forget(self) -> None:
        """Drop the multiples of the stamps that were asked last."""
        self.multiples_since.clear()

    def rebase(self, shift: int) -> None:
        self.multiples_since.clear()
        for row in self.rows:
            row.rebase(shift)
        self.until = np.where(self.until > shift, self.until - np.uint32(min(shift, MAX_STAMP)), 0).astype(np.uint32)

    # -- read ----------------------------------------------------------------------------------------------------------

    def at(self, stamp: int) -> Snapshot:
        """All counts since a stamp.

        Parameters
        ----------
        stamp
            The first stamp of the range.
        """
        return Snapshot(self, stamp)

    def all_since(self, stamp: int) -> Bounds:
        low, value, high = self.at(stamp).raw_all()
        return Bounds(low, np.clip(value, low, high), high)

    def dithered_since(self, stamp: int, cells: Cells | None = None) -> Dithered:
        """What cells counted since a stamp, with their remainders.

        Parameters
        ----------
        stamp
            The first stamp of the range.
        cells
            The cells to ask; by default all.
        """
        return self.at(stamp).dithered(cells)

    def since(self, cells: Cells, stamp: int) -> Bounds:
        low, value, high = self.at(stamp).raw(cells)
        return Bounds(low, np.clip(value, low, high), high)

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        return self.since(cells, int(stamp))

    def slack_at(self, stamp: int) -> Counts:
        """By how much merges may have moved a cell's count since a stamp, for each row.

        Parameters
        ----------
        stamp
            The first stamp of the range.
        """
        exceeded = (self.until >= max(stamp, 1)).sum(axis=1)
        return np.where(exceeded > 0, _STEPS[exceeded - 1], 0)

    # -- merging -------------------------------------------------------------------------------------------------------

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        inputs = [self, *others]
        result = self._fresh(1 + max(a.height for a in inputs))
        for index in range(len(self.rows)):
            parts = []
            for array, shift in zip(inputs, shifts, strict=True):
                row = array.rows[index]
                used = int(row.marks[:, shared_row.HELD].sum())
                cells, stamps, weights = np.empty(used, np.uint32), np.empty(used, np.uint32), np.empty(used, np.int64)
                first_stamp = np.uint32(min(max(1, live_from - shift), MAX_STAMP))
                out = cells, stamps, weights
                count = shared_range.as_weighted_arrivals(row.state, first_stamp, np.int64(shift), row.limits, out)
                parts.append((cells[:count], stamps[:count], weights[:count]))
            cells, stamps, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            # Sorted as single words, stamp above index: several times faster than an indirect sort.
            order = np.sort((stamps.astype(np.uint64) << _32) | np.arange(stamps.size, dtype=np.uint64)) & _LOW
            result.add_to_row(index, cells[order], stamps[order], weights[order])
            arrived = sum(array.rows[index].arrived for array in inputs)
            result.rows[index].arrived = max(result.rows[index].arrived, arrived)
        result.until = np.stack([_slack(inputs, shifts, index) for index in range(len(self.rows))])
        return result

    def _fresh(self, height: int) -> Self:
        fresh = type(self)(self.cells, self.span, self.eps, self.starts[:-1].tolist())
        fresh.height = height
        fresh.begin_with(self.salt)
        return fresh

    def copy(self) -> Self:
        twin = self._fresh(self.height)
        twin.n, twin.until, twin.rows = self.n.copy(), self.until.copy(), [row.copy() for row in self.rows]
        return twin

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer, now: int) -> None:
        live_from = self.live_from(now)
        out.u8(self.height)
        counted = self.n - shared_row.phases(self.cells, self.draw).astype(self.n.dtype)
        out.integers(counted)
        if self.height:
            out.integers(_ages(self.until.ravel(), now, live_from))
        for row in self.rows:
            notes = [row.notes(level) for level in range(row.levels)]
            kept = [stamps >= live_from for stamps, _, _ in notes]
            stamps, cells, runs = (
                np.concatenate([column[selected] for column, selected in zip(columns, kept, strict=True)])
                for columns in zip(*notes, strict=True)
            )
            out.u8(row.levels)
            out.u64(row.size)
            out.integers(_ages(row.lost, now, live_from))
            out.integers(np.array([int(selected.sum()) for selected in kept]))
            out.integers(now - stamps.astype(np.int64))
            out.integers(cells.astype(np.int64) + int(row.limits.start))
            weighted = bool((runs > 1).any())
            out.u8(weighted)
            if weighted:
                out.integers(runs)

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height = source.u8()
        counted = source.integers(0, MAX_COUNT)
        source.check(counted.size == self.cells, "cells are missing")
        source.check(
            float(counted.sum(dtype=np.float64)) <= 1.000001 * MAX_COUNT * len(self.rows), "more arrivals than can be counted"
        )
        self.n = shared_row.phases(self.cells, self.draw) + counted.astype(np.uint64)
        oldest = min(self.span, now - 1)
        if self.height:
            ages = source.integers(-1, oldest)
            source.check(ages.size == len(self.rows) * _STEPS.size, "a wrong number of slack stamps")
            self.until = np.where(ages >= 0, now - ages, 0).astype(np.uint32).reshape(len(self.rows), -1)
            source.check(bool((np.diff(self.until.astype(np.int64), axis=1) <= 0).all()), "slack stamps out of order")
            most_slack = min(most * self.height, MAX_COUNT)
            source.check(not self.until[:, 1:][:, _STEPS[:-1] > most_slack].any(), "more slack than arrivals")
        for index, row in enumerate(self.rows):
            self._read_row(row, source, index, (now, newest, oldest))
            merged = int(counted[int(self.starts[index]) : int(self.starts[index + 1])].sum())
            row.arrived = max(merged, most) if self.height else most
        merged_long = self.height > 0 and any(row.arrived >= 2**32 for row in self.rows)
        if counted.max() < 2**32 and max(row.levels for row in self.rows) <= 32 and not merged_long:
            self.n = self.n.astype(np.uint32)

    def _read_row(self, row: Row, source: Reader, index: int, times: tuple[int, int, int]) -> None:
        now, newest, oldest = times
        levels, size = source.within(source.u8(), 1, 64), source.within(source.u64(), 1, self.capacity)
        notes, allowed = shared_capacity(self.eps), 0
        while allowed < size:
            allowed = room(allowed, self.capacity)
        # Before there were fillers, the largest rings had room for as many notes as they must keep.
        source.check(size in (allowed, notes), "rings of a wrong size")
        size = allowed
        source.fits(24 * levels * size * len(self.rows))
        lost = source.integers(-1, oldest)
        kept_notes = source.integers(0, size)
        source.check(lost.size == kept_notes.size == levels, "levels are missing")
        source.check(lost[-1] == -1, "the top level has lost notes")
        ages = source.integers(now - newest, oldest)
        cells = source.integers(int(self.starts[index]), int(self.starts[index + 1]) - 1)
        source.check(ages.size == cells.size == int(kept_notes.sum()), "the notes do not add up")
        level = np.repeat(np.arange(levels), kept_notes)
        falling = np.diff(ages, prepend=oldest) <= 0
        falling[(np.cumsum(kept_notes) - kept_notes)[kept_notes > 0]] = True
        source.check(bool(falling.all()), "notes are out of order")
        runs = np.ones(ages.size, np.int64)
        if source.choice(0, 1):
            runs = source.integers(1, MAX_COUNT)
            source.check(runs.size == ages.size, "the runs do not add up")
            # At every level, rounding may credit a cell with up to one multiple more than it counted.
            source.check(float((runs * 2.0**level).sum()) <= levels * 2.0**62, "longer runs than can be counted")
            most_of_all = np.bincount(cells - int(self.starts[index]), runs * 2.0**level).max(initial=0)
            source.check(float(most_of_all) < 2.0**63, "longer runs than can be counted")
        ends = np.cumsum(kept_notes)[:-1]
        columns = (now - ages).astype(np.uint32), (cells - row.limits.start).astype(np.uint32), runs.astype(np.uint64)
        notes_of = list(zip(*(np.split(column, ends) for column in columns), strict=True))
        while size < self.capacity and max(row.entries(stamps) for stamps, _, _ in notes_of) > size:
            size = room(size, self.capacity)
        row.allocate(levels, size)
        row.lost[:] = np.where(lost >= 0, now - lost, 0)
        for at, note in enumerate(notes_of):
            row.put(at, *note)


def _ages(stamps: Stamps, now: int, live_from: int) -> Counts:
    """Stamps as ages, -1 for those that have left the window."""
    return np.where(stamps >= live_from, now - stamps.astype(np.int64), -1)


def _slack(inputs: Sequence[SharedWave], shifts: Sequence[int], index: int) -> Any:
    """The slack of a merged row: what its inputs have, and less than 1 << level for each input at its own level."""
    points = [np.zeros(1, np.int64)]
    for array, shift in zip(inputs, shifts, strict=True):
        for stamps in (array.rows[index].lost, array.until[index]):
            points.append(stamps[stamps > 0].astype(np.int64) + shift)
    at = np.unique(np.concatenate(points))
    at = at[at > 0]
    total = np.zeros(at.size)
    for array, shift in zip(inputs, shifts, strict=True):
        since = np.maximum(at, shift + 1)[:, None]  # stamps before the start of an input use the values at its first stamp
        incomplete = np.maximum.accumulate(array.rows[index].lost[::-1])[::-1].astype(np.int64) + shift
        level = (incomplete >= since).sum(axis=1)
        exceeded = (array.until[index].astype(np.int64) + shift >= since).sum(axis=1)
        total += 2.0**level - 1 + np.where(exceeded > 0, _STEPS[exceeded - 1], 0)
    total = np.minimum(total, sum(array.rows[index].arrived for array in inputs))  # no count is off by more than all
    bounds = np.concatenate(([0], _STEPS[:-1]))
    return np.array([at[total > bound].max(initial=0) for bound in bounds], np.uint32)
