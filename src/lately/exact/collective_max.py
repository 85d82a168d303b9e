"""Which substreams have their maximum (minimum) in a range, over any suffix of time: CI-MAX and CI-MIN (SHARE §4.3).

Every suffix maximum of a substream (suffix_max.py) is the answer for the windows that begin in one interval of time, and is in
a tree of such intervals (treap.py). A lookup asks the tree which intervals hold the window's start and have a value in the
range: it takes as long as its answer is long, however many substreams there are. The answers are exact.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lately.exact import suffix_max
from lately.exact.suffix_max import OWNER, Elements
from lately.exact.treap import END, EVER, MIDDLE, NEVER, VALUE, insert, place, stab

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Rows taken at a time. What comes and goes within a block never enters the tree.
BLOCK = 1 << 16

_SMALLEST = 64  # rows of elements; more are given back
_SPARE = 8  # if there are this many times as many as there are elements

_MAGNITUDE = np.int64(2**63 - 1)


class CollectiveMax:
    """The maxima of many substreams over any window that ends now; with ``sign=-1`` the minima.

    Substreams are small integers. Ticks never fall, also from one update to the next. Values may be infinite but not NaN.

    >>> both = CollectiveMax()
    >>> both.update([0, 1, 0], [10, 11, 12], [5.0, 3.0, 2.0])
    >>> ids, largest = both.lookup(since=11, low=2.5, high=9.0)
    >>> ids.tolist(), largest.tolist(), both.values([0, 1, 2], since=10).tolist()
    ([1], [3.0], [5.0, 3.0, nan])
    """

    def __init__(self, sign: int = 1) -> None:
        if sign not in (1, -1):
            raise ValueError(f"sign must be 1 (for maxima) or -1 (for minima), not {sign!r}")
        self.sign = sign
        self.floor = NEVER + 1  # nobody asks since an earlier tick
        self.elements = Elements.of(16)
        self.newest = np.zeros(16, np.int32)  # of each substream; 0 for none

    def __len__(self) -> int:
        """How many elements are kept."""
        return int(len(self.elements.chain) - 1 - self.elements.free[1])

    @property
    def nbytes(self) -> int:
        return self.elements.nbytes + self.newest.nbytes

    # -- write ---------------------------------------------------------------------------------------------------------

    def update(self, ids: ArrayLike, ticks: ArrayLike, values: ArrayLike) -> None:
        """Take in arrivals in the order of time: of which substream, when, and what."""
        owners, times = np.asarray(ids, np.int64), np.asarray(ticks, np.int64)
        ranks = self._ranks(np.asarray(values, np.float64))
        if not owners.size:
            return
        self._make_room_for_substream(int(owners.max()))
        for first in range(0, owners.size, BLOCK):
            block = slice(first, first + BLOCK)
            self._take(owners[block], times[block], ranks[block])

    def _take(self, owners: Ints, times: Ints, ranks: Ints) -> None:
        done = 0
        while True:
            done = suffix_max.arrive(self.elements, self.newest, (owners, times, ranks), self.floor, done)
            if done == owners.size:
                break
            self.elements = self.elements.grown(2 * len(self.elements.chain))
        nodes = np.empty(owners.size, np.int32)
        nodes = nodes[: suffix_max.arrived(self.elements, nodes)]
        tree = self.elements.tree
        place(tree, nodes)
        # Neighbours in the tree one after the other: the way to the second is still in the processor's cache.
        insert(tree, nodes[np.lexsort((tree.rows[nodes, VALUE], tree.rows[nodes, MIDDLE]))])

    def _make_room_for_substream(self, largest: int) -> None:
        if largest >= self.newest.size:
            newest = np.zeros(max(largest + 1, 2 * self.newest.size), np.int32)
            newest[: self.newest.size] = self.newest
            self.newest = newest

    def expire(self, tick: int) -> None:
        """Nobody will ever ask again since a tick below this one: what cannot matter any more goes."""
        self.floor = max(self.floor, _tick(tick))
        suffix_max.expire(self.elements, self.newest, self.floor)
        if _SPARE * len(self) < len(self.elements.chain) > _SMALLEST:
            self._rebuild(*self.rows())

    def forget(self, ids: ArrayLike) -> None:
        """These substreams are no more, and their numbers may come to mean others."""
        owners = np.asarray(ids, np.int64)
        suffix_max.forget(self.elements, self.newest, owners[owners < self.newest.size], self.floor)

    def renumber(self, alive: Ints) -> None:
        """The substream that was number ``alive[i]`` is number i from now on; others are no more."""
        owners, ticks, values = self.rows()
        numbers = np.full(max(alive.max(initial=0), owners.max(initial=0)) + 1, -1)
        numbers[alive] = np.arange(alive.size)
        kept = numbers[owners] >= 0
        self.newest = np.zeros(max(16, alive.size), np.int32)
        self._rebuild(numbers[owners[kept]], ticks[kept], values[kept])

    def _rebuild(self, owners: Ints, ticks: Ints, values: Floats) -> None:
        """Start again with these elements, in the order of time."""
        self.elements = Elements.of(16)
        self.newest[:] = 0
        self.update(owners, ticks, values)

    # -- read ----------------------------------------------------------------------------------------------------------

    def lookup(self, since: int, low: float, high: float) -> tuple[Ints, Floats]:
        """The substreams whose maximum since a tick is from low to high, each once and in no order, and these maxima."""
        nodes = self._stab(since, low, high)[0]
        return self.elements.chain[nodes, OWNER].astype(np.int64), self._values(nodes)

    def _stab(self, since: int, low: float, high: float) -> tuple[Ints, int]:
        """The elements that answer, and how many were looked at to find them."""
        if not low <= high:
            return np.empty(0, np.int64), 0
        least, most = np.sort(self._ranks(np.array([low, high])))
        room = 1024
        while True:
            nodes = np.empty(room, np.int64)
            count, visited = stab(self.elements.tree, self._since(since), least, most, nodes)
            if count <= room:
                return nodes[:count], visited
            room = count

    def values(self, ids: ArrayLike, since: int) -> Floats:
        """The maximum of each of these substreams since a tick; NaN where there is none."""
        owners = np.asarray(ids, np.int64)
        known = np.flatnonzero(owners < self.newest.size)
        nodes = np.zeros(owners.size, np.int64)
        found = np.empty(known.size, np.int64)
        suffix_max.answering(self.elements, self.newest, owners[known], self._since(since), found)
        nodes[known] = found
        return np.where(nodes != 0, self._values(nodes), np.nan)

    def rows(self) -> tuple[Ints, Ints, Floats]:
        """What is kept, in the order of time: of which substream, when, and what. An update with it makes an equal."""
        nodes = np.empty(len(self), np.int64)
        suffix_max.in_time_order(self.elements, nodes)
        return self.elements.chain[nodes, OWNER].astype(np.int64), self.elements.tree.rows[nodes, END], self._values(nodes)

    # -- ticks and values ----------------------------------------------------------------------------------------------

    def _since(self, tick: int) -> np.int64:
        """Windows reach back to the earliest tick that may still be asked for, at most."""
        return max(self.floor, _tick(tick))

    def _ranks(self, values: Floats) -> Ints:
        """Integers in the order of values, or of their negatives. Adding 0.0 makes one zero of two."""
        return _flipped((self.sign * values + 0.0).view(np.int64))

    def _values(self, nodes: Any) -> Floats:
        return self.sign * _flipped(self.elements.tree.rows[nodes, VALUE]).view(np.float64) + 0.0


def _flipped(bits: Ints) -> Ints:
    """The bits of floats as integers in their order, and back: of two negatives the one with larger bits is less."""
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def _tick(tick: int) -> np.int64:
    """A tick that compares like this one with all that can come."""
    return np.int64(min(max(int(tick), int(NEVER) + 1), int(EVER)))
