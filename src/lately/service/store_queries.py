"""From a request to a question of the library: which range, which sites, which sketch."""

import re
from collections.abc import Callable, Hashable
from typing import TypeVar

from lately.service.executor import TimedExecutor
from lately.service.http_errors import HttpError
from lately.service.request_models import CountsBody, RangeParams, SketchParams
from lately.store.documents import Scope
from lately.store.questions import Questions
from lately.store.tables import TimeType
from lately.store.view import View

T = TypeVar("T")

#: The time zone of a time whose plus sign was not percent-encoded: in a query string it then means a blank.
_ZONE = re.compile(r" (\d\d:?\d\d)$")


def scope_of(params: RangeParams | CountsBody, time_type: TimeType) -> Scope:
    """The part of the stream that a request is about.

    Parameters
    ----------
    params
        The parameters of the request.
    time_type
        Whether the stream's times are "timestamp" or "integer".

    >>> params = SketchParams.model_validate({"from": "2h", "site": ["paris", "lima"]})
    >>> scope_of(params, "timestamp")
    Scope(last=None, between=('2h', '0s'), sites=('lima', 'paris'), of=None)
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
    return Scope(params.last, between, tuple(sorted(set(sites))) if sites else None, of)


def range_of(scope: Scope) -> dict[str, str | int | None]:
    """The range of a question, as its answer repeats it."""
    start, end = scope.between or (None, None)
    return {"last": scope.last, "from": start, "to": end}


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

    def scope(self, params: RangeParams | CountsBody) -> Scope:
        """The range, sites and sketch of a request."""
        return scope_of(params, self.view.time_type)

    async def ask(self, kind: Hashable, scope: Scope, call: Callable[[Questions], T]) -> T:
        """The answer of the stored sketches.

        Parameters
        ----------
        kind
            Distinguishes questions that differ in cost.
        scope
            What the question is about.
        call
            Asks the question.
        """
        version = self.view.version()
        number = None if version is None else version.number
        return await self._executor.run((kind, number, scope), lambda: call(self._questions))

    async def read(self, kind: Hashable, call: Callable[[View], T]) -> T:
        """What ``call`` reads from the tables of the store; calls of the same kind are expected to take equally long."""
        return await self._executor.run((kind, self.view.batch), lambda: call(self.view))

    def answerable(self) -> list[str]:
        """The kinds of question that the stored sketches can answer."""
        return [*self._questions.answerable()]
