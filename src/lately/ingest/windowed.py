"""The base of all counters and sketches over a sliding window: the current time, the order of arrivals, ranges.

An arrival goes through here before it is counted:

    times ──> ticks ──> in order? ──> late? ──> held back? ──> stamps ──> counted
              int64     sort if not   left out,   lateness=     uint32,
                                      counted in                since ``origin``
                                      ``late``

Stamps are 32 bits wide. Before they would overflow, the origin moves on and every part is rebased: one pass over the state
in four billion ticks. Subclasses implement how a block of arrivals is counted into their parts (``_count``). The fields are
in ``windowed_state.py``, merging is in ``merging.py``.
"""

from abc import abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lately.core.columns import Ints, arrival_counts
from lately.core.durations import Duration, Window
from lately.core.errors import InputError, ParameterError
from lately.core.key_types import KeyTypes
from lately.core.keys import HashedKeys, Keys, all_hashes
from lately.core.plain_values import plain_column
from lately.core.times import instant_of, tick_of, ticks_of_keys
from lately.counters.base import MAX_COUNT, MAX_STAMP, Bounds, Cells, CounterArray, Counts, Stamps
from lately.ingest.merging import Mergeable
from lately.ingest.order import ReorderBuffer, put_stamps, time_order
from lately.ingest.ranges import range_ages
from lately.ingest.windowed_state import S
from lately.ingest.write_buffer import WriteBuffer

#: Arrivals are counted in blocks of this many: large enough to make calls cheap, small enough to stay in the cache.
BLOCK = 16_384


