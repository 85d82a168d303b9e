"""Queries over a column of sketches: Arrow columns in, Arrow columns out, NULL for NULL.

A column often repeats one sketch in every row. Every distinct sketch is decoded once, and all rows that query it over the same
range are answered in one call. ``last`` is the length of the range, such as "10m"; None or NULL means the whole window.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lately.core.codec import from_bytes
from lately.core.columns import Ints
from lately.core.errors import InputError, QueryError
from lately.core.estimate import Estimate, Estimates
from lately.core.keys import hash_keys

#: The fields of an answer: integers for counts, otherwise floats.
COUNT = pa.struct([("value", pa.int64()), ("low", pa.int64()), ("high", pa.int64()), ("confidence", pa.float64())])
NUMBER = pa.struct([(name, pa.float64()) for name in ("value", "low", "high", "confidence")])
KEY_COUNT = pa.struct([("key", pa.string()), *COUNT])
INFO = pa.struct(
    [("class", pa.string()), ("window", pa.string())] + [(name, pa.int64()) for name in ("arrivals", "merges", "nbytes")]
)

#: Which aggregates build a sketch that answers a query.
_BUILT_BY = {
    "counts": "ecm_sketch_agg or topk_sketch_agg",
    "total": "ecm_sketch_agg",
    "self_join": "ecm_sketch_agg",
    "inner_product": "ecm_sketch_agg",
    "top": "topk_sketch_agg",
    "quantile": "quantiles_sketch_agg",
    "rank": "quantiles_sketch_agg",
    "count_range": "quantiles_sketch_agg",
}


def count(sketch: Any, key: Any, last: Any = None) -> Any:
    """Return how often each row's key occurred, according to that row's sketch.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b", "a"], [10, 20, 30])
    >>> rows = pa.array([sketch.to_bytes(), sketch.to_bytes(), None])
    >>> [row and row["value"] for row in count(rows, pa.array(["a", None, "a"])).to_pylist()]
    [2, None, None]
    """
    answers, has_key = _AnswerColumn(len(sketch), COUNT), np.asarray(pc.is_valid(key))
    for decoded, length, rows in _by_sketch_and_range(sketch, last):
        rows = rows[has_key[rows]]
        if rows.size:
            answers.put(rows, _checked(decoded, "counts", "ecm_count").counts(key.take(pa.array(rows)), last=length))
    return answers.column()


def counts(sketch: Any, keys: Any, last: Any = None) -> Any:
    """Return how often each key of each row's list occurred.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    >>> sketch.update([7, 8, 7], [10, 20, 30])
    >>> (row,) = counts(pa.array([sketch.to_bytes()]), pa.array([[7, 8, None]])).to_pylist()
    >>> [answer and answer["value"] for answer in row]
    [2, 1, None]
    """
    return _in_lists(count, COUNT, sketch, keys, last)


def quantile(sketch: Any, q: Any, last: Any = None) -> Any:
    """Return each row's quantile: ``q`` is a share from 0 to 1."""
    return _each(sketch, last, NUMBER, "quantile", "quantiles_quantile", q)


def quantiles(sketch: Any, q: Any, last: Any = None) -> Any:
    """Return a list of quantiles for each row's list of shares."""
    return _in_lists(quantile, NUMBER, sketch, q, last)


def rank(sketch: Any, x: Any, last: Any = None) -> Any:
    """Return how many arrivals were at most each row's number."""
    return _each(sketch, last, COUNT, "rank", "quantiles_rank", x)


def count_range(sketch: Any, lo: Any, hi: Any, last: Any = None) -> Any:
    """Return how many arrivals were between each row's ``lo`` and ``hi``, both included."""
    return _each(sketch, last, COUNT, "count_range", "quantiles_count_range", lo, hi)


def total(sketch: Any, last: Any = None) -> Any:
    """Return how many arrivals each row's sketch counted.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b", "a"], [0, 1201, 1800])
    >>> total(pa.array([sketch.to_bytes()]), pa.array(["10 minutes"])).to_pylist()
    [{'value': 2, 'low': 2, 'high': 2, 'confidence': 1.0}]
    """
    return _each(sketch, last, COUNT, "total", "ecm_total")


def self_join(sketch: Any, last: Any = None) -> Any:
    """Return the self-join size (second frequency moment) of each row's sketch."""
    return _each(sketch, last, NUMBER, "self_join", "ecm_self_join")


