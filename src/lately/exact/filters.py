"""Filters: queries for the substreams that pass a condition, and the indexes that they share."""

from typing import Any

import numpy as np

from lately.core.answers import Answers
from lately.core.columns import Ints
from lately.core.errors import InputError, QueryError
from lately.core.estimate import Estimates
from lately.core.keys import Keys
from lately.exact.answer import Answer, KeyValue
from lately.exact.column import Floats
from lately.exact.filter_kinds import FILTER_KINDS
from lately.exact.partial import Partial
from lately.exact.queries import Query
from lately.exact.requirements import LargestTracker
from lately.exact.substream_index import Matches
from lately.exact.substreams import Substreams
from lately.exact.wide import refuse_wide


class SharedIndex:
    """One index over substreams and the queries that it serves."""

    def __init__(self, query: Query, lost: int | None) -> None:
        self.function, self.kind = query.aggregate.kind, FILTER_KINDS[query.aggregate.kind]
        self.column, self.per, self.eps = query.aggregate.column, str(query.per), query.eps
        self.queries: dict[str, Query] = {}
        self._ages = LargestTracker()
        self.lost = lost  # the newest tick of an arrival that it does not have; None if it has all
        self.index = self.kind.make_index(query.eps)

    @property
    def longest(self) -> int:
        """The age of the oldest tick in any of the windows."""
        return self._ages.largest(1) - 1

    def add(self, query: Query, now: int | None) -> None:
        """Serve another query; ``now`` is None before the first arrival."""
        self.queries[query.name] = query
        self._ages.add(query.span.older)
        self.index.set_longest(self.longest, now)
        if query.condition is not None:
            self.index.add_range(query.condition.low, query.condition.high, now)

    def remove(self, query: Query) -> None:
        """Stop serving a query."""
        del self.queries[query.name]
        self._ages.remove(query.span.older)
        if self.queries and query.condition is not None:
            self.index.remove_range(query.condition.low, query.condition.high)
            self.index.set_longest(self.longest, None)

    def find(self, query: Query, now: int) -> Matches:
        """The substreams that pass the query's condition now."""
        assert query.condition is not None
        since, low, high = now - query.span.older + 1, query.condition.low, query.condition.high
        return self.index.find(since, low, high)

    def covered(self, query: Query, now: int) -> float:
        """The share of a query's window of which all arrivals are known."""
        assert query.condition is not None
        own = self.index.lost(query.condition.low, query.condition.high)
        lost = max((tick for tick in (self.lost, own) if tick is not None), default=None)
        if lost is None:
            return 1.0
        return 1.0 - min(max(lost - (now - query.span.older), 0), query.span.width) / query.span.width

    def values(self, ids: Ints, since: int) -> Floats:
        """The aggregates of these substreams since a tick."""
        return self.index.values(ids, since)


