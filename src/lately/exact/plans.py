"""The algorithm chosen for each query, looked at again when the mix of lookups and updates has changed."""

from collections.abc import Sequence
from typing import Any

from lately.core.columns import Ints
from lately.exact.planner import Choice, algorithms, choose
from lately.exact.queries import Query
from lately.exact.ring import Ring

#: Arrivals and lookups after which the choices are looked at again; twice as many, up to a limit, each time that they stay.
_SOON, _LATE = 2**13, 2**15


class Plans:
    """A choice for each query by its name."""

    def __init__(self) -> None:
        self.choices: dict[str, Choice] = {}
        self.at = 0  # the position at which they were made
        self._patience = _SOON
        self._classes: dict[Any, list[tuple[int, Query]]] = {}  # queries that have a choice, by the index they could share

    def keep(self, queries: Sequence[Query]) -> None:
        """Choose for queries that are new, and forget those that are gone."""
        known = self.choices
        self.choices = {
            query.name: known.get(query.name) or choose(query.aggregate, query.span.width, 0.0, query.using)
            for query in queries
        }
        self._classes = {}
        for place, query in enumerate(queries):
            if query.using is None and len(algorithms(query.aggregate)) > 1:
                key = query.aggregate.key, query.span.by_time, query.span.width.bit_length()
                self._classes.setdefault(key, []).append((place, query))

    def due(self, position: int, lookups: int) -> bool:
        """Whether it is time to look again."""
        return position - self.at + lookups > self._patience

    def again(self, lookups: Ints, ticks: Ring, now: int) -> bool:
        """Choose anew by the lookups of each query since the last time; tell whether anything changed."""
        arrived = max(ticks.end - self.at, 1)
        changed = False
        for members in self._classes.values():
            rate = sum(int(lookups[place]) for place, _ in members) / arrived
            query = members[0][1]
            present = self.choices[query.name]
            choice = choose(query.aggregate, _width(query, ticks, now), rate, None, present.algorithm)
            changed |= choice.algorithm != present.algorithm
            self.choices |= {query.name: choice for _, query in members}
        self.at = ticks.end
        self._patience = _SOON if changed else min(2 * self._patience, _LATE)
        return changed


def _width(query: Query, ticks: Ring, now: int) -> int:
    """About how many positions a query's window holds."""
    held = ticks.end - ticks.first
    if not query.span.by_time or not held:
        return min(query.span.width, max(held, 1))
    oldest = int(ticks.values[ticks.first & (ticks.values.size - 1)])
    return max(1, min(held, held * query.span.width // max(now - oldest + 1, 1)))
