"""Any key -> uint64, in bulk; and from a row back to its key.

A key's identity is XXH64 with seed 42 of its UTF-8 bytes (text, bytes) or its eight little-endian bytes (integers of any
width): exactly Spark's ``xxhash64(col)``. A tuple chains: each part is hashed with the hash so far as its seed, which is
``xxhash64(a, b)``. So a sketch fed from the JVM and one fed from Python are the same sketch.

A hash does not give its key back: whoever must name keys keeps a copy of some rows (``part``, ``take``) and asks it (``pick``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints, arrow, is_arrow, refuse_masked
from lately.core.errors import InputError
from lately.core.text import arrow_text, copied, decoded, is_bytes, is_text
from lately.core.xxh64 import hash_bytes, hash_integers

Hashes = NDArray[np.uint64]

SEED = 42

#: Tuples may hold tuples, this many deep; Python gives up on keys that nest much deeper.
MAX_DEPTH = 32

#: The types of a single key that is no tuple; bool, which is an int, is none. Tuples of types are faster than unions of them.
_INTEGERS = (int, np.integer)
_SINGLE = (str, bytes, *_INTEGERS)

_OBJECTS = 300  # about the bytes that the objects around a single key take
_BLOCK = 16_384  # rows of a dictionary that are decoded at a time, so that they stay in the cache


class Keys(ABC):
    """A column of keys that can hash any slice of itself, and give its keys back."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes it holds; parts of one column may share a dictionary, and each counts it."""

    @abstractmethod
    def hash_into(self, start: int, out: Hashes) -> None:
        """Replace the seeds in ``out`` by the hashes of the ``out.size`` keys from ``start`` on."""

    @abstractmethod
    def pick(self, rows: Ints) -> list[Any]:
        """The keys at these rows as Python has them: int, str, bytes, or tuples of those."""

    @abstractmethod
    def take(self, rows: Ints | slice) -> "Keys":
        """A copy of these rows, in this order, and of nothing else; it holds none of the caller's memory."""

    def part(self, start: int, stop: int) -> "Keys":
        """A copy of this slice, and of nothing else; it holds none of the caller's memory."""
        return self.take(slice(start, stop))


class IntegerKeys(Keys):
    """int64 keys."""

    def __init__(self, values: Ints) -> None:
        self.values = values

    def __len__(self) -> int:
        return int(self.values.size)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def hash_into(self, start: int, out: Hashes) -> None:
        hash_integers(self.values[start : start + out.size], out)

    def pick(self, rows: Ints) -> list[Any]:
        keys: list[Any] = self.values[rows].tolist()
        return keys

    def take(self, rows: Ints | slice) -> Keys:
        return IntegerKeys(self.values[rows].copy())


class TextKeys(Keys):
    """Text or bytes: one buffer of UTF-8 and the offsets into it, as Arrow keeps them."""

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[Any], text: bool) -> None:
        self.data, self.offsets, self.text = data, offsets, text

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.offsets.nbytes

    def hash_into(self, start: int, out: Hashes) -> None:
        hash_bytes(self.data, self.offsets[start : start + out.size + 1], out)

    def pick(self, rows: Ints) -> list[Any]:
        return decoded(self.data, self.offsets, rows, self.text)

    def take(self, rows: Ints | slice) -> Keys:
        return TextKeys(*copied(self.data, self.offsets, rows), self.text)


