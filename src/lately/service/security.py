"""Checks every request before anything else: its Host header, its token, its size. Adds security headers to every response."""

import asyncio
import hmac
import ipaddress
import re
from functools import lru_cache
from time import perf_counter
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lately.core.errors import ParameterError
from lately.service.http_errors import LOG, HttpError
from lately.service.metrics import Metrics

#: Bytes of a request's body and of its query string.
MAX_BODY, MAX_QUERY = 2**20, 2**15
#: A client whose connection is closed while it sends does not read the response. So up to this many times MAX_BODY is read and
#: discarded before the error is sent.
_READ_FACTOR = 16
#: Seconds within which a body must have arrived.
BODY_TIMEOUT = 10.0

#: Scripts, styles and data only from this host, nothing inline, and no page may show this one in a frame.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_STORE, _REVALIDATE = (b"cache-control", b"no-store"), (b"cache-control", b"no-cache")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d+)?")


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one, which only this machine can reach.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org", "")]
    [True, True, True, False, False, False]
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@lru_cache(256)
def _names_this_machine(host: bytes) -> bool:
    """Whether a Host header names this machine."""
    match = _HOST.fullmatch(host.decode("latin-1"))
    return match is not None and is_loopback(match[1])


def checked_token(token: str | None, loopback: bool) -> str | None:
    """The token, after checking it: 8 to 512 printable ASCII characters, and required unless only this machine can connect.

    Parameters
    ----------
    token
        The token that clients must send; None for none.
    loopback
        Whether only this machine can reach the service.

    >>> checked_token(None, loopback=True)
    >>> checked_token(None, loopback=False)
    Traceback (most recent call last):
    lately.core.errors.ParameterError: ... set LATELY_TOKEN or --token-file, or serve on 127.0.0.1
    """
    if token is None:
        if not loopback:
            raise ParameterError(
                "other machines can reach this address, and there is no token",
                remedy="set LATELY_TOKEN or --token-file, or serve on 127.0.0.1",
            )
        return None
    if not re.fullmatch(r"[!-~]{8,512}", token):
        raise ParameterError(
            "the token is not 8 to 512 printable ASCII characters without blanks",
            remedy="make one with: openssl rand -hex 32",
        )
    return token


class SecurityMiddleware:
    """The outermost layer of the app.

    Parameters
    ----------
    app
        The app inside.
    token
        The token that requests must carry, except those for the page and its files; None for none.
    loopback
        Whether only this machine can reach the service. Requests must then name it in their Host header.
    metrics
        Counts the requests.
    """

    def __init__(self, app: ASGIApp, token: str | None, loopback: bool, metrics: Metrics) -> None:
        self._app, self._loopback, self._metrics = app, loopback, metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                caching = _REVALIDATE if _is_page(scope["path"]) else _NO_STORE
                message["headers"] = [*message["headers"], *_HEADERS, caching]
            await send(message)

        try:
            self._check(scope)
            if _has_body(scope):
                receive = await _read_body(receive)
                # All bodies are JSON, whatever Content-Type the client sends: curl's default is a form.
                others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
                scope = {**scope, "headers": [*others, (b"content-type", b"application/json")]}
            await self._app(scope, receive, send_with_headers)
        except HttpError as error:
            await error.response()(scope, receive, send_with_headers)
        except Exception:
            LOG.exception("%s %s failed", scope["method"], scope["path"])
            if status:  # the response has already begun
                raise
            internal = HttpError(500, "internal", "an internal error; its traceback is in the log of the service")
            await internal.response()(scope, receive, send_with_headers)
        finally:
            self._metrics.observe_request(scope["path"], status, perf_counter() - start)

    def _check(self, scope: Scope) -> None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"authorization")}
        # DNS rebinding: the name of a foreign page may be made to point to this machine; its requests then carry that name.
        if self._loopback and not _names_this_machine(headers.get(b"host", b"")):
            raise HttpError(400, "wrong_host", "the Host header names another machine", "use 127.0.0.1 or localhost")
        if len(scope["query_string"]) > MAX_QUERY:
            raise HttpError(400, "too_large", f"a query of more than {MAX_QUERY:,} bytes", "POST long lists to /api/counts")
        if self._token is not None and not _is_page(scope["path"]):
            authorization = headers.get(b"authorization", b"")
            scheme, _, token = authorization.partition(b" ")
            if not authorization and scope["path"] == "/api/stream":  # a browser's EventSource sends no headers
                values = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
                scheme, token = b"bearer", values[0].encode("latin-1", "replace")
            matches = hmac.compare_digest(token.strip(), self._token)
            if scheme.lower() != b"bearer" or not matches:
                problem = "a wrong token" if token else "no token"
                raise HttpError(401, "unauthorized", problem, "send the header Authorization: Bearer with the server's token")


def _is_page(path: str) -> bool:
    """Whether a path is the page or one of its files, which need no token: the page asks its user for it."""
    return path in ("/", "/favicon.ico") or path.startswith("/static/")


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in scope["headers"]
    )


async def _read_body(receive: Receive) -> Receive:
    """Read the whole body first, within the size and time limits, and pass it on as one message."""
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return receive
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size <= MAX_BODY:
                    parts.append(part)
                elif size > _READ_FACTOR * MAX_BODY:
                    break
    except TimeoutError:
        problem = f"the body did not arrive within {BODY_TIMEOUT:g} seconds"
        raise HttpError(400, "bad_value", problem, "send it at once") from None
    if size > MAX_BODY:
        raise HttpError(413, "too_large", f"a body of more than {MAX_BODY:,} bytes", "split it into several requests")
    body: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def receive_body() -> Message:
        return body.pop() if body else await receive()

    return receive_body
