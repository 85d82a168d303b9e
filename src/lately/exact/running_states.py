"""R-INT for aggregates that users define with an inverse (SHARE, section 3.2).

Running states restart with every turn of the column's ring, so that rounding does not pile up over the life of a stream. A
window lies in at most two such runs. Where the inverse yields something infinite or undefined, such as a product of which
a zero or an overflow is to be taken out again, the window is computed from its values instead.
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
from lately.exact.rollback import saved, slots


class RunningStates(Index):
    """The running states of one column: one a position."""

    def __init__(self, operation: UserOperation) -> None:
        self._operation = operation
        self._states: Any = operation.room(1)
        self._base = 0  # where it was laid
        self._grow, self._fold = operation.bind(grow), operation.bind(fold)

    @property
    def nbytes(self) -> int:
        return int(self._states.nbytes)

    def lay(self, column: Column) -> None:
        self._states = self._operation.room(column.values.size)
        self._base = column.first
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        try:
            self._grow(column.values, self._states, (self._base, start, column.end))
        except UserFunctionError:  # perhaps on values that are in no window any more
            if self._base == column.first:
                raise
            self.lay(column)

    def saved(self, column: Column, start: int, end: int) -> Callable[[], None]:
        return saved(self, [(self._states, slots(start, end, column.values.size))])

    def lookup(self, column: Column, lefts: Ints, rights: Ints) -> Any:
        """The aggregates over ``lefts[i]..rights[i]`` (which is not in it)."""
        answers = self._operation.answers(lefts.size)
        self._fold(column.values, self._states, (lefts, rights), self._base, answers)
        return answers


def grow(values: Floats, states: Any, span: tuple[int, int, int]) -> None:
    """Carry the running states on over ``start..end``."""
    base, start, end = span
    mask = values.size - 1
    for position in range(start, end):
        state = lift(-1, values[position & mask])
        if position != base and position & mask != 0:
            state = combine(-1, load(states, (position - 1) & mask), state)
        store(states, position & mask, state)


def fold(values: Floats, states: Any, windows: tuple[Ints, Ints], base: int, out: Any) -> None:
    """Take each window out of the runs it lies in."""
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
