"""From a request to a question of the library: which range, which sites, which sketch."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lately.service.failures import RefusalError
from lately.service.models import Asked, CountsAsked, Ranged
from lately.service.work import Work
from lately.store.questions import Questions
from lately.store.view import View

T = TypeVar("T")

#: A plus sign that nobody quoted is a blank in a query.
_ZONE = re.compile(r" (\d\d:?\d\d)$")


@dataclass(frozen=True)
class Scope:
    """What a question is about; equal ones share what makes the first of them slow."""

    last: str | int | None = None
    between: tuple[str | int, str | int] | None = None
    sites: tuple[str, ...] | None = None
    of: str | None = None

    @classmethod
    def asked(cls, asked: Ranged | CountsAsked, moment: str) -> "Scope":
        """What a request is about.

        >>> Scope.asked(Asked.model_validate({"from": "2h", "site": ["paris", "lima"]}), "timestamp")
        Scope(last=None, between=('2h', '0s'), sites=('lima', 'paris'), of=None)
        """
        between: tuple[str | int, str | int] | None = None
        if asked.since is not None or asked.to is not None:
            if asked.last is not None or asked.since is None:
                what = "last together with from or to" if asked.last is not None else "to without from"
                raise RefusalError(400, "bad_range", what, "give last, or from, or from and to")
            to = asked.to if asked.to is not None else 0 if moment == "integer" else "0s"
            between = _end(asked.since), _end(to)
        sites = asked.site if isinstance(asked, Ranged) else asked.sites
        of = None if isinstance(asked, Ranged) and not isinstance(asked, Asked) else asked.of
        return cls(asked.last, between, tuple(sorted(set(sites))) if sites else None, of)

    def options(self) -> dict[str, Any]:
        """As the library takes them."""
        ranged = {"last": self.last, "between": self.between, "sites": self.sites}
        return ranged if self.of is None else ranged | {"of": self.of}

    def span(self) -> dict[str, Any]:
        """As the answer repeats them."""
        since, to = self.between or (None, None)
        return {"last": self.last, "from": since, "to": to}


def _end(given: str | int) -> str | int:
    return _ZONE.sub(r"+\1", given) if isinstance(given, str) else given


class Asking:
    """The questions of requests, asked of one store."""

    def __init__(self, view: View, work: Work) -> None:
        self.view, self._questions, self._work = view, Questions(view), work

    def scope(self, asked: Ranged | CountsAsked) -> Scope:
        """What a request is about."""
        return Scope.asked(asked, self.view.moment)

    async def ask(self, what: Any, scope: Scope, call: Callable[[Questions], T]) -> tuple[T, Any]:
        """What a question gives, and the time it is for; ``what`` tells questions of different cost apart."""
        version = self.view.version()
        number, asof = (None, None) if version is None else (version.number, version.time)
        return await self._work.do((what, number, scope), lambda: call(self._questions)), asof

    async def read(self, what: Any, call: Callable[[View], T]) -> T:
        """What the tables have to say."""
        return await self._work.do((what, self.view.batch), lambda: call(self.view))

    def asks(self) -> list[str]:
        """Which questions the stored sketches can answer."""
        return self._questions.asks()
