"""Minima, maxima, first and last values, and quantiles: aggregates whose states are values that arrived."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.exact.aggregate_function import (
    B_INT,
    B_INT_QNT,
    L_INT,
    AggregateFunction,
    IndexPlan,
    WindowPositions,
    WindowValues,
    fold,
    fold_index,
)
from lately.exact.algebra import Algebra, TimedValue, earlier, later, lower_value, rank, unless_none
from lately.exact.column import Index, Numbers
from lately.exact.operations import CODES, Operation
from lately.exact.sorted_runs import SortedRuns
from lately.exact.stored_numbers import read_number, read_pairs, write_number, write_pairs
from lately.exact.wide import number, of_list


class _PickFunction(AggregateFunction):
    """One of the values of a window."""

    algorithms = (B_INT, L_INT)
    keeps_integers = True
    state_holds_values = True

    def __init__(self, name: str, lift: Callable[..., Any], pick: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self.algebra = Algebra(lift, unless_none(pick), lower_value, None)

    def index_name(self, plan: IndexPlan) -> Hashable:
        if plan.algorithm == B_INT:
            return B_INT, self.name
        return plan.algorithm, self.name, plan.width_class, plan.ticks is not None

    def make_index(self, plan: IndexPlan) -> Index:
        return fold_index(Operation(CODES[self.name]), plan)

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Any:
        return fold(index, windows)

    def index_bytes(self, number: int, size: int, digits: int) -> int:
        return 4 * number


class Extreme(_PickFunction):
    """The largest or the smallest value."""

    def __init__(self, name: str, pick: Callable[[Any, Any], Any]) -> None:
        super().__init__(name, lambda value, tick=0: value, pick)
        self._pick = pick

    def state(self, index: Index | None, window: WindowValues) -> float | int:
        values = window.values[window.present]
        return number(values.max() if self._pick is max else values.min())

    def write_state(self, out: Writer, state: float | int | None, wide: bool) -> None:
        out.u8(state is not None)
        write_number(out, state, wide)

    def read_state(self, source: Reader, count: int, wide: bool) -> float | int | None:
        has_value, value = source.choice(0, 1), read_number(source, wide)
        return value if has_value else None


class Edge(_PickFunction):
    """The oldest or the newest value; its states know their ticks."""

    def __init__(self, name: str, place: int) -> None:
        super().__init__(name, lambda value, tick=0: TimedValue(tick, value), earlier if place == 0 else later)
        self._place = place  # among the values of a window: 0 or -1

    def state(self, index: Index | None, window: WindowValues) -> TimedValue:
        at = window.left + int(window.present[self._place])
        return TimedValue(int(window.ticks.slice(at, at + 1)[0]), number(window.column.slice(at, at + 1)[0]))

    def write_state(self, out: Writer, state: TimedValue | None, wide: bool) -> None:
        out.maybe(None if state is None else state.tick)
        write_number(out, None if state is None else state.value, wide)

    def read_state(self, source: Reader, count: int, wide: bool) -> TimedValue | None:
        tick, value = source.maybe(-(2**62), 2**62), read_number(source, wide)
        return None if tick is None else TimedValue(tick, value)


class Quantile(AggregateFunction):
    """The value of a rank; its states are all values, sorted."""

    name = "quantile"
    algorithms = (B_INT_QNT,)
    keeps_integers = True
    state_holds_values = True

    def __init__(self, q: float) -> None:
        self.parameter = q
        self._q = q
        self.algebra = Algebra(
            lambda value, tick=0: of_list([value], "values"),
            lambda a, b: np.sort(np.concatenate([a, b]), kind="stable"),  # a stable sort merges two sorted runs
            lambda state: number(state[rank(q, state.size)]) if state.size else None,
            np.empty(0),
        )

    def arguments(self) -> list[str]:
        return [repr(self._q)]

    def index_name(self, plan: IndexPlan) -> Hashable:
        return ("sorted",)

    def make_index(self, plan: IndexPlan) -> SortedRuns:
        return SortedRuns()

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Numbers:
        assert isinstance(index, SortedRuns)
        ranks = np.array([rank(self._q, count) for count in windows.counts.tolist()], np.int64)
        return index.lookup(windows.column, windows.lefts, windows.rights, ranks)

    def index_bytes(self, number: int, size: int, digits: int) -> int:
        return number * size.bit_length()

    def state(self, index: Index | None, window: WindowValues) -> Numbers:
        return np.sort(window.values[window.present])

    def write_state(self, out: Writer, state: Numbers, wide: bool) -> None:
        if wide:
            write_pairs(out, state)
        else:
            out.f64s(state)

    def read_state(self, source: Reader, count: int, wide: bool) -> Numbers:
        values = read_pairs(source) if wide else source.f64s()
        source.check(values.size == count and not np.isnan(values).any(), "not one value for each row")
        source.check(bool((values[1:] >= values[:-1]).all()), "not sorted")  # pairs compare as their numbers do
        return values
