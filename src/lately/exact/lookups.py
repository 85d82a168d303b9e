"""All queries that ask for a number, arranged so that one pass answers them: windows to positions, then group by group."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.aggregates import KEEP_INTEGERS, Aggregate
from lately.exact.algebra import Moments, Seen, rank
from lately.exact.answer import Found
from lately.exact.asked import Reach
from lately.exact.base_intervals import BaseIntervals
from lately.exact.column import MINUS_INFINITY, NAN, PLUS_INFINITY, Column, Floats, Index
from lately.exact.landmarks import Landmarks
from lately.exact.operations import CODES, Operation, UserOperation, user_operation
from lately.exact.planner import B_INT, L_INT, R_INT, Choice
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


class _Members(NamedTuple):
    """The queries of a group: where they stand in the order of lookups, their windows, how far those go back, their index."""

    places: slice
    spans: Ints
    reach: Reach
    kept: Index | None


class Lookups:
    """Queries for numbers and the indexes that answer them."""

    def __init__(self, ticks: Ring, columns: Mapping[str, Column]) -> None:
        self._ticks, self._columns = ticks, columns
        self.names: dict[str, int] = {}
        self.counts: Ints = np.zeros(0, np.int64)  # lookups of each query since it was planned
        self._groups: dict[Group, _Members] = {}
        # Lookups go group by group; answers come in the order of the queries.
        self._order: Ints = np.zeros(0, np.int64)
        self._places: Ints = np.zeros(0, np.int64)
        self._spans: Ints = np.zeros((3, 0), np.int64)
        self._by_age: Ints = np.zeros(0, np.int64)

    def plan(self, queries: Iterable[Query], choices: Mapping[str, Choice]) -> None:
        """Arrange these queries, each by the algorithm chosen for it; lay what indexes they lack, drop what nobody uses."""
        asked = list(queries)
        self.names = {query.name: i for i, query in enumerate(asked)}
        self.counts = np.zeros(len(asked), np.int64)
        together: dict[Any, tuple[Group, list[int]]] = {}
        for i, query in enumerate(asked):
            group = group_of(query.aggregate, query.span, choices[query.name].algorithm)
            together.setdefault((group.aggregate.key, *group[1:]), (group, []))[1].append(i)
        self._order = np.array([i for _, of in together.values() for i in of], np.int64)
        self._places = np.argsort(self._order)
        self._spans = np.array([_numbers(asked[i].span) for i in self._order], np.int64).reshape(-1, 3).T.copy()
        self._by_age = np.argsort(self._spans[1], kind="stable")
        self._groups, start = {}, 0
        for group, of in together.values():
            places = slice(start, start + len(of))
            reach = Reach.of(asked[i].span for i in of)
            self._groups[group] = _Members(places, self._spans[:, places], reach, self.index(group))
            start += len(of)
        for name, column in self._columns.items():
            used = {group.name for group in self._groups if group.aggregate.column == name}
            column.indexes = {key: index for key, index in column.indexes.items() if key in used}

    def shares(self, query: Query, algorithm: str) -> int:
        """How many queries the index of this one answers."""
        mine = group_of(query.aggregate, query.span, algorithm)
        same = (g for g in self._groups if g.name == mine.name and g.aggregate.column == mine.aggregate.column)
        return sum(self._groups[group].spans.shape[1] for group in same)

    def index(self, group: Group) -> Index | None:
        """The index of a group, laid if it is not there yet."""
        if group.name is None or group.aggregate.column is None:
            return None
        return self._columns[group.aggregate.column].index(group.name, self._maker(group))

    def find(self, now: int | None, only: int | None = None) -> Found:
        """Answer all queries, or only one; ``now`` is None before the first arrival."""
        everyone = slice(0, self._spans.shape[1])
        mine = everyone if only is None else slice(int(self._places[only]), int(self._places[only]) + 1)
        spans = self._spans[:, mine]
        size = spans.shape[1]
        edges = np.empty((2, size), np.int64)
        ticks = self._ticks
        moment = ticks.first, ticks.end, 0 if now is None else now
        _edges(ticks.values, moment, spans, self._by_age if only is None else _ALONE, edges)
        rows, missing, whole = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_)
        found = Found(np.full(size, np.nan), rows, missing, np.ones(size), whole, {})
        if only is not None:
            self.counts[only] += 1
            for group, members in self._groups.items():
                if members.places.start <= mine.start < members.places.stop:
                    self._answer(group, members._replace(places=slice(0, 1), spans=spans), edges, now, found)
            return found
        self.counts += 1
        for group, members in self._groups.items():
            self._answer(group, members, edges[:, members.places], now, found)
        *columns, others = found
        return Found._make((*(column[self._places] for column in columns), {int(self._order[i]): others[i] for i in others}))

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
            return user_operation(aggregate).state(values[present])
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
            values = evaluate(members.kept, group.aggregate, (ring, lefts, rights, rows - missing, 0 if now is None else now))
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
