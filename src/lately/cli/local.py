"""Answers from a store, read by this process."""

from lately.cli.sources import QueryOptions
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

    def counts(self, keys: list[str], options: QueryOptions) -> documents.KeysDocument:
        return documents.counts(self._questions, keys, self._scope(options))

    def top(self, k: int, options: QueryOptions) -> documents.KeysDocument:
        return documents.top(self._questions, k, self._scope(options))

    def top_by_site(self, k: int, options: QueryOptions) -> documents.SiteKeysDocument:
        sites = sorted(set(options.sites)) or self._view.sites()
        return documents.top_by_site(self._questions, k, self._scope(options), sites)

    def quantiles(self, shares: list[float], options: QueryOptions) -> documents.QuantilesDocument:
        return documents.quantiles(self._questions, shares, self._scope(options))

    def count_range(self, lo: int, hi: int, options: QueryOptions) -> documents.EstimateDocument:
        return documents.count_range(self._questions, lo, hi, self._scope(options))

    def self_join(self, options: QueryOptions) -> documents.EstimateDocument:
        return documents.self_join(self._questions, self._scope(options))

    def inner_product(self, left: str, right: str, options: QueryOptions) -> documents.EstimateDocument:
        return documents.inner_product(self._questions, left, right, self._scope(options))

    def total(self, options: QueryOptions) -> documents.EstimateDocument:
        return documents.total(self._questions, self._scope(options))

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

    def _scope(self, options: QueryOptions) -> Scope:
        now = "0" if self._view.time_type == "integer" else "0s"  # the age of now
        between = None if options.start is None else (options.start, now if options.end is None else options.end)
        return Scope(options.last, between, options.sites or None, options.of)
