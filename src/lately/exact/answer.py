"""What a query over an exact window answers, one by one and all together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.answers import Answers
from lately.core.estimate import Estimate, number, percent


class KeyValue(NamedTuple):
    """A substream and its aggregate; bounds are apart where the filter is approximate."""

    key: Any
    value: Estimate


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one query: a number, or for a filter the substreams that pass it.

    ``value`` is None while the window is not covered, and for anything but a count when nothing is in it, as in SQL.
    ``rows`` arrivals lie in the window, ``missing`` of them without a value. ``covered`` is the share of the window that
    the query has seen: less than 1 for a while when it was added to a stream that was already running.

    >>> Answer(12_345, 300), Answer(None, 120, covered=0.4)
    (Answer(12_345, 300 rows), Answer(None, 120 rows, 40% covered))
    """

    value: Any
    rows: int
    missing: int = 0
    covered: float = 1.0

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __repr__(self) -> str:
        is_number = isinstance(self.value, int | float)
        parts = [number(self.value) if is_number else str(self.value) if self.value is None else f"{len(self.value)} keys"]
        parts.append(f"{self.rows:_} rows")
        parts += [f"{self.missing:_} missing"] if self.missing else []
        parts += [f"{percent(self.covered)} covered"] if self.covered < 1 else []
        return f"Answer({', '.join(parts)})"


class Found(NamedTuple):
    """What a pass over the queries for numbers found, one entry a query."""

    values: NDArray[np.float64]
    rows: NDArray[np.int64]
    missing: NDArray[np.int64]
    covered: NDArray[np.float64]
    integer: NDArray[np.bool_]  # which are whole numbers
    others: dict[int, Any]  # answers that are no floats, by their place


class _Row(NamedTuple):
    query: str
    value: Any
    rows: int
    missing: int
    covered: float


class WindowAnswers(Mapping[str, Answer]):
    """The answers of all queries, read at one moment: a mapping from their names, and columns to compute with.

    ``value`` is a float for each query, NaN where there is no answer (and for filters, which ``answers["name"]`` holds).

    >>> import lately as lt
    >>> w = lt.Windows()
    >>> w.add("rows", lt.count(), last="1m")
    >>> w.add("high", lt.max_("x"), last="5m")
    >>> w.update({"x": [2.5, 1.0]}, [0, 100])
    >>> w.answers()
    query  value  rows  missing  covered
    rows   1      1     0        1.0
    high   2.5    2     0        1.0
    >>> w.answers().value.tolist()
    [1.0, 2.5]
    """

    def __init__(self, names: Sequence[str], found: Found) -> None:
        self.names = tuple(names)
        self.value, self.rows, self.missing, self.covered, self._integer, self._others = found
        self._places: dict[str, int] | None = None

    def __getitem__(self, name: str) -> Answer:
        if self._places is None:
            self._places = {name: i for i, name in enumerate(self.names)}
        return self.at(self._places[name])

    def at(self, i: int) -> Answer:
        """The i-th answer."""
        if i in self._others:
            value = self._others[i]
            value = None if isinstance(value, float) and value != value else value
        else:
            plain = float(self.value[i])
            value = None if plain != plain else int(plain) if self._integer[i] and abs(plain) < 2**63 else plain
        return Answer(value, int(self.rows[i]), int(self.missing[i]), float(self.covered[i]))

    def with_others(self, answers: Mapping[str, Answer]) -> "WindowAnswers":
        """These, and answers that are no numbers behind them."""
        if not answers:
            return self
        new, blank = list(answers.values()), np.full(len(answers), np.nan)
        found = Found(
            np.append(self.value, blank),
            np.append(self.rows, [answer.rows for answer in new]),
            np.append(self.missing, [answer.missing for answer in new]),
            np.append(self.covered, [answer.covered for answer in new]),
            np.append(self._integer, blank == 0),
            self._others | {len(self) + i: answer.value for i, answer in enumerate(new)},
        )
        return WindowAnswers([*self.names, *answers], found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def to_arrow(self) -> Any:
        """The columns query, value, rows, missing and covered as an Arrow table."""
        return self._table().to_arrow()

    def to_pandas(self) -> Any:
        """A data frame with the columns of ``to_arrow``."""
        return self._table().to_pandas()

    def __repr__(self) -> str:
        return repr(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> Answers[Any]:
        values = [None if answer.value is None else answer.value for answer in self.values()]
        return Answers(_Row, [list(self.names), values, self.rows, self.missing, self.covered])
