"""Answering all queries for numbers in one pass: windows become positions, then each group asks its index."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lately.core.columns import Ints
from lately.core.errors import QueryError
from lately.core.jit import kernel
from lately.exact.aggregate_function import L_INT, IndexPlan, WindowPositions, WindowValues
from lately.exact.aggregates import Aggregate
from lately.exact.answer import LookupResult
from lately.exact.column import NAN, Column, Floats, Index
from lately.exact.operations import UserFunctionError
from lately.exact.plans import LookupCounts
from lately.exact.queries import Query, Span
from lately.exact.requirements import Lookback, LookbackTracker
from lately.exact.ring import Ring, first_at
from lately.exact.wide import is_wide, number


class GroupSpec(NamedTuple):
    """Queries that one index answers together."""

    aggregate: Aggregate
    index_plan: IndexPlan

    @property
    def index_name(self) -> Hashable:
        """The name of the index; None where positions are enough."""
        return self.aggregate.function.index_name(self.index_plan)


_ALONE = np.zeros(1, np.int64)
_OLDER, _SERIAL = 1, 3  # rows of ``QueryGroup.windows``, of which the first three are those of ``_numbers``


class _Members(NamedTuple):
    """Some queries of a group that are looked up together."""

    places: slice  # in the order of lookups
    spans: Ints
    lookback: Lookback
    column_index: Index | None


class QueryGroup:
    """All queries of a group, in no order: when one is removed, the last one takes its place."""

    def __init__(self, key: tuple[Any, ...], spec: GroupSpec, index: Index | None) -> None:
        self.key, self.spec, self.index = key, spec, index
        self.shared = spec.aggregate.column, spec.index_name  # equal for groups that share an index
        self.names: list[str] = []
        self.tracker = LookbackTracker()
        self._windows = np.empty((4, 1), np.int64)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def windows(self) -> Ints:
        """A column for each query: its window and its serial number."""
        return self._windows[:, : len(self.names)]

    def members(self, places: slice, inside: slice) -> _Members:
        """Some of the queries, at these places in the order of lookups."""
        return _Members(places, self.windows[:3, inside], self.tracker.lookback, self.index)

    def add(self, query: Query, serial: int) -> int:
        """Add a query; return its place."""
        place = len(self.names)
        if place == self._windows.shape[1]:
            self._windows = np.concatenate([self._windows, np.empty_like(self._windows)], axis=1)
        self._windows[:, place] = *_numbers(query.span), serial
        self.names.append(query.name)
        self.tracker.add(query.span)
        return place

    def remove(self, place: int, span: Span) -> str:
        """Remove a query; return the name of the query that is in its place now."""
        last = len(self.names) - 1
        self._windows[:, place] = self._windows[:, last]
        self.names[place] = self.names[last]
        moved = self.names.pop()
        self.tracker.remove(span)
        if 4 * last < self._windows.shape[1]:
            self._windows = self._windows[:, : max(self._windows.shape[1] // 2, 1)].copy()
        return moved


class _Pass(NamedTuple):
    """What a lookup of all queries needs: their windows group by group, the order of their ages, the order of the answers."""

    spans: Ints
    by_age: Ints
    places: Ints  # of the queries in the order in which they were added


class _Place(NamedTuple):
    """Where a query is."""

    serial: int
    group: QueryGroup
    place: int


class Lookups:
    """Queries for numbers and the indexes that answer them."""

    def __init__(self, ticks: Ring, columns: Mapping[str, Column]) -> None:
        self._ticks, self._columns = ticks, columns
        self.counts = LookupCounts()
        self._groups: dict[tuple[Any, ...], QueryGroup] = {}
        self._places: dict[str, _Place] = {}
        self._sharing: dict[tuple[Any, ...], int] = {}  # how many queries each index answers
        self._pass: _Pass | None = None  # None while queries have changed since the last lookup of all
        self._serial = 0

    # -- queries -------------------------------------------------------------------------------------------------------

    def change(self, gone: Iterable[Query], new: Sequence[tuple[Query, str]]) -> None:
        """Remove and add queries, each with its algorithm; build missing indexes and drop unused ones.

        If a user's function fails while an index is built, nothing has changed.
        """
        made: dict[tuple[Any, ...], QueryGroup] = {}
        groups = [self._group(query, algorithm, made) for query, algorithm in new]
        left = {self._remove(query) for query in gone}
        for (query, _), group in zip(new, groups, strict=True):
            self._serial += 1
            self._add(query, group, self._serial)
        self._drop_unused(left)

    def move(self, queries: Sequence[Query], algorithm: str) -> None:
        """Answer these queries with another algorithm; their order stays."""
        made: dict[tuple[Any, ...], QueryGroup] = {}
        groups = [self._group(query, algorithm, made) for query in queries]
        left = set()
        for query, group in zip(queries, groups, strict=True):
            serial = self._places[query.name].serial
            left.add(self._remove(query))
            self._add(query, group, serial)
        self._drop_unused(left)

    def _group(self, query: Query, algorithm: str, made: dict[tuple[Any, ...], QueryGroup]) -> QueryGroup:
        """The group of a query; a new group is created with its index."""
        spec = self._spec(query.aggregate, query.span, algorithm)
        key = (spec.aggregate.key, algorithm, spec.index_plan.width_class, spec.index_plan.ticks is not None)
        if key not in self._groups and key not in made:
            made[key] = QueryGroup(key, spec, self._index(spec))
        return self._groups[key] if key in self._groups else made[key]

    def _add(self, query: Query, group: QueryGroup, serial: int) -> None:
        self._groups[group.key] = group
        self._places[query.name] = _Place(serial, group, group.add(query, serial))
        self._sharing[group.shared] = self._sharing.get(group.shared, 0) + 1
        self._pass = None

    def _remove(self, query: Query) -> tuple[Any, ...]:
        _, group, place = self._places.pop(query.name)
        moved = group.remove(place, query.span)
        if moved != query.name:
            self._places[moved] = self._places[moved]._replace(place=place)
        if not group.names:
            del self._groups[group.key]
        self._sharing[group.shared] -= 1
        self._pass = None
        return group.shared

    def _drop_unused(self, shared: Iterable[tuple[Any, ...]]) -> None:
        """Drop those of these indexes that serve no query."""
        for column, name in shared:
            if self._sharing[column, name] == 0:
                del self._sharing[column, name]
                if name is not None:
                    self._columns[column].indexes.pop(name, None)

    def shares(self, query: Query) -> int:
        """The number of queries that the index of this one serves."""
        return self._sharing[self._places[query.name].group.shared]

    def _spec(self, aggregate: Aggregate, span: Span, algorithm: str) -> GroupSpec:
        """The group of a query. L-INT has one for each width class; all quantiles of a column share an index, not a group."""
        if algorithm != L_INT:
            return GroupSpec(aggregate, IndexPlan(algorithm))
        return GroupSpec(aggregate, IndexPlan(algorithm, span.width.bit_length() - 1, self._ticks if span.by_time else None))

    def _index(self, spec: GroupSpec) -> Index | None:
        """The index of a group, built if it is not there yet."""
        name, column, function = spec.index_name, spec.aggregate.column, spec.aggregate.function
        if name is None or column is None:
            return None
        return self._columns[column].index(name, lambda: function.make_index(spec.index_plan))

    # -- lookups -------------------------------------------------------------------------------------------------------

    def find(self, now: int | None, only: str | None = None) -> LookupResult:
        """Answer all queries in the order in which they were added, or only one; ``now`` is None before the first arrival."""
        if only is not None:
            _, group, place = self._places[only]
            self.counts.count_one(only)
            alone = group.members(slice(0, 1), slice(place, place + 1))
            result, edges = self._blank(alone.spans, _ALONE, now)
            self._answer(group.spec, alone, edges, now, result)
            return result
        spans, by_age, places = self._arranged()
        self.counts.count_all(places.size)
        result, edges = self._blank(spans, by_age, now)
        start = 0
        for group in self._groups.values():
            here = slice(start, start + len(group))
            self._answer(group.spec, group.members(here, slice(None)), edges[:, here], now, result)
            start = here.stop
        *columns, others = result
        order = np.argsort(places) if others else places
        return LookupResult._make((*(column[places] for column in columns), {int(order[i]): others[i] for i in others}))

    def _arranged(self) -> _Pass:
        if self._pass is None:
            windows = np.concatenate([np.empty((4, 0), np.int64), *(group.windows for group in self._groups.values())], axis=1)
            by_age, places = (np.argsort(windows[row], kind="stable") for row in (_OLDER, _SERIAL))
            self._pass = _Pass(windows[:3].copy(), by_age, places)
        return self._pass

    def _blank(self, spans: Ints, by_age: Ints, now: int | None) -> tuple[LookupResult, Ints]:
        """An empty result, and the positions at which the windows begin and end."""
        size = spans.shape[1]
        edges = np.empty((2, size), np.int64)
        ticks = self._ticks
        _edges(ticks.values, (ticks.first, ticks.end, 0 if now is None else now), spans, by_age, edges)
        rows, missing, integer = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_)
        return LookupResult(np.full(size, np.nan), rows, missing, np.ones(size), integer, {}), edges

    def state(self, query: Query, now: int | None) -> Any:
        """The partial state of a query's window."""
        aggregate, function = query.aggregate, query.aggregate.function
        if aggregate.column is None or now is None:
            return function.algebra.identity
        column = self._columns[aggregate.column]
        span = np.array([_numbers(query.span)]).T.copy()
        edges = np.zeros((2, 1), np.int64)
        _edges(self._ticks.values, (self._ticks.first, self._ticks.end, now), span, _ALONE, edges)
        left, right = np.maximum(edges[:, 0], column.first).tolist()
        values = column.slice(left, right)
        present = np.flatnonzero(~np.isnan(values))
        if not present.size:
            return function.algebra.identity
        try:
            window = WindowValues(column, self._ticks, left, right, values, present)
            return function.state(self._places[query.name].group.index, window)
        except UserFunctionError as failure:
            raise _cannot_answer(aggregate, failure) from failure.error

    def _answer(self, spec: GroupSpec, members: _Members, edges: Ints, now: int | None, result: LookupResult) -> None:
        name, function, places = spec.aggregate.column, spec.aggregate.function, members.places
        ring: Ring = self._ticks if name is None else self._columns[name]
        lefts, rights = edges if ring.first <= self._ticks.first else np.maximum(edges, ring.first)
        rows = rights - lefts
        missing: Any = 0
        if isinstance(ring, Column):
            missing = ring.count(NAN, lefts, rights)
            result.integer[places] = ring.integer and function.keeps_integers
        windows = None
        if isinstance(ring, Column) and function.needs_values:
            windows = WindowPositions(ring, lefts, rights, rows - missing, 0 if now is None else now)
            try:
                values = function.evaluate(members.column_index, windows)
            except UserFunctionError as failure:
                raise _cannot_answer(spec.aggregate, failure) from failure.error
        else:
            values = (rows - missing).astype(np.float64)
            result.integer[places] = True
        result.rows[places], result.missing[places] = rows, missing
        if now is not None and not _all_covered(ring, members.lookback, now):
            covered = result.covered[places] = _covered(ring, members.spans, now)
            values = values.copy()
            values[covered < 1] = None if values.dtype.kind == "O" else np.nan
        if values.dtype.kind == "O":
            result.others.update(zip(range(places.start, places.stop), values.tolist(), strict=True))
            return
        result.values[places] = values.real
        # Integers that no float is equal to, beside the nearest one.
        if is_wide(values):
            large = np.flatnonzero(values.imag)
            result.others.update((places.start + i, number(values[i])) for i in large.tolist())
        elif windows is not None and windows.column.integer:
            integers = function.exact_integers(members.column_index, windows, values)
            result.others.update((places.start + i, value) for i, value in integers.items())


