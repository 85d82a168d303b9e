"""The newest values of one column, and the indexes over them that queries share.

Whatever answers lookups is an ``Index``: it is computed from the column, extended as the column grows, and can be rebuilt
from it at any time. So only the values have to be stored, and one index can replace another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.ring import Ring
from lately.exact.wide import Floats, Numbers, is_wide, narrowed

__all__ = ["Column", "Floats", "Index", "NonFiniteCounts", "Numbers"]

Kind = TypeVar("Kind", bound="Index")

#: Values that sums leave out and that are counted instead.
NAN, PLUS_INFINITY, MINUS_INFINITY = range(3)


class Index(ABC):
    """A structure over the values of a column that answers lookups."""

    @abstractmethod
    def rebuild(self, column: "Column") -> None:
        """Compute everything from the values of the column."""

    @abstractmethod
    def extend(self, column: "Column", start: int) -> None:
        """Process the positions from ``start`` to the column's end, which are new or were replaced."""

    def undo(self, column: "Column", start: int, end: int) -> Callable[[], None]:
        """A function that restores the present state after the column's positions ``start..end`` were written.

        It is called once the column itself is restored. The default rebuilds the index; one that calls a user's function must
        restore copies instead, because the function may fail again.
        """
        return lambda: self.rebuild(column)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes it takes in memory."""


class Column(Ring):
    """The newest values of a column as floats, or pairs of them (``wide.py``); NaN is a missing value."""

    def __init__(self, start: int = 0, lost: int | None = None) -> None:
        super().__init__(np.float64, start, lost)
        self.integer = True  # whether every value so far came as an integer
        self.indexes: dict[Hashable, Index] = {}
        self._non_finite: dict[int, NonFiniteCounts] = {}

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(index.nbytes for index in self.all_indexes())

    def all_indexes(self) -> tuple[Index, ...]:
        """All indexes over the column."""
        return *self.indexes.values(), *self._non_finite.values()

    def index(self, name: Hashable, make: Callable[[], Kind]) -> Kind:
        """The index of this name; it is built if it does not exist."""
        if name not in self.indexes:
            index = make()
            index.rebuild(self)
            self.indexes[name] = index
        return cast(Kind, self.indexes[name])

    def append(self, values: Numbers, floor: int) -> bool:
        start = self.end
        widened = is_wide(values) and not is_wide(self.values)
        if widened:
            self.values = self.values.astype(np.complex128)
        rebuilt = super().append(values, floor) or widened
        start = max(start, self.first)
        if rebuilt:
            self.values = narrowed(self.values)  # if no value needs a pair any more
        self._count_non_finite(self.slice(start, self.end) if rebuilt else values, start, rebuilt)
        for index in self.indexes.values():
            if rebuilt:
                index.rebuild(self)
            else:
                index.extend(self, start)
        return rebuilt

    def count(self, kind: int, lefts: Ints, rights: Ints) -> Ints | int:
        """The number of values at ``lefts[i]..rights[i]`` that are non-finite in this way; 0 if the column has none."""
        counts = self._non_finite.get(kind)
        return 0 if counts is None else counts.lookup(lefts, rights)

    def _count_non_finite(self, new: Numbers, start: int, rebuilt: bool) -> None:
        for kind, counts in list(self._non_finite.items()):
            if not rebuilt:
                counts.extend(self, start)
                continue
            counts.rebuild(self)
            if not counts.any(self):  # the last such value has left the column
                del self._non_finite[kind]
        for kind, count in enumerate(_non_finite(new)):
            if count and kind not in self._non_finite:
                self._non_finite[kind] = NonFiniteCounts(kind)
                self._non_finite[kind].rebuild(self)


class NonFiniteCounts(Index):
    """Running counts of one kind of non-finite value: NaN, plus infinity or minus infinity."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._counts = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes

    def rebuild(self, column: Column) -> None:
        self._counts = np.zeros(column.values.size, np.int64)
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        _count_up(column.values, start, column.end, self._kind, self._counts)

    def lookup(self, lefts: Ints, rights: Ints) -> Ints:
        """The number of such values at ``lefts[i]..rights[i]``."""
        mask = self._counts.size - 1
        counts: Ints = self._counts[rights & mask] - self._counts[lefts & mask]
        return counts

    def any(self, column: Column) -> bool:
        """Whether the column has such a value."""
        return bool(self.lookup(np.array([column.first]), np.array([column.end]))[0])


@kernel
def _non_finite(values: Numbers) -> tuple[int, int, int]:
    """The numbers of NaN, plus infinity and minus infinity among these values."""
    odd = 0
    for i in range(values.size):
        odd += values[i].real - values[i].real != 0.0  # without a branch: most columns have none, and need only this loop
    nans, plus, minus = 0, 0, 0
    if odd:
        for i in range(values.size):
            nans += np.isnan(values[i].real)
            plus += values[i].real == np.inf
            minus += values[i].real == -np.inf
    return nans, plus, minus


@kernel
def _count_up(values: Numbers, start: int, end: int, kind: int, counts: Ints) -> None:
    mask = values.size - 1
    for position in range(start, end):
        value = values[position & mask].real
        matches = np.isnan(value) if kind == NAN else value == (np.inf if kind == PLUS_INFINITY else -np.inf)
        counts[(position + 1) & mask] = counts[position & mask] + matches
