"""B-INT: aggregates of base intervals, from which any window is put together (SHARE, section 3.1.1).

A base interval of level l is the 2**l positions from a multiple of 2**l on. The state of each complete interval is stored in
a heap over the slots of the column's ring, whose leaves are the values themselves:

    nodes[size >> l + slot]     the base interval number ``slot`` of level l, l = 1, 2, …

An update costs two combinations on average; a window of W positions is the union of at most 2·log₂ W base intervals.
"""

from collections.abc import Callable
from typing import Any

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.column import Column, Index, Numbers
from lately.exact.operations import Operation, UserOperation, combine, lift, load, lower, nothing, store
from lately.exact.rollback import slots, undo_writes


class BaseIntervals(Index):
    """The aggregate of every complete base interval: one state for each position."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._nodes: Any = operation.room(2)
        self._grow, self._fold = operation.bind(grow), operation.bind(fold)

    @property
    def nbytes(self) -> int:
        return int(self._nodes.nbytes)

    def rebuild(self, column: Column) -> None:
        self._nodes = self._operation.room(column.values.size, column.values.dtype)
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        self._grow(column.values, self._nodes, (column.first, start, column.end), self._operation.code)

    def undo(self, column: Column, start: int, end: int) -> Callable[[], None]:
        if not isinstance(self._operation, UserOperation):
            return super().undo(column, start, end)
        written, width, level = [], column.values.size >> 1, 1
        while width > 0 and start >> level < end >> level:
            written.append((self._nodes, width + slots(start >> level, end >> level, width)))
            width >>= 1
            level += 1
        return undo_writes(self, written)

    def lookup(self, column: Column, lefts: Ints, rights: Ints) -> Any:
        """The aggregates over the positions from ``lefts[i]`` up to, without, ``rights[i]``."""
        answers = self._operation.answers(lefts.size, column.values.dtype)
        self._fold(column.values, self._nodes, (lefts, rights), self._operation.code, answers)
        return answers


@kernel
def grow(values: Numbers, nodes: Any, span: tuple[int, int, int], code: int) -> None:
    """Compute the base intervals that end in ``start..end`` and do not begin before ``first``; no window contains others."""
    first, start, end = span
    size = values.size
    half = size >> 1
    for i in range(max(start >> 1, (first + 1) >> 1), end >> 1):
        slot = i & (half - 1)
        a, b = lift(code, values[2 * slot]), lift(code, values[2 * slot + 1])
        store(nodes, half + slot, combine(code, a, b))
    level = 2
    while (size >> level) > 0 and (start >> level) < (end >> level):
        width = size >> level
        for i in range(max(start >> level, (first + (1 << level) - 1) >> level), end >> level):
            at = width + (i & (width - 1))
            store(nodes, at, combine(code, load(nodes, 2 * at), load(nodes, 2 * at + 1)))
        level += 1


@kernel
def fold(values: Numbers, nodes: Any, windows: tuple[Ints, Ints], code: int, out: Any) -> None:
    """Combine each window from both ends inwards, so that the order of its values is preserved."""
    lefts, rights = windows
    size = values.size
    for i in range(lefts.size):
        left, right = lefts[i], rights[i]
        first, last = nothing(code), nothing(code)
        if left < right:
            if left & 1:
                first = lift(code, values[left & (size - 1)])
                left += 1
            if right & 1:
                last = lift(code, values[(right - 1) & (size - 1)])
            left >>= 1
            right >>= 1
            width = size >> 1
            while left < right:
                if left & 1:
                    first = combine(code, first, load(nodes, width + (left & (width - 1))))
                    left += 1
                if right & 1:
                    last = combine(code, load(nodes, width + ((right - 1) & (width - 1))), last)
                left >>= 1
                right >>= 1
                width >>= 1
        out[i] = lower(code, combine(code, first, last))
