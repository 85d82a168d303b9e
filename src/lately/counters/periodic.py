"""Counters that start again from 0 every N steps: SIMPLE and PROPORTIONAL of the windowed Count-Min (WCM §3.2 and §3.3).

A step is an arrival or a tick. Periods begin at the same ticks at every site, so that cells of several sites add up. The
paper visits every cell at every step. Here a cell catches up when it is touched or read:

    period     | ····· k-1 ····· | ······ k ······ |
    touched            ^ then            ^ now           it drained at one rate up to the end of k-1, then at another

A cell that nothing touched for a whole period has drained to nothing, so no more than two rates ever matter.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.jit import kernel
from lately.counters.base import MAX_COUNT, MAX_STAMP, NO_COUNTS, Bounds, Cells, CounterArray, Counts, Stamps


class PeriodicArray(CounterArray):
    """What counters with periods share. It answers for the whole window only, the last ``span + 1`` steps."""

    #: The names of the state's arrays, one entry a cell, without the stamps of the last touch.
    arrays: ClassVar[tuple[str, ...]]

    def __init__(self, cells: int, span: int, eps: float = 0.0) -> None:
        super().__init__(cells, span, eps)
        self.steps, self.origin = span + 1, 0
        self.stamps = np.zeros(cells, np.uint32)  # of the last touch
        self.recent = np.zeros(cells, np.int64)  # arrivals in the period of the last touch

    @property
    def merge_error(self) -> float:
        return 0.0

    @property
    def nbytes(self) -> int:
        return self.stamps.nbytes + sum(int(getattr(self, name).nbytes) for name in self.arrays)

    def begin(self, origin: int) -> None:
        self.origin = origin

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        if cells.size:
            self._add(cells, stamps, NO_COUNTS if counts is None else counts, self._start_of(int(stamps[0])))

    @abstractmethod
    def _add(self, cells: Cells, stamps: Stamps, counts: Counts, start: np.int64) -> None:
        """Count arrivals, one each without counts; ``start`` is the stamp at which the period of the first began."""

    def _start_of(self, stamp: int) -> np.int64:
        return np.int64(stamp - (stamp + self.origin - 1) % self.steps)

    def rebase(self, shift: int) -> None:
        self.origin += shift
        gone = self.stamps <= shift  # a touch more than two windows ago
        for name in self.arrays:
            getattr(self, name)[gone] = 0
        self.stamps = np.where(gone, 0, self.stamps - np.uint32(min(shift, MAX_STAMP))).astype(np.uint32)

    def copy(self) -> Self:
        twin = type(self)(self.cells, self.span, self.eps)
        twin.origin, twin.height, twin.stamps = self.origin, self.height, self.stamps.copy()
        for name in self.arrays:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        """The sum of all, each brought to the same moment first: nothing is lost."""
        now = live_from + self.span
        result = type(self)(self.cells, self.span, self.eps)
        result.height = 1 + max(array.height for array in (self, *others))
        result.begin(self.origin - shifts[0])
        result.stamps[:] = now
        for array, shift in zip((self, *others), shifts, strict=True):
            current = array._at(now - shift)
            for name in self.arrays:
                getattr(result, name)[:] += getattr(current, name)
        return result

    def _at(self, now: int) -> Self:
        """A copy in which every cell has caught up with a moment."""
        twin = self.copy()
        cells = np.arange(self.cells, dtype=np.uint32)
        stamps = np.full(self.cells, min(now, MAX_STAMP), np.uint32)
        twin._add(cells, stamps, np.zeros(self.cells, np.int64), twin._start_of(now))
        return twin

    def write(self, out: Writer, now: int) -> None:
        out.u8(self.height)
        live = now - self.stamps.astype(np.int64) <= 2 * self.span + 1
        out.integers(np.where(live & (self.stamps > 0), now - self.stamps.astype(np.int64), -1))
        for name in self.arrays:
            values = np.where(live, getattr(self, name), 0)
            out.u64s(values.view(np.uint64)) if values.dtype == np.float64 else out.integers(values)

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height = source.u8()
        ages = source.integers(-1, min(2 * self.span + 1, now - 1))
        source.check(ages.size == self.cells, "cells are missing")
        self.stamps = np.where(ages >= 0, now - ages, 0).astype(np.uint32)
        for name in self.arrays:
            values: Any
            if getattr(self, name).dtype == np.float64:
                values = source.u64s().view(np.float64)
                source.check(bool((np.isfinite(values) & (np.abs(values) <= MAX_COUNT)).all()), "a number out of range")
            else:
                values = source.integers(0, most)
            source.check(values.size == self.cells, "cells are missing")
            source.check(bool((values[ages < 0] == 0).all()), "arrivals in a cell that was never touched")
            setattr(self, name, values)


class Simple(PeriodicArray):
    """Counts since the current period began, and forgets all before (WCM §3.2): 12 bytes a cell, no upper bound.

    >>> cells = Simple(cells=1, span=9)
    >>> cells.add(np.zeros(4, np.uint32), np.array([25, 28, 31, 33], np.uint32))    # periods begin at 21, 31, 41
    >>> cells.all_since(24).value[0]
    np.int64(2)
    """

    family = "simple"
    arrays = ("recent",)

    def _add(self, cells: Cells, stamps: Stamps, counts: Counts, start: np.int64) -> None:
        _add_simple(cells, stamps, counts, (self.recent, self.stamps), (np.int64(self.steps), start))

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        start = self._start_of(int(stamp) + self.span)
        value = np.where(self.stamps[cells] >= start, self.recent[cells], 0)
        return Bounds(value, value.copy(), np.full(cells.size, MAX_COUNT))


class Proportional(PeriodicArray):
    """Counts, and drains in each period what the one before left, evenly (WCM §3.3): 36 bytes a cell.

    A window holds all arrivals of the current period and some of the one before, which bounds the count for certain.

    >>> cells = Proportional(cells=1, span=9)
    >>> cells.add(np.zeros(12, np.uint32), np.arange(21, 33, dtype=np.uint32))      # periods begin at 21 and 31
    >>> low, value, high = cells.all_since(23)
    >>> low[0], value[0], high[0]
    (np.int64(2), np.int64(10), np.int64(12))
    """

    family = "proportional"
    arrays = ("values", "rates", "recent", "earlier")

    def __init__(self, cells: int, span: int, eps: float = 0.0) -> None:
        super().__init__(cells, span, eps)
        self.values, self.rates = np.zeros(cells), np.zeros(cells)
        self.earlier = np.zeros(cells, np.int64)  # arrivals in the period before that of the last touch

    def _add(self, cells: Cells, stamps: Stamps, counts: Counts, start: np.int64) -> None:
        state = self.values, self.rates, self.recent, self.earlier, self.stamps
        _add_proportional(cells, stamps, counts, state, (np.int64(self.steps), start))

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        current = self._at(int(stamp) + self.span)
        low, high = current.recent[cells], current.recent[cells] + current.earlier[cells]
        return Bounds(low, np.clip(np.rint(current.values[cells]).astype(np.int64), low, high), high)


@kernel
def _add_simple(cells: Any, stamps: Any, counts: Any, state: Any, period: Any) -> None:
    recent, touched = state
    steps, start = period
    for i in range(cells.size):
        cell, stamp = cells[i], np.int64(stamps[i])
        if stamp >= start + steps:
            start += (stamp - start) // steps * steps
        if touched[cell] < start:
            recent[cell] = 0
        recent[cell] += counts[i] if counts.size else 1
        touched[cell] = stamps[i]


@kernel
def _add_proportional(cells: Any, stamps: Any, counts: Any, state: Any, period: Any) -> None:
    values, rates, recent, earlier, touched = state
    steps, start = period
    for i in range(cells.size):
        cell, stamp = cells[i], np.int64(stamps[i])
        if stamp >= start + steps:
            start += (stamp - start) // steps * steps
        then = np.int64(touched[cell])
        if then >= start:
            values[cell] -= rates[cell] * (stamp - then)
        elif then >= start - steps:  # in the period before: drain to its end, then at the rate of what is left
            left = values[cell] - rates[cell] * (start - 1 - then)
            rates[cell] = left / steps
            values[cell] = left - rates[cell] * (stamp - start + 1)
            earlier[cell] = recent[cell]
            recent[cell] = 0
        else:
            values[cell] = 0.0
            rates[cell] = 0.0
            earlier[cell] = 0
            recent[cell] = 0
        count = counts[i] if counts.size else np.int64(1)
        values[cell] += count
        recent[cell] += count
        touched[cell] = stamps[i]
