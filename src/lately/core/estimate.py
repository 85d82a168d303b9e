"""Answers: a value, the bounds around it, and how sure the bounds are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, SupportsIndex, overload

from numpy.typing import NDArray

from lately.core.errors import LatelyError

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
    """

    value: int | float
    low: int | float
    high: int | float
    confidence: float

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
        raise LatelyError("to_pandas() needs pandas; run pip install pandas, or use to_arrow()") from error
