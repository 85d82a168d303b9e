"""What every counter family is: an array of independent cells that count arrivals by stamp.

A stamp is a uint32 tick number; 0 means "before any window". ``span`` is how many ticks before an arrival still lie inside
the window. Positions number a cell's arrivals from 1; a family retains the stamps of some of them.

Merging (ECM-15 §5.1) is shared by the deterministic families. Each input cell is a log of segments between retained
positions. Half of a segment's arrivals are replayed at its start and half at its end (an odd one out at its end), the
logs of all inputs interleaved in time:

    retained      p0 ......... p1 ..... p2          positions, with their stamps
    segments         p1 - p0     p2 - p1            arrivals between them
    replayed    ½(p1-p0)  ½(p1-p0)+½(p2-p1)  ½(p2-p1)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.jit import kernel

Stamps = NDArray[np.uint32]
Cells = NDArray[np.uint32]
Counts = NDArray[np.int64]

MAX_COUNT = 2**62

_THIRDS = np.uint64(0x5555555555555555)
_ONE, _32, _LOW = np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)

#: No arrival bears this stamp: asking since then finds nothing.
MAX_STAMP = 2**32 - 1


class Bounds(NamedTuple):
    """For each cell asked: the truth lies in ``low..high``, and ``value`` is within the family's error of it."""

    low: Counts
    value: Counts
    high: Counts


class Segments(NamedTuple):
    """A cell as a log, oldest first: ``size`` arrivals after ``start`` and up to ``end``, the last one exactly there."""

    start: Stamps
    end: Stamps
    size: Counts


class Walk(NamedTuple):
    """The retained positions of every cell, newest first; cell i owns ``offsets[i]:offsets[i + 1]``.

    ``places`` says where in the rings the stamp of each is. The last entry of a cell that counted anything has the place
    -1 and ends its oldest segment: it is the cell's base, or an elder that has left the window.
    """

    positions: Counts
    places: Counts
    offsets: Counts


class CounterArray(ABC):
    """An array of ``cells`` sliding-window counters of one family."""

    family: ClassVar[str]
    #: Whether low and high are certain, rather than likely.
    certain: ClassVar[bool] = True

    def __init__(self, cells: int, span: int, eps: float) -> None:
        self.cells, self.span, self.eps = cells, span, eps
        #: How many levels of merging the oldest of its arrivals went through.
        self.height = 0

    @abstractmethod
    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        """Count arrivals; the stamps of a cell must not decrease from one arrival to the next, nor from call to call."""

    def extend(self, stamps: Stamps, counts: Counts | None = None) -> None:
        """``add`` to cell 0; families that can do better with a whole run do."""
        self.add(np.zeros(stamps.size, np.uint32), stamps, counts)

    def since(self, cells: Cells, stamp: int) -> Bounds:
        """How many arrivals each of these cells counted at ``stamp`` or later."""
        bounds = self._since(cells, np.uint32(max(stamp, 1)))
        return _widened(bounds, self.merge_error, self.height) if self.height else bounds

    def live_from(self, now: int) -> int:
        """The first stamp inside the window that ends at ``now``, which may lie beyond what a stamp can hold."""
        return min(max(1, now - self.span), MAX_STAMP)

    def all_since(self, stamp: int) -> Bounds:
        """``since`` for every cell: the plain Count-Min array that a range leaves."""
        return self.since(np.arange(self.cells, dtype=np.uint32), stamp)

    @abstractmethod
    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds: ...

    @property
    @abstractmethod
    def merge_error(self) -> float:
        """The largest share of a range's arrivals that one merge can move across its start."""

    @abstractmethod
    def rebase(self, shift: int) -> None:
        """Move the origin of the stamps ``shift`` ticks on; what falls before it has left every window."""

    @abstractmethod
    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        """A new array that counts what ``self`` and the others counted.

        ``shifts[i]`` (self first) is what to add to the stamps of input i to put all on one origin; in those stamps
        nothing before ``live_from`` is in the window any more.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes that the cells take in memory."""

    @abstractmethod
    def copy(self) -> Self:
        """An independent copy."""

    @abstractmethod
    def write(self, out: Writer, now: int) -> None:
        """Write the state; stamps go out as ages before ``now``, and what has left the window stays behind."""

    @abstractmethod
    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        """Read the state into a fresh array of the same shape.

        No arrival can have been stamped after ``newest``, and no cell can have counted more than ``most``.
        """


