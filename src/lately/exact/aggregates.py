"""What queries ask for: an aggregate of a column, or a condition on one. ``agg.py`` has the functions that make them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from lately.core.errors import ParameterError
from lately.exact.algebra import Algebra, built_in

_BUILT_IN = ("count", "sum", "avg", "min", "max", "variance", "stddev", "first", "last", "quantile")
_DEFINED: dict[str, Algebra] = {}

#: Their answers are integers where the values are.
KEEP_INTEGERS = ("sum", "min", "max", "first", "last", "quantile")

_NOTHING = math.inf, -math.inf  # the range that no number lies in


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One number that is computed from the values of a column. Comparing it with a number gives a condition for ``per=``.

    The functions of ``lt.agg`` make aggregates.

    Parameters
    ----------
    kind
        Its name: ``"sum"``, or the name that a user gave to ``lt.agg.custom``.
    column
        The column that it reads; None for ``count()``, which counts all arrivals.
    parameter
        The share of a quantile, the ``ddof`` of a variance or standard deviation; None for all others.
    algebra
        How its states are made and combined, if a user defined it; None for a built-in aggregate.

    >>> import lately as lt
    >>> lt.agg.sum("shares")
    sum('shares')
    >>> lt.agg.sum("shares") > 10_000
    sum('shares') > 10000
    """

    kind: str
    column: str | None
    parameter: float | None = None
    algebra: Algebra | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for aggregates that can share everything but their windows."""
        return self.kind, self.column, self.parameter, self.algebra and id(self.algebra)

    @property
    def states(self) -> Algebra:
        """How its states are made and combined."""
        return built_in(self.kind, self.parameter) if self.algebra is None else self.algebra

    def of(self, values: Iterable[float]) -> Any:
        """The aggregate of these values, computed by its definition: the answer of a window that holds them.

        Parameters
        ----------
        values
            Numbers, the oldest first; None and NaN are missing values.

        >>> import lately as lt
        >>> lt.agg.sum("x").of([0.1] * 10), lt.agg.sum("x").of([2**62, 2**62, 1])
        (1.0, 9223372036854775809)
        """
        present = [value for value in values if value is not None and value == value]
        state = self.states.state(present)
        return self.answer(state, integer=all(isinstance(value, int) for value in present))

    def answer(self, state: Any, *, integer: bool) -> Any:
        """The answer that a state stands for; an exact integer of values that all came as integers, where it is one."""
        if integer and self.kind == "sum":
            return state.integer()
        value = self.states.lower(state)
        if integer and self.kind in KEEP_INTEGERS and isinstance(value, float) and value.is_integer():
            return int(value)
        return value

    def between(self, low: float, high: float) -> "Condition":
        """The condition that the answer lies between two bounds.

        Parameters
        ----------
        low, high
            The bounds, both included.

        >>> import lately as lt
        >>> lt.agg.max("price").between(20, 200)
        20 <= max('price') <= 200
        """
        if not low <= high:
            raise ParameterError(f"between({low!r}, {high!r}) is an empty range", remedy="give the smaller bound first")
        return Condition(self, _bound(low), _bound(high))

    def __gt__(self, bound: float) -> "Condition":
        low = _bound(bound)
        between = (math.nextafter(low, math.inf), math.inf) if low < math.inf else _NOTHING
        return Condition(self, *between, f"> {bound}")

    def __ge__(self, bound: float) -> "Condition":
        return Condition(self, _bound(bound), math.inf, f">= {bound}")

    def __lt__(self, bound: float) -> "Condition":
        high = _bound(bound)
        between = (-math.inf, math.nextafter(high, -math.inf)) if high > -math.inf else _NOTHING
        return Condition(self, *between, f"< {bound}")

    def __le__(self, bound: float) -> "Condition":
        return Condition(self, -math.inf, _bound(bound), f"<= {bound}")

    def __bool__(self) -> NoReturn:
        raise ParameterError(f"{self} is a query, not an answer", remedy="give it to Windows.add")

    def __repr__(self) -> str:
        arguments = [] if self.column is None else [repr(self.column)]
        if self.parameter is not None and not (self.kind != "quantile" and self.parameter == 1):
            arguments.append(f"{self.parameter!r}" if self.kind == "quantile" else f"ddof={self.parameter:.0f}")
        return f"{self.kind}({', '.join(arguments)})"


@dataclass(frozen=True, eq=False)
class Condition:
    """The condition that the aggregate of a substream lies in ``low..high``, both included."""

    aggregate: Aggregate
    low: float
    high: float
    comparison: str = ""  # as it was written, such as "> 10"; "" after ``between``

    def __bool__(self) -> NoReturn:
        raise ParameterError(
            f"{self} is a condition, not an answer",
            remedy="give it to Windows.add with per=, or use between(low, high) for two bounds",
        )

    def __repr__(self) -> str:
        if self.comparison:
            return f"{self.aggregate} {self.comparison}"
        return f"{self.low:.15g} <= {self.aggregate} <= {self.high:.15g}"


def _bound(value: Any) -> float:
    try:
        bound = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"cannot compare an aggregate with {value!r}", remedy="give a number") from error
    if math.isnan(bound):
        raise ParameterError(f"cannot compare an aggregate with {value!r}", remedy="give a number")
    return bound


def define(name: str, algebra: Algebra) -> None:
    """Remember a user's aggregate by name, for stored bytes that refer to it. A later definition replaces an earlier one."""
    _DEFINED[name] = algebra


def stored(kind: str, column: str | None, parameter: float | None) -> Aggregate | None:
    """The aggregate that stored bytes refer to; None if it is a user's and not defined in this process."""
    if kind in _BUILT_IN:
        return Aggregate(kind, column, parameter)
    return Aggregate(kind, column, None, _DEFINED[kind]) if kind in _DEFINED else None
