"""All queries that ask for a number, arranged so that one pass answers them: windows to positions, then group by group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from lately.core.columns import Ints
from lately.core.errors import QueryError
from lately.core.jit import kernel
from lately.exact.aggregates import KEEP_INTEGERS, Aggregate
from lately.exact.algebra import Moments, Seen, rank
from lately.exact.answer import Found
from lately.exact.asked import Lookback, Reach
from lately.exact.base_intervals import BaseIntervals
from lately.exact.column import MINUS_INFINITY, NAN, PLUS_INFINITY, Column, Floats, Index
from lately.exact.landmarks import Landmarks
from lately.exact.operations import CODES, Operation, UserFunctionError, UserOperation, user_operation
from lately.exact.planner import B_INT, L_INT, R_INT
from lately.exact.plans import LookupCounts
from lately.exact.queries import Query, Span
from lately.exact.ring import Ring, first_at
from lately.exact.running import Running
from lately.exact.running_states import RunningStates
from lately.exact.sorted_runs import SortedRuns
from lately.exact.variances import variances
from lately.exact.wide import EXACT, is_wide, number


class Group(NamedTuple):
    """Queries that one index answers together."""

    aggregate: Aggregate
    algorithm: str
    bits: int  # the width class of L-INT
    by_time: bool

    @property
    def name(self) -> tuple[Any, ...] | None:
        """The name of the index; None where positions are enough."""
        kind, user = self.aggregate.kind, self.aggregate.algebra and id(self.aggregate.algebra)
        if kind == "count":
            return None
        if kind == "quantile":
            return ("sorted",)
        if user is None and self.algorithm == R_INT:
            return ("squares",) if kind in ("variance", "stddev") else ("sums",)
        return self.algorithm, kind, user, self.bits, self.by_time  # of which the last two matter for L-INT only


_ALONE = np.zeros(1, np.int64)
_OLDER, _SERIAL = 1, 3  # rows of ``_Queries.windows``, of which the first three are those of ``_numbers``


class _Members(NamedTuple):
    """Some queries of a group: where they stand in the order of lookups, their windows, how far those go back, their index."""

    places: slice
    spans: Ints
    reach: Reach
    kept: Index | None


class _Queries:
    """All queries of a group, in no order: whoever leaves, the last one takes its place."""

    def __init__(self, key: tuple[Any, ...], group: Group, index: Index | None) -> None:
        self.key, self.group, self.index = key, group, index
        self.shared = group.aggregate.column, group.name  # equal for groups that share an index
        self.names: list[str] = []
        self.lookback = Lookback()
        self._windows = np.empty((4, 1), np.int64)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def windows(self) -> Ints:
        """A column for each query: its window, and its number among all queries."""
        return self._windows[:, : len(self.names)]

    def members(self, places: slice, inside: slice) -> _Members:
        """Some of them, which stand at these places in the order of lookups."""
        return _Members(places, self.windows[:3, inside], self.lookback.reach, self.index)

    def add(self, query: Query, serial: int) -> int:
        """Another query; where it stands."""
        place = len(self.names)
        if place == self._windows.shape[1]:
            self._windows = np.concatenate([self._windows, np.empty_like(self._windows)], axis=1)
        self._windows[:, place] = *_numbers(query.span), serial
        self.names.append(query.name)
        self.lookback.add(query.span)
        return place

    def remove(self, place: int, span: Span) -> str:
        """Take a query out; who stands in its place now."""
        last = len(self.names) - 1
        self._windows[:, place] = self._windows[:, last]
        self.names[place] = self.names[last]
        moved = self.names.pop()
        self.lookback.remove(span)
        if 4 * last < self._windows.shape[1]:
            self._windows = self._windows[:, : max(self._windows.shape[1] // 2, 1)].copy()
        return moved


class _Pass(NamedTuple):
    """What a lookup of all queries needs: their windows group by group, which are younger, and the order of the answers."""

    spans: Ints
    by_age: Ints
    places: Ints  # of the queries in the order in which they came


class _Place(NamedTuple):
    """Where a query is."""

    serial: int
    among: _Queries
    place: int


class Lookups:
    """Queries for numbers and the indexes that answer them."""

    def __init__(self, ticks: Ring, columns: Mapping[str, Column]) -> None:
        self._ticks, self._columns = ticks, columns
        self.counts = LookupCounts()
        self._groups: dict[tuple[Any, ...], _Queries] = {}
        self._places: dict[str, _Place] = {}
        self._sharing: dict[tuple[Any, ...], int] = {}  # how many queries each index answers
        self._pass: _Pass | None = None  # None while queries have changed since the last lookup of all
        self._serial = 0

    # -- queries -------------------------------------------------------------------------------------------------------

    def change(self, gone: Iterable[Query], new: Sequence[tuple[Query, str]]) -> None:
        """Leave queries out and take others in, each with its algorithm; lay what indexes they lack, drop what nobody uses.

        A user's aggregate may fail while its index is laid: then nothing has changed.
        """
        made: dict[tuple[Any, ...], _Queries] = {}
        groups = [self._group(query, algorithm, made) for query, algorithm in new]
        left = {self._remove(query) for query in gone}
        for (query, _), among in zip(new, groups, strict=True):
            self._serial += 1
            self._add(query, among, self._serial)
        self._drop_unused(left)

    def move(self, queries: Sequence[Query], algorithm: str) -> None:
        """Have another algorithm answer these queries, which come where they came."""
        made: dict[tuple[Any, ...], _Queries] = {}
        groups = [self._group(query, algorithm, made) for query in queries]
        left = set()
        for query, among in zip(queries, groups, strict=True):
            serial = self._places[query.name].serial
            left.add(self._remove(query))
            self._add(query, among, serial)
        self._drop_unused(left)

    def _group(self, query: Query, algorithm: str, made: dict[tuple[Any, ...], _Queries]) -> _Queries:
        """The group that a query belongs to; if there is none it is made, and its index laid."""
        group = group_of(query.aggregate, query.span, algorithm)
        key = (group.aggregate.key, *group[1:])
        if key not in self._groups and key not in made:
            made[key] = _Queries(key, group, self.index(group))
        return self._groups[key] if key in self._groups else made[key]

    def _add(self, query: Query, among: _Queries, serial: int) -> None:
        self._groups[among.key] = among
        self._places[query.name] = _Place(serial, among, among.add(query, serial))
        self._sharing[among.shared] = self._sharing.get(among.shared, 0) + 1
        self._pass = None

    def _remove(self, query: Query) -> tuple[Any, ...]:
        _, among, place = self._places.pop(query.name)
        moved = among.remove(place, query.span)
        if moved != query.name:
            self._places[moved] = self._places[moved]._replace(place=place)
        if not among.names:
            del self._groups[among.key]
        self._sharing[among.shared] -= 1
        self._pass = None
        return among.shared

    def _drop_unused(self, shared: Iterable[tuple[Any, ...]]) -> None:
        """Drop those of these indexes that answer no query any more."""
        for column, name in shared:
            if self._sharing[column, name] == 0:
                del self._sharing[column, name]
                if name is not None:
                    self._columns[column].indexes.pop(name, None)

    def shares(self, query: Query) -> int:
        """How many queries the index of this one answers."""
        return self._sharing[self._places[query.name].among.shared]

    def index(self, group: Group) -> Index | None:
        """The index of a group, laid if it is not there yet."""
        if group.name is None or group.aggregate.column is None:
            return None
        return self._columns[group.aggregate.column].index(group.name, self._maker(group))

    # -- lookups -------------------------------------------------------------------------------------------------------

    def find(self, now: int | None, only: str | None = None) -> Found:
        """Answer all queries in the order in which they came, or only one; ``now`` is None before the first arrival."""
        if only is not None:
            _, among, place = self._places[only]
            self.counts.count_one(only)
            alone = among.members(slice(0, 1), slice(place, place + 1))
            found, edges = self._blank(alone.spans, _ALONE, now)
            self._answer(among.group, alone, edges, now, found)
            return found
        spans, by_age, places = self._arranged()
        self.counts.count_all(places.size)
        found, edges = self._blank(spans, by_age, now)
        start = 0
        for among in self._groups.values():
            here = slice(start, start + len(among))
            self._answer(among.group, among.members(here, slice(None)), edges[:, here], now, found)
            start = here.stop
        *columns, others = found
        order = np.argsort(places) if others else places
        return Found._make((*(column[places] for column in columns), {int(order[i]): others[i] for i in others}))

    def _arranged(self) -> _Pass:
        if self._pass is None:
            windows = np.concatenate([np.empty((4, 0), np.int64), *(one.windows for one in self._groups.values())], axis=1)
            by_age, places = (np.argsort(windows[row], kind="stable") for row in (_OLDER, _SERIAL))
            self._pass = _Pass(windows[:3].copy(), by_age, places)
        return self._pass

    def _blank(self, spans: Ints, by_age: Ints, now: int | None) -> tuple[Found, Ints]:
        """No answers yet, and where the windows begin and end."""
        size = spans.shape[1]
        edges = np.empty((2, size), np.int64)
        ticks = self._ticks
        _edges(ticks.values, (ticks.first, ticks.end, 0 if now is None else now), spans, by_age, edges)
        rows, missing, whole = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_)
        return Found(np.full(size, np.nan), rows, missing, np.ones(size), whole, {}), edges

    def state(self, query: Query, now: int | None) -> Any:
        """What a query's window contributes, as a state of its aggregate's algebra."""
        aggregate = query.aggregate
        if aggregate.column is None or now is None:
            return aggregate.states.identity
        column = self._columns[aggregate.column]
        span = np.array([_numbers(query.span)]).T.copy()
        edges = np.zeros((2, 1), np.int64)
        _edges(self._ticks.values, (self._ticks.first, self._ticks.end, now), span, _ALONE, edges)
        left, right = np.maximum(edges[:, 0], column.first).tolist()
        values = column.slice(left, right)
        present = np.flatnonzero(~np.isnan(values))
        if not present.size:
            return aggregate.states.identity
        if aggregate.kind == "quantile":
            return np.sort(values[present])
        if aggregate.kind in ("first", "last"):
            at = left + int(present[0 if aggregate.kind == "first" else -1])
            return Seen(int(self._ticks.slice(at, at + 1)[0]), number(column.slice(at, at + 1)[0]))
        if aggregate.kind in ("max", "min"):
            return number(values[present].max() if aggregate.kind == "max" else values[present].min())
        if aggregate.algebra is not None:
            try:
                return user_operation(aggregate).state(values[present])
            except UserFunctionError as failure:
                raise _cannot_answer(aggregate, failure) from failure.error
        plus, minus = int((values == np.inf).sum()), int((values == -np.inf).sum())
        index = self.index(group_of(aggregate, query.span, R_INT))
        assert isinstance(index, Running)
        total, squares = index.exact(left, right)
        unit = Fraction(2) ** index.unit
        return Moments(present.size, total * unit, squares * unit * unit, plus, minus)

    def _answer(self, group: Group, members: _Members, edges: Ints, now: int | None, found: Found) -> None:
        name, kind, places = group.aggregate.column, group.aggregate.kind, members.places
        ring: Ring = self._ticks if name is None else self._columns[name]
        lefts, rights = edges if ring.first <= self._ticks.first else np.maximum(edges, ring.first)
        rows = rights - lefts
        missing: Any = 0
        if isinstance(ring, Column):
            missing = ring.count(NAN, lefts, rights)
            found.integer[places] = ring.integer and kind in KEEP_INTEGERS
        if isinstance(ring, Column) and kind != "count":
            evaluate = _EVALUATE[kind if group.aggregate.algebra is None else "user"]
            windows = ring, lefts, rights, rows - missing, 0 if now is None else now
            try:
                values = evaluate(members.kept, group.aggregate, windows)
            except UserFunctionError as failure:
                raise _cannot_answer(group.aggregate, failure) from failure.error
        else:
            values = (rows - missing).astype(np.float64)
            found.integer[places] = True
        found.rows[places], found.missing[places] = rows, missing
        if now is not None and not _all_covered(ring, members.reach, now):
            covered = found.covered[places] = _covered(ring, members.spans, now)
            values = values.copy()
            values[covered < 1] = None if values.dtype.kind == "O" else np.nan
        if values.dtype.kind == "O":
            found.others.update(zip(range(places.start, places.stop), values.tolist(), strict=True))
            return
        found.values[places] = values.real
        # Integers that no float is equal to, beside the nearest one.
        if is_wide(values):
            large = np.flatnonzero(values.imag)
            found.others.update((places.start + i, number(values[i])) for i in large.tolist())
        elif kind == "sum" and isinstance(ring, Column) and ring.integer:
            large = (np.abs(values) >= EXACT).nonzero()[0]
            if large.size:
                assert isinstance(members.kept, Running)
                sums = members.kept.integers(lefts[large], rights[large])
                found.others.update(zip((places.start + large).tolist(), sums, strict=True))

    def _maker(self, group: Group) -> Callable[[], Index]:
        kind, algebra = group.aggregate.kind, group.aggregate.algebra
        if kind == "quantile":
            return SortedRuns
        if group.algorithm == R_INT and algebra is None:
            return lambda: Running(squares=kind in ("variance", "stddev"))
        operation = Operation(CODES[kind]) if algebra is None else user_operation(group.aggregate)
        if group.algorithm == R_INT:
            assert isinstance(operation, UserOperation)
            user = operation
            return lambda: RunningStates(user)
        if group.algorithm == B_INT:
            return lambda: BaseIntervals(operation)
        return lambda: Landmarks(operation, group.bits, self._ticks if group.by_time else None)


def _cannot_answer(aggregate: Aggregate, failure: UserFunctionError) -> QueryError:
    return QueryError(
        f"{aggregate} fails on what a window holds: {failure.error!r}; mend its combine or lower, or drop the queries that ask "
        "for it"
    )


def group_of(aggregate: Aggregate, span: Span, algorithm: str) -> Group:
    """The group that a query belongs to; quantiles of any phi share one index but not one group."""
    if algorithm != L_INT:
        return Group(aggregate, algorithm, 0, False)
    return Group(aggregate, algorithm, span.width.bit_length() - 1, span.by_time)


# -- what each aggregate makes of its index ------------------------------------------------------------------------------

_Windows = tuple[Column, Ints, Ints, Ints, int]  # the column; where windows begin and end; how many numbers; now


def _sums(index: Index | None, aggregate: Aggregate, windows: _Windows) -> Any:
    column, lefts, rights, counts, _ = windows
    assert isinstance(index, Running)
    if aggregate.kind == "avg":
        sums = index.averages(lefts, rights, counts)
    else:
        sums = index.lookup(lefts, rights)
    plus, minus = (column.count(kind, lefts, rights) for kind in (PLUS_INFINITY, MINUS_INFINITY))
    if not (isinstance(plus, int) and isinstance(minus, int)):  # infinities passed through: they hide all else
        with np.errstate(invalid="ignore"):
            signs = np.where(np.asarray(plus) > 0, np.inf, 0.0) - np.where(np.asarray(minus) > 0, np.inf, 0.0)
        sums = np.where(signs == 0, sums, signs)
    return np.where(counts > 0, sums, np.nan)


def _variances(index: Index | None, aggregate: Aggregate, windows: _Windows) -> Any:
    column, lefts, rights, counts, _ = windows
    assert isinstance(index, Running)
    found = variances(index, lefts, rights, counts, int(aggregate.parameter or 0))
    for kind in (PLUS_INFINITY, MINUS_INFINITY):
        infinite = column.count(kind, lefts, rights)
        if not isinstance(infinite, int):
            found = np.where(infinite > 0, np.nan, found)
    return np.sqrt(found) if aggregate.kind == "stddev" else found


def _folds(index: Index | None, aggregate: Aggregate, windows: _Windows) -> Any:
    column, lefts, rights, counts, now = windows
    if isinstance(index, Landmarks):
        found = index.lookup(column, lefts, rights, now)
    else:
        assert isinstance(index, BaseIntervals | RunningStates)
        found = index.lookup(column, lefts, rights)
    if aggregate.algebra is not None and (counts == 0).any():  # what a stranger's ``lower`` makes of nothing is no answer
        found[counts == 0] = np.nan if found.dtype.kind == "f" else None
    return found


def _quantiles(index: Index | None, aggregate: Aggregate, windows: _Windows) -> Any:
    column, lefts, rights, counts, _ = windows
    assert isinstance(index, SortedRuns)
    share = aggregate.parameter or 0.0
    ranks = np.array([rank(share, count) for count in counts.tolist()], np.int64)
    return index.lookup(column, lefts, rights, ranks)


_EVALUATE: dict[str, Callable[[Index | None, Aggregate, _Windows], Any]] = {
    "sum": _sums,
    "avg": _sums,
    "variance": _variances,
    "stddev": _variances,
    "quantile": _quantiles,
    **dict.fromkeys(("max", "min", "first", "last", "user"), _folds),
}


# -- windows -------------------------------------------------------------------------------------------------------------


def _numbers(span: Span) -> tuple[int, int, int]:
    return span.by_time, span.older, -1 if span.newer is None else span.newer


@kernel
def _edges(ticks: Ints, moment: tuple[int, int, int], spans: Ints, by_age: Ints, out: Ints) -> None:
    """The positions at which windows begin and end, as far as they are held; each is looked for from the next younger on."""
    first, end, now = moment
    mask = ticks.size - 1
    top = end
    for i in by_age:
        older, newer = spans[1, i], spans[2, i]
        if spans[0, i] == 0:
            out[0, i], out[1, i] = max(end - older, first), max(end - max(newer, 0), first)
            continue
        step = 1
        while top - step >= first and ticks[(top - step) & mask] > now - older:
            top -= step
            step <<= 1
        top = first_at(ticks, max(first, top - step), top, now - older + 1)
        out[0, i] = top
        out[1, i] = end if newer < 0 else first_at(ticks, top, end, now - newer + 1)


def _all_covered(ring: Ring, reach: Reach, now: int) -> bool:
    """Whether a ring has all that windows of this reach could hold."""
    return ring.lost is None or (
        ring.lost <= now - reach.ticks and (not reach.arrivals or ring.end - reach.arrivals >= ring.first)
    )


def _covered(ring: Ring, spans: Ints, now: int) -> Floats:
    """The share of each window that a ring has seen."""
    by_time, older, newer = spans
    assert ring.lost is not None
    newest = now - np.maximum(newer, 0)  # ticks, both ends included
    oldest = now - older + 1
    unseen = np.clip(ring.lost - oldest + 1, 0, newest - oldest + 1) / (newest - oldest + 1)
    starts = np.maximum(ring.end - older, 0)
    ends = ring.end - np.maximum(newer, 0)
    before = np.clip(ring.first - starts, 0, np.maximum(ends - starts, 1)) / np.maximum(ends - starts, 1)
    return 1.0 - np.where(by_time == 1, unseen, np.where(ends > starts, before, 0.0))
