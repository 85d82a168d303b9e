"""The newest arrivals of each of many substreams: a small ring for each, allocated from one slab.

The arrivals of a substream are numbered from 1 on. Each has its tick and, where arrivals have weights, the weight of all
arrivals before it as an unevaluated sum of two floats: with 106 digits, differences are exact to the last digit of a float.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.exact.column import Floats
from lately.exact.slab import SPARE, USED, acquire, no_chunks, release

NO_TICK = np.int64(-(2**63))
_POOL = 256  # entries of an empty pool
_MAX_MULTIPLES = 2.0**50  # up to which multiples of a grid can be distinguished

#: One over the finest grid, of which every weight above 0 reaches a multiple.
FINEST = 2.0**1000


class _State(NamedTuple):
    starts: Ints  # of each substream: its chunk's offset, or -1 for none
    sizes: Ints  # the power of two of the chunk's size
    begins: Ints  # the number before its oldest arrival in the log
    ends: Ints  # the number of its newest arrival
    heads: Ints
    ticks: Ints  # the pool
    weights: NDArray[np.float64]  # the weight before an arrival, in two parts, and its own; no rows if every weight is 1
    totals: NDArray[np.float64]  # of each substream: the weight of all arrivals, in two parts


class _Arrivals(NamedTuple):
    ids: Ints
    ticks: Ints
    weights: Floats  # empty if every weight is 1


class ArrivalLog:
    """The newest arrivals of every substream, at most ``most`` of each."""

    def __init__(self, *, weighted: bool, most: int = 2**62) -> None:
        self.most = most
        blank, pool = np.zeros(64, np.int64), np.zeros(_POOL, np.int64)
        weights, totals = np.zeros((_POOL if weighted else 0, 3)), np.zeros((64, 2))
        self._state = _State(blank - 1, blank, blank.copy(), blank.copy(), no_chunks(), pool, weights, totals)

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return sum(column.nbytes for column in self._state)

    @property
    def ends(self) -> Ints:
        """The total number of arrivals of each substream."""
        return self._state.ends

    def push(self, ids: Ints, ticks: Ints, weights: Floats | None, oldest: int) -> None:
        """Add arrivals in time order; those before the tick ``oldest`` are dropped."""
        if not ids.size:
            return
        self._make_room(int(ids.max()))
        arrivals, done = _Arrivals(ids, ticks, np.zeros(0) if weights is None else weights), 0
        while True:
            done = _push(self._state, arrivals, (oldest, self.most), done)
            if done == ids.size:
                break
            state = self._state
            self._state = state._replace(
                ticks=np.concatenate([state.ticks, np.zeros_like(state.ticks)]),
                weights=np.concatenate([state.weights, np.zeros_like(state.weights)]),
            )

        if SPARE * int(self._state.heads[USED]) < self._state.ticks.size > _POOL:
            self._pack()

    def renumber(self, alive: Ints) -> None:
        """Renumber: the substream ``alive[i]`` becomes substream i; others are dropped."""
        self._make_room(int(alive.max(initial=0)))
        starts, sizes, begins, ends, *pool, totals = self._state
        more = max(64 - alive.size, 0)
        owned = [
            np.concatenate([old[alive], np.zeros((more, *old.shape[1:]), old.dtype)]) for old in (sizes, begins, ends, totals)
        ]
        starts = np.concatenate([starts[alive], np.full(more, -1)])
        self._state = _State._make((starts, *owned[:3], *pool, owned[3]))
        self._pack()

    def _pack(self) -> None:
        """Copy the chunks in use into a pool of about twice their size."""
        state = self._state
        used = int((1 << state.sizes[state.starts >= 0]).sum())
        size = max(_POOL, 1 << (2 * used - 1).bit_length())
        weights = np.zeros((size if len(state.weights) else 0, 3))
        self._state = state._replace(heads=no_chunks(), ticks=np.zeros(size, np.int64), weights=weights)
        _copy(state, self._state)

    def forget(self, ids: Ints) -> None:
        """Drop these substreams; their numbers may be used again."""
        _forget(self._state, ids[ids < self._state.starts.size])

    def values(self, ids: Ints, since: int) -> Floats:
        """The number of arrivals of each of these since a tick, or their weight."""
        values = np.zeros(ids.size)
        _values(self._state, ids, since, values)
        return values

    def marks(self, ids: Ints, grid: int, back: int, *, sure: bool = False) -> Ints:
        """The tick at which the count, or weight, reached a multiple of 2**grid: ``back`` multiples before the newest one.

        ``NO_TICK`` where that arrival is not in the log. Where the weight is too large to distinguish its multiples, it is the
        tick of the newest arrival, or ``NO_TICK`` if the mark must be ``sure``.
        """
        ticks = np.empty(ids.size, np.int64)
        _marks(self._state, ids, (2.0**-grid, back, sure), ticks)
        return ticks

    def rows(self, ids: Ints, since: int) -> tuple[Ints, Ints, Floats]:
        """The arrivals of these substreams since a tick, one substream after the other: counts, ticks and weights."""
        self._make_room(int(ids.max(initial=0)))
        self._state.begins[ids] = np.maximum(self._state.begins[ids], self._state.ends[ids] - self.most)
        most = int((self._state.ends[ids] - self._state.begins[ids]).sum())
        counts, ticks, weights = np.zeros(ids.size, np.int64), np.empty(most, np.int64), np.ones(most)
        _rows(self._state, ids, since, counts, ticks, weights)
        return counts, ticks[: counts.sum()], weights[: counts.sum()]

    def _make_room(self, largest: int) -> None:
        more = max(largest + 1, 2 * self._state.starts.size) - self._state.starts.size
        if largest >= self._state.starts.size:
            starts, sizes, begins, ends, *pool, totals = self._state
            blank = np.zeros(more, np.int64)
            sizes, begins, ends = (np.concatenate([old, blank]) for old in (sizes, begins, ends))
            totals = np.concatenate([totals, np.zeros((more, 2))])
            self._state = _State._make((np.concatenate([starts, blank - 1]), sizes, begins, ends, *pool, totals))


@helper
def _slot(state: Any, owner: Any, number: Any) -> Any:
    """The place of an arrival of a substream in the pool."""
    return state.starts[owner] + (number & ((1 << state.sizes[owner]) - 1))


@kernel
def _push(state: Any, arrivals: Any, limits: tuple[int, int], done: int) -> int:
    """Add arrivals from the row ``done`` on; return the row at which the pool was full, or the end."""
    starts, sizes, begins, ends, heads, ticks, weights, totals = state
    ids, times, own_weights = arrivals
    oldest, most = limits
    for i in range(done, ids.size):
        owner = ids[i]
        begins[owner] = max(begins[owner], ends[owner] + 1 - most)
        while begins[owner] < ends[owner] and ticks[_slot(state, owner, begins[owner] + 1)] < oldest:
            begins[owner] += 1
        count, size = ends[owner] - begins[owner], sizes[owner]
        if count == 1 << size:
            size += 1
        elif size > 2 and count << 3 < 1 << size:
            size -= 2
        if starts[owner] < 0 or size != sizes[owner]:
            chunk = acquire(heads, size, ticks)
            if chunk < 0:
                return i
            _move(state, owner, chunk, size)
        ends[owner] += 1
        slot = _slot(state, owner, ends[owner])
        ticks[slot] = times[i]
        if weights.shape[0]:
            if count == 0:  # no earlier arrival to compare with: sums restart at 0, where floats are finest
                totals[owner, 0], totals[owner, 1] = 0.0, 0.0
            high, low = totals[owner, 0], totals[owner, 1]
            weights[slot, 0], weights[slot, 1], weights[slot, 2] = high, low, own_weights[i]
            total = high + own_weights[i]
            part = total - high
            low += (high - (total - part)) + (own_weights[i] - part)
            totals[owner, 0] = total + low
            totals[owner, 1] = low - (totals[owner, 0] - total)
    return int(ids.size)


@helper
def _move(state: Any, owner: Any, chunk: Any, size: Any) -> None:
    """Move a substream's arrivals to another chunk."""
    starts, sizes, begins, ends, heads, ticks, weights, _ = state
    if starts[owner] >= 0:
        for number in range(begins[owner] + 1, ends[owner] + 1):
            here, there = _slot(state, owner, number), chunk + (number & ((1 << size) - 1))
            ticks[there] = ticks[here]
            if weights.shape[0]:
                for part in range(3):
                    weights[there, part] = weights[here, part]
        release(heads, sizes[owner], ticks, starts[owner])
    starts[owner], sizes[owner] = chunk, size


