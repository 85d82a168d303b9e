"""What queries ask for: an aggregate of a column, or a condition on one. ``agg.py`` has the functions that make them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from lately.core.errors import ParameterError
from lately.exact.aggregate_function import AggregateFunction
from lately.exact.algebra import Algebra
from lately.exact.built_in import NAMES, built_in
from lately.exact.user_function import UserFunction

_DEFINED: dict[str, Algebra] = {}

_NOTHING = math.inf, -math.inf  # the range that no number lies in


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One number that is computed from the values of a column. Comparing it with a number gives a condition for ``per=``.

    The functions of ``lt.agg`` make aggregates.

    Parameters
    ----------
    function
        What is computed: one of the built-in functions, or one that a user defined.
    column
        The column that it reads; None for ``count()``, which counts all arrivals.

    >>> import lately as lt
    >>> lt.agg.sum("shares")
    sum('shares')
    >>> lt.agg.sum("shares") > 10_000
    sum('shares') > 10000
    """

    function: AggregateFunction
    column: str | None

    @property
    def kind(self) -> str:
        """The name of the function."""
        return self.function.name

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for aggregates that can share everything but their windows."""
        return self.column, *self.function.key

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
        state = self.function.algebra.state(present)
        return self.function.answer(state, integer=all(isinstance(value, int) for value in present))

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
        arguments = [] if self.column is None else [repr(self.column), *self.function.arguments()]
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


def stored_function(name: str, parameter: float | None) -> AggregateFunction | None:
    """The function that stored bytes refer to; None if it is a user's and not defined in this process."""
    if name in NAMES:
        return built_in(name, parameter)
    if parameter is not None:
        raise ValueError(f"the aggregate function {name!r} takes no parameter, not {parameter!r}")
    return UserFunction(name, _DEFINED[name]) if name in _DEFINED else None
