"""Undoing an update: a user's function may fail in the middle of it.

Only entries that are written in place are copied, about as many as the batch has rows; arrays that an update replaces are
still there. Restoring calls no user's function, which might fail again.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.exact.column import Column
from lately.exact.ring import Ring


class Rollback:
    """Rings and their indexes, as they are before the positions ``start..end`` are written."""

    def __init__(self, rings: Iterable[Ring], start: int, end: int) -> None:
        self._rings: list[Callable[[], None]] = []
        self._indexes: list[Callable[[], None]] = []
        for ring in rings:
            if isinstance(ring, Column):
                self._indexes += [index.undo(ring, start, end) for index in ring.all_indexes()]
            self._rings.append(undo_writes(ring, [(ring.values, slots(start, end, ring.values.size))]))

    def restore(self) -> None:
        """Restore the rings and the indexes."""
        for restore in (*self._rings, *self._indexes):  # rings first: indexes may read any of them
            restore()


def slots(start: int, end: int, size: int) -> Ints:
    """The slots of a ring in which these positions lie."""
    positions: Ints = np.arange(max(start, end - size), end) & (size - 1)
    return positions


def undo_writes(owner: object, written: Iterable[tuple[Any, Ints]]) -> Callable[[], None]:
    """A function that restores an object's attributes, and the entries of arrays that are about to be written in place."""
    attributes = {name: value.copy() if isinstance(value, dict) else value for name, value in vars(owner).items()}
    entries = [(array, where, array[where]) for array, where in written]

    def restore() -> None:
        vars(owner).update(attributes)
        for array, where, before in entries:
            array[where] = before

    return restore
