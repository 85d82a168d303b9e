"""Putting arrivals in order: is a batch sorted, what must be held back, what stamp does a tick get."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.core.joined import JoinedKeys
from lately.core.keys import Hashes, Keys
from lately.counters.base import Counts, Stamps


class ReorderBuffer(NamedTuple):
    """Arrivals held back because earlier ones may still come, in time order."""

    ticks: Ints
    hashes: Hashes
    counts: Counts
    keys: Keys | None = None  # where the sketch gives keys back

    @classmethod
    def empty(cls) -> "ReorderBuffer":
        return cls(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self if column is not None)

    @classmethod
    def concat(cls, parts: Sequence["ReorderBuffer"]) -> "ReorderBuffer":
        """Several in one, in time order."""
        ticks = np.concatenate([part.ticks for part in parts])
        hashes = np.concatenate([part.hashes for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        order = np.argsort(ticks, kind="stable")
        keys = [part.keys for part in parts if part.keys is not None]
        return cls(ticks[order], hashes[order], counts[order], JoinedKeys(keys).take(order) if keys else None)

    def split(self, tick: int) -> tuple["ReorderBuffer", "ReorderBuffer"]:
        """What came up to this tick, and what came after."""
        at = int(np.searchsorted(self.ticks, tick, "right"))
        return self.slice(0, at), self.slice(at, self.ticks.size)

    def slice(self, start: int, stop: int) -> "ReorderBuffer":
        """Some of them, in copies of their own."""
        part = slice(start, stop)
        keys = self.keys.part(start, stop) if self.keys is not None and stop > start else None
        return ReorderBuffer(self.ticks[part].copy(), self.hashes[part].copy(), self.counts[part].copy(), keys)


@kernel
def is_sorted(values: Ints) -> bool:
    """Whether no value is smaller than the one before."""
    for start in range(0, values.size - 1, 1024):
        falls = 0
        for i in range(start, min(start + 1024, values.size - 1)):
            falls += values[i + 1] < values[i]  # no branch, so that it runs on whole vectors
        if falls:
            return False
    return True


@kernel
def put_stamps(ticks: Ints, origin: Any, out: Stamps) -> None:
    """Ticks as stamps since an origin."""
    for i in range(ticks.size):
        out[i] = np.uint32(ticks[i] - origin)
