"""What the deterministic families share: arrivals have positions, some of which are retained with their stamps.

Positions number a cell's arrivals from 1, or from where a merge began. Which of them a family retains, and where in its
rings, follows from the newest position alone: so a walk over them is all that merging and storing need to know.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.jit import kernel
from lately.core.splitmix64 import mix
from lately.counters.base import MAX_STAMP, CounterArray, Counts, Stamps
from lately.counters.replay import fraction_bits, interleave, split_segments


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


@kernel
def _ages(rings: Any, places: Any, offsets: Any, now: Any, ages: Any, kept: Any) -> None:
    """How long ago each entry of a walk was stamped, and how many entries each cell has; the last of a walk is none."""
    at = 0
    for cell in range(kept.size):
        kept[cell] = max(offsets[cell + 1] - offsets[cell] - 1, 0)
        for i in range(offsets[cell], offsets[cell] + kept[cell]):
            ages[at] = now - np.int64(rings[places[i]])
            at += 1


@kernel
def _put_back(ages: Any, kept: Any, places: Any, offsets: Any, now: Any, rings: Any) -> bool:
    """Stamp the places of a walk; False if a cell's entries are not in order, newest first."""
    at = 0
    for cell in range(kept.size):
        newer = np.int64(0)
        for i in range(offsets[cell], offsets[cell] + kept[cell]):
            if i > offsets[cell] and ages[at] < newer:
                return False
            newer = ages[at]
            rings[places[i]] = np.uint32(now - newer)
            at += 1
    return True


@kernel
def _draw(newest: Any, below: Any, out: Any) -> None:
    """A random number below a power of two for each cell."""
    for cell in range(out.size):
        out[cell] = mix(mix(newest[cell]) + np.uint64(cell)) & (below - np.uint64(1))


def run_sizes(ends: NDArray[np.uint64], offsets: Counts) -> NDArray[np.uint64]:
    """How many arrivals each cell's run has, by its cumulative counts."""
    sizes = np.zeros(offsets.size - 1, np.uint64)
    filled = np.diff(offsets) > 0
    sizes[filled] = ends[offsets[1:][filled] - 1]
    return sizes


