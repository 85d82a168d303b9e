"""What all queries of a stream need together, updated as queries come and go, so that a batch need not visit every query."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from lately.exact.queries import Query, Span
from lately.exact.user_function import UserFunction


class Lookback(NamedTuple):
    """How far back the windows over a column go: in arrivals, and in ticks with the newest one; 0 without such windows."""

    arrivals: int = 0
    ticks: int = 0


class LargestTracker:
    """The maximum of a multiset of numbers: O(log n) amortised for each addition and removal.

    The heap has each number once. A removed number stays in it until it reaches the top, or until half of the heap is removed.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []
        self._gone = 0  # numbers in the heap that were removed

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, number: int) -> None:
        """Add a number."""
        count = self._counts.get(number)
        if count is None:
            heappush(self._heap, -number)
        self._gone -= count == 0
        self._counts[number] = (count or 0) + 1

    def remove(self, number: int) -> None:
        """Remove a number that was added."""
        self._counts[number] -= 1
        self._gone += self._counts[number] == 0
        while self._heap and not self._counts[-self._heap[0]]:
            del self._counts[-heappop(self._heap)]
            self._gone -= 1
        if 2 * self._gone > len(self._heap):
            self._counts = {number: count for number, count in self._counts.items() if count}
            self._heap, self._gone = [-number for number in self._counts], 0
            heapify(self._heap)

    def largest(self, default: int) -> int:
        """The largest number, or ``default`` if there are no numbers."""
        return -self._heap[0] if self._heap else default


class LookbackTracker:
    """The lookback of a set of windows."""

    def __init__(self) -> None:
        self._ages = LargestTracker(), LargestTracker()  # of windows of arrivals, of windows of time

    @property
    def lookback(self) -> Lookback:
        """How far back the longest windows go."""
        arrivals, ticks = self._ages
        return Lookback(arrivals.largest(0), ticks.largest(0))

    def add(self, span: Span) -> None:
        """Add a window."""
        self._ages[span.by_time].add(span.older)

    def remove(self, span: Span) -> None:
        """Remove a window that was added."""
        self._ages[span.by_time].remove(span.older)

    def __bool__(self) -> bool:
        return any(self._ages)


class Requirements:
    """The queries for numbers, the filters, and what they read. Adding or removing one takes the same time among any number."""

    def __init__(self) -> None:
        self.numbers: dict[str, Query] = {}
        self.filters: dict[str, Query] = {}
        # The names of the queries that need a column, or times, for error messages: in the order in which they were added.
        self.columns: dict[str, dict[str, None]] = {}
        self.keys: dict[str, dict[str, None]] = {}
        self.timely: dict[str, None] = {}
        self._users: dict[tuple[object, ...], tuple[str, UserFunction, dict[str, None]]] = {}
        self._all = LookbackTracker()
        self._trackers: dict[str, LookbackTracker] = {}

    @property
    def user_functions(self) -> list[tuple[str, UserFunction]]:
        """The functions that users defined, each once for every column that it reads."""
        return [(column, function) for column, function, _ in self._users.values()]

    @property
    def lookback(self) -> Lookback:
        """How far back the queries for numbers go."""
        return self._all.lookback

    @property
    def lookbacks(self) -> dict[str, Lookback]:
        """How far back they go in each column that they read."""
        return {column: tracker.lookback for column, tracker in self._trackers.items()}

    def reads(self, column: str) -> bool:
        """Whether a query for a number reads a column."""
        return column in self._trackers

    def add(self, query: Query) -> None:
        """Add a query."""
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
            self._trackers.setdefault(column, LookbackTracker()).add(query.span)
        if isinstance(aggregate.function, UserFunction):
            self._users.setdefault(aggregate.key, (str(column), aggregate.function, {}))[2][query.name] = None

    def remove(self, query: Query) -> None:
        """Remove a query that was added."""
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
            self._trackers[column].remove(query.span)
            if not self._trackers[column]:
                del self._trackers[column]
        if aggregate.function.user_defined:
            *_, names = self._users[aggregate.key]
            del names[name]
            if not names:
                del self._users[aggregate.key]


def _leave(users: dict[str, dict[str, None]], column: str, name: str) -> None:
    """Remove a query's name from those that need a column."""
    del users[column][name]
    if not users[column]:
        del users[column]
