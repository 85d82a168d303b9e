"""Columns as users have them (lists, NumPy, pandas, polars, Arrow, scalars) turned into NumPy or Arrow, without loops.

Optional libraries are recognised by what their objects can do, never imported here.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.errors import InputError

Ints = NDArray[np.int64]


def is_arrow(values: object) -> bool:
    """Whether the object is an Arrow array or chunked array."""
    return type(values).__module__.startswith("pyarrow")


def arrow(values: Any) -> Any:
    """Any column as one Arrow array: pandas and polars columns hand theirs over, lists are converted in C++."""
    import pyarrow as pa

    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    if isinstance(values, pa.RecordBatch | pa.Table):
        values = values.to_struct_array()
    if isinstance(values, pa.Scalar):
        values = pa.array([values.as_py()], values.type)
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values)  # lists, NumPy, and pandas through its own protocol
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # more chunks than one array of 32-bit offsets can hold
            values = pa.chunked_array([c.cast(pa.large_string()) for c in values.chunks]).combine_chunks()
    return values


def refuse_masked(values: object, name: str) -> None:
    """NumPy's masked arrays lose their mask on the way to plain arrays; a masked value is a missing one."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{int(np.asarray(values.mask).sum())} of the {name} are masked", remedy="fill or drop them first")


def whole_numbers(values: Any, name: str) -> Ints:
    """A column of integers as int64, or an ``InputError``."""
    refuse_masked(values, name)
    if is_arrow(values) or hasattr(values, "to_arrow"):
        column = arrow(values)
        if column.null_count:
            raise InputError(f"{column.null_count} of the {name} are null", remedy="fill or drop them first")
        values = column.to_numpy(zero_copy_only=False)
    try:
        array = np.atleast_1d(np.asarray(values))
    except ValueError as error:  # lists in lists, of different lengths
        raise InputError(f"cannot read {name}: {error}", remedy="give one column of whole numbers") from error
    if array.ndim != 1:
        raise InputError(f"{name} has {array.ndim} dimensions", remedy="give one column")
    if array.dtype.kind == "f" and array.size:
        bad = array[~(np.floor(array) == array)]
        if bad.size:
            raise InputError(f"{name} has the value {bad[0]}; {name} must be whole numbers")
        if np.abs(array).max() > 2**53:
            raise InputError(
                f"{name} has the value {np.abs(array).max()}, too large for an exact float", remedy="give integers"
            )
        return array.astype(np.int64)
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise InputError(f"{name} has the value {int(array.max())}; {name} must be below 2**63")
    if array.dtype.kind not in "iu":
        if array.size == 0:
            return np.empty(0, np.int64)
        bad = next((v for v in array.tolist() if isinstance(v, bool) or not isinstance(v, int)), array.tolist()[0])
        raise InputError(f"{name} has the value {bad!r}; {name} must be whole numbers below 2**63")
    return array.astype(np.int64, copy=False)


def arrival_counts(values: Any, size: int) -> Ints | None:
    """The ``counts=`` column: None for one each, else checked non-negative integers."""
    counts = signed_counts(values, size)
    if counts is not None and counts.size and counts.min() < 0:
        raise InputError(f"counts has the value {int(counts.min())}; a sliding window only adds: counts must be 0 or more")
    return counts


def signed_counts(values: Any, size: int, name: str = "counts") -> Ints | None:
    """A column of counts that may be negative: None for one each, else checked integers, at most 2**62 in all."""
    if values is None:
        return None
    counts = whole_numbers(values, name)
    if counts.size == 1 and size != 1 and np.ndim(values) == 0:
        counts = np.broadcast_to(counts, size).copy()
    if counts.size != size:
        raise InputError(f"{counts.size:,} {name} for {size:,} keys", remedy=f"give one each, or leave {name} out")
    weight = float(np.abs(counts.astype(np.float64)).sum())
    if weight > 2.0**62:
        signs = " without their signs" if counts.min() < 0 else ""
        raise InputError(f"{name} add up to {weight:.3g}{signs}, more than 2**62", remedy="scale them down")
    return counts
