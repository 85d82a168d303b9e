"""Exact answers, from all rows, which a real site would not keep; and whether what was answered lies where it promised."""

import math
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.config import Config, Counts, Exact, Join, Quantiles, SelfJoin, Top
from lately.demo.story import Story
from lately.demo.traffic import EVENTS, PATHS, SITES, Rows, second, together

_PLACES = {path: place for place, path in enumerate(PATHS)}

Answer = dict[str, Any]


class _Seen:
    """The rows of a range, and what is asked of them more than once."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        return self.of_event(None)

    @cached_property
    def sorted_ms(self) -> NDArray[np.float64]:
        return np.sort(self.rows.ms)

    def of_event(self, event: str | None) -> NDArray[np.float64]:
        """How often each path was seen, in all rows or in those of an event."""
        path = self.rows.path if event is None else self.rows.path[self.rows.event == EVENTS.index(event)]
        return np.bincount(path, minlength=len(PATHS)).astype(np.float64)

    def quantile(self, q: float) -> float:
        """The least value that a share of ``q`` of all does not exceed."""
        return float(self.sorted_ms[max(1, math.ceil(q * self.sorted_ms.size)) - 1])


class Truth:
    """What the answers after a second should have been; rows are drawn again, from the same seed."""

    def __init__(self, config: Config, seed: int, story: Story) -> None:
        self._window, self._queries = config.window.window, {query.name: query for query in config.queries}
        self._at = lru_cache(maxsize=None)(lambda number: second(number, seed, story))
        self._last = lru_cache(maxsize=32)(self._range)

    def knows(self, query: str) -> bool:
        """Whether it is one of the queries; what monitors announce is as new as their ``theta`` demands."""
        return query in self._queries

    def of(self, answer: Answer, now: int) -> float:
        """The exact value of an answer, if second ``now`` was the last one whose rows had come."""
        query = self._queries[answer["query"]]
        seen = self._last(query.last, now, answer["site"])
        match query:
            case Counts() | Top():
                return float(seen.counts[_PLACES[answer["item"]]])
            case Quantiles():
                return seen.quantile(float(answer["item"]))
            case SelfJoin():
                return float(seen.counts @ seen.counts)
            case Join():
                return float(seen.of_event(_event(query.left)) @ seen.of_event(_event(query.right)))
            case Exact(aggregate="count"):
                return float(len(seen.rows))
        raise AssertionError(query)

    def nbytes(self, now: int) -> int:
        """What the rows of the whole window would take, as Arrow has them."""
        if now < 0:
            return 0
        return int(self._last(None, now, None).rows.table(0).nbytes)

    def _range(self, last: Any, now: int, site: str | None) -> _Seen:
        """The rows of the most recent period that had come by then, the newest second included."""
        if site is not None:
            rows = self._last(last, now, None).rows
            return _Seen(rows.where(rows.site == SITES.index(site)))
        first = max(0, now + 1 - (self._window.ticks if last is None else self._window.length(last)))
        rows = together([self._at(number) for number in range(first, now + 1)])
        return _Seen(rows.where(rows.tick >= first))


def _event(text: str) -> str:
    """The event of an expression such as ``event = 'view'``, the only kind that the demo has."""
    return text.split("'")[1]


def checked(truth: Truth, answers: Iterable[Answer], now: int) -> list[Answer]:
    """The answers to queries after second ``now``, each with the exact value and whether its bounds hold it."""
    found = [answer | {"exact": truth.of(answer, now)} for answer in answers if truth.knows(answer["query"])]
    return [answer | {"held": answer["low"] <= answer["exact"] <= answer["high"]} for answer in found]


def allowed(answers: Iterable[Answer]) -> int:
    """How many answers may lie outside of their bounds, by what they promise: the expected number, and three deviations.

    >>> allowed([{"confidence": 0.99}] * 1000), allowed([{"confidence": 1.0}] * 1000)
    (20, 0)
    """
    doubts: list[float] = [1 - answer["confidence"] for answer in answers]
    expected = sum(doubts)
    spread = sum(doubt * (1 - doubt) for doubt in doubts)
    return math.ceil(expected + 3 * math.sqrt(spread) - 1e-9)