@kernel
def _copy(state: Any, packed: Any) -> None:
    """Copy every chunk into another pool, and set the starts of the substreams to it."""
    starts, sizes, ticks, weights = state.starts, state.sizes, state.ticks, state.weights
    heads, into_ticks, into_weights = packed.heads, packed.ticks, packed.weights
    for owner in range(starts.size):
        if starts[owner] < 0:
            continue
        here, there = starts[owner], acquire(heads, sizes[owner], into_ticks)
        for j in range(1 << sizes[owner]):
            into_ticks[there + j] = ticks[here + j]
            if weights.shape[0]:
                for part in range(3):
                    into_weights[there + j, part] = weights[here + j, part]
        starts[owner] = there


@kernel
def _forget(state: Any, ids: Ints) -> None:
    starts, sizes, begins, ends, heads, ticks, _, totals = state
    for owner in ids:
        if starts[owner] >= 0:
            release(heads, sizes[owner], ticks, starts[owner])
        starts[owner], sizes[owner], begins[owner], ends[owner] = -1, 0, 0, 0
        totals[owner, 0], totals[owner, 1] = 0.0, 0.0


@kernel
def _values(state: Any, ids: Ints, since: int, out: Floats) -> None:
    _, _, begins, ends, _, ticks, weights, totals = state
    for i in range(ids.size):
        owner = ids[i]
        if owner >= begins.size:
            continue
        base, width = begins[owner], ends[owner] - begins[owner]
        while width > 0:  # the last number before the window
            half = (width + 1) >> 1
            if ticks[_slot(state, owner, base + half)] < since:
                base += half
            width -= half
        if base == ends[owner]:
            continue
        out[i] = ends[owner] - base
        if weights.shape[0]:
            slot = _slot(state, owner, base + 1)
            high = totals[owner, 0] - weights[slot, 0]  # ``error`` is what this rounds off
            part = high - totals[owner, 0]
            error = (totals[owner, 0] - (high - part)) - (weights[slot, 0] + part)
            out[i] = high + (error + (totals[owner, 1] - weights[slot, 1]))
            if not out[i] > totals[owner, 0] / _MAX_MULTIPLES:  # too small, relative to the total, for 106 digits
                out[i] = _added_up(state, owner, base + 1)


