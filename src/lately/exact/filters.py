"""Filters over substreams: the queries that ask which keys, and the indexes that they share."""

from typing import Any

import numpy as np

from lately.core.answers import Answers
from lately.core.columns import Ints
from lately.core.errors import InputError, QueryError
from lately.core.estimate import Estimates
from lately.core.keys import Keys
from lately.exact.answer import Answer, KeyValue
from lately.exact.asked import Largest
from lately.exact.collective import Collective, Matches
from lately.exact.collective_max import CollectiveMax
from lately.exact.column import Floats
from lately.exact.partial import Partial
from lately.exact.queries import Query
from lately.exact.substreams import Substreams
from lately.exact.wide import refuse_wide

_NAMES = {"count": "CI-COUNT", "sum": "CI-SUM", "max": "CI-MAX", "min": "CI-MIN"}


class Shared:
    """One index over substreams and the queries that it serves."""

    def __init__(self, query: Query, lost: int | None) -> None:
        kind = query.aggregate.kind
        self.kind, self.column, self.per, self.eps = kind, query.aggregate.column, str(query.per), query.eps
        self.queries: dict[str, Query] = {}
        self._ages = Largest()
        self.lost = lost  # the newest tick of an arrival that it has not seen; None if it saw all
        self.index: Collective | CollectiveMax
        if kind in ("max", "min"):
            self.index = CollectiveMax(1 if kind == "max" else -1)
        else:
            self.index = Collective(weighted=kind == "sum", eps=query.eps)

    @property
    def longest(self) -> int:
        """The age of the oldest tick in any of their windows."""
        return self._ages.most(1) - 1

    def add(self, query: Query, now: int | None) -> None:
        """Serve another query; ``now`` is None before the first arrival."""
        self.queries[query.name] = query
        self._ages.add(query.span.older)
        if isinstance(self.index, Collective) and query.condition is not None:
            self.index.reach(self.longest, now)
            self.index.ask(query.condition.low, query.condition.high, now)

    def remove(self, query: Query) -> None:
        """Serve a query no longer."""
        del self.queries[query.name]
        self._ages.remove(query.span.older)
        if self.queries and isinstance(self.index, Collective) and query.condition is not None:
            self.index.release(query.condition.low, query.condition.high)
            self.index.reach(self.longest, None)

    def find(self, query: Query, now: int) -> Matches:
        """The substreams that pass the query's condition now."""
        assert query.condition is not None
        since, low, high = now - query.span.older + 1, query.condition.low, query.condition.high
        if isinstance(self.index, Collective):
            return self.index.find(since, low, high)
        ids, found = self.index.lookup(since, low, high)
        return Matches(ids, found, found)

    def covered(self, query: Query, now: int) -> float:
        """The share of a query's window that was seen."""
        assert query.condition is not None
        lost = self.lost
        if isinstance(self.index, Collective):
            own = self.index.lost(query.condition.low, query.condition.high)
            lost = own if lost is None else lost if own is None else max(lost, own)
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
        self.shared: dict[str, dict[tuple[Any, ...], Shared]] = {}  # by the column of their keys

    @property
    def nbytes(self) -> int:
        """The bytes that the state takes in memory, keys aside."""
        return sum(part.nbytes for part in (*self.substreams.values(), *(shared.index for shared in self._all())))

    def in_order(self) -> list[tuple[Substreams, list[Shared]]]:
        """The substreams of each key column and the indexes over them, in an order that only depends on what is asked."""
        return [(self.substreams[per], sorted(self.shared[per].values(), key=_rank)) for per in sorted(self.substreams)]

    def _all(self) -> list[Shared]:
        return [shared for mine in self.shared.values() for shared in mine.values()]

    def _of(self, query: Query) -> Shared:
        return self.shared[str(query.per)][_key(query)]

    # -- queries -------------------------------------------------------------------------------------------------------

    def add(self, query: Query, now: int | None, position: int) -> None:
        """Serve another query; what came before it was asked for is lost on it."""
        per = str(query.per)
        self.substreams.setdefault(per, Substreams())
        mine = self.shared.setdefault(per, {})
        shared = mine.get(_key(query)) or Shared(query, now if position else None)
        mine[_key(query)] = shared
        if position and now is not None and shared.queries and query.span.older - 1 > shared.longest:
            before = now - shared.longest - 1  # older ones were not kept, and may have been there
            shared.lost = before if shared.lost is None else max(shared.lost, before)
        shared.add(query, now if position else None)

    def drop(self, query: Query) -> None:
        """Serve a query no longer."""
        per, shared = str(query.per), self._of(query)
        shared.remove(query)
        if not shared.queries:
            del self.shared[per][_key(query)]
            if not self.shared[per]:
                del self.shared[per], self.substreams[per]

    def explain(self, query: Query) -> tuple[str, int, str]:
        """The algorithm of a query, how many share its index, and why."""
        shared = self._of(query)
        if query.eps is not None:
            why = f"all that pass, and some that miss by less than {query.eps:.3g}"
        elif shared.kind in ("count", "sum"):
            why = "exact: those near the bar are looked at"
        else:
            why = "exact"
        return _NAMES[shared.kind], len(shared.queries), why

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def check(self, columns: dict[str, Floats]) -> None:
        """Refuse values that a filter cannot take, before any of them is taken."""
        for shared in self._all():
            if shared.column is not None:
                refuse_wide(columns[shared.column], shared.column, "a filter", "drop the filter")
            if shared.kind == "sum":
                values = columns[str(shared.column)]
                worst = values[(values < 0) | np.isinf(values)]
                if worst.size:
                    raise InputError(
                        f"the column {shared.column!r} has the value {worst[0]}; a filter on a sum takes finite values from "
                        "0 on: leave such rows out, or drop the filter"
                    )

    def update(self, keys: dict[str, Keys], columns: dict[str, Floats], ticks: Ints) -> None:
        """Take arrivals in time order."""
        now = int(ticks[-1])
        for per, substreams in self.substreams.items():
            ids = substreams.take(keys[per], ticks)
            mine = self.shared[per].values()
            for shared in mine:
                values = None if shared.column is None else columns[shared.column]
                _take(shared, ids, ticks, values)
            self._sweep(per, now, ticks.size)

    def advance(self, now: int) -> None:
        """Let time pass."""
        for per, mine in self.shared.items():
            for shared in mine.values():
                if isinstance(shared.index, Collective):
                    shared.index.advance(now)
                else:
                    shared.index.expire(now - shared.longest)
            self._sweep(per, now, 0)

    def _sweep(self, per: str, now: int, arrivals: int) -> None:
        """Forget some substreams that are in no window any more, and give back room that nothing needs."""
        mine, substreams = self.shared[per].values(), self.substreams[per]
        gone = substreams.faded(now - max(shared.longest for shared in mine), arrivals)
        if not gone.size:
            return
        for shared in mine:
            shared.index.forget(gone)
        alive = substreams.renumbered()
        if alive is not None:
            for shared in mine:
                shared.index.renumber(alive)

    def partial(self, query: Query, now: int | None) -> Partial:
        """The aggregates of all substreams in a query's window."""
        shared = self._of(query)
        if query.eps is not None:
            raise QueryError(
                f"the filter {query.name!r} is approximate: what it keeps of a substream cannot be added up with another "
                "site's; add it with exact=True"
            )
        if now is None:
            return Partial({}, 0, 0, 1.0, integer=shared.kind == "count")
        since = now - query.span.older + 1
        substreams = self.substreams[shared.per]
        ids = substreams.by_hash(since)
        values = shared.values(ids, since)
        known = ~np.isnan(values)
        state = dict(zip(substreams.names(ids[known]), values[known].tolist(), strict=True))
        return Partial(state, len(state), 0, shared.covered(query, now), integer=shared.kind == "count")

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
        order = np.argsort(-low if shared.kind != "min" else low, kind="stable")
        low, high = (_whole(column[order]) if shared.kind == "count" else column[order] for column in (low, high))
        values = low if query.eps is None else Estimates(low, low, high, 1.0)
        return Answer(Answers(KeyValue, [self.substreams[shared.per].names(ids[order]), values]), int(ids.size))


def _whole(column: Floats) -> Any:
    return column.astype(np.int64) if (column < 2**62).all() else column


def _take(shared: Shared, ids: Ints, ticks: Ints, values: Floats | None) -> None:
    """Give arrivals to an index, but for those without a value."""
    now = int(ticks[-1])
    if values is not None and np.isnan(values).any():
        present = np.flatnonzero(~np.isnan(values))
        ids, ticks, values = ids[present], ticks[present], values[present]
    if isinstance(shared.index, Collective):
        shared.index.advance(now)
        if ids.size:
            shared.index.update(ids, ticks, values)
        return
    assert values is not None
    shared.index.expire(now - shared.longest)
    begin = int(np.searchsorted(ticks, now - shared.longest))
    shared.index.update(ids[begin:], ticks[begin:], values[begin:])


def _key(query: Query) -> tuple[Any, ...]:
    """Equal for queries over the same keys that share one index."""
    return query.aggregate.kind, query.aggregate.column, query.eps


def _rank(shared: Shared) -> tuple[Any, ...]:
    """The order in which indexes are stored."""
    return shared.kind, shared.column or "", shared.eps or 0.0
