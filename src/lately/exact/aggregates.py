"""The aggregates that queries ask for, and conditions on them: ``lt.sum_("shares")``, ``lt.count() > 1000``."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from lately.core.errors import ParameterError
from lately.exact.algebra import Algebra, built_in

_KINDS = {
    "count": "count",
    "sum": "sum_",
    "avg": "avg",
    "min": "min_",
    "max": "max_",
    "variance": "variance",
    "stddev": "stddev",
    "first": "first",
    "last": "last",
    "quantile": "quantile",
}
_DEFINED: dict[str, Algebra] = {}

#: Their answers are integers where the values are.
KEEP_INTEGERS = ("sum", "min", "max", "first", "last", "quantile")

_NOTHING = math.inf, -math.inf  # the range that no number lies in


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One number out of the values of a column. Compare it with a number and it becomes a condition for ``per=``.

    >>> sum_("shares")
    sum_('shares')
    >>> sum_("shares") > 10_000
    sum_('shares') > 10000
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
        """The aggregate of these values, computed by its definition; what a window that holds them answers.

        >>> sum_("x").of([0.1] * 10), sum_("x").of([2**62, 2**62, 1])
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
        """The condition that the answer lies in ``low..high``, both included.

        >>> max_("price").between(20, 200)
        20 <= max_('price') <= 200
        """
        if not low <= high:
            raise ParameterError(f"between({low!r}, {high!r}) holds nothing; give the smaller bound first")
        return Condition(self, _bound(low), _bound(high))

    def __gt__(self, bound: float) -> "Condition":
        low = _bound(bound)
        return Condition(
            self, *((math.nextafter(low, math.inf), math.inf) if low < math.inf else _NOTHING), f"{self} > {bound}"
        )

    def __ge__(self, bound: float) -> "Condition":
        return Condition(self, _bound(bound), math.inf, f"{self} >= {bound}")

    def __lt__(self, bound: float) -> "Condition":
        high = _bound(bound)
        between = (-math.inf, math.nextafter(high, -math.inf)) if high > -math.inf else _NOTHING
        return Condition(self, *between, f"{self} < {bound}")

    def __le__(self, bound: float) -> "Condition":
        return Condition(self, -math.inf, _bound(bound), f"{self} <= {bound}")

    def __bool__(self) -> NoReturn:
        raise ParameterError(f"{self} is a query, not an answer; give it to Windows.add")

    def __repr__(self) -> str:
        arguments = [] if self.column is None else [repr(self.column)]
        if self.parameter is not None and not (self.kind != "quantile" and self.parameter == 1):
            arguments.append(f"{self.parameter!r}" if self.kind == "quantile" else f"ddof={self.parameter:.0f}")
        return f"{_KINDS.get(self.kind, self.kind)}({', '.join(arguments)})"


@dataclass(frozen=True, eq=False)
class Condition:
    """Which substreams? Those whose aggregate lies in ``low..high``, both included."""

    aggregate: Aggregate
    low: float
    high: float
    text: str = ""

    def __bool__(self) -> NoReturn:
        raise ParameterError(
            f"{self} is a condition; give it to Windows.add with per=, or use between(low, high) for two bounds"
        )

    def __repr__(self) -> str:
        return self.text or f"{self.low:.15g} <= {self.aggregate} <= {self.high:.15g}"


def _bound(value: Any) -> float:
    try:
        bound = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"cannot compare an aggregate with {value!r}; give a number") from error
    if math.isnan(bound):
        raise ParameterError(f"cannot compare an aggregate with {value!r}; give a number")
    return bound


def _of(kind: str, column: Any, parameter: float | None = None) -> Aggregate:
    if not isinstance(column, str) or not column:
        raise ParameterError(f"{_KINDS[kind]}({column!r}): give the name of a column")
    return Aggregate(kind, column, parameter)


def count(column: str | None = None) -> Aggregate:
    """How many arrivals, or with a column, how many whose value is not missing.

    >>> count(), count("price")
    (count(), count('price'))
    """
    return Aggregate("count", None) if column is None else _of("count", column)


def sum_(column: str) -> Aggregate:
    """The sum: the exact one, rounded once.

    >>> sum_("x").of([1e100, 1.0, -1e100])
    1.0
    """
    return _of("sum", column)


def avg(column: str) -> Aggregate:
    """The mean.

    >>> avg("x").of([1, 2, 6])
    3.0
    """
    return _of("avg", column)


def min_(column: str) -> Aggregate:
    """The smallest value.

    >>> min_("x").of([3, 1, 2])
    1
    """
    return _of("min", column)


def max_(column: str) -> Aggregate:
    """The largest value.

    >>> max_("x").of([3, 1, 2])
    3
    """
    return _of("max", column)


def first(column: str) -> Aggregate:
    """The oldest value that is not missing.

    >>> first("x").of([None, 7, 8])
    7
    """
    return _of("first", column)


