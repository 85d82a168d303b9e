"""What all queries of a stream need together, kept up to date as they come and go: an update does not go through them."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from lately.exact.aggregates import Aggregate
from lately.exact.queries import Query, Span


class Reach(NamedTuple):
    """How far back the windows over a column go: in arrivals, and in ticks, the newest included (0 if there is none)."""

    arrivals: int = 0
    ticks: int = 0


class Largest:
    """The largest of some numbers that come and go: O(log n) each, amortised.

    A heap holds each number once. One that is gone stays in it until it comes to the top, or until it is one of too many.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []
        self._gone = 0  # numbers in the heap that nobody has any more

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, number: int) -> None:
        """Another one."""
        count = self._counts.get(number)
        if count is None:
            heappush(self._heap, -number)
        self._gone -= count == 0
        self._counts[number] = (count or 0) + 1

    def remove(self, number: int) -> None:
        """One less of those that were added."""
        self._counts[number] -= 1
        self._gone += self._counts[number] == 0
        while self._heap and not self._counts[-self._heap[0]]:
            del self._counts[-heappop(self._heap)]
            self._gone -= 1
        if 2 * self._gone > len(self._heap):
            self._counts = {number: count for number, count in self._counts.items() if count}
            self._heap, self._gone = [-number for number in self._counts], 0
            heapify(self._heap)

    def most(self, default: int) -> int:
        """The largest one."""
        return -self._heap[0] if self._heap else default


class Lookback:
    """How far back some windows go that come and go."""

    def __init__(self) -> None:
        self._ages = Largest(), Largest()  # of windows of arrivals, of windows of time

    @property
    def reach(self) -> Reach:
        """The longest of them."""
        arrivals, ticks = self._ages
        return Reach(arrivals.most(0), ticks.most(0))

    def add(self, span: Span) -> None:
        """Another window."""
        self._ages[span.by_time].add(span.older)

    def remove(self, span: Span) -> None:
        """One less of those that were added."""
        self._ages[span.by_time].remove(span.older)

    def __bool__(self) -> bool:
        return any(self._ages)


class Asked:
    """The queries for numbers, the filters, and what they read. Adding or dropping one costs the same among any number."""

    def __init__(self) -> None:
        self.numbers: dict[str, Query] = {}
        self.filters: dict[str, Query] = {}
        # Who asks for a column, or for times, to tell a user who leaves it out: names in the order in which they came.
        self.columns: dict[str, dict[str, None]] = {}
        self.keys: dict[str, dict[str, None]] = {}
        self.timely: dict[str, None] = {}
        self._users: dict[tuple[object, ...], tuple[Aggregate, dict[str, None]]] = {}
        self._all = Lookback()
        self._lookbacks: dict[str, Lookback] = {}

    @property
    def users(self) -> list[Aggregate]:
        """The aggregates that users defined, each once."""
        return [aggregate for aggregate, _ in self._users.values()] if self._users else []

    @property
    def reach(self) -> Reach:
        """How far back the queries for numbers go."""
        return self._all.reach

    @property
    def reaches(self) -> dict[str, Reach]:
        """How far back they go in each column that they read."""
        return {column: lookback.reach for column, lookback in self._lookbacks.items()}

    def reads(self, column: str) -> bool:
        """Whether a query for a number reads a column."""
        return column in self._lookbacks

    def add(self, query: Query) -> None:
        """Another query."""
        aggregate, column = query.aggregate, query.aggregate.column
        if column is not None:
            self.columns.setdefault(column, {})[query.name] = None
        if query.per is not None:
            self.keys.setdefault(query.per, {})[query.name] = None
        if query.span.by_time:
            self.timely[query.name] = None
        if query.condition is not None:
            self.filters[query.name] = query
            return
        self.numbers[query.name] = query
        self._all.add(query.span)
        if column is not None:
            self._lookbacks.setdefault(column, Lookback()).add(query.span)
        if aggregate.algebra is not None:
            self._users.setdefault(aggregate.key, (aggregate, {}))[1][query.name] = None

    def remove(self, query: Query) -> None:
        """One less of those that were added."""
        name, aggregate, column = query.name, query.aggregate, query.aggregate.column
        if column is not None:
            _leave(self.columns, column, name)
        if query.per is not None:
            _leave(self.keys, query.per, name)
        self.timely.pop(name, None)
        if query.condition is not None:
            del self.filters[name]
            return
        del self.numbers[name]
        self._all.remove(query.span)
        if column is not None:
            self._lookbacks[column].remove(query.span)
            if not self._lookbacks[column]:
                del self._lookbacks[column]
        if aggregate.algebra is not None:
            names = self._users[aggregate.key][1]
            del names[name]
            if not names:
                del self._users[aggregate.key]


def _leave(who: dict[str, dict[str, None]], column: str, name: str) -> None:
    """Take a name from those that ask for a column."""
    del who[column][name]
    if not who[column]:
        del who[column]
