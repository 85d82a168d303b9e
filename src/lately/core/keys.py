"""Any key -> uint64, in bulk.

A key's identity is XXH64 with seed 42 of its UTF-8 bytes (text, bytes) or its eight little-endian bytes (integers of any
width): exactly Spark's ``xxhash64(col)``. A tuple chains: each part is hashed with the hash so far as its seed, which is
``xxhash64(a, b)``. So a sketch fed from the JVM and one fed from Python are the same sketch.

The kernels hash in place: ``out`` comes in holding the seeds and goes out holding the hashes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints, arrow, is_arrow, refuse_masked
from lately.core.errors import InputError
from lately.core.jit import helper, kernel

Hashes = NDArray[np.uint64]

SEED = 42

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_ZERO, _ONE, _FOUR, _EIGHT, _32 = np.uint64(0), np.uint64(1), np.uint64(4), np.uint64(8), np.uint64(32)


@helper
def _rotate(x: Any, by: int) -> Any:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@helper
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _P2, 31) * _P1


@helper
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> _32)


@helper
def _word4(data: Any, i: Any) -> Any:
    return (
        np.uint64(data[i])
        | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
    )


@helper
def _word8(data: Any, i: Any) -> Any:
    # Written byte by byte so that any alignment is legal; LLVM folds it into one load.
    return (
        np.uint64(data[i])
        | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)
    )


@kernel
def _hash_integers(values: Ints, out: Hashes) -> None:
    for i in range(values.size):
        h = out[i] + _P5 + _EIGHT
        h ^= _round(_ZERO, np.uint64(values[i]))
        out[i] = _avalanche(_rotate(h, 27) * _P1 + _P4)


@kernel
def _hash_bytes(data: Any, offsets: Any, out: Hashes) -> None:
    for i in range(out.size):
        at, end, seed = np.uint64(offsets[i]), np.uint64(offsets[i + 1]), out[i]
        size = end - at
        if size >= _32:
            a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while at + _32 <= end:
                a = _round(a, _word8(data, at))
                b = _round(b, _word8(data, at + np.uint64(8)))
                c = _round(c, _word8(data, at + np.uint64(16)))
                d = _round(d, _word8(data, at + np.uint64(24)))
                at += _32
            h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
            h = (h ^ _round(_ZERO, a)) * _P1 + _P4
            h = (h ^ _round(_ZERO, b)) * _P1 + _P4
            h = (h ^ _round(_ZERO, c)) * _P1 + _P4
            h = (h ^ _round(_ZERO, d)) * _P1 + _P4
        else:
            h = seed + _P5
        h += size
        while at + _EIGHT <= end:
            h = _rotate(h ^ _round(_ZERO, _word8(data, at)), 27) * _P1 + _P4
            at += _EIGHT
        if at + _FOUR <= end:
            h = _rotate(h ^ (_word4(data, at) * _P1), 23) * _P2 + _P3
            at += _FOUR
        while at < end:
            h = _rotate(h ^ (np.uint64(data[at]) * _P5), 11) * _P1
            at += _ONE
        out[i] = _avalanche(h)


class Keys(Protocol):
    """A column of keys that can hash any slice of itself."""

    def __len__(self) -> int: ...

    def hash_into(self, start: int, out: Hashes) -> None:
        """Replace the seeds in ``out`` by the hashes of the ``out.size`` keys from ``start`` on."""


class IntegerKeys:
    """int64 keys."""

    def __init__(self, values: Ints) -> None:
        self.values = values

    def __len__(self) -> int:
        return int(self.values.size)

    def hash_into(self, start: int, out: Hashes) -> None:
        _hash_integers(self.values[start : start + out.size], out)


class TextKeys:
    """Text or bytes: one buffer of UTF-8 and the offsets into it, as Arrow keeps them."""

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[Any]) -> None:
        self.data, self.offsets = data, offsets

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    def hash_into(self, start: int, out: Hashes) -> None:
        _hash_bytes(self.data, self.offsets[start : start + out.size + 1], out)


class TupleKeys:
    """Several columns that form one key, chained as Spark's ``xxhash64(a, b, …)`` does."""

    def __init__(self, parts: Sequence[Keys]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts[0])

    def hash_into(self, start: int, out: Hashes) -> None:
        for part in self.parts:
            part.hash_into(start, out)


