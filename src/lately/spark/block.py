"""A block of rows on an executor, as the arrays that sketches, exact windows and monitors take."""

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lately.core.columns import Ints
from lately.core.keys import HashedKeys, Hashes, IntegerKeys, Keys, all_hashes, key_column
from lately.core.splitmix64 import GAMMA
from lately.core.times import ticks_of
from lately.pipeline.plan import PipelinePlan

#: Half the bits of a word.
_HALF = np.uint64(32)


class Block:
    """The columns of a block of rows.

    Parameters
    ----------
    rows
        The columns that ``RowValidator.prepare`` makes, as Arrow arrays by name.
    plan
        The pipeline.
    hashed
        Whether the column ``key`` has hashes of keys.
    """

    def __init__(self, rows: dict[str, Any], plan: PipelinePlan, hashed: bool) -> None:
        self.rows, self._plan, self._hashed = rows, plan, hashed
        raw = rows["time"].to_numpy(zero_copy_only=False)
        #: Times, ticks, filter bits, counts and values of the rows; None where the pipeline does not need them.
        self.times = raw.view("datetime64[us]") if plan.window.kind == "time" else raw
        self.ticks = ticks_of(self.times, plan.window)
        self.where: Ints = rows["where"].to_numpy(zero_copy_only=False) if "where" in rows else np.empty(0, np.int64)
        self.counts = rows["count"].to_numpy(zero_copy_only=False) if "count" in rows else None
        self.values = rows["value"].to_numpy(zero_copy_only=False) if "value" in rows else None
        #: The columns of exact queries, by their SQL.
        self.exact_columns = {text: rows[f"x{i}"] for i, text in enumerate(plan.exact_columns)}
        self._keys: Keys | None = None
        self._hashes: Hashes
        if hashed:
            self._hashes = rows["key"].to_numpy(zero_copy_only=False).view(np.uint64)
        else:
            self._keys = key_column(rows["key"])
            self._hashes = all_hashes(self._keys)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row if rows were sent instead of sketches: a hash, a time difference, and the numbers of the row."""
        numbers = (self.counts is not None) + (self.values is not None) + len(self.exact_columns)
        return 8 + 1 + 8 * numbers

    def part(self, rows: Ints) -> "Block":
        """Copy some of the rows into a block of their own, which keeps no reference to this one.

        Parameters
        ----------
        rows
            Their indices.
        """
        indices = pa.array(rows)
        return Block({name: column.take(indices) for name, column in self.rows.items()}, self._plan, self._hashed)

    def in_order(self, rows: Ints) -> Ints:
        """Sort rows by time, and rows of the same time by their content, since a shuffle returns them in any order.

        Parameters
        ----------
        rows
            Their indices.
        """
        times = self.times.view(np.int64)[rows]
        ages, mixed = (times - times.min()).view(np.uint64), self._mixed[rows]
        bits = int(ages.max()).bit_length()
        # Sorting one word is fast: the time in its upper bits, as many bits of the content as fit below. Different rows seldom
        # have the same word; if they do, rows are sorted by both numbers.
        word = ages << np.uint64(64 - bits) | mixed >> np.uint64(bits) if bits else mixed
        order = np.argsort(word)
        word, mixed = word[order], mixed[order]
        if ((word[1:] == word[:-1]) & (mixed[1:] != mixed[:-1])).any():
            order = np.lexsort((self._mixed[rows], ages))
        return rows[order]

    @cached_property
    def _mixed(self) -> Hashes:
        """A hash of each row without its time."""
        numbers = [column for column in self.exact_columns.values() if pa.types.is_primitive(column.type)]
        arrays = (self.where if self.where.size else None, self.counts, self.values)
        mixed = self._hashes
        for column in (*(column.to_numpy(zero_copy_only=False) for column in numbers), *arrays):
            if column is not None:
                mixed = (mixed ^ (mixed >> _HALF) ^ column.view(np.uint64)) * GAMMA
        return mixed

    @property
    def integers(self) -> Ints:
        """The keys of the rows, which are integers."""
        assert isinstance(self._keys, IntegerKeys)
        return self._keys.values

    def keys_at(self, rows: Ints) -> HashedKeys:
        """Return the keys of some rows with their hashes.

        Parameters
        ----------
        rows
            Their indices.
        """
        return HashedKeys(self._hashes[rows], self._keys, None if self._keys is None else rows)
