"""Answers from a store, read by this process: the documents that the HTTP API gives, without a service."""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from lately.cli.asked import Asked, Document
from lately.core.estimate import Estimate
from lately.core.times import iso_time
from lately.core.words import with_state
from lately.store.questions import Questions
from lately.store.site_report import site_report
from lately.store.view import View

_ANSWER = ("query", "site", "item", "value", "low", "high", "confidence")
#: The most reasons of late or rejected rows, as in an answer of the service.
_REASONS = 100
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
        return {"sites": found, "asof": iso_time(self._questions.asof)}

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

    # -- what the pipeline wrote -------------------------------------------------------------------------------------------

    def answers(self, query: str | None) -> Document:
        rows = [_row(one, _ANSWER) for one in self._view.answers(query)]
        return {"batch": self._view.batch, "time": iso_time(self._view.now), "rows": rows}

    def history(self, query: str, item: str | None, site: str | None, limit: int) -> Document:
        found = self._view.history(query, item=item, site=site, limit=limit)
        return {"query": query, "item": item, "site": site, "rows": [_row(one, _HISTORY) for one in found]}

    def alerts(self, limit: int) -> Document:
        return {"rows": [_row(with_state(one)) for one in self._view.alerts(limit=limit)]}

    def runs(self, limit: int) -> Document:
        return {"rows": [_row(one) for one in self._view.runs(limit=limit)]}

    def sites(self, limit: int, state: str | None) -> Document:
        page = site_report(self._view).document(limit, state=state)
        return page | {"newest": iso_time(page["newest"]), "rows": [_row(one) for one in page["rows"]]}

    def refused(self, table: str, limit: int, site: str | None, reason: str | None) -> Document:
        find = self._view.late if table == "late" else self._view.rejected
        found = find(limit=limit, site=site, reason=reason)
        reasons, complete = self._view.reasons(table, site=site)
        counted = [{"reason": text, "rows": rows} for text, rows in list(reasons.items())[:_REASONS]]
        return {"reasons": counted, "complete": complete, "rows": [_row(one) for one in reversed(found)]}

    # -- what is asked, as the library takes it ----------------------------------------------------------------------------

    def _options(self, asked: Asked) -> dict[str, Any]:
        now = "0" if self._view.moment == "integer" else "0s"  # the age of now
        between = None if asked.start is None else (asked.start, now if asked.end is None else asked.end)
        return {"last": asked.last, "between": between, "sites": list(asked.sites) or None, "of": asked.of}

    def _rows(self, rows: Iterable[Document]) -> Document:
        return {"rows": list(rows), "asof": iso_time(self._questions.asof)}

    def _found(self, one: Estimate) -> Document:
        return {"estimate": estimate(one), "asof": iso_time(self._questions.asof)}


# -- as JSON has it ----------------------------------------------------------------------------------------------------


def estimate(one: Estimate) -> Document:
    """An estimate as JSON has it.

    >>> estimate(Estimate(7, 5.5, float("inf"), 0.99))
    {'value': 7, 'low': 5.5, 'high': None, 'confidence': 0.99}
    """
    return {name: _number(getattr(one, name)) for name in ("value", "low", "high", "confidence")}


def _number(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def _key(value: Any) -> str | int:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else int(value)


def _row(found: dict[str, Any], names: Iterable[str] | None = None) -> Document:
    given = {name: found[name] for name in (found if names is None else names)}
    return {name: iso_time(one) if isinstance(one, datetime) else _number(one) for name, one in given.items()}
