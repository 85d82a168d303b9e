"""Partial sketches of the rows of one task, which may arrive in any order of time.

A sketch accepts rows in time order only, but the rows of a task may be out of order: it may read several files, and partitions
may begin anywhere. Rows are gathered into blocks. A block goes to the sketch of its group with the latest time that is not
after the block's first row, or to a new sketch (patience sorting, with sketches as piles). Rows in time order need one sketch,
rows that are nearly in order two or three. All sketches of a group are merged with those of other tasks in one step, so that
disorder does not cost another level of merging.
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

#: How many rows are gathered before they are sketched: a larger block has longer runs per group, and takes more memory.
BLOCK = 2**18
#: How many sketches of a group stay open for more rows; if another is needed, the one with the latest time is closed.
OPEN = 4
#: Integer group columns with a range of values below this are numbered by subtraction instead of with a dictionary.
_MAX_INTEGER_SPAN = 2**12

#: The values of the group columns.
Group = tuple[Any, ...]


class Partials:
    """Builds the sketches of a task, by group.

    Parameters
    ----------
    recipe
        The sketch to build for every group.

    >>> task = Partials(SketchRecipe.of("ecm", window=100, eps=0.1, delta=0.1))
    >>> task.add(pa.array([7, 8, 7]), pa.array([3, 1, None]), groups=[pa.array(["lima", "rome", "lima"])])
    >>> [(group, sketch.total().value) for group, sketch in task.finish()], task.skipped
    ([(('lima',), 1), (('rome',), 1)], {('lima',): 1})
    """

    def __init__(self, recipe: SketchRecipe) -> None:
        self._recipe, self._window = recipe, recipe.empty().window
        self._buffer: list[list[Any]] = []
        self._buffered_rows = 0
        self._open: dict[Group, list[Any]] = {}
        self._closed: list[tuple[Group, Any]] = []
        #: How many rows of each group had no key, time or count.
        self.skipped: dict[Group, int] = {}

    def add(self, keys: Any, times: Any, counts: Any = None, groups: Any = ()) -> None:
        """Add rows, as Arrow columns of one length.

        Parameters
        ----------
        keys
            Keys in the encoding of the recipe; rows where they are NULL are skipped, as for times and counts.
        times
            Event times.
        counts
            How many events each row represents. By default 1.
        groups
            The columns to group by. By default all rows are one group.
        """
        columns = [_flat(column) for column in (keys, times, *(() if counts is None else (counts,)))]
        by = [_flat(column) for column in groups]
        if len(keys) == 0:
            return
        if any(column.null_count for column in columns):
            columns, by = self._without_nulls(columns, by)
        self._buffer.append([*columns, *([] if counts is not None else [None]), *by])
        self._buffered_rows += len(columns[0])
        if self._buffered_rows >= BLOCK:
            self._flush()

    def _without_nulls(self, columns: list[Any], by: list[Any]) -> tuple[list[Any], list[Any]]:
        import pyarrow.compute as pc

        is_complete = pc.is_valid(columns[0])
        for column in columns[1:]:
            is_complete = pc.and_(is_complete, pc.is_valid(column))
        is_skipped = pc.invert(is_complete)
        codes, names = number_groups([column.filter(is_skipped) for column in by], pc.sum(is_skipped).as_py())
        for group, count in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            self.skipped[group] = self.skipped.get(group, 0) + count
        return [column.filter(is_complete) for column in columns], [column.filter(is_complete) for column in by]

    def _flush(self) -> None:
        """Sketch the buffered rows, group by group."""
        parts = [[batch[i] for batch in self._buffer] for i in range(len(self._buffer[0]))]
        self._buffer, size, self._buffered_rows = [], self._buffered_rows, 0
        if size == 0:
            return
        column, times = self._keys(concatenate(parts[0])), _times(concatenate(parts[1]))
        counts = None if parts[2][0] is None else whole_numbers(concatenate(parts[2]), "counts")
        codes, names = number_groups([concatenate(part) for part in parts[3:]], size)
        if len(names) == 1:
            self._update(names[0], column, times, counts)
            return
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        starts = np.concatenate(([0], ends[:-1]))
        column, times = _by_group(column, codes, starts), _by_group(times, codes, starts)
        counts = None if counts is None else _by_group(counts, codes, starts)
        for group, start, end in zip(names, starts, ends, strict=True):
            rows = slice(start, end)
            self._update(group, _cut(column, rows), times[rows], None if counts is None else counts[rows])

    def _keys(self, column: Any) -> Any:
        if self._recipe.key_encoding == "number":
            return column.to_numpy(zero_copy_only=False)
        if self._recipe.key_encoding == "hash" and pa.types.is_int64(column.type):
            return HashedKeys(column.to_numpy().view(np.uint64))
        return key_column(column)

    def _update(self, group: Group, keys: Any, times: Any, counts: Ints | None) -> None:
        """Add the rows of one group to the open sketch with the latest time that accepts them, or to a new one."""
        first = tick_of(times.min(), self._window)
        piles = self._open.setdefault(group, [])
        fitting = [sketch for sketch in piles if sketch._now is None or sketch._now <= first]
        if fitting:
            pile = max(fitting, key=lambda sketch: sketch._now)
        else:
            if len(piles) == OPEN:
                latest = max(piles, key=lambda sketch: sketch._now)
                piles.remove(latest)
                self._closed.append((group, latest))
            pile = self._recipe.empty()
            piles.append(pile)
        if self._recipe.key_encoding == "integer":
            keys = keys.values if isinstance(keys, IntegerKeys) else keys
        pile.update(keys, times, counts)

    def finish(self) -> Iterator[tuple[Group, Any]]:
        """Yield groups with their sketches: one if the rows of the group were in order, otherwise several. Call this last."""
        if self._buffer:
            self._flush()
        yield from self._closed
        for group, piles in self._open.items():
            yield from ((group, sketch) for sketch in piles)


def _flat(column: Any) -> Any:
    """Return a column as one Arrow array."""
    if isinstance(column, pa.ChunkedArray):
        return concatenate(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def concatenate(columns: list[Any]) -> Any:
    """Concatenate Arrow arrays; dictionaries are unified.

    Parameters
    ----------
    columns
        At least one array; all of one type.
    """
    if len(columns) == 1:
        return columns[0]
    if pa.types.is_dictionary(columns[0].type):
        return pa.chunked_array(columns).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(columns)


def _times(column: Any) -> Any:
    """Return times as a NumPy array."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = kind.unit if pa.types.is_timestamp(kind) else "s"
        timestamps = column.cast(pa.timestamp(unit)) if pa.types.is_date(kind) else column
        return timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False).view(f"datetime64[{unit}]")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)
    raise InputError(f"times of the type {kind}", remedy="give timestamps, dates or numbers (in SQL: to_timestamp(ts))")


