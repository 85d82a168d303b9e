"""What goes out as JSON: times as text, estimates as four numbers, and nothing that JSON does not know."""

import json
import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from starlette.responses import JSONResponse

from lately.core.estimate import Estimate
from lately.core.times import iso_time

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def number(value: Any) -> Any:
    """A number as JSON has it: whole ones stay whole, infinities and NaN are null.

    >>> number(3), number(2.5), number(float("inf")), number(float("nan")), number(None)
    (3, 2.5, None, None, None)
    """
    if value is None or type(value) is int:
        return value
    if hasattr(value, "item"):  # one of NumPy's
        value = value.item()
    if isinstance(value, int):
        return value
    return float(value) if math.isfinite(value) else None


def estimate(found: Estimate) -> dict[str, Any]:
    """An estimate as JSON has it.

    >>> estimate(Estimate(7, 5.5, float("inf"), 0.99))
    {'value': 7, 'low': 5.5, 'high': None, 'confidence': 0.99}
    """
    return {
        "value": number(found.value),
        "low": number(found.low),
        "high": number(found.high),
        "confidence": number(found.confidence),
    }


def key(value: Any) -> str | int:
    """A key as JSON has it; bytes are shown as the text that they most likely are.

    >>> key("GET /"), key(7), key(b"GET /")
    ('GET /', 7, 'GET /')
    """
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else int(value)


def row(found: dict[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """A row of a table, or some of its columns.

    >>> row({"time": datetime(2026, 1, 1), "item": "/", "value": float("nan")}, ["item", "value"])
    {'item': '/', 'value': None}
    """
    return {name: _cell(found[name]) for name in (found if names is None else names)}


def _cell(value: Any) -> Any:
    if isinstance(value, str | bool):
        return value
    return iso_time(value) if isinstance(value, datetime) else number(value)


def text(content: Any) -> str:
    """JSON without blanks; what is not JSON is a mistake of ours and must not go out."""
    return _encode(content)


class Json(JSONResponse):
    """An answer that is ready: nothing is validated again on its way out."""

    def render(self, content: Any) -> bytes:
        # A lone surrogate can be typed as a key, but it cannot be sent.
        return text(content).encode(errors="replace")
