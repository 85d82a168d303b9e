"""Which substreams pass a threshold: one index for all of them compared with a lookup in each (SHARE, Figure 13)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from time import perf_counter
from typing import Any

import numpy as np
from numba import njit

from bench.data import Ints, zipf
from bench.report import Options, Report, Table, Verdict
from lately.exact import arrival_log, collective, tick_index
from lately.exact.arrival_log import ArrivalLog
from lately.exact.collective import Collective

LONGEST = 10_800  # seconds
WINDOWS = (900, 1_800, 3_600, 7_200, 10_800)
SELECTED = 0.04  # of all substreams pass each bar
PS = (4, 10, 20, 40, 100)
USUAL = round(2 / collective._EXACT_MARGIN)
LOOP = "compiled loop"
BLOCK, FEW = 100, 10  # lookups in a block, and where there are a million substreams
TURNS = 8
EXPONENT = 1.0
COLUMNS = {
    "substreams": ",", "driven": "", "p": "g", "CI-COUNT": ",.0f", "R-INT for each": ",.0f", "ratio": ".1f", "pass": ".1%",
}  # fmt: skip


def substreams(report: Report, options: Options) -> Table:
    """Add the table of Figure 13 and the verdicts on it."""
    table = Table("Figure 13: substreams above a bar, inputs a second; as many lookups as updates", COLUMNS)
    sizes = {5_000: 60_000} if options.quick else {5_000: 2_000_000, 1_000_000: 10_000_000}
    for keys, rows in sizes.items():
        case = _Case(options, keys, rows)
        for p in (USUAL,) if options.quick else PS:
            options.tell(f"Figure 13, {keys:,} substreams, p = {p}")
            case.compare(p)
        ratio = case.tell(table)
        claim = f"Figure 13: {keys:,} substreams, CI-COUNT at p = {USUAL} / R-INT for each, in a compiled loop"
        report.verdicts.append(Verdict.at_least(claim, ratio[LOOP, USUAL], 25))
    report.tables.append(table)
    report.notes += [
        "Figure 13: Zipf keys, a window of 3 h full of arrivals. For 15 min, 30 min, 1 h, 2 h and 3 h each, the bar is the "
        "whole number of arrivals that about 4 % of the substreams reach. Both give the same substreams, without counts. "
        "p = 2 / eps.",
        "compiled loop: an arrival, a lookup, and so on, in one loop over the kernels; calls: the same, each by a call from "
        f"Python; blocks: {BLOCK} arrivals in a call ({FEW} with a million substreams), then as many lookups. R-INT for each: "
        "a binary search in the arrivals of every substream.",
    ]
    return table


class _Case:
    """A stream, the bars, and both contestants at its end."""

    def __init__(self, options: Options, keys: int, rows: int) -> None:
        options.tell(f"Figure 13, {keys:,} substreams")
        self._keys = keys
        self._loops = 100 if options.quick else FEW if keys >= 10**5 else 500
        self._block = min(BLOCK, self._loops)
        extra = self._loops + BLOCK
        rng = np.random.default_rng(keys)
        drawn = zipf(rows + extra, exponent=EXPONENT, universe=keys, seed=keys)
        self._ids = rng.permutation(keys)[drawn]
        self._ticks = np.arange(rows + extra) * LONGEST // rows
        self._start = rows
        self._last = np.full(keys, tick_index.NO_TICK)
        self._last[self._ids[:rows]] = self._ticks[:rows]
        counts = [np.bincount(self._ids[np.searchsorted(self._ticks, LONGEST - w) : rows], minlength=keys) for w in WINDOWS]
        self._bars = [_bar(count) for count in counts]
        self._share = float(np.mean([(count >= bar).mean() for count, bar in zip(counts, self._bars, strict=True)]))
        self._alone = ArrivalLog(weighted=False)
        self._alone.push(self._ids[:rows], self._ticks[:rows], None, 0)
        self._alive = np.flatnonzero(self._last != tick_index.NO_TICK)
        self._rates: dict[Any, float] = {}  # by way and p; p is None for R-INT for each

    def compare(self, p: int) -> None:
        """Run both in every way for one p, in turns."""
        with _margin(2 / p):
            index = Collective(weighted=False)
            index.plan([(bar, math.inf) for bar in self._bars], LONGEST, None)
            index.update(self._ids[: self._start], self._ticks[: self._start], None)
            self._agree(index)
            ways: dict[str, tuple[int, Callable[..., int], Callable[..., int]]] = {
                LOOP: (self._loops, self._loop_of_index, self._loop_of_each),
                "calls": (min(self._loops, 200), self._calls_of_index, self._calls_of_each),
                "blocks": (max(self._loops // 2 // self._block, 1) * self._block, self._blocks_of_index, self._blocks_of_each),
            }
            for way, (count, ours, each) in ways.items():
                if p == USUAL or way == LOOP:
                    self._race(count, {(way, p): (ours, index), (way, None): (each, self._alone)})

    def _race(self, count: int, contestants: dict[Any, tuple[Callable[..., int], Any]]) -> None:
        """Record the best rate of each in inputs per second, half arrivals and half lookups. The first turn warms up."""
        ids, ticks = (column[self._start : self._start + count] for column in (self._ids, self._ticks))
        for turn in range(1 + TURNS):
            totals = set()
            for name, (way, index) in contestants.items():
                copied, last = deepcopy(index), self._last.copy()
                began = perf_counter()
                totals.add(way(copied, ids, ticks, last))
                rate = 2 * count / (perf_counter() - began)
                self._rates[name] = max(self._rates.get(name, 0.0), rate if turn else 0.0)
            assert len(totals) == 1, totals
            assert -1 not in totals

    def tell(self, table: Table) -> dict[tuple[str, int], float]:
        """Add the measurements to the table; return the ratios by way and p."""
        ratio = {}
        for (way, p), rate in self._rates.items():
            if p is not None:  # which is nothing to R-INT for each
                each = self._rates[way, None]
                ratio[way, p] = rate / each
                table.add(self._keys, way, p, rate, each, rate / each, self._share)
        return ratio

    def _agree(self, index: Collective) -> None:
        for window, bar in zip(WINDOWS, self._bars, strict=True):
            since = int(self._ticks[self._start - 1]) - window
            ids = index.find(since, bar, math.inf, values=False).ids
            assert np.array_equal(np.sort(ids), self._alive[self._alone.values(self._alive, since) >= bar])

    # -- from Python ---------------------------------------------------------------------------------------------------

    def _calls_of_index(self, index: Collective, ids: Ints, ticks: Ints, last: Ints, block: int = 1) -> int:
        total = 0
        for at in range(0, ids.size, block):
            rows = slice(at, at + block)
            index.update(ids[rows], ticks[rows], None)
            now = int(ticks[rows][-1])
            for i in range(at, at + block):
                q = i % len(WINDOWS)
                total += index.find(now - WINDOWS[q], self._bars[q], math.inf, values=False).ids.size
        return total

    def _calls_of_each(self, alone: ArrivalLog, ids: Ints, ticks: Ints, last: Ints, block: int = 1) -> int:
        total = 0
        for at in range(0, ids.size, block):
            rows = slice(at, at + block)
            last[ids[rows]] = ticks[rows]
            now = int(ticks[rows][-1])
            alone.push(ids[rows], ticks[rows], None, now - LONGEST)
            for i in range(at, at + block):
                q = i % len(WINDOWS)
                total += self._alive[alone.values(self._alive, now - WINDOWS[q]) >= self._bars[q]].size
        return total

    def _blocks_of_index(self, index: Collective, ids: Ints, ticks: Ints, last: Ints) -> int:
        return self._calls_of_index(index, ids, ticks, last, self._block)

    def _blocks_of_each(self, alone: ArrivalLog, ids: Ints, ticks: Ints, last: Ints) -> int:
        return self._calls_of_each(alone, ids, ticks, last, self._block)

    # -- compiled ------------------------------------------------------------------------------------------------------

    def _loop_of_index(self, index: Collective, ids: Ints, ticks: Ints, last: Ints) -> int:
        assert index._exact is not None
        levels = [index._level(bar) for bar in self._bars]
        orders = [index._levels[level] for level in levels]
        shapes = np.array([(level.grid, level.back, order._shift) for level, order in zip(levels, orders, strict=True)])
        states = tuple(order._state for order in orders)
        first = [levels.index(level) for level in levels]  # bars that share a level
        queries = np.array([first, WINDOWS, self._bars], np.int64)
        return int(_index_loop(index._exact._state, states, shapes, queries, (ids, ticks, last)))

    def _loop_of_each(self, alone: ArrivalLog, ids: Ints, ticks: Ints, last: Ints) -> int:
        queries = np.array([np.zeros(len(WINDOWS)), WINDOWS, self._bars], np.int64)
        return int(_each_loop(alone._state, self._alive, queries, (ids, ticks)))


def _bar(counts: Ints) -> int:
    """The integer threshold that a share of substreams closest to ``SELECTED`` reaches."""
    best = int(np.sort(counts)[-int(SELECTED * counts.size)])
    return min((bar for bar in (best, best + 1) if bar > 0), key=lambda bar: abs(float((counts >= bar).mean()) - SELECTED))


@contextmanager
def _margin(share: float) -> Iterator[None]:
    """Run exact filters with another margin."""
    before = collective._EXACT_MARGIN
    collective._EXACT_MARGIN = share
    try:
        yield
    finally:
        collective._EXACT_MARGIN = before


_push, _marks, _values = arrival_log._push, arrival_log._marks, arrival_log._values
_put, _clear, _since = tick_index._put, tick_index._clear, tick_index._since


@njit(nogil=True)  # compiled in every run: Numba's cache would not see changes of the kernels in it
def _index_loop(rows: Any, levels: Any, shapes: Ints, queries: Ints, arrivals: Any) -> int:
    """One arrival, one lookup, and so on, as ``Collective`` does them."""
    ids, ticks, last = arrivals
    room = last.size
    hits, sures, unsure, values = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    marks, certain, nothing, out = np.empty(1, np.int64), np.empty(1, np.int64), np.zeros(0), np.empty(room, np.int64)
    now, total = ticks[0], 0
    for i in range(ids.size):
        arrival, when = ids[i : i + 1], ticks[i : i + 1]
        last[ids[i]] = ticks[i]
        oldest = ticks[i] - LONGEST
        if _push(rows, (arrival, when, nothing), (oldest, 2**62), 0) < 1:
            return -1  # no room, and none is made here
        for k in range(len(levels)):
            if queries[0, k] != k:
                continue
            grid, back, shift = shapes[k, 0], shapes[k, 1], shapes[k, 2]
            if ticks[i] >> shift > now >> shift:
                _clear(levels[k], (now >> shift) + 1, (ticks[i] >> shift) + 1)
            if back < 0:
                put = _put(levels[k], (arrival, when, when), (oldest, shift), 0)
            else:
                _marks(rows, arrival, (2.0**-grid, back, False), marks)
                if grid == 0:
                    certain[0] = marks[0]
                else:
                    _marks(rows, arrival, (2.0**-grid, back + 2, True), certain)
                put = _put(levels[k], (arrival, marks, certain), (oldest, shift), 0)
            if put < 1:
                return -1
        now = ticks[i]
        q = i % queries.shape[1]
        k, since = queries[0, q], now - queries[1, q]
        size = _since(levels[k], (since, now, shapes[k, 2]), hits, sures)
        passed, doubtful = 0, 0
        for j in range(size):
            if sures[j] < since or shapes[k, 1] < 0:
                unsure[doubtful] = hits[j]
                doubtful += 1
            else:
                out[passed] = hits[j]
                passed += 1
        values[:doubtful] = 0.0
        _values(rows, unsure[:doubtful], since, values)
        for j in range(doubtful):
            out[passed] = unsure[j]
            passed += values[j] >= queries[2, q]
        total += passed
    return total


@njit(nogil=True)
def _each_loop(rows: Any, alive: Ints, queries: Ints, arrivals: Any) -> int:
    """One arrival, then one lookup in every substream, and so on."""
    ids, ticks = arrivals
    values, out, nothing, total = np.empty(alive.size), np.empty(alive.size, np.int64), np.zeros(0), 0
    for i in range(ids.size):
        if _push(rows, (ids[i : i + 1], ticks[i : i + 1], nothing), (ticks[i] - LONGEST, 2**62), 0) < 1:
            return -1
        q = i % queries.shape[1]
        values[:] = 0.0
        _values(rows, alive, ticks[i] - queries[1, q], values)
        passed = 0
        for j in range(alive.size):
            out[passed] = alive[j]
            passed += values[j] >= queries[2, q]
        total += passed
    return total
