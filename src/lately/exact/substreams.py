"""Small numbers for the keys of substreams; the numbers of expired keys are used again.

A hash table with linear probing over the keys' 64-bit hashes, which are their identity.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.core.keys import Hashes, Keys, all_hashes

_SMALLEST = 64
_FREE = -(2**63)
_SPARE = 8  # keys are renumbered when there are this many times as many numbers as keys
_SWEPT = 2  # numbers that a sweep checks for each arrival


class _Numbers(NamedTuple):
    hashes: Hashes  # of the key of each number
    last: Ints  # the newest tick of each number
    free: NDArray[np.int32]
    unused: int  # the number of free entries


class Substreams:
    """The keys that are in a window and their numbers."""

    def __init__(self) -> None:
        self._table = np.full(2 * _SMALLEST, -1, np.int32)
        self._hashes: Hashes = np.zeros(_SMALLEST, np.uint64)
        self.last: Ints = np.full(_SMALLEST, _FREE, np.int64)  # the newest tick of each number
        self._free: NDArray[np.int32] = np.arange(_SMALLEST, dtype=np.int32)[::-1].copy()
        self._unused = _SMALLEST  # the number of free entries, at the beginning of ``_free``
        self._names: list[Any] = [None] * _SMALLEST
        self._swept_to = 0  # where the next sweep begins

    def __len__(self) -> int:
        return int(self.last.size) - self._unused

    @property
    def size(self) -> int:
        """All numbers are below this one."""
        return int(self.last.size)

    @property
    def nbytes(self) -> int:
        """The bytes of the table, without the keys themselves."""
        return self._table.nbytes + self._hashes.nbytes + self.last.nbytes + self._free.nbytes + 8 * len(self._names)

    def take(self, keys: Keys, ticks: Ints) -> Ints:
        """The numbers of the keys of arrivals in time order; new keys get new numbers."""
        hashes = all_hashes(keys)
        ids = np.empty(hashes.size, np.int64)
        done = 0
        while True:
            new = np.empty(min(hashes.size - done, self._unused), np.int64)
            numbers = _Numbers(self._hashes, self.last, self._free, self._unused)
            done, count = _number(self._table, numbers, (hashes, ticks), done, ids, new)
            self._unused -= count
            rows = new[:count]
            for number, name in zip(ids[rows].tolist(), keys.pick(rows), strict=True):
                self._names[number] = name
            if done == hashes.size:
                return ids
            self._grow()

    def names(self, ids: Ints) -> list[Any]:
        """The keys that have these numbers."""
        names = self._names
        return [names[i] for i in ids.tolist()]

    def alive(self) -> Ints:
        """All numbers in use."""
        return np.flatnonzero(self.last != _FREE)

    def by_hash(self, oldest: int) -> Ints:
        """The numbers of keys that arrived since a tick, in the order of the keys' hashes."""
        ids = np.flatnonzero(self.last >= oldest)
        order: Ints = ids[np.argsort(self._hashes[ids])]
        return order

    def expire(self, before: int, arrivals: int) -> Ints:
        """Free some numbers whose keys last arrived before a tick, and return them. One call checks only a few numbers."""
        room = np.empty(min(self.last.size, _SWEPT * arrivals + _SMALLEST), np.int64)
        count, self._swept_to = _sweep(self.last, self._swept_to, before, room)
        expired = room[:count]
        _remove(self._table, self._hashes, expired)
        self.last[expired] = _FREE
        self._free[self._unused : self._unused + count] = expired
        self._unused += count
        for number in expired.tolist():
            self._names[number] = None
        return expired

    def renumber(self) -> Ints | None:
        """If most numbers are free, renumber the keys: number i goes to the key of the i-th returned number. Else None."""
        if _SPARE * len(self) >= self.last.size or self.last.size == _SMALLEST:
            return None
        alive = self.alive()
        size = max(_SMALLEST, 1 << (2 * alive.size - 1).bit_length())
        more = size - alive.size
        self._hashes = np.concatenate([self._hashes[alive], np.zeros(more, np.uint64)])
        self.last = np.concatenate([self.last[alive], np.full(more, _FREE)])
        self._names = [*self.names(alive), *[None] * more]
        self._free = np.zeros(size, np.int32)
        self._free[:more] = np.arange(alive.size, size)[::-1]
        self._unused, self._swept_to = more, 0
        self._table = np.full(2 * size, -1, np.int32)
        _fill(self._table, self._hashes, self.alive())
        return alive

    def _grow(self) -> None:
        """Double the numbers."""
        old, size = self.last.size, 2 * self.last.size
        more = np.arange(old, size, dtype=np.int32)[::-1]
        self._free = np.concatenate([self._free[: self._unused], more, np.empty(size - self._unused - more.size, np.int32)])
        self._unused += more.size
        self._hashes = np.concatenate([self._hashes, np.zeros(size - old, np.uint64)])
        self.last = np.concatenate([self.last, np.full(size - old, _FREE)])
        self._names += [None] * (size - old)
        self._table = np.full(2 * size, -1, np.int32)
        _fill(self._table, self._hashes, self.alive())


@helper
def _start(table: Any, key: Any) -> Any:
    """The first slot to search for a key: the low bits of its hash, which is well mixed."""
    return np.int64(key & np.uint64(table.size - 1))


@kernel
def _number(table: Any, numbers: Any, arrivals: Any, done: int, ids: Ints, new: Ints) -> tuple[int, int]:
    """Find or assign the number of each key from the row ``done`` on; list the rows of new keys.

    Returns the row at which no number was free, or the end, and the number of new keys.
    """
    hashes, last, free, unused = numbers
    keys, ticks = arrivals
    count = 0
    for i in range(done, keys.size):
        at = _start(table, keys[i])
        while table[at] >= 0 and hashes[table[at]] != keys[i]:
            at = (at + 1) & (table.size - 1)
        if table[at] < 0:
            if count == unused:
                return i, count
            number = free[unused - 1 - count]
            table[at] = number
            hashes[number] = keys[i]
            new[count] = i
            count += 1
        ids[i] = table[at]
        last[ids[i]] = ticks[i]
    return keys.size, count


@kernel
def _fill(table: Any, hashes: Hashes, ids: Ints) -> None:
    for i in range(ids.size):
        at = _start(table, hashes[ids[i]])
        while table[at] >= 0:
            at = (at + 1) & (table.size - 1)
        table[at] = ids[i]


@kernel
def _sweep(last: Ints, hand: int, before: int, out: Ints) -> tuple[int, int]:
    """The numbers without an arrival since a tick among the next few; returns their count and where the next sweep begins."""
    count = 0
    for _ in range(out.size):
        if _FREE < last[hand] < before:
            out[count] = hand
            count += 1
        hand = hand + 1 if hand + 1 < last.size else 0
    return count, hand


@kernel
def _remove(table: Any, hashes: Hashes, ids: Ints) -> None:
    """Remove numbers; entries that were displaced by them move up, so that every search still reaches its key."""
    mask = table.size - 1
    for i in range(ids.size):
        at = _start(table, hashes[ids[i]])
        while table[at] != ids[i]:
            at = (at + 1) & mask
        hole = at
        while True:
            at = (at + 1) & mask
            if table[at] < 0:
                break
            home = _start(table, hashes[table[at]])
            if ((at - home) & mask) >= ((at - hole) & mask):
                table[hole] = table[at]
                hole = at
        table[hole] = -1
