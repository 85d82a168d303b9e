"""A Count-Min array whose cells count over a window: what an ECM-sketch and a TopK have in common."""

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader
from lately.core.durations import Duration
from lately.core.estimate import Estimate, Estimates
from lately.core.key_types import NO_KEYS, KeyTypes, refuse_confused, types_of_keys, union
from lately.core.keys import SEED, Hashes, Keys, all_hashes, key_column, one_key
from lately.counters.base import Bounds, Cells, CounterArray, Counts, Part, Stamps
from lately.ingest.shape import WindowShape
from lately.ingest.windowed import inputs_of
from lately.sketches.countmin import minima, without_collisions
from lately.sketches.hashing import cells_of, coefficients, row_cells
from lately.sketches.scratch import scratch
from lately.sketches.windowed_sketch import WindowedSketch

S = TypeVar("S", bound=WindowShape)


class WindowedCountMin(WindowedSketch[S]):
    """Base of the sketches of keys; the first of its parts has ``width`` cells in each of ``depth`` rows."""

    _words: NDArray[np.uint64]
    _width: np.uint64
    #: A row has more than odds/width of the other keys' arrivals in a cell with a probability of 1/odds.
    _odds: float = math.e
    _key_types: KeyTypes

    def _begin_rows(self, size: tuple[int, int], seed: int, shape: S, parts: tuple[Part, ...]) -> Self:
        """Start empty, with rows of (width, depth)."""
        self._words, self._width, self._key_types = coefficients(seed, size[1]), np.uint64(size[0]), NO_KEYS
        return super()._begin(shape, parts)

    @property
    def width(self) -> int:
        """Cells in a row."""
        return int(self._width)

    @property
    def depth(self) -> int:
        """Rows."""
        return int(self._words.shape[0])

    @property
    def _array(self) -> CounterArray:
        array = self._parts[0]
        assert isinstance(array, CounterArray)
        return array

    # -- write ---------------------------------------------------------------------------------------------------------

    def update(self, keys: Any, times: Any = None, counts: Any = None) -> None:
        """Count a column of keys at their times, ``counts`` times each; a scalar is a column of one.

        Keys are text, bytes, integers or tuples of those, as lists, NumPy, pandas, polars or Arrow columns. In a window of
        arrivals leave the times out; there each row is one arrival, whatever its count. A batch may
        come in any order. What is older than the newest arrival already counted is late: held back and sorted in within
        ``lateness``, else refused into ``late``. The whole batch is checked before any of it is counted.
        """
        column = key_column(keys)
        self._take(column, times, counts)
        self._key_types = union(self._key_types, types_of_keys(column))

    def _count_rows(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> Hashes:
        """Count a block in every row and in the total; gives its hashes, which are good until the next block."""
        array, total = self._array, self._all
        hashes, cells = scratch(stamps.size)
        hashes.fill(SEED)
        keys.hash_into(start, hashes)
        for row in range(self._words.shape[0]):
            row_cells(hashes, row, self._words, self._width, cells)
            array.add_to_row(row, cells, stamps, counts)
        total.extend(stamps, counts)
        return hashes

    # -- read ----------------------------------------------------------------------------------------------------------

    def count(self, key: Any, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """How often a key was seen in the last so long, or in a range of the past; the whole window by default.

        ``high`` is certain (except with randomized waves), ``low`` holds with probability 1 - delta.
        """
        return self.counts(one_key(key), last=last, between=between)[0]

    def counts(self, keys: Any, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimates:
        """How often each of many keys was seen: ``.value``, ``.low`` and ``.high`` are arrays.

        >>> import lately as lt
        >>> sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
        >>> sketch.update([1, 2, 1], [10, 20, 30])
        >>> sketch.counts([1, 2, 3], last=15).value.tolist()
        [1, 1, 0]
        """
        ages, column = self._range(last, between), key_column(keys)
        refuse_confused(column, self._key_types)
        low, value, high = self._keys_in_range(all_hashes(column), ages)
        return Estimates(value, low, high, 1 - self.delta)

    # -- the types of keys -----------------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """An independent copy."""
        twin = super().copy()
        twin._key_types = self._key_types
        return twin

    def _merge(self, others: Sequence[Self], eps: float | None = None) -> Self:
        result = super()._merge(others, eps)
        result._key_types = union(*(one._key_types for many in (self, *others) for one in inputs_of(many)))
        return result

    def _read_state(self, source: Reader) -> None:
        super()._read_state(source)
        self._key_types = None  # bytes do not tell them, as they are the same whoever has hashed the keys

    # -- cells -----------------------------------------------------------------------------------------------------------

    def _keys_in_range(self, hashes: Hashes, ages: tuple[int, int | None], together: int = 1) -> Bounds:
        """Bounds of hashed keys; ``low`` holds with probability 1 - delta for any ``together`` of them at once.

        They must have been chosen without a look at the cells: those that stand out there are those with most collisions.
        """
        if hashes.size * self.depth < self.width:  # few keys: ask their cells only
            cells = cells_of(hashes, self._words, self.width)
            bounds = self._cells_in_range(cells.reshape(-1), ages)
            low, value, high = (part.reshape(cells.shape).min(axis=0) for part in bounds)
        else:
            table = np.stack(self._cells_in_range(None, ages), axis=1)
            found = np.empty((hashes.size, 3), np.int64)
            minima(hashes, self._words, self._width, table, found)
            low, value, high = found.T
        total = self._total_in_range(ages).high[0]  # certain: no key can have more
        high = np.minimum(high, total)
        value = np.minimum(value, high)
        odds = self._odds * together ** (1 / self.depth)  # so that all rows exceed it with probability delta/together
        sure = np.ceil(without_collisions(low, total, self.width, odds) * (1 - 1e-12)).astype(np.int64)
        return Bounds(np.minimum(sure, value), value, high)

    def _cells_in_range(self, cells: Cells | None, ages: tuple[int, int | None], now: int | None = None) -> Bounds:
        """Bounds of these cells, or of all."""

        def held(tick: int) -> Counts:
            table = self._held_table(tick)
            return table if cells is None else table[cells]

        return self._bounds(self._array, cells, held, ages, now)

    def _held_table(self, tick: int) -> Counts:
        """What is held back since a tick, by cell."""
        table = np.zeros(self._array.cells, np.int64)
        newer = self._reorder_buffer.ticks >= tick
        for row in cells_of(self._reorder_buffer.hashes[newer], self._words, self.width):
            np.add.at(table, row, self._reorder_buffer.counts[newer])
        return table
