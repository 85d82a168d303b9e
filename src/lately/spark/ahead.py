"""Finds rows of a site that are ahead: their clock was fast, and if they counted, all later rows of the site would be late.

    rows of a site in a batch, by time:   |||||||||||||||||||||||        gap        ||
                                          counted                                   rejected

A row cannot be compared with the time of day, since a stream may be read again later, nor with other sites, which may be at any
point of their own streams. It is compared with the other rows of its site. The last rows of a batch are rejected if

- they follow a gap longer than ``ahead``,
- the gap is unusual for the site: more than four times as long as any other gap in this batch or in earlier ones (whose gaps
  shrink by a tenth per batch),
- and they are few: at most a tenth of the site's rows in the batch; of fewer than twenty rows at most two, and fewer than half.

A pause is also a gap. If a site resumes after a pause and all or most rows of a batch follow the gap, they count; a few rows in
the same batch as the rows before the pause are rejected. A site whose rows are always far apart has no unusual gaps.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lately.core.columns import Ints

#: The end of the reason of rows that are ahead of the time of day, which ``window.future`` limits.
IN_THE_FUTURE = " in the future"
#: The reason of rows that are ahead of the other rows of their site.
AHEAD = "time is ahead of the other rows of its site"
#: A gap is unusual if it is more than this number of times as long as all others.
_UNUSUAL_FACTOR = 4
#: At most one in this number of rows is rejected.
_ROWS_PER_REJECTED = 10
#: How many rows of one site are held back at most, until more rows arrive or the batch ends.
_MAX_HELD_BACK = 2**20
#: The longest gap of a site is multiplied by this after every batch.
FADING = 0.9


def most_ahead(rows: int) -> int:
    """Return how many of a site's rows in a batch may be rejected.

    Parameters
    ----------
    rows
        How many rows the site has in the batch.

    >>> [most_ahead(rows) for rows in (0, 1, 2, 3, 5, 20, 30, 1_000)]
    [0, 0, 0, 1, 2, 2, 3, 100]
    """
    return min(max(rows // _ROWS_PER_REJECTED, min(max(rows - 1, 0) // 2, 2)), _MAX_HELD_BACK)


def first_ahead(gaps: Ints, ahead: int, usual: float, most: int) -> int:
    """Return the index of the first row that is ahead; the number of rows if none is.

    Parameters
    ----------
    gaps
        The ticks between each row and the previous one, in time order.
    ahead
        Rows after a gap of up to this number of ticks are never ahead.
    usual
        The longest gap of the site in earlier batches, in ticks.
    most
        How many rows may be rejected.

    >>> first_ahead(np.array([0, 1, 1, 1, 1, 85]), 60, 0, most=2), first_ahead(np.array([0, 30, 30, 30, 90]), 60, 0, most=2)
    (5, 5)
    """
    start = max(gaps.size - most, 0)
    if not (gaps[start:] > ahead).any():
        return gaps.size
    longest_before = np.maximum(np.maximum.accumulate(np.concatenate(([0], gaps[:-1]))), usual)
    unusual = np.flatnonzero((gaps[start:] > ahead) & (gaps[start:] > _UNUSUAL_FACTOR * longest_before[start:]))
    return int(start + unusual[0]) if unusual.size else gaps.size


@dataclass
class SiteClock:
    """Decides which rows of one site in a batch count; rows are passed to it in blocks, in time order.

    Parameters
    ----------
    ahead
        Rows after a gap of up to this number of ticks are never ahead; None if no row ever is.
    before
        The newest tick of the site before the batch; None for a new site.
    usual
        The longest gap of the site in earlier batches, in ticks.
    newest
        The newest tick of the rows that count.
    longest
        The longest gap between rows that count, in ticks.
    """

    ahead: int | None
    before: int | None
    usual: float
    newest: int | None = None
    longest: int = 0
    _total: int = 0
    _held_back: list[tuple[Any, Ints, Ints]] = field(default_factory=list)

    def admit(self, columns: Any, rows: Ints) -> list[tuple[Any, Ints]]:
        """Return the rows that count by now: those of this block, and of earlier blocks whose rows were held back.

        Parameters
        ----------
        columns
            The block, which has ``ticks`` and ``times``; ``part(rows)`` copies some of its rows into a block of their own.
        rows
            The rows of the site in it, in time order and not older than those of earlier blocks.
        """
        ticks = columns.ticks[rows]
        self._total += rows.size
        if self.ahead is None or (not self._held_back and self._is_steady(ticks)):
            self.newest = int(ticks[-1])
            return [(columns, rows)]
        blocks, self._held_back = [*self._held_back, (columns, rows, ticks)], []
        ticks = np.concatenate([block_ticks for _, _, block_ticks in blocks])
        gaps = np.diff(ticks, prepend=min(self._previous(ticks), int(ticks[0])))
        first = first_ahead(gaps, self.ahead, max(self.usual, self.longest), most_ahead(self._total))
        if first:
            self.longest, self.newest = max(self.longest, int(gaps[:first].max())), int(ticks[first - 1])
        return self._split(blocks, first)

    def _previous(self, ticks: Ints) -> int:
        """Return the newest tick before these; the first of these for a new site."""
        previous = self.before if self.newest is None else self.newest
        return int(ticks[0]) if previous is None else previous

    def _is_steady(self, ticks: Ints) -> bool:
        """Return whether every gap is too short to be unusual, or to make a gap that is longer than ``ahead`` usual."""
        assert self.ahead is not None
        return int(ticks[-1]) - min(self._previous(ticks), int(ticks[0])) <= self.ahead // _UNUSUAL_FACTOR

    def _split(self, blocks: list[tuple[Any, Ints, Ints]], first: int) -> list[tuple[Any, Ints]]:
        """Hold back the rows from this index on, and return the others."""
        admitted = []
        for columns, rows, ticks in blocks:
            if first > 0:
                admitted.append((columns, rows[:first]))
            if first < rows.size:
                rest = columns.part(rows[max(first, 0) :])
                self._held_back.append((rest, np.arange(rows.size - max(first, 0)), ticks[max(first, 0) :]))
            first -= rows.size
        return admitted

    @property
    def held_back(self) -> int:
        """How many rows are held back; they are rejected if the batch ends now."""
        return sum(rows.size for _, rows, _ in self._held_back)

    @property
    def held_back_from(self) -> int | None:
        """The time of the first row that is held back, in the unit of the source; None if there is no such row."""
        return None if not self._held_back else int(self._held_back[0][0].times.view(np.int64)[self._held_back[0][1][0]])

    @property
    def gap(self) -> float:
        """The longest gap of the site after this batch, in ticks; gaps of earlier batches have shrunk."""
        return max(float(self.longest), FADING * self.usual)
