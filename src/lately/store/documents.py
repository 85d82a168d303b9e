"""What a store answers, as documents: the same for ``lately query``, its ``--json``, and the HTTP service.

Each question is a function of a ``Questions`` (or of its view) that returns a dataclass. ``DOCUMENTS`` has the dataclass of
each path of the HTTP API, so that a client reads with ``read_json`` what the service wrote with ``encode``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lately.core.estimate import Estimate
from lately.store.questions import Questions
from lately.store.site_report import SitePage, SiteState, site_report
from lately.store.tables import Alert, Answer, Run, Time, UncountedRow
from lately.store.view import View

#: The most reasons that are listed of late or rejected rows.
MAX_REASONS = 100

#: An end of a range: an age such as "2h", an ISO time, or an integer where the times of the stream are integers.
RangeEnd: TypeAlias = str | int


@dataclass(frozen=True)
class Scope:
    """Which part of the stream a question is about. Questions of equal scope share what makes the first of them slow.

    Parameters
    ----------
    last
        The most recent period, such as "10m"; by default the whole window.
    between
        A range that ended in the past, instead of ``last``: its older and its newer end.
    sites
        The names of sites; by default all.
    of
        The query or sketch that is asked; by default the best that fits.
    """

    last: str | int | None = None
    between: tuple[RangeEnd, RangeEnd] | None = None
    sites: tuple[str, ...] | None = None
    of: str | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of the methods of ``Questions``; ``inner_product`` takes them where ``of`` is None."""
        ranged = {"last": self.last, "between": self.between, "sites": self.sites}
        return ranged if self.of is None else ranged | {"of": self.of}


# -- answers of stored sketches ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyEstimate:
    """A key and how often it occurred."""

    key: str | int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class QuantileEstimate:
    """The value below which a share ``q`` of all values lies."""

    q: float
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class EstimateDocument:
    """A single estimate; ``asof`` is the instant of the stream at which its range ends."""

    estimate: Estimate
    asof: Time | None


@dataclass(frozen=True, slots=True)
class KeysDocument:
    """How often each of some keys occurred."""

    rows: list[KeyEstimate]
    asof: Time | None


@dataclass(frozen=True, slots=True)
class SiteKeysDocument:
    """How often each of some keys occurred, for each site."""

    sites: dict[str, list[KeyEstimate]]
    asof: Time | None


@dataclass(frozen=True, slots=True)
class QuantilesDocument:
    """Quantiles of the values."""

    rows: list[QuantileEstimate]
    asof: Time | None


def counts(questions: Questions, keys: Sequence[str | int], scope: Scope) -> KeysDocument:
    """How often each of these keys occurred, in their order."""
    estimates = questions.counts(keys, **scope.options())
    return KeysDocument([KeyEstimate(key, row.count) for key, row in zip(keys, estimates, strict=True)], questions.asof)


def top(questions: Questions, k: int, scope: Scope) -> KeysDocument:
    """The most frequent keys."""
    return KeysDocument(_top(questions, k, scope), questions.asof)


def top_by_site(questions: Questions, k: int, scope: Scope, sites: Sequence[str]) -> SiteKeysDocument:
    """The most frequent keys of each of these sites."""
    by_site = {site: _top(questions, k, replace(scope, sites=(site,))) for site in sites}
    return SiteKeysDocument(by_site, questions.asof)


def _top(questions: Questions, k: int, scope: Scope) -> list[KeyEstimate]:
    return [KeyEstimate(_key(row.key), row.count) for row in questions.top(k, **scope.options())]


def quantiles(questions: Questions, shares: Sequence[float], scope: Scope) -> QuantilesDocument:
    """The quantiles of the values at these shares."""
    rows = questions.quantile(shares, **scope.options())
    return QuantilesDocument([QuantileEstimate(float(row.q), row.value) for row in rows], questions.asof)


def count_range(questions: Questions, lo: float, hi: float, scope: Scope) -> EstimateDocument:
    """How many rows had a key or value from ``lo`` to ``hi``, both included."""
    return EstimateDocument(questions.count_range(lo, hi, **scope.options()), questions.asof)


