"""From a request to a question of the library: which range, which sites, which sketch."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lately.service.executor import TimedExecutor
from lately.service.http_errors import HttpError
from lately.service.models import CountsBody, RangeParams, SketchParams
from lately.store.questions import Questions
from lately.store.view import View

T = TypeVar("T")

#: The time zone of a time whose plus sign was not percent-encoded: in a query string it then means a blank.
_ZONE = re.compile(r" (\d\d:?\d\d)$")


@dataclass(frozen=True)
class QueryScope:
    """The range, sites and sketch of a question. Questions with equal scopes share the work that makes the first one slow.

    Parameters
    ----------
    last
        The length of the most recent period, such as "10m"; None for the whole window, or if ``between`` is given.
    between
        The start and the end of a range, each an age or a time.
    sites
        The names of the sites, sorted; None for all.
    of
        The query or sketch to ask; None lets the library choose.
    """

    last: str | int | None = None
    between: tuple[str | int, str | int] | None = None
    sites: tuple[str, ...] | None = None
    of: str | None = None

    @classmethod
    def of_request(cls, params: RangeParams | CountsBody, time_type: str) -> "QueryScope":
        """The scope of a request.

        Parameters
        ----------
        params
            The parameters of the request.
        time_type
            Whether the stream's times are "timestamp" or "integer".

        >>> params = SketchParams.model_validate({"from": "2h", "site": ["paris", "lima"]})
        >>> QueryScope.of_request(params, "timestamp")
        QueryScope(last=None, between=('2h', '0s'), sites=('lima', 'paris'), of=None)
        """
        between: tuple[str | int, str | int] | None = None
        if params.start is not None or params.end is not None:
            if params.last is not None or params.start is None:
                problem = "last together with from or to" if params.last is not None else "to without from"
                raise HttpError(400, "bad_range", problem, "give last, or from, or from and to")
            end = params.end if params.end is not None else 0 if time_type == "integer" else "0s"
            between = _with_zone(params.start), _with_zone(end)
        sites = params.site if isinstance(params, RangeParams) else params.sites
        of = None if isinstance(params, RangeParams) and not isinstance(params, SketchParams) else params.of
        return cls(params.last, between, tuple(sorted(set(sites))) if sites else None, of)

    def options(self) -> dict[str, Any]:
        """The keyword arguments for the methods of ``Questions``."""
        options = {"last": self.last, "between": self.between, "sites": self.sites}
        return options if self.of is None else options | {"of": self.of}

    def range(self) -> dict[str, Any]:
        """The range as an answer repeats it."""
        start, end = self.between or (None, None)
        return {"last": self.last, "from": start, "to": end}


def _with_zone(time: str | int) -> str | int:
    return _ZONE.sub(r"+\1", time) if isinstance(time, str) else time


class StoreQueries:
    """Asks one store the questions of all requests.

    Parameters
    ----------
    view
        The store.
    executor
        Runs the questions.
    """

    def __init__(self, view: View, executor: TimedExecutor) -> None:
        self.view, self._questions, self._executor = view, Questions(view), executor

    def scope(self, params: RangeParams | CountsBody) -> QueryScope:
        """The range, sites and sketch of a request."""
        return QueryScope.of_request(params, self.view.moment)

    async def ask(self, kind: Any, scope: QueryScope, call: Callable[[Questions], T]) -> tuple[T, Any]:
        """The answer of the stored sketches, and the time of the stream that it is for.

        Parameters
        ----------
        kind
            Distinguishes questions that differ in cost; any hashable value.
        scope
            What the question is about.
        call
            Asks the question.
        """
        version = self.view.version()
        number, asof = (None, None) if version is None else (version.number, version.time)
        return await self._executor.run((kind, number, scope), lambda: call(self._questions)), asof

    async def read(self, kind: Any, call: Callable[[View], T]) -> T:
        """What ``call`` reads from the tables of the store; calls of the same kind are expected to take equally long."""
        return await self._executor.run((kind, self.view.batch), lambda: call(self.view))

    def answerable(self) -> list[str]:
        """The kinds of question that the stored sketches can answer."""
        return self._questions.asks()
