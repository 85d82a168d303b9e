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
from lately.counters import shared_row as kernels
from lately.counters.base import MAX_COUNT, MAX_STAMP, Bounds, Cells, CounterArray, Counts, Stamps
from lately.counters.shared_row import Row, room

#: Slack is kept as the newest stamp at which it exceeded each of these: a quarter of an octave apart.
_STEPS = np.unique(np.floor(2 ** (np.arange(4 * 63) / 4))).astype(np.int64)
_1, _32, _LOW = np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)
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
        since = np.uint32(max(stamp, 1))
        self._array = array
        self.levels = np.array([kernels.finest(row.lost, since) for row in array.rows], np.int64)
        self.slack = array.slack_at(stamp)
        room = sum(row.words.size for row in array.rows)
        cells, runs = np.empty(room, np.uint32), np.empty(room, np.uint64)
        count = 0
        for row, level in zip(array.rows, self.levels, strict=True):
            count = kernels.notes_since(row.state, since, level, cells, runs, count)
        self._notes = cells[:count], runs[:count]
        self._tables: tuple[Any, Any] | None = None

    @property
    def spread(self) -> NDArray[np.float64]:
        """For each row, the largest difference between two possible estimates of one cell."""
        return 2.0**self.levels + 2.0 * self.slack

    def raw(self, cells: Cells) -> Bounds:
        """Bounds with unbiased estimates; an estimate is not clipped and may lie outside its bounds."""
        tables = self._tables
        if tables is None and _FEW * cells.size < self._notes[0].size:
            tables = _table(4 * cells.size)  # of these cells alone: it stays in the processor's cache
            kernels.tabulate_only(*self._notes, cells, *tables)
        elif tables is None:
            tables = self._tables = _table(2 * self._notes[0].size)
            kernels.tabulate(*self._notes, *tables)
        bounds = Bounds(*(np.empty(cells.size, np.int64) for _ in range(3)))
        array = self._array
        kernels.look_up(cells, tables, array.n, array.draw, self._rows, bounds)
        return bounds

    def raw_all(self) -> Bounds:
        """``raw`` of every cell, without a table to search."""
        array = self._array
        sums = np.zeros(array.cells, np.uint64)
        kernels.add_up(*self._notes, sums)
        bounds = Bounds(*(np.empty(array.cells, np.int64) for _ in range(3)))
        kernels.bracket_all(sums, array.n, array.draw, self._rows, bounds)
        return bounds

    def dithered(self, levels: NDArray[np.int64]) -> Counts:
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
        passed = self.raw_all().value.astype(np.uint64)
        start = array.n - passed - (array.n & ((_1 << finest) - _1))  # the number at the start, cut to the finest level
        return (array.n - ((start >> shift) << shift)).astype(np.int64)

    @property
    def _rows(self) -> tuple[Any, ...]:
        return self._array.starts, self.levels, self.slack


def _table(entries: int) -> tuple[Any, Any]:
    """An empty hash table with open addressing, of at least this size."""
    size = 1 << max(2, entries.bit_length())
    return np.full(size, kernels.NO_CELL), np.zeros(size, np.uint64)


