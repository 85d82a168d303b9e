"""What every request passes first: the host it names, its token, its size; and what every answer is given: safe headers."""

import asyncio
import hmac
import ipaddress
import re
from functools import lru_cache
from time import perf_counter
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lately.core.errors import ParameterError
from lately.service.failures import LOG, RefusalError
from lately.service.metrics import Metrics

MAX_BODY = 2**20
MAX_QUERY = 2**15
#: A sender that is cut off does not read the answer, so a few times as much is read, and forgotten, before it is told.
_PATIENCE = 16
#: Seconds within which a body must have come.
BODY_TIME = 10.0

#: Nothing from elsewhere, nothing inline, in nobody's frame.
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
_NO_STORE, _ASK_AGAIN = (b"cache-control", b"no-store"), (b"cache-control", b"no-cache")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d+)?")


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine, seen from itself.

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
def _is_here(host: bytes) -> bool:
    """Whether a Host header names this machine."""
    found = _HOST.fullmatch(host.decode("latin-1"))
    return found is not None and is_loopback(found[1])


def checked_token(token: str | None, loopback: bool) -> str | None:
    """The token, if it can be one; beyond loopback there must be one.

    >>> checked_token(None, loopback=True)
    >>> checked_token(None, loopback=False)
    Traceback (most recent call last):
    lately.core.errors.ParameterError: ... set LATELY_TOKEN or --token-file, or serve on 127.0.0.1
    """
    if token is None:
        if not loopback:
            raise ParameterError(
                "others can reach this address, and there is no token; set LATELY_TOKEN or --token-file, or serve on 127.0.0.1"
            )
        return None
    if not re.fullmatch(r"[!-~]{8,512}", token):
        raise ParameterError(
            "the token is not 8 to 512 printable ASCII characters without blanks; make one with: openssl rand -hex 32"
        )
    return token


class Guard:
    """The outermost part of the app."""

    def __init__(self, app: ASGIApp, token: str | None, loopback: bool, metrics: Metrics) -> None:
        self._app, self._loopback, self._metrics = app, loopback, metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                free = _is_page(scope["path"])
                message["headers"] = [*message["headers"], *_HEADERS, _ASK_AGAIN if free else _NO_STORE]
            await send(message)

        try:
            self._check(scope)
            if _has_body(scope):
                receive = await _whole_body(receive)
                # All bodies are JSON, whatever a client says that does not know; curl says that it is a form.
                others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
                scope = {**scope, "headers": [*others, (b"content-type", b"application/json")]}
            await self._app(scope, receive, sending)
        except RefusalError as refusal:
            await refusal.answer()(scope, receive, sending)
        except Exception:
            LOG.exception("%s %s failed", scope["method"], scope["path"])
            if status:  # too late for another answer
                raise
            await RefusalError(500, "internal", "a mistake of lately's, which is in its log", None).answer()(
                scope, receive, sending
            )
        finally:
            self._metrics.saw(scope["path"], status, perf_counter() - start)

    def _check(self, scope: Scope) -> None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"authorization")}
        # A page from elsewhere may have its name point here; then its requests carry that name.
        if self._loopback and not _is_here(headers.get(b"host", b"")):
            raise RefusalError(400, "wrong_host", "the Host header names another machine", "ask 127.0.0.1 or localhost")
        if len(scope["query_string"]) > MAX_QUERY:
            raise RefusalError(400, "too_large", f"a query of more than {MAX_QUERY:,} bytes", "POST long lists to /api/counts")
        if self._token is not None and not _is_page(scope["path"]):
            given = headers.get(b"authorization", b"")
            kind, _, token = given.partition(b" ")
            if not given and scope["path"] == "/api/stream":  # a browser's EventSource sends no headers
                values = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
                kind, token = b"bearer", values[0].encode("latin-1", "replace")
            right = hmac.compare_digest(token.strip(), self._token)
            if kind.lower() != b"bearer" or not right:
                what = "a wrong token" if token else "no token"
                raise RefusalError(401, "unauthorized", what, "send the header Authorization: Bearer with the server's token")


def _is_page(path: str) -> bool:
    """What may be seen without a token: the page, which asks for it."""
    return path in ("/", "/favicon.ico") or path.startswith("/static/")


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in scope["headers"]
    )


async def _whole_body(receive: Receive) -> Receive:
    """Read the body before anything else happens, and hand it on in one piece."""
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(BODY_TIME):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return receive
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size <= MAX_BODY:
                    parts.append(part)
                elif size > _PATIENCE * MAX_BODY:
                    break
    except TimeoutError:
        raise RefusalError(400, "bad_value", f"the body did not come within {BODY_TIME:g} seconds", "send it at once") from None
    if size > MAX_BODY:
        raise RefusalError(413, "too_large", f"a body of more than {MAX_BODY:,} bytes", "ask in several requests")
    whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again