def inner_product(sketch: Any, other: Any, last: Any = None) -> Any:
    """Return the inner product (join size) of each row's two sketches."""
    answers, others = _AnswerColumn(len(sketch), NUMBER), _encoded(other)
    codes, has_other = _codes(others)
    decoded_others = [read(blob) for blob in others.dictionary]
    for decoded, length, rows in _by_sketch_and_range(sketch, last):
        for code in np.unique(codes[rows[has_other[rows]]]).tolist():
            answer = _checked(decoded, "inner_product", "ecm_inner_product").inner_product(decoded_others[code], last=length)
            answers.put(rows[has_other[rows] & (codes[rows] == code)], answer)
    return answers.column()


def top(sketch: Any, k: Any = None, last: Any = None) -> Any:
    """Return the ``k`` most frequent keys of each row's sketch, by default as many as it was built for. Keys become text.

    >>> import lately as lt
    >>> hot = lt.TopK(k=2, window=100, eps=0.1, delta=0.1)
    >>> hot.update([7, 8, 7], [10, 20, 30])
    >>> (row,) = top(pa.array([hot.to_bytes()])).to_pylist()
    >>> [(answer["key"], answer["value"]) for answer in row]
    [('7', 2), ('8', 1)]
    """
    lists: list[Any] = [None] * len(sketch)
    limits = [None] * len(sketch) if k is None else k.to_pylist()
    for decoded, length, rows in _by_sketch_and_range(sketch, last):
        if not hasattr(decoded, "top"):
            raise QueryError(
                f"the sketch is of the class {type(decoded).__name__}, which does not store keys",
                remedy="build the sketch with topk_sketch_agg to list its most frequent keys",
            )
        by_limit: dict[Any, Any] = {}
        for row in rows.tolist():
            if (limit := limits[row]) not in by_limit:
                by_limit[limit] = [_fields(each.count) | {"key": _text(each.key)} for each in decoded.top(limit, last=length)]
            lists[row] = by_limit[limit]
    return pa.array(lists, pa.list_(KEY_COUNT))


def info(sketch: Any) -> Any:
    """Return class, window, arrivals, merges and bytes in memory of each row's sketch.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    >>> row, null = info(pa.array([sketch.to_bytes(), None])).to_pylist()
    >>> row["class"], row["window"], row["arrivals"], row["merges"], null
    ('EcmSketch', '1h', 0, 0, None)
    """
    infos: list[Any] = [None] * len(sketch)
    for decoded, _, rows in _by_sketch_and_range(sketch, None):
        window, total = getattr(decoded, "window", None), getattr(decoded, "total", None)
        entry = {
            "class": type(decoded).__name__,
            "window": None if window is None else window.text(window.ticks),
            "arrivals": total().value if callable(total) else total,
            "merges": getattr(decoded, "merges", None),
            "nbytes": getattr(decoded, "nbytes", None),
        }
        for row in rows.tolist():
            infos[row] = entry
    return pa.array(infos, INFO)


# -- inside ------------------------------------------------------------------------------------------------------------


class _AnswerColumn:
    """A column of answers that is filled row by row; rows without an answer are NULL."""

    def __init__(self, rows: int, kind: Any) -> None:
        self.kind, self.parts = kind, np.zeros((3, rows), np.int64 if kind is COUNT else np.float64)
        self.confidence, self.missing = np.zeros(rows), np.ones(rows, bool)

    def put(self, rows: Ints, answer: Estimate | Estimates) -> None:
        for column, part in zip(self.parts, (answer.value, answer.low, answer.high), strict=True):
            column[rows] = part
        self.confidence[rows], self.missing[rows] = answer.confidence, False

    def column(self) -> Any:
        parts = [pa.array(part) for part in (*self.parts, self.confidence)]
        return pa.StructArray.from_arrays(parts, fields=list(self.kind), mask=pa.array(self.missing))


def _each(sketches: Any, last: Any, kind: Any, method: str, function: str, *arguments: Any) -> Any:
    """Call a method of every row's sketch with that row's arguments; a NULL among them gives NULL."""
    answers, columns = _AnswerColumn(len(sketches), kind), [column.to_pylist() for column in arguments]
    for sketch, length, rows in _by_sketch_and_range(sketches, last):
        query = getattr(_checked(sketch, method, function), method)
        by_arguments: dict[Any, Any] = {}
        for row in rows.tolist():
            values = tuple(python_value(column[row]) for column in columns)
            if None in values:
                continue
            if values not in by_arguments:
                by_arguments[values] = query(*values, last=length)
            answers.put(np.array([row]), by_arguments[values])
    return answers.column()


