"""Text as Arrow keeps it: one buffer of UTF-8, and offsets that say where each text begins and the one before it ends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.core.xxh64 import word8

Buffer = NDArray[np.uint8]

_ONE, _EIGHT = np.uint64(1), np.uint64(8)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    import pyarrow as pa

    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(kind: Any) -> bool:
    """Whether an Arrow type is bytes."""
    import pyarrow as pa

    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or bool(pa.types.is_fixed_size_binary(kind))


def arrow_text(column: Any) -> tuple[Buffer, NDArray[Any]]:
    """The buffer and offsets of an Arrow array of text or bytes, without a copy unless it keeps them otherwise."""
    import pyarrow as pa

    if column.type in (pa.string_view(), pa.binary_view()):
        column = column.cast(pa.large_binary())
    elif pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    width = np.int64 if column.type in (pa.large_string(), pa.large_binary()) else np.int32
    _, offsets, data = column.buffers()
    offsets = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8), offsets


def joined(buffers: Sequence[Buffer], offsets: Sequence[Ints]) -> tuple[Buffer, Ints]:
    """Buffers that ``copied`` made, one after the other."""
    starts = np.cumsum([0, *(buffer.size for buffer in buffers)])
    shifted = [part[:-1] + start for part, start in zip(offsets, starts[:-1], strict=True)]
    return _frozen(np.concatenate(buffers)), np.concatenate([*shifted, starts[-1:]])


def copied(data: Buffer, offsets: NDArray[Any], rows: Ints | slice) -> tuple[Buffer, Ints]:
    """These rows in a buffer of their own, which they fill."""
    if isinstance(rows, slice):
        ends = offsets[rows.start : rows.stop + 1].astype(np.int64)
        return _frozen(data[ends[0] : ends[-1]].copy()), ends - ends[0]
    ends = np.empty(rows.size + 1, np.int64)
    _measure(offsets, rows, ends)
    content = np.empty(ends[-1], np.uint8)
    _gather(data, offsets, rows, content)
    return _frozen(content), ends


def _frozen(data: Buffer) -> Buffer:
    data.flags.writeable = False  # like Arrow's: kernels would be compiled once more for a writable buffer
    return data


def decoded(data: Buffer, offsets: NDArray[Any], rows: Ints, text: bool) -> list[str | bytes]:
    """These rows as Python has them.

    What is not UTF-8 although its column says that it is text comes back as bytes: they are the same key, so that one can
    ask for it. Refusing it would mean to check every column, which takes as long as hashing it.
    """
    ends = zip(offsets[:-1][rows].tolist(), offsets[1:][rows].tolist(), strict=True)
    view = data.data
    raw = [bytes(view[start:stop]) for start, stop in ends]
    return [_text(value) for value in raw] if text else list(raw)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@kernel
def _measure(offsets: NDArray[Any], rows: Ints, ends: Ints) -> None:
    ends[0] = 0
    for i in range(rows.size):
        ends[i + 1] = ends[i] + offsets[rows[i] + 1] - offsets[rows[i]]


@kernel
def _gather(data: Buffer, offsets: NDArray[Any], rows: Ints, out: Buffer) -> None:
    to = np.uint64(0)
    for i in range(rows.size):
        at, end = np.uint64(offsets[rows[i]]), np.uint64(offsets[rows[i] + 1])
        while at + _EIGHT <= end:  # LLVM folds the eight stores into one, as it does with the loads
            word = word8(data, at)
            for k in range(8):
                out[to + np.uint64(k)] = np.uint8(word >> np.uint64(8 * k))
            at += _EIGHT
            to += _EIGHT
        while at < end:
            out[to] = data[at]
            at += _ONE
            to += _ONE
