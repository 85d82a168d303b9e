"""Keys as bytes, in columns. docs/format.md is its table.

A key, or a part of one, is an integer, text, bytes or a tuple. They are listed in reading order, a tuple before its parts:
``[7, ("a", 1)]`` is integer, tuple, text, integer. Then each kind has a column with what its entries hold.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.errors import FormatError, InputError
from lately.core.keys import MAX_DEPTH, DictionaryKeys, HashedKeys, IntegerKeys, Keys, MixedKeys, TextKeys, key_column

_INTEGER, _TEXT, _BYTES, _TUPLE = range(4)
_KINDS = {int: _INTEGER, str: _TEXT, bytes: _BYTES, tuple: _TUPLE}  # by exact type: True is no key

_NONE = np.empty(0, np.int64)
_OBJECT = 100  # bytes that one of Python's objects takes at most, besides its text


def write_keys(out: Writer, keys: list[Any]) -> None:
    """Write keys as ``Keys.pick`` gives them; the same keys are always the same bytes."""
    parts = list(_in_reading_order(keys))
    contents = [part.encode() if isinstance(part, str) else part for part in parts if isinstance(part, str | bytes)]
    out.integers(np.array([_KINDS[type(part)] for part in parts], np.int64))
    out.integers(np.array([len(part) for part in parts if isinstance(part, tuple)], np.int64))
    out.integers(np.array([part for part in parts if isinstance(part, int)], np.int64))
    out.integers(np.array([len(content) for content in contents], np.int64))
    out.raw(b"".join(contents))


def write_column(out: Writer, keys: Keys) -> None:
    """``write_keys`` of a whole column: the same bytes, without an object for each key where they are all alike."""
    while isinstance(keys, HashedKeys) and keys.source is not None:
        keys = keys.source if keys.rows is None else keys.source.take(keys.rows)
    if isinstance(keys, DictionaryKeys):
        keys = keys.values.take(keys.codes.astype(np.int64))
    if isinstance(keys, IntegerKeys):
        _write_alike(out, _INTEGER, keys.values, _NONE, b"")
    elif isinstance(keys, TextKeys) and (not keys.text or _is_utf8(keys.data, keys.offsets)):
        data = keys.data[int(keys.offsets[0]) : int(keys.offsets[-1])].tobytes()
        _write_alike(out, _TEXT if keys.text else _BYTES, _NONE, np.diff(keys.offsets), data)
    else:
        write_keys(out, keys.pick(np.arange(len(keys))))


def _write_alike(out: Writer, kind: int, integers: Ints, sizes: Ints, content: bytes) -> None:
    out.integers(np.full(integers.size + sizes.size, kind, np.int64))
    for column in (_NONE, integers, sizes):
        out.integers(column)
    out.raw(content)


def _is_utf8(data: Any, offsets: Any) -> bool:
    """Whether each of the texts in a buffer is UTF-8: all of it is, and none begins in the middle of a character."""
    content = data[int(offsets[0]) : int(offsets[-1])]
    starts = offsets[:-1][offsets[:-1] < offsets[1:]] - offsets[0]
    if (content[starts] & 0xC0 == 0x80).any():
        return False
    try:
        str(content.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _in_reading_order(keys: Iterable[Any]) -> Iterator[Any]:
    for key in keys:
        yield key
        if isinstance(key, tuple):
            yield from _in_reading_order(key)


def read_keys(source: Reader) -> list[Any]:
    """Read what ``write_keys`` wrote."""
    kinds = source.integers(_INTEGER, _TUPLE)
    source.fits(_OBJECT * kinds.size)  # text takes its own bytes, at most a few times over
    widths = source.integers(1, 2**62)
    numbers = source.integers(-(2**63), 2**63 - 1)
    sizes = source.integers(0, 2**62)
    integers, texts, contents, tuples = np.bincount(kinds, minlength=4).tolist()
    lengths = (numbers.size, sizes.size, widths.size)
    source.check((integers, texts + contents, tuples) == lengths, "columns of different lengths")
    columns = _Columns(source, kinds, widths, numbers, sizes)
    return [columns.key(kind, MAX_DEPTH) for kind in columns.kinds]


def read_column(source: Reader) -> Keys:
    """``read_keys`` as a column, without an object for each key where they are all alike."""
    ahead = source.copy()
    kinds = ahead.integers(_INTEGER, _TUPLE)
    if not kinds.size or kinds[0] == _TUPLE or (kinds != kinds[0]).any():
        return column_of(read_keys(source))
    ahead.integers(1, 2**62)
    numbers, sizes = ahead.integers(-(2**63), 2**63 - 1), ahead.integers(0, 2**62)
    if kinds[0] == _INTEGER:
        ahead.check(numbers.size == kinds.size and not sizes.size, "columns of different lengths")
        source.move_to(ahead)
        return IntegerKeys(numbers)
    ahead.check(sizes.size == kinds.size and not numbers.size, "columns of different lengths")
    ahead.check(float(sizes.sum(dtype=np.float64)) < 2.0**62, "texts that are too long")
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    content = np.frombuffer(ahead.raw(int(ends[-1])), np.uint8)
    is_text = bool(kinds[0] == _TEXT)
    ahead.check(not is_text or _is_utf8(content, ends), "a key's text is not UTF-8")
    source.move_to(ahead)
    return TextKeys(content, ends, is_text)


def write_key(out: Writer, key: Any) -> None:
    """Write one key in as few bytes as will do."""
    out.u8(_KINDS[type(key)])
    if isinstance(key, tuple):
        out.varint(len(key))
        for part in key:
            write_key(out, part)
    elif isinstance(key, int):
        out.varint(2 * key if key >= 0 else -2 * key - 1)
    else:
        content = key.encode() if isinstance(key, str) else key
        out.varint(len(content))
        out.raw(content)


def read_key(source: Reader, depth: int = MAX_DEPTH) -> Any:
    """Read what ``write_key`` wrote."""
    kind = source.choice(_INTEGER, _TEXT, _BYTES, _TUPLE)
    if kind == _TUPLE:
        source.check(depth > 0, "a key nests too deep")
        return tuple(read_key(source, depth - 1) for _ in range(source.within(source.varint(), 1, 2**20)))
    if kind == _INTEGER:
        half, odd = divmod(source.varint(), 2)
        return source.within(-half - 1 if odd else half, -(2**63), 2**63 - 1)
    return source.text() if kind == _TEXT else source.raw(source.varint())


def column_of(keys: list[Any]) -> Keys:
    """Keys that were read, or that ``Keys.pick`` gave, as a column again, whatever stands beside what."""
    try:
        return key_column(keys)
    except InputError:  # tuples beside what is not like them: in a user's list a mistake, in one of ours not
        return MixedKeys([key_column(key) for key in keys])


class _Columns:
    """What is still to be read of each column."""

    def __init__(self, source: Reader, kinds: Ints, widths: Ints, numbers: Ints, sizes: Ints) -> None:
        self.source, self.kinds = source, iter(kinds.tolist())
        self.widths, self.numbers, self.sizes = iter(widths.tolist()), iter(numbers.tolist()), iter(sizes.tolist())

    def key(self, kind: int | None, depth: int) -> Any:
        """The key of this kind that comes next; tuples may nest ``depth`` deep."""
        self.source.check(kind is not None, "a tuple is cut short")
        if kind == _INTEGER:
            return next(self.numbers)
        if kind == _TUPLE:
            self.source.check(depth > 0, f"tuples more than {MAX_DEPTH} deep")
            return tuple([self.key(next(self.kinds, None), depth - 1) for _ in range(next(self.widths))])
        content = self.source.raw(next(self.sizes))
        return content if kind == _BYTES else _text(content)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"not a sketch that lately wrote: a key's text is not UTF-8 ({error.reason})") from error
