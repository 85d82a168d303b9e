"""A sample of the arrivals of each substream: those with which its count, or weight, reached another multiple of 2**grid.

An approximate filter needs no others: a fixed number of ticks for each substream, whatever the number of its arrivals.
"""

from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.exact.arrival_log import FINEST, ArrivalLog
from lately.exact.column import Floats

_MAX_MULTIPLES = 2.0**51  # up to which multiples of a grid can be distinguished


class SampledLog:
    """The newest arrivals of each substream that reached a multiple of 2**grid, at most ``most`` of each."""

    def __init__(self, grid: int, most: int) -> None:
        self.log = ArrivalLog(weighted=False, most=most)
        self._scale = 2.0**-grid
        self.beyond: Floats = np.zeros((64, 2))  # of each substream: the weight since its last multiple, in two parts

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return self.log.nbytes + self.beyond.nbytes

    def push(self, ids: Ints, ticks: Ints, weights: Floats | None, oldest: int) -> None:
        """Add arrivals in time order; those before the tick ``oldest`` are dropped."""
        self.make_room(int(ids.max()))
        reached = np.empty(ids.size, np.int64)
        own_weights = np.ones(ids.size) if weights is None else weights
        _count_multiples(self.beyond, (ids, own_weights), self._scale, self.log.most, reached)
        which = np.repeat(np.arange(ids.size), reached)
        self.log.push(ids[which], ticks[which], None, oldest)

    def forget(self, ids: Ints) -> None:
        """Drop these substreams."""
        self.log.forget(ids)
        self.beyond[ids[ids < len(self.beyond)]] = 0.0

    def renumber(self, alive: Ints) -> None:
        """Renumber: the substream ``alive[i]`` becomes substream i; others are dropped."""
        self.make_room(int(alive.max(initial=0)))
        self.log.renumber(alive)
        self.beyond = np.concatenate([self.beyond[alive], np.zeros((max(64 - alive.size, 0), 2))])

    def beyond_of(self, ids: Ints) -> Floats:
        """The weight of each of these since its last multiple, in two parts."""
        self.make_room(int(ids.max(initial=0)))
        return self.beyond[ids]

    def restore(self, owners: Ints, ticks: Ints, ids: Ints, beyond: Floats) -> None:
        """Add what was stored to an empty log."""
        self.log.push(owners, ticks, None, int(ticks.min(initial=0)))
        self.make_room(int(ids.max(initial=0)))
        self.beyond[ids] = beyond

    def make_room(self, largest: int) -> None:
        """Make room for a substream of this number."""
        size = len(self.beyond)
        if largest >= size:
            self.beyond = np.concatenate([self.beyond, np.zeros((max(largest + 1 - size, size), 2))])


@kernel
def _count_multiples(beyond: Floats, rows: Any, scale: float, most: int, out: Ints) -> None:
    """The number of multiples that each arrival reaches, at most ``most``."""
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
        here = after - count / scale if count < _MAX_MULTIPLES and scale < FINEST else 0.0
        beyond[ids[i], 0] = here + left
        beyond[ids[i], 1] = left - (beyond[ids[i], 0] - here)


@helper
def _multiples(high: Any, low: Any, scale: Any) -> Any:
    """How many multiples a weight, in two parts, has reached."""
    count = np.floor(min(high * scale, _MAX_MULTIPLES))
    return max(count - 1.0 if count == high * scale and low < 0 else count, 0.0)
