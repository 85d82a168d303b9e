"""Which substreams have their maximum (minimum) in a range, over any suffix of time: CI-MAX and CI-MIN (SHARE §4.3).

Every suffix maximum of a substream (suffix_max.py) is the answer for the windows that begin in one interval of time, and is in
a tree of such intervals (treap.py). A lookup asks the tree which intervals contain the window's start and have a value in the
range: its time follows the length of the answer, not the number of substreams. The answers are exact.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lately.core.codec import Reader, Writer
from lately.exact import suffix_max
from lately.exact.substream_index import Matches
from lately.exact.suffix_max import OWNER, Elements
from lately.exact.treap import END, EVER, MIDDLE, NEVER, VALUE, insert, place, stab

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Rows of a block. Elements that are added and removed within a block never enter the tree.
BLOCK = 1 << 16

_SMALLEST = 64  # rows of elements that are never freed
_SPARE = 8  # memory is freed when there are this many times as many rows as elements

_MAGNITUDE = np.int64(2**63 - 1)


class CollectiveMax:
    """The maxima, or minima, of many substreams over any window that ends now.

    Substreams are small integers. Ticks never decrease, also between updates. Values may be infinite but not NaN.

    Parameters
    ----------
    sign
        1 (default) for maxima, -1 for minima.

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
        self.floor = NEVER + 1  # no window begins before this tick
        self._longest = 0  # the ticks of the longest window, for ``advance``
        self.elements = Elements.of(16)
        self.newest = np.zeros(16, np.int32)  # of each substream; 0 for none

    def __len__(self) -> int:
        """The number of elements."""
        return int(len(self.elements.chain) - 1 - self.elements.free[1])

    @property
    def nbytes(self) -> int:
        return self.elements.nbytes + self.newest.nbytes

    # -- ranges --------------------------------------------------------------------------------------------------------

    def set_longest(self, longest: int, now: int | None) -> None:
        """Serve windows of up to ``longest`` ticks."""
        self._longest = longest

    def add_range(self, low: float, high: float, now: int | None) -> None:
        """Nothing to do: one tree serves all ranges."""

    def remove_range(self, low: float, high: float) -> None:
        """Nothing to do, as in ``add_range``."""

    # -- write ---------------------------------------------------------------------------------------------------------

    def update(self, ids: ArrayLike, ticks: ArrayLike, values: ArrayLike | None) -> None:
        """Add arrivals in time order: substreams, ticks and values."""
        assert values is not None
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
        # In the order of the tree: the path to the next node is still in the processor's cache.
        insert(tree, nodes[np.lexsort((tree.rows[nodes, VALUE], tree.rows[nodes, MIDDLE]))])

    def _make_room_for_substream(self, largest: int) -> None:
        if largest >= self.newest.size:
            newest = np.zeros(max(largest + 1, 2 * self.newest.size), np.int32)
            newest[: self.newest.size] = self.newest
            self.newest = newest

    def advance(self, now: int) -> None:
        """Move time on: what is in none of the windows that ``set_longest`` allows is dropped."""
        self.expire(now - self._longest)

    def expire(self, tick: int) -> None:
        """No window will begin before this tick any more: drop elements that cannot be answers."""
        self.floor = max(self.floor, _tick(tick))
        suffix_max.expire(self.elements, self.newest, self.floor)
        if _SPARE * len(self) < len(self.elements.chain) > _SMALLEST:
            self._rebuild(*self.rows())

    def forget(self, ids: ArrayLike) -> None:
        """Drop these substreams; their numbers may be used again."""
        owners = np.asarray(ids, np.int64)
        suffix_max.forget(self.elements, self.newest, owners[owners < self.newest.size], self.floor)

    def renumber(self, alive: Ints) -> None:
        """Renumber: the substream ``alive[i]`` becomes substream i; others are dropped."""
        owners, ticks, values = self.rows()
        numbers = np.full(max(alive.max(initial=0), owners.max(initial=0)) + 1, -1)
        numbers[alive] = np.arange(alive.size)
        live = numbers[owners] >= 0
        self.newest = np.zeros(max(16, alive.size), np.int32)
        self._rebuild(numbers[owners[live]], ticks[live], values[live])

    def _rebuild(self, owners: Ints, ticks: Ints, values: Floats) -> None:
        """Rebuild from these elements, in time order."""
        self.elements = Elements.of(16)
        self.newest[:] = 0
        self.update(owners, ticks, values)

    # -- read ----------------------------------------------------------------------------------------------------------

    def find(self, since: int, low: float, high: float) -> Matches:
        """The substreams whose maximum since a tick is in ``low..high``; both bounds are the maximum itself."""
        ids, extremes = self.lookup(since, low, high)
        return Matches(ids, extremes, extremes)

    def lost(self, low: float, high: float) -> int | None:
        """None: it stores all that its windows need."""
        return None

    def lookup(self, since: int, low: float, high: float) -> tuple[Ints, Floats]:
        """The substreams whose maximum since a tick is in ``low..high``, each once, and these maxima; in no order."""
        nodes = self._stab(since, low, high)[0]
        return self.elements.chain[nodes, OWNER].astype(np.int64), self._values(nodes)

    def _stab(self, since: int, low: float, high: float) -> tuple[Ints, int]:
        """The elements that answer a lookup, and the number of nodes that it visited."""
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
        """The maximum of each of these substreams since a tick; NaN where there was no arrival."""
        owners = np.asarray(ids, np.int64)
        in_table = np.flatnonzero(owners < self.newest.size)
        nodes = np.zeros(owners.size, np.int64)
        answers = np.empty(in_table.size, np.int64)
        suffix_max.answering(self.elements, self.newest, owners[in_table], self._since(since), answers)
        nodes[in_table] = answers
        return np.where(nodes != 0, self._values(nodes), np.nan)

    def rows(self) -> tuple[Ints, Ints, Floats]:
        """All elements in time order: substreams, ticks and values. An ``update`` with them rebuilds the index."""
        nodes = np.empty(len(self), np.int64)
        suffix_max.in_time_order(self.elements, nodes)
        return self.elements.chain[nodes, OWNER].astype(np.int64), self.elements.tree.rows[nodes, END], self._values(nodes)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer, ids: Ints, now: int) -> None:
        """Write the elements of these substreams, in time order."""
        owners, ticks, values = self.rows()
        places = np.full(int(max(ids.max(initial=0), owners.max(initial=0))) + 1, -1)
        places[ids] = np.arange(ids.size)
        live = np.flatnonzero((ticks >= now - self._longest) & (places[owners] >= 0))
        live = live[np.lexsort((places[owners[live]], ticks[live]))]
        out.integers(places[owners[live]])
        out.integers(now - ticks[live])
        out.f64s(values[live])

    def read(self, source: Reader, ids: Ints, time: int | None) -> None:
        """Read what ``write`` wrote into an index that serves the same windows; ``time`` is None before the first arrival."""
        now = 0 if time is None else time
        places = source.integers(0, max(ids.size - 1, 0))
        ticks = now - source.integers(0, self._longest)
        values = source.f64s()
        source.check(places.size == ticks.size == values.size, "columns of different lengths")
        source.check(bool((np.diff(ticks) >= 0).all()) and not np.isnan(values).any(), "entries are out of order")
        source.check(ids.size > 0 or not places.size, "a maximum of no key")
        if places.size:
            self.update(ids[places], ticks, values)
            self.expire(now - self._longest)

    # -- ticks and values ----------------------------------------------------------------------------------------------

    def _since(self, tick: int) -> np.int64:
        """The first tick of a window, not before the earliest one that a window may begin with."""
        return max(self.floor, _tick(tick))

    def _ranks(self, values: Floats) -> Ints:
        """Integers in the order of the values, or of their negatives. Adding 0.0 turns -0.0 into 0.0."""
        return _flipped((self.sign * values + 0.0).view(np.int64))

    def _values(self, nodes: Any) -> Floats:
        return self.sign * _flipped(self.elements.tree.rows[nodes, VALUE]).view(np.float64) + 0.0


def _flipped(bits: Ints) -> Ints:
    """The bits of floats as integers in the same order, and back: of two negative floats the one with larger bits is less."""
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def _tick(tick: int) -> np.int64:
    """This tick within the range of ticks that can occur."""
    return np.int64(min(max(int(tick), int(NEVER) + 1), int(EVER)))