@kernel
def _scatter(values: Any, codes: Any, cursors: Any, out: Any) -> None:
    """Make the values of each group contiguous, in their order. ``cursors`` holds where each group begins, and is advanced."""
    for i in range(values.size):
        group = codes[i]
        out[cursors[group]] = values[i]
        cursors[group] += 1


def _by_group(column: Any, codes: Any, starts: Ints) -> Any:
    """Return a column with the rows of each group contiguous; ``starts`` holds where each group begins."""
    if isinstance(column, HashedKeys) and column.source is None:
        return HashedKeys(_by_group(column.hashes, codes, starts))
    if isinstance(column, Keys):
        return column.take(_by_group(np.arange(codes.size), codes, starts))
    wide = column if column.dtype.itemsize == 8 else column.astype(np.int64 if column.dtype.kind in "iu" else np.float64)
    words = np.ascontiguousarray(wide).view(np.uint64)  # so that one kernel serves numbers and times of any type
    out = np.empty_like(words)
    _scatter(words, codes, starts.copy(), out)
    return out.view(wide.dtype)


def _cut(keys: Any, rows: slice) -> Any:
    """Return a slice of a column of keys."""
    if isinstance(keys, HashedKeys) and keys.source is None:
        return HashedKeys(keys.hashes[rows])
    return keys.take(np.arange(rows.start, rows.stop)) if isinstance(keys, Keys) else keys[rows]


def number_groups(by: list[Any], size: int) -> tuple[Any, list[Group]]:
    """Number the groups of rows. Returns the number of each row's group, and the values of each group.

    Numbers have the smallest unsigned type that fits, because small integers sort faster.

    Parameters
    ----------
    by
        The columns to group by, as Arrow arrays; without any, all rows are one group.
    size
        How many rows there are.
    """
    if not by:
        return np.zeros(size, np.uint8), [()] if size else []
    if len(by) == 1 and (numbered := _number_integers(by[0])) is not None:
        codes, names = numbered
    elif len(by) == 1:
        encoded = by[0] if pa.types.is_dictionary(by[0].type) else by[0].dictionary_encode(null_encoding="encode")
        names = [(name,) for name in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if encoded.indices.null_count:  # the column was a dictionary already, in which NULL has no entry
            codes = encoded.indices.cast(pa.int64()).fill_null(len(names)).to_numpy(zero_copy_only=False)
            names = [*names, (None,)]
    else:
        codes, names = number_groups(by[:1], size)
        for column in by[1:]:  # renumbered after each column, so that numbers stay small
            column_codes, values = number_groups([column], size)
            distinct, codes = np.unique(codes.astype(np.int64) * len(values) + column_codes, return_inverse=True)
            names = [names[code // len(values)] + values[code % len(values)] for code in distinct.tolist()]
    narrow = np.uint8 if len(names) <= 2**8 else np.uint16 if len(names) <= 2**16 else np.int64
    codes = codes.astype(narrow)
    used = np.bincount(codes, minlength=len(names)) > 0 if len(codes) else np.zeros(len(names), bool)
    if not used.all():  # a dictionary may have entries that no row has
        codes = (np.cumsum(used) - 1)[codes].astype(narrow)
        names = [name for name, is_used in zip(names, used, strict=True) if is_used]
    return codes, names


def _number_integers(column: Any) -> tuple[Any, list[Group]] | None:
    """Number integers by subtracting the smallest; None if their range is too large."""
    if not pa.types.is_signed_integer(column.type) or column.null_count or not len(column):
        return None
    values = column.to_numpy().astype(np.int64)
    low, high = int(values.min()), int(values.max())
    return (values - low, [(name,) for name in range(low, high + 1)]) if high - low < _MAX_INTEGER_SPAN else None
