"""Exact windows over one stream that any number of queries share (SHARE).

    columns, times ──> in order? late? ──> ticks ──> columns ──> indexes ──> answers
                       sort if not         positions  values      R-INT, B-INT, L-INT, B-INT-QNT

Queries of the same aggregate over the same column share one index, whatever their windows are. All indexes over a column
share its values. A late arrival within ``lateness`` is inserted in time order: the newer arrivals are removed from the end
of the columns and appended again after it.
"""

from collections.abc import Iterable, Iterator
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
from lately.exact.batches import NEVER, Batch, Stream, read_batch
from lately.exact.filters import Filters
from lately.exact.history import History
from lately.exact.number_queries import NumberQueries
from lately.exact.operations import UserFunctionError
from lately.exact.partial import Partial
from lately.exact.partials import Partials
from lately.exact.queries import Query, clock_of, query_of, span_of
from lately.exact.requirements import Requirements
from lately.exact.user_function import UserFunction

_TIMED = (None, False, True)


class _Explained(NamedTuple):
    """A row of ``Windows.explain``."""

    query: str
    asks: str
    window: str
    algorithm: str
    shared_by: int
    why: str


@storable(11)
class Windows:
    """Exact answers for any number of queries over sliding windows of one stream; queries share their state.

    Register queries with ``add``, give it columns with ``update``, read ``w["name"]`` or ``w.answers()``. Each arrival in the
    longest window takes 8 bytes for its time, 8 for each column, 16 for the sums of a column and 8 for its maxima; twice
    that for a column while it holds integers beyond 2**53 that no float is equal to.

    Parameters
    ----------
    tick
        The time resolution: a length of time, or an integer if times are integers. One second by default.
    lateness
        How long after newer arrivals an arrival is still counted, as a length of time. By default it is not: an arrival that
        is older than the newest one is counted in ``late`` only. Filters (``per=``) need the default.

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
        self._clock, ticks_late = clock_of(tick, lateness)
        self._history = History()
        self._history.lateness = ticks_late
        self._queries: dict[str, Query] = {}
        self._requirements = Requirements()
        self._numbers = NumberQueries(self._history, self._requirements)
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
            raise ParameterError(f"there is a query named {name!r} already", remedy="drop it first, or give another name")
        query = query_of(name, what, span_of(self._clock, last, between), per=per, exact=exact, eps=eps, using=using)
        if query.span.by_time and self._timed is False:
            raise ParameterError(
                f"{name!r} has a window of time, but the stream came without times", remedy="use lt.arrivals(n)"
            )
        for column in (query.aggregate.column, query.per):
            if column is not None and self._known and column not in self._known:
                raise ParameterError(
                    f"{name!r} asks for the column {column!r}", remedy=f"the stream has {', '.join(self._known)}"
                )
        if query.per is not None and self._history.lateness:
            raise ParameterError(
                f"{name!r} is a filter, which takes arrivals in order", remedy="build the Windows without lateness="
            )
        function = query.aggregate.function
        if isinstance(function, UserFunction):
            _ = function.operation  # compile it now, not at the first arrival
            self._history.check_narrow(str(query.aggregate.column), name)
        self._queries[name] = query
        self._requirements.add(query)
        if query.condition is not None:
            self._filters.add(query, self._now, self._history.ticks.end)
            return
        self._numbers.add(query)
        if function.user_defined:
            try:
                self._numbers.arrange_or_undo(query)
            except BaseException:
                del self._queries[name]
                raise

    def drop(self, name: str) -> None:
        """Drop a query and the state that only this query needs.

        Parameters
        ----------
        name
            The name that was given to ``add``.
        """
        query = self._query(name)
        del self._queries[name]
        self._requirements.remove(query)
        if query.condition is not None:
            self._filters.drop(query)
        else:
            self._numbers.drop(query)

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of the registered queries, in the order in which they were added."""
        return tuple(self._queries)

    def __contains__(self, name: object) -> bool:
        return name in self._queries

    def __len__(self) -> int:
        return len(self._queries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def explain(self) -> Answers[Any]:
        """For each query its algorithm, the number of queries that share its index, and the reason for the choice.

        >>> import lately as lt
        >>> w = lt.Windows()
        >>> w.add("volume", lt.agg.sum("shares"), last="5m")
        >>> w.explain()
        query   asks           window   algorithm  shared_by  why
        volume  sum('shares')  last 5m  R-INT      1          it has an inverse
        """
        self._numbers.arrange()
        rows = [self._explained(query) for query in self._queries.values()]
        return Answers(_Explained, list(zip(*rows, strict=True)) if rows else [[]] * len(_Explained._fields))

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def update(self, columns: Any, times: Any = None) -> None:
        """Count a batch of arrivals. If anything in it is invalid, it is rejected as a whole and nothing changes.

        Rows are sorted by time. A row that is older than the newest one by more than ``lateness`` is counted in ``late`` only.

        Parameters
        ----------
        columns
            Columns by name: a dict, an Arrow table, a pandas or polars frame. A scalar is a column of one row.
        times
            The time of each row: one value, a column, or the name of a column. By default the stream has no times, and its
            windows are windows of arrivals.
        """
        self._numbers.arrange()
        history, requirements = self._history, self._requirements
        floor = NEVER if history.now is None else history.now - history.lateness
        stream = Stream(self._clock, self._timed, history.ticks.end, floor)
        batch = read_batch(columns, times, requirements, stream)
        for column, function in requirements.user_functions:
            function.operation.check(batch.columns[column], function.name, column)
        self._filters.check(batch.columns)
        if batch.ticks.size:
            self._take(batch)
        self._known, self._timed = batch.names, times is not None
        self._late += batch.late

    def _take(self, batch: Batch) -> None:
        try:
            self._history.take(batch, self._requirements)
        except UserFunctionError as failure:
            raise InputError(
                f"the aggregate {failure.name!r} fails on these values together with those before them: {failure.error!r}; "
                "nothing of the batch is counted",
                remedy="correct lift or combine, or the values",
            ) from failure.error
        self._filters.update(batch.keys, batch.columns, batch.ticks)
        self._numbers.choose_again()

    def advance(self, time: Any) -> None:
        """Move windows of time on without an arrival.

        Parameters
        ----------
        time
            The new time, as ``update`` takes it. A time that is not after ``now`` changes nothing.
        """
        if time is None:
            raise InputError("advance(None)", remedy="give the time to advance to")
        if self._timed is False:
            raise ParameterError("the stream came without times", remedy="it moves with its arrivals only")
        tick = tick_of(time, self._clock)
        self._numbers.arrange()  # a query that was just added covers the time from now on, before time moves
        self._timed = True
        self._history.now = tick if self._now is None else max(self._now, tick)
        self._filters.advance(self._history.now)

    @property
    def now(self) -> datetime | np.datetime64 | int | None:
        """The newest time, rounded down to its tick; without times, the number of the newest arrival."""
        return None if self._now is None else instant_of(self._now, self._clock) if self._timed else self._now

    @property
    def late(self) -> int:
        """The number of arrivals that were too late to be counted."""
        return self._late

    @property
    def nbytes(self) -> int:
        """The bytes that the state takes in memory."""
        self._numbers.arrange()
        return self._history.nbytes + self._filters.nbytes

    # -- answers -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Answer:
        """The answer of one query at ``now``."""
        query = self._query(name)
        if query.condition is not None:
            return self._filters.answer(query, self._now)
        return WindowAnswers((name,), self._numbers.find(name)).at(0)

    def answers(self) -> WindowAnswers:
        """The answers of all queries at ``now``, computed in one pass."""
        answers = WindowAnswers(tuple(self._requirements.numbers), self._numbers.find())
        filters = {name: self._filters.answer(query, self._now) for name, query in self._requirements.filters.items()}
        return answers.with_others(filters, self.queries)

    def partials(self, names: Iterable[str] | None = None) -> Partials:
        """The partial results of this site, to be combined with those of other sites at the same time.

        Parameters
        ----------
        names
            The queries to include; all by default. Windows of arrivals and approximate filters have no partial results: name
            the other queries if there are any.

        >>> import lately as lt
        >>> w = lt.Windows()
        >>> w.add("high", lt.agg.max("x"), last="1m")
        >>> w.update({"x": [3, 5]}, 100)
        >>> (w.partials() | w.partials())["high"]
        Answer(5, 4 rows)
        """
        self._numbers.arrange()
        queries = [self._query(name) for name in (self.queries if names is None else names)]
        return Partials(self._clock, self._now, queries, [self._partial(query) for query in queries])

    def _partial(self, query: Query) -> Partial:
        if query.condition is not None:
            return self._filters.partial(query, self._now)
        return self._numbers.partial(query)

    def __repr__(self) -> str:
        stored = self._history.ticks.end - self._history.ticks.first
        return f"Windows({len(self)} queries, now={self.now}, {stored:_} arrivals stored)"

    def _repr_html_(self) -> str:
        return self.answers()._repr_html_()

    def _merge(self, others: Any) -> NoReturn:
        raise MergeError(
            "Windows are not merged", remedy="combine their partial results: lt.merge([w.partials() for w in sites])"
        )

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The queries and the contents of their windows as bytes; ``lt.from_bytes`` reads them.

        Custom aggregates are stored by name: define them with ``lt.agg.custom`` before reading.
        """
        return codec.to_bytes(self)

    def copy(self) -> Self:
        """An independent copy."""
        twin: Self = codec.from_trusted_bytes(self.to_bytes())
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return codec.from_trusted_bytes, (self.to_bytes(),)

    def _write(self, out: Writer) -> None:
        self._numbers.arrange()
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
            windows._requirements.add(query)
        windows._restore(source, end)
        return windows

    def _restore(self, source: Reader, end: int) -> None:
        """Read the history and the filters of the queries, and rebuild the indexes."""
        self._history.read(source, end, self._requirements)
        self._numbers = NumberQueries(self._history, self._requirements)
        for query in self._requirements.numbers.values():
            self._numbers.add(query)
        try:
            self._numbers.arrange()
        except UserFunctionError as failure:  # on values that nothing has checked yet
            raise FormatError(
                f"not a sketch that lately wrote: the aggregate {failure.name!r} fails on its values ({failure.error!r})"
            ) from failure.error
        for query in self._requirements.filters.values():
            source.check(self._history.lateness == 0, "a filter beside lateness")
            self._filters.add(query, self._now, end)
        stored.read_filters(source, self._filters, self._now)

    # -- inside: queries -----------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int | None:
        return self._history.now

    def _query(self, name: str) -> Query:
        if name not in self._queries:
            raise QueryError(
                f"there is no query named {name!r}", remedy=f"the registered ones are: {', '.join(self._queries) or 'none'}"
            )
        return self._queries[name]

    def _explained(self, query: Query) -> _Explained:
        window = query.span.text(self._clock)
        explained = self._filters if query.condition is not None else self._numbers
        return _Explained(query.name, query.text, window, *explained.explain(query))
