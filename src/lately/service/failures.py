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
#: Characters of a wrong value that are shown.
_SHOWN = 60
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


#: What is wrong with a parameter, by pydantic's name for it.
_WRONG = {
    "missing": "is required",
    "extra_forbidden": "is not a parameter of this path",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_too_short": "must have at least {min_length:,} characters",
    "too_long": "must have at most {max_length:,} entries",
    "too_short": "must have at least {min_length:,} entries",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
}
#: Errors that are about a value, which is worth showing.
_ABOUT_VALUE = ("greater", "less", "int", "float", "finite", "bool", "string_type", "list_type", "literal", "enum")


def invalid(found: Any, skipped: int) -> RefusalError:
    """What is wrong with a request, as one sentence.

    Args:
        found: an error as pydantic describes it.
        skipped: how many parts of its place do not belong to the request.

    >>> invalid({"loc": ("query", "k"), "type": "greater_than_equal", "ctx": {"ge": 1}, "input": "0", "msg": ""}, 1).message
    "k must be at least 1, not '0'"
    """
    where, kind = ".".join(str(part) for part in found["loc"][skipped:]), str(found["type"])
    if kind == "json_invalid":
        return RefusalError(400, "bad_value", "the body is not JSON", 'send a JSON object, such as {"key": "/cart"}')
    if kind not in _WRONG:
        says = str(found["msg"]).removeprefix("Value error, ")
        return RefusalError(400, "bad_value", f"{where}: {says}" if where else says, _SEE)
    says = f"{where or 'the body'} {_WRONG[kind].format(**found.get('ctx', {}))}"
    if kind.startswith(_ABOUT_VALUE):
        says += f", not {_shown(found.get('input'))}"
    return RefusalError(400, "bad_value", says, _SEE)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


async def _invalid(_: Request, error: Exception) -> Json:
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors()[0], 1).answer()


async def _http(request: Request, error: Exception) -> Json:
    assert isinstance(error, HTTPException)
    code = {404: "unknown_path", 405: "wrong_method"}.get(error.status_code, "bad_value")
    says = {404: "there is no such path", 405: "this path does not take that method"}.get(error.status_code, error.detail)
    answer = RefusalError(error.status_code, code, f"{request.method} {request.url.path}: {says}", _SEE).answer()
    answer.headers.update(error.headers or {})
    return answer
