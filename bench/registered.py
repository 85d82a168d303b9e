"""A thousand registered queries over trades, compared with one structure per query and with recomputing each answer."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import lately as lt
from bench.data import Floats, Ints, _open, _read, stream
from bench.report import Options, Report, Table, Verdict
from lately.core.jit import kernel

QUERIES = 1000
KINDS = ("sum", "avg", "max", "count")
MAX = 2
SHORTEST, LONGEST = 1_000, 3_600_000  # milliseconds
SAMPLED = 20  # windows for which answers are recomputed
MOST = 5_000  # trades in a round
FEWEST = 100
SOME = 64  # every so many rows the size of a window is looked at
JUDGED = "1,000 trades"
ROUNDS = {
    "a round": "", "trades in it": ",.1f", "lately, µs": ",.0f", "one each, µs": ",.0f", "one each / lately": ".2f",
    "one each, rows shared, µs": ",.0f", "that / lately": ".2f",
}  # fmt: skip
ANSWERS = {"what": "", "µs": ",.0f", "µs / lately": ",.1f"}


@dataclass(frozen=True)
class Trades:
    """Prices and volumes in order of arrival, and the millisecond of each."""

    name: str
    times: Ints
    prices: Floats
    volumes: Floats


def registered(report: Report, options: Options) -> None:
    """Add the table and its verdict."""
    options.tell("a thousand registered queries")
    data = trades(options)
    size = data.times.size
    if size < FEWEST:
        report.notes.append(f"{data.name} has {size:,} rows, fewer than {FEWEST}: no registered queries.")
        return
    measured = min(size // 3, 150_000)
    ages = np.geomspace(SHORTEST, LONGEST, QUERIES // len(KINDS)).astype(np.int64).repeat(len(KINDS))
    kinds = np.tile(np.arange(len(KINDS)), QUERIES // len(KINDS))
    feeds = _Ours(kinds, ages), _Each(data, kinds, ages, own=True), _Each(data, kinds, ages, own=False)
    for feed in feeds:
        feed.take(data, slice(0, size - measured))
    _agree(feeds)
    _answer(report, data, kinds, ages, feeds[0], size - measured)
    table = Table(
        f"{QUERIES:,} queries for sums, averages, maxima and counts of the last 1 s to 1 h: one update and all answers; "
        f"{size:,} rows of {data.name}",
        ROUNDS,
    )
    ratio = {}
    for name, turns in _rounds(data, size - measured, options.quick).items():
        options.tell(f"{QUERIES:,} registered queries, rounds of {name}")
        seconds = np.array([[_time(feed, data, turn) for feed in feeds] for turn in turns])
        _agree(feeds)
        rounds = np.array([len(turn) for turn in turns])
        rows = sum(part.stop - part.start for turn in turns for part in turn) / rounds.sum()
        ours, own, shared = (np.min(seconds / rounds[:, None], axis=0) * 1e6).tolist()
        ratio[name] = own / ours
        table.add(name, rows, ours, own, ratio[name], shared, shared / ours)
    report.tables.append(table)
    judged = JUDGED if JUDGED in ratio else next(reversed(ratio))
    report.verdicts.append(Verdict.at_least(f"{QUERIES:,} queries, rounds of {judged}: one each / lately", ratio[judged], 20))
    report.notes += [
        f"{QUERIES:,} queries: lt.Windows(tick='1ms'), update() and answers(). One each: two stacks for a maximum, else adding "
        "what comes and taking off what goes, row by row, each with rows of its own; compiled, one loop over all of them. Rows "
        "shared: the same, but all read one array of trades, a batch at a time. Each one's best turn, of the same "
        "trades.",
        f"polars, duckdb: from the rows of the last hour, updates not counted; extrapolated from {SAMPLED} windows to "
        f"{QUERIES:,}, each the best of 3.",
    ]


def _agree(feeds: Iterable["_Ours | _Each"]) -> None:
    ours, *others = (feed.answers() for feed in feeds)
    for answers in others:
        assert np.allclose(ours, answers, rtol=1e-9), np.flatnonzero(~np.isclose(ours, answers, rtol=1e-9))


# -- the stream --------------------------------------------------------------------------------------------------------


def trades(options: Options) -> Trades:
    """The trades of the given file, with synthetic prices or volumes if it has none; or the synthetic trades of a busy day."""
    rng = np.random.default_rng(13)
    if options.data is None:
        size = options.size(380_000, 60_000)
        busy = rng.gamma(0.5, 2.0, size // 50 + 1).repeat(50)[:size]
        times = 1_381_132_800_000 + np.cumsum(rng.exponential(30.0, size) * busy).astype(np.int64)
        name, known = "synthetic trades", {}
    else:
        data = stream(options, 380_000, 60_000)
        assert data.seconds is not None
        name, times, size = data.name, data.seconds, len(data)
        times = times if int(times[-1]) > 10**11 else 1000 * times
        known = _numbers_of(options.data, size)
    prices = known.get("value", np.round(150 + np.cumsum(rng.choice([-0.01, 0.0, 0.01], size)), 2))
    volumes = known.get("volume", 100.0 * np.ceil(rng.exponential(2.0, size)))
    return Trades(name, times, *(np.nan_to_num(column, nan=0.0, posinf=0.0, neginf=0.0) for column in (prices, volumes)))


def _numbers_of(path: Path, rows: int) -> dict[str, Floats]:
    """The columns value and volume, if they exist and are numeric."""
    file = _open(path)
    kinds = {field.name: field.type for field in file.schema_arrow if field.name in ("value", "volume")}
    numeric = [name for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
    table = _read(file, path, rows, numeric) if numeric else pa.table({})
    return {name: table[name].cast(pa.float64(), safe=False).to_numpy() for name in numeric}


def _rounds(data: Trades, start: int, quick: bool) -> dict[str, list[list[slice]]]:
    """For every round size some turns with their rounds. The stream continues from one turn to the next."""
    turns, most = (3, 5) if quick else (9, 20)
    left, at = data.times.size - start, start
    shares = {"1 trade": 1, "1 second": 1000, "10 seconds": 10_000, "100 trades": 100, JUDGED: 1000, "5,000 trades": MOST}
    out: dict[str, list[list[slice]]] = {}
    for number, (name, size) in enumerate(shares.items()):
        stop = at + left // (len(shares) - number)
        left -= stop - at
        parts = list(_by_time(data, at, stop, size) if "second" in name else _by_count(at, stop, size))
        count = min(most, len(parts) // turns)
        if count:
            out[name] = [parts[turn * count : (turn + 1) * count] for turn in range(turns)]
            at = parts[turns * count - 1].stop
        left = data.times.size - at
    return out or {"1 trade": [[slice(at, data.times.size)]]}


def _by_count(start: int, stop: int, size: int) -> Iterator[slice]:
    for at in range(start, stop - size + 1, size):
        yield slice(at, at + size)


def _by_time(data: Trades, start: int, stop: int, length: int) -> Iterator[slice]:
    """Rounds of rows within a number of milliseconds; without arrivals there is no round."""
    cuts = start + 1 + np.flatnonzero(np.diff(data.times[start:stop] // length))
    yield from (slice(a, b) for a, b in zip([start, *cuts[:-1].tolist()], cuts.tolist(), strict=False) if b > a)


# -- the contestants ---------------------------------------------------------------------------------------------------


class _Ours:
    def __init__(self, kinds: Ints, ages: Ints) -> None:
        self._windows = lt.Windows(tick="1ms")
        what = [lt.agg.sum("volume"), lt.agg.avg("price"), lt.agg.max("price"), lt.agg.count()]
        for i, (kind, age) in enumerate(zip(kinds.tolist(), ages.tolist(), strict=True)):
            self._windows.add(f"{KINDS[kind]} {i}", what[kind], last=f"{age}ms")

    def take(self, data: Trades, rows: slice) -> None:
        columns = {"price": data.prices[rows], "volume": data.volumes[rows]}
        self._windows.update(columns, data.times[rows].view("datetime64[ms]"))

    def answers(self) -> Floats:
        return np.asarray(self._windows.answers().value)


class _Structures(NamedTuple):
    kinds: Ints
    ages: Ints
    firsts: Ints  # the oldest row in each window
    splits: Ints  # of a maximum: the row at which its back stack begins
    totals: Floats  # the sum, or the maximum of the back stack
    starts: Ints  # where its own rows lie in the pool, a ring
    masks: Ints  # the size of that ring, less 1
    times: Ints  # the pool: when
    values: Floats  # and what; in a front stack the maximum from there to the stack's end


class _Each:
    """One structure for each window; with ``own`` each stores its rows too, otherwise all read those of the stream."""

    def __init__(self, data: Trades, kinds: Ints, ages: Ints, *, own: bool) -> None:
        self.end, self._own = 0, own
        rows, room = np.arange(0, data.times.size, SOME), np.zeros(kinds.size, np.int64)
        for i in np.flatnonzero(np.full(kinds.size, own) | (kinds == MAX)).tolist():
            held = int((rows - np.searchsorted(data.times, data.times[rows] - ages[i])).max()) + SOME
            room[i] = 1 << (held + (0 if own else MOST)).bit_length()
        pool = np.zeros(int(room.sum()))
        firsts, splits = np.zeros(kinds.size, np.int64), np.zeros(kinds.size, np.int64)
        totals, starts = np.where(kinds == MAX, -np.inf, 0.0), np.cumsum(room) - room
        times = pool.astype(np.int64) if own else data.times
        self._state = _Structures(kinds, ages, firsts, splits, totals, starts, room - 1, times, pool)

    def take(self, data: Trades, rows: slice) -> None:
        for start in range(rows.start, rows.stop, MOST):
            self.end = min(start + MOST, rows.stop)
            (_take_own if self._own else _take)(self._state, (data.times, data.prices, data.volumes), start, self.end)

    def answers(self) -> Floats:
        out = np.empty(self._state.kinds.size)
        _answers(self._state, self.end, out)
        return out


@kernel
def _take_own(state: Any, stream: Any, start: int, end: int) -> None:
    """Row by row: add it, remove the rows that are too old."""
    kinds, ages, firsts, splits, totals, starts, masks, time_pool, pool = state
    times, prices, volumes = stream
    for w in range(kinds.size):
        kind, first, total, mask = kinds[w], firsts[w], totals[w], masks[w]
        own_times, own = time_pool[starts[w] : starts[w] + mask + 1], pool[starts[w] : starts[w] + mask + 1]
        values = volumes if kind == 0 else prices
        for row in range(start, end):
            own_times[row & mask] = times[row]
            if kind == 2:
                own[row & mask] = prices[row]
                total = max(total, prices[row])
            elif kind < 2:
                own[row & mask] = values[row]
                total += values[row]
            while own_times[first & mask] <= times[row] - ages[w]:
                if kind == 2 and first == splits[w]:
                    for i in range(row - first):
                        own[(row - 1 - i) & mask] = max(own[(row - 1 - i) & mask], own[(row - i) & mask])
                    splits[w], total = row + 1, -np.inf
                elif kind < 2:
                    total -= own[first & mask]
                first += 1
        firsts[w], totals[w] = first, total


@kernel
def _take(state: Any, stream: Any, start: int, end: int) -> None:
    """Add all rows of a batch at once, then remove the rows that are too old."""
    kinds, ages, firsts, splits, totals, starts, masks, _, pool = state
    times, prices, volumes = stream
    for w in range(kinds.size):
        kind, first, total, mask, since = kinds[w], firsts[w], totals[w], masks[w], times[end - 1] - ages[w] + 1
        if kind == 2:
            for row in range(start, end):
                total = max(total, prices[row])
            while times[first] < since:
                if first == splits[w]:
                    best = -np.inf
                    for i in range(end - first):
                        best = max(best, prices[end - 1 - i])
                        pool[starts[w] + ((end - 1 - i) & mask)] = best
                    splits[w], total = end, -np.inf
                first += 1
        else:
            values = volumes if kind == 0 else prices
            if kind < 2:
                for row in range(start, end):
                    total += values[row]
            while times[first] < since:
                if kind < 2:
                    total -= values[first]
                first += 1
        firsts[w], totals[w] = first, total


@kernel
def _answers(state: Any, end: int, out: Floats) -> None:
    kinds, _, firsts, splits, totals, starts, masks, _, pool = state
    for w in range(kinds.size):
        rows = end - firsts[w]
        out[w] = rows if kinds[w] == 3 else totals[w] / rows if kinds[w] == 1 else totals[w]
        if kinds[w] == 2 and firsts[w] < splits[w]:
            out[w] = max(out[w], pool[starts[w] + (firsts[w] & masks[w])])


def _time(feed: _Ours | _Each, data: Trades, rounds: list[slice], *, update: bool = True) -> float:
    start = perf_counter()
    for rows in rounds:
        if update:
            feed.take(data, rows)
        feed.answers()
    return perf_counter() - start


# -- recomputing -------------------------------------------------------------------------------------------------------


def _answer(report: Report, data: Trades, kinds: Ints, ages: Ints, ours: _Ours, end: int) -> None:
    """All answers once, without an update."""
    expected = ours.answers()
    our_time = min(_time(ours, data, [slice(end, end)], update=False) for _ in range(20)) * 1e6
    table = Table(f"all {QUERIES:,} answers once", ANSWERS)
    table.add("lately", our_time, 1.0)
    part = slice(int(np.searchsorted(data.times, data.times[end - 1] - LONGEST, "right")), end)
    rows = pa.table({"ts": data.times[part], "price": data.prices[part], "volume": data.volumes[part]})
    for name, connect in {"polars": _by_polars, "duckdb": _by_duckdb}.items():
        try:
            ask = connect(rows)
        except ImportError:
            table.add(f"{name}: not installed", None, None)
            continue
        seconds = 0.0
        for i in np.linspace(0, kinds.size - 1, SAMPLED).astype(np.int64).tolist():
            best = np.inf
            for _ in range(3):
                start = perf_counter()
                answer = ask(int(kinds[i]), int(data.times[end - 1] - ages[i]))
                best = min(best, perf_counter() - start)
            assert np.isclose(answer, expected[i], rtol=1e-9), (name, i, answer, expected[i])
            seconds += best
        rival_time = seconds / SAMPLED * kinds.size * 1e6
        table.add(f"{name}, extrapolated", rival_time, rival_time / our_time)
    report.tables.append(table)


def _by_polars(table: pa.Table) -> Callable[[int, int], float]:
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)

    def ask(kind: int, since: int) -> float:
        rows = frame.slice(int(frame["ts"].search_sorted(since, side="left")))
        if kind == 3:
            return rows.height
        column = rows["volume" if kind == 0 else "price"]
        return float((column.sum, column.mean, column.max)[kind]())

    return ask


def _by_duckdb(table: pa.Table) -> Callable[[int, int], float]:
    import duckdb

    base = duckdb.connect()
    base.register("arrived", table)
    base.execute("CREATE TABLE trades AS SELECT * FROM arrived")
    aggregates = ("sum(volume)", "avg(price)", "max(price)", "count(*)")

    def ask(kind: int, since: int) -> float:
        row = base.execute(f"SELECT {aggregates[kind]} FROM trades WHERE ts >= ?", [since]).fetchone()
        return float(row[0])

    return ask
