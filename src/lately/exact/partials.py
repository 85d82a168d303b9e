"""Partial results: what one site contributes to each query, to be combined with what others do.

A site sends states instead of arrivals: a count, a sum as a fraction, a maximum, for quantiles the sorted values of the window,
for filters the aggregate of each substream. They combine in any order to what one Windows over all sites would have
answered at the same moment.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from lately.core import codec
from lately.core.answers import Answers
from lately.core.codec import Reader, Writer, storable
from lately.core.durations import Window
from lately.core.errors import LatelyError, MergeError, QueryError
from lately.core.keys import hash_keys
from lately.core.stored_keys import read_keys, write_keys
from lately.core.times import instant_of
from lately.exact.algebra import Moments, Seen
from lately.exact.answer import Answer, KeyValue
from lately.exact.partial import Partial
from lately.exact.queries import Query
from lately.exact.stored import read_pairs, read_queries, write_pairs, write_queries
from lately.exact.wide import is_wide, number, of_list

_SUMS = ("sum", "avg", "variance", "stddev")
_FAR = 2**62
_WIDE = 2  # beside whether values came as integers: whether the state holds one that no float is equal to


@storable(12)
class Partials:
    """The partial results of all queries at one moment. ``a | b`` and ``lt.merge([...])`` combine those of several sites.

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
        """The moment at which the partials were taken."""
        return None if self._now is None else instant_of(self._now, self._clock)

    def __getitem__(self, name: str) -> Answer:
        """The answer of one query over all that was combined."""
        if name not in self._queries:
            raise QueryError(f"there is no query named {name!r}; there are: {', '.join(self._queries) or 'none'}")
        query, part = self._queries[name], self._parts[name]
        if part.covered < 1:
            return Answer(None, part.rows, part.missing, part.covered)
        if query.condition is not None:
            return _members(query, part)
        numbers = part.rows - part.missing
        aggregate = query.aggregate
        value = (
            numbers if aggregate.kind == "count" else aggregate.answer(part.state, integer=part.integer) if numbers else None
        )
        if value is not None and value != value:
            value = None
        return Answer(value, part.rows, part.missing, part.covered)

    def answers(self) -> Mapping[str, Answer]:
        """The answers of all queries over all that was combined."""
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
            while len(parts) > 1:  # neighbours in pairs, so that states that grow are copied log(n) times each, not n
                pairs = [_combined(query, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
                parts = pairs + parts[2 * len(pairs) :]
            merged.append(parts[0])
        return type(self)(self._clock, self._now, list(self._queries.values()), merged)

    def _must_agree(self, other: Any) -> None:
        if not isinstance(other, Partials):
            raise MergeError(f"cannot combine Partials with {type(other).__name__}; give what Windows.partials() gave")
        if other._clock != self._clock:
            raise MergeError(f"cannot combine: ticks are {self._clock!r} in one and {other._clock!r} in another; build alike")
        if other._now != self._now:
            raise MergeError(
                f"cannot combine what was seen at {self.now} with what was seen at {other.now}: windows end at different "
                "times; advance() all sites to one time, then take their partials"
            )
        for name in self._queries.keys() | other._queries.keys():
            one, two = self._queries.get(name), other._queries.get(name)
            if one is None or two is None or not _alike(one, two):
                asks = [None if q is None else f"{q.text}, {q.span.text(self._clock)}" for q in (one, two)]
                raise MergeError(f"cannot combine: the query {name!r} is {asks[0]} in one and {asks[1]} in another; add alike")
            if not one.span.by_time:
                raise MergeError(
                    f"the query {name!r} has a window of arrivals: which of two sites' arrivals are the last overall is in "
                    "neither; use a window of time, such as last='5m', or leave it out: w.partials([names of the others])"
                )

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The states as bytes; ``lt.from_bytes`` reads them back. Aggregates of your own must have states of floats."""
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
            wide = _holds_values(query) and _is_wide(part.state)
            out.u8(part.integer + _WIDE * wide)
            _write_state(out, query, part.state, wide)

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
            source.check(0 <= covered <= 1, "a share that is none")
            kind = source.choice(*range(4))
            state = _read_state(source, query, rows - missing, bool(kind & _WIDE))
            parts.append(Partial(state, rows, missing, covered, bool(kind & 1)))
        return cls(clock, now, queries, parts)


def _alike(a: Query, b: Query) -> bool:
    """Whether two sites ask the same: by definition, not by identity."""
    return (a.text, a.aggregate.kind, a.aggregate.parameter, a.span, a.per, a.eps) == (
        b.text,
        b.aggregate.kind,
        b.aggregate.parameter,
        b.span,
        b.per,
        b.eps,
    )


def _combined(query: Query, a: Partial, b: Partial) -> Partial:
    if query.condition is not None:
        state = _together(query.aggregate.kind, a.state, b.state)
    else:
        state = query.aggregate.states.combine(a.state, b.state)
    return Partial(state, a.rows + b.rows, a.missing + b.missing, min(a.covered, b.covered), a.integer and b.integer)


def _together(kind: str, a: Mapping[Any, float], b: Mapping[Any, float]) -> dict[Any, float]:
    """The aggregates of the substreams of two sites."""
    both = dict(a)
    for key, value in b.items():
        if key not in both:
            both[key] = value
        elif kind in ("count", "sum"):
            both[key] += value
        else:
            both[key] = max(both[key], value) if kind == "max" else min(both[key], value)
    return both


def _members(query: Query, part: Partial) -> Answer:
    """The keys whose combined aggregate passes a filter, the largest first."""
    assert query.condition is not None
    low, high, sign = query.condition.low, query.condition.high, 1 if query.aggregate.kind == "min" else -1
    passed = sorted(
        ((key, value) for key, value in part.state.items() if low <= value <= high), key=lambda pair: sign * pair[1]
    )
    values = np.array([value for _, value in passed], np.int64 if query.aggregate.kind == "count" else np.float64)
    return Answer(Answers(KeyValue, [[key for key, _ in passed], values]), len(passed))


def _write_state(out: Writer, query: Query, state: Any, wide: bool) -> None:
    kind = query.aggregate.kind
    if query.condition is not None:
        keys = list(state)
        order = np.argsort(hash_keys(keys)) if keys else np.empty(0, np.int64)
        write_keys(out, [keys[i] for i in order.tolist()])
        out.f64s(np.array([float(state[keys[i]]) for i in order.tolist()]))
    elif kind in _SUMS:
        out.u64(state.plus)
        out.u64(state.minus)
        _write_fraction(out, state.total)
        _write_fraction(out, state.squares)
    elif kind == "quantile":
        write_pairs(out, state) if wide else out.f64s(state)
    elif kind in ("first", "last"):
        out.maybe(None if state is None else state.tick)
        _write_number(out, None if state is None else state.value, wide)
    elif kind in ("max", "min"):
        out.u8(state is not None)
        _write_number(out, state, wide)
    elif kind != "count":
        parts = state if isinstance(state, tuple) else (state,)
        if not all(isinstance(part, int | float) for part in parts):
            raise LatelyError(
                f"the query {query.name!r} has the state {state!r}, which is no number; only numbers can be stored"
            )
        out.u8(isinstance(state, tuple))
        out.f64s(np.array(parts, np.float64))


def _read_state(source: Reader, query: Query, count: int, wide: bool) -> Any:
    kind = query.aggregate.kind
    source.check(not wide or _holds_values(query), "values in a state that has none")
    if query.condition is not None:
        keys, values = read_keys(source), source.f64s()
        source.check(len(keys) == values.size and not np.isnan(values).any(), "not one number for each key")
        fine = kind != "count" or bool(((values >= 0) & (values < _FAR) & (np.floor(values) == values)).all())
        source.check(fine, "a count that is none")
        return dict(zip(keys, values.tolist(), strict=True))
    if kind == "count":
        return count
    if kind in _SUMS:
        plus, minus = (source.within(source.u64(), 0, count) for _ in range(2))
        return Moments(count, _read_fraction(source), _read_fraction(source), plus, minus)
    if kind == "quantile":
        values = read_pairs(source) if wide else source.f64s()
        source.check(values.size == count and not np.isnan(values).any(), "not one value for each row")
        source.check(bool((values[1:] >= values[:-1]).all()), "not sorted")  # pairs compare as their numbers do
        return values
    if kind in ("first", "last"):
        tick, value = source.maybe(-_FAR, _FAR), _read_number(source, wide)
        return None if tick is None else Seen(tick, value)
    if kind in ("max", "min"):
        known, value = source.choice(0, 1), _read_number(source, wide)
        return value if known else None
    several, parts = source.choice(0, 1), source.f64s().tolist()
    source.check(several == 1 or len(parts) == 1, "a state of too many parts")
    identity = query.aggregate.states.identity
    if isinstance(identity, int | float) or (isinstance(identity, tuple) and identity):  # other states may be of any size
        alike = len(parts) == len(identity) if isinstance(identity, tuple) else several == 0
        source.check(alike and several == isinstance(identity, tuple), f"a state that is not one of {query.aggregate.kind!r}")
    return tuple(parts) if several else parts[0]


def _holds_values(query: Query) -> bool:
    """Whether the state of a query is some of the values that came."""
    return query.condition is None and query.aggregate.kind in ("quantile", "first", "last", "max", "min")


def _is_wide(state: Any) -> bool:
    """Whether a state holds an integer that no float is equal to."""
    if isinstance(state, np.ndarray):
        return is_wide(state)
    value = state.value if isinstance(state, Seen) else state
    return type(value) is int and is_wide(of_list([value], "state"))


def _write_number(out: Writer, value: float | int | None, wide: bool) -> None:
    if wide:
        write_pairs(out, of_list([value], "state"))
    else:
        out.f64(0.0 if value is None else value)


def _read_number(source: Reader, wide: bool) -> float | int:
    if not wide:
        return source.f64()
    values = read_pairs(source)
    source.check(values.size == 1, "not one number")
    return number(values[0])


def _write_fraction(out: Writer, value: Fraction) -> None:
    """A whole number over a power of two."""
    size = value.numerator.bit_length() // 8 + 1
    out.varint(size)
    out.raw(value.numerator.to_bytes(size, "little", signed=True))
    out.varint(value.denominator.bit_length() - 1)


def _read_fraction(source: Reader) -> Fraction:
    numerator = int.from_bytes(source.raw(source.within(source.varint(), 0, 4096)), "little", signed=True)
    return Fraction(numerator, 1 << source.within(source.varint(), 0, 4096))