class TupleKeys(Keys):
    """Several columns that form one key, chained as Spark's ``xxhash64(a, b, …)`` does."""

    def __init__(self, parts: Sequence[Keys]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def hash_into(self, start: int, out: Hashes) -> None:
        for part in self.parts:
            part.hash_into(start, out)

    def pick(self, rows: Ints) -> list[Any]:
        return list(zip(*(part.pick(rows) for part in self.parts), strict=True))

    def take(self, rows: Ints | slice) -> Keys:
        return TupleKeys([part.take(rows) for part in self.parts])


class HashedKeys(Keys):
    """Keys whose hashes are already known: sorted, held back, or hashed by Spark.

    With a ``source`` they can be given back: key ``i`` is the source's at ``rows[i]``, or at ``i`` without ``rows``.
    """

    def __init__(self, hashes: Hashes, source: Keys | None = None, rows: Ints | None = None) -> None:
        self.hashes, self.source, self.rows = hashes, source, rows

    def __len__(self) -> int:
        return int(self.hashes.size)

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + sum(part.nbytes for part in (self.source, self.rows) if part is not None)

    def hash_into(self, start: int, out: Hashes) -> None:
        out[:] = self.hashes[start : start + out.size]

    def pick(self, rows: Ints) -> list[Any]:
        if self.source is None:
            raise InputError("keys given as hashes cannot be given back", remedy="give the keys themselves")
        return self.source.pick(rows if self.rows is None else self.rows[rows])

    def take(self, rows: Ints | slice) -> Keys:
        hashes = self.hashes[rows].copy()
        if self.source is None:
            return HashedKeys(hashes)
        return HashedKeys(hashes, self.source.take(rows if self.rows is None else self.rows[rows]))


class MixedKeys(Keys):
    """Keys of several types in one list, each a column of one."""

    def __init__(self, keys: Sequence[Keys]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return sum(key.nbytes + _OBJECTS for key in self.keys)

    def hash_into(self, start: int, out: Hashes) -> None:
        for i in range(out.size):
            self.keys[start + i].hash_into(0, out[i : i + 1])

    def pick(self, rows: Ints) -> list[Any]:
        first = np.zeros(1, np.int64)
        return [self.keys[row].pick(first)[0] for row in rows.tolist()]

    def take(self, rows: Ints | slice) -> Keys:
        return MixedKeys(self.keys[rows] if isinstance(rows, slice) else [self.keys[row] for row in rows.tolist()])


class DictionaryKeys(Keys):
    """Dictionary-encoded keys: each distinct key is hashed once when the seeds are all alike."""

    def __init__(self, values: Keys, codes: NDArray[Any]) -> None:
        self.values, self.codes = values, codes
        self._known: tuple[int, Hashes] | None = None
        self._copy: Keys | None = None

    def __len__(self) -> int:
        return int(self.codes.size)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.codes.nbytes

    def hash_into(self, start: int, out: Hashes) -> None:
        codes = self.codes[start : start + out.size]
        if out.size == 0:
            return
        seed = int(out[0])
        if (out != out[0]).any():  # a later part of a tuple: every row has its own seed
            for at in range(0, out.size, _BLOCK):
                self.values.take(codes[at : at + _BLOCK].astype(np.int64)).hash_into(0, out[at : at + _BLOCK])
            return
        if self._known is None or self._known[0] != seed:
            table = np.full(len(self.values), seed, np.uint64)
            self.values.hash_into(0, table)
            self._known = (seed, table)
        np.take(self._known[1], codes, out=out)

    def pick(self, rows: Ints) -> list[Any]:
        return self.values.pick(self.codes[rows])

    def take(self, rows: Ints | slice) -> Keys:
        codes = self.codes[rows].copy()
        if len(self.values) > 4 * codes.size:  # most of the dictionary would be held for nothing
            used, codes = np.unique(codes, return_inverse=True)
            return DictionaryKeys(self.values.take(used.astype(np.int64)), codes.astype(np.int32))
        if self._copy is None:
            self._copy = self.values.part(0, len(self.values))
        twin = DictionaryKeys(self._copy, codes)
        twin._known, twin._copy = self._known, self._copy
        return twin


def all_hashes(keys: Keys) -> Hashes:
    """The hashes of a whole column."""
    out = np.empty(len(keys), np.uint64)
    out.fill(SEED)  # faster than np.full for a single key
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
    if not isinstance(column, (str, bytes, int)) and (size := len(key_column(column))) != 1:
        raise InputError(f"count() answers for one key and was given {size:,}", remedy="use counts() for a column")
    return column


def key_column(keys: Any, depth: int = 0) -> Keys:
    """Read a column of keys, or one key, in any of the forms that users have; ``depth`` counts the tuples around it."""
    if type(keys) is str or (isinstance(keys, _SINGLE) and not isinstance(keys, bool)):
        return _one(keys)
    if isinstance(keys, Keys):  # hashed by Spark, or read already
        return keys
    if isinstance(keys, tuple):
        return _tuple(keys, depth)
    if keys is None or np.isscalar(keys) or isinstance(keys, bytearray | dict | set | frozenset):
        raise _unsupported(keys)
    refuse_masked(keys, "keys")
    if hasattr(keys, "dtype") and getattr(keys, "size", None) == 0:  # whatever type pandas thinks that nothing has
        return IntegerKeys(np.empty(0, np.int64))
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "iu":
        return _integers(keys)
    if isinstance(keys, list) and keys and isinstance(keys[0], tuple):
        return _tuples(keys, depth)
    if isinstance(keys, list) and keys and type(keys[0]) is int and set(map(type, keys)) == {int}:
        return _plain_integers(keys)
    if hasattr(keys, "columns") and hasattr(keys, "shape") and not is_arrow(keys):  # a pandas or polars frame
        return _together([key_column(keys[name], _inside(depth)) for name in keys.columns])
    if isinstance(keys, np.ndarray) and keys.dtype.kind == "U" and keys.ndim == 1:
        return _from_arrow_like(keys, depth)
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "OSU":
        return key_column(keys.tolist(), depth)
    if getattr(keys, "dtype", None) == np.dtype("O"):  # a pandas column of Python objects
        return key_column(keys.to_list(), depth)
    if isinstance(keys, Iterator):
        return key_column(list(keys), depth)
    return _from_arrow_like(keys, depth)


def _one(key: Any) -> Keys:
    if isinstance(key, _INTEGERS):
        if not -(2**63) <= int(key) < 2**63:
            raise InputError(f"the key {int(key)} does not fit in 64 bits", remedy="give it as text or bytes")
        return IntegerKeys(np.array([int(key)], np.int64))
    try:
        raw = key if isinstance(key, bytes) else str(key).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the key {key!r} is not valid Unicode ({error.reason})", remedy="give it as bytes") from error
    return TextKeys(np.frombuffer(raw, np.uint8), np.array([0, len(raw)], np.int64), not isinstance(key, bytes))


def _inside(depth: int) -> int:
    """The depth of what is inside a tuple at this depth."""
    if depth == MAX_DEPTH:
        raise InputError(f"a key nests tuples more than {MAX_DEPTH} deep", remedy="give its parts side by side, or as text")
    return depth + 1


def _tuple(key: tuple[Any, ...], depth: int) -> Keys:
    if not key:
        raise InputError("the key () is an empty tuple", remedy="give at least one part")
    return TupleKeys([_single(part, _inside(depth)) for part in key])


def _together(parts: Sequence[Keys]) -> Keys:
    if not parts:
        raise InputError("a frame without columns", remedy="give at least one column of keys")
    return TupleKeys(parts)


def _tuples(keys: list[Any], depth: int) -> Keys:
    width = len(keys[0])
    for key in keys:
        if not isinstance(key, tuple) or len(key) != width:
            raise InputError(f"the key {key!r} beside {keys[0]!r}; keys that are tuples must all have {width} parts")
    if width == 0:
        raise InputError("the key () is an empty tuple", remedy="give at least one part")
    return TupleKeys([key_column(list(part), _inside(depth)) for part in zip(*keys, strict=True)])


def _plain_integers(keys: list[int]) -> Keys:
    """A list of Python's own integers needs no Arrow."""
    try:
        return IntegerKeys(np.array(keys, np.int64))
    except OverflowError:
        return MixedKeys([_one(key) for key in keys])  # which names the one that does not fit


def _integers(values: NDArray[Any]) -> Keys:
    if values.ndim != 1:
        raise InputError(f"keys has {values.ndim} dimensions", remedy="give one column")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8 and values.size and int(values.max()) >= 2**63:
        raise InputError(
            f"the key {int(values.max())} does not fit in a signed 64-bit integer", remedy="give such keys as text or bytes"
        )
    return IntegerKeys(np.ascontiguousarray(values, np.int64))


def _from_arrow_like(keys: Any, depth: int) -> Keys:
    import pyarrow as pa

    try:
        column = arrow(keys)
        if not _loses_text(keys, column):
            return _arrow_keys(column, depth)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        if isinstance(error, TypeError) and not hasattr(keys, "__iter__"):
            raise _unsupported(keys) from error
        if not isinstance(keys, list):
            raise InputError(f"cannot read keys: {error}", remedy="give text, bytes, integers or tuples of those") from error
    return MixedKeys([_single(key, depth) for key in keys])


def _loses_text(keys: Any, column: Any) -> bool:
    """Whether these are Python's objects, text beside bytes, which Arrow all takes for bytes."""
    if not is_bytes(column.type) or is_arrow(keys) or hasattr(keys, "dtype"):
        return False
    return any(issubclass(kind, str) for kind in set(map(type, keys)))


def _single(key: Any, depth: int) -> Keys:
    if not isinstance(key, str | bytes | int | np.integer | tuple):
        raise _unsupported(key)
    return key_column(key, depth)


def _arrow_keys(column: Any, depth: int) -> Keys:
    import pyarrow as pa

    kind = column.type
    if column.null_count:
        raise InputError(f"{column.null_count} of the keys are null", remedy="fill or drop them first")
    if pa.types.is_dictionary(kind):
        return DictionaryKeys(_arrow_keys(column.dictionary, depth), column.indices.to_numpy(zero_copy_only=False))
    if pa.types.is_integer(kind):
        return _integers(column.to_numpy(zero_copy_only=False))
    if pa.types.is_struct(kind):
        return _together([_arrow_keys(part, _inside(depth)) for part in column.flatten()])
    if len(column) == 0 and (pa.types.is_null(kind) or is_text(kind) or is_bytes(kind)):
        return IntegerKeys(np.empty(0, np.int64))
    if is_text(kind) or is_bytes(kind):
        return TextKeys(*arrow_text(column), is_text(kind))
    if len(column):
        raise _unsupported(column[0].as_py())
    raise InputError(f"keys of type {kind} are not supported", remedy="give text, bytes, integers or tuples of those")


def _unsupported(key: object) -> InputError:
    if isinstance(key, float) and key != key:  # how pandas writes null
        return InputError("a key is nan, which is no key", remedy="fill or drop such rows first")
    return InputError(f"the key {key!r} is a {type(key).__name__}", remedy="give text, bytes, integers or tuples of those")
