"""Count-Min (Cormode & Muthukrishnan; ECM-15 §3): how often each key was seen, in one small table.

The plain sketch without a window. ``EcmSketch.extract`` gives one too: its numbers are then estimates themselves, each within
``error`` of the truth, and they still add up over sites without further loss.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lately.core import codec, plan
from lately.core.arguments import check_probability, check_word
from lately.core.codec import Reader, Writer, storable
from lately.core.columns import arrival_counts
from lately.core.errors import InputError, MergeError
from lately.core.estimate import Estimate, Estimates
from lately.core.jit import kernel
from lately.core.keys import SEED, Hashes, all_hashes, key_column, one_key
from lately.counters.base import MAX_COUNT
from lately.ingest.windowed import BLOCK
from lately.sketches.hashing import DEFAULT_SEED, cell_of, coefficients, row_cells

Table = NDArray[np.int64]


@kernel
def _increment(cells: Any, table: Any) -> None:
    for i in range(cells.size):
        table[cells[i]] += 1


@kernel
def _increment_by(cells: Any, counts: Any, table: Any) -> None:
    for i in range(cells.size):
        table[cells[i]] += counts[i]


@kernel
def minima(keys: Hashes, words: Any, width: Any, cells: Any, out: Any) -> None:
    """For each key the smallest of its cells over the rows; a cell is a row of numbers, each minimised by itself."""
    for i in range(keys.size):
        cell = cell_of(keys[i], 0, words, width)
        for j in range(cells.shape[1]):
            out[i, j] = cells[cell, j]
        for row in range(1, words.shape[0]):
            cell = cell_of(keys[i], row, words, width)
            for j in range(cells.shape[1]):
                out[i, j] = min(out[i, j], cells[cell, j])


def without_collisions(low: Any, total: Any, width: int, odds: float = math.e) -> Any:
    """A row's lower bound less the most that other keys are likely to have added to it.

    With probability 1 - delta some row holds at most eps_cm·(total - f) of others beside the f of the key itself, so
    cell ≤ f + eps_cm·(total - f), where eps_cm = odds/width: a row holds more with a probability of 1/odds (Markov).
    """
    eps_cm = odds / width
    if eps_cm >= 1:
        return np.zeros_like(low)
    return np.maximum((low - eps_cm * total) / (1 - eps_cm), 0)


@storable(3)
class CountMin:
    """Frequencies of keys to within ``eps`` of the total, with probability 1 - ``delta``; no window.

    Parameters
    ----------
    eps
        The error, as a share of all arrivals.
    delta
        The probability that an answer is off by more.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = CountMin(eps=0.01, delta=0.01)
    >>> sketch.update(["a", "b", "a"])
    >>> sketch.count("a"), sketch.total()
    (Estimate(2, 2..2, 99%), 3)
    """

    FAMILY: ClassVar[int]

    def __init__(self, *, eps: float, delta: float, seed: int = DEFAULT_SEED) -> None:
        check_probability("eps", eps)
        check_probability("delta", delta)
        width, depth = plan.count_min_size(eps, delta)
        self._begin(width, depth, delta, check_word("seed", seed), 0.0, np.zeros(width * depth, np.int64))

    def _begin(self, width: int, depth: int, delta: float, seed: int, error: float, table: Table) -> Self:
        self.width, self.depth, self.delta, self.seed = width, depth, delta, seed
        #: How far each number may be from the truth, relatively: 0 for a plain sketch.
        self.error = error
        self._words = coefficients(seed, depth)
        self._table = table
        return self

    @classmethod
    def _of(cls, width: int, depth: int, delta: float, seed: int, error: float, table: Table) -> Self:
        return object.__new__(cls)._begin(width, depth, delta, seed, error, table)

    @property
    def table(self) -> Table:
        """The numbers: ``depth`` rows of ``width``."""
        return self._table.reshape(self.depth, self.width)

    def total(self) -> int:
        """The number of arrivals: each of them is counted once in every row."""
        return int(self.table[0].sum())

    @property
    def nbytes(self) -> int:
        """The bytes that the table takes in memory."""
        return self._table.nbytes

    def update(self, keys: Any, counts: Any = None) -> None:
        """Count a column of keys, ``counts`` times each; a scalar is a column of one.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        counts
            How often to count each row; once by default.
        """
        column = key_column(keys)
        if len(column) == 0:
            raise InputError("an empty column", remedy="skip the call")
        checked = arrival_counts(counts, len(column))
        arrived = len(column) if checked is None else int(checked.sum())
        heaviest = int(self.table.sum(axis=1).max())  # the rows of an extracted sketch need not agree
        if heaviest + arrived > MAX_COUNT:
            raise InputError(f"{heaviest + arrived:,} arrivals in total, more than 2**62", remedy="scale the counts down")
        hashes, cells = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint32)
        for start in range(0, len(column), BLOCK):
            size = min(BLOCK, len(column) - start)
            block, block_cells = hashes[:size], cells[:size]
            block.fill(SEED)
            column.hash_into(start, block)
            for row in range(self.depth):
                row_cells(block, row, self._words, np.uint64(self.width), block_cells)
                if checked is None:
                    _increment(block_cells, self._table)
                else:
                    _increment_by(block_cells, checked[start : start + size], self._table)

    def counts(self, keys: Any) -> Estimates:
        """How often each key of a column occurred: ``.value``, ``.low`` and ``.high`` are arrays.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        """
        hashes = all_hashes(key_column(keys))
        smallest = np.empty((hashes.size, 1), np.int64)
        minima(hashes, self._words, np.uint64(self.width), self._table[:, None], smallest)
        value, high = smallest[:, 0], self._high(smallest[:, 0])
        low = np.ceil(without_collisions(value / (1 + self.error), self._high(self.total()), self.width) * (1 - 1e-12))
        return Estimates(value, np.minimum(low.astype(np.int64), value), high, 1 - self.delta)

    def count(self, key: Any) -> Estimate:
        """How often a key occurred; ``high`` is certain, ``low`` holds with probability 1 - delta.

        Parameters
        ----------
        key
            The key.
        """
        return self.counts(one_key(key))[0]

    def self_join(self) -> Estimate:
        """The second moment: the sum of the squares of all frequencies."""
        return self.inner_product(self)

    def inner_product(self, other: Self) -> Estimate:
        """The sum over all keys of the product of their frequencies in two streams (ECM-15 Lemma 4).

        Parameters
        ----------
        other
            The sketch of the other stream, of the same width, depth and seed.
        """
        self._must_agree(other)
        left, right = self.table.astype(np.float64), other.table.astype(np.float64)
        value = float((left * right).sum(axis=1).min())
        low = value / ((1 + self.error) * (1 + other.error))
        total = float(self._high(self.total())) * float(other._high(other.total()))
        low = float(without_collisions(np.float64(low), total, self.width))
        return Estimate(value, min(low, value), value / ((1 - self.error) * (1 - other.error)), 1 - self.delta)

    def _high(self, value: Any) -> Any:
        if not self.error:
            return np.asarray(value)
        return np.floor(np.minimum(value / (1 - self.error) * (1 + 1e-12), MAX_COUNT)).astype(np.int64)

    def _must_agree(self, other: Any) -> None:
        if type(other) is not CountMin:
            raise MergeError(f"a {type(other).__name__} and a CountMin cannot be combined", remedy="give two CountMins")
        for name in ("width", "depth", "seed"):
            left, right = getattr(self, name), getattr(other, name)
            if left != right:
                raise MergeError(f"two sketches differ in {name}: {left} and {right}", remedy="build them alike")

    def _merge(self, others: Sequence[Self]) -> Self:
        for other in others:
            self._must_agree(other)
        if sum(int(sketch.table.sum(axis=1).max()) for sketch in (self, *others)) > MAX_COUNT:
            raise MergeError("more than 2**62 arrivals in total", remedy="scale the counts down")
        table = np.sum([self._table, *(o._table for o in others)], axis=0)
        error = max(self.error, *(o.error for o in others)) if others else self.error
        return self._of(self.width, self.depth, self.delta, self.seed, error, table)

    def __or__(self, other: Self) -> Self:
        return self._merge([other])

    def copy(self) -> Self:
        """An independent copy."""
        return self._merge([])

    def to_bytes(self) -> bytes:
        """The state as bytes; ``lt.from_bytes`` reads it back."""
        return codec.to_bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return codec.from_trusted_bytes, (self.to_bytes(),)

    def _write(self, out: Writer) -> None:
        out.u64(self.width)
        out.u8(self.depth)
        out.f64(self.delta)
        out.u64(self.seed)
        out.f64(self.error)
        out.integers(self._table)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        width, depth = source.within(source.u64(), 1, 2**31), source.within(source.u8(), 1, 64)
        delta, seed, error = source.fraction(), source.u64(), source.f64()
        source.check(0 <= error <= 0.999, "an error out of range")
        table = source.integers(0, MAX_COUNT)
        source.check(table.size == width * depth, "cells are missing")
        sums = table.reshape(depth, width).sum(axis=1, dtype=np.float64)
        source.check(float(sums.max()) <= MAX_COUNT, "more arrivals than are possible")
        source.check(error > 0 or float(sums.min()) >= 0.999999 * float(sums.max()), "rows that do not agree")
        return cls._of(width, depth, delta, seed, error, table)

    def __repr__(self) -> str:
        return f"CountMin(width={self.width}, depth={self.depth}, total={self.total():_}, nbytes={self.nbytes:_})"