def _cannot_answer(aggregate: Aggregate, failure: UserFunctionError) -> QueryError:
    return QueryError(
        f"{aggregate} fails on the values of a window: {failure.error!r}",
        remedy="correct its combine or lower, or drop the queries that ask for it",
    )


# -- windows -------------------------------------------------------------------------------------------------------------


def _numbers(span: Span) -> tuple[int, int, int]:
    return span.by_time, span.older, -1 if span.newer is None else span.newer


@kernel
def _edges(ticks: Ints, stream: tuple[int, int, int], spans: Ints, by_age: Ints, out: Ints) -> None:
    """The positions at which windows begin and end, within the ring; the search for each starts at the next younger one."""
    first, end, now = stream
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


def _all_covered(ring: Ring, lookback: Lookback, now: int) -> bool:
    """Whether a ring has all arrivals that windows with this lookback can contain."""
    return ring.lost is None or (
        ring.lost <= now - lookback.ticks and (not lookback.arrivals or ring.end - lookback.arrivals >= ring.first)
    )


def _covered(ring: Ring, spans: Ints, now: int) -> Floats:
    """The share of each window for which a ring has all arrivals."""
    by_time, older, newer = spans
    assert ring.lost is not None
    newest = now - np.maximum(newer, 0)  # ticks, both ends included
    oldest = now - older + 1
    unseen = np.clip(ring.lost - oldest + 1, 0, newest - oldest + 1) / (newest - oldest + 1)
    starts = np.maximum(ring.end - older, 0)
    ends = ring.end - np.maximum(newer, 0)
    before = np.clip(ring.first - starts, 0, np.maximum(ends - starts, 1)) / np.maximum(ends - starts, 1)
    return 1.0 - np.where(by_time == 1, unseen, np.where(ends > starts, before, 0.0))
