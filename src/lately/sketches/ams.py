"""AMS sketches (Alon, Matias & Szegedy; Fast-AMS: Cormode & Garofalakis): joins of streams with insertions and deletions.

A cell adds up counts, each with the random sign of its key, so that what different keys add cancels out on average:

    AmsSketch       every key is in every cell of a row    a row estimates the mean of the products of two sketches' cells
    FastAmsSketch   every key is in one cell of a row      a row estimates their sum

With frequencies a and b and signs s that are 4-wise independent, a row estimates a·b + Σ_{i≠j} a_i·b_j·s_i·s_j·[i and j meet]
(AMS: the mean of width such sums, where all meet). That is a·b on average, and in Fast-AMS, where two keys meet with a
probability of 1/width, its variance is

    Σ_{i≠j} (a_i²·b_j² + a_i·b_i·a_j·b_j) / width  ≤  (|a|²|b|² + (a·b)²) / width  ≤  2·|a|²|b|² / width

and so it is in AMS, where the width comes from the mean. Chebyshev's inequality and the median of an odd number of
independent rows make of it a promise: off by more than eps·|a||b| with probability delta (``plan.ams_size``). The vector
of a range of keys is a stream like any other, so the sum of a range is an inner product too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lately.core import codec, plan
from lately.core.arguments import check_probability, check_word
from lately.core.codec import Reader, Writer, storable
from lately.core.columns import Ints, signed_counts
from lately.core.errors import InputError, MergeError, ParameterError
from lately.core.estimate import Estimate
from lately.core.jit import kernel
from lately.core.keys import SEED, HashedKeys, Hashes, IntegerKeys, Keys, all_hashes, key_column
from lately.counters.base import MAX_COUNT, NO_COUNTS, Cells, Counts
from lately.ingest.windowed import BLOCK
from lately.sketches.fourwise import polynomial, polynomials, signed_cells
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.scratch import scratch
from lately.sketches.tally import tally

Table = NDArray[np.int64]

#: The most cells: the number of a cell and a sign must fit in 32 bits.
MOST_CELLS = 2**31

#: Bits of a polynomial's value, each of which is a sign.
SIGNS = 61

_RANGE = 2**20  # keys of a range that are generated at a time


@kernel
def _add_signed(cells: Any, counts: Any, table: Any) -> None:
    """Add to one cell each, twice whose number is given, and one more where the sign is minus; no counts: one each."""
    for i in range(cells.size):
        count = counts[i] if counts.size else 1
        table[cells[i] >> 1] += count * (1 - 2 * np.int64(cells[i] & 1))


@kernel
def _add_to_all(keys: Any, counts: Any, table: Any, coefficients: Any) -> None:
    """Add every key to every cell; each polynomial gives the signs of the next 61 cells of its row.

    Two bits of one value are independent, values of four keys are, so two cells of a row are uncorrelated to the fourth
    moment: their mean has the variance that it would have with polynomials of their own.
    """
    groups = coefficients.shape[0] // table.shape[0]
    for group in range(coefficients.shape[0]):
        row, start = group // groups, group % groups * SIGNS
        cells = table[row, start : start + SIGNS]
        for i in range(keys.size):
            value = np.int64(polynomial(keys[i], group, coefficients))
            count = counts[i] if counts.size else 1
            for bit in range(cells.size):
                cells[bit] += -count if (value >> bit) & 1 else count


def _written_out(keys: range) -> Ints:
    """A range whose ends fit in 64 bits; neither its step nor what lies just behind it needs to."""
    steps = np.arange(len(keys), dtype=np.uint64) * np.uint64(keys.step % 2**64)
    return (steps + np.uint64(keys.start % 2**64)).view(np.int64)


class LinearSketch(ABC):
    """Base of both: a table of signed sums, to which counts are added or from which they are subtracted."""

    FAMILY: ClassVar[int]

    def __init__(self, *, eps: float, delta: float, seed: int = DEFAULT_SEED) -> None:
        check_probability("eps", eps)
        check_probability("delta", delta)
        width, depth = plan.ams_size(eps, delta)
        if width * depth > MOST_CELLS:
            raise ParameterError(f"eps={eps!r}, delta={delta!r} need {width * depth:,} cells", remedy="give a larger eps")
        self._begin(width, depth, eps, delta, check_word("seed", seed), np.zeros(width * depth, np.int64))

    def _begin(self, width: int, depth: int, eps: float, delta: float, seed: int, table: Table) -> Self:
        self.width, self.depth, self.eps, self.delta, self.seed = width, depth, eps, delta, seed
        self._table = table
        self._words = self._polynomials()
        self._total = self._weight = 0
        return self

    @classmethod
    def _of(cls, width: int, depth: int, eps: float, delta: float, seed: int, table: Table, total: int, weight: int) -> Self:
        """A sketch with this table, of counts that add up to ``total``, and to ``weight`` without their signs."""
        sketch = object.__new__(cls)._begin(width, depth, eps, delta, seed, table)
        sketch._total, sketch._weight = total, weight
        return sketch

    def _like(self, table: Table, total: int, weight: int) -> Self:
        return self._of(self.width, self.depth, self.eps, self.delta, self.seed, table, total, weight)

    @abstractmethod
    def _polynomials(self) -> Hashes:
        """The coefficients of the hash functions."""

    @abstractmethod
    def _add(self, hashes: Hashes, cells: Cells, counts: Counts) -> None:
        """Add a block of hashed keys; there is room for their cells."""

    @abstractmethod
    def _products(self, other: Self) -> NDArray[np.float64]:
        """The inner product as each row estimates it."""

    # -- what it is made of --------------------------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        """The numbers: ``depth`` rows of ``width``."""
        return self._table.reshape(self.depth, self.width)

    def total(self) -> int:
        """The sum of all counts; negative counts are subtracted."""
        return self._total

    @property
    def weight(self) -> int:
        """The sum of the absolute values of all counts, at most 2**62: no cell can hold more."""
        return self._weight

    @property
    def nbytes(self) -> int:
        """The bytes that the table and the hash functions take in memory."""
        return self._table.nbytes + self._words.nbytes

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(eps={self.eps}, delta={self.delta}, width={self.width}, depth={self.depth}, "
            f"total={self.total():_}, nbytes={self.nbytes:_})"
        )

    # -- write ---------------------------------------------------------------------------------------------------------

    def update(self, keys: Any, *, counts: Any = None) -> None:
        """Add a column of keys, ``counts`` times each; negative counts are subtracted.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        counts
            How often to count each row, an integer that may be negative; once by default.
        """
        column = key_column(keys)
        if len(column) == 0:
            raise InputError("an empty column", remedy="skip the call")
        self._take(column, signed_counts(counts, len(column)))

    def _take(self, keys: Keys, counts: Ints | None) -> None:
        weight = len(keys) if counts is None else int(np.abs(counts).sum())
        if self._weight + weight > MAX_COUNT:
            raise InputError(
                f"{self._weight + weight:,} added and subtracted in total, more than 2**62", remedy="scale the counts down"
            )
        for start in range(0, len(keys), BLOCK):
            hashes, cells = scratch(min(BLOCK, len(keys) - start))
            hashes.fill(SEED)
            keys.hash_into(start, hashes)
            self._add(hashes, cells, NO_COUNTS if counts is None else counts[start : start + BLOCK])
        self._total += len(keys) if counts is None else int(counts.sum())
        self._weight += weight

    # -- read ----------------------------------------------------------------------------------------------------------

    def self_join(self) -> Estimate:
        """The second moment: the sum of the squares of all frequencies, within eps of it."""
        value = float(np.median(self._products(self)))
        return Estimate(value, value / (1 + self.eps), value / (1 - self.eps), 1 - self.delta)

    def inner_product(self, other: Self) -> Estimate:
        """The sum over all keys of the product of their frequencies in two streams, within eps·|a||b| of it.

        |a| and |b| are the roots of the second moments. The bounds estimate these too, and all three estimates are right
        with probability 1 - 3·delta (the union bound), which is their confidence; that of the value is 1 - delta.

        Parameters
        ----------
        other
            The sketch of the other stream, built with the same options.
        """
        self._must_agree(other)
        norms = math.sqrt(self.self_join().high * other.self_join().high)
        return self._within(other, norms, 1 - 3 * self.delta)

    def range_sum(self, keys: Any, *, weights: Any = None) -> Estimate:
        """The sum of the frequencies of these keys, times whole ``weights``; within eps·|a||b| of it, b being the weights.

        |b| is known and only |a| estimated, so the bounds hold with probability 1 - 2·delta. To ask for the same keys
        repeatedly, keep a sketch of them and take the ``inner_product``.

        Parameters
        ----------
        keys
            The keys: a column, or a ``range``, which may be long as it is never expanded.
        weights
            An integer for each key; 1 by default.

        >>> sketch = FastAmsSketch(eps=0.1, delta=0.01)
        >>> sketch.update([3, 40, 500], counts=[7, 2, 1])
        >>> sketch.range_sum(range(0, 100)).value, sketch.range_sum([3, 500], weights=[1, -1]).value
        (9.0, 6.0)
        """
        vector, square = self._vector(keys, weights)
        return self._within(vector, math.sqrt(self.self_join().high * square), 1 - 2 * self.delta)

    def _within(self, other: Self, norms: float, confidence: float) -> Estimate:
        value, off = float(np.median(self._products(other))), self.eps * norms
        return Estimate(value, value - off, value + off, max(confidence, 0.0))

    def _vector(self, keys: Any, weights: Any) -> tuple[Self, float]:
        """The sketch of a vector that is given key by key, and the square of its norm."""
        vector = self._like(np.zeros_like(self._table), 0, 0)
        if isinstance(keys, range) and weights is None and len(keys):
            key_column([keys[0], keys[-1]])  # refuses what does not fit in 64 bits
            for start in range(0, len(keys), _RANGE):
                vector._take(IntegerKeys(_written_out(keys[start : start + _RANGE])), None)
            return vector, float(len(keys))
        column = key_column(keys)
        if len(column) == 0:
            raise InputError("a sum over no keys", remedy="give at least one")
        counts = signed_counts(weights, len(column), "weights")
        hashes, sums, _ = tally(all_hashes(column), np.ones(len(column), np.int64) if counts is None else counts)
        vector._take(HashedKeys(hashes), sums)
        return vector, float((sums.astype(np.float64) ** 2).sum())

    # -- linear --------------------------------------------------------------------------------------------------------

    def _must_agree(self, other: Any) -> None:
        if type(other) is not type(self):
            names = f"{type(self).__name__} and {type(other).__name__}"
            raise MergeError(f"{names} cannot be combined", remedy="give two of one class")
        for name in ("eps", "delta", "width", "depth", "seed"):
            left, right = getattr(self, name), getattr(other, name)
            if left != right:
                raise MergeError(f"two sketches differ in {name}: {left} and {right}", remedy="build them alike")

    def _merge(self, others: Sequence[Self], sign: int = 1) -> Self:
        for other in others:
            self._must_agree(other)
        weight = self._weight + sum(other._weight for other in others)
        if weight > MAX_COUNT:
            raise MergeError(f"{weight:,} added and subtracted in total, more than 2**62", remedy="scale the counts down")
        table, total = self._table.copy(), self._total
        for other in others:
            table += sign * other._table
            total += sign * other._total
        return self._like(table, total, weight)

    def __or__(self, other: Self) -> Self:
        return self._merge([other])

    def __sub__(self, other: Self) -> Self:
        """The difference of two streams, key by key."""
        return self._merge([other], -1)

    def copy(self) -> Self:
        """An independent copy."""
        return self._merge([])

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The state as bytes; ``lt.from_bytes`` reads it back."""
        return codec.to_bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return codec.from_trusted_bytes, (self.to_bytes(),)

    def _write(self, out: Writer) -> None:
        out.u64(self.width)
        out.u8(self.depth)
        out.f64(self.eps)
        out.f64(self.delta)
        out.u64(self.seed)
        out.i64(self._total)
        out.u64(self._weight)
        out.integers(self._table)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        width, depth = source.within(source.u64(), 1, MOST_CELLS), source.choice(*range(1, 64, 2))
        eps, delta, seed = source.fraction(), source.fraction(), source.u64()
        total, weight = source.i64(), source.within(source.u64(), 0, MAX_COUNT)
        source.check(abs(total) <= weight, "a total of more than was counted")
        source.fits(8 * width * depth)
        table = source.integers(-weight, weight)
        source.check(table.size == width * depth, "cells are missing")
        sketch = cls._of(width, depth, eps, delta, seed, table, total, weight)
        source.check(sketch._is_possible(), "more in a row than was counted")
        return sketch

    def _is_possible(self) -> bool:
        """Whether the cells of a row can come from what was counted."""
        return True


