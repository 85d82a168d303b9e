"""What an aggregate is: how to lift a value to a state, combine two states, lower a state to the answer.

States of the built-in aggregates hold sums as fractions, so they combine in any order, on any number of sites, to the same
answer. The fast structures of this package compute the same from arrays; these here define it.
"""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from lately.exact.wide import number, of_list


class Algebra(NamedTuple):
    """The contract of an aggregate. ``identity`` is the state of nothing; ``inverse(combine(a, b), a)``, if any, is b.

    >>> product = Algebra(lambda x: x, lambda a, b: a * b, lambda a: a, 1.0)
    >>> product.of([2.0, 3.0, 4.0])
    24.0
    """

    lift: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    lower: Callable[[Any], Any]
    identity: Any
    inverse: Callable[[Any, Any], Any] | None = None

    def state(self, values: Any) -> Any:
        """The state of some values, one after the other."""
        state = self.identity
        for value in values:
            state = self.combine(state, self.lift(value))
        return state

    def of(self, values: Any) -> Any:
        """The answer for some values."""
        return self.lower(self.state(values))


class Moments(NamedTuple):
    """How many values, their sum and that of their squares without rounding, and how many infinities besides."""

    count: int = 0  # type: ignore[assignment]  # tuples have a method of that name, which nobody calls on a state
    total: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)
    plus: int = 0
    minus: int = 0

    @classmethod
    def lift(cls, value: float) -> "Moments":
        if math.isinf(value):
            return cls(1, plus=int(value > 0), minus=int(value < 0))
        exact = Fraction(value)
        return cls(1, exact, exact * exact)

    def combine(self, other: "Moments") -> "Moments":
        return Moments(*map(operator.add, self, other))

    def inverse(self, other: "Moments") -> "Moments":
        return Moments(*map(operator.sub, self, other))

    def integer(self) -> int | None:
        """The sum of integers; None of nothing, and if it is no integer."""
        whole = self.count and not (self.plus or self.minus) and self.total.denominator == 1
        return self.total.numerator if whole else None

    def sum(self) -> float | None:
        """The sum, rounded once; None of nothing."""
        if not self.count:
            return None
        if self.plus or self.minus:
            return math.nan if self.plus and self.minus else math.inf if self.plus else -math.inf
        return as_float(self.total)

    def average(self) -> float | None:
        """The mean; None of nothing."""
        if self.plus or self.minus or not self.count:
            return self.sum()
        return as_float(self.total / self.count)

    def variance(self, ddof: int) -> float | None:
        """The sum of squared deviations over ``count - ddof``; None of too few."""
        if self.count <= ddof:
            return None
        if self.plus or self.minus:
            return math.nan
        return max(as_float((self.squares - self.total * self.total / self.count) / (self.count - ddof)), 0.0)


def as_float(value: Fraction) -> float:
    """The nearest float, which may be infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class Seen(NamedTuple):
    """A value and when it was seen."""

    tick: int
    value: float | int


def _either(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Of two states the one to pick, or the only one that is something."""
    return lambda a, b: b if a is None else a if b is None else pick(a, b)


def _value(state: Any) -> Any:
    return None if state is None else state.value if isinstance(state, Seen) else state


def _earlier(a: Seen, b: Seen) -> Seen:
    return a if a.tick <= b.tick else b


def _later(a: Seen, b: Seen) -> Seen:
    return b if b.tick >= a.tick else a


def rank(share: float, count: int) -> int:
    """Which of ``count`` sorted values is this quantile, from 0 on: the first that a share of them does not exceed."""
    wanted = share * count
    place = math.ceil(wanted)
    if place - 1 >= wanted * (1 - 2.0**-50):  # 0.7 * 10 is a little more than 7
        place -= 1
    return min(max(place, 1), count) - 1


def built_in(kind: str, parameter: float | None = None) -> Algebra:
    """The algebra of a built-in aggregate.

    >>> built_in("avg").of([0.1, 0.2, 0.3])
    0.2
    """
    if kind == "count":
        return Algebra(lambda value, tick=0: 1, operator.add, lambda state: state, 0, operator.sub)
    if kind in ("sum", "avg", "variance", "stddev"):
        lower = _moment(kind, parameter)
        return Algebra(lambda value, tick=0: Moments.lift(value), Moments.combine, lower, Moments(), Moments.inverse)
    if kind in ("max", "min"):
        return Algebra(lambda value, tick=0: value, _either(max if kind == "max" else min), _value, None)
    if kind in ("first", "last"):
        return Algebra(lambda value, tick=0: Seen(tick, value), _either(_earlier if kind == "first" else _later), _value, None)
    assert kind == "quantile", kind
    share = 0.5 if parameter is None else parameter
    return Algebra(
        lambda value, tick=0: of_list([value], "values"),
        lambda a, b: np.sort(np.concatenate([a, b]), kind="stable"),  # two sorted runs, which a stable sort just merges
        lambda state: number(state[rank(share, state.size)]) if state.size else None,
        np.empty(0),
    )


def _moment(kind: str, parameter: float | None) -> Callable[[Moments], float | None]:
    if kind == "sum":
        return Moments.sum
    if kind == "avg":
        return Moments.average
    ddof = int(parameter or 0)
    if kind == "variance":
        return lambda state: state.variance(ddof)
    return lambda state: _root(state.variance(ddof))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)
