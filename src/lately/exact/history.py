"""The arrivals that a window may still contain: their ticks, and the values of the columns that queries read."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.errors import ParameterError
from lately.exact import stored
from lately.exact.aggregate_function import L_INT, AggregateFunction
from lately.exact.batches import Batch
from lately.exact.column import Column, Numbers
from lately.exact.requirements import Lookback, Requirements
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
        """Store these columns from now on; earlier arrivals of a new column are lost."""
        for name in columns:
            if name is not None and name not in self.columns:
                self.columns[name] = Column(self.ticks.end, self.now if self.ticks.end else None)

    def drop(self, columns: Iterable[str | None]) -> None:
        """Stop storing these columns."""
        for name in columns:
            if name is not None:
                self.columns.pop(name, None)

    def check_narrow(self, column: str, query: str) -> None:
        """Reject a query that takes floats if the column holds integers that no float is equal to."""
        ring = self.columns.get(column)
        if ring is not None and is_wide(ring.values) and is_wide(narrowed(ring.slice(ring.first, ring.end))):
            raise ParameterError(
                f"{query!r} asks for a custom aggregate, which takes floats, and the column {column!r} has integers beyond "
                "what a float holds exactly (2**53)",
                remedy="ask for a column that is cast to float",
            )

    def take(self, batch: Batch, requirements: Requirements) -> None:
        """Add arrivals in time order; late ones are inserted before the newer arrivals.

        If a user's function fails on them, nothing changes.
        """
        newest, end, now = int(batch.ticks[-1]), self.ticks.end, self.now
        tail = end
        if self.lateness:
            tail = int(first_at(self.ticks.values, self.ticks.first, end, int(batch.ticks[0]) + 1))
        rings = (self.ticks, *self.columns.values()) if requirements.user_functions else ()
        rollback = Rollback(rings, tail, end + batch.ticks.size)
        try:
            self.now = newest if now is None else max(now, newest)
            if tail == end:
                self._put(batch.ticks, batch.columns, tail, requirements)
            else:
                self._put_in_place(batch, tail, requirements)
        except BaseException:
            self.now = now
            rollback.restore()
            raise
        for name, column in self.columns.items():
            column.integer &= batch.integer[name]

    def _put(self, ticks: Ints, columns: dict[str, Numbers], start: int, requirements: Requirements) -> None:
        """Write rows from a position on, over what is there."""
        floors: dict[Lookback, int] = {}
        lookbacks = requirements.lookbacks
        for name, ring in (("", self.ticks), *self.columns.items()):
            lookback = lookbacks[name] if name else requirements.lookback
            if lookback not in floors:
                floors[lookback] = self._floor(lookback, ticks, start)
            ring.end = start
            ring.append(columns[name] if name else ticks, floors[lookback])
            if ring.first > 0:
                self._note_lost(ring, lookback)

    def _put_in_place(self, batch: Batch, tail: int, requirements: Requirements) -> None:
        """Insert late rows: merge them with everything from ``tail`` on, in time order."""
        end = self.ticks.end
        ticks = np.concatenate([self.ticks.slice(tail, end), batch.ticks])
        order = np.argsort(ticks, kind="stable")
        merged = {}
        for name, column in self.columns.items():
            unknown = max(column.first - tail, 0)  # rows before the first query that reads this column
            values = np.concatenate([np.full(unknown, np.nan), column.slice(tail + unknown, end), batch.columns[name]])
            merged[name] = values[order]
            if unknown:
                column.first = tail + int(np.flatnonzero(order < unknown)[-1]) + 1
        self._put(ticks[order], merged, tail, requirements)

    def _floor(self, lookback: Lookback, ticks: Ints, start: int) -> int:
        """The first position that a window, or a late arrival, may still need after these rows."""
        assert self.now is not None
        floor = start + ticks.size - lookback.arrivals
        reach = max(lookback.ticks, self.lateness + 1 if self.lateness else 0)  # ticks, with the newest one
        if not reach:
            return floor
        oldest = self.now - reach + 1
        if ticks[0] < oldest:
            return min(floor, start + int(np.searchsorted(ticks, oldest)))
        return min(floor, int(first_at(self.ticks.values, self.ticks.first, start, oldest)))

    def _note_lost(self, ring: Ring, lookback: Lookback) -> None:
        """Note the newest tick that the dropped arrivals can have: before the ring's first entry and its windows of time."""
        assert self.now is not None
        newest = self.now
        if ring.first < ring.end:
            newest = int(self.ticks.values[ring.first & (self.ticks.values.size - 1)])
        if lookback.ticks:
            newest = min(newest, self.now - lookback.ticks)
        ring.lost = newest if ring.lost is None else max(ring.lost, newest)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer) -> None:
        """Write the rings, the columns in the order of their names."""
        stored.write_ring(out, self.ticks, self.now)
        for _, column in sorted(self.columns.items()):
            stored.write_ring(out, column, self.now)

    def read(self, source: Reader, end: int, requirements: Requirements) -> None:
        """Read what ``write`` wrote for these queries; ``end`` is the position after the newest arrival."""
        self.ticks = stored.read_ticks(source, end, self.now)
        values = {}
        for name in sorted(requirements.lookbacks):
            self.columns[name], values[name] = stored.read_column(source, self.ticks)
        source.fits(_room(values, requirements))
        for name, column in self.columns.items():
            column.append(values[name], column.first)


def _room(values: dict[str, Numbers], requirements: Requirements) -> int:
    """About the bytes that all indexes over these values take, in rings of up to twice their size."""
    functions: dict[str | None, dict[Any, AggregateFunction]] = {}
    classes: dict[str | None, set[Any]] = {}
    for query in requirements.numbers.values():
        aggregate, span = query.aggregate, query.span
        name = (aggregate.kind, aggregate.function.user_defined and id(aggregate.function.algebra))
        functions.setdefault(aggregate.column, {})[name] = aggregate.function
        if query.using == L_INT:
            classes.setdefault(aggregate.column, set()).add((aggregate.key, span.by_time, span.width.bit_length()))
    total = 0
    for column, entries in values.items():
        low, high = digits(entries)
        size, number = entries.size, entries.itemsize
        bits = max(high - low, 0) + size.bit_length()
        landmarks = 3 * number * len(classes.get(column, ()))
        indexes = sum(function.index_bytes(number, size, bits) for function in functions[column].values())
        total += 2 * (number + landmarks + indexes) * size
    return total
