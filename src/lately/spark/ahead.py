"""Which rows of a site are ahead: stamped by a clock that runs fast, so that all that follows them would come late.

    rows of a site in a batch, by time:   |||||||||||||||||||||||        gap        ||
                                          the bulk                                  refused

A row cannot be judged by the time of day where a stream is read again later, nor by the other sites, which may be anywhere in
a stream of their own. So it is judged by its site's other rows. Rows at the end of a batch are refused if

- they follow a gap longer than ``ahead``,
- which is unusual for the site: more than four times as long as any other gap in this batch or, fading, in earlier ones,
- and they are few: at most a tenth of the site's rows in the batch; of less than twenty rows up to two, if most are not.

A pause is a gap as well. When a site goes on after one, a whole batch follows the gap, or most of it, and counts; a few rows
that share their batch with the rows before the pause are refused. A site whose rows come far apart has no unusual gaps.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lately.core.columns import Ints

#: How reasons end for which rows are rejected that are ahead of the time of day.
IN_THE_FUTURE = " in the future"
#: The reason of rows that only a comparison with the others of their site shows to be ahead.
AHEAD = "time is ahead of the other rows of its site"
#: A gap is unusual if it is this many times as long as the others.
_UNUSUAL = 4
#: At most one row in so many is refused.
_SHARE = 10
#: Rows that one site has held back until more of them come, or the batch ends.
_HELD = 2**20
#: What remains of the longest gap from one batch to the next.
FADING = 0.9


def most_ahead(rows: int) -> int:
    """How many of a site's rows in a batch may be refused.

    Args:
        rows: how many the site has in the batch.

    >>> [most_ahead(rows) for rows in (0, 1, 2, 3, 5, 20, 30, 1_000)]
    [0, 0, 0, 1, 2, 2, 3, 100]
    """
    return min(max(rows // _SHARE, min(max(rows - 1, 0) // 2, 2)), _HELD)


def first_ahead(gaps: Ints, ahead: int, usual: float, most: int) -> int:
    """The place of the first row that is ahead; the number of rows if none is.

    Args:
        gaps: the ticks from each row to the one before it, in time order.
        ahead: gaps up to this length are never refused.
        usual: the longest gap that the site is known for.
        most: how many rows may be refused.

    >>> first_ahead(np.array([0, 1, 1, 1, 1, 85]), 60, 0, most=2), first_ahead(np.array([0, 30, 30, 30, 90]), 60, 0, most=2)
    (5, 5)
    """
    last = max(gaps.size - most, 0)
    if not (gaps[last:] > ahead).any():
        return gaps.size
    others = np.maximum(np.maximum.accumulate(np.concatenate(([0], gaps[:-1]))), usual)
    found = np.flatnonzero((gaps[last:] > ahead) & (gaps[last:] > _UNUSUAL * others[last:]))
    return int(last + found[0]) if found.size else gaps.size


@dataclass
class SiteClock:
    """The newest tick of one site, while the rows of a batch are taken, a block after the other, in time order."""

    ahead: int | None
    before: int | None
    usual: float
    #: The newest tick of the rows that count.
    newest: int | None = None
    longest: int = 0
    _total: int = 0
    _held: list[tuple[Any, Ints, Ints]] = field(default_factory=list)

    def admit(self, columns: Any, rows: Ints) -> list[tuple[Any, Ints]]:
        """The rows that can be counted now: of this block, and of earlier ones whose rows were held back.

        Args:
            columns: the block, which has ``ticks``; ``part(rows)`` gives some of its rows as a block of their own.
            rows: those of the site, in time order and no older than those before.
        """
        ticks = columns.ticks[rows]
        self._total += rows.size
        if self.ahead is None or (not self._held and self._is_steady(ticks)):
            self.newest = int(ticks[-1])
            return [(columns, rows)]
        waiting, self._held = [*self._held, (columns, rows, ticks)], []
        ticks = np.concatenate([one[2] for one in waiting])
        gaps = np.diff(ticks, prepend=min(self._before(ticks), int(ticks[0])))
        first = first_ahead(gaps, self.ahead, max(self.usual, self.longest), most_ahead(self._total))
        if first:
            self.longest, self.newest = max(self.longest, int(gaps[:first].max())), int(ticks[first - 1])
        return self._cut(waiting, first)

    def _before(self, ticks: Ints) -> int:
        known = self.before if self.newest is None else self.newest
        return int(ticks[0]) if known is None else known

    def _is_steady(self, ticks: Ints) -> bool:
        """Whether no gap can be long enough to be refused, or to be remembered as one that is usual."""
        assert self.ahead is not None
        return int(ticks[-1]) - min(self._before(ticks), int(ticks[0])) <= self.ahead // _UNUSUAL

    def _cut(self, waiting: list[tuple[Any, Ints, Ints]], first: int) -> list[tuple[Any, Ints]]:
        """Hold back what comes from this place on."""
        admitted = []
        for columns, rows, ticks in waiting:
            if first > 0:
                admitted.append((columns, rows[:first]))
            if first < rows.size:
                kept = columns.part(rows[max(first, 0) :])
                self._held.append((kept, np.arange(rows.size - max(first, 0)), ticks[max(first, 0) :]))
            first -= rows.size
        return admitted

    @property
    def refused(self) -> int:
        """How many rows are held back, which are ahead once the batch has ended."""
        return sum(rows.size for _, rows, _ in self._held)

    @property
    def refused_from(self) -> int | None:
        """The time of the first of them, in the units of the source."""
        return None if not self._held else int(self._held[0][0].times.view(np.int64)[self._held[0][1][0]])

    @property
    def gap(self) -> float:
        """The longest gap that the site is known for after this batch."""
        return max(float(self.longest), FADING * self.usual)
