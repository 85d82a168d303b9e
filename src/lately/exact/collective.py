"""CI-COUNT and CI-SUM: which substreams have a count, or sum, in a range over a window (SHARE, sections 4.1 and 4.2).

A substream had n arrivals since a tick if its n-th newest arrival is not older than that. So for a threshold of n, substreams
are ordered by the tick of about their n-th newest arrival (``tick_index.py``), and a lookup reads the newest end of the order.
"About" means a level: ticks are taken at multiples of a power of two, ``grid``, which is small compared with n, so that a
substream moves in the order only when it reaches another multiple. Similar thresholds share a level, and only levels that
some query needs exist. Sums work in the same way, with weights in place of counts.

A lookup returns every substream that passes the threshold, and none that misses it by two grids or more. An exact filter also
stores the arrivals of each substream (``arrival_log.py``) and checks the few for which the order alone does not decide.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.arrival_log import ArrivalLog
from lately.exact.column import Floats
from lately.exact.sampled_log import SampledLog
from lately.exact.substream_index import Matches
from lately.exact.tick_index import NO_TICK, TickIndex

_EXACT_MARGIN = 0.1  # an exact filter checks substreams within this share of the threshold one by one
_SPARE = 8  # orders that cover this many times the longest window are rebuilt
_NEVER = -(2**62)
_MAX_COUNT = 2.0**62  # arrivals that a substream can have


class Level(NamedTuple):
    """The multiple of 2**grid that is ``back`` multiples before the newest; -1 means the newest arrival itself."""

    grid: int
    back: int


NEWEST = Level(0, -1)


class Collective:
    """The counts of many substreams over any window that ends now, or the sums of non-negative values.

    Parameters
    ----------
    weighted
        True for sums, False for counts.
    eps
        The relative error of an approximate index, which stores a sample of the arrivals only. None for an exact one.
    """

    def __init__(self, *, weighted: bool, eps: float | None = None) -> None:
        self._weighted, self._eps = weighted, eps
        self._exact = ArrivalLog(weighted=weighted) if eps is None else None
        # Of an approximate index: the sampled arrivals by grid, the newest tick that a level does not have, and by grid the
        # number of ranges that need the samples of a level.
        self._samples: dict[int, SampledLog] = {}
        self._lost: dict[Level, int | None] = {}
        self._sample_users: dict[int, dict[Level, int]] = {}
        self._level_users: dict[Level, int] = {}  # the number of ranges that are looked up in a level
        self._levels: dict[Level, TickIndex] = {}
        self._newest = np.full(64, NO_TICK)  # the tick of each substream's newest arrival
        self._touched_in = np.zeros(64, np.int64)
        self._batches = 0
        self._longest = 0
        self._horizon = 1  # ticks that the orders cover: more than ``_longest``, so that they are seldom rebuilt
        self._now = _NEVER

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return (
            self._touched_in.nbytes + self._newest.nbytes + sum(part.nbytes for part in (*self._logs(), *self._levels.values()))
        )

    # -- ranges -------------------------------------------------------------------------------------------------------

    def plan(self, bounds: Iterable[tuple[float, float]], longest: int, now: int | None) -> None:
        """Serve these ranges over windows of up to ``longest`` ticks; ``now`` is None before the first arrival."""
        self.set_longest(longest, now)
        for low, high in bounds:
            self.add_range(low, high, now)

    def set_longest(self, longest: int, now: int | None) -> None:
        """Serve windows of up to ``longest`` ticks."""
        self._longest, self._now = longest, self._now if now is None else max(self._now, now)
        if not longest <= self._horizon < _SPARE * max(longest, 1):
            self._horizon = 1 << max(longest - 1, 0).bit_length()
            self._rebuild_levels(list(self._levels))

    def add_range(self, low: float, high: float, now: int | None) -> None:
        """Serve another range of aggregates; ``now`` is None before the first arrival."""
        self._now = self._now if now is None else max(self._now, now)
        level = self._level(low)
        if self._exact is None:
            for sampled in self._sampled_levels(low, high):
                self._add_sample(sampled, now)
        self._level_users[level] = self._level_users.get(level, 0) + 1
        if level not in self._levels:
            self._rebuild_levels([level])

    def remove_range(self, low: float, high: float) -> None:
        """Drop what only this range needs."""
        level = self._level(low)
        self._level_users[level] -= 1
        if not self._level_users[level]:
            del self._level_users[level], self._levels[level]
        if self._exact is None:
            for sampled in self._sampled_levels(low, high):
                self._remove_sample(sampled)

    def _rebuild_levels(self, levels: Iterable[Level]) -> None:
        """Build the orders of these levels from all substreams."""
        alive = np.flatnonzero(self._newest != NO_TICK)
        for level in levels:
            self._levels[level] = TickIndex(self._horizon, self._now)
            self._put(level, alive)

    def _sampled_levels(self, low: float, high: float) -> list[Level]:
        """Of an approximate index: the levels whose samples a range needs."""
        levels = [self._level(low), *([self._beyond(high)] if high < math.inf else [])]
        return [level for level in levels if level.back >= 0]

    def _level(self, low: float) -> Level:
        """The level of a lower bound: every substream that reaches the bound has its mark in the window."""
        if low <= 0:
            return NEWEST
        threshold = low if self._weighted else math.ceil(min(low, _MAX_COUNT))
        grid = self._grid(threshold)
        return Level(grid, max(math.floor(math.ldexp(threshold, -grid)) - 1, 0))

    def _beyond(self, high: float) -> Level:
        """The level of an upper bound: every substream with this mark in the window is above the bound."""
        threshold = max(high if self._weighted else math.floor(min(high, _MAX_COUNT)), 0)
        grid = self._grid(max(threshold, 0 if self._weighted else 1))
        return Level(grid, math.ceil(math.ldexp(threshold, -grid)))

    def _grid(self, threshold: float) -> int:
        margin = threshold * (_EXACT_MARGIN if self._eps is None else self._eps) / 2
        grid = math.frexp(margin)[1] - 1 if margin > 0 else -1000  # the largest power of two that is not above the margin
        return max(grid, -1000) if self._weighted else max(grid, 0)

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def update(self, ids: Ints, ticks: Ints, weights: Floats | None) -> None:
        """Add arrivals in time order; weights are not negative."""
        self.advance(int(ticks[-1]))
        oldest = self._now - self._longest
        begin = int(np.searchsorted(ticks, oldest))  # a batch may be longer than the window
        ids, ticks, weights = ids[begin:], ticks[begin:], None if weights is None else weights[begin:]
        touched = self._touched(ids, ticks)
        if weights is not None:
            heavy = np.flatnonzero(weights > 0)
            if heavy.size < ids.size:
                ids, ticks, weights = ids[heavy], ticks[heavy], weights[heavy]
        if ids.size:
            for log in self._logs():
                log.push(ids, ticks, weights, oldest)
        for level in self._levels:
            self._put(level, touched)

    def advance(self, now: int) -> None:
        """Move time on."""
        self._now = max(self._now, now)
        for index in self._levels.values():
            index.advance(self._now)

    def forget(self, ids: Ints) -> None:
        """Drop these substreams; their numbers may be used again."""
        for log in self._logs():
            log.forget(ids)
        self._newest[ids[ids < self._newest.size]] = NO_TICK
        nowhere = np.full(ids.size, NO_TICK)
        for index in self._levels.values():
            index.put(ids, nowhere, nowhere)

    def renumber(self, alive: Ints) -> None:
        """Renumber: the substream ``alive[i]`` becomes substream i; others are dropped."""
        self._make_room(int(alive.max(initial=0)))
        for log in self._logs():
            log.renumber(alive)
        self._newest = np.concatenate([self._newest[alive], np.full(max(64 - alive.size, 0), NO_TICK)])
        self._touched_in = np.zeros(self._newest.size, np.int64)
        self._rebuild_levels(list(self._levels))

    def _logs(self) -> list[ArrivalLog | SampledLog]:
        return [log for _, log in sorted(self._samples.items())] if self._exact is None else [self._exact]

    def _touched(self, ids: Ints, ticks: Ints) -> Ints:
        """The substreams of these arrivals, each once; the arrivals become their newest."""
        self._make_room(int(ids.max(initial=0)))
        self._batches += 1
        touched = np.empty(ids.size, np.int64)
        return touched[: _distinct((ids, ticks), self._touched_in, self._newest, self._batches, touched)]

    def _make_room(self, largest: int) -> None:
        size = self._touched_in.size
        if largest >= size:
            more = max(largest + 1 - size, size)
            self._touched_in = np.concatenate([self._touched_in, np.zeros(more, np.int64)])
            self._newest = np.concatenate([self._newest, np.full(more, NO_TICK)])

    def _put(self, level: Level, ids: Ints) -> None:
        """Update the order of a level for these substreams."""
        index = self._levels[level]
        if level == NEWEST:
            index.put(ids, self._newest[ids], self._newest[ids])
            return
        grid, back = level
        if self._exact is None:
            marks = self._samples[grid].log.marks(ids, 0, back)
            index.put(ids, marks, marks)
            return
        marks = self._exact.marks(ids, grid, back)
        # Two multiples further back the threshold is certainly passed; if every arrival is a multiple, immediately.
        certain = marks if grid == 0 and not self._weighted else self._exact.marks(ids, grid, back + 2, sure=True)
        index.put(ids, marks, certain)

    def _add_sample(self, level: Level, now: int | None) -> None:
        """Of an approximate index: store the samples that a level needs from now on; earlier arrivals are lost."""
        of_grid = self._sample_users.setdefault(level.grid, {})
        if level not in of_grid:
            # A level that goes further back has stored what this one needs.
            others = [self._lost[other] for other in of_grid if other.back >= level.back]
            self._lost[level] = (
                now if not others else None if None in others else min(lost for lost in others if lost is not None)
            )
            if level.grid not in self._samples:
                self._samples[level.grid] = SampledLog(level.grid, 0)
            log = self._samples[level.grid].log
            log.most = max(log.most, level.back + 1)
        of_grid[level] = of_grid.get(level, 0) + 1

    def _remove_sample(self, level: Level) -> None:
        """Of an approximate index: drop what only this level needs."""
        of_grid = self._sample_users[level.grid]
        of_grid[level] -= 1
        if of_grid[level]:
            return
        del of_grid[level], self._lost[level]
        if of_grid:
            self._samples[level.grid].log.most = 1 + max(other.back for other in of_grid)
        else:
            del self._sample_users[level.grid], self._samples[level.grid]

    def lost(self, low: float, high: float) -> int | None:
        """The newest tick of an arrival that is not stored for this range; None if all are."""
        levels = self._sampled_levels(low, high) if self._exact is None else []
        return max((lost for level in levels if (lost := self._lost.get(level)) is not None), default=None)

    # -- lookups -------------------------------------------------------------------------------------------------------

    def find(self, since: int, low: float, high: float, *, values: bool = True) -> Matches:
        """The substreams whose aggregate since a tick is in ``low..high``, without bounds if not ``values``."""
        level, since = self._level(low), max(since, self._now - self._longest)
        ids, sures = self._levels[level].since(since)
        if self._exact is None:
            return self._approximate(ids, since, level, high)
        if values or high < math.inf:
            aggregates = self._exact.values(ids, since)
            matching = (aggregates >= low) & (aggregates <= high)
            return Matches(ids[matching], aggregates[matching], aggregates[matching])
        unsure = np.flatnonzero(sures < since)
        if level == NEWEST:
            unsure = np.arange(ids.size) if low > 0 else unsure[:0]
        matching = np.ones(ids.size, np.bool_)
        matching[unsure] = self._exact.values(ids[unsure], since) >= low
        no_values = np.empty(0)
        return Matches(ids[matching], no_values, no_values)

    def values(self, ids: Ints, since: int) -> Floats:
        """The exact aggregates of these substreams since a tick; NaN where there was no arrival."""
        assert self._exact is not None
        self._make_room(int(ids.max(initial=0)))
        return np.where(self._newest[ids] >= since, self._exact.values(ids, since), np.nan)

    def _approximate(self, ids: Ints, since: int, level: Level, high: float) -> Matches:
        certain = 0.0 if level == NEWEST else math.ldexp(level.back, level.grid)
        at_least = certain if self._weighted or level == NEWEST else certain + 1
        at_most = math.inf
        if high < math.inf:
            grid, back = self._beyond(high)
            ids = ids[self._samples[grid].log.marks(ids, 0, back) < since]
            at_most = math.ldexp(back + 1, grid)
        return Matches(ids, np.full(ids.size, at_least), np.full(ids.size, at_most))

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer, ids: Ints, now: int) -> None:
        """Write the state of these substreams."""
        self._make_room(int(ids.max(initial=0)))
        newest = self._newest[ids]
        out.integers(np.where(newest >= now - self._longest, now - newest, -1))
        for level in sorted(self._lost):
            out.maybe(self._lost[level])
        for log in self._logs():
            arrivals = log if isinstance(log, ArrivalLog) else log.log
            counts, ticks, weights = arrivals.rows(ids, now - self._longest)
            out.integers(counts)
            out.integers(now - ticks)
            if isinstance(log, SampledLog):
                out.f64s(log.beyond_of(ids))
            elif self._weighted:
                out.f64s(weights)

    def read(self, source: Reader, ids: Ints, time: int | None) -> None:
        """Read what ``write`` wrote into an index that serves the same ranges; ``time`` is None before the first arrival."""
        now = 0 if time is None else time
        ages = source.integers(-1, self._longest)
        source.check(ages.size == ids.size, "not one age for each substream")
        self._make_room(int(ids.max(initial=0)))
        self._newest[ids] = np.where(ages < 0, NO_TICK, now - ages)
        for level in sorted(self._lost):
            self._lost[level] = source.maybe(-(2**62), now)
        for log in self._logs():
            counts = source.integers(0, 2**62)
            source.check(counts.size == ids.size, "not one count for each substream")
            ticks = now - source.integers(0, self._longest)
            source.check(float(counts.sum(dtype=np.float64)) == ticks.size, "counts that are not those of the arrivals")
            owners = np.repeat(ids, counts)
            source.check(bool(((np.diff(ticks) >= 0) | (np.diff(owners) != 0)).all()), "entries are out of order")
            if isinstance(log, SampledLog):
                beyond = source.f64s()
                source.check(beyond.size == 2 * ids.size and bool(np.isfinite(beyond).all()), "not two numbers for each")
                log.restore(owners, ticks, ids, beyond.reshape(-1, 2))
                continue
            weights = source.f64s() if self._weighted else None
            if weights is not None:
                source.check(weights.size == ticks.size, "columns of different lengths")
                source.check(bool(((weights > 0) & (weights < np.inf)).all()), "a weight that is not above 0")
            log.push(owners, ticks, weights, now - self._longest)
        if time is not None:
            self.advance(time)
        for level in self._levels:
            self._put(level, ids)


@kernel
def _distinct(rows: tuple[Ints, Ints], touched_in: Ints, newest: Ints, batch: int, out: Ints) -> int:
    ids, ticks = rows
    count = 0
    for i in range(ids.size):
        owner = ids[i]
        newest[owner] = ticks[i]
        if touched_in[owner] != batch:
            touched_in[owner] = batch
            out[count] = owner
            count += 1
    return count
