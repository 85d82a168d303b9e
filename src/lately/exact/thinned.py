"""Only those arrivals of each substream with which its count, or weight, reached another multiple of a power of two.

That is all an approximate filter needs: a fixed number of ticks for each substream, however many arrivals it has.
"""

from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.exact.column import Floats
from lately.exact.rows_of import FINEST, RowsOf

_MANY = 2.0**51  # multiples that are told apart


class Thinned:
    """The newest arrivals that reached a multiple of 2**grid, ``most`` at the most."""

    def __init__(self, grid: int, most: int) -> None:
        self.rows = RowsOf(weighted=False, most=most)
        self._scale = 2.0**-grid
        self.beyond: Floats = np.zeros((64, 2))  # how far each substream is beyond its last multiple, in two parts

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return self.rows.nbytes + self.beyond.nbytes

    def push(self, ids: Ints, ticks: Ints, weights: Floats | None, oldest: int) -> None:
        """Take arrivals in time order; those before ``oldest`` are no longer wanted."""
        self.make_room(int(ids.max()))
        reached = np.empty(ids.size, np.int64)
        _reach(self.beyond, (ids, np.ones(ids.size) if weights is None else weights), self._scale, self.rows.most, reached)
        which = np.repeat(np.arange(ids.size), reached)
        self.rows.push(ids[which], ticks[which], None, oldest)

    def forget(self, ids: Ints) -> None:
        """Drop all of these substreams."""
        self.rows.forget(ids)
        self.beyond[ids[ids < len(self.beyond)]] = 0.0

    def renumber(self, alive: Ints) -> None:
        """The substream that was number ``alive[i]`` is number i from now on; others are dropped."""
        self.make_room(int(alive.max(initial=0)))
        self.rows.renumber(alive)
        self.beyond = np.concatenate([self.beyond[alive], np.zeros((max(64 - alive.size, 0), 2))])

    def beyond_of(self, ids: Ints) -> Floats:
        """How far these are beyond their last multiple, in two parts."""
        self.make_room(int(ids.max(initial=0)))
        return self.beyond[ids]

    def put_back(self, owners: Ints, ticks: Ints, ids: Ints, beyond: Floats) -> None:
        """Take what was stored, into one that is empty."""
        self.rows.push(owners, ticks, None, int(ticks.min(initial=0)))
        self.make_room(int(ids.max(initial=0)))
        self.beyond[ids] = beyond

    def make_room(self, largest: int) -> None:
        """Room for a substream of this number."""
        size = len(self.beyond)
        if largest >= size:
            self.beyond = np.concatenate([self.beyond, np.zeros((max(largest + 1 - size, size), 2))])


@kernel
def _reach(beyond: Floats, rows: Any, scale: float, most: int, out: Ints) -> None:
    """How many multiples every arrival reaches, as far as they are kept."""
    ids, weights = rows
    for i in range(ids.size):
        high, low = beyond[ids[i], 0], beyond[ids[i], 1]
        total = high + weights[i]
        part = total - high
        rest = low + ((high - (total - part)) + (weights[i] - part))
        after = total + rest
        left = rest - (after - total)
        count = max(_multiples(after, left, scale), 1.0 if scale >= FINEST else 0.0)
        out[i] = np.int64(min(count, np.float64(most)))
        here = after - count / scale if count < _MANY and scale < FINEST else 0.0
        beyond[ids[i], 0] = here + left
        beyond[ids[i], 1] = left - (beyond[ids[i], 0] - here)


@helper
def _multiples(high: Any, low: Any, scale: Any) -> Any:
    """How many multiples a weight, in two parts, has reached."""
    count = np.floor(min(high * scale, _MANY))
    return max(count - 1.0 if count == high * scale and low < 0 else count, 0.0)
