"""A registered query: what it asks, over which window."""

import math
from dataclasses import dataclass
from typing import Any

from lately.core.durations import Window, arrivals
from lately.core.errors import ParameterError, RangeError
from lately.core.times import is_instant
from lately.exact.aggregates import Aggregate, Condition
from lately.exact.planner import algorithms

#: The conditions that an index answers; others would take a lookup for every substream.
FILTERS = ("count", "sum", "max", "min")

#: Bounds of approximate filters are this far apart unless asked for less or more.
EPS = 0.1


@dataclass(frozen=True)
class Span:
    """A window that slides along: from the age ``older`` up to the age ``newer``, or up to now if that is None.

    Ages are in ticks or in arrivals, and are edges: ``older`` is the one before the newest ``older`` of them. In ticks the
    window is ``now - older < t <= now - newer``.
    """

    by_time: bool
    older: int
    newer: int | None

    def text(self, clock: Window) -> str:
        """The window as people say it."""
        ages = [clock.text(age) if self.by_time else f"{age:,} arrivals" for age in (self.older, self.newer or 0)]
        return f"last {ages[0]}" if self.newer is None else f"between {ages[0]} and {ages[1]} ago"

    @property
    def width(self) -> int:
        """The number of ticks or arrivals that it holds."""
        return self.older - (self.newer or 0)


@dataclass(frozen=True)
class Query:
    """What was asked for by name."""

    name: str
    aggregate: Aggregate
    span: Span
    condition: Condition | None = None
    per: str | None = None
    eps: float | None = None  # of an approximate filter; None for an exact one
    using: str | None = None

    @property
    def text(self) -> str:
        """What it asks, as it was written."""
        return f"{self.condition}, per {self.per!r}" if self.condition is not None else repr(self.aggregate)


def query_of(
    name: str, what: Any, span: Span, *, per: Any = None, exact: bool = True, eps: float | None = None, using: str | None = None
) -> Query:
    """Read what a user registers, or say what is wrong with it."""
    if not isinstance(name, str) or not name:
        raise ParameterError(f"a query named {name!r}; give it a name, such as 'volume'")
    if isinstance(what, Aggregate):
        if per is not None:
            raise ParameterError(
                f"{what} per {per!r} has no condition; give one, such as {what} > 1000, and the answer is which pass it"
            )
        if using is not None and using not in algorithms(what):
            raise ParameterError(f"using={using!r} for {what}; it can use {' or '.join(algorithms(what))}")
        if eps is not None or exact is not True:
            raise ParameterError(f"eps={eps!r}, exact={exact!r}: {what} is always exact; leave them out")
        return Query(name, what, span, using=using)
    if not isinstance(what, Condition):
        raise ParameterError(
            f"cannot register {what!r}; give an aggregate such as lt.agg.sum('shares'), or a condition on one: >, >=, <, <= or "
            "between(low, high)"
        )
    if not isinstance(per, str) or not per:
        raise ParameterError(
            f"{what} is a condition on substreams, and per={per!r}; name the column of their keys: per='symbol'"
        )
    aggregate = what.aggregate
    if aggregate.kind not in FILTERS or (aggregate.kind == "count" and aggregate.column is not None):
        raise ParameterError(f"a filter on {aggregate}: only count(), sum, max and min have an index of substreams")
    if not span.by_time or span.newer is not None:
        raise ParameterError(
            f"{what} over a window that is not the last so long: filters take last= in time, such as last='15m'"
        )
    if using is not None:
        raise ParameterError(f"using={using!r} for a filter: which index serves it follows from the aggregate; leave it out")
    if aggregate.kind in ("count", "sum") and (what.low == math.inf or what.high < 0):
        raise ParameterError(f"{what}: nothing can pass that; give a bound from 0 on")
    return Query(name, aggregate, span, what, per, _tolerance(aggregate, exact, eps))


def _tolerance(aggregate: Aggregate, exact: bool, eps: float | None) -> float | None:
    if not isinstance(exact, bool):
        raise ParameterError(f"exact={exact!r}; give True or False")
    if exact:
        if eps is not None:
            raise ParameterError(f"eps={eps!r} and exact=True; an exact answer has no eps: leave it out, or set exact=False")
        return None
    if aggregate.kind in ("max", "min"):
        raise ParameterError(f"exact=False for {aggregate}: its filters are exact at no cost; leave it out")
    eps = EPS if eps is None else eps
    if not isinstance(eps, int | float) or not 0.001 <= eps < 1:
        raise ParameterError(f"eps={eps!r}; give a fraction from 0.001 to below 1, such as {EPS}")
    return float(eps)


def span_of(clock: Window, last: Any, between: Any) -> Span:
    """Read the ``last=`` or ``between=`` of a query."""
    if (last is None) == (between is None):
        raise RangeError(f"last={last!r} and between={between!r}; give one of them: last='5m', or between=('2m', '1m')")
    if between is None:
        by_time, older = _age(clock, last, "last")
        if older == 0:
            raise RangeError(f"last={last!r} is a window of nothing; give a length, such as {clock.text(60)!r}")
        return Span(by_time, older, None)
    if isinstance(between, str):
        raise RangeError(f"between={between!r}: give two ages, the older first, as in ('2m', '1m')")
    try:
        ends = [_age(clock, end, "between") for end in between]
        (by_time, older), (same, newer) = ends
    except (TypeError, ValueError) as error:
        if isinstance(error, RangeError):
            raise
        raise RangeError(f"between={between!r}: give two ages, the older first, as in ('2m', '1m')") from None
    if by_time != same and older and newer:
        raise RangeError(f"between={between!r} mixes time and arrivals; give both ends in one of them")
    if older < newer:
        raise RangeError(f"between={between!r} runs backwards; give the older end first, as in ('2m', '1m')")
    if older == newer:
        raise RangeError(f"between={between!r} is a window of nothing; give two different ages")
    return Span(by_time, older, newer or None)


def _age(clock: Window, value: Any, name: str) -> tuple[bool, int]:
    """Whether an age is in time, and how much it is."""
    if isinstance(value, arrivals):
        return False, int(value.n)
    if is_instant(value):
        raise RangeError(f"{name}={value!r} is a date; a registered window slides along: give ages, such as {clock.text(60)!r}")
    try:
        age = clock.length(value)
    except ParameterError as error:
        if "whole number of ticks" in str(error):
            finer = f"build the Windows with a finer tick= than {clock.text(1)}"
            raise RangeError(f"{name}={value!r} is no whole number of ticks; {finer}") from error
        hint = "; for a number of arrivals write lt.arrivals(1000)" if isinstance(value, int) else ""
        raise RangeError(f"{name}: {error}{hint}") from error
    if not 0 <= age <= 2**40:
        raise RangeError(f"{name}={value!r} is negative, or more than 2**40 ticks; give an age, such as {clock.text(60)!r}")
    return True, age