class Windowed(Mergeable[S]):
    """Base of counters and sketches over a sliding window."""

    #: How many arrivals are counted at a time.
    _block: ClassVar[int] = BLOCK

    @abstractmethod
    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        """Count the ``stamps.size`` arrivals whose keys begin at ``start``."""

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def window(self) -> Window:
        """The window, with its length and tick."""
        return self._window

    @property
    def now(self) -> datetime | np.datetime64 | int | None:
        """The newest time seen or advanced to, cut to its tick: a date, an integer, or the number of arrivals."""
        return None if self._now is None else instant_of(self._now, self._window)

    @property
    def late(self) -> int:
        """The number of arrivals that came too late to be counted."""
        return self._late

    def advance(self, time: Any) -> None:
        """Move the window to a later time without an arrival; arrivals older than the window expire. Never moves back.

        Parameters
        ----------
        time
            The instant to move to, in any form that ``update`` takes; ``now`` returns it.
        """
        if time is None:
            raise InputError("advance(None)", remedy="give the time to advance to")
        if self._window.kind == "arrivals":
            raise ParameterError("a window of arrivals moves with its arrivals only; advance() is for windows of time")
        self._advance(tick_of(time, self._window))

    def _advance(self, tick: int) -> None:
        self._move_now(tick)
        self._release()

    def _move_now(self, tick: int) -> None:
        """Move ``now`` forward to this tick; the first tick also sets the origin of stamps."""
        if self._now is None:
            self._now, self._origin = tick, self._origin_for(tick)
            for part in self._parts:
                part.begin(self._origin)
        self._now = max(self._now, tick)

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def _ingest(self, keys: Keys, times: Any, counts: Any) -> None:
        """Check a whole batch, then put it in time order and count it. If anything is wrong, nothing has changed."""
        size = len(keys)
        if size == 0:
            raise InputError("an empty column", remedy="skip the call, or use advance(time) to let time pass")
        ticks = self._ticks(times, size)
        checked = arrival_counts(counts, size)
        arrived = size if checked is None else int(checked.sum())
        if self._arrived + arrived > MAX_COUNT:
            raise InputError(f"{self._arrived + arrived:,} arrivals in all, more than 2**62", remedy="scale the counts down")

        order = time_order(ticks, None if self._now is None else self._now - self._lateness)
        if order is not None:
            late = size - order.size if checked is None else arrived - int(checked[order].sum())
            self._late = min(self._late + late, MAX_COUNT)
            arrived -= late
            if not order.size:
                return
        self._arrived += arrived
        self._take(keys, ticks, checked, order)

    def _take(self, keys: Keys, ticks: Ints, counts: Counts | None, order: Ints | None) -> None:
        """Count these rows of a batch, or hold them back; ``order`` has them in time order, None if that is the whole batch."""
        if order is None and not self._lateness:
            self._move_now(int(ticks[0]))
            self._move_now(int(ticks[-1]))
            self._apply(keys, ticks, counts)
            return
        if order is None:
            order = np.arange(ticks.size)
        ticks = ticks[order]
        weights = np.ones(order.size, np.int64) if counts is None else counts[order]
        hashes = all_hashes(keys)[order]
        self._move_now(int(ticks[0]))
        self._move_now(int(ticks[-1]))
        if self._lateness:
            buffered = ReorderBuffer(ticks, hashes, weights, keys.take(order) if self._keeps_keys else None)
            self._reorder_buffer = ReorderBuffer.concat([self._reorder_buffer, buffered])
            self._release()
        else:
            self._apply(HashedKeys(hashes, keys, order), ticks, None if counts is None else weights)

    def _ticks(self, times: Any, size: int) -> Ints:
        if self._window.kind == "arrivals":
            if times is not None:
                raise InputError("times given to a window of arrivals", remedy="leave times out, or build it with window='1h'")
            start = (self._now or 0) + 1
            return np.arange(start, start + size, dtype=np.int64)
        return ticks_of_keys(times, self._window, size)

    def _release(self) -> None:
        """Count the held-back arrivals that no arrival in time can precede any more."""
        if self._reorder_buffer.ticks.size and self._now is not None:
            due, self._reorder_buffer = self._reorder_buffer.split(self._now - self._lateness)
            self._apply(HashedKeys(due.hashes, due.keys), due.ticks, due.counts)

    def _apply(self, keys: Keys, ticks: Ints, counts: Counts | None) -> None:
        """Count arrivals in time order, block by block, moving the origin where stamps would overflow."""
        start, room = 0, np.empty(min(self._block, ticks.size), np.uint32)
        while start < ticks.size:
            stop = min(start + self._block, ticks.size)
            limit = self._origin + MAX_STAMP - 1
            if ticks[stop - 1] > limit:
                stop = start + int(np.searchsorted(ticks[start:stop], limit, "right"))
            if stop == start:
                origin = self._origin_for(int(ticks[start]))
                for part in self._parts:
                    part.rebase(origin - self._origin)
                self._origin = origin
                continue
            stamps = room[: stop - start]
            put_stamps(ticks[start:stop], self._origin, stamps)
            self._count(keys, start, stamps, None if counts is None else counts[start:stop])
            start = stop

    # -- one arrival at a time -----------------------------------------------------------------------------------------

    def _add_waiting(self, key: Any, time: Any, count: Any) -> bool:
        """Let one arrival wait to be counted with others; False, and nothing is changed, if it must be read as a column."""
        buffer = self._write_buffer
        if buffer is not None:
            return buffer.add(key, time, count)
        behind = object.__new__(type(self))
        behind.__dict__ = self.__dict__
        buffer = WriteBuffer(behind)
        if not buffer.add(key, time, count):
            return False
        self.__dict__ = {"_write_buffer": buffer, "_shape": behind._shape}
        return True

    def _column_of(self, keys: list[Any]) -> Keys:
        """Keys that waited, as a column."""
        return plain_column(keys)

    def _count_checked(self, keys: Keys, ticks: Ints, counts: Counts | None) -> None:
        """Count arrivals that were checked one by one, in the order in which they came; none is late."""
        self._arrived += ticks.size if counts is None else int(counts.sum())
        self._move_now(int(ticks[0]))  # the first to come sets the origin, though an older one may be in time as well
        self._take(keys, ticks, counts, time_order(ticks, None))

    def _note_key_types(self, types: KeyTypes) -> None:
        """Remember the types of keys, where answers depend on them."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The first access to the state counts the arrivals that wait in front of it."""
            buffer = self.__dict__.get("_write_buffer")
            if buffer is None or name.startswith("__"):
                return super().__getattr__(name)
            with buffer.lock:
                if self.__dict__.get("_write_buffer") is buffer:  # else another thread was faster
                    buffer.count_rows()
                    set_since = {name: value for name, value in self.__dict__.items() if name != "_write_buffer"}
                    self.__dict__ = buffer.behind.__dict__ | set_since
            return getattr(self, name)

    # -- ranges --------------------------------------------------------------------------------------------------------

    def _range(self, last: Duration | None, between: tuple[Any, Any] | None) -> tuple[int, int | None]:
        """The range of a query as ages in ticks: from the older one, up to the newer one (None: up to now)."""
        return range_ages(self._window, self._now, last, between)

    def _tick_at(self, age: int, now: int) -> int:
        """The first tick inside the range of this age."""
        return now - age + 1

    def _stamp_at(self, age: int, now: int) -> int:
        return min(max(self._tick_at(age, now) - self._origin, 1), MAX_STAMP)

    def _bounds(
        self,
        array: CounterArray,
        cells: Cells | None,
        buffered_since: Any,
        ages: tuple[int, int | None],
        now: int | None = None,
    ) -> Bounds:
        """What these cells, or all, counted in a range: one suffix, or the difference of two with their errors added.

        ``buffered_since(tick)`` is the number of held-back arrivals of the same cells since a tick; ``now`` is by default the
        sketch's own.
        """
        instant = now if now is not None else self._now
        if instant is None:
            return Bounds(*(np.zeros(array.cells if cells is None else cells.size, np.int64) for _ in range(3)))
        older, newer = ages
        stamp = self._stamp_at(older, instant)
        start = array.all_since(stamp) if cells is None else array.since(cells, stamp)
        if self._reorder_buffer.ticks.size:
            start = Bounds(*(part + buffered_since(self._tick_at(older, instant)) for part in start))
        if newer is None:
            return start
        end = self._bounds(array, cells, buffered_since, (newer, None), instant)
        return Bounds(
            np.maximum(start.low - end.high, 0), np.maximum(start.value - end.value, 0), np.maximum(start.high - end.low, 0)
        )