class Filters:
    """All filters of a stream."""

    def __init__(self) -> None:
        self.substreams: dict[str, Substreams] = {}
        self.shared: dict[str, dict[tuple[Any, ...], SharedIndex]] = {}  # by the column of their keys

    @property
    def nbytes(self) -> int:
        """The bytes that the state takes in memory, keys aside."""
        of_indexes = sum(shared.index.nbytes for shared in self._all())
        return of_indexes + sum(substreams.nbytes for substreams in self.substreams.values())

    def in_order(self) -> list[tuple[Substreams, list[SharedIndex]]]:
        """The substreams of each key column and the indexes over them, in an order that depends on the queries only."""
        return [(self.substreams[per], sorted(self.shared[per].values(), key=_rank)) for per in sorted(self.substreams)]

    def _all(self) -> list[SharedIndex]:
        return [shared for indexes in self.shared.values() for shared in indexes.values()]

    def _of(self, query: Query) -> SharedIndex:
        return self.shared[str(query.per)][_key(query)]

    # -- queries -------------------------------------------------------------------------------------------------------

    def add(self, query: Query, now: int | None, position: int) -> None:
        """Serve another query; earlier arrivals that no index has stored are lost for it."""
        per = str(query.per)
        self.substreams.setdefault(per, Substreams())
        indexes = self.shared.setdefault(per, {})
        shared = indexes.get(_key(query)) or SharedIndex(query, now if position else None)
        indexes[_key(query)] = shared
        if position and now is not None and shared.queries and query.span.older - 1 > shared.longest:
            before = now - shared.longest - 1  # older arrivals were not stored
            shared.lost = before if shared.lost is None else max(shared.lost, before)
        shared.add(query, now if position else None)

    def drop(self, query: Query) -> None:
        """Stop serving a query."""
        per, shared = str(query.per), self._of(query)
        shared.remove(query)
        if not shared.queries:
            del self.shared[per][_key(query)]
            if not self.shared[per]:
                del self.shared[per], self.substreams[per]

    def explain(self, query: Query) -> tuple[str, int, str]:
        """The algorithm of a query, the number of queries that share its index, and the reason."""
        shared = self._of(query)
        if query.eps is not None:
            why = f"all that pass, and some that miss by less than {query.eps:.3g}"
        elif shared.kind.additive:
            why = "exact: substreams near the bound are checked"
        else:
            why = "exact"
        return shared.kind.algorithm, len(shared.queries), why

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def check(self, columns: dict[str, Floats]) -> None:
        """Reject values that a filter cannot take, before anything changes."""
        for shared in self._all():
            if shared.column is not None:
                refuse_wide(columns[shared.column], shared.column, "a filter", "drop the filter")
            if shared.kind.additive and shared.column is not None:
                values = columns[shared.column]
                invalid = values[(values < 0) | np.isinf(values)]
                if invalid.size:
                    raise InputError(
                        f"the column {shared.column!r} has the value {invalid[0]}, and a filter on a sum takes finite values "
                        "that are not negative",
                        remedy="leave such rows out, or drop the filter",
                    )

    def update(self, keys: dict[str, Keys], columns: dict[str, Floats], ticks: Ints) -> None:
        """Count arrivals in time order."""
        now = int(ticks[-1])
        for per, substreams in self.substreams.items():
            ids = substreams.take(keys[per], ticks)
            for shared in self.shared[per].values():
                values = None if shared.column is None else columns[shared.column]
                _take(shared, ids, ticks, values)
            self._sweep(per, now, ticks.size)

    def advance(self, now: int) -> None:
        """Move time on."""
        for per, indexes in self.shared.items():
            for shared in indexes.values():
                shared.index.advance(now)
            self._sweep(per, now, 0)

    def _sweep(self, per: str, now: int, arrivals: int) -> None:
        """Drop some of the substreams that are in no window any more, and free memory that is not needed."""
        indexes, substreams = self.shared[per].values(), self.substreams[per]
        expired = substreams.expire(now - max(shared.longest for shared in indexes), arrivals)
        if not expired.size:
            return
        for shared in indexes:
            shared.index.forget(expired)
        alive = substreams.renumber()
        if alive is not None:
            for shared in indexes:
                shared.index.renumber(alive)

    def partial(self, query: Query, now: int | None) -> Partial:
        """The aggregates of all substreams in a query's window."""
        shared = self._of(query)
        if query.eps is not None:
            raise QueryError(
                f"the filter {query.name!r} is approximate: its substreams cannot be added up with those of another site",
                remedy="add it with exact=True",
            )
        if now is None:
            return Partial({}, 0, 0, 1.0, integer=shared.kind.integer)
        since = now - query.span.older + 1
        substreams = self.substreams[shared.per]
        ids = substreams.by_hash(since)
        values = shared.values(ids, since)
        present = ~np.isnan(values)
        state = dict(zip(substreams.names(ids[present]), values[present].tolist(), strict=True))
        return Partial(state, len(state), 0, shared.covered(query, now), integer=shared.kind.integer)

    # -- answers -------------------------------------------------------------------------------------------------------

    def answer(self, query: Query, now: int | None) -> Answer:
        """The substreams that pass a query's condition, and their aggregates, the largest first."""
        shared = self._of(query)
        if now is None:
            return Answer(Answers(KeyValue, [[], np.empty(0)]), 0)
        covered = shared.covered(query, now)
        if covered < 1:
            return Answer(None, 0, covered=covered)
        ids, low, high = shared.find(query, now)
        order = np.argsort(low if shared.kind.ascending else -low, kind="stable")
        low, high = (_as_integers(column[order]) if shared.kind.integer else column[order] for column in (low, high))
        values = low if query.eps is None else Estimates(low, low, high, 1.0)
        return Answer(Answers(KeyValue, [self.substreams[shared.per].names(ids[order]), values]), int(ids.size))


def _as_integers(column: Floats) -> Any:
    return column.astype(np.int64) if (column < 2**62).all() else column


def _take(shared: SharedIndex, ids: Ints, ticks: Ints, values: Floats | None) -> None:
    """Add arrivals that have a value to an index."""
    now = int(ticks[-1])
    if values is not None and np.isnan(values).any():
        present = np.flatnonzero(~np.isnan(values))
        ids, ticks, values = ids[present], ticks[present], values[present]
    shared.index.advance(now)
    begin = int(np.searchsorted(ticks, now - shared.longest))  # a batch may be longer than the window
    if begin < ids.size:
        shared.index.update(ids[begin:], ticks[begin:], None if values is None else values[begin:])


def _key(query: Query) -> tuple[Any, ...]:
    """Equal for queries over one key column that share an index."""
    return query.aggregate.kind, query.aggregate.column, query.eps


def _rank(shared: SharedIndex) -> tuple[Any, ...]:
    """The order in which indexes are stored."""
    return shared.function, shared.column or "", shared.eps or 0.0
