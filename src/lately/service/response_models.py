"""The OpenAPI models of responses, derived from the dataclasses that responses are made of.

The models describe the JSON that ``encode`` writes: times are texts or integers, infinities and NaN are null, and every field
is present. Descriptions are those of the docstrings.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from lately.core.json_encoding import FLATTEN

#: The types of JSON values that differ from those of Python.
_JSON_TYPES: dict[object, Any] = {float: int | float | None, datetime: str, bytes: str, object: Any}
#: A name of the Parameters section of a docstring, or several, alone on a line.
_NAMES = re.compile(r"(\w+(?:, \w+)*)")


def response_model(hint: Any) -> Any:
    """The type of a value as ``encode`` writes it, with a pydantic model for every dataclass.

    Parameters
    ----------
    hint
        A dataclass, or a union of several. Their fields may be dataclasses, lists, tuples, mappings, literals, unions, texts,
        numbers, booleans and datetimes; a field marked ``FLATTEN`` allows further entries.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Row:
    ...     time: datetime | None
    ...     value: float
    >>> schema = response_model(Row).model_json_schema()
    >>> schema["required"], schema["properties"]["time"]["anyOf"]
    (['time', 'value'], [{'type': 'string'}, {'type': 'null'}])
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _JSON_TYPES:
        return _JSON_TYPES[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return _model(hint)
    if origin in (Union, UnionType):
        return Union[tuple(response_model(option) for option in inner)]  # noqa: UP007  # the options are not known earlier
    if origin in (list, tuple, Sequence):
        return list[response_model(inner[0])]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[str, response_model(inner[1])]  # type: ignore[misc]
    if origin is Literal or hint in (str, int, bool, NoneType):
        return hint
    raise TypeError(f"{hint} has no form in JSON")


@cache
def _model(kind: type) -> type[BaseModel]:
    dataclass: Any = kind
    hints = get_type_hints(kind)
    descriptions = {name: text for base in reversed(kind.__mro__) for name, text in parameter_descriptions(base).items()}
    flattened = [field.name for field in fields(dataclass) if field.metadata == FLATTEN]
    definitions: dict[str, Any] = {
        field.name: (response_model(hints[field.name]), Field(description=descriptions.get(field.name)))
        for field in fields(dataclass)
        if field.name not in flattened
    }
    config = ConfigDict(extra="allow" if flattened else "forbid")
    model: type[BaseModel] = create_model(kind.__name__, __config__=config, __doc__=_summary(kind), **definitions)
    return model


def parameter_descriptions(kind: type) -> dict[str, str]:
    """The descriptions of the Parameters section of a class's docstring, by name.

    >>> from lately.store.tables import UncountedRow
    >>> parameter_descriptions(UncountedRow)["site"]
    'The site of the row; null where it has none.'
    """
    _, _, section = (inspect.getdoc(kind) or "").partition("Parameters\n----------\n")
    descriptions: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if _NAMES.fullmatch(line):
            names = line.split(", ")
        elif line.startswith("    ") and names:
            for name in names:
                descriptions[name] = f"{descriptions.get(name, '')} {_in_json_words(line.strip())}".strip()
        elif line:
            break
    return descriptions


def _summary(kind: type) -> str:
    return _in_json_words((inspect.getdoc(kind) or "").split("\n\n")[0])


def _in_json_words(text: str) -> str:
    """A sentence about a Python value as one about its JSON: null instead of None, Markdown's code marks."""
    return re.sub(r"\bNone\b", "null", text).replace("``", "`").replace("False", "false").replace("True", "true")
