"""The algorithm chosen for each query, looked at again when the mix of lookups and updates has changed."""

from typing import Any

from lately.exact.planner import Choice, algorithms, choose
from lately.exact.queries import Query
from lately.exact.ring import Ring

#: Arrivals and lookups after which the choices are looked at again; twice as many, up to a limit, each time that they stay.
_SOON, _LATE = 2**13, 2**15


class WidthClass:
    """Queries of one aggregate over windows of about one width, for which one algorithm is chosen."""

    def __init__(self, query: Query) -> None:
        self.example = query  # the first one, which stands for the others
        self.queries: dict[str, Query] = {}
        self.choice = choose(query.aggregate, query.span.width, 0.0, None)


class LookupCounts:
    """How often queries were looked up: all together, and one by one."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Count from 0 on again."""
        self.total = self.passes = 0
        self.alone: dict[str, int] = {}

    def count_one(self, name: str) -> None:
        """One query was looked up."""
        self.alone[name] = self.alone.get(name, 0) + 1
        self.total += 1

    def count_all(self, queries: int) -> None:
        """Note that all queries, this number of them, were looked up."""
        self.passes += 1
        self.total += queries


class Plans:
    """A choice for each query. What a user insists on, or what leaves no choice, is never looked at again."""

    def __init__(self) -> None:
        self.at = 0  # the position at which the choices were made
        self._patience = _SOON
        self._classes: dict[Any, WidthClass] = {}

    def add(self, query: Query) -> None:
        """Choose for a new query: what those of its class use."""
        if _is_open(query):
            key = _class(query)
            if key not in self._classes:
                self._classes[key] = WidthClass(query)
            self._classes[key].queries[query.name] = query

    def remove(self, query: Query) -> None:
        """Forget a query."""
        if _is_open(query) and _class(query) in self._classes:
            queries = self._classes[_class(query)].queries
            if queries.get(query.name) is query:  # it may be another one of that name by now
                del queries[query.name]
            if not queries:
                del self._classes[_class(query)]

    def choice(self, query: Query) -> Choice:
        """What was chosen for a query."""
        if _is_open(query):
            return self._classes[_class(query)].choice
        return choose(query.aggregate, query.span.width, 0.0, query.using)

    def due(self, position: int, lookups: int) -> bool:
        """Whether it is time to look again."""
        return position - self.at + lookups > self._patience

    def again(self, counts: LookupCounts, ticks: Ring, now: int) -> list[tuple[WidthClass, Choice]]:
        """Choose again by the lookups since the last time; return the classes for which another algorithm is better now."""
        arrived = max(ticks.end - self.at, 1)
        changed = []
        for of_class in self._classes.values():
            queries, present = of_class.queries, of_class.choice
            alone = counts.alone if len(counts.alone) < len(queries) else queries
            rate = counts.passes * len(queries) + sum(counts.alone.get(name, 0) for name in alone if name in queries)
            query = of_class.example
            choice = choose(query.aggregate, _width(query, ticks, now), rate / arrived, None, present.algorithm)
            if choice.algorithm == present.algorithm:
                of_class.choice = choice
            else:
                changed.append((of_class, choice))
        self.at = ticks.end
        self._patience = _SOON if changed else min(2 * self._patience, _LATE)
        return changed


def _is_open(query: Query) -> bool:
    """Whether there is anything to choose."""
    return query.using is None and len(algorithms(query.aggregate)) > 1


def _class(query: Query) -> tuple[Any, ...]:
    return query.aggregate.key, query.span.by_time, query.span.width.bit_length()


def _width(query: Query, ticks: Ring, now: int) -> int:
    """About how many positions a query's window holds."""
    held = ticks.end - ticks.first
    if not query.span.by_time or not held:
        return min(query.span.width, max(held, 1))
    oldest = int(ticks.values[ticks.first & (ticks.values.size - 1)])
    return max(1, min(held, held * query.span.width // max(now - oldest + 1, 1)))