class SharedWave(CounterArray):
    """An array of cells in rows, each cell counted to within ``eps`` of its row's arrivals, with certain bounds.

    An update costs O(1), a row takes about log2(eps·N)/eps notes of 8 bytes, or 16 bytes after a weighted update.

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
        self.capacity = shared_capacity(eps)
        self.starts = np.array([*starts, cells], np.uint32)
        self.rows = [Row(self.capacity) for _ in starts]
        self.salt = 0
        self.n: NDArray[np.uint64] = kernels.phases(cells, self.draw)
        self.until = np.zeros((len(starts), _STEPS.size), np.uint32)

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
        self.n = kernels.phases(self.cells, self.draw)

    @property
    def merge_error(self) -> float:
        return self.eps

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
        row, limits, done = self.rows[index], (np.uint32(self.span), np.uint64(self.capacity)), 0
        if counts is not None:
            row.with_runs()
        while done < cells.size:
            rest = cells[done:], stamps[done:]
            if counts is None:
                done += kernels.add(*rest, self.n, row.state, limits)
            else:
                done += kernels.add_weighted(*rest, counts[done:], self.n, row.state, limits)
            if done < cells.size:
                row.grow(self.n)

    def rebase(self, shift: int) -> None:
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
                cells, stamps = np.empty(row.words.size, np.uint32), np.empty(row.words.size, np.uint32)
                weights = np.empty(row.words.size, np.int64)
                first_stamp = np.uint32(min(max(1, live_from - shift), MAX_STAMP))
                count = kernels.as_weighted_arrivals(row.state, first_stamp, np.int64(shift), cells, stamps, weights)
                parts.append((cells[:count], stamps[:count], weights[:count]))
            cells, stamps, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            # Sorted as single words, stamp above index: several times faster than an indirect sort.
            order = np.sort((stamps.astype(np.uint64) << _32) | np.arange(stamps.size, dtype=np.uint64)) & _LOW
            result.add_to_row(index, cells[order], stamps[order], weights[order])
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
        out.integers(self.n - kernels.phases(self.cells, self.draw))
        if self.height:
            out.integers(_ages(self.until.ravel(), now, live_from))
        for row in self.rows:
            levels, size = row.words.shape
            out.u8(levels)
            out.u64(size)
            out.integers(_ages(row.lost, now, live_from))
            words = row.oldest_first(row.words).ravel()
            live = words >> _32 >= live_from
            out.integers(live.reshape(levels, size).sum(axis=1))
            out.integers(now - (words[live] >> _32).astype(np.int64))
            out.integers(words[live] & _LOW)
            runs = row.oldest_first(row.runs).ravel()[live] if row.runs.size else row.runs
            weighted = bool((runs > 1).any())
            out.u8(weighted)
            if weighted:
                out.integers(runs)

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height = source.u8()
        counted = source.integers(0, MAX_COUNT)
        source.check(counted.size == self.cells, "cells are missing")
        source.check(float(counted.sum(dtype=np.float64)) <= MAX_COUNT * len(self.rows), "more arrivals than can be counted")
        self.n = kernels.phases(self.cells, self.draw) + counted.astype(np.uint64)
        oldest = min(self.span, now - 1)
        if self.height:
            ages = source.integers(-1, oldest)
            source.check(ages.size == self.until.size, "a wrong number of slack stamps")
            self.until = np.where(ages >= 0, now - ages, 0).astype(np.uint32).reshape(self.until.shape)
            source.check(bool((np.diff(self.until.astype(np.int64), axis=1) <= 0).all()), "slack stamps out of order")
            source.check(not self.until[:, 1:][:, _STEPS[:-1] > most].any(), "more slack than arrivals")
        for index, row in enumerate(self.rows):
            self._read_row(row, source, index, (now, newest, oldest))

    def _read_row(self, row: Row, source: Reader, index: int, times: tuple[int, int, int]) -> None:
        now, newest, oldest = times
        levels, size = source.within(source.u8(), 1, 64), source.within(source.u64(), 1, self.capacity)
        allowed = 0
        while allowed < size:
            allowed = room(allowed, self.capacity)
        source.check(size == allowed, "rings of a wrong size")
        source.fits(16 * levels * size * len(self.rows))
        lost = source.integers(-1, oldest)
        kept_notes = source.integers(0, size)
        source.check(lost.size == kept_notes.size == levels, "levels are missing")
        source.check(lost[-1] == -1, "the top level has lost notes")
        row.lost = np.where(lost >= 0, now - lost, 0).astype(np.uint32)
        ages = source.integers(now - newest, oldest)
        cells = source.integers(int(self.starts[index]), int(self.starts[index + 1]) - 1)
        source.check(ages.size == cells.size == int(kept_notes.sum()), "the notes do not add up")
        level = np.repeat(np.arange(levels), kept_notes)
        falling = np.diff(ages, prepend=oldest) <= 0
        falling[(np.cumsum(kept_notes) - kept_notes)[kept_notes > 0]] = True
        source.check(bool(falling.all()), "notes are out of order")
        slot = np.arange(ages.size) - np.repeat(np.cumsum(kept_notes) - kept_notes, kept_notes)
        row.words = np.zeros((levels, size), np.uint64)
        row.words[level, slot] = ((now - ages).astype(np.uint64) << _32) | cells.astype(np.uint64)
        row.heads = (kept_notes % size).astype(np.uint64)
        if source.choice(0, 1):
            runs = source.integers(1, MAX_COUNT)
            source.check(runs.size == ages.size, "the runs do not add up")
            # At every level, rounding may credit a cell with up to one multiple more than it counted.
            source.check(float((runs * 2.0**level).sum()) <= levels * 2.0**62, "longer runs than can be counted")
            most_of_all = np.bincount(cells - int(self.starts[index]), runs * 2.0**level).max(initial=0)
            source.check(float(most_of_all) < 2.0**63, "longer runs than can be counted")
            row.runs = np.ones((levels, size), np.uint64)
            row.runs[level, slot] = runs


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
    bounds = np.concatenate(([0], _STEPS[:-1]))
    return np.array([at[total > bound].max(initial=0) for bound in bounds], np.uint32)
