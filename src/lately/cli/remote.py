"""Answers of a service, asked for over HTTP with what Python brings along."""

import json
import time
from dataclasses import replace
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from lately.cli.sources import QueryOptions
from lately.core.errors import InputError, LatelyError
from lately.core.json_encoding import read_json
from lately.store import documents
from lately.store.site_report import SitePage, SiteState, SiteStatus

T = TypeVar("T")

_SECONDS = 15
#: More than any answer of a service; what is longer comes from something else.
_MOST_BYTES = 64 << 20
#: How often a service is asked again that is busy or still preparing the answer, a second later each time.
_TRIES = 10
#: Sites of one answer of a service.
_SITES = 1_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _NotYetError(LatelyError):
    """The service asks to be asked again."""


class _NoRedirects(HTTPRedirectHandler):
    """Redirects are errors: a service has none, and the token must not be sent to another server."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        return None


class Remote:
    """A service by its URL."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError(f"--url {url}", remedy="give the address of a service, such as http://127.0.0.1:8765")
        self._url, self._token = url.rstrip("/"), token
        proxies = [ProxyHandler({})] if parts.hostname in _LOOPBACK else []
        self._opener: OpenerDirector = build_opener(_NoRedirects, *proxies)

    def counts(self, keys: list[str], options: QueryOptions) -> documents.KeysDocument:
        body = _range(options) | {"keys": keys, "sites": list(options.sites) or None}
        return self._document(documents.KeysDocument, "counts", {}, body)

    def top(self, k: int, options: QueryOptions) -> documents.KeysDocument:
        return self._ranged(documents.KeysDocument, "top", {"k": k}, options)

    def top_by_site(self, k: int, options: QueryOptions) -> documents.SiteKeysDocument:
        return self._ranged(documents.SiteKeysDocument, "top", {"k": k, "by_site": "true"}, options)

    def quantiles(self, shares: list[float], options: QueryOptions) -> documents.QuantilesDocument:
        return self._ranged(documents.QuantilesDocument, "quantiles", {"q": shares}, options)

    def count_range(self, lo: int, hi: int, options: QueryOptions) -> documents.EstimateDocument:
        return self._ranged(documents.EstimateDocument, "range", {"lo": lo, "hi": hi}, options)

    def self_join(self, options: QueryOptions) -> documents.EstimateDocument:
        return self._ranged(documents.EstimateDocument, "self-join", {}, options)

    def inner_product(self, left: str, right: str, options: QueryOptions) -> documents.EstimateDocument:
        return self._ranged(documents.EstimateDocument, "inner-product", {"left": left, "right": right}, options)

    def total(self, options: QueryOptions) -> documents.EstimateDocument:
        return self._ranged(documents.EstimateDocument, "total", {}, options)

    def answers(self, query: str | None) -> documents.AnswersDocument:
        return self._document(documents.AnswersDocument, "answers", {"query": query})

    def history(self, query: str, item: str | None, site: str | None, limit: int) -> documents.HistoryDocument:
        params = {"query": query, "item": item, "site": site, "limit": limit}
        return self._document(documents.HistoryDocument, "history", params)

    def alerts(self, limit: int) -> documents.AlertsDocument:
        return self._document(documents.AlertsDocument, "alerts", {"limit": limit})

    def runs(self, limit: int) -> documents.RunsDocument:
        return self._document(documents.RunsDocument, "runs", {"limit": limit})

    def sites(self, limit: int, state: SiteState | None) -> SitePage:
        rows: list[SiteStatus] = []
        while True:
            wanted = min(limit - len(rows), _SITES)
            page = self._document(SitePage, "sites", {"limit": wanted, "offset": len(rows), "state": state})
            rows += page.rows
            if len(page.rows) < wanted or len(rows) >= limit:
                return replace(page, rows=rows)

    def uncounted(self, table: str, limit: int, site: str | None, reason: str | None) -> documents.UncountedDocument:
        return self._document(documents.UncountedDocument, table, {"limit": limit, "site": site, "reason": reason})

    # -- HTTP --------------------------------------------------------------------------------------------------------------

    def _ranged(self, kind: type[T], path: str, params: dict[str, Any], options: QueryOptions) -> T:
        return self._document(kind, path, params | _range(options) | {"site": list(options.sites)})

    def _document(self, kind: type[T], path: str, params: dict[str, Any], body: dict[str, Any] | None = None) -> T:
        """The document of a path; a newer service may say more than it has."""
        content = self._ask(path, params, body)
        try:
            return read_json(kind, content)
        except ValueError as error:
            raise LatelyError(
                f"{self._url}: the answer to {path} cannot be read: {error}; its version of lately differs from this one"
            ) from error

    def _ask(self, path: str, params: dict[str, Any], body: dict[str, Any] | None = None) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        query = f"?{urlencode(given, doseq=True, errors='replace')}" if given else ""
        data = None if body is None else json.dumps({name: one for name, one in body.items() if one is not None}).encode()
        headers = {"Accept": "application/json"} | ({} if data is None else {"Content-Type": "application/json"})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(f"{self._url}/api/{path}{query}", data, headers)
        for left in reversed(range(_TRIES)):
            try:
                return self._answer(request)
            except _NotYetError:
                if not left:
                    raise
                time.sleep(1)
        raise AssertionError("unreachable")

    def _answer(self, request: Request) -> Any:
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return self._read(answer.read(_MOST_BYTES + 1))
        except HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(_MOST_BYTES)) from error
        except URLError as error:
            raise self._unreachable(error.reason) from error
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error

    def _read(self, text: bytes) -> Any:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict) or len(text) > _MOST_BYTES:
            raise self._foreign()
        return said

    def _refused(self, status: int, text: bytes) -> LatelyError:
        """What the service said, with its remedy."""
        try:
            error = json.loads(text)["error"]
            message, remedy = str(error["message"]), error.get("remedy")
        except (ValueError, TypeError, KeyError, AttributeError):
            return self._foreign(f" (HTTP {status})")
        if status == 401:
            return LatelyError(f"{self._url}: {message}", remedy="put its token into LATELY_TOKEN")
        kind = _NotYetError if error.get("code") in ("too_slow", "busy") else LatelyError
        return kind(message, remedy if remedy and remedy not in message else None)

    def _unreachable(self, reason: object) -> LatelyError:
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return LatelyError(
            f"{self._url} does not answer: {why}", remedy="start it with `lately serve STORE`, or check the address"
        )

    def _foreign(self, more: str = "") -> LatelyError:
        return LatelyError(f"{self._url}: what answers here{more} is no service of lately", remedy="check the address")


def _range(options: QueryOptions) -> dict[str, Any]:
    return {"last": options.last, "from": options.start, "to": options.end, "of": options.of}