def _in_lists(query: Callable[[Any, Any, Any], Any], kind: Any, sketches: Any, lists: Any, last: Any) -> Any:
    """Apply a query to every value of every row's list."""
    if pa.types.is_null(lists.type):
        return pa.nulls(len(lists), pa.list_(kind))
    encoded, parents = _encoded(sketches), pc.list_parent_indices(lists).cast(pa.int64())
    repeated = pa.DictionaryArray.from_arrays(encoded.indices.take(parents), encoded.dictionary)
    answers = query(repeated, pc.list_flatten(lists), None if last is None else last.take(parents))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    missing = pc.or_(pc.is_null(lists), pc.is_null(encoded.indices))
    return pa.ListArray.from_arrays(pa.array(offsets), answers, mask=missing)


def _by_sketch_and_range(sketches: Any, last: Any) -> Iterator[tuple[Any, Any, Ints]]:
    """Yield every distinct sketch of a column with every range that it is queried over, and the rows with both."""
    encoded = _encoded(sketches)
    codes, has_sketch = _codes(encoded)
    ranges = _encoded(pa.nulls(len(sketches), pa.string()) if last is None else last)
    range_codes, has_range = _codes(ranges)
    range_codes = np.where(has_range, range_codes, -1)
    for code, blob in enumerate(encoded.dictionary):
        rows = np.flatnonzero(has_sketch & (codes == code))
        if rows.size == 0:
            continue
        sketch = read(blob)
        for range_code in np.unique(range_codes[rows]).tolist():
            length = None if range_code < 0 else _range_length(sketch, ranges.dictionary[range_code].as_py())
            yield sketch, length, rows[range_codes[rows] == range_code]


def _encoded(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_null(column.type):  # otherwise NULL would become an entry of the dictionary
        column = column.cast(pa.binary())
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _codes(encoded: Any) -> tuple[Ints, Any]:
    """Return the index of each row's value in the dictionary, and whether the row has a value."""
    return encoded.indices.fill_null(0).to_numpy(zero_copy_only=False), np.asarray(pc.is_valid(encoded.indices))


def read(blob: Any) -> Any:
    """Decode one value of a column of sketches.

    Parameters
    ----------
    blob
        A binary Arrow scalar; InputError for any other type.
    """
    if not (pa.types.is_binary(blob.type) or pa.types.is_large_binary(blob.type)):
        raise InputError(
            f"the sketch {str(blob)[:40]!r} is of the type {blob.type}",
            remedy="give the binary column that an aggregate such as ecm_sketch_agg made",
        )
    return from_bytes(blob.as_buffer())


def _range_length(sketch: Any, last: Any) -> Any:
    """Return the length of a range in the type that the sketch's window takes: SQL may pass an integer as text."""
    window = getattr(sketch, "window", None)
    if isinstance(last, str) and window is not None and window.kind != "time" and last.strip().isdigit():
        return int(last)
    return python_value(last)


def python_value(value: Any) -> Any:
    """Return a value of SQL as a Python value: a decimal, which 0.01 is in SQL, as a float.

    Parameters
    ----------
    value
        Any value that Arrow converts to Python.
    """
    return float(value) if isinstance(value, Decimal) else value


def _checked(sketch: Any, method: str, function: str) -> Any:
    if not callable(getattr(sketch, method, None)):
        raise QueryError(
            f"{function} was given a {type(sketch).__name__}, which cannot answer it",
            remedy=f"build the sketch with {_BUILT_BY[method]}",
        )
    return sketch


def _fields(answer: Estimate) -> dict[str, Any]:
    return {"value": answer.value, "low": answer.low, "high": answer.high, "confidence": answer.confidence}


def _text(key: Any) -> str:
    """Return a key as text: bytes that are not UTF-8 in hexadecimal."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key.hex()
    return str(key)


def hash_column(keys: Any) -> Any:
    """Hash a column of keys, NULL for NULL; the hash of a key equals Spark's ``xxhash64`` of it.

    Parameters
    ----------
    keys
        An Arrow array of integers, strings or binary.

    >>> hash_column(pa.array(["a", None])).to_pylist()
    [-8582455328737087284, None]
    """
    if keys.null_count == 0:
        return pa.array(hash_keys(keys).view(np.int64))
    present = pc.is_valid(keys)
    places = np.cumsum(np.asarray(present)) - 1
    hashes = hash_keys(keys.drop_null()).view(np.int64) if pc.any(present).as_py() else np.zeros(1, np.int64)
    return pa.array(hashes[np.maximum(places, 0)], mask=~np.asarray(present))
