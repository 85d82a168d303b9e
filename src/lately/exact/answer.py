"""The answers of exact windows: of one query, and of all queries together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.answers import Answers
from lately.core.estimate import data_frame, percent


class KeyValue(NamedTuple):
    """A substream and its aggregate: a number, or of an approximate filter an ``Estimate``."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one query: a number, or for a filter the substreams that pass it.

    Parameters
    ----------
    value
        The number, or for a filter a table of keys and values. None while ``covered`` is below 1, and, as in SQL, for all
        aggregates but a count if the window has no values.
    rows
        The number of arrivals in the window; for a filter the number of substreams that pass.
    missing
        The number of these arrivals without a value; 0 by default.
    covered
        The share of the window of which all arrivals are known; 1 by default. It is below 1 for a while after a query is added
        to a stream that has begun.

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
        if isinstance(self.value, Answers):
            parts = [f"{len(self.value):_} keys"]
        else:
            parts = [_written(self.value), f"{self.rows:_} rows"]
        parts += [f"{self.missing:_} missing"] if self.missing else []
        parts += [f"{percent(self.covered)} covered"] if self.covered < 1 else []
        return f"Answer({', '.join(parts)})"


def _written(value: Any) -> str:
    """A value with all its digits, as text for users."""
    return f"{value:_}" if isinstance(value, int | float) else str(value)


class LookupResult(NamedTuple):
    """The answers of queries for numbers, one entry for each query."""

    values: NDArray[np.float64]
    rows: NDArray[np.int64]
    missing: NDArray[np.int64]
    covered: NDArray[np.float64]
    integer: NDArray[np.bool_]  # whether the answer is an integer
    others: dict[int, Any]  # answers that are not floats, by place; for large integers, ``values`` has the nearest float


class _Row(NamedTuple):
    query: str
    value: Any
    rows: int
    missing: int
    covered: float


class WindowAnswers(Mapping[str, Answer]):
    """The answers of all queries at one time: a mapping from names to ``Answer``, and columns to compute with.

    The columns are ``value`` (floats, NaN without an answer and for filters), ``rows``, ``missing`` and ``covered``. An integer
    that no float is equal to is rounded in ``value``; ``answers["name"].value`` is exact.

    Parameters
    ----------
    names
        The names of the queries.
    result
        Their answers in the same order.

    >>> import lately as lt
    >>> w = lt.Windows()
    >>> w.add("rows", lt.agg.count(), last="1m")
    >>> w.add("high", lt.agg.max("x"), last="5m")
    >>> w.update({"x": [2.5, 1.0]}, [0, 100])
    >>> w.answers()
    query  value  rows  missing  covered
    rows   1      1     0        1.0
    high   2.5    2     0        1.0
    >>> w.answers().value.tolist()
    [1.0, 2.5]
    """

    def __init__(self, names: Sequence[str], result: LookupResult) -> None:
        self.names = tuple(names)
        self.value, self.rows, self.missing, self.covered, self._integer, self._others = result
        self._places: dict[str, int] | None = None

    def __getitem__(self, name: str) -> Answer:
        if self._places is None:
            self._places = {name: i for i, name in enumerate(self.names)}
        return self.at(self._places[name])

    def at(self, i: int) -> Answer:
        """The answer at a place.

        Parameters
        ----------
        i
            The place of the query among ``names``, from 0 on.
        """
        if i in self._others:
            value = self._others[i]
            value = None if isinstance(value, float) and value != value else value
        else:
            plain = float(self.value[i])
            value = None if plain != plain else int(plain) if self._integer[i] else plain
        return Answer(value, int(self.rows[i]), int(self.missing[i]), float(self.covered[i]))

    def with_others(self, answers: Mapping[str, Answer], names: Sequence[str]) -> "WindowAnswers":
        """These answers and those of filters, in another order.

        Parameters
        ----------
        answers
            The answers of filters by name.
        names
            All names in the order of the result.
        """
        if not answers:
            return self
        places = {name: i for i, name in enumerate((*self.names, *answers))}
        order = np.array([places[name] for name in names])
        new, blank = list(answers.values()), np.full(len(answers), np.nan)
        others = self._others | {len(self) + i: answer.value for i, answer in enumerate(new)}
        result = LookupResult(
            np.append(self.value, blank)[order],
            np.append(self.rows, [answer.rows for answer in new])[order],
            np.append(self.missing, [answer.missing for answer in new])[order],
            np.append(self.covered, [answer.covered for answer in new])[order],
            np.append(self._integer, blank == 0)[order],
            {place: others[i] for place, i in enumerate(order.tolist()) if i in others},
        )
        return WindowAnswers(names, result)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def to_arrow(self) -> Any:
        """The columns query, value, rows, missing and covered as an Arrow table; filters have no value there.

        Values are integers if all of them are 64-bit integers. Otherwise they are floats, and large integers are rounded.
        """
        plain = [None if isinstance(answer.value, Answers) else answer.value for answer in self.values()]
        numbers = [value for value in plain if value is not None]
        if all(isinstance(value, int | float) for value in numbers) and not all(_is_int64(value) for value in numbers):
            plain = [None if value is None else float(value) for value in plain]
        return self._table(plain).to_arrow()

    def to_pandas(self) -> Any:
        """A data frame with the columns of ``to_arrow``."""
        return data_frame(self.to_arrow())

    def __repr__(self) -> str:
        return repr(self._table([_shown(answer.value) for answer in self.values()]))

    def _repr_html_(self) -> str:
        return self._table([_shown(answer.value) for answer in self.values()])._repr_html_()

    def _table(self, values: list[Any]) -> Answers[Any]:
        return Answers(_Row, [list(self.names), values, self.rows, self.missing, self.covered])


def _is_int64(value: float | int) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _shown(value: Any) -> str:
    return f"{len(value):_} keys" if isinstance(value, Answers) else _written(value)
