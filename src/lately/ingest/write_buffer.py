"""Arrivals that come one at a time wait here, in front of the counter or sketch that counts them together.

    update("k", t) ──> plain? late? ──> row ──┐
                                              ├──> counted when there are many, or a question comes
    update("k", t) ──> plain? late? ──> row ──┘

A state does not depend on how a stream was cut into batches, so a batch of such rows leaves what counting each of them would
have left. Each row is read and checked when it comes, so an error is that of the call, and counting the batch can fail for no
reason that lies in the data.

While arrivals wait, the instance in front has only its write buffer and its shape, and the buffer has an instance *behind* it
with the whole state. Whatever reads or changes state asks the instance in front for an attribute that it does not have. This
counts the rows and brings the state back (``Windowed.__getattr__``), so that no code can forget to.
"""

from itertools import groupby
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from lately.core.columns import Ints
from lately.core.keys import Keys
from lately.core.plain_values import plain_count, plain_ticks
from lately.counters.base import MAX_COUNT, Counts

if TYPE_CHECKING:
    from lately.ingest.windowed import Windowed

#: How many rows may wait: as many as take about as much memory as the state when it was last looked at, within these bounds.
_FEWEST_ROWS, _MOST_ROWS, _ROW_BYTES = 16, 4096, 256

#: A key, a tick, and a count or None.
Row = tuple[Any, int, int | None]


class WriteBuffer:
    """The rows that wait in front of an instance, whose state is not changed before they are counted.

    Parameters
    ----------
    behind
        The instance that counts the rows. No other code may have a reference to it.
    """

    __slots__ = ("_arrived", "_key_kinds", "_late", "_lateness", "_now", "_room", "_rows", "_tick_of", "behind", "lock")

    def __init__(self, behind: "Windowed[Any]") -> None:
        self.behind = behind
        self.lock = RLock()  # several threads may read at once, and one of them counts the rows
        self._tick_of = None if behind.window.kind == "arrivals" else plain_ticks(behind.window)
        self._lateness = behind._lateness
        self._now, self._arrived = behind._now, behind._arrived
        self._rows: list[Row] = []
        self._room = _FEWEST_ROWS
        self._late, self._key_kinds = 0, set[type]()  # how many were late, and the types of keys, late ones included

    def add(self, key: Any, time: Any, count: Any) -> bool:
        """Take one arrival, unless its time or count must be read, or refused, as a column: then nothing has changed.

        Parameters
        ----------
        key
            The key, as the instance reads it back in ``_column_of``.
        time
            Its time; None in a window of arrivals.
        count
            How often to count it; None for once.
        """
        weight = plain_count(count)
        now = self._now
        if self._tick_of is not None:
            tick = self._tick_of(time)
        else:
            tick = (now or 0) + 1 if time is None else None
        if tick is None or weight is None or self._arrived + weight > MAX_COUNT:
            return False
        if now is not None and tick < now - self._lateness:
            self._late += weight
            self._key_kinds.add(type(key))
            return True
        if len(self._rows) >= self._room:  # before the row is taken: if this fails, the caller may try again
            self.count_rows()
            self._room = min(max(self.behind.nbytes // _ROW_BYTES, _FEWEST_ROWS), _MOST_ROWS)
        self._rows.append((key, tick, None if count is None else weight))
        if now is None or tick > now:
            self._now = tick
        self._arrived += weight
        return True

    def count_rows(self) -> None:
        """Have the instance behind count all rows, in the order in which they came."""
        behind, late, kinds = self.behind, self._late, self._key_kinds
        # Randomized waves draw otherwise for an arrival that is given a count of 1 than for one that is given none.
        batches = [self._batch(list(run), weighted) for weighted, run in groupby(self._rows, _has_count)]
        # What could fail for lack of memory is done. From here on no row is counted twice, whatever happens.
        self._rows, self._late, self._key_kinds = [], 0, set()
        for batch in batches:
            behind._count_checked(*batch)
        behind._late = min(behind._late + late, MAX_COUNT)
        behind._note_key_types(frozenset(kinds))
        self._now, self._arrived = behind._now, behind._arrived

    def _batch(self, rows: list[Row], weighted: bool) -> tuple[Keys, Ints, Counts | None]:
        """Rows as columns: their keys, ticks and counts."""
        keys, ticks, counts = zip(*rows, strict=True)
        self._key_kinds.update(map(type, keys))
        return self.behind._column_of(list(keys)), np.array(ticks, np.int64), np.array(counts, np.int64) if weighted else None


def _has_count(row: Row) -> bool:
    return row[2] is not None
