"""Errors as HTTP responses: one JSON shape for all of them, and a status code for each kind."""

import logging
from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from lately.core.errors import FormatError, LatelyError, QueryError, RangeError
from lately.service.json_response import JsonResponse
from lately.service.responses import ErrorDetails, ErrorDocument
from lately.store.errors import UnknownError

LOG = logging.getLogger("lately.service")

#: The exceptions that reading a store may raise.
STORE_ERRORS = (LatelyError, OSError, pa.ArrowException)
#: Characters of an invalid value that a message repeats.
_MAX_VALUE_LENGTH = 60
_SEE_OPENAPI = "see /api/openapi.json for the paths and their parameters"


class HttpError(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status
        The HTTP status code.
    code
        The kind of error, for programs: "bad_value", "unknown_site" and so on; docs/service.md lists all of them.
    message
        What is wrong.
    remedy
        What to do about it; None if the message says it all.

    >>> HttpError(404, "unknown_site", "no site 'rome'", "choose one of lima, paris").document().error.remedy
    'choose one of lima, paris'
    """

    def __init__(self, status: int, code: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.remedy = status, code, message, remedy

    def document(self) -> ErrorDocument:
        """The body of the response."""
        return ErrorDocument(ErrorDetails(self.code, self.message, self.remedy))

    def response(self) -> JsonResponse:
        """The whole response, with the headers that its status code demands."""
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(self.status)
        return JsonResponse(self.document(), self.status, headers)


def to_http_error(error: LatelyError | OSError | pa.ArrowException) -> HttpError:
    """The HTTP error for an exception of the library: its message and its remedy, with a status code for its class.

    Parameters
    ----------
    error
        An exception of one of the classes in ``STORE_ERRORS``.

    >>> found = to_http_error(RangeError("last='2h' is too long", remedy="ask for at most 1h"))
    >>> found.status, found.code, found.message, found.remedy
    (400, 'bad_range', "last='2h' is too long", 'ask for at most 1h')
    """
    if not isinstance(error, LatelyError) or isinstance(error, FormatError):
        return HttpError(503, "store_unreadable", f"the store cannot be read: {error}", "run lately store check on it")
    if isinstance(error, UnknownError):
        status, code = 404, f"unknown_{error.what.split()[0]}"
    elif isinstance(error, QueryError):
        status, code = 409, "no_sketch"
    else:
        status, code = 400, "bad_range" if isinstance(error, RangeError) else "bad_value"
    return HttpError(status, code, error.message, error.remedy)


def install(app: FastAPI) -> None:
    """Register the handlers that give every error of an app the same JSON shape."""

    async def handle(_: Request, error: Exception) -> JsonResponse:
        return (error if isinstance(error, HttpError) else to_http_error(error)).response()

    for kind in (HttpError, *STORE_ERRORS):
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)


#: What is wrong with a parameter, by pydantic's name for it.
_REASONS = {
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
#: Errors that are about a value; their message repeats it.
_ABOUT_VALUE = ("greater", "less", "int", "float", "finite", "bool", "string_type", "list_type", "literal", "enum")


def validation_error(details: Any, skip: int) -> HttpError:
    """The HTTP error for a request that a model rejects, with one sentence that names the parameter.

    Parameters
    ----------
    details
        One error as pydantic describes it.
    skip
        How many leading parts of its location are FastAPI's and not the request's: 1 for a body, else 0.

    >>> details = {"loc": ("query", "k"), "type": "greater_than_equal", "ctx": {"ge": 1}, "input": "0", "msg": ""}
    >>> validation_error(details, 1).message
    "k must be at least 1, not '0'"
    """
    where, kind = ".".join(str(part) for part in details["loc"][skip:]), str(details["type"])
    if kind == "json_invalid":
        return HttpError(400, "bad_value", "the body is not JSON", 'send a JSON object, such as {"key": "/cart"}')
    if kind not in _REASONS:
        reason = str(details["msg"]).removeprefix("Value error, ")
        return HttpError(400, "bad_value", f"{where}: {reason}" if where else reason, _SEE_OPENAPI)
    message = f"{where or 'the body'} {_REASONS[kind].format(**details.get('ctx', {}))}"
    if kind.startswith(_ABOUT_VALUE):
        message += f", not {_shortened(details.get('input'))}"
    return HttpError(400, "bad_value", message, _SEE_OPENAPI)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"


async def _handle_validation_error(_: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, RequestValidationError)
    return validation_error(error.errors()[0], 1).response()


async def _handle_http_exception(request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, HTTPException)
    code = {404: "unknown_path", 405: "wrong_method"}.get(error.status_code, "bad_value")
    reasons = {404: "there is no such path", 405: "this path does not support that method"}
    reason = reasons.get(error.status_code, error.detail)
    message = f"{request.method} {request.url.path}: {reason}"
    response = HttpError(error.status_code, code, message, _SEE_OPENAPI).response()
    response.headers.update(error.headers or {})
    return response
