"""How a monitored stream is laid out as rows of numbers: alike at every site and at the coordinator."""

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
    """Rows of ``width`` numbers. A key adds to one number in each row, with a random sign where they are ``signed``.

    With a ``window`` the numbers are counts of the last so long, by waves of relative error ``eps``; a signed number has
    two waves, one for each sign.
    """

    rows: int
    width: int
    seed: int
    signed: bool
    window: Window | None = None
    eps: float = 0.0

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.rows * self.width

    @property
    def lines(self) -> tuple[int, int]:
        """The shape of a drift: what rose and what fell in each row, or both in one where numbers have signs."""
        return (1 if self.signed else 2), self.rows

    @property
    def counters(self) -> int:
        """How many waves a window takes."""
        return 2 * self.size if self.signed else self.size

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        return polynomials(self.seed, self.rows) if self.signed else coefficients(self.seed, self.rows)

    def cells(self, hashes: Hashes) -> Cells:
        """For each row and key its counter; where numbers are signed, twice the number, and one more for a minus."""
        if not self.signed:
            return cells_of(hashes, self._words, self.width)
        cells = np.empty((self.rows, hashes.size), np.uint32)
        for row in range(self.rows):
            signed_cells(hashes, row, self._words, np.uint64(self.width), cells[row])
        return cells

    def sketch(self, hashes: Hashes, counts: Counts) -> Counts:
        """The numbers that these keys make by themselves."""
        numbers = np.zeros(self.size, np.int64)
        for row in self.cells(hashes):
            if self.signed:
                np.add.at(numbers, row >> 1, np.where(row & 1, -counts, counts))
            else:
                np.add.at(numbers, row, counts)
        return numbers
