"""Questions to a column of sketches: Arrow columns in, Arrow columns out, NULL for NULL.

A column often repeats one sketch in every row. Each is decoded once, and all rows that ask it about the same range are
answered in one call.
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

#: What an answer is made of, for counts and for numbers that are not whole.
COUNT = pa.struct([("value", pa.int64()), ("low", pa.int64()), ("high", pa.int64()), ("confidence", pa.float64())])
NUMBER = pa.struct([(name, pa.float64()) for name in ("value", "low", "high", "confidence")])
KEY_COUNT = pa.struct([("key", pa.string()), *COUNT])
INFO = pa.struct(
    [("class", pa.string()), ("window", pa.string())] + [(name, pa.int64()) for name in ("arrivals", "merges", "nbytes")]
)

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
    """How often each row's key was seen, by that row's sketch.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b", "a"], [10, 20, 30])
    >>> rows = pa.array([sketch.to_bytes(), sketch.to_bytes(), None])
    >>> [row and row["value"] for row in count(rows, pa.array(["a", None, "a"])).to_pylist()]
    [2, None, None]
    """
    told, asked = _Told(len(sketch), COUNT), np.asarray(pc.is_valid(key))
    for one, since, rows in _asked(sketch, last):
        rows = rows[asked[rows]]
        if rows.size:
            told.put(rows, _able(one, "counts", "ecm_count").counts(key.take(pa.array(rows)), last=since))
    return told.column()


def counts(sketch: Any, keys: Any, last: Any = None) -> Any:
    """How often each key of each row's list was seen.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    >>> sketch.update([7, 8, 7], [10, 20, 30])
    >>> (row,) = counts(pa.array([sketch.to_bytes()]), pa.array([[7, 8, None]])).to_pylist()
    >>> [one and one["value"] for one in row]
    [2, 1, None]
    """
    return _in_lists(count, COUNT, sketch, keys, last)


def quantile(sketch: Any, q: Any, last: Any = None) -> Any:
    """The number below which each row's share of the arrivals lies."""
    return _each(sketch, last, NUMBER, "quantile", "quantiles_quantile", q)


def quantiles(sketch: Any, q: Any, last: Any = None) -> Any:
    """The same for each row's list of shares."""
    return _in_lists(quantile, NUMBER, sketch, q, last)


def rank(sketch: Any, x: Any, last: Any = None) -> Any:
    """How many arrivals were at most each row's number."""
    return _each(sketch, last, COUNT, "rank", "quantiles_rank", x)


def count_range(sketch: Any, lo: Any, hi: Any, last: Any = None) -> Any:
    """How many arrivals were from each row's smaller to its larger number."""
    return _each(sketch, last, COUNT, "count_range", "quantiles_count_range", lo, hi)


def total(sketch: Any, last: Any = None) -> Any:
    """How many arrivals each row's sketch had.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b", "a"], [0, 1201, 1800])
    >>> total(pa.array([sketch.to_bytes()]), pa.array(["10 minutes"])).to_pylist()
    [{'value': 2, 'low': 2, 'high': 2, 'confidence': 1.0}]
    """
    return _each(sketch, last, COUNT, "total", "ecm_total")


def self_join(sketch: Any, last: Any = None) -> Any:
    """The second moment of each row's sketch."""
    return _each(sketch, last, NUMBER, "self_join", "ecm_self_join")


def inner_product(sketch: Any, other: Any, last: Any = None) -> Any:
    """The size of the join of each row's two streams."""
    told, others = _Told(len(sketch), NUMBER), _encoded(other)
    codes, known = _codes(others)
    known_others = [read(blob) for blob in others.dictionary]
    for one, since, rows in _asked(sketch, last):
        for code in np.unique(codes[rows[known[rows]]]).tolist():
            answer = _able(one, "inner_product", "ecm_inner_product").inner_product(known_others[code], last=since)
            told.put(rows[known[rows] & (codes[rows] == code)], answer)
    return told.column()


def top(sketch: Any, k: Any = None, last: Any = None) -> Any:
    """The most frequent keys of each row's sketch, as many as ``k`` says or as it was built for; keys become text.

    >>> import lately as lt
    >>> hot = lt.TopK(k=2, window=100, eps=0.1, delta=0.1)
    >>> hot.update([7, 8, 7], [10, 20, 30])
    >>> (row,) = top(pa.array([hot.to_bytes()])).to_pylist()
    >>> [(one["key"], one["value"]) for one in row]
    [('7', 2), ('8', 1)]
    """
    found: list[Any] = [None] * len(sketch)
    limits = [None] * len(sketch) if k is None else k.to_pylist()
    for one, since, rows in _asked(sketch, last):
        if not hasattr(one, "top"):
            raise QueryError(
                f"the sketch is of the class {type(one).__name__}, which does not know which keys it has seen; "
                "build the sketch with topk_sketch_agg to list the top ones"
            )
        known: dict[Any, Any] = {}
        for row in rows.tolist():
            if (most := limits[row]) not in known:
                known[most] = [_fields(each.count) | {"key": _text(each.key)} for each in one.top(most, last=since)]
            found[row] = known[most]
    return pa.array(found, pa.list_(KEY_COUNT))


