"""Registered queries: the aggregate or condition, and the window. Here the arguments of ``Windows.add`` are checked."""

import math
from dataclasses import dataclass
from typing import Any

from lately.core.durations import Duration, Window, arrivals
from lately.core.errors import ParameterError, RangeError
from lately.core.times import is_instant
from lately.exact.aggregates import Aggregate, Condition
from lately.exact.filter_kinds import FILTER_KINDS

#: The default ``eps`` of approximate filters: how far apart their bounds are, as a share.
EPS = 0.1

_TWO_AGES = "give two ages, the older first, as in ('2m', '1m')"


@dataclass(frozen=True)
class Span:
    """A sliding window: from the age ``older`` up to the age ``newer``, or up to now if ``newer`` is None.

    Ages are in ticks or in arrivals. In ticks the window is ``now - older < t <= now - newer``.
    """

    by_time: bool
    older: int
    newer: int | None

    def text(self, clock: Window) -> str:
        """The window as text for users."""
        ages = [clock.text(age) if self.by_time else f"{age:,} arrivals" for age in (self.older, self.newer or 0)]
        return f"last {ages[0]}" if self.newer is None else f"between {ages[0]} and {ages[1]} ago"

    @property
    def width(self) -> int:
        """The number of ticks or arrivals in it."""
        return self.older - (self.newer or 0)


@dataclass(frozen=True)
class Query:
    """A registered query."""

    name: str
    aggregate: Aggregate
    span: Span
    condition: Condition | None = None
    per: str | None = None
    eps: float | None = None  # of an approximate filter; None for an exact one
    using: str | None = None

    @property
    def text(self) -> str:
        """The aggregate or condition, as the user wrote it."""
        return f"{self.condition}, per {self.per!r}" if self.condition is not None else repr(self.aggregate)


def clock_of(tick: Duration, lateness: Duration | None) -> tuple[Window, int]:
    """Read the ``tick=`` and ``lateness=`` of ``Windows``: the clock, and the lateness in its ticks."""
    try:
        clock = Window.of(tick, tick)
    except ParameterError as error:
        raise ParameterError(
            f"tick={tick!r} is not a time resolution",
            remedy="give a length of time such as '1s', or an integer if times are integers",
        ) from error
    try:
        ticks = 0 if lateness is None else clock.length(lateness)
    except ParameterError as error:
        raise ParameterError(f"lateness: {error.message}", error.remedy) from error
    if ticks < 0:
        raise ParameterError(f"lateness={lateness!r} is negative", remedy="give a length of time, such as '30s'")
    return clock, ticks


def query_of(
    name: str, what: Any, span: Span, *, per: Any = None, exact: bool = True, eps: float | None = None, using: str | None = None
) -> Query:
    """Read the arguments of ``Windows.add``; a ``ParameterError`` says which of them is wrong."""
    if not isinstance(name, str) or not name:
        raise ParameterError(f"a query named {name!r}", remedy="give it a name, such as 'volume'")
    if isinstance(what, Aggregate):
        if per is not None:
            raise ParameterError(
                f"{what} per {per!r} has no condition",
                remedy=f"give one, such as {what} > 1000, and the answer is which substreams pass it",
            )
        possible = what.function.algorithms
        if using is not None and using not in possible:
            raise ParameterError(f"using={using!r} for {what}", remedy=f"it can use {' or '.join(possible)}")
        if eps is not None or exact is not True:
            raise ParameterError(f"eps={eps!r}, exact={exact!r}: {what} is always exact", remedy="leave them out")
        return Query(name, what, span, using=using)
    if not isinstance(what, Condition):
        raise ParameterError(
            f"cannot register {what!r}",
            remedy="give an aggregate such as lt.agg.sum('shares'), or a condition on one: >, >=, <, <= or between(low, high)",
        )
    if not isinstance(per, str) or not per:
        raise ParameterError(
            f"{what} is a condition on substreams, and per={per!r}", remedy="name the column of their keys: per='symbol'"
        )
    aggregate = what.aggregate
    kind = FILTER_KINDS.get(aggregate.kind)
    if kind is None or (not aggregate.function.needs_values and aggregate.column is not None):
        raise ParameterError(f"a filter on {aggregate}", remedy="only count(), sum, max and min have an index of substreams")
    if not span.by_time or span.newer is not None:
        raise ParameterError(
            f"{what} over a window that is not the most recent period", remedy="filters take last= in time, such as last='15m'"
        )
    if using is not None:
        raise ParameterError(f"using={using!r} for a filter, whose index follows from its aggregate", remedy="leave it out")
    if kind.additive and (what.low == math.inf or what.high < 0):
        raise ParameterError(f"{what}: no substream can pass that", remedy="give a bound that is not negative")
    return Query(name, aggregate, span, what, per, _tolerance(aggregate, exact, eps))


