"""Partial results: the contribution of one site to each query, to be combined with those of other sites.

A site sends states instead of arrivals: a count, a sum as a fraction, a maximum, for quantiles the sorted values of the window,
for filters the aggregate of each substream. Combined in any order, they give the answers that one ``Windows`` over the arrivals
of all sites would have given at the same time.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Self

import numpy as np

from lately.core import codec
from lately.core.answers import Answers
from lately.core.codec import Reader, Writer, storable
from lately.core.durations import Window
from lately.core.errors import MergeError, QueryError
from lately.core.keys import hash_keys
from lately.core.stored_keys import read_keys, write_keys
from lately.core.times import instant_of
from lately.exact.algebra import lower_value
from lately.exact.answer import Answer, KeyValue
from lately.exact.filter_kinds import FILTER_KINDS, FilterKind
from lately.exact.partial import Partial
from lately.exact.queries import Query
from lately.exact.stored import read_queries, write_queries
from lately.exact.wide import is_wide, of_list

_FAR = 2**62
_WIDE = 2  # a flag beside whether values came as integers: whether the state holds one that no float is equal to


@storable(12)
class Partials:
    """The partial results of queries at one time, made by ``Windows.partials``.

    ``a | b`` and ``lt.merge([...])`` combine those of several sites, which must have the same queries and the same time.

    Parameters
    ----------
    clock
        The ticks of the ``Windows``.
    now
        The tick at which the partial results were taken; None before the first arrival.
    queries
        The queries.
    parts
        Their partial results in the same order.

    >>> import lately as lt
    >>> sites = [lt.Windows() for _ in range(2)]
    >>> for site, values in zip(sites, ([1.0, 2.0], [6.0])):
    ...     site.add("mean", lt.agg.avg("x"), last="1m")
    ...     site.update({"x": values}, 100)
    >>> lt.merge([site.partials() for site in sites])["mean"]
    Answer(3.0, 3 rows)
    """

    FAMILY: ClassVar[int]

    def __init__(self, clock: Window, now: int | None, queries: Sequence[Query], parts: Sequence[Partial]) -> None:
        self._clock, self._now = clock, now
        self._queries = {query.name: query for query in queries}
        self._parts = dict(zip(self._queries, parts, strict=True))

    @property
    def now(self) -> datetime | np.datetime64 | int | None:
        """The time at which the partial results were taken."""
        return None if self._now is None else instant_of(self._now, self._clock)

    def __getitem__(self, name: str) -> Answer:
        """The answer of one query over all sites that were combined."""
        if name not in self._queries:
            names = ", ".join(self._queries) or "none"
            raise QueryError(f"there is no query named {name!r}", remedy=f"the queries are: {names}")
        query, part = self._queries[name], self._parts[name]
        if part.covered < 1:
            return Answer(None, part.rows, part.missing, part.covered)
        if query.condition is not None:
            return _members(query, part)
        aggregate = query.aggregate
        has_answer = part.rows > part.missing or not aggregate.function.needs_values
        value = aggregate.function.answer(part.state, integer=part.integer) if has_answer else None
        if value is not None and value != value:
            value = None
        return Answer(value, part.rows, part.missing, part.covered)

    def answers(self) -> Mapping[str, Answer]:
        """The answers of all queries over all sites that were combined."""
        return {name: self[name] for name in self._queries}

    def __repr__(self) -> str:
        return f"Partials({', '.join(self._queries)}; now={self.now})"

    def __or__(self, other: Self) -> Self:
        return self._merge([other])

    def _merge(self, others: Sequence[Any]) -> Self:
        for other in others:
            self._must_agree(other)
        merged = []
        for name, query in self._queries.items():
            parts = [self._parts[name], *(other._parts[name] for other in others)]
            while len(parts) > 1:  # in pairs of neighbours, so that each value of a growing state is copied log(n) times
                pairs = [_combined(query, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
                parts = pairs + parts[2 * len(pairs) :]
            merged.append(parts[0])
        return type(self)(self._clock, self._now, list(self._queries.values()), merged)

    def _must_agree(self, other: Any) -> None:
        if not isinstance(other, Partials):
            raise MergeError(
                f"cannot combine Partials with {type(other).__name__}", remedy="give results of Windows.partials()"
            )
        if other._clock != self._clock:
            raise MergeError(
                f"cannot combine: ticks are {self._clock!r} in one and {other._clock!r} in another",
                remedy="build all Windows with the same tick=",
            )
        if other._now != self._now:
            raise MergeError(
                f"cannot combine partial results of {self.now} with those of {other.now}: windows end at different times",
                remedy="advance() all sites to one time, then take their partials",
            )
        for name in self._queries.keys() | other._queries.keys():
            ours, theirs = self._queries.get(name), other._queries.get(name)
            if ours is None or theirs is None or not _alike(ours, theirs):
                texts = [None if q is None else f"{q.text}, {q.span.text(self._clock)}" for q in (ours, theirs)]
                raise MergeError(
                    f"cannot combine: the query {name!r} is {texts[0]} in one and {texts[1]} in another",
                    remedy="add the same query to all sites",
                )
            if not ours.span.by_time:
                raise MergeError(
                    f"the query {name!r} has a window of arrivals, and partial results do not tell which arrivals of several "
                    "sites are the last ones",
                    remedy="use a window of time, such as last='5m', or leave the query out: w.partials([names of the others])",
                )

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The partial results as bytes; ``lt.from_bytes`` reads them. Custom aggregates must have states of numbers."""
        return codec.to_bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return codec.from_trusted_bytes, (self.to_bytes(),)

    def _write(self, out: Writer) -> None:
        out.u8(self._clock.kind == "time")
        out.u64(self._clock.unit)
        out.maybe(self._now)
        write_queries(out, self._queries.values())
        for query, part in zip(self._queries.values(), self._parts.values(), strict=True):
            out.u64(part.rows)
            out.u64(part.missing)
            out.f64(part.covered)
            if query.condition is not None:
                out.u8(part.integer)
                _write_substreams(out, part.state)
                continue
            function = query.aggregate.function
            wide = function.state_holds_values and _is_wide(part.state)
            out.u8(part.integer + _WIDE * wide)
            function.write_state(out, part.state, wide)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        clock = Window("time" if source.choice(0, 1) else "integer", 1, source.within(source.u64(), 1, 2**63 - 1))
        now = source.maybe(-_FAR, _FAR)
        queries = read_queries(source)
        parts = []
        for query in queries:
            rows = source.within(source.u64(), 0, _FAR)
            missing = source.within(source.u64(), 0, rows)
            covered = source.f64()
            source.check(0 <= covered <= 1, "a share that is not between 0 and 1")
            flags = source.choice(*range(4))
            wide = bool(flags & _WIDE)
            function = query.aggregate.function
            source.check(
                not wide or (query.condition is None and function.state_holds_values),
                "a state without values marked as having large ones",
            )
            state: Any
            if query.condition is not None:
                state = _read_substreams(source, FILTER_KINDS[query.aggregate.kind])
            else:
                state = function.read_state(source, rows - missing, wide)
            parts.append(Partial(state, rows, missing, covered, bool(flags & 1)))
        return cls(clock, now, queries, parts)