class PositionalArray(CounterArray):
    """The deterministic families: arrivals have positions, some of which are retained with their stamps in rings."""

    #: The names of the state's arrays, in the order in which the kernels take them.
    arrays: ClassVar[tuple[str, ...]]

    def __init__(self, cells: int, span: int, eps: float) -> None:
        super().__init__(cells, span, eps)
        self.n = np.zeros(cells, np.uint64)  # the position of each cell's newest arrival
        self.first = np.zeros(cells, np.uint32)  # the stamp of its first one
        self.base = np.zeros(cells, np.uint32)  # the position before its first one: 0 unless it was merged
        self.rings: Stamps = np.zeros((1, cells, 1), np.uint32)

    @property
    def _state(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._state)

    def copy(self) -> Self:
        twin = self._fresh()
        twin.height = self.height
        for name in self.arrays:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def rebase(self, shift: int) -> None:
        for array in self._state:
            if array.dtype == np.uint32:
                array[...] = np.where(array > shift, array - np.uint32(min(shift, 2**32 - 1)), 0)

    def _fresh(self) -> Self:
        return type(self)(self.cells, self.span, self.eps)

    @abstractmethod
    def _walk(self, live_from: int) -> Walk:
        """Every cell's retained positions, newest first, down to the first that is stamped before ``live_from``."""

    @abstractmethod
    def _fill(self, stamps: Stamps, ends: NDArray[np.uint64], offsets: Counts) -> None:
        """Fill fresh cells, each from a sorted run of stamps with cumulative counts; ``n`` is what ``_stagger`` wants."""

    @abstractmethod
    def _write_shape(self, out: Writer) -> None:
        """Write how large the rings are."""

    @abstractmethod
    def _read_shape(self, source: Reader) -> None:
        """Make rings of the size that was written, or refuse; ``n`` is already set."""

    def _stagger(self, sizes: NDArray[np.uint64], gap: int) -> None:
        """Start fresh cells, which will get so many arrivals, at a position that is good for all gaps up to ``gap``.

        Merging replays lumps whose sizes are powers of two. Were they to end on just those positions that will be
        retained, the middle of the bracket would always be too low, and tree upon tree would drift down. The inputs'
        positions (their sum is in ``n``) decide where lumps end, modulo every power of two; starting where that is
        …010101 puts the ends at a third of every gap or at two thirds, in turn.
        """
        start = (_THIRDS + self.n - sizes) % np.uint64(min(gap, 2**31))
        self.base = np.where(sizes > 0, start, 0).astype(np.uint32)
        self.n = self.base.astype(np.uint64)

    def segments(self, cell: int, live_from: int = 1) -> Segments:
        """One cell as the log that merging replays, without what ended before ``live_from``."""
        walk = self._walk(live_from)
        mine = slice(walk.offsets[cell], walk.offsets[cell + 1])
        position, place = walk.positions[mine][::-1], walk.places[mine][::-1]
        stamp = np.where(place >= 0, self.rings.reshape(-1)[place], 0).astype(np.uint32)
        if stamp.size and position[0] == self.base[cell] and self.first[cell] >= live_from:
            stamp[0] = self.first[cell]
        return Segments(stamp[:-1].copy(), stamp[1:].copy(), np.diff(position))

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        inputs = [self, *others]
        points = []
        for array, shift in zip(inputs, shifts, strict=True):
            mine_from = min(max(1, live_from - shift), MAX_STAMP)
            stamps_of = (array.rings.reshape(-1), array.first, array.base)
            points.append(_halves(*array._walk(mine_from), stamps_of, np.int64(shift), np.int64(live_from)))
        stamps = np.concatenate([p[0] for p in points])
        weights = np.concatenate([p[1] for p in points])
        starts = np.cumsum([0] + [p[0].size for p in points[:-1]])
        offsets = np.stack([p[2] + start for p, start in zip(points, starts, strict=True)])
        result = self._fresh()
        result.height = 1 + max(a.height for a in inputs)
        result.n = np.sum([a.n for a in inputs], axis=0, dtype=np.uint64)
        result._fill(*_interleave(stamps, weights, offsets))
        return result

    def write(self, out: Writer, now: int) -> None:
        live_from = self.live_from(now)
        walk = self._walk(live_from)
        kept = walk.places >= 0
        out.u8(self.height)
        out.integers(self.n - self.base)
        out.integers(self.base)
        out.integers(np.where(self.first >= live_from, now - self.first.astype(np.int64), -1))
        self._write_shape(out)
        out.integers(np.diff(np.concatenate(([0], np.cumsum(kept)))[walk.offsets]))
        out.integers(now - self.rings.reshape(-1)[walk.places[kept]].astype(np.int64))

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height = source.u8()
        n, base, first = source.integers(0, most), source.integers(0, 2**31), source.integers(-1, min(self.span, now - 1))
        source.check(n.size == base.size == first.size == self.cells, "cells are missing")
        source.check(bool((first[n == 0] == -1).all() and (base[n == 0] == 0).all()), "a first arrival where there is none")
        self.n, self.base = (n + base).astype(np.uint64), base.astype(np.uint32)
        self.first = np.where(first >= 0, now - first, 0).astype(np.uint32)
        self._read_shape(source)
        kept, ages = source.integers(0, 2**32), source.integers(now - newest, min(self.span, now - 1))
        source.check(kept.size == self.cells and int(kept.sum()) == ages.size, "the entries do not add up")
        starts = np.cumsum(kept) - kept
        rising = np.diff(ages, prepend=0) >= 0
        rising[starts[kept > 0]] = True
        source.check(bool(rising.all()), "entries are out of order")
        walk = self._walk(0)
        room = np.maximum(np.diff(walk.offsets) - 1, 0)
        source.check(bool((kept <= room).all()), "more entries than the rings hold")
        whole = first >= 0  # the first arrival is still inside, so all after it are
        source.check(bool((kept == room)[whole].all()), "entries are missing")
        source.check(bool((ages[(starts + kept - 1)[whole]] <= first[whole]).all()), "an entry before the first arrival")
        step = np.arange(ages.size) - np.repeat(starts, kept)
        self.rings.reshape(-1)[walk.places[np.repeat(walk.offsets[:-1], kept) + step]] = now - ages


def _widened(bounds: Bounds, error: float, height: int) -> Bounds:
    """Bounds on the true count from bounds on a count that ``height`` merges may each have moved by ``error`` of it.

    A merge turns x into x' with |x' - x| ≤ error·x (ECM-15 Lemma 5), so x' / (1 + error) ≤ x ≤ x' / (1 - error), and
    again for each level. The paper adds the levels up; multiplied, the bounds hold for any height.
    """
    slack = 1e-12  # more than the rounding of the two divisions
    low = np.ceil(bounds.low / (1 + error) ** height * (1 - slack)).astype(np.int64)
    high = np.floor(np.minimum(bounds.high / (1 - error) ** height * (1 + slack), MAX_COUNT)).astype(np.int64)
    return Bounds(low, bounds.value, high)


@kernel
def _halves(positions: Any, places: Any, offsets: Any, stamps_of: Any, shift: Any, live_from: Any) -> Any:
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
def _interleave(stamps: Any, weights: Any, offsets: Any) -> Any:
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