def _tolerance(aggregate: Aggregate, exact: bool, eps: float | None) -> float | None:
    if not isinstance(exact, bool):
        raise ParameterError(f"exact={exact!r}", remedy="give True or False")
    if exact:
        if eps is not None:
            raise ParameterError(f"eps={eps!r} and exact=True", remedy="leave it out, or set exact=False")
        return None
    if not FILTER_KINDS[aggregate.kind].additive:
        raise ParameterError(f"exact=False for {aggregate}, whose filters are exact at no cost", remedy="leave it out")
    eps = EPS if eps is None else eps
    if not isinstance(eps, int | float) or not 0.001 <= eps < 1:
        raise ParameterError(f"eps={eps!r}", remedy=f"give a share from 0.001 to below 1, such as {EPS}")
    return float(eps)


def span_of(clock: Window, last: Any, between: Any) -> Span:
    """Read the ``last=`` or ``between=`` of a query."""
    if (last is None) == (between is None):
        raise RangeError(
            f"last={last!r} and between={between!r}", remedy="give one of them: last='5m', or between=('2m', '1m')"
        )
    if between is None:
        by_time, older = _age(clock, last, "last")
        if older == 0:
            raise RangeError(f"last={last!r} is an empty window", remedy=f"give a length, such as {clock.text(60)!r}")
        return Span(by_time, older, None)
    if isinstance(between, str):
        raise RangeError(f"between={between!r} is not a range", remedy=_TWO_AGES)
    try:
        ends = [_age(clock, end, "between") for end in between]
        (by_time, older), (same, newer) = ends
    except (TypeError, ValueError) as error:
        if isinstance(error, RangeError):
            raise
        raise RangeError(f"between={between!r} is not a range", remedy=_TWO_AGES) from None
    if by_time != same and older and newer:
        raise RangeError(f"between={between!r} mixes time and arrivals", remedy="give both ends in one of them")
    if older < newer:
        raise RangeError(f"between={between!r} runs backwards", remedy="give the older end first, as in ('2m', '1m')")
    if older == newer:
        raise RangeError(f"between={between!r} is an empty window", remedy="give two different ages")
    return Span(by_time, older, newer or None)


def _age(clock: Window, value: Any, name: str) -> tuple[bool, int]:
    """Whether an age is in time, and the number of ticks or arrivals."""
    if isinstance(value, arrivals):
        return False, int(value.n)
    if is_instant(value):
        raise RangeError(f"{name}={value!r} is a date", remedy=f"windows slide: give ages, such as {clock.text(60)!r}")
    try:
        age = clock.length(value)
    except ParameterError as error:
        if "whole number of ticks" in str(error):
            finer = f"build the Windows with a finer tick= than {clock.text(1)}"
            raise RangeError(f"{name}={value!r} is not a whole number of ticks", remedy=finer) from error
        arrivals_hint = "for a number of arrivals write lt.arrivals(1000)" if isinstance(value, int) else None
        remedy = "; ".join(part for part in (error.remedy, arrivals_hint) if part)
        raise RangeError(f"{name}: {error.message}", remedy=remedy) from error
    if not 0 <= age <= 2**40:
        raise RangeError(
            f"{name}={value!r} is negative, or more than 2**40 ticks", remedy=f"give an age, such as {clock.text(60)!r}"
        )
    return True, age
