"""What the sketches of integers share: every arrival is counted on each level of a tree; see ``tree`` and ``ranks``."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from lately.core.codec import Reader
from lately.core.durations import Duration
from lately.core.keys import SEED, Keys
from lately.counters.base import MAX_STAMP, Bounds, Counts, Stamps
from lately.counters.shared import SharedWave
from lately.counters.wave import Wave
from lately.sketches.extracts import Extract, ExtractableSketch
from lately.sketches.range_view import RangeView
from lately.sketches.ranks import Suffix, TreeRange, cover
from lately.sketches.scratch import scratch
from lately.sketches.tree import TreeShape, layout, read_tree_shape, tree_arrays


class TreeView(RangeView):
    """Answers about one range, from a tree of counts.

    Parameters
    ----------
    shape
        What the sketch was asked for.
    tree
        What the nodes of the tree counted in the range.
    """

    def __init__(self, shape: TreeShape, tree: TreeRange) -> None:
        super().__init__(shape.delta)
        self.shape, self.tree, self.levels = shape, tree, layout(shape).levels

    def total_bounds(self) -> Bounds:
        return self.tree.total()

    def count_between(self, first: int, last: int) -> tuple[float, float, float]:
        """How many arrivals had a key from ``first`` to ``last``, both included: (low, value, high), not rounded."""
        return self.tree.sum(cover(self.levels, first, last))


class WindowedTree(ExtractableSketch[TreeShape]):
    """Base of sketches that count integers by their prefixes."""

    #: A row's cells do not stay in the cache while the others are counted, so each row takes more at a time.
    _block = 2**17
    _parts: tuple[SharedWave, Wave]

    def _begin(self, shape: TreeShape, counters: Any) -> Self:
        self._layout = layout(shape)
        return super()._begin(shape, counters)

    @classmethod
    def _new_parts(cls, shape: TreeShape) -> tuple[SharedWave, Wave]:
        return tree_arrays(shape)

    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        array, total = self._parts
        integers, cells = scratch(stamps.size)
        integers.fill(SEED)
        keys.hash_into(start, integers)
        for level in self._layout.levels:
            for row in range(level.rows):
                level.cells_in_row(integers, np.uint64(level.shift), row, cells)
                array.add_to_row(level.row + row, cells, stamps, counts)
        total.extend(stamps, counts)

    @abstractmethod
    def in_range(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> TreeView:
        """A view of one range, which answers several questions about it."""

    def _tree_in_range(self, last: Duration | None, between: tuple[Any, Any] | None) -> TreeRange:
        older, newer = self._range(last, between)
        return TreeRange(self._layout, self._suffix(older), None if newer is None else self._suffix(newer))

    def _tree_of(self, extract: Extract) -> TreeRange:
        nothing_buffered = np.empty(0, np.int64), np.empty(0, np.int64)
        return TreeRange(self._layout, Suffix(self._layout, self.delta, extract, extract.total, nothing_buffered), None)

    def _extract_since(self, age: int) -> Extract:
        array, buffer, now = self._parts[0], self._reorder_buffer, self._now
        snapshot = array.at(self._stamp_at(age, now) if now is not None else MAX_STAMP)
        bounds = snapshot.raw_all()
        newer = buffer.ticks >= (0 if now is None else self._tick_at(age, now))
        for level in self._layout.levels if newer.any() else ():
            for row in level.cells(buffer.hashes[newer].view(np.int64) >> level.shift):
                for part in bounds:
                    np.add.at(part, row, buffer.counts[newer])
        # Where every arrival is still noted nothing spreads, and nothing may be added to what others spread.
        spread = np.where(snapshot.spread == 1, 0.0, snapshot.spread)
        return Extract(self.fingerprint, bounds, self._total_in_range((age, None)), spread)

    def _suffix(self, age: int) -> Suffix:
        array, buffer, now = self._parts[0], self._reorder_buffer, self._now
        if now is None:  # nothing was counted yet, so nothing is buffered either
            nothing = buffer.counts, buffer.counts
            return Suffix(self._layout, self.delta, array.at(MAX_STAMP), self._total_in_range((age, None)), nothing)
        newer = buffer.ticks >= self._tick_at(age, now)
        late = buffer.hashes[newer].view(np.int64), buffer.counts[newer]
        return Suffix(self._layout, self.delta, array.at(self._stamp_at(age, now)), self._total_in_range((age, None)), late)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        shape = cls._read_shape(source)
        sketch = object.__new__(cls)._begin(shape, tree_arrays(shape))
        sketch._read_state(source)
        return sketch

    def _read_state(self, source: Reader) -> None:
        super()._read_state(source)
        source.check(bool((self._reorder_buffer.hashes < self._shape.universe).all()), "a key outside of the universe")

    @classmethod
    def _read_shape(cls, source: Reader) -> TreeShape:
        return read_tree_shape(source)
