"""Arrivals in time order: sorting a batch, leaving out what is late, and holding back what may still be overtaken.

Counters, sketches, exact windows and the sites of monitors all use these, so that the same batch is late or in order in each.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.core.joined import JoinedKeys
from lately.core.keys import Hashes, Keys
from lately.core.times import check_tick
from lately.counters.base import Counts, Stamps


class ReorderBuffer(NamedTuple):
    """Arrivals held back because earlier ones may still come, in time order: one row each, in columns of equal length."""

    ticks: Ints
    hashes: Hashes
    counts: Counts
    keys: Keys | None = None  # only where the sketch gives keys back

    @classmethod
    def empty(cls) -> "ReorderBuffer":
        return cls(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes that its columns take in memory."""
        return sum(column.nbytes for column in self if column is not None)

    @classmethod
    def concat(cls, parts: Sequence["ReorderBuffer"]) -> "ReorderBuffer":
        """Several buffers merged into one, in time order; arrivals of the same tick stay in the order of ``parts``."""
        ticks = np.concatenate([part.ticks for part in parts])
        hashes = np.concatenate([part.hashes for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        order = np.argsort(ticks, kind="stable")
        keys = [part.keys for part in parts if part.keys is not None]
        return cls(ticks[order], hashes[order], counts[order], JoinedKeys(keys).take(order) if keys else None)

    def split(self, tick: int) -> tuple["ReorderBuffer", "ReorderBuffer"]:
        """The arrivals up to this tick, and those after it."""
        at = int(np.searchsorted(self.ticks, tick, "right"))
        return self.slice(0, at), self.slice(at, self.ticks.size)

    def slice(self, start: int, stop: int) -> "ReorderBuffer":
        """The rows from ``start`` to before ``stop``, copied so that the rest can be freed."""
        part = slice(start, stop)
        keys = self.keys.part(start, stop) if self.keys is not None and stop > start else None
        return ReorderBuffer(self.ticks[part].copy(), self.hashes[part].copy(), self.counts[part].copy(), keys)


def time_order(ticks: Ints, floor: int | None) -> Ints | None:
    """The rows of a batch in time order (a stable sort), without the late ones: those older than the tick ``floor``.

    None if that is the whole batch as it is, so that a batch in order costs one comparison a row and no copy. ``floor`` is
    None where nothing can be late yet. Raises ``InputError`` if a tick is too far from the epoch.
    """
    order = None if is_sorted(ticks) else np.argsort(ticks, kind="stable")
    first, last = (int(ticks[end if order is None else order[end]]) for end in (0, -1))
    check_tick(first)
    check_tick(last)
    if floor is None or first >= floor:
        return order
    order = np.arange(ticks.size) if order is None else order
    return order[ticks[order] >= floor]


@kernel
def is_sorted(values: Ints) -> bool:
    """Whether no value is smaller than the one before it."""
    for start in range(0, values.size - 1, 1024):
        falls = 0
        for i in range(start, min(start + 1024, values.size - 1)):
            falls += values[i + 1] < values[i]  # no branch, so that it runs on whole vectors
        if falls:
            return False
    return True


@kernel
def put_stamps(ticks: Ints, origin: Any, out: Stamps) -> None:
    """Write ticks as 32-bit stamps, counted from an origin."""
    for i in range(ticks.size):
        out[i] = np.uint32(ticks[i] - origin)
