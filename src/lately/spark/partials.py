"""Sketches of the rows that one task sees, which come in any order.

A sketch takes time forwards only, and a task's rows need not: files lie beside each other, partitions are cut anywhere. Rows
are gathered into blocks; a block goes to the sketch of its group that has come furthest without having passed the block's
first row, or to a new one (patience sorting, with sketches for piles). Rows in time order need one sketch, rows nearly in
order two or three. All of a group's sketches are merged with those of the other tasks in one step, so that disorder costs
no level of merging.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lately.core.columns import Ints, whole_numbers
from lately.core.errors import InputError
from lately.core.jit import kernel
from lately.core.keys import HashedKeys, IntegerKeys, Keys, key_column
from lately.core.times import tick_of
from lately.pipeline.sketch_recipe import SketchRecipe

#: Rows that are gathered before they are sketched: enough that groups are long runs, few enough to stay small.
BLOCK = 2**18
#: Sketches of one group that are kept open; the one that has come furthest is closed when there are more.
OPEN = 4
#: Integers that name groups need not be looked up while they span no more than this.
_NEAR = 2**12

Row = tuple[Any, ...]


class Partials:
    """What a task has sketched so far, by group.

    >>> task = Partials(SketchRecipe.of("ecm", window=100, eps=0.1, delta=0.1))
    >>> task.add(pa.array([7, 8, 7]), pa.array([3, 1, None]), groups=[pa.array(["lima", "rome", "lima"])])
    >>> [(group, sketch.total().value) for group, sketch in task.finish()], task.skipped
    ([(('lima',), 1), (('rome',), 1)], {('lima',): 1})
    """

    def __init__(self, recipe: SketchRecipe) -> None:
        self._recipe, self._window = recipe, recipe.empty().window
        self._waiting: list[list[Any]] = []
        self._rows = 0
        self._open: dict[Row, list[Any]] = {}
        self._closed: list[tuple[Row, Any]] = []
        #: Rows without a key, a time or a count, by group.
        self.skipped: dict[Row, int] = {}

    def add(self, keys: Any, times: Any, counts: Any = None, groups: Any = ()) -> None:
        """Take Arrow columns of one length; ``groups`` are the columns that rows are grouped by."""
        columns = [_flat(column) for column in (keys, times, *(() if counts is None else (counts,)))]
        by = [_flat(column) for column in groups]
        if len(keys) == 0:
            return
        if any(column.null_count for column in columns):
            columns, by = self._without_nulls(columns, by)
        self._waiting.append([*columns, *([] if counts is not None else [None]), *by])
        self._rows += len(columns[0])
        if self._rows >= BLOCK:
            self._sketch()

    def _without_nulls(self, columns: list[Any], by: list[Any]) -> tuple[list[Any], list[Any]]:
        import pyarrow.compute as pc

        whole = pc.is_valid(columns[0])
        for column in columns[1:]:
            whole = pc.and_(whole, pc.is_valid(column))
        missing = pc.invert(whole)
        codes, rows = grouped([column.filter(missing) for column in by], pc.sum(missing).as_py())
        for row, count in zip(rows, np.bincount(codes, minlength=len(rows)).tolist(), strict=True):
            self.skipped[row] = self.skipped.get(row, 0) + count
        return [column.filter(whole) for column in columns], [column.filter(whole) for column in by]

    def _sketch(self) -> None:
        """Sketch what was gathered, group by group."""
        parts = [[batch[i] for batch in self._waiting] for i in range(len(self._waiting[0]))]
        self._waiting, size, self._rows = [], self._rows, 0
        if size == 0:
            return
        column, times = self._keys(together(parts[0])), _instants(together(parts[1]))
        counts = None if parts[2][0] is None else whole_numbers(together(parts[2]), "counts")
        codes, rows = grouped([together(part) for part in parts[3:]], size)
        if len(rows) == 1:
            self._take(rows[0], column, times, counts)
            return
        ends = np.cumsum(np.bincount(codes, minlength=len(rows)))
        starts = np.concatenate(([0], ends[:-1]))
        column, times = _dealt(column, codes, starts), _dealt(times, codes, starts)
        counts = None if counts is None else _dealt(counts, codes, starts)
        for row, start, end in zip(rows, starts, ends, strict=True):
            mine = slice(start, end)
            self._take(row, _cut(column, mine), times[mine], None if counts is None else counts[mine])

    def _keys(self, column: Any) -> Any:
        if self._recipe.key_encoding == "number":
            return column.to_numpy(zero_copy_only=False)
        if self._recipe.key_encoding == "hash" and pa.types.is_int64(column.type):
            return HashedKeys(column.to_numpy().view(np.uint64))
        return key_column(column)

    def _take(self, row: Row, keys: Any, times: Any, counts: Ints | None) -> None:
        first = tick_of(times.min(), self._window)
        piles = self._open.setdefault(row, [])
        fitting = [sketch for sketch in piles if sketch._now is None or sketch._now <= first]
        if fitting:
            pile = max(fitting, key=lambda sketch: sketch._now)
        else:
            if len(piles) == OPEN:
                furthest = max(piles, key=lambda sketch: sketch._now)
                piles.remove(furthest)
                self._closed.append((row, furthest))
            pile = self._recipe.empty()
            piles.append(pile)
        if self._recipe.key_encoding == "integer":
            keys = keys.values if isinstance(keys, IntegerKeys) else keys
        pile.update(keys, times, counts)

    def finish(self) -> Iterator[tuple[Row, Any]]:
        """The sketches: one for each group whose rows came in order, a few for others; nothing more may be added."""
        if self._waiting:
            self._sketch()
        yield from self._closed
        for row, piles in self._open.items():
            yield from ((row, sketch) for sketch in piles)


def _flat(column: Any) -> Any:
    """One Arrow array."""
    if isinstance(column, pa.ChunkedArray):
        return together(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def together(columns: list[Any]) -> Any:
    """Arrow arrays, one after the other."""
    if len(columns) == 1:
        return columns[0]
    if pa.types.is_dictionary(columns[0].type):
        return pa.chunked_array(columns).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(columns)


def _instants(column: Any) -> Any:
    """Times as NumPy has them."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = kind.unit if pa.types.is_timestamp(kind) else "s"
        plain = column.cast(pa.timestamp(unit)) if pa.types.is_date(kind) else column
        return plain.cast(pa.int64()).to_numpy(zero_copy_only=False).view(f"datetime64[{unit}]")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)
    raise InputError(f"times of the type {kind}; give timestamps, dates or numbers (in SQL: to_timestamp(ts))")


