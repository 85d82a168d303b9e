"""Rings: the newest entries of a stream, by the position at which they arrived.

Positions count arrivals from 0 on and never restart; position p lies in slot ``p & (size - 1)``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import kernel

_SMALLEST = 64  # slots of an empty ring
_SPARE = 8  # a ring that is this many times too large shrinks


class Ring:
    """The entries at the positions ``first..end``.

    ``lost`` is the newest tick of an arrival before ``first``, or None if there was no such arrival.
    """

    def __init__(self, kind: type[np.generic], start: int = 0, lost: int | None = None) -> None:
        self.values: NDArray[Any] = _blank(_SMALLEST, np.dtype(kind))
        self.first = self.end = start
        self.lost = lost

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return self.values.nbytes

    def slice(self, start: int, end: int) -> NDArray[Any]:
        """A copy of the entries at these positions."""
        at = start & (self.values.size - 1)
        head = self.values[at : min(at + end - start, self.values.size)]
        return np.concatenate([head, self.values[: end - start - head.size]])

    def append(self, values: NDArray[Any], floor: int) -> bool:
        """Append entries; positions before ``floor`` are dropped. Return whether entries moved to other slots."""
        start, end = self.end, self.end + values.size
        self.first = min(max(self.first, floor), end)
        skipped = max(self.first - start, 0)
        start += skipped
        room = end - self.first + 1  # running sums have one entry more than there are values
        size = self.values.size
        moved = skipped > 0 or room > size or (size > _SMALLEST and room * _SPARE < size)
        if moved:
            entries = self.slice(self.first, start)
            self.values = _blank(max(_SMALLEST, 1 << (room - 1).bit_length()), self.values.dtype)
            self._put(self.first, entries)
        self._put(start, values[skipped:])
        self.end = end
        return moved

    def _put(self, start: int, values: NDArray[Any]) -> None:
        at = start & (self.values.size - 1)
        head = min(values.size, self.values.size - at)
        self.values[at : at + head] = values[:head]
        self.values[: values.size - head] = values[head:]


def _blank(size: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Empty slots: NaN, so that a slot without an entry does not look like a value."""
    return np.full(size, np.nan, kind) if kind.kind in "fc" else np.zeros(size, kind)


@kernel
def first_at(ring: Ints, first: int, end: int, tick: int) -> int:
    """The first of the positions ``first..end`` whose tick is not before this one; ticks never decrease."""
    mask = ring.size - 1
    base, width = first, end - first
    while width > 0:
        half = (width + 1) >> 1
        base += half if ring[(base + half - 1) & mask] < tick else 0
        width -= half
    return base
