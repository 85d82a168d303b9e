"""Exact windows over one stream that any number of queries share (SHARE).

    columns, times ──> in order? late? ──> ticks ──> columns ──> indexes ──> answers
                       sort if not         positions  values      R-INT, B-INT, L-INT, B-INT-QNT

Queries of the same aggregate over the same column share one index, whatever their windows are; all indexes over a column
share its values. An arrival that is late but not too late is put in its place: what came after it is taken off the end
and put back behind it.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import numpy as np

from lately.core import codec
from lately.core.answers import Answers
from lately.core.codec import Reader, Writer, storable
from lately.core.durations import Duration, Window
from lately.core.errors import FormatError, InputError, MergeError, ParameterError, QueryError
from lately.core.jit import tell_if_cold
from lately.core.times import instant_of, tick_of
from lately.exact import stored
from lately.exact.answer import Answer, WindowAnswers
from lately.exact.asked import Asked
from lately.exact.batches import NEVER, Batch, Stream, read_batch
from lately.exact.filters import Filters
from lately.exact.history import History
from lately.exact.lookups import Lookups
from lately.exact.operations import UserFunctionError, user_operation
from lately.exact.partial import Partial
from lately.exact.partials import Partials
from lately.exact.plans import Plans
from lately.exact.queries import Query, query_of, span_of

_TIMED = (None, False, True)


class _Explained(NamedTuple):
    query: str
    asks: str
    window: str
    algorithm: str
    shared_by: int
    why: str


@storable(11)
class Windows:
    """Any number of exact queries over the sliding windows of one stream, sharing their state.

    Register queries with ``add``, feed columns with ``update``, read ``w["name"]`` or ``w.answers()``. Memory is what the
    longest window of each column holds: 8 bytes an arrival for times, 8 for a column, 16 for its sums, 8 for its maxima; twice
    that for a column while it holds integers that no float is equal to.

    >>> import lately as lt
    >>> w = lt.Windows()
    >>> w.add("volume", lt.agg.sum("shares"), last="5m")
    >>> w.add("high", lt.agg.max("price"), between=("2m", "1m"))
    >>> w.add("busy", lt.agg.count() > 2, per="symbol", last="15m")
    >>> w.update({"price": [20.5, 21.0, 20.0], "shares": [100, 50, 30], "symbol": ["A", "B", "A"]}, [0, 30, 90])
    >>> w["volume"], w["high"].value, w["busy"].value.key
    (Answer(180, 3 rows), 21.0, [])
    """

    FAMILY: ClassVar[int]

    def __init__(self, *, tick: Duration = "1s", lateness: Duration | None = None) -> None:
        tell_if_cold()
        try:
            self._clock = Window.of(tick, tick)
        except ParameterError as error:
            raise ParameterError(
                f"tick={tick!r}: give a length of time such as '1s', or an integer if times are integers"
            ) from error
        self._history = History()
        try:
            self._history.lateness = 0 if lateness is None else self._clock.length(lateness)
        except ParameterError as error:
            raise ParameterError(f"lateness: {error}") from error
        if self._history.lateness < 0:
            raise ParameterError(f"lateness={lateness!r} is negative; give a length of time, such as '30s'")
        self._queries: dict[str, Query] = {}
        self._asked = Asked()
        # Queries for numbers for which nothing was arranged yet, by name: in the order in which they were added last, with the
        # query of that name for which something still is.
        self._changed: dict[str, Query | None] = {}
        self._plans = Plans()
        self._lookups = Lookups(self._history.ticks, self._history.columns)
        self._filters = Filters()
        self._timed: bool | None = None  # whether the stream has times; None before it begins
        self._known: tuple[str, ...] = ()  # the columns of the last batch
        self._late = 0

    # -- queries -------------------------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        what: Any,
        *,
        last: Any = None,
        between: Any = None,
        per: str | None = None,
        exact: bool = True,
        eps: float | None = None,
        using: str | None = None,
    ) -> None:
        """Register a query, before the stream begins or while it runs.

        Parameters
        ----------
        name
            By which its answer is read: ``w["name"]``.
        what
            An aggregate, such as ``lt.agg.avg("price")``; or with ``per`` a condition, such as ``lt.agg.count() > 1000``: the
            answer then is which substreams pass it.
        last
            The window: the most recent period, such as ``"5m"``, or a number of arrivals, ``lt.arrivals(1000)``.
        between
            Instead of ``last``, two ages, the older first: ``("2m", "1m")`` is the window that ended a minute ago.
        per
            The column with the keys of the substreams, for a condition. By default the query asks for one number.
        exact
            Of a condition: True (default) for exactly the substreams that pass, False for all of them and possibly some that
            miss the bound by a share of ``eps``, in less memory.
        eps
            The share of ``exact=False``, from 0.001 to below 1; 0.1 by default.
        using
            The algorithm, such as ``"L-INT"``. By default the planner chooses; ``explain`` shows which, and why.
        """
        if name in self._queries:
            raise ParameterError(f"there is a query named {name!r} already; drop it first, or give another name")
        query = query_of(name, what, span_of(self._clock, last, between), per=per, exact=exact, eps=eps, using=using)
        if query.span.by_time and self._timed is False:
            raise ParameterError(f"{name!r} has a window of time, but the stream came without times; use lt.arrivals(n)")
        for column in (query.aggregate.column, query.per):
            if column is not None and self._known and column not in self._known:
                raise ParameterError(f"{name!r} asks for the column {column!r}; the stream has {', '.join(self._known)}")
        if query.per is not None and self._history.lateness:
            raise ParameterError(f"{name!r} is a filter, which takes arrivals in order; build the Windows without lateness=")
        if query.aggregate.algebra is not None:
            user_operation(query.aggregate)
            self._history.check_narrow(str(query.aggregate.column), name)
        self._queries[name] = query
        self._asked.add(query)
        if query.condition is not None:
            self._filters.add(query, self._now, self._history.ticks.end)
            return
        self._changed[name] = self._changed.pop(name, None)
        if query.aggregate.algebra is not None:
            self._arrange_now(query)

    def drop(self, name: str) -> None:
        """Forget a query, and what only it needed."""
        query = self._query(name)
        del self._queries[name]
        self._asked.remove(query)
        if query.condition is not None:
            self._filters.drop(query)
        elif self._changed.setdefault(name, query) is None:
            del self._changed[name]  # it came and went

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of the registered queries, in the order in which they came."""
        return tuple(self._queries)

    def __contains__(self, name: object) -> bool:
        return name in self._queries

    def __len__(self) -> int:
        return len(self._queries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def explain(self) -> Answers[Any]:
        """Which algorithm serves each query, with how many others it shares it, and why.

        >>> import lately as lt
        >>> w = lt.Windows()
        >>> w.add("volume", lt.agg.sum("shares"), last="5m")
        >>> w.explain()
        query   asks           window   algorithm  shared_by  why
        volume  sum('shares')  last 5m  R-INT      1          it has an inverse
        """
        self._arranged()
        rows = [self._explained(query) for query in self._queries.values()]
        return Answers(_Explained, list(zip(*rows, strict=True)) if rows else [[]] * len(_Explained._fields))

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def update(self, columns: Any, times: Any = None) -> None:
        """Take a batch: columns by name (dict, Arrow, pandas, polars; a scalar is a column of one), and the time of each row.

        ``times`` may be the name of a column.
        Rows in any order are sorted by time. One older than what was seen, less ``lateness``, is refused and counted in
        ``late``. A stream without times has windows of arrivals only. A wrong batch is refused whole.
        """
        history, asked = self._history, self._arranged()
        floor = NEVER if history.now is None else history.now - history.lateness
        stream = Stream(self._clock, self._timed, history.ticks.end, floor)
        batch = read_batch(columns, times, asked, stream)
        for aggregate in asked.users:
            user_operation(aggregate).check(batch.columns[str(aggregate.column)], aggregate.kind, str(aggregate.column))
        self._filters.check(batch.columns)
        if batch.ticks.size:
            self._take(batch)
        self._known, self._timed = batch.names, times is not None
        self._late += batch.late

    def _take(self, batch: Batch) -> None:
        history, counts = self._history, self._lookups.counts
        try:
            history.take(batch, self._asked)
        except UserFunctionError as failure:
            raise InputError(
                f"the aggregate {failure.name!r} fails on these values together with those before them: {failure.error!r}; "
                "nothing of the batch is taken: mend lift or combine, or the values"
            ) from failure.error
        self._filters.update(batch.keys, batch.columns, batch.ticks)
        counts = self._lookups.counts
        if self._plans.due(history.ticks.end, counts.total):
            assert history.now is not None
            for of_class, choice in self._plans.again(counts, history.ticks, history.now):
                with suppress(UserFunctionError):  # a user's aggregate stays where it is if it fails on the way
                    self._lookups.move(list(of_class.queries.values()), choice.algorithm)
                    of_class.choice = choice
            counts.clear()

    def advance(self, time: Any) -> None:
        """Let time pass without an arrival: windows of time move on. Going back does nothing."""
        if time is None:
            raise InputError("advance(None); give the time to advance to")
        if self._timed is False:
            raise ParameterError("the stream came without times; it moves with its arrivals only")
        tick = tick_of(time, self._clock)
        self._arranged()  # a query that was just added has seen all from now on, not from then on
        self._timed = True
        self._history.now = tick if self._now is None else max(self._now, tick)
        self._filters.advance(self._history.now)

    @property
    def now(self) -> datetime | np.datetime64 | int | None:
        """The newest time seen or advanced to, cut to its tick; without times, the number of the newest arrival."""
        return None if self._now is None else instant_of(self._now, self._clock) if self._timed else self._now

    @property
    def late(self) -> int:
        """How many arrivals came too late to be taken."""
        return self._late

    @property
    def nbytes(self) -> int:
        """The bytes that the state takes in memory."""
        self._arranged()
        return self._history.nbytes + self._filters.nbytes

    # -- answers -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Answer:
        """The answer of one query, now."""
        query = self._query(name)
        if query.condition is not None:
            return self._filters.answer(query, self._now)
        self._arranged()
        return WindowAnswers((name,), self._lookups.find(self._now, name)).at(0)

    def answers(self) -> WindowAnswers:
        """The answers of all queries, now, in one pass."""
        asked = self._arranged()
        answers = WindowAnswers(tuple(asked.numbers), self._lookups.find(self._now))
        filters = {name: self._filters.answer(query, self._now) for name, query in asked.filters.items()}
        return answers.with_others(filters, self.queries)

    def partials(self, names: Iterable[str] | None = None) -> Partials:
        """What this site contributes to each query, or to some, to be combined with the partials of others at the same moment.

        Windows of arrivals do not combine, and approximate filters have no partials: leave them out by naming the others.

        >>> import lately as lt
        >>> w = lt.Windows()
        >>> w.add("high", lt.agg.max("x"), last="1m")
        >>> w.update({"x": [3, 5]}, 100)
        >>> (w.partials() | w.partials())["high"]
        Answer(5, 4 rows)
        """
        self._arranged()
        queries = [self._query(name) for name in (self.queries if names is None else names)]
        return Partials(self._clock, self._now, queries, [self._partial(query) for query in queries])

    def _partial(self, query: Query) -> Partial:
        if query.condition is not None:
            return self._filters.partial(query, self._now)
        found = self._lookups.find(self._now, query.name)
        rows, missing, covered = int(found.rows[0]), int(found.missing[0]), float(found.covered[0])
        state = rows - missing if query.aggregate.kind == "count" else self._lookups.state(query, self._now)
        return Partial(state, rows, missing, covered, bool(found.integer[0]))

    def __repr__(self) -> str:
        held = self._history.ticks.end - self._history.ticks.first
        return f"Windows({len(self)} queries, now={self.now}, {held:_} arrivals held)"

    def _repr_html_(self) -> str:
        return self.answers()._repr_html_()

    def _merge(self, others: Any) -> NoReturn:
        raise MergeError("Windows are not merged; combine what they contribute: lt.merge([w.partials() for w in sites])")

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The queries and what their windows hold as bytes; ``lt.from_bytes`` reads it back.

        Aggregates of your own are stored by name: define them with ``lt.agg.custom`` before reading.
        """
        return codec.to_bytes(self)

    def copy(self) -> Self:
        """An independent copy."""
        twin: Self = codec.from_trusted_bytes(self.to_bytes())
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return codec.from_trusted_bytes, (self.to_bytes(),)

    def _write(self, out: Writer) -> None:
        self._arranged()
        out.u8(self._clock.kind == "time")
        out.u64(self._clock.unit)
        out.u64(self._history.lateness)
        out.u8(_TIMED.index(self._timed))
        out.maybe(self._now)
        out.u64(self._late)
        out.u64(self._history.ticks.end)
        out.varint(len(self._known))
        for name in self._known:
            out.text(name)
        stored.write_queries(out, self._queries.values())
        self._history.write(out)
        stored.write_filters(out, self._filters, self._now)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        windows = cls()
        kind: Literal["time", "integer"] = "time" if source.choice(0, 1) else "integer"
        windows._clock = Window(kind, 1, source.within(source.u64(), 1, 2**63 - 1))
        windows._history.lateness = source.within(source.u64(), 0, 2**62)
        windows._timed = _TIMED[source.choice(0, 1, 2)]
        windows._history.now = source.maybe(-(2**62), 2**62)
        windows._late = source.within(source.u64(), 0, 2**62)
        end = source.within(source.u64(), 0, 2**62)
        source.check(end == 0 or windows._now is not None, "arrivals before time began")
        windows._known = tuple(source.text() for _ in range(source.varint()))
        for query in stored.read_queries(source):
            windows._queries[query.name] = query
            windows._asked.add(query)
            if query.condition is None:
                windows._changed[query.name] = None
        windows._restore(source, end)
        return windows

    def _restore(self, source: Reader, end: int) -> None:
        """Read the history and the filters of the queries, and lay the indexes."""
        self._history.read(source, end, self._asked)
        self._lookups = Lookups(self._history.ticks, self._history.columns)
        self._plans.at = end
        try:
            self._arranged()
        except UserFunctionError as failure:  # on values that nobody checked
            raise FormatError(
                f"not a sketch that lately wrote: the aggregate {failure.name!r} fails on its values ({failure.error!r})"
            ) from failure.error
        for query in self._asked.filters.values():
            source.check(self._history.lateness == 0, "a filter beside lateness")
            self._filters.add(query, self._now, end)
        stored.read_filters(source, self._filters, self._now)

    # -- inside: queries -----------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int | None:
        return self._history.now

    def _query(self, name: str) -> Query:
        if name not in self._queries:
            known = ", ".join(self._queries) or "none"
            raise QueryError(f"there is no query named {name!r}; registered: {known}")
        return self._queries[name]

    def _arranged(self) -> Asked:
        """What the queries need; for those that have changed, columns, algorithms and indexes are arranged first."""
        if self._changed:
            numbers = self._asked.numbers
            new = [numbers[name] for name in self._changed if name in numbers]
            gone = [query for query in self._changed.values() if query is not None]
            self._history.keep(query.aggregate.column for query in new)
            for query in new:
                self._plans.add(query)
            self._lookups.change(gone, [(query, self._plans.choice(query).algorithm) for query in new])
            for query in gone:
                self._plans.remove(query)
            self._history.drop(query.aggregate.column for query in gone if not self._asked.reads(str(query.aggregate.column)))
            self._changed = {}
        return self._asked

    def _arrange_now(self, query: Query) -> None:
        """Arrange for a query that was just added; if a user's function fails on what its column holds, take it back."""
        name = query.name
        try:
            self._arranged()
        except BaseException as error:
            del self._queries[name]
            self._asked.remove(query)
            self._plans.remove(query)
            if self._changed[name] is None:
                del self._changed[name]
            if isinstance(error, UserFunctionError):
                raise InputError(
                    f"{name!r} is not added: {query.aggregate} fails on what its column holds: {error.error!r}; "
                    "mend lift or combine"
                ) from error.error
            raise

    def _explained(self, query: Query) -> _Explained:
        window = query.span.text(self._clock)
        if query.condition is not None:
            algorithm, shared, why = self._filters.explain(query)
            return _Explained(query.name, query.text, window, algorithm, shared, why)
        choice = self._plans.choice(query)
        why = choice.why
        if query.aggregate.algebra is not None:
            why += f"; {user_operation(query.aggregate).how}"
        return _Explained(query.name, query.text, window, choice.algorithm, self._lookups.shares(query), why)
