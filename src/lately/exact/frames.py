"""The columns of a batch, however it is given: dict, Arrow table or batch, pandas, polars."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lately.core.columns import arrow, is_arrow, refuse_masked
from lately.core.errors import InputError
from lately.exact.column import Floats


def columns_of(frame: Any) -> dict[str, Any]:
    """A batch as its columns by name, not yet read."""
    if isinstance(frame, Mapping):
        odd = [name for name in frame if not isinstance(name, str)]
        if odd:
            raise InputError(f"a column named {odd[0]!r}; give columns by their names")
        return dict(frame)
    if hasattr(frame, "collect"):
        raise InputError(f"a {type(frame).__name__} has no columns yet; collect() it first")
    if hasattr(frame, "fetch_arrow_table"):  # a relation of DuckDB
        frame = frame.fetch_arrow_table()
    if is_arrow(frame) and hasattr(frame, "column_names"):
        return dict(zip(frame.column_names, frame.columns, strict=True))
    if is_arrow(frame) and hasattr(frame, "schema"):
        return dict(zip(frame.schema.names, frame.columns, strict=True))
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):  # pandas, polars
        return {str(name): frame[name] for name in frame.columns}
    raise InputError(
        f"cannot read columns from a {type(frame).__name__}; give a dict of columns, an Arrow table or a data frame"
    )


def numbers(values: Any, name: str) -> tuple[Floats, bool]:
    """A column as floats with NaN for what is missing, and whether it came as integers."""
    refuse_masked(values, name)
    if values is None:
        values = [None]
    if isinstance(values, np.ndarray) or np.isscalar(values):
        array = np.atleast_1d(values)
    elif isinstance(values, list | tuple) and all(type(value) in (int, float) for value in values):
        array = np.array(values) if values else np.empty(0)
    else:
        return _from_arrow(values, name)
    if array.ndim != 1:
        raise InputError(f"the column {name!r} has {array.ndim} dimensions; give one column")
    if array.dtype.kind == "O":
        return _from_arrow(array.tolist(), name)
    if array.dtype.kind not in "iufb":
        raise InputError(f"the column {name!r} has the type {array.dtype}; aggregates need numbers: cast it first")
    if array.dtype.kind in "iu":
        _check_exact(array, name)
    return np.ascontiguousarray(array, np.float64), array.dtype.kind in "iub"


def _from_arrow(values: Any, name: str) -> tuple[Floats, bool]:
    import pyarrow as pa

    try:
        column = arrow(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"cannot read the column {name!r}: {error}; give one column of numbers") from error
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
        raise InputError(f"the column {name!r} has the type {kind}; aggregates need numbers: cast it first")
    if pa.types.is_integer(kind):
        _check_exact(column.drop_null().to_numpy(zero_copy_only=False), name)
    floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(floats), pa.types.is_integer(kind)


def _check_exact(array: np.ndarray[Any, Any], name: str) -> None:
    if array.size == 0:
        return
    worst = max(int(array.max()), int(array.min()), key=abs)
    if abs(worst) > 2**53:
        raise InputError(
            f"the column {name!r} has the value {worst}, beyond what a float holds exactly (2**53); "
            "subtract an offset, or cast it to float if rounding does no harm"
        )