class PositionalArray(CounterArray):
    """The deterministic families: arrivals have positions, some of which are retained with their stamps in rings."""

    #: The names of the state's arrays, in the order in which the kernels take them.
    arrays: ClassVar[tuple[str, ...]]
    _get_state: ClassVar[Callable[[Any], tuple[Any, ...]]]

    def __init_subclass__(cls) -> None:
        cls._get_state = staticmethod(attrgetter(*cls.arrays))  # one call, on the way of every update

    def __init__(self, cells: int, span: int, eps: float) -> None:
        super().__init__(cells, span, eps)
        self.n = np.zeros(cells, np.uint64)  # the position of each cell's newest arrival
        self.first = np.zeros(cells, np.uint32)  # the stamp of its first one
        self.base = np.zeros(cells, np.uint32)  # the position before its first one: 0 unless it was merged
        self.rings: Stamps = np.zeros((1, cells, 1), np.uint32)

    @property
    def _state(self) -> tuple[Any, ...]:
        return type(self)._get_state(self)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._state)

    def copy(self) -> Self:
        twin = self._fresh()
        twin.height, twin.stretch = self.height, self.stretch
        for name in self.arrays:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def rebase(self, shift: int) -> None:
        for stamps in (self.first, self.rings):
            stamps[...] = np.where(stamps > shift, stamps - np.uint32(min(shift, MAX_STAMP)), 0)

    def _fresh(self) -> Self:
        return type(self)(self.cells, self.span, self.eps)

    @abstractmethod
    def _walk(self, live_from: int) -> Walk:
        """Every cell's retained positions, newest first, down to the first that is stamped before ``live_from``."""

    @abstractmethod
    def _fill(self, stamps: Stamps, ends: NDArray[np.uint64], offsets: Counts, newest: NDArray[np.uint64]) -> None:
        """Fill fresh cells, each from a sorted run of stamps with cumulative counts; ``newest`` is for ``_draw_bases``."""

    @abstractmethod
    def _write_shape(self, out: Writer) -> None:
        """Write how large the rings are."""

    @abstractmethod
    def _read_shape(self, source: Reader) -> None:
        """Make rings of the size that was written, or refuse; ``n`` is already set."""

    def _draw_bases(self, sizes: NDArray[np.uint64], newest: NDArray[np.uint64], gap: int) -> None:
        """Start fresh cells, which will get ``sizes`` arrivals, at any position below ``gap``, a power of two.

        Merging replays lumps whose sizes are near powers of two. From a fixed position on, they would end at the same
        place in all gaps between the positions that will be retained, and the middle of the bracket would be too low in
        all of them, or too high, tree upon tree. So the position is random, but the same for the same inputs: it is
        made of the cell's number and of the sum of its inputs' ``newest`` positions.
        """
        start = np.empty(self.cells, np.uint64)
        _draw(newest, np.uint64(min(gap, 2**31)), start)
        self.base = np.where(sizes > 0, start, 0).astype(np.uint32)
        self.n = self.base.astype(np.uint64)

    def segments(self, cell: int, live_from: int = 1) -> Segments:
        """One cell as the log that merging replays, without what ended before ``live_from``."""
        walk = self._walk(live_from)
        own = slice(walk.offsets[cell], walk.offsets[cell + 1])
        position, place = walk.positions[own][::-1], walk.places[own][::-1]
        stamp = np.where(place >= 0, self.rings.reshape(-1)[place], 0).astype(np.uint32)
        if stamp.size and position[0] == self.base[cell] and self.first[cell] >= live_from:
            stamp[0] = self.first[cell]
        return Segments(stamp[:-1].copy(), stamp[1:].copy(), np.diff(position))

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        inputs = [self, *others]
        newest: Any = np.sum([a.n for a in inputs], axis=0, dtype=np.uint64)
        bits = fraction_bits(int(newest.max()))
        points = []
        for array, shift in zip(inputs, shifts, strict=True):
            first_stamp = min(max(1, live_from - shift), MAX_STAMP)
            stamps_of = (array.rings.reshape(-1), array.first, array.base)
            limits = (np.int64(shift), np.int64(live_from))
            points.append(split_segments(*array._walk(first_stamp), stamps_of, limits, bits))
        stamps = np.concatenate([p[0] for p in points])
        weights = np.concatenate([p[1] for p in points])
        starts = np.cumsum([0] + [p[0].size for p in points[:-1]])
        offsets = np.stack([p[2] + start for p, start in zip(points, starts, strict=True)])
        result = self._fresh()
        result._rise(inputs)
        stamps, ends, offsets = interleave(stamps, weights, offsets, bits)
        result._fill(stamps, ends, offsets, newest)
        return result

    def _rise(self, inputs: Sequence[Self]) -> None:
        """Be one level above these inputs, whose counters may be finer or coarser than its own."""
        filled = [array for array in inputs if array.n.any()] or inputs
        self.height = 1 + max(array.height for array in filled)
        if any(array.stretch or array.merge_error != self.merge_error for array in filled):
            upper = max(array.stretched[0] * (1 + array.merge_error) for array in filled)
            self.stretch = upper, min(array.stretched[1] * (1 - array.merge_error) for array in filled)

    def is_extended(self, now: int) -> bool:
        return self.stretch is not None

    def write(self, out: Writer, now: int) -> None:
        live_from = self.live_from(now)
        walk = self._walk(live_from)
        kept, ages = np.empty(self.cells, np.int64), np.empty(walk.places.size, np.int64)
        _ages(self.rings.reshape(-1), walk.places, walk.offsets, np.int64(now), ages, kept)
        out.u8(self.height)
        if out.extended:
            upper, lower = self.stretch or (0.0, 0.0)
            out.f64(upper)
            out.f64(lower)
        out.integers(self.n - self.base)
        out.integers(self.base)
        out.integers(np.where(self.first >= live_from, now - self.first.astype(np.int64), -1))
        self._write_shape(out)
        out.integers(kept)
        out.integers(ages[: kept.sum()])

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height = source.u8()
        if source.extended:
            upper, lower = source.f64(), source.f64()
            merged = self.height > 0 and 1 <= upper <= 1e100 and 1e-100 <= lower <= 1
            source.check(upper == lower == 0 or merged, "bounds that merging cannot widen to")
            self.stretch = (upper, lower) if merged else None
        n, base, first = source.integers(0, most), source.integers(0, 2**31), source.integers(-1, min(self.span, now - 1))
        source.check(n.size == base.size == first.size == self.cells, "cells are missing")
        source.check(bool((first[n == 0] == -1).all() and (base[n == 0] == 0).all()), "a first arrival in an empty cell")
        self.n, self.base = (n + base).astype(np.uint64), base.astype(np.uint32)
        self.first = np.where(first >= 0, now - first, 0).astype(np.uint32)
        self._read_shape(source)
        kept, ages = source.integers(0, 2**32), source.integers(now - newest, min(self.span, now - 1))
        source.check(kept.size == self.cells and int(kept.sum()) == ages.size, "the entries do not add up")
        walk = self._walk(0)
        room = np.maximum(np.diff(walk.offsets) - 1, 0)
        source.check(bool((kept <= room).all()), "more entries than the rings hold")
        whole = first >= 0  # the first arrival is still inside, so all after it are
        source.check(bool((kept == room)[whole].all()), "entries are missing")
        source.check(bool((ages[(np.cumsum(kept) - 1)[whole]] <= first[whole]).all()), "an entry before the first arrival")
        in_order = _put_back(ages, kept, walk.places, walk.offsets, np.int64(now), self.rings.reshape(-1))
        source.check(in_order, "entries are out of order")
