"""Where answers come from: a store on this machine, or a service at a URL. Both return the same documents.

Answers are the documents of ``lately.store.documents``, as in the HTTP API, so ``--json`` prints the same, whoever was options.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import typer

from lately.cli.console import one_line_errors
from lately.core.errors import FormatError, InputError

if TYPE_CHECKING:  # imported late, since the other commands need no store
    from lately.store import documents
    from lately.store.site_report import SitePage, SiteState

#: The folder of the store if neither an option nor the environment names one.
DEFAULT_STORE = "store"


@dataclass(frozen=True)
class QueryOptions:
    """A range of time, some of the sites, and perhaps whose sketch is options.

    >>> QueryOptions("10m", None, None, ("lima", "paris")).words()
    'in the last 10m at lima, paris'
    >>> QueryOptions().words(), QueryOptions(start="2h", end="1h").words()
    ('in the whole window at all sites', 'from 2h ago to 1h ago at all sites')
    """

    last: str | None = None
    start: str | None = None
    end: str | None = None
    sites: tuple[str, ...] = ()
    of: str | None = None

    def __post_init__(self) -> None:
        if self.last is not None and (self.start is not None or self.end is not None):
            raise typer.BadParameter("--last cannot be combined with --from or --to; give one or the other")
        if self.end is not None and self.start is None:
            raise typer.BadParameter(f"--to {self.end} needs --from, as in --from 2h --to 1h")

    def words(self) -> str:
        """The range and the sites in words."""
        where = f"at {', '.join(self.sites)}" if self.sites else "at all sites"
        where += "" if self.of is None else f" (of {self.of})"
        if self.start is not None:
            return f"from {_time_words(self.start)} to {'now' if self.end is None else _time_words(self.end)} {where}"
        return f"in the whole window {where}" if self.last is None else f"in the last {self.last} {where}"


def _time_words(text: str) -> str:
    return text if text[:4].isdigit() and "-" in text else f"{text} ago"


class AnswerSource(Protocol):
    """A store or a service; ``lately.cli.local`` and ``lately.cli.remote`` implement it."""

    def counts(self, keys: list[str], options: QueryOptions) -> "documents.KeysDocument": ...
    def top(self, k: int, options: QueryOptions) -> "documents.KeysDocument": ...
    def top_by_site(self, k: int, options: QueryOptions) -> "documents.SiteKeysDocument": ...
    def quantiles(self, shares: list[float], options: QueryOptions) -> "documents.QuantilesDocument": ...
    def count_range(self, lo: int, hi: int, options: QueryOptions) -> "documents.EstimateDocument": ...
    def self_join(self, options: QueryOptions) -> "documents.EstimateDocument": ...
    def inner_product(self, left: str, right: str, options: QueryOptions) -> "documents.EstimateDocument": ...
    def total(self, options: QueryOptions) -> "documents.EstimateDocument": ...
    def answers(self, query: str | None) -> "documents.AnswersDocument": ...
    def history(self, query: str, item: str | None, site: str | None, limit: int) -> "documents.HistoryDocument": ...
    def alerts(self, limit: int) -> "documents.AlertsDocument": ...
    def runs(self, limit: int) -> "documents.RunsDocument": ...
    def sites(self, limit: int, state: "SiteState | None") -> "SitePage": ...
    def uncounted(self, table: str, limit: int, site: str | None, reason: str | None) -> "documents.UncountedDocument": ...


def open_source(store: str | None, url: str | None) -> AnswerSource:
    """The service at a URL, or else the store at a path, in LATELY_STORE, or in the folder ``store``."""
    if store is not None and url is not None:
        raise typer.BadParameter("--store and --url cannot be combined; give one or the other")
    if url is not None:
        from lately.cli.remote import Remote

        return Remote(url, os.environ.get("LATELY_TOKEN"))
    from lately.cli.local import Local

    path = store or os.environ.get("LATELY_STORE")
    if not path and not os.path.isdir(DEFAULT_STORE):
        raise InputError(
            f"there is no store in the folder {DEFAULT_STORE!r} here",
            remedy="say where it is with --store PATH or LATELY_STORE, or where its service is with --url URL",
        )
    return Local(path or DEFAULT_STORE)


@contextmanager
def store_errors() -> Iterator[None]:
    """Print errors in one line, also those about damaged files of a store."""
    with one_line_errors():
        try:
            yield
        except Exception as error:
            import pyarrow as pa  # not needed to query a service

            if isinstance(error, pa.ArrowException):
                raise FormatError(
                    f"a file of the store cannot be read ({error})", remedy="run lately store check on it"
                ) from error
            raise
