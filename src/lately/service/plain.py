"""Answers as JSON."""

from typing import Any

from starlette.responses import JSONResponse

from lately.core.json_encoding import encode


class Json(JSONResponse):
    """An answer that is ready: nothing is validated again on its way out."""

    def render(self, content: Any) -> bytes:
        # A lone surrogate can be typed as a key, but it cannot be sent.
        return encode(content).encode(errors="replace")
