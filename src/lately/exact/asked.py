"""What all queries of a stream need together; worked out when they change, so that an update need not go through them."""

from collections.abc import Iterable
from typing import NamedTuple

from lately.exact.aggregates import Aggregate
from lately.exact.queries import Query, Span


class Reach(NamedTuple):
    """How far back the windows over a column go: in arrivals, and in ticks, the newest included (0 if there is none)."""

    arrivals: int = 0
    ticks: int = 0

    @classmethod
    def of(cls, spans: Iterable[Span]) -> "Reach":
        """The longest of some windows."""
        ages = [(span.by_time, span.older) for span in spans]
        in_arrivals, in_ticks = ([older for by_time, older in ages if by_time is kind] for kind in (False, True))
        return cls(max(in_arrivals, default=0), max(in_ticks, default=0))


class Asked:
    """The queries for numbers, the filters, and what they read."""

    def __init__(self, queries: Iterable[Query]) -> None:
        everyone = list(queries)
        self.numbers = tuple(query for query in everyone if query.condition is None)
        self.filters = tuple(query for query in everyone if query.condition is not None)
        self.names = tuple(query.name for query in self.numbers)
        # Who asks for a column, to tell a user who leaves it out; the first to ask is named.
        self.columns = {q.aggregate.column: q.name for q in reversed(everyone) if q.aggregate.column is not None}
        self.keys = {query.per: query.name for query in reversed(everyone) if query.per is not None}
        self.timely = next((query.name for query in everyone if query.span.by_time), None)
        own = {query.aggregate.key: query.aggregate for query in self.numbers if query.aggregate.algebra is not None}
        self.users: tuple[Aggregate, ...] = tuple(own.values())
        self.reach = Reach.of(query.span for query in self.numbers)
        spans: dict[str, list[Span]] = {}
        for query in self.numbers:
            if query.aggregate.column is not None:
                spans.setdefault(query.aggregate.column, []).append(query.span)
        self.reaches = {column: Reach.of(of) for column, of in spans.items()}
