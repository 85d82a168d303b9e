"""Exact answers, computed from all rows, which a real site would not keep; and whether the answers' bounds contain them."""

import math
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.config import Config, Counts, Exact, Join, Quantiles, SelfJoin, Top
from lately.demo.scenario import Scenario
from lately.demo.traffic import EVENTS, PATHS, SITES, Rows, concat, rows_of_second

_INDEX_OF_PATH = {path: index for index, path in enumerate(PATHS)}

Answer = dict[str, Any]


class _RangeRows:
    """The rows of a range, with the statistics that several answers need."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        return self.counts_of(None)

    @cached_property
    def sorted_ms(self) -> NDArray[np.float64]:
        return np.sort(self.rows.ms)

    def counts_of(self, event: str | None) -> NDArray[np.float64]:
        """How often each path occurs, in all rows or in those of one event."""
        path = self.rows.path if event is None else self.rows.path[self.rows.event == EVENTS.index(event)]
        return np.bincount(path, minlength=len(PATHS)).astype(np.float64)

    def quantile(self, q: float) -> float:
        """The smallest value that at least a share of ``q`` of the rows does not exceed."""
        return float(self.sorted_ms[max(1, math.ceil(q * self.sorted_ms.size)) - 1])


class Truth:
    """The exact values of the demo's answers. The rows are generated again from the same seed.

    Parameters
    ----------
    config
        The pipeline.
    seed, scenario
        Those of the traffic.
    """

    def __init__(self, config: Config, seed: int, scenario: Scenario) -> None:
        self._window, self._queries = config.window.window, {query.name: query for query in config.queries}
        self._rows_at = lru_cache(maxsize=None)(lambda number: rows_of_second(number, seed, scenario))
        self._rows_of = lru_cache(maxsize=32)(self._rows_of_range)

    def has_query(self, name: str) -> bool:
        """Whether this is a query. Values of monitors are not checked: they may be as old as their ``theta`` allows."""
        return name in self._queries

    def exact(self, answer: Answer, now: int) -> float:
        """The exact value of an answer, given that ``now`` is the newest second whose rows have arrived."""
        query = self._queries[answer["query"]]
        rows = self._rows_of(query.last, now, answer["site"])
        match query:
            case Counts() | Top():
                return float(rows.counts[_INDEX_OF_PATH[answer["item"]]])
            case Quantiles():
                return rows.quantile(float(answer["item"]))
            case SelfJoin():
                return float(rows.counts @ rows.counts)
            case Join():
                return float(rows.counts_of(_event_of(query.left)) @ rows.counts_of(_event_of(query.right)))
            case Exact(aggregate="count"):
                return float(len(rows.rows))
        raise AssertionError(query)

    def nbytes(self, now: int) -> int:
        """The size of the rows of the whole window as an Arrow table, in bytes."""
        if now < 0:
            return 0
        return int(self._rows_of(None, now, None).rows.table(0).nbytes)

    def _rows_of_range(self, last: Any, now: int, site: str | None) -> _RangeRows:
        """The rows of the most recent period that had arrived by then, the newest second included."""
        if site is not None:
            rows = self._rows_of(last, now, None).rows
            return _RangeRows(rows.where(rows.site == SITES.index(site)))
        first = max(0, now + 1 - (self._window.ticks if last is None else self._window.length(last)))
        rows = concat([self._rows_at(number) for number in range(first, now + 1)])
        return _RangeRows(rows.where(rows.tick >= first))


def _event_of(expression: str) -> str:
    """The event of an expression such as ``event = 'view'``, the only kind that the demo has."""
    return expression.split("'")[1]


def checked(truth: Truth, answers: Iterable[Answer], now: int) -> list[Answer]:
    """The answers of queries after second ``now``, with two more columns: ``exact``, and whether it is ``within_bounds``."""
    rows = [answer | {"exact": truth.exact(answer, now)} for answer in answers if truth.has_query(answer["query"])]
    return [row | {"within_bounds": row["low"] <= row["exact"] <= row["high"]} for row in rows]


def allowed_misses(answers: Iterable[Answer]) -> int:
    """How many answers may miss the exact value, given their confidences: the expected number and three standard deviations.

    >>> allowed_misses([{"confidence": 0.99}] * 1000), allowed_misses([{"confidence": 1.0}] * 1000)
    (20, 0)
    """
    probabilities: list[float] = [1 - answer["confidence"] for answer in answers]
    expected = sum(probabilities)
    variance = sum(probability * (1 - probability) for probability in probabilities)
    return math.ceil(expected + 3 * math.sqrt(variance) - 1e-9)