@helper
def _added_up(state: Any, owner: Any, first: Any) -> Any:
    """The weight of a substream's arrivals from a number on, added one by one, with the rounding errors added at the end."""
    total, rest = 0.0, 0.0
    for number in range(first, state.ends[owner] + 1):
        weight = state.weights[_slot(state, owner, number), 2]
        after = total + weight
        part = after - total
        rest += (total - (after - part)) + (weight - part)
        total = after
    return total + rest if total < np.inf else total


@kernel
def _marks(state: Any, ids: Ints, level: tuple[float, int, bool], out: Ints) -> None:
    _, _, begins, ends, _, ticks, weights, totals = state
    scale, back, sure = level
    for i in range(ids.size):
        owner = ids[i]
        out[i] = NO_TICK
        if owner >= begins.size or ends[owner] == begins[owner]:
            continue
        if not weights.shape[0]:
            grid = np.int64(1.0 / scale)
            number = (ends[owner] // grid - back) * grid
            if number > begins[owner]:
                out[i] = ticks[_slot(state, owner, number)]
            continue
        multiples = totals[owner, 0] * scale
        if scale >= FINEST or not multiples < _MAX_MULTIPLES:  # multiples cannot be distinguished: any arrival may be the one
            out[i] = NO_TICK if sure else ticks[_slot(state, owner, ends[owner])]
            continue
        newest = np.floor(multiples)
        if newest == multiples and totals[owner, 1] < 0:
            newest -= 1.0
        out[i] = _reached(state, owner, (newest - back) / scale)


@helper
def _reached(state: Any, owner: Any, weight: Any) -> Any:
    """The tick of the arrival with which a substream's weight reached this weight."""
    begins, ends, ticks, weights = state.begins, state.ends, state.ticks, state.weights
    base, width = begins[owner], ends[owner] - begins[owner]
    while width > 0:  # find the last arrival before which it was less
        half = (width + 1) >> 1
        slot = _slot(state, owner, base + half)
        if weights[slot, 0] < weight or (weights[slot, 0] == weight and weights[slot, 1] < 0):
            base += half
        width -= half
    return ticks[_slot(state, owner, base)] if weight > 0 and base > begins[owner] else NO_TICK


@kernel
def _rows(state: Any, ids: Ints, since: int, counts: Ints, times: Ints, own_weights: Floats) -> None:
    begins, ends, ticks, weights = state.begins, state.ends, state.ticks, state.weights
    at = 0
    for i in range(ids.size):
        owner = ids[i]
        for number in range(begins[owner] + 1, ends[owner] + 1):
            slot = _slot(state, owner, number)
            if ticks[slot] >= since:
                times[at] = ticks[slot]
                if weights.shape[0]:
                    own_weights[at] = weights[slot, 2]
                counts[i] += 1
                at += 1
