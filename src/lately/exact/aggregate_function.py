"""What every aggregate function has in one place: its definition, its index over a column, its states and their bytes.

    values ──> index ──> evaluate ──> the answers of windows         (one site, array at a time)
    values ──> state ──> combine … ──> answer                        (several sites, exact)

A new aggregate is a subclass of ``AggregateFunction`` and a line in ``built_in.py``; nothing else asks what kind it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.exact.algebra import Algebra
from lately.exact.base_intervals import BaseIntervals
from lately.exact.column import Column, Index, Numbers
from lately.exact.landmarks import Landmarks
from lately.exact.operations import Operation
from lately.exact.ring import Ring
from lately.exact.running_states import RunningStates

#: The algorithms that serve queries for numbers; "positions" answers counts, which need no index.
R_INT, B_INT, L_INT, B_INT_QNT, POSITIONS = "R-INT", "B-INT", "L-INT", "B-INT-QNT", "positions"


class IndexPlan(NamedTuple):
    """Which index answers a query: the algorithm, and for L-INT the width class and the ring of ticks."""

    algorithm: str
    width_class: int = 0  # windows of 2**width_class up to twice as many positions or ticks
    ticks: Ring | None = None  # None for windows of arrivals


class WindowPositions(NamedTuple):
    """Some windows over a column, as positions."""

    column: Column
    lefts: Ints
    rights: Ints  # the position after the last one
    counts: Ints  # how many values are not missing
    now: int


class WindowValues(NamedTuple):
    """The values of one window, of which at least one is not missing."""

    column: Column
    ticks: Ring
    left: int
    right: int
    values: Numbers
    present: Ints  # the places of the values that are not missing


class AggregateFunction(ABC):
    """One aggregate function with its parameter, apart from the column that it reads."""

    name: str
    parameter: float | None = None  # the share of a quantile, the ddof of a variance
    algebra: Algebra
    algorithms: tuple[str, ...]  # those that can serve it, the preferred one first

    user_defined: ClassVar[bool] = False
    #: Whether its answers are integers where the values are.
    keeps_integers: ClassVar[bool] = False
    #: Whether it reads values; the positions of a window are enough otherwise.
    needs_values: ClassVar[bool] = True
    #: Whether its states consist of values that arrived, which may be integers beyond 2**53.
    state_holds_values: ClassVar[bool] = False

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for functions that are the same."""
        return self.name, self.parameter

    def arguments(self) -> list[str]:
        """What follows the column where the aggregate is written."""
        return []

    def answer(self, state: Any, *, integer: bool) -> Any:
        """The answer of a state; with ``integer``, of values that all came as integers, an integer where it is one."""
        value = self.algebra.lower(state)
        if integer and self.keeps_integers and isinstance(value, float) and value.is_integer():
            return int(value)
        return value

    # -- the index over a column ---------------------------------------------------------------------------------------

    @abstractmethod
    def index_name(self, plan: IndexPlan) -> Hashable:
        """Equal for queries over one column that share an index; None if no index is needed."""

    @abstractmethod
    def make_index(self, plan: IndexPlan) -> Index:
        """A new index, before any value."""

    @abstractmethod
    def evaluate(self, index: Index | None, windows: WindowPositions) -> Any:
        """The answers of windows, as an array: floats, pairs, or objects of a user's function."""

    def exact_integers(self, index: Index | None, windows: WindowPositions, values: Any) -> dict[int, int]:
        """Of a column of integers, those answers that no float is equal to, by their place; ``values`` are as floats."""
        return {}

    @abstractmethod
    def index_bytes(self, number: int, size: int, digits: int) -> int:
        """About the bytes that an index takes for each value.

        ``number`` is the bytes of a value, ``size`` the number of values, ``digits`` the binary digits that a sum has.
        """

    # -- partial states ------------------------------------------------------------------------------------------------

    @abstractmethod
    def state(self, index: Index | None, window: WindowValues) -> Any:
        """The state of a window."""

    @abstractmethod
    def write_state(self, out: Writer, state: Any, wide: bool) -> None:
        """Write a state; ``wide`` if it holds an integer that no float is equal to."""

    @abstractmethod
    def read_state(self, source: Reader, count: int, wide: bool) -> Any:
        """Read what ``write_state`` wrote; ``count`` values are in it."""


def fold_index(operation: Operation, plan: IndexPlan) -> BaseIntervals | Landmarks:
    """B-INT or L-INT for an operation."""
    if plan.algorithm == B_INT:
        return BaseIntervals(operation)
    return Landmarks(operation, plan.width_class, plan.ticks)


def fold(index: Index | None, windows: WindowPositions) -> Any:
    """The answers of an index that combines states."""
    column, lefts, rights, _, now = windows
    if isinstance(index, Landmarks):
        return index.lookup(column, lefts, rights, now)
    assert isinstance(index, BaseIntervals | RunningStates)
    return index.lookup(column, lefts, rights)