def self_join(questions: Questions, scope: Scope) -> EstimateDocument:
    """The sum of the squares of all keys' counts."""
    return EstimateDocument(questions.self_join(**scope.options()), questions.asof)


def inner_product(questions: Questions, left: str, right: str | None, scope: Scope) -> EstimateDocument:
    """The number of pairs of a left and a right row with equal keys."""
    return EstimateDocument(questions.inner_product(left, right, **replace(scope, of=None).options()), questions.asof)


def total(questions: Questions, scope: Scope) -> EstimateDocument:
    """The number of rows."""
    return EstimateDocument(questions.total(**scope.options()), questions.asof)


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswersDocument:
    """The newest answers of the pipeline's queries, the batch that they are of, and the instant of the stream after it."""

    batch: int | None
    time: Time | None
    rows: list[Answer]


@dataclass(frozen=True, slots=True)
class HistoryDocument:
    """The answers of a query in the newest batches, oldest first."""

    query: str
    item: str | None
    site: str | None
    rows: list[Answer]


@dataclass(frozen=True, slots=True)
class AlertsDocument:
    """The newest alerts, oldest first."""

    rows: list[Alert]


@dataclass(frozen=True, slots=True)
class RunsDocument:
    """The newest batches, oldest first."""

    rows: list[Run]


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many rows were not counted for a reason."""

    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class UncountedDocument:
    """Late or rejected rows.

    Parameters
    ----------
    reasons
        The number of rows with each reason, the most frequent first.
    complete
        Whether all rows were counted by reason; False if only the newest million were.
    rows
        The newest rows, newest first.
    """

    reasons: list[ReasonCount]
    complete: bool
    rows: list[UncountedRow]


def answers(view: View, query: str | None = None, limit: int | None = None) -> AnswersDocument:
    """The newest answers of a query, or of all; at most ``limit`` rows."""
    return AnswersDocument(view.batch, view.now, view.answers(query)[:limit])


def history(view: View, query: str, item: str | None, site: str | None, limit: int) -> HistoryDocument:
    """The newest answers of a query about an item and a site, or about all."""
    return HistoryDocument(query, item, site, view.history(query, item=item, site=site, limit=limit))


def alerts(view: View, limit: int) -> AlertsDocument:
    """The newest alerts."""
    return AlertsDocument(view.alerts(limit=limit))


def runs(view: View, limit: int) -> RunsDocument:
    """The newest batches."""
    return RunsDocument(view.runs(limit=limit))


def uncounted(view: View, table: str, limit: int, site: str | None, reason: str | None) -> UncountedDocument:
    """The newest rows of the table ``late`` or ``rejected``, of one site or whose reason begins with a text."""
    rows = (view.late if table == "late" else view.rejected)(limit=limit, site=site, reason=reason)
    reasons, complete = view.reasons(table, site=site)
    counted = [ReasonCount(text, number) for text, number in list(reasons.items())[:MAX_REASONS]]
    return UncountedDocument(counted, complete, rows[::-1])


def sites(view: View, limit: int, offset: int = 0, state: SiteState | None = None) -> SitePage:
    """The sites and their states, those whose newest row is the oldest first."""
    return site_report(view).page(limit, offset, state)


#: The document of each path of the HTTP API, below /api/. With ``by_site=true`` the path top returns a ``SiteKeysDocument``.
DOCUMENTS: dict[str, type] = {
    "counts": KeysDocument,
    "top": KeysDocument,
    "quantiles": QuantilesDocument,
    "range": EstimateDocument,
    "self-join": EstimateDocument,
    "inner-product": EstimateDocument,
    "total": EstimateDocument,
    "answers": AnswersDocument,
    "history": HistoryDocument,
    "alerts": AlertsDocument,
    "runs": RunsDocument,
    "late": UncountedDocument,
    "rejected": UncountedDocument,
    "sites": SitePage,
}


def _key(key: str | int | bytes) -> str | int:
    """A key as a document has it; bytes become the text that they most likely are."""
    if isinstance(key, bytes):
        return key.decode(errors="replace")
    return key if isinstance(key, str) else int(key)
