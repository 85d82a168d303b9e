"""The queries for numbers of a stream: which algorithm and which index serves each, and their answers.

Adding or dropping a query only notes the change. Columns and indexes follow when they are needed next, so that a thousand
queries that are added one after the other cost one pass.
"""

from contextlib import suppress

from lately.core.errors import InputError
from lately.exact.answer import LookupResult
from lately.exact.history import History
from lately.exact.lookups import Lookups
from lately.exact.operations import UserFunctionError
from lately.exact.partial import Partial
from lately.exact.plans import Plans
from lately.exact.queries import Query
from lately.exact.requirements import Requirements
from lately.exact.user_function import UserFunction


class NumberQueries:
    """Queries for numbers over the history of one stream."""

    def __init__(self, history: History, requirements: Requirements) -> None:
        self._history, self._requirements = history, requirements
        # Names of queries that have changed since indexes were arranged, in the order of their last addition. Each with the
        # query of that name that indexes still serve, or None.
        self._changed: dict[str, Query | None] = {}
        self._plans = Plans(history.ticks.end)
        self._lookups = Lookups(history.ticks, history.columns)

    def add(self, query: Query) -> None:
        """Note a query that was just added to the requirements."""
        self._changed[query.name] = self._changed.pop(query.name, None)

    def drop(self, query: Query) -> None:
        """Note that a query was just removed from the requirements."""
        if self._changed.setdefault(query.name, query) is None:
            del self._changed[query.name]  # nothing had been arranged for it

    def arrange(self) -> None:
        """Bring columns, algorithms and indexes up to date with the queries that have changed."""
        if not self._changed:
            return
        history, requirements = self._history, self._requirements
        new = [requirements.numbers[name] for name in self._changed if name in requirements.numbers]
        gone = [query for query in self._changed.values() if query is not None]
        history.keep(query.aggregate.column for query in new)
        for query in new:
            self._plans.add(query)
        self._lookups.change(gone, [(query, self._plans.choice(query).algorithm) for query in new])
        for query in gone:
            self._plans.remove(query)
        columns = (query.aggregate.column for query in gone)
        history.drop(column for column in columns if not requirements.reads(str(column)))
        self._changed = {}

    def arrange_or_undo(self, query: Query) -> None:
        """Build the index of a user's aggregate that was just added; if a function fails on the column's values, undo it.

        The caller undoes its own part when this raises.
        """
        try:
            self.arrange()
        except BaseException as error:
            self._requirements.remove(query)
            self._plans.remove(query)
            if self._changed[query.name] is None:
                del self._changed[query.name]
            if isinstance(error, UserFunctionError):
                raise InputError(
                    f"{query.name!r} is not added: {query.aggregate} fails on the values of its column: {error.error!r}",
                    remedy="correct lift or combine",
                ) from error.error
            raise

    def choose_again(self) -> None:
        """Choose algorithms again if enough arrivals and lookups have passed since the last choice."""
        history, counts = self._history, self._lookups.counts
        if not self._plans.due(history.ticks.end, counts.total):
            return
        assert history.now is not None
        for width_class, choice in self._plans.again(counts, history.ticks, history.now):
            with suppress(UserFunctionError):  # if the function fails while the new index is built, the old one stays
                self._lookups.move(list(width_class.queries.values()), choice.algorithm)
                width_class.choice = choice
        counts.clear()

    def find(self, only: str | None = None) -> LookupResult:
        """The answers of all queries, or of one."""
        self.arrange()
        return self._lookups.find(self._history.now, only)

    def partial(self, query: Query) -> Partial:
        """The contribution of this stream to a query."""
        result = self.find(query.name)
        rows, missing, covered = int(result.rows[0]), int(result.missing[0]), float(result.covered[0])
        needs_values = query.aggregate.function.needs_values
        state = self._lookups.state(query, self._history.now) if needs_values else rows - missing
        return Partial(state, rows, missing, covered, bool(result.integer[0]))

    def explain(self, query: Query) -> tuple[str, int, str]:
        """The algorithm of a query, how many queries share its index, and the reason."""
        choice, function = self._plans.choice(query), query.aggregate.function
        why = f"{choice.why}; {function.operation.how}" if isinstance(function, UserFunction) else choice.why
        return choice.algorithm, self._lookups.shares(query), why
