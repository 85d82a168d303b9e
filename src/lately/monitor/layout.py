"""How a monitored stream is laid out as rows of numbers, equal at all sites and the coordinator."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lately.core.durations import Window
from lately.core.keys import Hashes
from lately.counters.base import Cells, Counts
from lately.sketches.fourwise import polynomials, signed_cells
from lately.sketches.hashing import cells_of, coefficients


@dataclass(frozen=True)
class Layout:
    """Rows of numbers. A key is added to one number in each row, with a random sign if they are signed.

    With a window the numbers count only the events within it, by waves; a signed number has two waves, one for each sign.

    Parameters
    ----------
    rows, width
        The number of rows, and of numbers in each row.
    seed
        The seed of the hash functions.
    signed
        Whether numbers have random signs.
    window
        The window; None for the whole stream.
    eps
        The relative error of the waves; 0 without a window.
    """

    rows: int
    width: int
    seed: int
    signed: bool
    window: Window | None = None
    eps: float = 0.0

    @property
    def size(self) -> int:
        """The number of numbers."""
        return self.rows * self.width

    @property
    def lines(self) -> tuple[int, int]:
        """The shape of drift norms: what rose and what fell in each row, or both in one line if numbers have signs."""
        return (1 if self.signed else 2), self.rows

    @property
    def counters(self) -> int:
        """The number of waves that a window takes."""
        return 2 * self.size if self.signed else self.size

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        return polynomials(self.seed, self.rows) if self.signed else coefficients(self.seed, self.rows)

    def cells(self, hashes: Hashes) -> Cells:
        """The counter of each key in each row; if numbers are signed, twice the number's index, plus 1 for a minus."""
        if not self.signed:
            return cells_of(hashes, self._words, self.width)
        cells = np.empty((self.rows, hashes.size), np.uint32)
        for row in range(self.rows):
            signed_cells(hashes, row, self._words, np.uint64(self.width), cells[row])
        return cells

    def sketch(self, hashes: Hashes, counts: Counts) -> Counts:
        """The numbers of a stream with these keys only."""
        numbers = np.zeros(self.size, np.int64)
        for row in self.cells(hashes):
            if self.signed:
                np.add.at(numbers, row >> 1, np.where(row & 1, -counts, counts))
            else:
                np.add.at(numbers, row, counts)
        return numbers
