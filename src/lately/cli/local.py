"""Answers from a store, read by this process."""

from lately.cli.asked import Asked
from lately.store import documents
from lately.store.documents import Scope
from lately.store.questions import Questions
from lately.store.site_report import SitePage, SiteState
from lately.store.view import View


class Local:
    """A store by its path; its methods return the documents of ``lately.store.documents``."""

    def __init__(self, path: str) -> None:
        self._view = View(path)
        self._questions = Questions(self._view)

    def counts(self, keys: list[str], asked: Asked) -> documents.KeysDocument:
        return documents.counts(self._questions, keys, self._scope(asked))

    def top(self, k: int, asked: Asked) -> documents.KeysDocument:
        return documents.top(self._questions, k, self._scope(asked))

    def top_by_site(self, k: int, asked: Asked) -> documents.SiteKeysDocument:
        sites = sorted(set(asked.sites)) or self._view.sites()
        return documents.top_by_site(self._questions, k, self._scope(asked), sites)

    def quantiles(self, shares: list[float], asked: Asked) -> documents.QuantilesDocument:
        return documents.quantiles(self._questions, shares, self._scope(asked))

    def count_range(self, lo: int, hi: int, asked: Asked) -> documents.EstimateDocument:
        return documents.count_range(self._questions, lo, hi, self._scope(asked))

    def self_join(self, asked: Asked) -> documents.EstimateDocument:
        return documents.self_join(self._questions, self._scope(asked))

    def inner_product(self, left: str, right: str, asked: Asked) -> documents.EstimateDocument:
        return documents.inner_product(self._questions, left, right, self._scope(asked))

    def total(self, asked: Asked) -> documents.EstimateDocument:
        return documents.total(self._questions, self._scope(asked))

    def answers(self, query: str | None) -> documents.AnswersDocument:
        return documents.answers(self._view, query)

    def history(self, query: str, item: str | None, site: str | None, limit: int) -> documents.HistoryDocument:
        return documents.history(self._view, query, item, site, limit)

    def alerts(self, limit: int) -> documents.AlertsDocument:
        return documents.alerts(self._view, limit)

    def runs(self, limit: int) -> documents.RunsDocument:
        return documents.runs(self._view, limit)

    def sites(self, limit: int, state: SiteState | None) -> SitePage:
        return documents.sites(self._view, limit, state=state)

    def uncounted(self, table: str, limit: int, site: str | None, reason: str | None) -> documents.UncountedDocument:
        return documents.uncounted(self._view, table, limit, site, reason)

    def _scope(self, asked: Asked) -> Scope:
        now = "0" if self._view.time_type == "integer" else "0s"  # the age of now
        between = None if asked.start is None else (asked.start, now if asked.end is None else asked.end)
        return Scope(asked.last, between, asked.sites or None, asked.of)
