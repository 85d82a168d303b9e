"""Parameters of a query, checked by a model; and the same model as the OpenAPI document tells of them.

FastAPI could do both, but looks at every field of a model anew for each request, which takes longer than the answer.
"""

from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from lately.service.failures import RefusalError, invalid

M = TypeVar("M", bound=BaseModel)
_MOST = 1000


def read(model: type[M], query: bytes) -> M:
    """The parameters of a request.

    >>> from lately.service.models import CountAsked
    >>> asked = read(CountAsked, b"key=GET%20/&last=10m&site=lima&site=paris")
    >>> asked.key, asked.last, asked.since, asked.site
    ('GET /', '10m', None, ['lima', 'paris'])
    """
    many = _lists(model)
    given: dict[str, Any] = {}
    try:
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST):
            if name in many:
                given.setdefault(name, []).append(value)
            else:
                given[name] = value
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False)[0], 0) from None
    except ValueError as error:
        raise RefusalError(400, "bad_value", f"the query cannot be read: {error}", "give fewer parameters") from None


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(one["name"] for one in described(model) if one["schema"].get("type") == "array")


def described(model: type[BaseModel]) -> list[dict[str, Any]]:
    """The parameters as OpenAPI tells of them.

    >>> from lately.service.models import AlertsAsked
    >>> [(one["name"], one["required"], one["schema"]["default"]) for one in described(AlertsAsked)]
    [('limit', False, 100)]
    """
    schema = model.model_json_schema()
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, **_told(told)}
        for name, told in schema.get("properties", {}).items()
    ]


def _told(told: dict[str, Any]) -> dict[str, Any]:
    """A field's schema; a parameter that may be null is one that may be left out."""
    words = told.pop("description", None)
    told.pop("title", None)
    kinds = [kind for kind in told.pop("anyOf", ()) if kind != {"type": "null"}]
    if told.get("default", 0) is None:
        del told["default"]
    whole = told | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})
    return {"schema": whole} if words is None else {"schema": whole, "description": words}
