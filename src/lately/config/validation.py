"""What pydantic finds wrong with a pipeline file, in the words of the file: its sections, keys and values."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lately.config.mistakes import Mistake, Origin, TableError, error_of, limited
from lately.core.errors import LatelyError
from lately.toml_lines import TomlEntry, TomlLines, TomlPath, dotted, quoted_key, shortened

_MESSAGES = {
    "string_type": "must be text, in quotes",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "may contain letters, digits, spaces and _ . - only, and must start with a letter or digit",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "must have at least {min_length} item",
    "too_long": "must have at most {max_length} items",
    "list_type": "must be a list, such as [1, 2]",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


class _Finding(NamedTuple):
    """A mistake: the path to its line, what is wrong (with key and value), and what to do."""

    path: TomlPath
    message: str
    remedy: str | None = None


class _ValueFinding(NamedTuple):
    """A mistake of a value, which the message shows: the path to it, what is wrong with it, and what to do."""

    path: TomlPath
    message: str
    remedy: str | None = None


def validation_error(error: ValidationError, model: type[BaseModel], origin: Origin) -> LatelyError:
    """Make a ParameterError of what pydantic found, with a line for each mistake.

    Parameters
    ----------
    error
        What pydantic raised.
    model
        The model of the whole file.
    origin
        The file.
    """
    lines = TomlLines(origin.text or "")
    mistakes = []
    for finding in _findings(error, model):
        message = finding.message
        if isinstance(finding, _ValueFinding):
            message = f"{_subject(finding.path, lines.entries.get(finding.path))}{message}"
        line = lines.of(finding.path).line
        mistakes.append(Mistake(line, f"{origin.at(line)}: {message}".replace("\n", " "), finding.remedy))
    return error_of(limited(mistakes, origin.name))


def _subject(path: TomlPath, entry: TomlEntry | None) -> str:
    """What a message is about: nothing for the whole file, else the key with its value, or the section."""
    if not path:
        return ""
    if entry is not None and entry.text and not entry.text.startswith("{"):
        return f"{dotted(path)} = {shortened(entry.text)}: "
    is_section = all(isinstance(step, str) for step in path) and (entry is not None or len(path) == 1)
    return f"[{dotted(path)}]: " if is_section else f"{dotted(path)}: "


def _findings(error: ValidationError, model: type[BaseModel]) -> Iterator[_Finding | _ValueFinding]:
    errors = error.errors(include_url=False)
    misspelt = set()  # keys that are there under another name, so that they are not reported as missing too
    for details in errors:
        if details["type"] == "extra_forbidden":
            table, path = _locate(model, details["loc"][:-1])
            finding, meant = _unknown_key(details, table, path, model)
            misspelt.add((*path, meant))
            yield finding
    for details in errors:
        kind, path = _locate(model, details["loc"])
        if details["type"] in ("missing", "union_tag_not_found"):
            path = path if details["type"] == "missing" else (*path, "kind")
            if path not in misspelt:
                yield _missing_key(path, kind, details, model)
        elif details["type"] == "union_tag_invalid":
            yield _ValueFinding((*path, "kind"), f"must be one of {_listed(details['ctx']['expected_tags'])}")
        elif details["type"] == "value_error":
            yield from _raised(path, details["ctx"]["error"])
        elif details["type"] != "extra_forbidden":
            yield _invalid_value(path, details)


def _raised(path: TomlPath, error: Exception) -> Iterator[_ValueFinding]:
    """What a validator of ours has raised."""
    if isinstance(error, TableError):
        for mistake in error.mistakes:
            yield _ValueFinding((*path, *mistake.path), mistake.message, mistake.remedy)
    elif isinstance(error, LatelyError):
        yield _ValueFinding(path, error.message, error.remedy)
    else:
        yield _ValueFinding(path, str(error))


def _invalid_value(path: TomlPath, details: ErrorDetails) -> _ValueFinding:
    context = details.get("ctx", {})
    if details["type"] == "literal_error":
        return _ValueFinding(path, f"must be one of {_listed(context['expected'])}")
    if details["type"] == "list_type" and isinstance(details["input"], Mapping):
        return _ValueFinding(path, "must be an array of tables", f"write [[{dotted(details['loc'])}]]")
    if details["type"] in _MESSAGES:
        return _ValueFinding(path, _MESSAGES[details["type"]].format(**context))
    return _ValueFinding(path, details["msg"].replace("Input should be", "must be"))


# -- keys that are unknown or missing ----------------------------------------------------------------------------------


def _unknown_key(details: ErrorDetails, table: Any, path: TomlPath, model: type[BaseModel]) -> tuple[_Finding, str]:
    """The mistake, and the key that was probably meant, if any."""
    key = str(details["loc"][-1])
    if not path and _is_section(details["input"]):
        message = f"unknown section [{quoted_key(key)}]"
    else:
        where = f" in {_subject(path, TomlEntry(0)).removesuffix(': ')}" if path else ""
        message = f"unknown key {quoted_key(key)}{where}"
    for meant in difflib.get_close_matches(key, table.model_fields, 1):
        return _Finding((*path, key), message, f"did you mean {meant if path else _written_section(meant, model)}?"), meant
    for section, other in model.model_fields.items():
        if table is not other.annotation and key in getattr(other.annotation, "model_fields", {}):
            return _Finding((*path, key), message, f"it belongs in [{section}]"), ""
    known = ", ".join(table.model_fields if path else (_written_section(name, model) for name in model.model_fields))
    return _Finding((*path, key), message, f"use one of {known}"), ""


def _is_section(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(item, Mapping) for item in values)


def _written_section(name: str, model: type[BaseModel]) -> str:
    """A key at the top of the file as it is written there: [window], [[queries]] or name."""
    kind = _without_annotation(model.model_fields[name].annotation)
    if get_origin(kind) is list:
        return f"[[{name}]]"
    return f"[{name}]" if isinstance(kind, type) and issubclass(kind, BaseModel) else name


def _missing_key(path: TomlPath, kind: Any, details: ErrorDetails, model: type[BaseModel]) -> _Finding:
    key = str(path[-1])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _Finding(path[:-1], f"missing section [{key}]", f"add it with {' and '.join(_examples(kind))}")
    where = _subject(path[:-1], TomlEntry(0)).removesuffix(": ")
    if details["type"] == "union_tag_not_found":
        item, _ = _locate(model, details["loc"])
        return _Finding(path[:-1], f"{where} has no kind", f"give one of {', '.join(_members(item))}")
    table, _ = _locate(model, details["loc"][:-1])
    return _Finding(path[:-1], f"{where} has no {key}", f"add {_example(key, table)}")


def _examples(table: type[BaseModel]) -> list[str]:
    return [_example(key, table) for key, field in table.model_fields.items() if field.is_required()]


def _example(key: str, table: type[BaseModel]) -> str:
    (example,) = table.model_fields[key].examples or ["…"]
    return f"{key} = {json.dumps(example, ensure_ascii=False)}"


def _listed(expected: str) -> str:
    """Pydantic's 'a', 'b' or 'c' without the quotes."""
    return ", ".join(re.findall("'([^']*)'", expected))


# -- types of the model ------------------------------------------------------------------------------------------------


def _locate(kind: Any, location: TomlPath) -> tuple[Any, TomlPath]:
    """The type at one of pydantic's locations, and its path in the file, which has no step for members of a union."""
    path: TomlPath = ()
    for step in location:
        kind = _without_annotation(kind)
        if step in (members := _members(kind)):
            kind = members[str(step)]
            continue
        path = (*path, step)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and step in kind.model_fields:
            kind = kind.model_fields[str(step)].annotation
        else:
            kind = get_args(kind)[0] if get_origin(kind) is list else None
    return _without_annotation(kind), path


def _without_annotation(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _members(kind: Any) -> dict[str, Any]:
    """The tables that a list may contain, by their value of ``kind``."""
    if get_origin(kind) not in (Union, UnionType):
        return {}
    tables = [member for member in get_args(kind) if isinstance(member, type) and issubclass(member, BaseModel)]
    return {word: table for table in tables for word in get_args(table.model_fields["kind"].annotation)}
