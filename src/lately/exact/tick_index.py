"""Substreams in the order of one tick each: which of them have a tick since a given one?

The ticks of the longest window are spread over a ring of buckets. A bucket is a chunk of a slab with its entries in a row. An
entry has the substream, its tick, and a second tick, ``sure``, which is never newer. A lookup reads the buckets from the newest
back to the one in which the window begins, and compares ticks in that one only.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.exact.slab import SPARE, USED, acquire, no_chunks, release

_BUCKETS = 4096
_POOL = 256  # entries of an empty pool
_NONE = np.int64(-(2**63))

#: The tick of a substream that has none.
NO_TICK = int(_NONE)


class _State(NamedTuple):
    places: Ints  # where the entry of each substream is, or -1
    starts: Ints  # of each bucket: its chunk's offset, or -1 for none
    sizes: Ints  # the power of two of the chunk's size
    counts: Ints  # the number of its entries
    heads: Ints
    pool: NDArray[np.int64]  # entries: tick, sure, substream


class _Entries(NamedTuple):
    ids: Ints
    ticks: Ints
    sures: Ints


class TickIndex:
    """Substreams by one tick each, back to ``longest`` ticks before now."""

    def __init__(self, longest: int, now: int) -> None:
        self._longest = longest
        self._shift = max(0, (longest // (_BUCKETS - 2)).bit_length())
        self._now = now
        self._state = _blank()

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return sum(column.nbytes for column in self._state)

    def advance(self, now: int) -> None:
        """Move on to a tick: entries that are too old for any window are dropped."""
        fresh = min((now >> self._shift) - (self._now >> self._shift), _BUCKETS)
        if fresh > 0:
            _clear(self._state, (now >> self._shift) - fresh + 1, (now >> self._shift) + 1)
        self._now = max(self._now, now)

    def put(self, ids: Ints, ticks: Ints, sures: Ints) -> None:
        """Set the ticks of substreams; ``NO_TICK`` or a tick that is too old removes a substream."""
        if not ids.size:
            return
        self._put(ids, ticks, sures)
        if SPARE * int(self._state.heads[USED]) < len(self._state.pool) > _POOL:
            places, pool = self._state.places, self._state.pool
            present = np.flatnonzero(places >= 0)
            entries = pool[places[present]]
            self._state = _blank()
            if present.size:
                self._put(present, entries[:, 0].copy(), entries[:, 1].copy())

    def _put(self, ids: Ints, ticks: Ints, sures: Ints) -> None:
        largest, places = int(ids.max()), self._state.places
        if largest >= places.size:
            more = np.full(max(largest + 1, 2 * places.size) - places.size, -1, np.int64)
            self._state = self._state._replace(places=np.concatenate([places, more]))
        oldest, done = self._now - self._longest, 0
        while True:
            done = _put(self._state, _Entries(ids, ticks, sures), (oldest, self._shift), done)
            if done == ids.size:
                return
            pool = self._state.pool
            self._state = self._state._replace(pool=np.concatenate([pool, np.zeros_like(pool)]))

    def since(self, tick: int) -> tuple[Ints, Ints]:
        """The substreams whose tick is not before this one, and their ``sure`` ticks."""
        first = max(tick, self._now - self._longest)
        size = _count(self._state, first >> self._shift, self._now >> self._shift)
        ids, sures = np.empty(size, np.int64), np.empty(size, np.int64)
        count = _since(self._state, (first, self._now, self._shift), ids, sures)
        return ids[:count], sures[:count]


def _blank() -> _State:
    buckets = (np.full(_BUCKETS, -1, np.int64), np.zeros(_BUCKETS, np.int64), np.zeros(_BUCKETS, np.int64))
    return _State(np.full(64, -1, np.int64), *buckets, no_chunks(), np.zeros((_POOL, 3), np.int64))


@helper
def _take_out(state: Any, bucket: Any, place: Any) -> None:
    """Remove an entry; the last of its bucket takes its place."""
    places, starts, sizes, counts, heads, pool = state
    end = starts[bucket] + counts[bucket] - 1
    places[pool[place, 2]] = -1
    if place != end:
        pool[place, 0], pool[place, 1], pool[place, 2] = pool[end, 0], pool[end, 1], pool[end, 2]
        places[pool[place, 2]] = place
    counts[bucket] -= 1
    if counts[bucket] == 0:
        release(heads, sizes[bucket], pool[:, 0], starts[bucket])
        starts[bucket] = -1


@kernel
def _put(state: Any, entries: Any, limits: tuple[int, int], done: int) -> int:
    """Put entries in their buckets, from the row ``done`` on; return the row at which the pool was full, or the end."""
    places, starts, sizes, counts, heads, pool = state
    links = pool[:, 0]
    ids, ticks, sures = entries
    oldest, shift = limits
    for i in range(done, ids.size):
        bucket = (ticks[i] >> shift) & (_BUCKETS - 1)
        is_live = ticks[i] != _NONE and ticks[i] >= oldest
        place = places[ids[i]]
        if place >= 0 and is_live and pool[place, 0] >> shift == ticks[i] >> shift:
            pool[place, 0], pool[place, 1] = ticks[i], sures[i]
            continue
        if is_live:
            # Make room first: if the pool is full, nothing has changed yet.
            if starts[bucket] < 0:
                chunk = acquire(heads, 1, links)
                if chunk < 0:
                    return i
                starts[bucket], sizes[bucket], counts[bucket] = chunk, 1, 0
            elif counts[bucket] == 1 << sizes[bucket]:
                chunk = acquire(heads, sizes[bucket] + 1, links)
                if chunk < 0:
                    return i
                for j in range(counts[bucket]):
                    for k in range(3):
                        pool[chunk + j, k] = pool[starts[bucket] + j, k]
                    places[pool[chunk + j, 2]] = chunk + j
                release(heads, sizes[bucket], links, starts[bucket])
                starts[bucket] = chunk
                sizes[bucket] += 1
                place = places[ids[i]]
            end = starts[bucket] + counts[bucket]
            pool[end, 0], pool[end, 1], pool[end, 2] = ticks[i], sures[i], ids[i]
            counts[bucket] += 1
        if place >= 0:
            _take_out(state, (pool[place, 0] >> shift) & (_BUCKETS - 1), place)
        places[ids[i]] = starts[bucket] + counts[bucket] - 1 if is_live else -1
    return int(ids.size)


@kernel
def _clear(state: Any, first: int, end: int) -> None:
    """Empty the buckets of ticks ``first..end`` in units of buckets, which new ticks are about to use."""
    places, starts, sizes, counts, heads, pool = state
    for number in range(first, end):
        bucket = number & (_BUCKETS - 1)
        if starts[bucket] >= 0:
            for j in range(counts[bucket]):
                places[pool[starts[bucket] + j, 2]] = -1
            release(heads, sizes[bucket], pool[:, 0], starts[bucket])
            starts[bucket], counts[bucket] = -1, 0


@kernel
def _count(state: Any, first: int, last: int) -> int:
    counts = state.counts
    total = 0
    for number in range(first, last + 1):
        total += counts[number & (_BUCKETS - 1)]
    return total


@kernel
def _since(state: Any, span: tuple[int, int, int], ids: Ints, sures: Ints) -> int:
    starts, counts, pool = state.starts, state.counts, state.pool
    since, now, shift = span
    count = 0
    for number in range(since >> shift, (now >> shift) + 1):
        bucket = number & (_BUCKETS - 1)
        if starts[bucket] < 0:
            continue
        for j in range(starts[bucket], starts[bucket] + counts[bucket]):
            ids[count], sures[count] = pool[j, 2], pool[j, 1]
            count += pool[j, 0] >= since  # only the first bucket has older entries
    return count
