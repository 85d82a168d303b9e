"""The algorithm of each query, chosen again when the mix of lookups and updates has changed."""

from typing import Any

from lately.exact.planner import Choice, choose
from lately.exact.queries import Query
from lately.exact.ring import Ring

#: Arrivals and lookups until the next choice; the number doubles, up to a limit, each time that all choices stay.
_SOON, _LATE = 2**13, 2**15


class WidthClass:
    """Queries of one aggregate over windows of about one width, for which one algorithm is chosen."""

    def __init__(self, query: Query) -> None:
        self.example = query  # the first query, as a representative of all
        self.queries: dict[str, Query] = {}
        self.choice = choose(query.aggregate, query.span.width, 0.0, None)


class LookupCounts:
    """The number of lookups of queries: of all together, and of single ones."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Set all counts to 0."""
        self.total = self.passes = 0
        self.alone: dict[str, int] = {}

    def count_one(self, name: str) -> None:
        """Count a lookup of one query."""
        self.alone[name] = self.alone.get(name, 0) + 1
        self.total += 1

    def count_all(self, queries: int) -> None:
        """Count a lookup of all queries; ``queries`` is their number."""
        self.passes += 1
        self.total += queries


class Plans:
    """The choice of an algorithm for each query. With ``using=``, or a single possible algorithm, the choice never changes."""

    def __init__(self, position: int) -> None:
        self._position = position  # at which the choices were made
        self._patience = _SOON
        self._classes: dict[Any, WidthClass] = {}

    def add(self, query: Query) -> None:
        """Add a query; it gets the algorithm of its width class."""
        if _is_open(query):
            key = _class(query)
            if key not in self._classes:
                self._classes[key] = WidthClass(query)
            self._classes[key].queries[query.name] = query

    def remove(self, query: Query) -> None:
        """Remove a query."""
        if _is_open(query) and _class(query) in self._classes:
            queries = self._classes[_class(query)].queries
            if queries.get(query.name) is query:  # another query may have this name by now
                del queries[query.name]
            if not queries:
                del self._classes[_class(query)]

    def choice(self, query: Query) -> Choice:
        """The choice for a query."""
        if _is_open(query):
            return self._classes[_class(query)].choice
        return choose(query.aggregate, query.span.width, 0.0, query.using)

    def due(self, position: int, lookups: int) -> bool:
        """Whether it is time to choose again."""
        return position - self._position + lookups > self._patience

    def again(self, counts: LookupCounts, ticks: Ring, now: int) -> list[tuple[WidthClass, Choice]]:
        """Choose again from the lookups since the last choice; return the classes that another algorithm serves better."""
        arrived = max(ticks.end - self._position, 1)
        changed = []
        for width_class in self._classes.values():
            queries, present = width_class.queries, width_class.choice
            alone = counts.alone if len(counts.alone) < len(queries) else queries
            rate = counts.passes * len(queries) + sum(counts.alone.get(name, 0) for name in alone if name in queries)
            query = width_class.example
            choice = choose(query.aggregate, _width(query, ticks, now), rate / arrived, None, present.algorithm)
            if choice.algorithm == present.algorithm:
                width_class.choice = choice
            else:
                changed.append((width_class, choice))
        self._position = ticks.end
        self._patience = _SOON if changed else min(2 * self._patience, _LATE)
        return changed


def _is_open(query: Query) -> bool:
    """Whether there is a choice."""
    return query.using is None and len(query.aggregate.function.algorithms) > 1


def _class(query: Query) -> tuple[Any, ...]:
    return query.aggregate.key, query.span.by_time, query.span.width.bit_length()


def _width(query: Query, ticks: Ring, now: int) -> int:
    """About the number of positions in a query's window."""
    stored = ticks.end - ticks.first
    if not query.span.by_time or not stored:
        return min(query.span.width, max(stored, 1))
    oldest = int(ticks.values[ticks.first & (ticks.values.size - 1)])
    return max(1, min(stored, stored * query.span.width // max(now - oldest + 1, 1)))
