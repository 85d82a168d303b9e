"""What a refusal looks like: one shape, and a status code for each kind."""

import logging
from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from lately.core.errors import FormatError, LatelyError, QueryError, RangeError
from lately.service.plain import Json
from lately.store.view import UnknownError

LOG = logging.getLogger("lately.service")

#: What reading a store may raise.
UNREADABLE = (LatelyError, OSError, pa.ArrowException)
_SEE = "see /api/openapi.json for what can be asked"


class RefusalError(Exception):
    """A request that is answered with an error.

    >>> RefusalError(404, "unknown_site", "no site 'rome'", "ask for one of lima, paris").body()["error"]["remedy"]
    'ask for one of lima, paris'
    """

    def __init__(self, status: int, code: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.remedy = status, code, message, remedy

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "remedy": self.remedy}}

    def answer(self) -> Json:
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(self.status)
        return Json(self.body(), self.status, headers)


def refusal_of(error: LatelyError | OSError | pa.ArrowException) -> RefusalError:
    """What an error of the library is over HTTP.

    The messages of ours end with what to do, after the last semicolon.

    >>> found = refusal_of(RangeError("last='2h' is too long; ask for less"))
    >>> found.status, found.code, found.message, found.remedy
    (400, 'bad_range', "last='2h' is too long", 'ask for less')
    """
    if not isinstance(error, LatelyError) or isinstance(error, FormatError):
        return RefusalError(503, "store_unreadable", f"the store cannot be read: {error}", "run lately store check on it")
    message, _, remedy = str(error).rpartition("; ")
    if isinstance(error, UnknownError):
        status, code = 404, f"unknown_{error.what.split()[0]}"
    elif isinstance(error, QueryError):
        status, code = 409, "no_sketch"
    else:
        status, code = 400, "bad_range" if isinstance(error, RangeError) else "bad_value"
    return RefusalError(status, code, message or remedy, remedy if message else None)


def install(app: FastAPI) -> None:
    """Give every error of an app the one shape."""

    async def refused(_: Request, error: Exception) -> Json:
        return (error if isinstance(error, RefusalError) else refusal_of(error)).answer()

    for kind in (RefusalError, *UNREADABLE):
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def invalid(found: Any, skipped: int) -> RefusalError:
    """What pydantic found wrong, without the first parts of where it did."""
    where = ".".join(str(part) for part in found["loc"][skipped:])
    return RefusalError(400, "bad_value", f"{where}: {found['msg']}" if where else found["msg"], _SEE)


async def _invalid(_: Request, error: Exception) -> Json:
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors()[0], 1).answer()


async def _http(request: Request, error: Exception) -> Json:
    assert isinstance(error, HTTPException)
    code = {404: "unknown_path", 405: "wrong_method"}.get(error.status_code, "bad_value")
    answer = RefusalError(error.status_code, code, f"{request.method} {request.url.path}: {error.detail}", _SEE).answer()
    answer.headers.update(error.headers or {})
    return answer
