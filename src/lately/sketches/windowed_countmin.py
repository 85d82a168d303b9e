"""A Count-Min array whose cells count over a window: what an ECM-sketch and a TopK have in common."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from lately.core.codec import Reader
from lately.core.durations import Duration
from lately.core.estimate import Estimate, Estimates
from lately.core.key_types import NO_KEYS, KeyTypes, types_of_keys, union
from lately.core.keys import SEED, Hashes, Keys, key_column
from lately.core.plain_values import plain_key
from lately.counters.base import MAX_STAMP, Bounds, Cells, CounterArray, Counts, Part, Stamps
from lately.ingest.merging import inputs_of
from lately.ingest.shape import WindowShape
from lately.sketches.hashing import cells_of, coefficients, row_cells
from lately.sketches.range_view import CellNoise, CountMinView, HashedRows
from lately.sketches.scratch import scratch
from lately.sketches.windowed_sketch import WindowedSketch

S = TypeVar("S", bound=WindowShape)


class SketchCells:
    """What the cells of a sketch counted in a range of its window.

    Parameters
    ----------
    sketch
        The sketch.
    ages
        The range as ages in ticks: from the older one, up to the newer one (None: up to now).
    now
        The tick from which ages count; by default the sketch's newest.
    """

    def __init__(self, sketch: "WindowedCountMin[Any]", ages: tuple[int, int | None], now: int | None = None) -> None:
        self._sketch, self.ages, self._now = sketch, ages, now

    def total_bounds(self) -> Bounds:
        return self._sketch._total_in_range(self.ages, self._now)

    def cell_bounds(self, cells: Cells | None = None) -> Bounds:
        return self._sketch._cells_in_range(cells, self.ages, self._now)

    def dithered(self, cells: Cells | None = None) -> Bounds | None:
        return self._sketch._dithered_in_range(cells, self.ages, self._now)

    def noise(self, learn: Callable[[], CellNoise | None]) -> CellNoise | None:
        sketch = self._sketch
        state = self.ages, self._now, sketch._now, sketch._arrived
        learnt = sketch._learnt  # read once: another thread may ask about another range
        if learnt is None or learnt[0] != state:
            learnt = sketch._learnt = state, learn()
        return learnt[1]


class WindowedCountMin(WindowedSketch[S]):
    """Base of the sketches of keys; the first of its parts has ``width`` cells in each of ``depth`` rows."""

    _rows: HashedRows
    _key_types: KeyTypes

    def _begin_rows(self, size: tuple[int, int], seed: int, shape: S, parts: tuple[Part, ...], odds: float = math.e) -> Self:
        """Start empty, with rows of (width, depth); ``odds`` as ``HashedRows`` has them."""
        #: The noise of the range that was asked last, and the state and the range that it belongs to.
        self._learnt: tuple[Any, CellNoise | None] | None = None
        self._rows, self._key_types = HashedRows(coefficients(seed, size[1]), np.uint64(size[0]), odds), NO_KEYS
        return super()._begin(shape, parts)

    @property
    def width(self) -> int:
        """Cells in a row."""
        return int(self._rows.width)

    @property
    def depth(self) -> int:
        """Rows."""
        return self._rows.depth

    @property
    def rows(self) -> HashedRows:
        """How keys are hashed into cells."""
        return self._rows

    @property
    def _array(self) -> CounterArray:
        array = self._parts[0]
        assert isinstance(array, CounterArray)
        return array

    # -- write ---------------------------------------------------------------------------------------------------------

    def update(self, keys: Any, times: Any = None, counts: Any = None) -> None:
        """Count a column of keys at their times, ``counts`` times each.

        The whole batch is checked before any of it is counted. Rows of a batch may be in any order. A row that is older than
        the newest arrival by more than ``lateness`` is late: it is not counted, except in ``late``.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        times
            The time of each row: dates, text, or integers if the window is an integer. None in a window of arrivals,
            where each row is one arrival.
        counts
            How often to count each row; once by default.
        """
        if (key := plain_key(keys)) is not None and self._add_waiting(key, times, counts):
            return
        column = key_column(keys)
        self._ingest(column, times, counts)
        self._note_key_types(types_of_keys(column))

    def _note_key_types(self, types: KeyTypes) -> None:
        self._key_types = union(self._key_types, types)

    def _count_rows(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> Hashes:
        """Count a block in every row and in the total; gives its hashes, which are good until the next block."""
        array, total = self._array, self._total_counter
        hashes, cells = scratch(stamps.size)
        hashes.fill(SEED)
        keys.hash_into(start, hashes)
        for row in range(self.depth):
            row_cells(hashes, row, self._rows.words, self._rows.width, cells)
            array.add_to_row(row, cells, stamps, counts)
        total.extend(stamps, counts)
        return hashes

    # -- read ----------------------------------------------------------------------------------------------------------

    def count(self, key: Any, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """How often a key occurred in the most recent period, or in a range of the past.

        ``high`` is certain (except with randomized waves), ``low`` holds with probability 1 - delta.

        Parameters
        ----------
        key
            The key.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).count(key)

    def counts(self, keys: Any, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimates:
        """How often each key of a column occurred: ``.value``, ``.low`` and ``.high`` are arrays.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.

        >>> import lately as lt
        >>> sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
        >>> sketch.update([1, 2, 1], [10, 20, 30])
        >>> sketch.counts([1, 2, 3], last=15).value.tolist()
        [1, 1, 0]
        """
        return self.in_range(last, between).counts(keys)

    @abstractmethod
    def in_range(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> CountMinView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """

    # -- the types of keys -----------------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """An independent copy."""
        twin = super().copy()
        twin._key_types = self._key_types
        return twin

    def _merge(self, others: Sequence[Self], eps: float | None = None) -> Self:
        result = super()._merge(others, eps)
        result._key_types = union(*(part._key_types for sketch in (self, *others) for part in inputs_of(sketch)))
        return result

    def _read_state(self, source: Reader) -> None:
        super()._read_state(source)
        self._key_types = None  # bytes hold no types of keys: they are the same wherever the keys were hashed

    # -- cells -----------------------------------------------------------------------------------------------------------

    def _cells_in_range(self, cells: Cells | None, ages: tuple[int, int | None], now: int | None = None) -> Bounds:
        """Bounds of these cells, or of all."""

        def buffered(tick: int) -> Counts:
            table = self._buffered_by_cell(tick)
            return table if cells is None else table[cells]

        return self._bounds(self._array, cells, buffered, ages, now)

    def _dithered_in_range(self, cells: Cells | None, ages: tuple[int, int | None], now: int | None = None) -> Bounds | None:
        """The counts of these cells, or of all, plus their remainders at the start of the range; None if there are none.

        At the end of a range in the past there is a remainder too, which is not independent of the count: all of it goes into
        the bounds.
        """
        instant = now if now is not None else self._now
        older, newer = ages
        start = self._array.dithered_since(MAX_STAMP if instant is None else self._stamp_at(older, instant), cells)
        if start is None:
            return None
        if instant is None:
            return Bounds(*(np.zeros_like(part) for part in start[:3]))
        bounds = Bounds(*start[:3])
        if newer is not None:
            end = self._array.dithered_since(self._stamp_at(newer, instant), cells)
            assert end is not None
            bounds = Bounds(start.low - end.high, start.value - end.value + end.remainder, start.high - end.low + end.remainder)
        if self._reorder_buffer.ticks.size:
            held = self._buffered_by_cell(self._tick_at(older, instant))
            if newer is not None:
                held = held - self._buffered_by_cell(self._tick_at(newer, instant))
            bounds = Bounds(*(part + (held if cells is None else held[cells]) for part in bounds))
        return bounds

    def _buffered_by_cell(self, tick: int) -> Counts:
        """What the reorder buffer holds since a tick, by cell."""
        table = np.zeros(self._array.cells, np.int64)
        newer = self._reorder_buffer.ticks >= tick
        for row in cells_of(self._reorder_buffer.hashes[newer], self._rows.words, self.width):
            np.add.at(table, row, self._reorder_buffer.counts[newer])
        return table
