"""Answers with many rows, such as the most frequent keys: a list to walk through, columns to compute with, a table to see."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from lately.core import plots
from lately.core.errors import ParameterError, QueryError
from lately.core.estimate import HTML_ROWS, Estimate, Estimates, and_more, data_frame, html_table, number, percent

_TEXT_ROWS = 20
_CELL = 60  # characters

Column = Sequence[Any] | NDArray[Any] | Estimates


class KeyCount(NamedTuple):
    """A key and how often it was seen."""

    key: Any
    count: Estimate  # type: ignore[assignment]  # tuples have a method of that name, unused on rows


class QuantileAt(NamedTuple):
    """The value below which a share ``q`` of all values lies."""

    q: float
    value: Estimate


class PrefixCount(NamedTuple):
    """A prefix of ``bits`` bits, how often it was seen, and ``own``: what is left without the heavy prefixes below it."""

    prefix: Any
    bits: int
    count: Estimate  # type: ignore[assignment]
    own: Estimate


R = TypeVar("R", bound=NamedTuple)


class Answers(Generic[R]):
    """Rows of a named tuple, kept as columns: one for each field, fields that are an ``Estimate`` as ``Estimates``.

    It is read like a list; ``answers.key`` is the column of that field, and a slice or a mask chooses rows. ``missed``, where
    there is one, bounds what the whole answer left out: a row that is not listed has at most this many.

    >>> counts = Estimates(np.array([4812, 97]), np.array([4790, 90]), np.array([4815, 99]), 0.99)
    >>> answers = Answers(KeyCount, [["/", "/cart"], counts], missed=50)
    >>> answers
    key    count  low..high, 99%
    /      4_812    4_790..4_815
    /cart     97          90..99
    not listed: 50 at most
    >>> answers[1]
    KeyCount(key='/cart', count=Estimate(97, 90..99, 99%))
    >>> answers.key, answers[answers.count.value > 100].key
    (['/', '/cart'], ['/'])
    """

    def __init__(self, row: type[R], columns: Sequence[Column], *, missed: int | None = None) -> None:
        if len(columns) != len(row._fields):
            raise ParameterError(f"{len(columns)} columns for a {row.__name__}", remedy=f"give {', '.join(row._fields)}")
        sizes = [len(column) for column in columns]
        if len(set(sizes)) > 1:
            raise ParameterError(f"columns of {', '.join(map(str, sizes))} rows", remedy="give columns of one length")
        self._row = row
        self._columns = [c if isinstance(c, Estimates | np.ndarray) else list(c) for c in columns]
        self.missed = missed

    # -- rows ----------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, i: int) -> R: ...

    @overload
    def __getitem__(self, i: slice | Sequence[bool] | NDArray[Any]) -> "Answers[R]": ...

    def __getitem__(self, i: Any) -> "R | Answers[R]":
        if isinstance(i, SupportsIndex) and getattr(i, "ndim", 0) == 0:  # an array has an index too, if only to refuse it
            return self._row._make(_plain(column[operator.index(i)]) for column in self._columns)
        places = np.arange(len(self))[i]
        columns = [[c[j] for j in places] if isinstance(c, list) else c[places] for c in self._columns]
        return Answers(self._row, columns, missed=self.missed)

    def __iter__(self) -> Iterator[R]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Answers | list) else NotImplemented

    # -- columns -------------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # No field begins with an underscore; a copy in the making has no ``_row`` to ask yet.
        if name.startswith("_") or name not in self._row._fields:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
        return self._columns[self._row._fields.index(name)]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._row._fields]

    def to_arrow(self) -> Any:
        """An Arrow table; estimates named count become count, count_low and count_high, a mixture of types becomes text.

        >>> counts = Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0)
        >>> Answers(KeyCount, [[1, "a"], counts]).to_arrow().to_pydict()
        {'key': ['1', 'a'], 'count': [7, 9], 'count_low': [6, 9], 'count_high': [8, 9]}
        """
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for name, column in zip(self._row._fields, self._columns, strict=True):
            if isinstance(column, Estimates):
                columns |= {name: column.value, f"{name}_low": column.low, f"{name}_high": column.high}
                continue
            try:
                columns[name] = pa.array(column)
            except (pa.ArrowException, OverflowError):
                columns[name] = pa.array([str(_plain(value)) for value in column])
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """A data frame with the columns of ``to_arrow``."""
        return data_frame(self.to_arrow())

    # -- to look at ----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        columns = []
        for cells, is_number in self._cells(_TEXT_ROWS):
            width = max(map(len, cells))
            columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in cells])
        rows = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
        return "\n".join([*rows, *self._foot(_TEXT_ROWS)])

    def _repr_html_(self) -> str:
        return html_table([cells for cells, _ in self._cells(HTML_ROWS)], self._foot(HTML_ROWS))

    def plot(self, ax: Any = None) -> Any:
        """Draw the first column of estimates with its bounds, as bars or, for quantiles, as a curve; needs matplotlib.

        >>> from matplotlib.figure import Figure
        >>> counts = Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0)
        >>> ax = Answers(KeyCount, [["/cart", "/"], counts]).plot(Figure().subplots())
        >>> ax.get_xlabel(), len(ax.patches)
        ('count', 2)
        """
        named = list(zip(self._row._fields, self._columns, strict=True))
        estimates = [(name, column) for name, column in named if isinstance(column, Estimates)]
        plain = [(name, column) for name, column in named if not isinstance(column, Estimates)]
        if not estimates or not plain:
            raise QueryError(f"rows of {self._row.__name__} have no plot: it takes a plain column and one of estimates")
        if self._row is QuantileAt:
            ax = plots.curve(plain[0][1], estimates[0][1], ax)
            ax.set(xlabel=plain[0][0], ylabel=estimates[0][0])
        else:
            ax = plots.bars(plain[0][1], estimates[0][1], ax)
            ax.set(xlabel=estimates[0][0])
        return ax

    def _cells(self, most: int) -> list[tuple[list[str], bool]]:
        """The first rows as columns of text that begin with their heading, and whether they are numbers."""
        columns = []
        for name, column in zip(self._row._fields, self[:most]._columns, strict=True):
            if isinstance(column, Estimates):
                columns.append(([name, *(number(estimate.value) for estimate in column)], True))
                bounds = (f"{number(estimate.low)}..{number(estimate.high)}" for estimate in column)
                columns.append(([f"low..high, {percent(column.confidence)}", *bounds], True))
            else:
                columns.append(([name, *(plots.readable(value, _CELL) for value in column)], False))
        return columns

    def _foot(self, most: int) -> list[str]:
        missed = [] if self.missed is None else [f"not listed: {number(self.missed)} at most"]
        return and_more(len(self) - most) + missed


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
