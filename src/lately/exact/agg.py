"""The namespace ``lt.agg``: the aggregates that queries ask for, such as ``lt.agg.sum("shares")`` or ``lt.agg.count() > 1000``.

Import it as ``from lately.exact import agg``, because its functions are called as Python's own are.
"""

import math
from collections.abc import Callable
from typing import Any

from lately.core.errors import ParameterError
from lately.exact.aggregates import Aggregate, define
from lately.exact.algebra import Algebra
from lately.exact.built_in import built_in
from lately.exact.user_function import UserFunction

__all__ = ["avg", "count", "custom", "first", "last", "max", "min", "quantile", "stddev", "sum", "variance"]


def count(column: str | None = None) -> Aggregate:
    """The number of arrivals, or with a column the number of those with a value.

    Parameters
    ----------
    column
        The name of a column; its missing values are not counted. By default all arrivals are counted.

    >>> count(), count("price")
    (count(), count('price'))
    """
    return Aggregate(built_in("count"), None) if column is None else _of("count", column)


def sum(column: str) -> Aggregate:
    """The exact sum, rounded once.

    Parameters
    ----------
    column
        The name of a column of numbers.

    >>> sum("x").of([1e100, 1.0, -1e100])
    1.0
    """
    return _of("sum", column)


def avg(column: str) -> Aggregate:
    """The mean: the exact one, rounded once.

    Parameters
    ----------
    column
        The name of a column of numbers.

    >>> avg("x").of([1, 2, 6])
    3.0
    """
    return _of("avg", column)


def min(column: str) -> Aggregate:
    """The smallest value.

    Parameters
    ----------
    column
        The name of a column of numbers.

    >>> min("x").of([3, 1, 2])
    1
    """
    return _of("min", column)


def max(column: str) -> Aggregate:
    """The largest value.

    Parameters
    ----------
    column
        The name of a column of numbers.

    >>> max("x").of([3, 1, 2])
    3
    """
    return _of("max", column)


def first(column: str) -> Aggregate:
    """The oldest value that is not missing.

    Parameters
    ----------
    column
        The name of a column of numbers.

    >>> first("x").of([None, 7, 8])
    7
    """
    return _of("first", column)


def last(column: str) -> Aggregate:
    """The newest value that is not missing.

    Parameters
    ----------
    column
        The name of a column of numbers.

    >>> last("x").of([7, 8, None])
    8
    """
    return _of("last", column)


def variance(column: str, *, ddof: int = 1) -> Aggregate:
    """The variance, accurate to the last digits whatever the mean is.

    Parameters
    ----------
    column
        The name of a column of numbers.
    ddof
        The divisor is ``n - ddof``: 1 (default) for a sample, as SQL's VAR_SAMP; 0 for a population, as VAR_POP.

    >>> variance("x").of([10.0**12, 10.0**12 + 2]), variance("x", ddof=0).of([1, 3])
    (2.0, 1.0)
    """
    return _of("variance", column, _ddof(ddof))


def stddev(column: str, *, ddof: int = 1) -> Aggregate:
    """The standard deviation, the square root of ``variance``.

    Parameters
    ----------
    column
        The name of a column of numbers.
    ddof
        The divisor is ``n - ddof``: 1 (default) for a sample, as SQL's STDDEV_SAMP; 0 for a population, as STDDEV_POP.

    >>> stddev("x", ddof=0).of([2, 4])
    1.0
    """
    return _of("stddev", column, _ddof(ddof))


def quantile(column: str, q: float) -> Aggregate:
    """A quantile: the smallest value that is at least as large as a share ``q`` of the values (NumPy's ``inverted_cdf``).

    Parameters
    ----------
    column
        The name of a column of numbers.
    q
        A share from 0 to 1: 0.5 is the median.

    >>> quantile("delay", 0.99)
    quantile('delay', 0.99)
    >>> quantile("x", 0.5).of([30, 10, 20])
    20
    """
    if not isinstance(q, int | float) or not 0 <= q <= 1:
        raise ParameterError(f"q={q!r} is not between 0 and 1", remedy="give one share from 0 to 1, such as 0.5 for the median")
    return _of("quantile", column, float(q))


