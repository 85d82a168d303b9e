"""Responses with a JSON body."""

from typing import Any

from starlette.responses import JSONResponse

from lately.core.json_encoding import encode


class JsonResponse(JSONResponse):
    """A response whose content is encoded as it is; FastAPI does not validate it again."""

    def render(self, content: Any) -> bytes:
        # A request can name a key with a lone surrogate, which UTF-8 cannot represent.
        return encode(content).encode(errors="replace")
