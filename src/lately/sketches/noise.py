"""What other keys add to a key's cell, learnt from the other cells (Ting, KDD 2018), and the best estimate that follows.

    a key's cell  = its count + noise        noise: the arrivals of the keys that share the cell, and the remainder that a
    any cell      =             noise                shared wave leaves, which is evenly spread and independent of both

Hash functions give a key a random cell, so the noise of its cell is a draw like any other cell of the row. The cells of a row
are therefore a sample of the noise, whatever the stream: no assumption about its shape, and no room for one that is wrong.
A cell of the sample may hold the key itself, which only makes the noise look larger.

**The lower bound.** Let q be the r-th largest cell of a row of w cells. The noise of a key's cell is above q with probability
at most r/w, and in all d rows with (r/w)^d. Otherwise the count is at least the smallest of its cells less q. By Markov's
inequality at most w/x cells hold x times the average, so q is never more than Count-Min's own bound.

**The value.** It is the median of what the count may be, given the smallest of its cells, if all orders of magnitude of a
count are equally likely beforehand (Jeffreys' prior of a scale, 1/count). That minimises the expected absolute error: a cell
that is no larger than noise often is says that the key is rare, and one far above says that it is frequent, less the median
of the noise.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import kernel
from lately.counters.base import MAX_COUNT, Counts

#: Sizes are told apart to one part in 16, up to 32 times the largest noise: beyond, all noise is equally likely to be there.
_STEPS, _FAR = 16, 32


@kernel
def _subtract_noise(smallest: Any, sizes: Any, chances: Any, medians: Any, values: Any) -> None:
    """Subtract from each number the median noise that its size implies; ``medians`` is -1 where it is not known yet."""
    for i in range(smallest.size):
        number = smallest[i]
        step = np.searchsorted(sizes, number, side="right") - 1
        if step < 0:
            values[i] = 0
            continue
        if medians[step] < 0:
            weight, below, median = 0.0, 0.0, sizes[step]
            for k in range(step + 1):
                weight += chances[k] / (sizes[step] - sizes[k] + 1)
            for k in range(step + 1):
                below += chances[k] / (sizes[step] - sizes[k] + 1)
                if weight > 0 and below >= weight / 2:
                    median = sizes[k]
                    break
            medians[step] = median  # once it is final: other threads may read it
        values[i] = max(number - medians[step], 0)


class CollisionNoise:
    """The noise of the cells of one range, row by row.

    Parameters
    ----------
    cells
        Every cell's count plus its remainder, as one row of numbers for each row of the sketch.
    most
        The same where merging may have moved counts: the most that each can be.

    >>> cells = np.array([[0, 0, 7, 1], [1, 0, 9, 0]])
    >>> noise = CollisionNoise(cells, cells)
    >>> noise.margin(1 / 4), noise.estimates(np.array([0, 1, 9])).tolist()
    (1, [0, 1, 9])
    """

    def __init__(self, cells: Counts, most: Counts) -> None:
        self._sorted = np.sort(cells, axis=1)
        self._most = self._sorted if most is cells else np.sort(most, axis=1)
        self._table: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None

    def margin(self, chance: float) -> int | None:
        """How much noise all rows of a key have at once with a probability of at most ``chance``; None if too few cells tell.

        Parameters
        ----------
        chance
            The probability, between 0 and 1.
        """
        depth, width = self._most.shape
        rank = math.floor(width * chance ** (1 / depth))
        return int(self._most[:, -rank].max()) if rank >= 1 else None

    def estimates(self, smallest: Counts) -> Counts:
        """The best estimates of counts.

        Parameters
        ----------
        smallest
            For each key the smallest of its cells, remainders included.
        """
        if self._table is None:
            self._table = self._chances()
        values = np.empty(smallest.size, np.int64)
        _subtract_noise(smallest, *self._table, values)
        return values

    def _chances(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Sizes of noise, how likely the smallest of a key's cells has each, and room for medians."""
        width, largest = self._sorted.shape[1], int(self._sorted[:, -1].max())
        octaves = max(0.0, math.log2(_FAR * max(largest, 1) / (2 * _STEPS)))
        coarse = np.floor(2 * _STEPS * 2 ** (np.arange(1, math.ceil(octaves * _STEPS) + 2) / _STEPS))
        coarse = coarse[coarse <= MAX_COUNT].astype(np.int64)
        sizes = np.concatenate([np.arange(2 * _STEPS + 1), coarse[coarse > 2 * _STEPS]])
        above = np.ones(sizes.size)  # the probability of at least this much in all rows
        for row in self._sorted:
            above *= 1 - np.searchsorted(row, sizes, "left") / width
        chances = above - np.append(above[1:], 0.0)
        middles = (sizes + np.append(sizes[1:] - 1, sizes[-1])) // 2
        return middles, chances, np.full(sizes.size, -1, np.int64)
