"""Answers from a store, read by this process: the documents that the HTTP API gives, without a service."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from lately.cli.asked import Asked, Document
from lately.core.errors import InputError, QueryError
from lately.core.estimate import Estimate
from lately.store.questions import Questions
from lately.store.view import View

_ANSWER = ("query", "site", "item", "value", "low", "high", "confidence")
_HISTORY = ("time", "batch", "site", "item", "value", "low", "high", "confidence")


class Local:
    """A store by its path."""

    def __init__(self, path: str) -> None:
        self._view = View(path)
        self._questions = Questions(self._view)

    # -- questions to stored sketches --------------------------------------------------------------------------------------

    def counts(self, keys: list[str], asked: Asked) -> Document:
        found = self._questions.counts(list(keys), **self._options(asked))
        return self._rows({"key": key, "estimate": estimate(one)} for key, (_, one) in zip(keys, found, strict=True))

    def top(self, k: int, each: bool, asked: Asked) -> Document:
        if not each:
            return self._rows(self._top(k, asked))
        sites = sorted(set(asked.sites)) or self._view.sites()
        found = {site: self._top(k, Asked(asked.last, asked.start, asked.end, (site,), asked.of)) for site in sites}
        return {"sites": found, "asof": moment(self._questions.asof)}

    def _top(self, k: int, asked: Asked) -> list[Document]:
        found = self._questions.top(k, **self._options(asked))
        return [{"key": _key(key), "estimate": estimate(one)} for key, one in found]

    def quantiles(self, qs: list[float], asked: Asked) -> Document:
        found = self._questions.quantiles(qs, **self._options(asked))
        return self._rows({"q": float(q), "estimate": estimate(one)} for q, one in found)

    def count_range(self, lo: int, hi: int, asked: Asked) -> Document:
        return self._found(self._questions.count_range(lo, hi, **self._options(asked)))

    def self_join(self, asked: Asked) -> Document:
        return self._found(self._questions.self_join(**self._options(asked)))

    def inner_product(self, left: str, right: str, asked: Asked) -> Document:
        options = self._options(asked)
        del options["of"]
        return self._found(self._questions.inner_product(left, right, **options))

    def total(self, asked: Asked) -> Document:
        return self._found(self._questions.total(**self._options(asked)))

    def sites(self) -> Document:
        sizes = self._view.sketch_bytes()
        rows = [{"site": site, "total": self._total(site), "bytes": sizes.get(site, 0)} for site in self._view.sites()]
        return self._rows(rows)

    def _total(self, site: str) -> Document | None:
        try:
            return estimate(self._questions.total(sites=[site]))
        except (InputError, QueryError):  # it keeps no sketch that could tell
            return None

    # -- what the pipeline wrote -------------------------------------------------------------------------------------------

    def answers(self, query: str | None) -> Document:
        rows = [_row(one, _ANSWER) for one in self._view.answers(query)]
        return {"batch": self._view.batch, "time": moment(self._view.now), "rows": rows}

    def history(self, query: str, item: str | None, site: str | None, limit: int) -> Document:
        found = self._view.history(query, item=item, site=site, limit=limit)
        return {"query": query, "item": item, "site": site, "rows": [_row(one, _HISTORY) for one in found]}

    def alerts(self, limit: int) -> Document:
        return {"rows": [_row(one) for one in self._view.alerts(limit=limit)]}

    def runs(self, limit: int) -> Document:
        return {"rows": [_row(one) for one in self._view.runs(limit=limit)]}

    # -- what is asked, as the library takes it ----------------------------------------------------------------------------

    def _options(self, asked: Asked) -> dict[str, Any]:
        now = "0" if self._view.moment == "integer" else "0s"  # the age of now
        between = None if asked.start is None else (asked.start, now if asked.end is None else asked.end)
        return {"last": asked.last, "between": between, "sites": list(asked.sites) or None, "of": asked.of}

    def _rows(self, rows: Iterable[Document]) -> Document:
        return {"rows": list(rows), "asof": moment(self._questions.asof)}

    def _found(self, one: Estimate) -> Document:
        return {"estimate": estimate(one), "asof": moment(self._questions.asof)}


# -- as JSON has it ----------------------------------------------------------------------------------------------------


def estimate(one: Estimate) -> Document:
    """An estimate as JSON has it.

    >>> estimate(Estimate(7, 5.5, float("inf"), 0.99))
    {'value': 7, 'low': 5.5, 'high': None, 'confidence': 0.99}
    """
    return {name: _number(getattr(one, name)) for name in ("value", "low", "high", "confidence")}


def moment(time: Any) -> str | int | None:
    """A time as ISO text with a Z, or the integer that it is.

    >>> moment(datetime(2026, 1, 1, 12, tzinfo=UTC)), moment(42), moment(None)
    ('2026-01-01T12:00:00Z', 42, None)
    """
    if isinstance(time, datetime):
        return time.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    return None if time is None else int(time)


def _number(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def _key(value: Any) -> str | int:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else int(value)


def _row(found: dict[str, Any], names: Iterable[str] | None = None) -> Document:
    given = {name: found[name] for name in (found if names is None else names)}
    return {name: moment(one) if isinstance(one, datetime) else _number(one) for name, one in given.items()}