def info(sketch: Any) -> Any:
    """What each row's sketch is.

    >>> import lately as lt
    >>> sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    >>> facts, nothing = info(pa.array([sketch.to_bytes(), None])).to_pylist()
    >>> facts["class"], facts["window"], facts["arrivals"], facts["merges"], nothing
    ('EcmSketch', '1h', 0, 0, None)
    """
    told: list[Any] = [None] * len(sketch)
    for one, _, rows in _asked(sketch, None):
        window, seen = getattr(one, "window", None), getattr(one, "total", None)
        facts = {
            "class": type(one).__name__,
            "window": None if window is None else window.text(window.ticks),
            "arrivals": seen().value if callable(seen) else seen,
            "merges": getattr(one, "merges", None),
            "nbytes": getattr(one, "nbytes", None),
        }
        for row in rows.tolist():
            told[row] = facts
    return pa.array(told, INFO)


# -- inside ------------------------------------------------------------------------------------------------------------


class _Told:
    """Answers by row, as columns; rows without one are NULL."""

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


def _each(sketches: Any, last: Any, kind: Any, question: str, function: str, *given: Any) -> Any:
    """Ask every row's sketch one question, with one value of each column; a NULL among them gives NULL."""
    told, columns = _Told(len(sketches), kind), [column.to_pylist() for column in given]
    for sketch, since, rows in _asked(sketches, last):
        ask = getattr(_able(sketch, question, function), question)
        known: dict[Any, Any] = {}
        for row in rows.tolist():
            values = tuple(plain(column[row]) for column in columns)
            if None in values:
                continue
            if values not in known:
                known[values] = ask(*values, last=since)
            told.put(np.array([row]), known[values])
    return told.column()


def _in_lists(ask: Callable[[Any, Any, Any], Any], kind: Any, sketches: Any, lists: Any, last: Any) -> Any:
    """Ask for every value of every row's list."""
    if pa.types.is_null(lists.type):
        return pa.nulls(len(lists), pa.list_(kind))
    encoded, parents = _encoded(sketches), pc.list_parent_indices(lists).cast(pa.int64())
    repeated = pa.DictionaryArray.from_arrays(encoded.indices.take(parents), encoded.dictionary)
    answers = ask(repeated, pc.list_flatten(lists), None if last is None else last.take(parents))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    missing = pc.or_(pc.is_null(lists), pc.is_null(encoded.indices))
    return pa.ListArray.from_arrays(pa.array(offsets), answers, mask=missing)


def _asked(sketches: Any, last: Any) -> Iterator[tuple[Any, Any, Ints]]:
    """Each sketch of a column with each range that it is asked about, and the rows that do."""
    encoded = _encoded(sketches)
    codes, known = _codes(encoded)
    ranges = _encoded(pa.nulls(len(sketches), pa.string()) if last is None else last)
    spans, bounded = _codes(ranges)
    spans = np.where(bounded, spans, -1)
    for code, blob in enumerate(encoded.dictionary):
        rows = np.flatnonzero(known & (codes == code))
        if rows.size == 0:
            continue
        sketch = read(blob)
        for span in np.unique(spans[rows]).tolist():
            yield sketch, None if span < 0 else _since(sketch, ranges.dictionary[span].as_py()), rows[spans[rows] == span]


def _encoded(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_null(column.type):  # Arrow would make NULL an entry of its dictionary
        column = column.cast(pa.binary())
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _codes(encoded: Any) -> tuple[Ints, Any]:
    """The place of each row's value in the dictionary, and whether it has one."""
    return encoded.indices.fill_null(0).to_numpy(zero_copy_only=False), np.asarray(pc.is_valid(encoded.indices))


def read(blob: Any) -> Any:
    """The sketch in one value of a column."""
    if not (pa.types.is_binary(blob.type) or pa.types.is_large_binary(blob.type)):
        raise InputError(
            f"the sketch {str(blob)[:40]!r} is of the type {blob.type}; "
            "give the binary column that an aggregate such as ecm_sketch_agg made"
        )
    return from_bytes(blob.as_buffer())


def _since(sketch: Any, last: Any) -> Any:
    """A range as the sketch's window wants it: SQL may have written an integer as text."""
    window = getattr(sketch, "window", None)
    if isinstance(last, str) and window is not None and window.kind != "time" and last.strip().isdigit():
        return int(last)
    return plain(last)


def plain(value: Any) -> Any:
    """A value of SQL, where 0.01 is a decimal, as Python has it."""
    return float(value) if isinstance(value, Decimal) else value


def _able(sketch: Any, question: str, function: str) -> Any:
    if not callable(getattr(sketch, question, None)):
        raise QueryError(
            f"{function} was given a {type(sketch).__name__}, which cannot answer it; "
            f"build the sketch with {_BUILT_BY[question]}"
        )
    return sketch


def _fields(answer: Estimate) -> dict[str, Any]:
    return {"value": answer.value, "low": answer.low, "high": answer.high, "confidence": answer.confidence}


def _text(key: Any) -> str:
    """A key as text: bytes that are no UTF-8 as hexadecimal digits."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key.hex()
    return str(key)


def hashed(keys: Any) -> Any:
    """A column of keys as the hashes of them, NULL for NULL; what the JVM calls ``xxhash64``.

    >>> hashed(pa.array(["a", None])).to_pylist()
    [-8582455328737087284, None]
    """
    if keys.null_count == 0:
        return pa.array(hash_keys(keys).view(np.int64))
    present = pc.is_valid(keys)
    places = np.cumsum(np.asarray(present)) - 1
    hashes = hash_keys(keys.drop_null()).view(np.int64) if pc.any(present).as_py() else np.zeros(1, np.int64)
    return pa.array(hashes[np.maximum(places, 0)], mask=~np.asarray(present))
