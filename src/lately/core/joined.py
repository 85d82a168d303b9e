"""Columns of keys one after the other: kept as they are to ask them, copied into one to keep their rows.

Copies do not nest, however often what was joined is cut and joined again.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from lately.core.columns import Ints
from lately.core.keys import (
    DictionaryKeys,
    HashedKeys,
    Hashes,
    IntegerKeys,
    Keys,
    MixedKeys,
    TextKeys,
    TupleKeys,
    all_hashes,
)
from lately.core.text import joined

K = TypeVar("K", bound=Keys)


class JoinedKeys(Keys):
    """Several columns, one after the other."""

    def __init__(self, columns: Sequence[Keys]) -> None:
        # Columns that were joined already lie side by side too: chains of any length stay one level deep.
        self.columns: list[Keys] = [
            part for column in columns for part in (column.columns if isinstance(column, JoinedKeys) else (column,))
        ]
        self._starts = np.cumsum([0, *map(len, self.columns)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def hash_into(self, start: int, out: Hashes) -> None:
        for column, low, high in self._slices(start, start + out.size):
            column.hash_into(low, out[: high - low])
            out = out[high - low :]

    def pick(self, rows: Ints) -> list[Any]:
        keys: list[Any] = [None] * rows.size
        for column, places, inside in self._groups(rows):
            for place, key in zip(places.tolist(), column.pick(inside), strict=True):
                keys[place] = key
        return keys

    def take(self, rows: Ints | slice) -> Keys:
        if isinstance(rows, slice):
            return _concatenated([column.part(low, high) for column, low, high in self._slices(rows.start, rows.stop)])
        if bool((np.diff(rows) >= 0).all()):
            cuts = np.searchsorted(rows, self._starts)
            parts = zip(self.columns, self._starts, cuts[:-1], cuts[1:], strict=False)
            return _concatenated([c.take(rows[low:high] - start) for c, start, low, high in parts if high > low])
        groups = list(self._groups(rows))
        together = _concatenated([column.take(inside) for column, _, inside in groups])
        places = [places for _, places, _ in groups]
        return together.take(np.argsort(np.concatenate(places))) if len(groups) > 1 else together

    def _slices(self, start: int, stop: int) -> Iterator[tuple[Keys, int, int]]:
        """The columns that this slice touches, and which slice of each."""
        first, last = np.searchsorted(self._starts, (start, stop), "right") - 1
        for i in range(first, min(last + 1, len(self.columns))):
            low, high = max(start - int(self._starts[i]), 0), min(stop, int(self._starts[i + 1])) - int(self._starts[i])
            if low < high:
                yield self.columns[i], low, high

    def _groups(self, rows: Ints) -> Iterator[tuple[Keys, Ints, Ints]]:
        """The columns that these rows touch, each with the places in ``rows`` that do, and its own rows there."""
        which = np.searchsorted(self._starts, rows, "right") - 1
        order = np.argsort(which, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
            if places.size:
                i = which[places[0]]
                yield self.columns[i], places, rows[places] - self._starts[i]


def _concatenated(columns: Sequence[Keys]) -> Keys:
    """Columns as ``take`` gives them in one; where they are of different kinds, every key is a column of its own."""
    columns = [column for column in columns if len(column)]
    if len(columns) == 1:
        return columns[0]
    if any(isinstance(column, HashedKeys) for column in columns):
        hashed = [column if isinstance(column, HashedKeys) else HashedKeys(all_hashes(column), column) for column in columns]
        sources = [column.source for column in hashed if column.source is not None]
        if len(sources) in (0, len(hashed)):
            return HashedKeys(np.concatenate([c.hashes for c in hashed]), _concatenated(sources) if sources else None)
    columns = [c.values.take(c.codes.astype(np.int64)) if isinstance(c, DictionaryKeys) else c for c in columns]
    if (integers := _only(IntegerKeys, columns)) or not columns:
        return IntegerKeys(np.concatenate([np.empty(0, np.int64), *(column.values for column in integers)]))
    if (texts := _only(TextKeys, columns)) and len({column.text for column in texts}) == 1:
        return TextKeys(*joined([c.data for c in texts], [c.offsets for c in texts]), texts[0].text)
    if (tuples := _only(TupleKeys, columns)) and len({len(column.parts) for column in tuples}) == 1:
        return TupleKeys([_concatenated(parts) for parts in zip(*(column.parts for column in tuples), strict=True)])
    return MixedKeys([key for column in columns for key in _singles(column)])


def _only(kind: type[K], columns: Sequence[Keys]) -> list[K]:
    """The columns if all are of this kind, else an empty list."""
    matching = [column for column in columns if isinstance(column, kind)]
    return matching if len(matching) == len(columns) else []


def _singles(column: Keys) -> Sequence[Keys]:
    return column.keys if isinstance(column, MixedKeys) else [column.part(i, i + 1) for i in range(len(column))]