class HashedKeys:
    """Keys whose hashes are already known: sorted, held back, dictionary-encoded, or hashed by Spark."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes

    def __len__(self) -> int:
        return int(self.hashes.size)

    def hash_into(self, start: int, out: Hashes) -> None:
        out[:] = self.hashes[start : start + out.size]


class MixedKeys:
    """Keys of several types in one list, hashed one by one."""

    def __init__(self, keys: Sequence[Keys]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def hash_into(self, start: int, out: Hashes) -> None:
        for i in range(out.size):
            self.keys[start + i].hash_into(0, out[i : i + 1])


class DictionaryKeys:
    """Dictionary-encoded keys: each distinct key is hashed once when the seeds are all alike."""

    def __init__(self, values: Keys, codes: NDArray[Any], decode: Callable[[], Keys]) -> None:
        self.values, self.codes, self._decode = values, codes, decode
        self._known: tuple[int, Hashes] | None = None
        self._plain: Keys | None = None

    def __len__(self) -> int:
        return int(self.codes.size)

    def hash_into(self, start: int, out: Hashes) -> None:
        codes = self.codes[start : start + out.size]
        if out.size == 0:
            return
        seed = int(out[0])
        if (out != out[0]).any():  # a later part of a tuple: every row has its own seed
            self._plain = self._plain or self._decode()
            self._plain.hash_into(start, out)
            return
        if self._known is None or self._known[0] != seed:
            table = np.full(len(self.values), seed, np.uint64)
            self.values.hash_into(0, table)
            self._known = (seed, table)
        np.take(self._known[1], codes, out=out)


def all_hashes(keys: Keys) -> Hashes:
    """The hashes of a whole column."""
    out = np.full(len(keys), SEED, np.uint64)
    keys.hash_into(0, out)
    return out


def hash_keys(keys: Any) -> Hashes:
    """The uint64 identity of each key; equal to Spark's ``xxhash64`` of the same column.

    >>> hash_keys(["a", "b"]).view(np.int64).tolist()      # spark.sql("select xxhash64('a'), xxhash64('b')")
    [-8582455328737087284, -6391946315847899181]
    """
    return all_hashes(key_column(keys))


def one_key(key: Any) -> Any:
    """A single key as a column of one; a column of more is refused, so that no answer is silently left out."""
    column = [key] if isinstance(key, tuple) else key
    if not isinstance(column, str | bytes | int) and (size := len(key_column(column))) != 1:
        raise InputError(f"count() answers for one key and was given {size:,}; use counts() for a column")
    return column


def key_column(keys: Any) -> Keys:
    """Read a column of keys, or one key, in any of the forms that users have."""
    if isinstance(keys, str | bytes | int | np.integer | np.str_ | np.bytes_) and not isinstance(keys, bool | np.bool_):
        return _one(keys)
    if isinstance(keys, tuple):
        return TupleKeys([key_column(part) for part in _parts(keys)])
    if keys is None or np.isscalar(keys) or isinstance(keys, bytearray | dict | set | frozenset):
        raise _unsupported(keys)
    refuse_masked(keys, "keys")
    if isinstance(keys, np.ndarray) and keys.size == 0:
        return IntegerKeys(np.empty(0, np.int64))
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "iu":
        return _integers(keys)
    if isinstance(keys, list) and keys and isinstance(keys[0], tuple):
        return _tuples(keys)
    if isinstance(keys, list) and keys and type(keys[0]) is int and set(map(type, keys)) == {int}:
        return _plain_integers(keys)
    if hasattr(keys, "columns") and hasattr(keys, "shape") and not is_arrow(keys):  # a pandas or polars frame
        return _together([key_column(keys[name]) for name in keys.columns])
    if isinstance(keys, np.ndarray) and keys.dtype.kind == "U" and keys.ndim == 1:
        return _from_arrow_like(keys)
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "OSU":
        return key_column(keys.tolist())
    if getattr(keys, "dtype", None) == np.dtype("O"):  # a pandas column of Python objects
        return key_column(keys.to_list())
    return _from_arrow_like(keys)


def _one(key: Any) -> Keys:
    if isinstance(key, int | np.integer):
        if not -(2**63) <= int(key) < 2**63:
            raise InputError(f"the key {int(key)} does not fit in 64 bits; give it as text or bytes")
        return IntegerKeys(np.array([int(key)], np.int64))
    try:
        raw = key if isinstance(key, bytes) else str(key).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the key {key!r} is not valid Unicode ({error.reason}); give it as bytes") from error
    return TextKeys(np.frombuffer(raw, np.uint8), np.array([0, len(raw)], np.int64))


def _parts(key: tuple[Any, ...]) -> tuple[Any, ...]:
    if not key:
        raise InputError("the key () is an empty tuple; give at least one part")
    for part in key:
        if not isinstance(part, str | bytes | int | np.integer | tuple) or isinstance(part, bool):
            raise _unsupported(part)
    return key


def _together(parts: Sequence[Keys]) -> Keys:
    if not parts:
        raise InputError("a frame without columns; give at least one column of keys")
    return TupleKeys(parts)


def _tuples(keys: list[Any]) -> Keys:
    width = len(keys[0]) if isinstance(keys[0], tuple) else -1
    for key in keys:
        if not isinstance(key, tuple) or len(key) != width:
            raise InputError(f"the key {key!r} beside {keys[0]!r}; keys that are tuples must all have {width} parts")
    if width == 0:
        raise InputError("the key () is an empty tuple; give at least one part")
    return TupleKeys([key_column(list(part)) for part in zip(*keys, strict=True)])


def _plain_integers(keys: list[int]) -> Keys:
    """A list of Python's own integers needs no Arrow."""
    try:
        return IntegerKeys(np.array(keys, np.int64))
    except OverflowError:
        return MixedKeys([_one(key) for key in keys])  # which names the one that does not fit


