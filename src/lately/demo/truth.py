"""Exact answers, computed from all rows, which a real site would not keep; and whether the answers' bounds contain them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.config import Config, Counts, Exact, Join, Quantiles, SelfJoin, Top
from lately.demo.scenario import Scenario
from lately.demo.traffic import EVENTS, PATHS, SITES, Rows, concat, rows_of_second
from lately.store.tables import Answer

_INDEX_OF_PATH = {path: index for index, path in enumerate(PATHS)}


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer with the exact value, and whether its bounds contain that; the other fields are those of ``Answer``."""

    query: str
    site: str | None
    item: str | None
    exact: float
    value: float | None
    low: float | None
    high: float | None
    confidence: float
    within_bounds: bool


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
        query = self._queries[answer.query]
        rows = self._rows_of(query.last, now, answer.site)
        match query:
            case Counts() | Top():
                return float(rows.counts[_INDEX_OF_PATH[answer.item or ""]])
            case Quantiles():
                return rows.quantile(float(answer.item or ""))
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


def checked(truth: Truth, answers: Iterable[Answer], now: int) -> list[CheckedAnswer]:
    """The answers of queries after second ``now``, compared with the exact values.

    Parameters
    ----------
    truth
        Computes the exact values.
    answers
        The answers. Those of monitors are left out.
    now
        The newest second whose rows have arrived.
    """
    return [_checked(answer, truth.exact(answer, now)) for answer in answers if truth.has_query(answer.query)]


def _checked(answer: Answer, exact: float) -> CheckedAnswer:
    low = -math.inf if answer.low is None else answer.low
    high = math.inf if answer.high is None else answer.high
    bounds = answer.value, answer.low, answer.high, answer.confidence or 0.0
    return CheckedAnswer(answer.query, answer.site, answer.item, exact, *bounds, within_bounds=low <= exact <= high)


def allowed_misses(confidences: Iterable[float]) -> int:
    """How many of these answers may miss the exact value: the expected number and three standard deviations.

    >>> allowed_misses([0.99] * 1000), allowed_misses([1.0] * 1000)
    (20, 0)
    """
    probabilities = [1 - confidence for confidence in confidences]
    expected = sum(probabilities)
    variance = sum(probability * (1 - probability) for probability in probabilities)
    return math.ceil(expected + 3 * math.sqrt(variance) - 1e-9)
