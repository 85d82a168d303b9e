"""Query parameters: read and checked by a model, and described for the OpenAPI document by the same model.

FastAPI could do both, but it inspects every field of a model again for each request, which takes longer than the answer.
"""

from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from lately.service.http_errors import HttpError, validation_error

M = TypeVar("M", bound=BaseModel)
_MAX_FIELDS = 1000


def parse_query(model: type[M], query: bytes) -> M:
    """The parameters of a request.

    Parameters
    ----------
    model
        The names, types and limits of the parameters. Unknown parameters are an error.
    query
        The query string, percent-encoded.

    >>> from lately.service.request_models import CountParams
    >>> params = parse_query(CountParams, b"key=GET%20/&last=10m&site=lima&site=paris")
    >>> params.key, params.last, params.start, params.site
    ('GET /', '10m', None, ['lima', 'paris'])
    """
    list_names = _list_names(model)
    values: dict[str, Any] = {}
    try:
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS):
            if name in list_names:
                values.setdefault(name, []).append(value)
            else:
                values[name] = value
        return model.model_validate(values)
    except ValidationError as error:
        raise validation_error(error.errors(include_url=False)[0], 0) from None
    except ValueError as error:
        raise HttpError(400, "bad_value", f"the query cannot be read: {error}", "give fewer parameters") from None


@cache
def _list_names(model: type[BaseModel]) -> frozenset[str]:
    """The parameters that may be repeated."""
    return frozenset(row["name"] for row in openapi_parameters(model) if row["schema"].get("type") == "array")


def openapi_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """The parameters as the OpenAPI document describes them.

    >>> from lately.service.request_models import AlertsParams
    >>> [(row["name"], row["required"], row["schema"]["default"]) for row in openapi_parameters(AlertsParams)]
    [('limit', False, 100)]
    """
    schema = model.model_json_schema()
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, **_schema_and_description(field)}
        for name, field in schema.get("properties", {}).items()
    ]


def _schema_and_description(field: dict[str, Any]) -> dict[str, Any]:
    """A parameter's schema. A field that may be null is a parameter that may be omitted."""
    description = field.pop("description", None)
    field.pop("title", None)
    types = [option for option in field.pop("anyOf", ()) if option != {"type": "null"}]
    if field.get("default", 0) is None:
        del field["default"]
    schema = field | (types[0] if len(types) == 1 else {"anyOf": types} if types else {})
    return {"schema": schema} if description is None else {"schema": schema, "description": description}
