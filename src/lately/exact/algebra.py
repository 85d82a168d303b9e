"""The definition of an aggregate: lift a value to a state, combine two states, lower a state to the answer.

States of the built-in aggregates hold sums as fractions, so they combine in any order, on any number of sites, to the same
answer. The fast structures of this package compute the same from arrays; the algebras define it.
"""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple


class Algebra(NamedTuple):
    """The contract of an aggregate: ``identity`` is the state of no value, and ``inverse(combine(a, b), a)``, if any, is b.

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
        """The state of values, the oldest first."""
        state = self.identity
        for value in values:
            state = self.combine(state, self.lift(value))
        return state

    def of(self, values: Any) -> Any:
        """The answer for values, the oldest first."""
        return self.lower(self.state(values))


class Moments(NamedTuple):
    """The number of values, their exact sum and that of their squares, and the numbers of infinite values."""

    count: int = 0  # type: ignore[assignment]  # replaces the method of tuples, which states do not need
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
        """The sum as an integer; None if there is no value or the sum is not an integer."""
        is_integer = self.count and not (self.plus or self.minus) and self.total.denominator == 1
        return self.total.numerator if is_integer else None

    def sum(self) -> float | None:
        """The sum, rounded once; None if there is no value."""
        if not self.count:
            return None
        if self.plus or self.minus:
            return math.nan if self.plus and self.minus else math.inf if self.plus else -math.inf
        return as_float(self.total)

    def average(self) -> float | None:
        """The mean, rounded once; None if there is no value."""
        if self.plus or self.minus or not self.count:
            return self.sum()
        return as_float(self.total / self.count)

    def variance(self, ddof: int) -> float | None:
        """The sum of squared deviations over ``count - ddof``; None if there are too few values."""
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


class TimedValue(NamedTuple):
    """A value and the tick of its arrival."""

    tick: int
    value: float | int


def unless_none(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``pick`` of two states, or the one that is not None."""
    return lambda a, b: b if a is None else a if b is None else pick(a, b)


def lower_value(state: Any) -> Any:
    """The value of a state that may have its tick with it; None of no value."""
    return None if state is None else state.value if isinstance(state, TimedValue) else state


def earlier(a: TimedValue, b: TimedValue) -> TimedValue:
    """The older of two values; the first of two with equal ticks."""
    return a if a.tick <= b.tick else b


def later(a: TimedValue, b: TimedValue) -> TimedValue:
    """The newer of two values; the second of two with equal ticks."""
    return b if b.tick >= a.tick else a


def rank(share: float, count: int) -> int:
    """The place of a quantile among ``count`` sorted values, from 0 on: the first that a share of them does not exceed."""
    exact_place = share * count
    place = math.ceil(exact_place)
    if place - 1 >= exact_place * (1 - 2.0**-50):  # 0.7 * 10 is a little more than 7
        place -= 1
    return min(max(place, 1), count) - 1
