"""Values as JSON has them, and back: the one encoder of the command line, the HTTP service and the files of a store.

    dataclass            an object with its fields; a field marked ``FLATTEN`` holds further entries of that object
    datetime             ISO 8601 in UTC with a Z
    NumPy numbers        numbers; infinities and NaN are null, which JSON does not have
    bytes                the text that they most likely are

``read_json`` is the inverse for dataclasses: it checks the types that their fields declare.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from lately.core.estimate import Estimate
from lately.core.times import iso_time

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
T = TypeVar("T")

#: The metadata of a dataclass field whose mapping is part of the object that the dataclass becomes.
FLATTEN = {"flatten": True}

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_json(value: object) -> Json:
    """A value as JSON has it: made of dicts, lists, texts, numbers, booleans and None only.

    Parameters
    ----------
    value
        A dataclass (estimates and rows of a store are), a mapping with texts as keys, a list or tuple, a number of Python or
        NumPy, a text, bytes, a datetime, or None.

    >>> from lately.core.estimate import Estimate
    >>> to_json(Estimate(7, 5.5, float("inf"), 0.99))
    {'value': 7, 'low': 5.5, 'high': None, 'confidence': 0.99}
    >>> to_json({"time": datetime(2026, 1, 1), "keys": (b"GET /", np.int64(7))})
    {'time': '2026-01-01T00:00:00Z', 'keys': ['GET /', 7]}
    """
    kind: Any = type(value)
    if value is None or kind is str or kind is int or kind is bool:
        return value  # type: ignore[return-value]  # the types of exactly these values
    if isinstance(value, float):  # a float64 of NumPy is one, too
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value):
        names, flattened = _fields_of(kind)
        row = {name: to_json(getattr(value, name)) for name in names}
        for name in flattened:
            row |= {key: to_json(item) for key, item in getattr(value, name).items()}
        return row
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, datetime | np.datetime64):
        return iso_time(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, str | int):  # an enumeration, for example
        return value
    raise TypeError(f"{kind.__name__} has no form in JSON")


def encode(value: object, indent: int | None = None) -> str:
    """A value as the text of a JSON document.

    Parameters
    ----------
    value
        What ``to_json`` takes.
    indent
        Blanks by which each level is indented; by default the document is one line without blanks.

    >>> encode({"rows": [1, float("nan")]})
    '{"rows":[1,null]}'
    """
    return _compact(to_json(value)) if indent is None else json.dumps(to_json(value), indent=indent, allow_nan=False)


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a dataclass's fields, and of those that are flattened."""
    flattened = tuple(field.name for field in fields(kind) if field.metadata == FLATTEN)
    return tuple(field.name for field in fields(kind) if field.name not in flattened), flattened


# -- reading -----------------------------------------------------------------------------------------------------------


def read_json(kind: type[T], content: object, where: str = "") -> T:
    """A dataclass from what ``to_json`` made of it; unknown entries go into its flattened field, or are ignored.

    Parameters
    ----------
    kind
        The dataclass. Its fields may be dataclasses, lists, tuples, mappings with texts as keys, literals, unions, texts,
        numbers, booleans and datetimes.
    content
        The document, as ``json.loads`` returns it.
    where
        The name of the document or of the part of it that is read, for error messages.

    Raises ValueError that names the first entry which is missing or has another type.

    >>> from lately.core.estimate import Estimate
    >>> read_json(Estimate, {"value": 7, "low": 6, "high": 8, "confidence": 0.99})
    Estimate(7, 6..8, 99%)
    >>> read_json(Estimate, {"value": 7})
    Traceback (most recent call last):
    ...
    ValueError: 'low' is missing
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"{where or 'the document'} is not an object")
    dataclass: Any = kind
    hints, given = _hints(dataclass), {}
    flattened = _fields_of(dataclass)[1]
    for field in fields(dataclass):
        name = field.name
        path = f"{where}.{name}" if where else name
        if name in flattened:
            given[name] = {key: item for key, item in content.items() if key not in hints}
        elif name in content:
            given[name] = _read(hints[name], content[name], path)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{path!r} is missing")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(hint: Any, content: Any, where: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _read_union(inner, content, where)
    if origin is Literal and content in inner:
        return content
    if origin in (list, Sequence) and isinstance(content, list):
        return [_read(inner[0], item, f"{where}[{place}]") for place, item in enumerate(content)]
    if origin is tuple and isinstance(content, list):
        return tuple(_read(inner[0], item, f"{where}[{place}]") for place, item in enumerate(content))
    if origin in (dict, Mapping) and isinstance(content, dict):
        return {key: _read(inner[1], item, f"{where}[{key!r}]") for key, item in content.items()}
    if hint is Estimate and isinstance(content, dict):
        content = _unbounded(content)
    if is_dataclass(hint) and isinstance(hint, type):
        return read_json(hint, content, where)
    if hint is datetime and isinstance(content, str):
        return datetime.fromisoformat(content)
    if hint is float and type(content) in (int, float):
        return content
    if hint is object or (isinstance(hint, type) and type(content) is hint):
        return content
    raise ValueError(f"{where!r} is {content!r}, which is of another type")


def _unbounded(estimate: dict[str, Any]) -> dict[str, Any]:
    """An estimate whose nulls are what they stand for: a value that is not known, and bounds that are infinite."""
    stands_for = {"value": math.nan, "low": -math.inf, "high": math.inf}
    return {name: stands_for.get(name) if item is None else item for name, item in estimate.items()}


def _read_union(kinds: tuple[Any, ...], content: Any, where: str) -> Any:
    """The value of the first kind that takes the content."""
    if content is None and NoneType in kinds:
        return None
    wrong = None
    for kind in kinds:
        if kind is NoneType:
            continue
        try:
            return _read(kind, content, where)
        except ValueError as error:
            wrong = error
    raise wrong or ValueError(f"{where!r} is {content!r}, which is of another type")
