"""Small numbers for the keys of substreams; those that fade give theirs back.

A hash table with linear probing over the keys' 64-bit hashes, which are their identity here as everywhere.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.core.keys import Hashes, Keys, all_hashes

_SMALLEST = 64
_GONE = -(2**63)
_SPARE = 8  # numbers that are this many times as many as their keys are assigned again
_HAND = 2  # substreams that the sweep looks at for each arrival


class Substreams:
    """The keys seen lately and their numbers."""

    def __init__(self) -> None:
        self._table = np.full(2 * _SMALLEST, -1, np.int32)
        self._hashes: Hashes = np.zeros(_SMALLEST, np.uint64)
        self.last: Ints = np.full(_SMALLEST, _GONE, np.int64)  # the newest tick of each number
        self._free: NDArray[np.int32] = np.arange(_SMALLEST, dtype=np.int32)[::-1].copy()
        self._unused = _SMALLEST  # how many of ``_free`` are free
        self._names: list[Any] = [None] * _SMALLEST
        self._hand = 0

    def __len__(self) -> int:
        return int(self.last.size) - self._unused

    @property
    def size(self) -> int:
        """Numbers are below this."""
        return int(self.last.size)

    @property
    def nbytes(self) -> int:
        """The bytes of the table; keys themselves are Python's."""
        return self._table.nbytes + self._hashes.nbytes + self.last.nbytes + self._free.nbytes + 8 * len(self._names)

    def take(self, keys: Keys, ticks: Ints) -> Ints:
        """The numbers of the keys of arrivals in time order, new ones for new keys."""
        hashes = all_hashes(keys)
        ids = np.empty(hashes.size, np.int64)
        done = 0
        while True:
            new = np.empty(min(hashes.size - done, self._unused), np.int64)
            known = self._hashes, self.last, self._free, self._unused, done
            done, count = _number(self._table, known, hashes, ticks, ids, new)
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
        return np.flatnonzero(self.last != _GONE)

    def by_hash(self, oldest: int) -> Ints:
        """All numbers whose keys were seen since a tick, in the order of the keys' hashes."""
        ids = np.flatnonzero(self.last >= oldest)
        order: Ints = ids[np.argsort(self._hashes[ids])]
        return order

    def faded(self, before: int, arrivals: int) -> Ints:
        """Some numbers whose keys were last seen before a tick; they are free from now on. Few are looked at in a call."""
        room = np.empty(min(self.last.size, _HAND * arrivals + _SMALLEST), np.int64)
        count, self._hand = _sweep(self.last, self._hand, before, room)
        gone = room[:count]
        _remove(self._table, self._hashes, gone)
        self.last[gone] = _GONE
        self._free[self._unused : self._unused + count] = gone
        self._unused += count
        for number in gone.tolist():
            self._names[number] = None
        return gone

    def renumbered(self) -> Ints | None:
        """If most numbers are free, give all keys that are left new ones: number i to the one that had the i-th returned."""
        if _SPARE * len(self) >= self.last.size or self.last.size == _SMALLEST:
            return None
        alive = self.alive()
        size = max(_SMALLEST, 1 << (2 * alive.size - 1).bit_length())
        more = size - alive.size
        self._hashes = np.concatenate([self._hashes[alive], np.zeros(more, np.uint64)])
        self.last = np.concatenate([self.last[alive], np.full(more, _GONE)])
        self._names = [*self.names(alive), *[None] * more]
        self._free = np.zeros(size, np.int32)
        self._free[:more] = np.arange(alive.size, size)[::-1]
        self._unused, self._hand = more, 0
        self._table = np.full(2 * size, -1, np.int32)
        _fill(self._table, self._hashes, self.alive())
        return alive

    def _grow(self) -> None:
        """Twice as many numbers."""
        old, size = self.last.size, 2 * self.last.size
        more = np.arange(old, size, dtype=np.int32)[::-1]
        self._free = np.concatenate([self._free[: self._unused], more, np.empty(size - self._unused - more.size, np.int32)])
        self._unused += more.size
        self._hashes = np.concatenate([self._hashes, np.zeros(size - old, np.uint64)])
        self.last = np.concatenate([self.last, np.full(size - old, _GONE)])
        self._names += [None] * (size - old)
        self._table = np.full(2 * size, -1, np.int32)
        _fill(self._table, self._hashes, self.alive())


@helper
def _start(table: Any, key: Any) -> Any:
    """Where a key is looked for first; the hash is good, its low bits will do."""
    return np.int64(key & np.uint64(table.size - 1))


@kernel
def _number(table: Any, known: Any, keys: Hashes, ticks: Ints, ids: Ints, new: Ints) -> tuple[int, int]:
    """Find or give the number of each key from the row ``done`` on; list the rows of new keys.

    Returns how far it came before no number was free, and how many keys are new.
    """
    hashes, last, free, unused, done = known
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
    """The numbers not seen since a tick among the next few, and how far it came."""
    count = 0
    for _ in range(out.size):
        if _GONE < last[hand] < before:
            out[count] = hand
            count += 1
        hand = hand + 1 if hand + 1 < last.size else 0
    return count, hand


@kernel
def _remove(table: Any, hashes: Hashes, ids: Ints) -> None:
    """Take numbers out; what was pushed behind them moves up, so that no search stops short of it."""
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
