"""R-INT for aggregates that users define with an inverse (SHARE, section 3.2).

Running states restart with every turn of the column's ring, so that rounding errors do not accumulate over the stream. A
window lies in at most two such runs. If the inverse gives an infinite or undefined state, such as a product from which a zero
or an overflow is removed, the window is computed from its values instead.
"""

from collections.abc import Callable
from typing import Any

from lately.core.columns import Ints
from lately.exact.column import Column, Floats, Index
from lately.exact.operations import (
    UserFunctionError,
    UserOperation,
    combine,
    inverse,
    lift,
    load,
    lower,
    nothing,
    store,
    usable,
)
from lately.exact.rollback import slots, undo_writes


class RunningStates(Index):
    """The running states of one column, one for each position."""

    def __init__(self, operation: UserOperation) -> None:
        self._operation = operation
        self._states: Any = operation.room(1)
        self._base = 0  # the position of the first run
        self._grow, self._fold = operation.bind(grow), operation.bind(fold)

    @property
    def nbytes(self) -> int:
        return int(self._states.nbytes)

    def rebuild(self, column: Column) -> None:
        self._states = self._operation.room(column.values.size)
        self._base = column.first
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        try:
            self._grow(column.values, self._states, (self._base, start, column.end))
        except UserFunctionError:  # perhaps on values that are in no window any more: try without them
            if self._base == column.first:
                raise
            self.rebuild(column)

    def undo(self, column: Column, start: int, end: int) -> Callable[[], None]:
        return undo_writes(self, [(self._states, slots(start, end, column.values.size))])

    def lookup(self, column: Column, lefts: Ints, rights: Ints) -> Any:
        """The aggregates over the positions from ``lefts[i]`` up to, without, ``rights[i]``."""
        answers = self._operation.answers(lefts.size)
        self._fold(column.values, self._states, (lefts, rights), self._base, answers)
        return answers


def grow(values: Floats, states: Any, span: tuple[int, int, int]) -> None:
    """Extend the running states over the positions ``start..end``."""
    base, start, end = span
    mask = values.size - 1
    for position in range(start, end):
        state = lift(-1, values[position & mask])
        if position != base and position & mask != 0:
            state = combine(-1, load(states, (position - 1) & mask), state)
        store(states, position & mask, state)


def fold(values: Floats, states: Any, windows: tuple[Ints, Ints], base: int, out: Any) -> None:
    """Compute each window from the one or two runs in which it lies."""
    lefts, rights = windows
    mask = values.size - 1
    for i in range(lefts.size):
        left, right = lefts[i], rights[i] - 1
        if left > right:
            continue
        turn = right - (right & mask)  # where the run of the last position begins
        state = load(states, (turn - 1 if left < turn else right) & mask)
        if left != base and left & mask != 0:
            state = inverse(state, load(states, (left - 1) & mask))
        if left < turn:
            state = combine(-1, state, load(states, right & mask))
        if not usable(state):
            state = nothing(-1)
            for position in range(left, right + 1):
                state = combine(-1, state, lift(-1, values[position & mask]))
        out[i] = lower(-1, state)
