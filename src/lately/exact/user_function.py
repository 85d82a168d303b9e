"""Aggregate functions that users define with ``lt.agg.custom``."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import LatelyError
from lately.exact.aggregate_function import (
    B_INT,
    L_INT,
    R_INT,
    AggregateFunction,
    IndexPlan,
    WindowPositions,
    WindowValues,
    fold,
    fold_index,
)
from lately.exact.algebra import Algebra
from lately.exact.column import Index
from lately.exact.operations import UserOperation, user_operation
from lately.exact.running_states import RunningStates


class UserFunction(AggregateFunction):
    """An aggregate by its algebra: B-INT or L-INT, and R-INT if it has an inverse."""

    user_defined = True

    def __init__(self, name: str, algebra: Algebra) -> None:
        self.name, self.algebra = name, algebra
        self.algorithms = (R_INT, B_INT, L_INT) if algebra.inverse is not None else (B_INT, L_INT)

    @property
    def key(self) -> tuple[Hashable, ...]:
        return self.name, id(self.algebra)  # a name may be defined again

    @property
    def operation(self) -> UserOperation:
        """Its loops, compiled once in a process."""
        return user_operation(self.name, self.algebra)

    def index_name(self, plan: IndexPlan) -> Hashable:
        if plan.algorithm == L_INT:
            return (L_INT, *self.key, plan.width_class, plan.ticks is not None)
        return (plan.algorithm, *self.key)

    def make_index(self, plan: IndexPlan) -> Index:
        return RunningStates(self.operation) if plan.algorithm == R_INT else fold_index(self.operation, plan)

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Any:
        values = fold(index, windows)
        empty = windows.counts == 0
        if empty.any():  # whatever a user's ``lower`` returns for the identity, an empty window has no answer
            values[empty] = np.nan if values.dtype.kind == "f" else None
        return values

    def index_bytes(self, number: int, size: int, digits: int) -> int:
        return 4 * number  # states may be wider than that; nothing here knows how wide

    def state(self, index: Index | None, window: WindowValues) -> Any:
        return self.operation.state(window.values[window.present])

    def write_state(self, out: Writer, state: Any, wide: bool) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        if not all(isinstance(part, int | float) for part in parts):
            raise LatelyError(
                f"the aggregate {self.name!r} has the state {state!r}, which is not a number",
                remedy="only states of numbers can be stored: give lift and combine such states",
            )
        out.u8(isinstance(state, tuple))
        out.f64s(np.array(parts, np.float64))

    def read_state(self, source: Reader, count: int, wide: bool) -> Any:
        several, parts = source.choice(0, 1), source.f64s().tolist()
        source.check(several == 1 or len(parts) == 1, "a state of too many parts")
        identity = self.algebra.identity
        if isinstance(identity, int | float) or (isinstance(identity, tuple) and identity):  # others may be of any size
            alike = len(parts) == len(identity) if isinstance(identity, tuple) else several == 0
            source.check(alike and several == isinstance(identity, tuple), f"a state that is not one of {self.name!r}")
        return tuple(parts) if several else parts[0]
