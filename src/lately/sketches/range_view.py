"""What answers questions about one range of time. A sketch builds a view of its own range, an extract one of what it holds.

sketch.in_range(last=…) ───> counts of the sketch's cells ──┐
                                                            ├──> RangeView ──> answers
view_of(sketch, extract) ──> counts in the extract ─────────┘
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lately.core.estimate import Estimate, Estimates
from lately.core.key_types import KeyTypes, check_key_types
from lately.core.keys import Hashes, Keys, all_hashes, key_column, one_key
from lately.counters.base import Bounds, Cells, Counts
from lately.sketches.countmin import minima, without_collisions
from lately.sketches.hashing import cells_of
from lately.sketches.noise import CollisionNoise


class CellCounts(Protocol):
    """What rows of hashed cells counted in one range of time."""

    def total_bounds(self) -> Bounds:
        """Bounds of all arrivals: arrays of one number."""

    def cell_bounds(self, cells: Cells | None = None) -> Bounds:
        """Bounds of these cells, or of all."""

    def dithered(self, cells: Cells | None = None) -> Bounds | None:
        """The counts of these cells, or of all, plus random remainders; None where counters leave none."""

    def noise(self, learn: Callable[[], "CellNoise | None"]) -> "CellNoise | None":
        """What ``learn`` gives; it need not be called again while the cells have not changed."""


class CellNoise(NamedTuple):
    """The noise of the cells of one range: of counts with their remainders, and of these cut to what a cell can have counted.

    A cell that has counted less in all than a count with its remainder is known better: while a stream is younger than the
    range, it counted exactly what the range holds.
    """

    dithered: CollisionNoise
    cut: CollisionNoise

    def estimates(self, smallest: Counts, high: Counts) -> Counts:
        """The best estimates of keys with these smallest cells, remainders included, and counts of at most ``high``."""
        if (high >= smallest).all():
            return self.dithered.estimates(smallest)
        return np.where(high < smallest, self.cut.estimates(high), self.dithered.estimates(smallest))


class RangeView(ABC):
    """Answers about one range of time."""

    def __init__(self, delta: float) -> None:
        self.delta = delta

    @abstractmethod
    def total_bounds(self) -> Bounds:
        """Bounds of all arrivals: arrays of one number."""

    def total(self) -> Estimate:
        """The number of arrivals in the range; its bounds are certain."""
        low, value, high = (int(part[0]) for part in self.total_bounds())
        return Estimate(value, low, high, 1.0)


@dataclass(frozen=True, eq=False, slots=True)
class HashedRows:
    """Rows of hashed cells: where the cells of a key are, and how likely other keys share them.

    Parameters
    ----------
    words
        The coefficients of each row's hash function.
    width
        Cells in a row.
    odds
        With a probability of 1/odds, a cell holds more than odds/width of the other keys' arrivals.
    """

    words: NDArray[np.uint64]
    width: np.uint64
    odds: float = math.e

    @property
    def depth(self) -> int:
        """The number of rows."""
        return int(self.words.shape[0])


class CountMinView(RangeView):
    """Counts of keys in one range, from rows of hashed cells.

    Parameters
    ----------
    rows
        How keys are hashed into cells.
    delta
        The probability that a lower bound is wrong.
    counts
        What the cells counted in the range.
    key_types
        The types of the keys that were counted, to refuse a question that confuses 3 with "3"; None if they are not known.
    """

    def __init__(self, rows: HashedRows, delta: float, counts: CellCounts, key_types: KeyTypes = None) -> None:
        super().__init__(delta)
        self._rows, self._counts, self._key_types = rows, counts, key_types

    def total_bounds(self) -> Bounds:
        return self._counts.total_bounds()

    def cell_bounds(self, cells: Cells | None = None) -> Bounds:
        """Bounds of these cells, or of all."""
        return self._counts.cell_bounds(cells)

    def count(self, key: Any) -> Estimate:
        """How often a key occurred; ``high`` is certain (except with randomized waves), ``low`` likely."""
        return self.counts(one_key(key))[0]

    def counts(self, keys: Any) -> Estimates:
        """How often each key of a column occurred: ``.value``, ``.low`` and ``.high`` are arrays."""
        column: Keys = key_column(keys)
        check_key_types(column, self._key_types)
        low, value, high = self.key_bounds(all_hashes(column))
        return Estimates(value, low, high, 1 - self.delta)

    def key_bounds(self, hashes: Hashes, together: float = 1) -> Bounds:
        """Bounds of hashed keys; ``low`` holds with probability 1 - delta for any ``together`` of them at once.

        The keys must have been chosen without a look at the cells: those that stand out there are those with most collisions.
        """
        noise = self._noise
        margin = None if noise is None else noise.dithered.margin(self.delta / max(together, 1))

        def read(cells: Cells | None) -> tuple[Counts, Counts, Counts]:
            bounds, dithered = self.cell_bounds(cells), self._counts.dithered(cells)
            if dithered is None:
                return bounds
            return bounds.low if margin is None else dithered.low, dithered.value, bounds.high

        least, smallest, high = self._smallest(hashes, read)
        value = smallest if noise is None else noise.estimates(smallest, high)
        total = self.total_bounds().high[0]  # certain: no key can have more
        high = np.minimum(high, total)
        if margin is None:
            rows = self._rows
            odds = rows.odds * together ** (1 / rows.depth)  # so that all rows exceed it with probability delta/together
            likely = np.ceil(without_collisions(least, total, int(rows.width), odds) * (1 - 1e-12)).astype(np.int64)
        else:
            likely = np.maximum(least - margin, 0)
        value = np.minimum(value, high)
        low = np.minimum(likely, high if noise is not None else value)
        return Bounds(low, np.maximum(value, low), high)

    def _smallest(self, hashes: Hashes, read: Callable[[Cells | None], tuple[Counts, Counts, Counts]]) -> tuple[Counts, ...]:
        """The smallest of each key's cells, in three columns that ``read`` gives for some cells or for all."""
        words, width = self._rows.words, self._rows.width
        if hashes.size * self._rows.depth < width:  # few keys: read only their cells
            cells = cells_of(hashes, words, int(width))
            return tuple(part.reshape(cells.shape).min(axis=0) for part in read(cells.reshape(-1)))
        smallest = np.empty((hashes.size, 3), np.int64)
        minima(hashes, words, width, np.stack(read(None), axis=1), smallest)
        return tuple(smallest.T)

    @cached_property
    def _noise(self) -> CellNoise | None:
        return self._counts.noise(self._learn_noise)

    def _learn_noise(self) -> CellNoise | None:
        """The noise of the range's cells; None where the counters leave it to the theorem."""
        dithered = self._counts.dithered()
        if dithered is None:
            return None
        shape = self._rows.depth, int(self._rows.width)
        cells, most = dithered.value.reshape(shape), dithered.high.reshape(shape)
        noise = CollisionNoise(cells, cells if (cells == most).all() else most)
        high = self.cell_bounds().high.reshape(shape)
        return CellNoise(noise, CollisionNoise(np.minimum(cells, high), most) if (high < cells).any() else noise)