@storable(13)
class AmsSketch(LinearSketch):
    """Second moments and inner products to within ``eps``, with probability 1 - ``delta``; counts may be negative.

    The sketch of the original paper: every count goes into all O(1/eps² · ln 1/delta) cells. A ``FastAmsSketch`` has the same
    guarantee and the same number of cells, and updates only one in each row: prefer it, except to compare with the paper.

    Parameters
    ----------
    eps
        The error, as a share of the second moment, or of the product of the norms of both streams.
    delta
        The probability that an answer is off by more.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = AmsSketch(eps=0.2, delta=0.1)
    >>> sketch.update(["a", "b", "a", "b"], counts=[1, 5, 2, -5])
    >>> sketch.self_join().value, sketch.total()
    (9.0, 3)
    """

    def _polynomials(self) -> Hashes:
        return polynomials(self.seed, self.depth * -(-self.width // SIGNS))

    def _add(self, hashes: Hashes, cells: Cells, counts: Counts) -> None:
        _add_to_all(hashes, counts, self.table, self._words)

    def _products(self, other: Self) -> NDArray[np.float64]:
        return np.asarray((self.table.astype(np.float64) * other.table).mean(axis=1))


@storable(14)
class FastAmsSketch(LinearSketch):
    """Second moments and inner products to within ``eps``, with probability 1 - ``delta``; counts may be negative.

    O(1/eps² · ln 1/delta) cells of eight bytes; a count updates O(ln 1/delta) of them. Sketches are added (``|``) and
    subtracted (``-``) without any loss, because they are linear. No window: see ``WindowedAmsSketch``.

    Parameters
    ----------
    eps
        The error, as a share of the second moment, or of the product of the norms of both streams.
    delta
        The probability that an answer is off by more.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> left, right = FastAmsSketch(eps=0.1, delta=0.01), FastAmsSketch(eps=0.1, delta=0.01)
    >>> left.update(["a", "b"], counts=[3, 4])
    >>> right.update(["b", "c"], counts=[10, 1])
    >>> left.self_join().value, left.inner_product(right).value, (left - left).self_join()
    (25.0, 40.0, Estimate(0, 0..0, 99%))
    """

    def _polynomials(self) -> Hashes:
        return polynomials(self.seed, self.depth)

    def _add(self, hashes: Hashes, cells: Cells, counts: Counts) -> None:
        for row in range(self.depth):
            signed_cells(hashes, row, self._words, np.uint64(self.width), cells)
            _add_signed(cells, counts, self._table)

    def _products(self, other: Self) -> NDArray[np.float64]:
        return np.asarray((self.table.astype(np.float64) * other.table).sum(axis=1))

    def _is_possible(self) -> bool:
        return float(np.abs(self.table.astype(np.float64)).sum(axis=1).max()) <= 1.000001 * self._weight
