"""What has come and may still be asked for: the ticks of all arrivals, and the values of the columns that queries read."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.errors import ParameterError
from lately.exact import stored
from lately.exact.asked import Asked, Reach
from lately.exact.batches import Batch
from lately.exact.column import Column, Numbers
from lately.exact.ring import Ring, first_at
from lately.exact.rollback import Rollback
from lately.exact.running import digits
from lately.exact.wide import is_wide, narrowed


class History:
    """A ring of ticks and one for each column, which go back as far as the windows over them."""

    def __init__(self) -> None:
        self.ticks = Ring(np.int64)
        self.columns: dict[str, Column] = {}
        self.now: int | None = None
        self.lateness = 0

    @property
    def nbytes(self) -> int:
        """The bytes that values and indexes take in memory."""
        return self.ticks.nbytes + sum(column.nbytes for column in self.columns.values())

    def keep(self, columns: Iterable[str | None]) -> None:
        """Keep these columns from now on; on one that was not kept all that came before is lost."""
        for name in columns:
            if name is not None and name not in self.columns:
                self.columns[name] = Column(self.ticks.end, self.now if self.ticks.end else None)

    def drop(self, columns: Iterable[str | None]) -> None:
        """Keep these columns no longer."""
        for name in columns:
            if name is not None:
                self.columns.pop(name, None)

    def check_narrow(self, column: str, query: str) -> None:
        """Refuse a query that takes floats if the column holds integers that no float is equal to."""
        ring = self.columns.get(column)
        if ring is not None and is_wide(ring.values) and is_wide(narrowed(ring.slice(ring.first, ring.end))):
            raise ParameterError(
                f"{query!r} asks for an aggregate of your own, which takes floats, and the column {column!r} holds integers "
                "beyond what a float holds exactly (2**53); ask for a column that is cast to float"
            )

    def take(self, batch: Batch, asked: Asked) -> None:
        """Take arrivals in time order. Late ones are put in their place, and what came after them behind them.

        If a user's function fails on them, none is taken.
        """
        newest, end, now = int(batch.ticks[-1]), self.ticks.end, self.now
        tail = end
        if self.lateness:
            tail = int(first_at(self.ticks.values, self.ticks.first, end, int(batch.ticks[0]) + 1))
        rings = (self.ticks, *self.columns.values()) if asked.users else ()
        rollback = Rollback(rings, tail, end + batch.ticks.size)
        try:
            self.now = newest if now is None else max(now, newest)
            if tail == end:
                self._put(batch.ticks, batch.columns, tail, asked)
            else:
                self._put_in_place(batch, tail, asked)
        except BaseException:
            self.now = now
            rollback.restore()
            raise
        for name, column in self.columns.items():
            column.integer &= batch.integer[name]

    def _put(self, ticks: Ints, columns: dict[str, Numbers], start: int, asked: Asked) -> None:
        """Put rows from a position on, in place of what is there."""
        floors: dict[Reach, int] = {}
        reaches = asked.reaches
        for name, ring in (("", self.ticks), *self.columns.items()):
            reach = reaches[name] if name else asked.reach
            if reach not in floors:
                floors[reach] = self._floor(reach, ticks, start)
            ring.end = start
            ring.append(columns[name] if name else ticks, floors[reach])
            if ring.first > 0:
                self._note_lost(ring, reach)

    def _put_in_place(self, batch: Batch, tail: int, asked: Asked) -> None:
        """Put late rows, and all from ``tail`` on, in time order."""
        end = self.ticks.end
        ticks = np.concatenate([self.ticks.slice(tail, end), batch.ticks])
        order = np.argsort(ticks, kind="stable")
        merged = {}
        for name, column in self.columns.items():
            unknown = max(column.first - tail, 0)  # rows that came before anyone asked for this column
            values = np.concatenate([np.full(unknown, np.nan), column.slice(tail + unknown, end), batch.columns[name]])
            merged[name] = values[order]
            if unknown:
                column.first = tail + int(np.flatnonzero(order < unknown)[-1]) + 1
        self._put(ticks[order], merged, tail, asked)

    def _floor(self, reach: Reach, ticks: Ints, start: int) -> int:
        """The first position that a window, or a late arrival, may still ask for once these are in."""
        assert self.now is not None
        floor = start + ticks.size - reach.arrivals
        held = max(reach.ticks, self.lateness + 1 if self.lateness else 0)  # ticks, the newest included
        if not held:
            return floor
        cut = self.now - held + 1
        if ticks[0] < cut:
            return min(floor, start + int(np.searchsorted(ticks, cut)))
        return min(floor, int(first_at(self.ticks.values, self.ticks.first, start, cut)))

    def _note_lost(self, ring: Ring, reach: Reach) -> None:
        """Note how new what left a ring may have been: older than what it begins with, and than its windows of time."""
        assert self.now is not None
        newest = self.now
        if ring.first < ring.end:
            newest = int(self.ticks.values[ring.first & (self.ticks.values.size - 1)])
        if reach.ticks:
            newest = min(newest, self.now - reach.ticks)
        ring.lost = newest if ring.lost is None else max(ring.lost, newest)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer) -> None:
        """Write the rings, the columns in the order of their names."""
        stored.write_ring(out, self.ticks, self.now)
        for _, column in sorted(self.columns.items()):
            stored.write_ring(out, column, self.now)

    def read(self, source: Reader, end: int, asked: Asked) -> None:
        """Read what ``write`` wrote for these queries; ``end`` is the position after the newest arrival."""
        self.ticks = stored.read_ticks(source, end, self.now)
        values = {}
        for name in sorted(asked.reaches):
            self.columns[name], values[name] = stored.read_column(source, self.ticks)
        source.fits(_room(values, asked))
        for name, column in self.columns.items():
            column.append(values[name], column.first)


def _room(values: dict[str, Numbers], asked: Asked) -> int:
    """About the bytes that all indexes over these values will take, in rings of up to twice their size."""
    kinds: dict[str | None, set[Any]] = {}
    classes: dict[str | None, set[Any]] = {}
    for query in asked.numbers.values():
        aggregate, span = query.aggregate, query.span
        kinds.setdefault(aggregate.column, set()).add((aggregate.kind, aggregate.algebra and id(aggregate.algebra)))
        if query.using == "L-INT":
            classes.setdefault(aggregate.column, set()).add((aggregate.key, span.by_time, span.width.bit_length()))
    total = 0
    for name, column in values.items():
        low, high = digits(column)
        bits = max(high - low, 0) + column.size.bit_length()
        number = column.itemsize
        each = number + 3 * number * len(classes.get(name, ()))
        for kind, _ in kinds[name]:
            if kind in ("sum", "avg"):
                each += 16 + bits // 8
            elif kind in ("variance", "stddev"):
                each += 48 + bits // 2
            else:
                each += number * (
                    column.size.bit_length() if kind == "quantile" else 4
                )  # states of users may be wider than one
        total += 2 * each * column.size
    return total
