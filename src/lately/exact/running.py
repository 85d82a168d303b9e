"""R-INT: running sums, so that any window's sum is the difference of two (SHARE, section 3.2).

The cost of an update and of a lookup does not depend on the windows. The sums are exact (``fixed_point.py``) for a stream of
any length and values of any magnitude.
"""

import numpy as np

from lately.core.columns import Ints
from lately.exact.column import Column, Floats, Index
from lately.exact.fixed_point import (
    SMALLEST,
    Pairs,
    Words,
    differences,
    exact_differences,
    run,
    run_pairs,
    run_squares,
    run_squares_of_pairs,
    spread,
    spread_of_pairs,
)
from lately.exact.wide import Numbers, is_wide

_APART = 64
_PATIENCE = 4  # after this many times the ring's size in arrivals, check whether fewer words are enough


class Running(Index):
    """Running sums of a column, and of its squares if ``squares``: 16 bytes a position, more if magnitudes differ a lot."""

    def __init__(self, *, squares: bool = False) -> None:
        self.words: Words = np.zeros((1, 2), np.uint64)
        self.squares: Words | None = np.zeros((1, 2), np.uint64) if squares else None
        self.unit = 0  # sums are integer multiples of 2**unit, sums of squares of 2**(2 * unit)
        self._high = self._taken = 0
        self._crowded = False  # whether a value needed digits outside the words

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + (0 if self.squares is None else self.squares.nbytes)

    def rebuild(self, column: Column) -> None:
        size = column.values.size
        low, high = digits(column.slice(column.first, column.end))
        if low > high:  # nothing but zeros
            low = high = 0
        power = 1 if self.squares is None else 2
        carries = size.bit_length() + 2  # digits for the carries of a full ring, and a sign
        widest = _words(power * (high - low) + carries)
        # Spare digits go above, where sums of one word are read fastest; after a value that needed lower digits, half below.
        spare = (64 * widest - carries) // power - (high - low)
        self.unit = max(low - spare // 2 * self._crowded, SMALLEST)
        self._high = self.unit + (64 * widest - carries) // power
        self._taken = 0
        self.words = np.zeros((size, _words(self._high - self.unit + carries)), np.uint64)
        if self.squares is not None:
            self.squares = np.zeros((size, widest), np.uint64)
        self._run(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        count = column.end - start
        self._taken += count
        values = column.values
        head = values[start & (values.size - 1) :][:count]
        crowded = self.words.shape[1] > 2 and self._taken > _PATIENCE * values.size
        for low, high in (digits(head), digits(values[: count - head.size])):
            crowded |= low <= high and (low < self.unit or high > self._high)
        if crowded:
            self._crowded = True
            self.rebuild(column)
        else:
            self._run(column, start)

    def lookup(self, lefts: Ints, rights: Ints) -> Floats:
        """The sums over the positions from ``lefts[i]`` up to, without, ``rights[i]``: exact, rounded once."""
        sums = np.empty(lefts.size)
        differences(self.words, lefts, rights, self.unit, sums)
        return sums

    def averages(self, lefts: Ints, rights: Ints, counts: Ints) -> Floats:
        """The sums divided by the counts, also where a sum is beyond the range of floats."""
        averages = self.lookup(lefts, rights) / np.maximum(counts, 1)
        if np.isinf(averages).any():
            sums = np.empty(lefts.size)
            differences(self.words, lefts, rights, self.unit - _APART, sums)
            averages = np.where(np.isinf(averages), np.ldexp(sums / np.maximum(counts, 1), _APART), averages)
        return averages

    def exact(self, left: int, right: int) -> tuple[int, int]:
        """One sum as an integer multiple of 2**unit, and that of the squares (or 0) as one of 2**(2 * unit)."""
        ends = np.array([left]), np.array([right])
        squares = 0 if self.squares is None else exact_differences(self.squares, *ends)[0]
        return exact_differences(self.words, *ends)[0], squares

    def integers(self, lefts: Ints, rights: Ints) -> list[int]:
        """The sums of a column of integers, as Python integers."""
        return [
            units << self.unit if self.unit >= 0 else units >> -self.unit
            for units in exact_differences(self.words, lefts, rights)
        ]

    def _run(self, column: Column, start: int) -> None:
        if is_wide(column.values):
            run_pairs(_parts(column.values), start, column.end, self.unit, self.words)
            if self.squares is not None:
                run_squares_of_pairs(_parts(column.values), start, column.end, self.unit, self.squares)
            return
        bits = column.values.view(np.uint64)
        run(bits, start, column.end, self.unit, self.words)
        if self.squares is not None:
            run_squares(bits, start, column.end, self.unit, self.squares)


def digits(values: Numbers) -> tuple[int, int]:
    """The lowest and, one above it, the highest binary digit among these numbers."""
    return spread_of_pairs(_parts(values)) if is_wide(values) else spread(values.view(np.uint64))


def _parts(values: Numbers) -> Pairs:
    return values.view(np.uint64), values.view(np.float64)


def _words(size: int) -> int:
    return max(2, -(-size // 64))