def last(column: str) -> Aggregate:
    """The newest value that is not missing.

    >>> last("x").of([7, 8, None])
    8
    """
    return _of("last", column)


def variance(column: str, *, ddof: int = 1) -> Aggregate:
    """The variance over ``n - ddof``, as SQL's VAR_SAMP (1) and VAR_POP (0); right to the last digits for any mean.

    >>> variance("x").of([10.0**12, 10.0**12 + 2]), variance("x", ddof=0).of([1, 3])
    (2.0, 1.0)
    """
    return _of("variance", column, _ddof(ddof))


def stddev(column: str, *, ddof: int = 1) -> Aggregate:
    """The standard deviation over ``n - ddof``, as SQL's STDDEV_SAMP (1) and STDDEV_POP (0).

    >>> stddev("x", ddof=0).of([2, 4])
    1.0
    """
    return _of("stddev", column, _ddof(ddof))


def _ddof(ddof: Any) -> float:
    if ddof not in (0, 1) or isinstance(ddof, bool):
        raise ParameterError(f"ddof={ddof!r}; give 1 for a sample, 0 for all there is")
    return float(ddof)


def quantile(column: str, phi: float) -> Aggregate:
    """The smallest value that a share ``phi`` of the values does not exceed (NumPy's ``inverted_cdf``).

    >>> quantile("delay", 0.99)
    quantile('delay', 0.99)
    """
    if not isinstance(phi, int | float) or not 0 <= phi <= 1:
        raise ParameterError(f"quantile of {phi!r}; give one share from 0 to 1, such as 0.5 for the median")
    return _of("quantile", column, float(phi))


def aggregate(
    name: str,
    *,
    lift: Callable[[float], Any],
    combine: Callable[[Any, Any], Any],
    lower: Callable[[Any], Any],
    identity: Any,
    inverse: Callable[[Any, Any], Any] | None = None,
) -> Callable[[str], Aggregate]:
    """Define an aggregate of your own; the result takes a column, as ``lt.sum_`` does.

    ``lift`` makes a state of a value, ``combine`` one of two neighbours (the older first), ``lower`` an answer of a state;
    ``identity`` is the state of nothing. ``inverse(combine(a, b), a)``, if there is one, gives b back and makes lookups
    O(1). States that are floats or tuples of floats are compiled with Numba, others run as plain Python. Missing values
    never reach ``lift``. The name is what stored bytes refer to: define it again before reading them. An inverse of floats
    rounds as you write it, and gives digits up where large values passed through; without one nothing is given up.

    >>> import math
    >>> import lately as lt
    >>> geometric = lt.aggregate(
    ...     "geometric_mean", identity=(0.0, 0.0), lift=lambda x: (math.log(x), 1.0),
    ...     combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: math.exp(s[0] / s[1]),
    ... )
    >>> w = lt.Windows(tick=1)
    >>> w.add("mean", geometric("x"), last=lt.arrivals(2))
    >>> w.update({"x": [100.0, 2.0, 8.0]})
    >>> round(w["mean"].value, 12)
    4.0
    """
    if not isinstance(name, str) or not name.isidentifier() or name in _KINDS or name in _KINDS.values():
        raise ParameterError(f"an aggregate named {name!r}; give it a name of letters that no built-in aggregate has")
    for role, function in (("lift", lift), ("combine", combine), ("lower", lower), ("inverse", inverse or abs)):
        if not callable(function):
            raise ParameterError(f"{role}={function!r} of the aggregate {name!r} is no function")
    _DEFINED[name] = algebra = Algebra(lift, combine, lower, identity, inverse)
    _check_neutral(name, algebra)

    def of(column: str) -> Aggregate:
        if not isinstance(column, str) or not column:
            raise ParameterError(f"{name}({column!r}): give the name of a column")
        return Aggregate(name, column, None, algebra)

    return of


def _check_neutral(name: str, algebra: Algebra) -> None:
    """Refuse an identity that changes what it is combined with, as far as the value 1.0 shows it."""
    try:
        state = algebra.lift(1.0)
        both = algebra.combine(algebra.identity, state), algebra.combine(state, algebra.identity)
        neutral = all(_close(state, combined) for combined in both)
    except Exception:  # it may have its reasons to refuse 1.0
        return
    if not neutral:
        raise ParameterError(
            f"identity={algebra.identity!r} of the aggregate {name!r} is not neutral: combined with {state!r}, the state of "
            f"1.0, it gives {both[0]!r} or {both[1]!r}; combine(identity, state) must be the state"
        )


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9) or a != a
    return bool(a == b)


def stored(kind: str, column: str | None, parameter: float | None) -> Aggregate | None:
    """The aggregate that bytes speak of; None if nobody defined it here."""
    if kind in _KINDS:
        return Aggregate(kind, column, parameter)
    return Aggregate(kind, column, None, _DEFINED[kind]) if kind in _DEFINED else None