def _integers(values: NDArray[Any]) -> Keys:
    if values.ndim != 1:
        raise InputError(f"keys has {values.ndim} dimensions; give one column")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8 and values.size and int(values.max()) >= 2**63:
        raise InputError(
            f"the key {int(values.max())} does not fit in a signed 64-bit integer; give such keys as text or bytes"
        )
    return IntegerKeys(np.ascontiguousarray(values, np.int64))


def _from_arrow_like(keys: Any) -> Keys:
    import pyarrow as pa

    try:
        return _arrow_keys(arrow(keys))
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        if isinstance(keys, list):
            return MixedKeys([_single(key) for key in keys])
        if isinstance(error, TypeError) and not hasattr(keys, "__iter__"):
            raise _unsupported(keys) from error
        raise InputError(f"cannot read keys: {error}; give text, bytes, integers or tuples of those") from error


def _single(key: Any) -> Keys:
    if not isinstance(key, str | bytes | int | np.integer | tuple):
        raise _unsupported(key)
    return key_column(key)


def _arrow_keys(column: Any) -> Keys:
    import pyarrow as pa

    kind = column.type
    if column.null_count:
        raise InputError(f"{column.null_count} of the keys are null; fill or drop them first")
    if pa.types.is_dictionary(kind):
        codes = column.indices.to_numpy(zero_copy_only=False)
        return DictionaryKeys(_arrow_keys(column.dictionary), codes, lambda: _arrow_keys(column.dictionary_decode()))
    if pa.types.is_integer(kind):
        return _integers(column.to_numpy(zero_copy_only=False))
    if pa.types.is_struct(kind):
        return _together([_arrow_keys(part) for part in column.flatten()])
    if kind in (pa.string_view(), pa.binary_view()) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary() if not pa.types.is_fixed_size_binary(kind) else pa.binary())
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text(column, np.int32)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _text(column, np.int64)
    if pa.types.is_null(kind) and len(column) == 0:
        return IntegerKeys(np.empty(0, np.int64))
    if len(column):
        raise _unsupported(column[0].as_py())
    raise InputError(f"keys of type {kind} are not supported; give text, bytes, integers or tuples of those")


def _text(column: Any, offset_type: Any) -> Keys:
    if len(column) == 0:
        return IntegerKeys(np.empty(0, np.int64))
    _, offsets, data = column.buffers()
    offsets = np.frombuffer(offsets, offset_type)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return TextKeys(content, offsets)


def _unsupported(key: object) -> InputError:
    return InputError(f"the key {key!r} is a {type(key).__name__}; keys are text, bytes, integers or tuples of those")
