"""The newest values of one column, and the indexes over them that queries share.

Everything that answers lookups is an ``Index``: it is computed from the column, carried on as the column grows, and can be
laid anew from it at any time. So nothing but the values themselves has to be stored, and any index can be swapped for
another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.ring import Ring
from lately.exact.wide import Floats, Numbers, is_wide, narrowed

__all__ = ["Column", "Floats", "Index", "Numbers", "Tally"]

Kind = TypeVar("Kind", bound="Index")

#: What is no number: it is counted, and the sums leave it out.
NAN, PLUS_INFINITY, MINUS_INFINITY = range(3)


class Index(ABC):
    """Something computed from a column that answers lookups."""

    @abstractmethod
    def lay(self, column: "Column") -> None:
        """Start anew over what the column holds."""

    @abstractmethod
    def extend(self, column: "Column", start: int) -> None:
        """Take in the positions from ``start`` to the column's end: they are new, or were replaced."""

    def saved(self, column: "Column", start: int, end: int) -> Callable[[], None]:
        """A way back to what it is before the column's positions ``start..end`` are written.

        It is taken once the column is back; nothing else needs to be saved where no user's function is called.
        """
        return lambda: self.lay(column)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes it takes in memory."""


class Column(Ring):
    """The newest values of a column as floats, or pairs of them (``wide.py``); NaN stands for a missing one."""

    def __init__(self, start: int = 0, lost: int | None = None) -> None:
        super().__init__(np.float64, start, lost)
        self.integer = True  # whether every value so far came as an integer
        self.indexes: dict[Hashable, Index] = {}
        self._tallies: dict[int, Tally] = {}

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(index.nbytes for index in self.all_indexes())

    def all_indexes(self) -> tuple[Index, ...]:
        """All that is computed from it."""
        return *self.indexes.values(), *self._tallies.values()

    def index(self, name: Hashable, make: Callable[[], Kind]) -> Kind:
        """The index of this name; made and laid if there is none."""
        if name not in self.indexes:
            index = make()
            index.lay(self)
            self.indexes[name] = index
        return cast(Kind, self.indexes[name])

    def append(self, values: Numbers, floor: int) -> bool:
        start = self.end
        widened = is_wide(values) and not is_wide(self.values)
        if widened:
            self.values = self.values.astype(np.complex128)
        anew = super().append(values, floor) or widened
        start = max(start, self.first)
        if anew:
            self.values = narrowed(self.values)  # once the last integer that needed a pair has left
        self._tally(self.slice(start, self.end) if anew else values, start, anew)
        for index in self.indexes.values():
            if anew:
                index.lay(self)
            else:
                index.extend(self, start)
        return anew

    def count(self, kind: int, lefts: Ints, rights: Ints) -> Ints | int:
        """How many of the values at ``lefts[i]..rights[i]`` are no numbers, of this kind; 0 if none is anywhere."""
        tally = self._tallies.get(kind)
        return 0 if tally is None else tally.lookup(lefts, rights)

    def _tally(self, new: Numbers, start: int, anew: bool) -> None:
        for kind, tally in list(self._tallies.items()):
            if not anew:
                tally.extend(self, start)
                continue
            tally.lay(self)
            if not tally.any(self):  # the last one left the window
                del self._tallies[kind]
        for kind, found in enumerate(_not_numbers(new)):
            if found and kind not in self._tallies:
                self._tallies[kind] = Tally(kind)
                self._tallies[kind].lay(self)


class Tally(Index):
    """How many values were no numbers, of one kind: running counts."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._counts = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes

    def lay(self, column: Column) -> None:
        self._counts = np.zeros(column.values.size, np.int64)
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        _count_up(column.values, start, column.end, self._kind, self._counts)

    def lookup(self, lefts: Ints, rights: Ints) -> Ints:
        """How many at ``lefts[i]..rights[i]``."""
        mask = self._counts.size - 1
        counts: Ints = self._counts[rights & mask] - self._counts[lefts & mask]
        return counts

    def any(self, column: Column) -> bool:
        """Whether the column holds one."""
        return bool(self.lookup(np.array([column.first]), np.array([column.end]))[0])


@kernel
def _not_numbers(values: Numbers) -> tuple[int, int, int]:
    """How many are NaN, plus infinity, minus infinity."""
    odd = 0
    for i in range(values.size):
        odd += values[i].real - values[i].real != 0.0  # no branch: most columns have none, and are over with this loop
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
        found = np.isnan(value) if kind == NAN else value == (np.inf if kind == PLUS_INFINITY else -np.inf)
        counts[(position + 1) & mask] = counts[position & mask] + found
