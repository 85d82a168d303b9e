"""Types of values in a pipeline file."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from lately.config.mistakes import TableError, TableMistake
from lately.core.durations import nanoseconds
from lately.core.errors import ParameterError


class Table(BaseModel):
    """Base of all tables of the file: unknown keys are mistakes, and text is not converted to numbers.

    The ``examples`` of a field are shown when it is missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _length(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ParameterError('must be a duration such as "10m", or a whole number if times are whole numbers')
    if isinstance(value, int) and value < 0:
        raise ParameterError("must be at least 0")
    if isinstance(value, str):
        nanoseconds(value)
    return value


def _interval(value: Any) -> str | int:
    if value in ("never", "always"):
        return str(value)
    try:
        return _length(value)
    except ParameterError:
        raise ParameterError('must be "never", "always" or an interval such as "10m"') from None


def _gap(value: Any) -> str | int:
    if value == "any":
        return "any"
    try:
        return _length(value)
    except ParameterError:
        raise ParameterError('must be a duration such as "1m", a whole number if times are, or "any"') from None


def _key(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ParameterError("must be a key: text in quotes or a whole number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ParameterError("must be between -2**63 and 2**63 - 1")
    return value


def _range(value: Any) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2 or any(type(end) is not int for end in value):
        raise ParameterError("must be the first and the last key of a range, such as [0, 1023]")
    if value[0] > value[1]:
        raise ParameterError("the first key is greater than the last", remedy="give the smaller key first")
    return value[0], value[1]


def _settings(value: Any) -> dict[str, str | int | float | bool]:
    """Names with dots may be in quotes or not; TOML makes nested tables of those that are not."""
    if not isinstance(value, Mapping):
        raise ParameterError("must be a table of names and values")
    return dict(_flat(value, ()))


def _flat(table: Mapping[str, Any], outer: tuple[str, ...]) -> Iterator[tuple[str, str | int | float | bool]]:
    for name, value in table.items():
        path = (*outer, name)
        if isinstance(value, Mapping):
            yield from _flat(value, path)
        elif isinstance(value, str | int | float | bool):
            yield ".".join(path), value
        else:
            raise TableError([TableMistake(path, "must be text, a number, true or false")])


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$", max_length=80)]
Text = Annotated[str, Field(min_length=1)]
#: A number between 0 and 1, both excluded.
Fraction = Annotated[float, Field(gt=0, lt=1)]
#: A duration such as "10m", or a whole number if times are whole numbers.
Length = Annotated[str | int, PlainValidator(_length)]
#: How often something happens: "never", "always" (after every batch) or a Length.
Interval = Annotated[str | int, PlainValidator(_interval)]
#: A Length, or "any".
Gap = Annotated[str | int, PlainValidator(_gap)]
Key = Annotated[str | int, PlainValidator(_key)]
#: The first and the last key of a range.
Range = Annotated[tuple[int, int], PlainValidator(_range), PlainSerializer(list)]
#: Options of Spark by name; names with dots need no quotes.
Settings = Annotated[dict[str, str | int | float | bool], PlainValidator(_settings)]
