"""CI-COUNT and CI-SUM: which substreams had more than so many, or so much, in the last so long (SHARE, sections 4.1 and 4.2)?

A substream had n arrivals since a tick if its n-th newest arrival is not older than that. So for a bar of n substreams are
kept in the order of the tick of about their n-th newest arrival (``by_tick.py``), and a lookup takes those at the new end.
"About" is a level: ticks are taken at multiples of a power of two, ``grid``, small beside n, so that a substream moves in the
order only when it reaches another multiple. Bars that differ little share a level, and only levels that some query asks for
are kept. Weights are the same with fractions of arrivals.

Whoever passes the bar is found, and besides only what misses it by less than two grids. With ``exact=True`` the arrivals of
each substream are kept too (``rows_of.py``), and the few of whom the order alone is not sure are looked at.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.by_tick import NO_TICK, ByTick
from lately.exact.column import Floats
from lately.exact.rows_of import RowsOf
from lately.exact.thinned import Thinned

_SURE = 0.1  # of exact filters: substreams within a tenth of the bar are looked at one by one


_SPARE = 8  # orders that cover this many times what is asked for are rebuilt
_NEVER = -(2**62)
_MOST = 2.0**62  # arrivals that a substream can have


class Level(NamedTuple):
    """The newest multiple of 2**grid but ``back``; ``back`` of -1 is the newest arrival of all."""

    grid: int
    back: int


NEWEST = Level(0, -1)


class Matches(NamedTuple):
    """The substreams found, and between what bounds their aggregate lies."""

    ids: Ints
    low: Floats
    high: Floats


class Collective:
    """The counts of many substreams over any window that ends now, or the sums of what is not negative."""

    def __init__(self, *, weighted: bool, eps: float | None = None) -> None:
        self._weighted, self._eps = weighted, eps
        self._exact = RowsOf(weighted=weighted) if eps is None else None
        self._thinned: dict[int, Thinned] = {}  # of an approximate one, by grid
        self._begun: dict[Level, int | None] = {}  # of an approximate one: since when it keeps what a level needs
        self._marking: dict[
            int, dict[Level, int]
        ] = {}  # of an approximate one, by grid: how many ranges need a level's multiples
        self._asking: dict[Level, int] = {}  # how many ranges are looked up in a level
        self._levels: dict[Level, ByTick] = {}
        self._newest = np.full(64, NO_TICK)  # the tick of each substream's newest arrival
        self._seen = np.zeros(64, np.int64)
        self._batches = 0
        self._longest = 0
        self._horizon = 1  # ticks that the orders of levels cover: some more than ``_longest``, so that they are seldom rebuilt
        self._now = _NEVER

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return self._seen.nbytes + self._newest.nbytes + sum(part.nbytes for part in (*self._kept(), *self._levels.values()))

    # -- what is asked -------------------------------------------------------------------------------------------------

    def plan(self, bounds: Iterable[tuple[float, float]], longest: int, now: int | None) -> None:
        """Keep what these ranges of aggregates need over windows of up to ``longest`` ticks.

        ``now`` is None before the first arrival.
        """
        self.reach(longest, now)
        for low, high in bounds:
            self.ask(low, high, now)

    def reach(self, longest: int, now: int | None) -> None:
        """Keep as much as windows of up to ``longest`` ticks need."""
        self._longest, self._now = longest, self._now if now is None else max(self._now, now)
        if not longest <= self._horizon < _SPARE * max(longest, 1):
            self._horizon = 1 << max(longest - 1, 0).bit_length()
            self._lay(list(self._levels))

    def ask(self, low: float, high: float, now: int | None) -> None:
        """Keep what another range needs; ``now`` is None before the first arrival."""
        self._now = self._now if now is None else max(self._now, now)
        level = self._level(low)
        if self._exact is None:
            for one in self._thinned_levels(low, high):
                self._thin(one, now)
        self._asking[level] = self._asking.get(level, 0) + 1
        if level not in self._levels:
            self._lay([level])

    def release(self, low: float, high: float) -> None:
        """Keep what a range needs no longer, unless another one needs it."""
        level = self._level(low)
        self._asking[level] -= 1
        if not self._asking[level]:
            del self._asking[level], self._levels[level]
        if self._exact is None:
            for one in self._thinned_levels(low, high):
                self._thicken(one)

    def _lay(self, levels: Iterable[Level]) -> None:
        """Put all substreams in the orders of these levels."""
        alive = np.flatnonzero(self._newest != NO_TICK)
        for level in levels:
            self._levels[level] = ByTick(self._horizon, self._now)
            self._put(level, alive)

    def _thinned_levels(self, low: float, high: float) -> list[Level]:
        """Of an approximate one: the levels whose multiples a range needs."""
        levels = [self._level(low), *([self._beyond(high)] if high < math.inf else [])]
        return [level for level in levels if level.back >= 0]

    def _level(self, low: float) -> Level:
        """The level of a lower bound: all that reach it have their mark inside the window."""
        if low <= 0:
            return NEWEST
        bar = low if self._weighted else math.ceil(min(low, _MOST))
        grid = self._grid(bar)
        return Level(grid, max(math.floor(math.ldexp(bar, -grid)) - 1, 0))

    def _beyond(self, high: float) -> Level:
        """The level of an upper bound: what has this mark inside the window lies above it."""
        bar = max(high if self._weighted else math.floor(min(high, _MOST)), 0)
        grid = self._grid(max(bar, 0 if self._weighted else 1))
        return Level(grid, math.ceil(math.ldexp(bar, -grid)))

    def _grid(self, bar: float) -> int:
        wanted = bar * (_SURE if self._eps is None else self._eps) / 2
        grid = math.frexp(wanted)[1] - 1 if wanted > 0 else -1000  # the largest power of two that is not above
        return max(grid, -1000) if self._weighted else max(grid, 0)

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def update(self, ids: Ints, ticks: Ints, weights: Floats | None) -> None:
        """Take arrivals in time order; weights are not negative."""
        self.advance(int(ticks[-1]))
        oldest = self._now - self._longest
        begin = int(np.searchsorted(ticks, oldest))  # of a batch longer than the window the rest is over already
        ids, ticks, weights = ids[begin:], ticks[begin:], None if weights is None else weights[begin:]
        touched = self._touched(ids, ticks)
        if weights is not None:
            heavy = np.flatnonzero(weights > 0)
            if heavy.size < ids.size:
                ids, ticks, weights = ids[heavy], ticks[heavy], weights[heavy]
        if ids.size:
            for kept in self._kept():
                kept.push(ids, ticks, weights, oldest)
        for level in self._levels:
            self._put(level, touched)

    def advance(self, now: int) -> None:
        """Let time pass."""
        self._now = max(self._now, now)
        for index in self._levels.values():
            index.advance(self._now)

    def forget(self, ids: Ints) -> None:
        """These substreams faded, and their numbers may come to mean others."""
        for kept in self._kept():
            kept.forget(ids)
        self._newest[ids[ids < self._newest.size]] = NO_TICK
        nowhere = np.full(ids.size, NO_TICK)
        for index in self._levels.values():
            index.put(ids, nowhere, nowhere)

    def renumber(self, alive: Ints) -> None:
        """The substream that was number ``alive[i]`` is number i from now on; others are no more."""
        self._make_room(int(alive.max(initial=0)))
        for kept in self._kept():
            kept.renumber(alive)
        self._newest = np.concatenate([self._newest[alive], np.full(max(64 - alive.size, 0), NO_TICK)])
        self._seen = np.zeros(self._newest.size, np.int64)
        self._lay(list(self._levels))

    def _kept(self) -> list[RowsOf | Thinned]:
        return [kept for _, kept in sorted(self._thinned.items())] if self._exact is None else [self._exact]

    def _touched(self, ids: Ints, ticks: Ints) -> Ints:
        """The substreams of some arrivals, each once; these are their newest."""
        self._make_room(int(ids.max(initial=0)))
        self._batches += 1
        touched = np.empty(ids.size, np.int64)
        return touched[: _distinct((ids, ticks), self._seen, self._newest, self._batches, touched)]

    def _make_room(self, largest: int) -> None:
        size = self._seen.size
        if largest >= size:
            more = max(largest + 1 - size, size)
            self._seen = np.concatenate([self._seen, np.zeros(more, np.int64)])
            self._newest = np.concatenate([self._newest, np.full(more, NO_TICK)])

    def _put(self, level: Level, ids: Ints) -> None:
        """Bring the order of a level up to date for these substreams."""
        index = self._levels[level]
        if level == NEWEST:
            index.put(ids, self._newest[ids], self._newest[ids])
            return
        grid, back = level
        if self._exact is None:
            marks = self._thinned[grid].rows.marks(ids, 0, back)
            index.put(ids, marks, marks)
            return
        marks = self._exact.marks(ids, grid, back)
        # Two multiples further back the bar is passed for certain; where every arrival is a multiple, at once.
        certain = marks if grid == 0 and not self._weighted else self._exact.marks(ids, grid, back + 2, sure=True)
        index.put(ids, marks, certain)

    def _thin(self, level: Level, now: int | None) -> None:
        """Of an approximate one: keep the multiples that a level needs; what came before it was asked for is lost."""
        of_grid = self._marking.setdefault(level.grid, {})
        if level not in of_grid:
            # A level that reaches further back has kept what this one needs.
            kept = [self._begun[other] for other in of_grid if other.back >= level.back]
            self._begun[level] = now if not kept else None if None in kept else min(lost for lost in kept if lost is not None)
            if level.grid not in self._thinned:
                self._thinned[level.grid] = Thinned(level.grid, 0)
            rows = self._thinned[level.grid].rows
            rows.most = max(rows.most, level.back + 1)
        of_grid[level] = of_grid.get(level, 0) + 1

    def _thicken(self, level: Level) -> None:
        """Of an approximate one: keep no longer what only this level needs."""
        of_grid = self._marking[level.grid]
        of_grid[level] -= 1
        if of_grid[level]:
            return
        del of_grid[level], self._begun[level]
        if of_grid:
            self._thinned[level.grid].rows.most = 1 + max(other.back for other in of_grid)
        else:
            del self._marking[level.grid], self._thinned[level.grid]

    def lost(self, low: float, high: float) -> int | None:
        """The newest tick of an arrival that it did not keep for this range; None if it kept all."""
        levels = self._thinned_levels(low, high) if self._exact is None else []
        return max((lost for level in levels if (lost := self._begun.get(level)) is not None), default=None)

    # -- lookups -------------------------------------------------------------------------------------------------------

    def find(self, since: int, low: float, high: float, *, values: bool = True) -> Matches:
        """The substreams whose aggregate since a tick lies in ``low..high``; without ``values``, only which."""
        level, since = self._level(low), max(since, self._now - self._longest)
        ids, sures = self._levels[level].since(since)
        if self._exact is None:
            return self._approximate(ids, since, level, high)
        if values or high < math.inf:
            found = self._exact.values(ids, since)
            passed = (found >= low) & (found <= high)
            return Matches(ids[passed], found[passed], found[passed])
        unsure = np.flatnonzero(sures < since)
        if level == NEWEST:
            unsure = np.arange(ids.size) if low > 0 else unsure[:0]
        passed = np.ones(ids.size, np.bool_)
        passed[unsure] = self._exact.values(ids[unsure], since) >= low
        nothing = np.empty(0)
        return Matches(ids[passed], nothing, nothing)

    def values(self, ids: Ints, since: int) -> Floats:
        """The exact aggregates of these substreams since a tick; NaN where nothing came."""
        assert self._exact is not None
        self._make_room(int(ids.max(initial=0)))
        return np.where(self._newest[ids] >= since, self._exact.values(ids, since), np.nan)

    def _approximate(self, ids: Ints, since: int, level: Level, high: float) -> Matches:
        certain = 0.0 if level == NEWEST else math.ldexp(level.back, level.grid)
        at_least = certain if self._weighted or level == NEWEST else certain + 1
        at_most = math.inf
        if high < math.inf:
            grid, back = self._beyond(high)
            ids = ids[self._thinned[grid].rows.marks(ids, 0, back) < since]
            at_most = math.ldexp(back + 1, grid)
        return Matches(ids, np.full(ids.size, at_least), np.full(ids.size, at_most))

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer, ids: Ints, now: int) -> None:
        """Write what is kept of these substreams."""
        self._make_room(int(ids.max(initial=0)))
        newest = self._newest[ids]
        out.integers(np.where(newest >= now - self._longest, now - newest, -1))
        for level in sorted(self._begun):
            out.maybe(self._begun[level])
        for kept in self._kept():
            rows = kept if isinstance(kept, RowsOf) else kept.rows
            counts, ticks, weights = rows.rows(ids, now - self._longest)
            out.integers(counts)
            out.integers(now - ticks)
            if isinstance(kept, Thinned):
                out.f64s(kept.beyond_of(ids))
            elif self._weighted:
                out.f64s(weights)

    def read(self, source: Reader, ids: Ints, time: int | None) -> None:
        """Read what ``write`` wrote, into one that is planned alike; ``time`` is None if no arrival was there yet."""
        now = 0 if time is None else time  # from which ages are counted, if there are any
        ages = source.integers(-1, self._longest)
        source.check(ages.size == ids.size, "not one age for each substream")
        self._make_room(int(ids.max(initial=0)))
        self._newest[ids] = np.where(ages < 0, NO_TICK, now - ages)
        for level in sorted(self._begun):
            self._begun[level] = source.maybe(-(2**62), now)
        for kept in self._kept():
            counts = source.integers(0, 2**62)
            source.check(counts.size == ids.size, "not one count for each substream")
            ticks = now - source.integers(0, self._longest)
            source.check(float(counts.sum(dtype=np.float64)) == ticks.size, "counts that are not those of the arrivals")
            owners = np.repeat(ids, counts)
            source.check(bool(((np.diff(ticks) >= 0) | (np.diff(owners) != 0)).all()), "entries are out of order")
            if isinstance(kept, Thinned):
                beyond = source.f64s()
                source.check(beyond.size == 2 * ids.size and bool(np.isfinite(beyond).all()), "not two numbers for each")
                kept.put_back(owners, ticks, ids, beyond.reshape(-1, 2))
                continue
            weights = source.f64s() if self._weighted else None
            if weights is not None:
                source.check(weights.size == ticks.size, "columns of different lengths")
                source.check(bool(((weights > 0) & (weights < np.inf)).all()), "a weight that is not above 0")
            kept.push(owners, ticks, weights, now - self._longest)
        if time is not None:
            self.advance(time)
        for level in self._levels:
            self._put(level, ids)


@kernel
def _distinct(rows: tuple[Ints, Ints], seen: Ints, newest: Ints, batch: int, out: Ints) -> int:
    ids, ticks = rows
    count = 0
    for i in range(ids.size):
        owner = ids[i]
        newest[owner] = ticks[i]
        if seen[owner] != batch:
            seen[owner] = batch
            out[count] = owner
            count += 1
    return count