def custom(
    name: str,
    *,
    lift: Callable[[float], Any],
    combine: Callable[[Any, Any], Any],
    lower: Callable[[Any], Any],
    identity: Any,
    inverse: Callable[[Any, Any], Any] | None = None,
) -> Callable[[str], Aggregate]:
    """Define an aggregate; the result takes the name of a column, as ``lt.agg.sum`` does.

    If all states are floats or tuples of floats, the functions are compiled with Numba; otherwise they run as plain Python.
    Missing values are left out before ``lift``. Rounding is that of the functions themselves.

    Parameters
    ----------
    name
        An identifier that no built-in aggregate has. Stored bytes refer to it: define the aggregate again before reading them.
    lift
        Makes a state of one value.
    combine
        Combines the states of two neighbouring stretches of arrivals, the older first. It must be associative.
    lower
        Makes an answer of a state.
    identity
        The state of no value: ``combine(identity, state)`` and ``combine(state, identity)`` are ``state``.
    inverse
        Takes the older part out of a state: ``inverse(combine(a, b), a)`` is ``b``. With it a lookup takes O(1) instead of
        O(log n), but floating-point states lose digits when large values pass through. By default there is no inverse.

    >>> import math
    >>> import lately as lt
    >>> geometric = lt.agg.custom(
    ...     "geometric_mean", identity=(0.0, 0.0), lift=lambda x: (math.log(x), 1.0),
    ...     combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: math.exp(s[0] / s[1]),
    ... )
    >>> w = lt.Windows(tick=1)
    >>> w.add("mean", geometric("x"), last=lt.arrivals(2))
    >>> w.update({"x": [100.0, 2.0, 8.0]})
    >>> round(w["mean"].value, 12)
    4.0
    """
    if not isinstance(name, str) or not name.isidentifier() or name in __all__:
        raise ParameterError(
            f"an aggregate named {name!r}", remedy="give it a name of letters and digits that no built-in aggregate has"
        )
    for role, function in (("lift", lift), ("combine", combine), ("lower", lower), ("inverse", inverse or abs)):
        if not callable(function):
            raise ParameterError(f"{role}={function!r} of the aggregate {name!r} is not a function")
    algebra = Algebra(lift, combine, lower, identity, inverse)
    _check_neutral(name, algebra)
    define(name, algebra)
    custom_function = UserFunction(name, algebra)

    def of(column: str) -> Aggregate:
        _check_column(name, column)
        return Aggregate(custom_function, column)

    return of


def _of(kind: str, column: Any, parameter: float | None = None) -> Aggregate:
    _check_column(kind, column)
    return Aggregate(built_in(kind, parameter), column)


def _check_column(function: str, column: Any) -> None:
    if not isinstance(column, str) or not column:
        raise ParameterError(f"{function}({column!r}) names no column", remedy="give the name of a column")


def _ddof(ddof: Any) -> float:
    if ddof not in (0, 1) or isinstance(ddof, bool):
        raise ParameterError(f"ddof={ddof!r}", remedy="give 1 for a sample or 0 for a population")
    return float(ddof)


def _check_neutral(name: str, algebra: Algebra) -> None:
    """Reject an identity that changes what it is combined with, as far as the value 1.0 shows it."""
    try:
        state = algebra.lift(1.0)
        combined = algebra.combine(algebra.identity, state), algebra.combine(state, algebra.identity)
        neutral = _close(state, combined[0]) and _close(state, combined[1])
    except Exception:  # the functions may reject 1.0
        return
    if not neutral:
        raise ParameterError(
            f"identity={algebra.identity!r} of the aggregate {name!r} is not neutral: combined with {state!r}, the state of "
            f"1.0, it gives {combined[0]!r} or {combined[1]!r}",
            remedy="give an identity for which combine(identity, state) is the state",
        )


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9) or a != a
    return bool(a == b)
