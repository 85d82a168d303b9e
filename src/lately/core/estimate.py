"""Answers: a value, the bounds around it, and how sure the bounds are."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Integral, Real
from typing import Any, SupportsIndex, overload

from numpy.typing import NDArray

from lately.core.errors import InputError, LatelyError

#: Rows that a notebook shows; who wants more has ``to_pandas``.
HTML_ROWS = 50


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer with its bounds: the truth lies in ``low..high`` with probability ``confidence`` or more.

    >>> answer = Estimate(4812, 4790, 4815, 0.99)
    >>> answer
    Estimate(4_812, 4_790..4_815, 99%)
    >>> 4800 in answer, int(answer)
    (True, 4812)

    ``<``, ``<=``, ``>`` and ``>=`` compare the ``value`` only, with another estimate or with a number. ``==`` compares all
    four fields, as ``hash`` does: two estimates with the same value and other bounds are not equal, and no number is equal
    to an estimate; compare ``answer.value`` for that.

    >>> answer > 4800, answer < Estimate(5000, 4000, 6000, 0.9), answer == 4812
    (True, True, False)

    Estimates add up and subtract, with their bounds (interval arithmetic). The result holds if both estimates hold, so the
    probabilities that either does not are added (union bound); they need not be independent. A number shifts an estimate
    or scales it, with the same confidence. Integers are exact, floats are rounded as usual.

    >>> answer + Estimate(100, 95, 110, 0.98), answer - Estimate(100, 95, 110, 0.98)
    (Estimate(4_912, 4_885..4_925, 97%), Estimate(4_712, 4_680..4_720, 97%))
    >>> sum([answer, answer]), answer * -2, answer / 60
    (Estimate(9_624, 9_580..9_630, 98%), Estimate(-9_624, -9_630..-9_580, 99%), Estimate(80.2, 79.83..80.25, 99%))

    ``int``, ``float``, ``round`` and a format are of the value; without a format it is printed with its bounds.

    >>> round(answer, -2), f"{answer:,.0f}", f"{answer}"
    (4800, '4,812', 'Estimate(4_812, 4_790..4_815, 99%)')

    - ``value``: the estimate.
    - ``low``, ``high``: bounds of the truth, both included.
    - ``confidence``: the probability, at least, that the truth lies between the bounds.
    """

    value: int | float
    low: int | float
    high: int | float
    confidence: float

    def __lt__(self, other: "Estimate | float") -> bool:
        return NotImplemented if (value := _value_of(other)) is None else self.value < value

    def __le__(self, other: "Estimate | float") -> bool:
        return NotImplemented if (value := _value_of(other)) is None else self.value <= value

    def __gt__(self, other: "Estimate | float") -> bool:
        return NotImplemented if (value := _value_of(other)) is None else self.value > value

    def __ge__(self, other: "Estimate | float") -> bool:
        return NotImplemented if (value := _value_of(other)) is None else self.value >= value

    def __add__(self, other: "Estimate | float") -> "Estimate":
        if isinstance(other, Estimate):
            bounds = self.value + other.value, self.low + other.low, self.high + other.high
            return Estimate(*bounds, _both_hold(self.confidence, other.confidence))
        if not isinstance(other, Real):
            return NotImplemented
        by = _finite(other, "+")
        return Estimate(self.value + by, self.low + by, self.high + by, self.confidence)

    __radd__ = __add__

    def __neg__(self) -> "Estimate":
        return Estimate(-self.value, -self.high, -self.low, self.confidence)

    def __sub__(self, other: "Estimate | float") -> "Estimate":
        if isinstance(other, Estimate):
            return self + -other
        if not isinstance(other, Real):
            return NotImplemented
        return self + -_finite(other, "-")  # a number of Python: unsigned ones of NumPy have no negative

    def __rsub__(self, other: float) -> "Estimate":
        if not isinstance(other, Real):
            return NotImplemented
        return -self + other

    def __mul__(self, factor: float) -> "Estimate":
        if not isinstance(factor, Real):
            return NotImplemented
        by = _finite(factor, "*")
        if by == 0:  # an infinite bound times 0 would be no number
            return Estimate(0, 0, 0, self.confidence)
        low, high = sorted((self.low * by, self.high * by))
        return Estimate(self.value * by, low, high, self.confidence)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Estimate":
        if not isinstance(divisor, Real):
            return NotImplemented
        by = _finite(divisor, "/")
        low, high = sorted((self.low / by, self.high / by))
        return Estimate(self.value / by, low, high, self.confidence)

    def __round__(self, digits: int | None = None) -> int | float:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __contains__(self, truth: float) -> bool:
        return self.low <= truth <= self.high

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"Estimate({number(self.value)}, {number(self.low)}..{number(self.high)}, {percent(self.confidence)})"

    def _repr_html_(self) -> str:
        columns = [[name, number(getattr(self, name))] for name in ("value", "low", "high")]
        return html_table([*columns, ["confidence", percent(self.confidence)]])


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Many answers of one question as columns: ``value``, ``low`` and ``high`` are NumPy arrays.

    >>> import numpy as np
    >>> answers = Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0)
    >>> answers[0]
    Estimate(7, 6..8, 100%)
    >>> len(answers), answers.high.tolist(), answers[answers.value > 8].low.tolist()
    (2, [8, 9], [9])
    """

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    confidence: float

    def __len__(self) -> int:
        return int(self.value.size)

    @overload
    def __getitem__(self, i: int) -> Estimate: ...

    @overload
    def __getitem__(self, i: slice | NDArray[Any]) -> "Estimates": ...

    def __getitem__(self, i: int | slice | NDArray[Any]) -> "Estimate | Estimates":
        if type(i) is int or (isinstance(i, SupportsIndex) and getattr(i, "ndim", 0) == 0):  # the second is slow to tell
            return Estimate(self.value[i].item(), self.low[i].item(), self.high[i].item(), self.confidence)
        return Estimates(self.value[i], self.low[i], self.high[i], self.confidence)

    def __iter__(self) -> Iterator[Estimate]:
        return (self[i] for i in range(len(self)))

    def _repr_html_(self) -> str:
        columns = [[name, *map(number, getattr(self, name)[:HTML_ROWS].tolist())] for name in ("value", "low", "high")]
        return html_table(columns, [*and_more(len(self) - HTML_ROWS), f"confidence {percent(self.confidence)}"])

    def to_arrow(self) -> Any:
        """The columns value, low and high as an Arrow table.

        >>> import numpy as np
        >>> Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0).to_arrow().to_pylist()
        [{'value': 7, 'low': 6, 'high': 8}, {'value': 9, 'low': 9, 'high': 9}]
        """
        import pyarrow as pa

        return pa.table({"value": self.value, "low": self.low, "high": self.high})

    def to_pandas(self) -> Any:
        """The columns value, low and high as a data frame."""
        return data_frame(self.to_arrow())


def _value_of(other: Any) -> int | float | None:
    """What an estimate is compared with, or None for what is neither an estimate nor a number."""
    if isinstance(other, Estimate):
        return other.value
    return other if isinstance(other, Real) else None  # type: ignore[return-value]


def _finite(number: Any, operator: str) -> int | float:
    """A number of Python from any kind of number, refused where the bounds of the result would mean nothing."""
    plain = int(number) if isinstance(number, Integral) else float(number)
    if not math.isfinite(plain):
        raise InputError(f"Estimate {operator} {plain}", remedy="give a finite number")
    return plain


def _both_hold(left: float, right: float) -> float:
    """A lower bound of the probability that two estimates hold at once, whether or not they are independent."""
    return max(1 - ((1 - left) + (1 - right)), 0.0)


def number(x: int | float) -> str:
    """A number as people read it."""
    if isinstance(x, int):
        return f"{x:_}"
    return f"{x:_.0f}" if abs(x) >= 100 else f"{x:.4g}"


def percent(probability: float) -> str:
    """A probability as people read it."""
    return f"{probability:.4%}".rstrip("%").rstrip("0").rstrip(".") + "%"


def and_more(rows: int) -> list[str]:
    """The line below a table that leaves rows out, if it does."""
    return [f"… and {rows:_} more"] if rows > 0 else []


def html_table(columns: Sequence[Sequence[str]], foot: Sequence[str] = ()) -> str:
    """A small table for notebooks, from columns of text that begin with their heading."""
    head, *body = zip(*columns, strict=True)
    rows = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    rows += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    rows += [f'<td colspan="{len(columns)}">{escape(line)}</td>' for line in foot]
    # Without the classes a notebook takes what stands between two dollars for mathematics.
    return '<table class="tex2jax_ignore mathjax_ignore">' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def data_frame(table: Any) -> Any:
    """An Arrow table in pandas, which Arrow imports: nothing here may."""
    try:
        return table.to_pandas()
    except ImportError as error:
        raise LatelyError("to_pandas() needs pandas", remedy="run pip install pandas, or use to_arrow()") from error
