"""Exact counters: every arrival of the window is kept. No error, no bound on memory; the floor of every comparison.

One log for all cells, each cell's arrivals in time order. When it is full, what has left the window is cut out; when that
frees less than half of it, it doubles.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np

from lately.core.codec import Reader, Writer
from lately.counters.base import Bounds, Cells, CounterArray, Counts, Stamps


class Exact(CounterArray):
    """An array of exact counters; 16 bytes an arrival, and a query reads the whole window.

    Parameters
    ----------
    cells
        The number of counters.
    span
        The age of the oldest tick inside the window, in ticks; the newest has age 0.
    eps
        The error: 0, the default, as nothing is estimated.

    >>> exact = Exact(cells=2, span=10)
    >>> exact.add(np.array([0, 1, 0], np.uint32), np.array([11, 12, 13], np.uint32))
    >>> exact.all_since(12).value.tolist()
    [1, 1]
    """

    family = "exact"

    def __init__(self, cells: int, span: int, eps: float = 0.0) -> None:
        super().__init__(cells, span, eps)
        self._size = 0
        self._stamps = np.empty(0, np.uint32)
        self._cells = np.empty(0, np.uint32)
        self._counts = np.empty(0, np.int64)

    @property
    def merge_error(self) -> float:
        return 0.0

    @property
    def nbytes(self) -> int:
        return self._stamps.nbytes + self._cells.nbytes + self._counts.nbytes

    @property
    def _live(self) -> tuple[Stamps, Cells, Counts]:
        return self._stamps[: self._size], self._cells[: self._size], self._counts[: self._size]

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        if not cells.size:
            return
        if self._size + cells.size > self._stamps.size:
            self._make_room(cells.size, self.live_from(int(stamps[0])))
        new = slice(self._size, self._size + cells.size)
        self._stamps[new], self._cells[new] = stamps, cells
        self._counts[new] = 1 if counts is None else counts
        self._size += cells.size

    def _make_room(self, more: int, live_from: int) -> None:
        live = self._live[0] >= live_from
        stamps, cells, counts = (column[live] for column in self._live)
        size = self._stamps.size
        if stamps.size + more > size // 2:
            size = 2 * (stamps.size + more)
        self._size = stamps.size
        for name, values in (("_stamps", stamps), ("_cells", cells), ("_counts", counts)):
            larger = np.empty(size, values.dtype)
            larger[: values.size] = values
            setattr(self, name, larger)

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        stamps, owners, counts = self._live
        inside = stamps >= stamp
        table = np.zeros(self.cells, np.int64)
        np.add.at(table, owners[inside], counts[inside])
        value = table[cells]
        return Bounds(value, value.copy(), value.copy())

    def rebase(self, shift: int) -> None:
        self._stamps = np.where(self._stamps > shift, self._stamps - np.uint32(min(shift, 2**32 - 1)), 0).astype(np.uint32)

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        parts = []
        for array, shift in zip([self, *others], shifts, strict=True):
            stamps, cells, counts = array._live
            moved = stamps.astype(np.int64) + shift
            live = (stamps > 0) & (moved >= live_from)
            parts.append((moved[live], cells[live], counts[live]))
        stamps, cells, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(stamps, kind="stable")
        result = type(self)(self.cells, self.span)
        result.add(cells[order], stamps[order].astype(np.uint32), counts[order])
        return result

    def copy(self) -> Self:
        twin = type(self)(self.cells, self.span)
        stamps, cells, counts = self._live
        twin._stamps, twin._cells, twin._counts = stamps.copy(), cells.copy(), counts.copy()
        twin._size = twin._stamps.size
        return twin

    def write(self, out: Writer, now: int) -> None:
        stamps, cells, counts = self._live
        order = np.lexsort((cells, stamps))
        live = order[stamps[order] >= self.live_from(now)]
        out.integers(now - stamps[live].astype(np.int64))
        out.integers(cells[live])
        out.integers(counts[live])

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        ages = source.integers(now - newest, min(self.span, now - 1))
        cells = source.integers(0, self.cells - 1)
        counts = source.integers(0, most)
        source.check(ages.size == cells.size == counts.size, "columns of different lengths")
        source.check(bool((np.diff(ages) <= 0).all()), "entries are out of order")
        source.fits(32 * ages.size + 8 * self.cells)
        source.check(float(np.bincount(cells, counts).max(initial=0)) <= 1.000001 * most, "more arrivals than were taken")
        self.add(cells.astype(np.uint32), (now - ages).astype(np.uint32), counts)