def _alike(a: Query, b: Query) -> bool:
    """Whether two sites have the same query: by definition, not by identity."""
    return _definition(a) == _definition(b)


def _definition(query: Query) -> tuple[Any, ...]:
    function = query.aggregate.function
    return query.text, function.name, function.parameter, query.span, query.per, query.eps


def _combined(query: Query, a: Partial, b: Partial) -> Partial:
    if query.condition is not None:
        state: Any = _combined_substreams(FILTER_KINDS[query.aggregate.kind], a.state, b.state)
    else:
        state = query.aggregate.function.algebra.combine(a.state, b.state)
    return Partial(state, a.rows + b.rows, a.missing + b.missing, min(a.covered, b.covered), a.integer and b.integer)


def _combined_substreams(kind: FilterKind, a: Mapping[Any, float], b: Mapping[Any, float]) -> dict[Any, float]:
    """The aggregates of the substreams of two sites."""
    combined = dict(a)
    for key, value in b.items():
        combined[key] = kind.combine(combined[key], value) if key in combined else value
    return combined


def _members(query: Query, part: Partial) -> Answer:
    """The keys whose combined aggregate passes a filter, the largest first (the smallest of a minimum)."""
    assert query.condition is not None
    low, high, kind = query.condition.low, query.condition.high, FILTER_KINDS[query.aggregate.kind]
    sign = 1 if kind.ascending else -1
    members = sorted(
        ((key, value) for key, value in part.state.items() if low <= value <= high), key=lambda pair: sign * pair[1]
    )
    values = np.array([value for _, value in members], np.int64 if kind.integer else np.float64)
    return Answer(Answers(KeyValue, [[key for key, _ in members], values]), len(members))


def _write_substreams(out: Writer, state: Mapping[Any, float]) -> None:
    """Write the aggregates of substreams in the order of their keys' hashes."""
    keys = list(state)
    order = np.argsort(hash_keys(keys)).tolist() if keys else []
    write_keys(out, [keys[i] for i in order])
    out.f64s(np.array([float(state[keys[i]]) for i in order]))


def _read_substreams(source: Reader, kind: FilterKind) -> dict[Any, float]:
    keys, values = read_keys(source), source.f64s()
    source.check(len(keys) == values.size and not np.isnan(values).any(), "not one number for each key")
    counts = (values >= 0) & (values < _FAR) & (np.floor(values) == values)
    source.check(not kind.integer or bool(counts.all()), "a count that is not a whole number")
    return dict(zip(keys, values.tolist(), strict=True))


def _is_wide(state: Any) -> bool:
    """Whether a state holds an integer that no float is equal to."""
    if isinstance(state, np.ndarray):
        return is_wide(state)
    value = lower_value(state)
    return type(value) is int and is_wide(of_list([value], "state"))