@kernel
def _deal(values: Any, codes: Any, cursors: Any, out: Any) -> None:
    """Put the values of each group together, in the order in which they come."""
    for i in range(values.size):
        group = codes[i]
        out[cursors[group]] = values[i]
        cursors[group] += 1


def _dealt(column: Any, codes: Any, starts: Ints) -> Any:
    """A column with the rows of each group together; ``starts`` tells where each group begins."""
    if isinstance(column, HashedKeys) and column.source is None:
        return HashedKeys(_dealt(column.hashes, codes, starts))
    if isinstance(column, Keys):
        return column.take(_dealt(np.arange(codes.size), codes, starts))
    wide = column if column.dtype.itemsize == 8 else column.astype(np.int64 if column.dtype.kind in "iu" else np.float64)
    words = np.ascontiguousarray(wide).view(np.uint64)  # numbers and times of any kind
    out = np.empty_like(words)
    _deal(words, codes, starts.copy(), out)
    return out.view(wide.dtype)


def _cut(keys: Any, rows: slice) -> Any:
    """Some of a column's keys, one after the other."""
    if isinstance(keys, HashedKeys) and keys.source is None:
        return HashedKeys(keys.hashes[rows])
    return keys.take(np.arange(rows.start, rows.stop)) if isinstance(keys, Keys) else keys[rows]


def grouped(by: list[Any], size: int) -> tuple[Any, list[Row]]:
    """The number of each row's group, small integers so that they sort fast, and what the groups are called."""
    if not by:
        return np.zeros(size, np.uint8), [()] if size else []
    if len(by) == 1 and (near := _near_integers(by[0])) is not None:
        codes, names = near
    elif len(by) == 1:
        encoded = by[0] if pa.types.is_dictionary(by[0].type) else by[0].dictionary_encode(null_encoding="encode")
        names = [(name,) for name in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if encoded.indices.null_count:  # a dictionary that came as one, with nulls beside it
            codes = encoded.indices.cast(pa.int64()).fill_null(len(names)).to_numpy(zero_copy_only=False)
            names = [*names, (None,)]
    else:
        codes, names = grouped(by[:1], size)
        for column in by[1:]:  # as numbers that are small again after each column
            part, called = grouped([column], size)
            found, codes = np.unique(codes.astype(np.int64) * len(called) + part, return_inverse=True)
            names = [names[code // len(called)] + called[code % len(called)] for code in found.tolist()]
    narrow = np.uint8 if len(names) <= 2**8 else np.uint16 if len(names) <= 2**16 else np.int64
    codes = codes.astype(narrow)
    used = np.bincount(codes, minlength=len(names)) > 0 if len(codes) else np.zeros(len(names), bool)
    if not used.all():  # a dictionary may list more than the rows have
        codes = (np.cumsum(used) - 1)[codes].astype(narrow)
        names = [name for name, is_used in zip(names, used, strict=True) if is_used]
    return codes, names


def _near_integers(column: Any) -> tuple[Any, list[Row]] | None:
    """The same for integers that lie close together, which need not be looked up."""
    if not pa.types.is_signed_integer(column.type) or column.null_count or not len(column):
        return None
    values = column.to_numpy().astype(np.int64)
    low, high = int(values.min()), int(values.max())
    return (values - low, [(name,) for name in range(low, high + 1)]) if high - low < _NEAR else None
