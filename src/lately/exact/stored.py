"""Windows as bytes and back. docs/format.md is its table.

Stored are the arrivals (ticks, the values of each column, the arrivals of each substream) and the queries. All indexes are
rebuilt from them.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import FormatError, LatelyError
from lately.core.stored_keys import column_of, read_keys, write_keys
from lately.exact.aggregates import Aggregate, Condition, stored_function
from lately.exact.column import Column, Numbers
from lately.exact.filters import Filters
from lately.exact.queries import Query, Span, query_of
from lately.exact.ring import Ring
from lately.exact.stored_numbers import read_pairs, write_pairs
from lately.exact.wide import EXACT, is_wide, narrowed

_FAR = 2**62

#: How the values of a column are stored: any floats, integers up to 2**53, or pairs, which are new in format version 2.
_FLOATS, _INTEGERS, _PAIRS = range(3)


def write_queries(out: Writer, queries: Iterable[Query]) -> None:
    """Write the queries."""
    in_order = list(queries)
    out.varint(len(in_order))
    for query in in_order:
        aggregate, span = query.aggregate, query.span
        for text in (query.name, aggregate.kind, aggregate.column or "", query.using or "", query.per or ""):
            out.text(text)
        parameter = aggregate.function.parameter
        out.u8(parameter is not None)
        out.f64(parameter or 0.0)
        out.u8(span.by_time)
        out.u64(span.older)
        out.maybe(span.newer)
        if query.condition is not None:
            out.text(_stored_comparison(query.condition))
            out.f64(query.condition.low)
            out.f64(query.condition.high)
            out.f64(query.eps or 0.0)


def read_queries(source: Reader) -> list[Query]:
    """Read what ``write_queries`` wrote."""
    queries: dict[str, Query] = {}
    for _ in range(source.varint()):
        name, kind, column, using, per = (source.text() for _ in range(5))
        has_parameter, parameter = source.choice(0, 1), source.f64()
        span = Span(bool(source.choice(0, 1)), source.within(source.u64(), 1, 2**40), source.maybe(1, 2**40))
        if source.version == 1 and span.by_time:  # ages were those of ticks, the oldest inside and the newest outside
            span = Span(True, span.older + 1, None if span.newer is None else span.newer + 1)
        source.check(span.newer is None or span.newer < span.older, "an empty window")
        source.check(has_parameter == 1 or parameter == 0, "a parameter that is not set")
        try:
            function = stored_function(kind, parameter if has_parameter else None)
        except ValueError as error:
            raise FormatError(f"not a query that lately wrote: {error}") from error
        if function is None:
            raise FormatError(
                f"the query {name!r} asks for {kind!r}", remedy=f"define it with lt.agg.custom({kind!r}, …) before reading"
            )
        source.check(bool(column) or not function.needs_values, f"an aggregate {kind!r} of no column")
        aggregate = Aggregate(function, column or None)
        source.check(name not in queries, "two queries of one name")
        what: Any = aggregate
        options: dict[str, Any] = {"using": using or None}
        if per:
            text, low, high, eps = source.text(), source.f64(), source.f64(), source.f64()
            source.check(low <= high or (low, high) == (math.inf, -math.inf), "a condition that nothing passes")
            prefix = f"{_stored_name(aggregate)} "
            source.check(text == "" or text.startswith(prefix), f"the condition {text!r}")
            what = Condition(aggregate, low, high, text.removeprefix(prefix))
            options |= {"per": per, "exact": eps == 0, "eps": eps or None}
        try:
            queries[name] = query_of(name, what, span, **options)
        except LatelyError as error:
            raise FormatError(f"not a query that lately wrote: {error}") from error
    return list(queries.values())


def _stored_name(aggregate: Aggregate) -> str:
    """How format versions 1 and 2 write an aggregate in a condition: their names are ``sum_``, ``max_`` and ``min_``."""
    underscore = "_" if aggregate.kind in ("sum", "max", "min") else ""
    return f"{aggregate.kind}{underscore}{str(aggregate).removeprefix(aggregate.kind)}"


def _stored_comparison(condition: Condition) -> str:
    return f"{_stored_name(condition.aggregate)} {condition.comparison}" if condition.comparison else ""


def write_ring(out: Writer, ring: Ring, now: int | None) -> None:
    """Write the entries of a ring: ticks as ages, integers packed."""
    out.u64(ring.first)
    out.maybe(ring.lost)
    entries = ring.slice(ring.first, ring.end)
    if not isinstance(ring, Column):
        out.integers((now or 0) - entries)
        return
    out.u8(ring.integer)
    entries = narrowed(entries)
    if is_wide(entries):
        out.u8(_PAIRS)
        write_pairs(out, entries)
        return
    integers = bool(((np.abs(entries) <= EXACT) & ~(np.signbit(entries) & (entries == 0))).all())
    integers = integers and bool((np.floor(entries) == entries).all())
    out.u8(_INTEGERS if integers else _FLOATS)
    if integers:
        out.integers(entries)
    else:
        out.f64s(entries)


def read_ticks(source: Reader, end: int, now: int | None) -> Ring:
    """The ring of ticks that ends at a position."""
    first = source.within(source.u64(), 0, end)
    ring = Ring(np.int64, first, source.maybe(-_FAR, _FAR))
    ages = source.integers(0, 2**63 - 1)
    source.check(
        ages.size == end - first and bool((np.diff(ages) <= 0).all()), "ticks that are too many, too few or not in order"
    )
    source.check(ages.size == 0 or (now is not None and int(ages[0]) <= 2**62 + now), "a tick too long ago")
    ring.append((now or 0) - ages, first)
    return ring


def read_column(source: Reader, ticks: Ring) -> tuple[Column, Numbers]:
    """A column that ends where the ticks do, and its values, which the caller appends."""
    first = source.within(source.u64(), ticks.first, ticks.end)
    column = Column(first, source.maybe(-_FAR, _FAR))
    column.integer = bool(source.choice(0, 1))
    kind = source.choice(_FLOATS, _INTEGERS, _PAIRS)
    if kind == _INTEGERS:
        values: Numbers = source.integers(-EXACT, EXACT).astype(np.float64)
    else:
        values = source.f64s() if kind == _FLOATS else read_pairs(source)
    source.check(values.size == ticks.end - first, "values that are too many or too few")
    integral = np.isnan(values.real) | (np.isfinite(values.real) & (np.floor(values.real) == values.real))
    source.check(not column.integer or bool(integral.all()), "a fraction in a column of integers")
    return column, values


def write_filters(out: Writer, filters: Filters, now: int | None) -> None:
    """Write the state of the filters: the live substreams in the order of their keys' hashes, and their part of each index."""
    for substreams, shared in filters.in_order():
        oldest = (now or 0) - max(index.longest for index in shared)
        ids = substreams.by_hash(oldest)
        write_keys(out, substreams.names(ids))
        out.integers((now or 0) - substreams.last[ids])
        for index in shared:
            out.maybe(index.lost)
            index.index.write(out, ids, now or 0)


def read_filters(source: Reader, filters: Filters, now: int | None) -> None:
    """Read what ``write_filters`` wrote into filters with the same queries."""
    for substreams, shared in filters.in_order():
        longest = max(index.longest for index in shared)
        names = read_keys(source)
        last = (now or 0) - source.integers(0, longest)
        source.check(last.size == len(names) and (now is not None or not names), "not one tick for each key")
        source.fits(200 * len(names) * (1 + len(shared)))
        ids = substreams.take(column_of(names), last) if names else np.empty(0, np.int64)
        source.check(np.unique(ids).size == ids.size, "a key twice")
        for index in shared:
            index.lost = source.maybe(-_FAR, _FAR)
            index.index.read(source, ids, now)
