"""Answers of a service, asked for over HTTP with what Python brings along."""

import json
import time
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from lately.cli.asked import Asked, Document
from lately.core.errors import InputError, LatelyError
from lately.core.words import with_state

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
    """A service sends nobody elsewhere, and the token is for it alone."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        return None


class Remote:
    """A service by its URL."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError(f"--url {url}: give the address of a service, such as http://127.0.0.1:8765")
        self._url, self._token = url.rstrip("/"), token
        proxies = [ProxyHandler({})] if parts.hostname in _LOOPBACK else []
        self._opener: OpenerDirector = build_opener(_NoRedirects, *proxies)

    def counts(self, keys: list[str], asked: Asked) -> Document:
        said = self._ask("counts", {}, _range(asked) | {"keys": keys, "sites": list(asked.sites) or None})
        return _only(said, "rows", "asof")

    def top(self, k: int, each: bool, asked: Asked) -> Document:
        return self._get("top", {"k": k} | ({"by_site": "true"} if each else {}), asked, "sites" if each else "rows")

    def quantiles(self, qs: list[float], asked: Asked) -> Document:
        return self._get("quantiles", {"q": qs}, asked, "rows")

    def count_range(self, lo: int, hi: int, asked: Asked) -> Document:
        return self._get("range", {"lo": lo, "hi": hi}, asked)

    def self_join(self, asked: Asked) -> Document:
        return self._get("self-join", {}, asked)

    def inner_product(self, left: str, right: str, asked: Asked) -> Document:
        return self._get("inner-product", {"left": left, "right": right}, asked)

    def total(self, asked: Asked) -> Document:
        return self._get("total", {}, asked)

    def answers(self, query: str | None) -> Document:
        return _only(self._ask("answers", {"query": query}), "batch", "time", "rows")

    def history(self, query: str, item: str | None, site: str | None, limit: int) -> Document:
        said = self._ask("history", {"query": query, "item": item, "site": site, "limit": limit})
        return _only(said, "query", "item", "site", "rows")

    def alerts(self, limit: int) -> Document:
        said = _only(self._ask("alerts", {"limit": limit}), "rows")
        return {"rows": [with_state(row) for row in said["rows"]]}  # a service of an earlier version has no state

    def runs(self, limit: int) -> Document:
        return _only(self._ask("runs", {"limit": limit}), "rows")

    def sites(self, limit: int, state: str | None) -> Document:
        said: Document = {"rows": []}
        while len(said["rows"]) < limit:
            wanted = min(limit - len(said["rows"]), _SITES)
            found = self._ask("sites", {"limit": wanted, "offset": len(said["rows"]), "state": state})
            rows = said["rows"] + found.get("rows", [])
            said = _only(found, "batch", "newest", "tolerance", "lag", "sites", "silent", "ahead", "behind", "rows")
            is_last = len(said["rows"]) < wanted
            said["rows"] = rows
            if is_last:
                break
        return said

    def refused(self, table: str, limit: int, site: str | None, reason: str | None) -> Document:
        said = self._ask(table, {"limit": limit, "site": site, "reason": reason})
        return _only(said, "reasons", "complete", "rows")

    # -- HTTP --------------------------------------------------------------------------------------------------------------

    def _get(self, path: str, params: dict[str, Any], asked: Asked, name: str = "estimate") -> Document:
        return _only(self._ask(path, params | _range(asked) | {"site": list(asked.sites)}), name, "asof")

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
            return LatelyError(f"{self._url}: {message}; put its token into LATELY_TOKEN")
        kind = _NotYetError if error.get("code") in ("too_slow", "busy") else LatelyError
        return kind(f"{message}; {remedy}" if remedy and remedy not in message else message)

    def _unreachable(self, reason: object) -> LatelyError:
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return LatelyError(f"{self._url} does not answer: {why}; start it with `lately serve STORE`, or check the address")

    def _foreign(self, more: str = "") -> LatelyError:
        return LatelyError(f"{self._url}: what answers here{more} is no service of lately; check the address")


def _range(asked: Asked) -> dict[str, Any]:
    return {"last": asked.last, "from": asked.start, "to": asked.end, "of": asked.of}


def _only(said: Document, *names: str) -> Document:
    """The fields that are known here; a newer service may say more."""
    missing = [name for name in names if name not in said]
    if missing:
        raise LatelyError(f"the service says nothing of {missing[0]!r}; its version of lately is another than this one")
    return {name: said[name] for name in names}
