"""The columns of a batch: of a dict, an Arrow table or record batch, a pandas or polars frame, a DuckDB relation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lately.core.columns import arrow, is_arrow, refuse_masked
from lately.core.errors import InputError
from lately.exact.wide import Numbers, of_integers, of_list


def columns_of(frame: Any) -> dict[str, Any]:
    """The columns of a batch by name, not yet read."""
    if isinstance(frame, Mapping):
        odd = [name for name in frame if not isinstance(name, str)]
        if odd:
            raise InputError(f"a column named {odd[0]!r}", remedy="give columns by their names")
        return dict(frame)
    if hasattr(frame, "collect"):
        raise InputError(f"a {type(frame).__name__} has no columns yet", remedy="collect() it first")
    if hasattr(frame, "fetch_arrow_table"):  # a relation of DuckDB
        frame = frame.fetch_arrow_table()
    if is_arrow(frame) and hasattr(frame, "column_names"):
        return dict(zip(frame.column_names, frame.columns, strict=True))
    if is_arrow(frame) and hasattr(frame, "schema"):
        return dict(zip(frame.schema.names, frame.columns, strict=True))
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):  # pandas, polars
        return {str(name): frame[name] for name in frame.columns}
    raise InputError(
        f"cannot read columns from a {type(frame).__name__}",
        remedy="give a dict of columns, an Arrow table or a data frame",
    )


def numbers(values: Any, name: str) -> tuple[Numbers, bool]:
    """A column as floats, or pairs of them, with NaN for missing values; and whether it came as integers."""
    refuse_masked(values, name)
    if values is None:
        values = [None]
    if isinstance(values, list | tuple):
        return _from_list(values, name)
    if not (isinstance(values, np.ndarray) or np.isscalar(values)):
        return _from_arrow(values, name)
    array = np.atleast_1d(values)
    if array.ndim != 1:
        raise InputError(f"the column {name!r} has {array.ndim} dimensions", remedy="give one column")
    if array.dtype.kind == "O":
        return _from_list(array.tolist(), name)
    if array.dtype.kind not in "iufb":
        raise InputError(f"the column {name!r} has the type {array.dtype}", remedy="aggregates need numbers: cast it first")
    if array.dtype.kind in "iu":
        return of_integers(array, name), True
    return np.ascontiguousarray(array, np.float64), array.dtype.kind == "b"


def _from_list(values: Any, name: str) -> tuple[Numbers, bool]:
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.array(values, np.float64), False
    if kinds == {int}:
        try:
            return of_integers(np.array(values, np.int64), name), True
        except OverflowError:  # the check below names the value
            pass
    if kinds and kinds <= {int, float, type(None)}:
        return of_list(values, name), float not in kinds
    return _from_arrow(values, name)


def _from_arrow(values: Any, name: str) -> tuple[Numbers, bool]:
    import pyarrow as pa

    try:
        column = arrow(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"cannot read the column {name!r}: {error}", remedy="give one column of numbers") from error
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
        raise InputError(f"the column {name!r} has the type {kind}", remedy="aggregates need numbers: cast it first")
    if pa.types.is_integer(kind):
        integers = of_integers(column.fill_null(0).to_numpy(zero_copy_only=False), name)
        if column.null_count:
            integers[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return integers, True
    floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(floats), pa.types.is_null(kind)
