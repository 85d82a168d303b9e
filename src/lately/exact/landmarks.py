"""L-INT: aggregates from landmarks and up to landmarks, two of which make any window (SHARE, section 3.1.2).

One index serves the windows of one width class, 2**bits up to twice that. Landmarks divide the stream into blocks of
2**bits positions, or of 2**bits ticks for windows of time. For each position the index has the aggregate

    own       from the landmark before it up to it
    longer    from the landmark before that one up to it
    rest      from it up to the next landmark, once that has passed

and a window that begins in one block and ends in the next, or in the one after, is ``rest`` of its first position combined
with ``own`` or ``longer`` of its last. A lookup takes one combination; a class costs three states for each position.

A window of time, although at least as wide as a block, may contain positions of one block only, if its other ticks have no
arrivals. Then it covers the block's end or the block's beginning. In the first case its last position is the last one of the
block, which is complete, and ``rest`` of its first position is the answer; the block may begin earlier, with positions that
were dropped. In the second case everything in ``own`` of its last position is inside the window.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.exact.column import Column, Index, Numbers
from lately.exact.operations import Operation, UserOperation, combine, lift, load, lower, nothing, store
from lately.exact.ring import Ring
from lately.exact.rollback import slots, undo_writes

_NO_TICKS = np.zeros(1, np.int64)


class Landmarks(Index):
    """The aggregates from and up to the landmarks of one width class."""

    def __init__(self, operation: Operation, bits: int, ticks: Ring | None = None) -> None:
        self._operation, self._bits = operation, bits
        self._ticks = ticks
        self._own, self._longer, self._rest = (operation.room(1) for _ in range(3))
        self._processed = 0  # the position after the last one processed
        self._begun = 0  # where the newest block begins
        self._settled = 0  # up to which position ``rest`` is known
        self._grow, self._settle, self._fold = operation.bind(grow), operation.bind(settle), operation.bind(fold)

    @property
    def nbytes(self) -> int:
        return sum(int(states.nbytes) for states in (self._own, self._longer, self._rest))

    def rebuild(self, column: Column) -> None:
        self._own, self._longer, self._rest = (self._operation.room(column.values.size, column.values.dtype) for _ in range(3))
        self._processed = self._begun = self._settled = column.first
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        if start < self._processed:  # positions were replaced: the newest block may have changed
            self._begun = int(block_start(self._blocks(), column.first, start))
        self._settled = min(self._settled, self._begun)  # a late arrival may extend a block that was complete
        states, span = (self._own, self._longer), (column.first, start, column.end)
        self._begun = int(self._grow(column.values, states, self._blocks(), (*span, self._begun), self._operation.code))
        self._processed = column.end
        self._settle_up_to(column, self._begun)

    def undo(self, column: Column, start: int, end: int) -> Callable[[], None]:
        if not isinstance(self._operation, UserOperation):
            return super().undo(column, start, end)
        # Known rests change if positions are replaced, or if a block that was complete is extended. Otherwise only slots that
        # are used again change.
        size = column.values.size
        changed = slots(start, end, size) if start >= self._processed and self._settled <= self._begun else np.arange(size)
        return undo_writes(self, [(states, changed) for states in (self._own, self._longer, self._rest)])

    def lookup(self, column: Column, lefts: Ints, rights: Ints, now: int) -> Any:
        """The aggregates over the positions from ``lefts[i]`` to ``rights[i] - 1``: windows of this width class."""
        ring = self._blocks()[0]
        if (
            ring.size > 1
            and self._settled < column.end
            and int(ring[(column.end - 1) & (ring.size - 1)]) >> self._bits < now >> self._bits
        ):
            self._settle_up_to(column, column.end)  # no new arrivals, but the newest block has ended because time has advanced
        answers = self._operation.answers(lefts.size, column.values.dtype)
        states = self._own, self._longer, self._rest
        self._fold(states, self._blocks(), (lefts, rights, column.end, self._settled), self._operation.code, answers)
        return answers

    def _settle_up_to(self, column: Column, end: int) -> None:
        start = max(self._settled, column.first)
        if end > start:
            self._settle(column.values, self._rest, self._blocks(), (start, end), self._operation.code)
            self._settled = end

    def _blocks(self) -> tuple[Ints, int]:
        return _NO_TICKS if self._ticks is None else self._ticks.values, self._bits


@helper
def block_of(blocks: Any, position: Any) -> Any:
    """The number of the block that a position lies in."""
    ticks, bits = blocks
    return (position if ticks.size == 1 else ticks[position & (ticks.size - 1)]) >> bits


@kernel
def block_start(blocks: tuple[Ints, int], first: int, end: int) -> int:
    """The first position of the block that contains ``end - 1``."""
    start = end
    while start > first and block_of(blocks, start - 1) == block_of(blocks, end - 1):
        start -= 1
    return start


@kernel
def grow(values: Numbers, states: Any, blocks: tuple[Ints, int], span: tuple[int, int, int, int], code: int) -> int:
    """Compute ``own`` and ``longer`` for ``start..end``; tell where the newest block begins."""
    own, longer = states
    first, start, end, begun = span
    mask = values.size - 1
    for position in range(start, end):
        slot, before = position & mask, (position - 1) & mask
        state = lift(code, values[slot])
        follows = 2  # this block's number minus that of the previous position; 2: not adjacent
        if position > first:
            follows = block_of(blocks, position) - block_of(blocks, position - 1)
        if follows == 0:
            store(own, slot, combine(code, load(own, before), state))
            store(longer, slot, combine(code, load(longer, before), state))
        else:
            begun = position
            store(own, slot, state)
            store(longer, slot, combine(code, load(own, before), state) if follows == 1 else state)
    return begun


@kernel
def settle(values: Numbers, rest: Any, blocks: tuple[Ints, int], span: tuple[int, int], code: int) -> None:
    """Compute ``rest`` for blocks that are complete, from the end back."""
    start, end = span
    state = nothing(code)
    for i in range(end - start):
        position = end - 1 - i
        slot = position & (values.size - 1)
        if i > 0 and block_of(blocks, position) != block_of(blocks, position + 1):
            state = nothing(code)
        state = combine(code, lift(code, values[slot]), state)
        store(rest, slot, state)


@kernel
def fold(states: Any, blocks: tuple[Ints, int], windows: tuple[Ints, Ints, int, int], code: int, out: Any) -> None:
    """Put each window together from at most two states."""
    own, longer, rest = states
    lefts, rights, end, settled = windows
    mask = len(own) - 1
    for i in range(lefts.size):
        left, right = lefts[i], rights[i] - 1
        if left > right:
            continue
        crossed = block_of(blocks, right) - block_of(blocks, left)
        if crossed == 0:
            ends = right < settled and (right + 1 == end or block_of(blocks, right + 1) != block_of(blocks, right))
            state = load(rest, left & mask) if ends else load(own, right & mask)
        elif crossed == 1:
            state = combine(code, load(rest, left & mask), load(own, right & mask))
        else:
            state = combine(code, load(rest, left & mask), load(longer, right & mask))
        out[i] = lower(code, state)
