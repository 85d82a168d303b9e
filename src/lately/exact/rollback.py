"""What an update is about to overwrite, so that it can be taken back: a user's function may fail in the middle of it.

Only what is written in place is copied, which is about as much as the batch has rows; what an update replaces by something new
is still there. Taking back calls none of the user's functions, which might fail again.
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
                self._indexes += [index.saved(ring, start, end) for index in ring.all_indexes()]
            self._rings.append(saved(ring, [(ring.values, slots(start, end, ring.values.size))]))

    def restore(self) -> None:
        """Bring all of it back."""
        for restore in (*self._rings, *self._indexes):  # indexes may look at any ring
            restore()


def slots(start: int, end: int, size: int) -> Ints:
    """The slots of a ring in which these positions lie."""
    positions: Ints = np.arange(max(start, end - size), end) & (size - 1)
    return positions


def saved(thing: Any, written: Iterable[tuple[Any, Ints]]) -> Callable[[], None]:
    """Bring an object's attributes back, and the entries of arrays that are about to be written in place."""
    attributes = {name: value.copy() if isinstance(value, dict) else value for name, value in vars(thing).items()}
    entries = [(array, where, array[where]) for array, where in written]

    def restore() -> None:
        vars(thing).update(attributes)
        for array, where, before in entries:
            array[where] = before

    return restore
