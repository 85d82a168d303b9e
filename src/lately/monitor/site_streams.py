"""The streams of a site: batches are checked and sorted here, and counted in the sketches of all layouts that they go to.

    batch ──check──> ArrivalBatch ──count──> drifts (in time order, directly)
                                      └────> reorder buffer ──advance──> drifts, as soon as no event can be older

With a ``lateness``, events are counted when they arrive and kept in a reorder buffer until no event can overtake them, because
waves take events in time order only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints, arrival_counts, signed_counts
from lately.core.errors import InputError
from lately.core.keys import Hashes, IntegerKeys, Keys, all_hashes, key_column
from lately.core.stored_keys import read_column, write_column
from lately.core.times import ticks_of_keys
from lately.counters.base import MAX_COUNT, Counts
from lately.ingest.order import ReorderBuffer, time_order
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import BUFFER, DIRECT, RELEASE, Drift, WindowDrift, drift_of, read_drifts, write_drifts


class ArrivalBatch(NamedTuple):
    """A checked batch in time order, without late events."""

    stream: int
    hashes: Hashes
    ticks: Ints | None
    counts: Counts
    #: The keys themselves if they are integers.
    keys: IntegerKeys | None
    #: The whole column of keys, and which of them each event has.
    column: Keys
    order: Ints
    #: The sums of all counts without their signs, and of the counts of late events.
    arrivals: int
    late: int


class SiteStreams:
    """Counts the streams of a site.

    Parameters
    ----------
    monitor
        The definition of the monitor.
    on_stop
        Called with the index of a layout and the reasons, whenever counting stops because something has to be checked.
    """

    def __init__(self, monitor: MonitorDefinition, on_stop: Callable[[int, int], None]) -> None:
        self._monitor, self._on_stop = monitor, on_stop
        #: What is counted in each layout, and how far it has drifted.
        self.drifts: list[Drift] = [drift_of(layout) for layout in monitor.layouts]
        #: The newest tick of each stream; streams can be ahead of each other.
        self.clocks: list[int | None] = [None] * len(monitor.streams)
        self.buffers = [ReorderBuffer.empty() for _ in monitor.streams]
        #: The sum of all counts without their signs, those of late events included.
        self.arrivals = 0
        #: Events that were too late to be counted.
        self.late = 0
        self._sent_clock = 0  # the clock that the coordinator knows
        self._column: Keys | None = None  # of the batch that is being counted
        self._order: Any = None

    def check(self, keys: Any, times: Any, counts: Any, stream: str | None) -> ArrivalBatch:
        """Check a whole batch and put it in time order, without late events. Changes nothing."""
        channel, column = self._monitor.stream(stream), key_column(keys)
        if len(column) == 0:
            raise InputError("an empty column of keys", remedy="skip the call, or use advance(time) to let time pass")
        ticks, weights = self._ticks(times, len(column)), self._weights(counts, len(column))
        now = self.clocks[channel]
        order = None if ticks is None else time_order(ticks, None if now is None else now - self._monitor.lateness)
        order = np.arange(len(column)) if order is None else order
        hashes, in_time = all_hashes(column)[order], weights[order]
        integers = IntegerKeys(column.values[order]) if isinstance(column, IntegerKeys) else None
        list(self._monitor.routes(channel, hashes, None if integers is None else integers.values))  # may raise
        ticks = None if ticks is None else ticks[order]
        arrivals, late = int(np.abs(weights).sum()), int(weights.sum() - in_time.sum())
        return ArrivalBatch(channel, hashes, ticks, in_time, integers, column, order, arrivals, late)

    def _weights(self, counts: Any, size: int) -> Counts:
        weights = signed_counts(counts, size) if self._monitor.window is None else arrival_counts(counts, size)
        if weights is None:
            weights = np.ones(size, np.int64)
        arrivals = self.arrivals + int(np.abs(weights).sum())
        if arrivals > MAX_COUNT:
            raise InputError(f"{arrivals:,} arrivals in all are more than 2**62", remedy="scale the counts down")
        return weights

    def _ticks(self, times: Any, size: int) -> Any:
        window = self._monitor.window
        if window is None:
            if times is not None:
                raise InputError("times for a monitor without a window", remedy="leave them out, or give FastAms(window=…)")
            return None
        return ticks_of_keys(times, window, size)

    def count(self, batch: ArrivalBatch) -> None:
        """Count a checked batch, up to its last tick; ``advance`` lets the other layouts of its stream follow."""
        self.arrivals += batch.arrivals
        self.late += batch.late
        if not batch.order.size:
            return
        self._column, self._order = batch.column, batch.order
        if batch.ticks is not None and self._monitor.lateness:
            keys = batch.keys if self._monitor.buffers_keys else None
            self._count_and_buffer(batch.stream, ReorderBuffer(batch.ticks, batch.hashes, batch.counts, keys))
        else:
            self._count(batch.stream, (batch.hashes, batch.ticks, batch.counts), batch.keys, DIRECT)
        self._column = self._order = None

    def key_at(self, position: int) -> Any:
        """The key of an event of the batch that is being counted, in a tuple; None if there is no batch."""
        return None if self._column is None else (self._column.pick(self._order[position : position + 1])[0],)

    def _count(self, stream: int, events: tuple[Hashes, Ints | None, Counts], keys: Keys | None, mode: int) -> None:
        """Count events in time order, in all layouts that a stream goes to."""
        hashes, ticks, counts = events
        integers = keys.values if isinstance(keys, IntegerKeys) else None
        for index, part in self._monitor.routes(stream, hashes, integers):
            if hashes[part].size:
                self.drifts[index].begin(hashes[part], None if ticks is None else ticks[part], counts[part], mode)
                self._run(index)

    def _count_and_buffer(self, stream: int, rows: ReorderBuffer) -> None:
        """Count events and buffer them, in pieces so short that no buffered event leaves the window in between."""
        window, order, start = self._monitor.window, self._order, 0
        assert window is not None
        longest = max(window.ticks - self._monitor.lateness, 1)
        while start < rows.ticks.size:
            first = int(rows.ticks[start])
            self.advance(stream, first)
            stop = int(np.searchsorted(rows.ticks, first + longest, "left"))
            piece = rows.slice(start, stop)
            self._order = order[start:stop]
            self._count(stream, (piece.hashes, piece.ticks, piece.counts), piece.keys, BUFFER)
            self.buffers[stream] = ReorderBuffer.concat([self.buffers[stream], piece])
            start = stop

    def advance(self, stream: int, tick: int) -> None:
        """Let the windows of a stream reach this tick, and release the buffered events that nothing can overtake any more."""
        before = self.clocks[stream]
        now = self.clocks[stream] = tick if before is None else max(before, tick)
        buffer, newest_final = self.buffers[stream], now - self._monitor.lateness
        if buffer.ticks.size and buffer.ticks[0] <= newest_final:
            due, self.buffers[stream] = buffer.split(newest_final)
            self._count(stream, (due.hashes, due.ticks, due.counts), due.keys, RELEASE)
        for index in self._monitor.layouts_of(stream):
            drift = self.drifts[index]
            if isinstance(drift, WindowDrift) and drift.now is not None and drift.now < now:
                drift.advance(now)
                self._run(index)

    def _run(self, index: int) -> None:
        while reasons := self.drifts[index].run():
            self._on_stop(index, reasons)

    def take_elapsed(self) -> int | None:
        """The ticks since the last call, by the slowest stream; the first time the tick itself. None before the first event."""
        clocks = [now for now in self.clocks if now is not None]
        if not clocks:
            return None
        before, self._sent_clock = self._sent_clock, min(clocks)
        return self._sent_clock - before

    # -- bytes -----------------------------------------------------------------------------------------------------------

    def write_clocks(self, out: Writer) -> None:
        """Write the clock and the reorder buffer of each stream, and the clock that the coordinator knows."""
        for now, buffer in zip(self.clocks, self.buffers, strict=True):
            out.maybe(now)
            if self._monitor.lateness:
                out.integers(buffer.ticks - (now or 0))
                out.u64s(buffer.hashes)
                out.integers(buffer.counts)
                if buffer.keys is not None:
                    write_column(out, buffer.keys)
        out.i64(self._sent_clock)

    def read_clocks(self, source: Reader, is_version_1: bool) -> None:
        """Read what ``write_clocks`` wrote; version 1 had clocks of streams only."""
        for stream in range(len(self.clocks)):
            now = self.clocks[stream] = source.maybe(-(2**62), 2**62)
            if self._monitor.lateness and not is_version_1:
                self.buffers[stream] = self._read_buffer(source, now)
        if not is_version_1:
            self._sent_clock = source.within(source.i64(), -(2**62), 2**62)

    def _read_buffer(self, source: Reader, now: int | None) -> ReorderBuffer:
        ticks = source.integers(1 - self._monitor.lateness, 0) + (now or 0)
        hashes, counts = source.u64s(), source.integers(0, MAX_COUNT)
        source.check(ticks.size == hashes.size == counts.size, "columns of different lengths")
        source.check(bool((np.diff(ticks) >= 0).all()) and (now is not None or not ticks.size), "entries are out of order")
        source.check(float(counts.sum(dtype=np.float64)) <= MAX_COUNT, "the counts add up to more than 2**62")
        keys = None
        if self._monitor.buffers_keys and hashes.size:
            keys = read_column(source)
            is_same = isinstance(keys, IntegerKeys) and np.array_equal(all_hashes(keys), hashes)
            source.check(is_same, "buffered keys with other hashes")
        return ReorderBuffer(ticks, hashes, counts, keys)

    def write_drifts(self, out: Writer) -> None:
        """Write what is counted in each layout."""
        write_drifts(out, self.drifts)

    def read_drifts(self, source: Reader) -> None:
        """Read what ``write_drifts`` wrote; clocks and buffers must have been read before."""
        read_drifts(source, self.drifts)
        for stream, now in enumerate(self.clocks):
            drifts = [self.drifts[i] for i in self._monitor.layouts_of(stream)]
            nows = {drift.now for drift in drifts if isinstance(drift, WindowDrift)}
            source.check(nows <= {None, now}, "counters with another clock than their stream")
            if self.buffers[stream].ticks.size:
                self._note_buffered(stream)

    def _note_buffered(self, stream: int) -> None:
        """Note in the counters which of their counts are buffered."""
        buffer, keys = self.buffers[stream], self.buffers[stream].keys
        integers = keys.values if isinstance(keys, IntegerKeys) else None
        for index, part in self._monitor.routes(stream, buffer.hashes, integers):
            drift = self.drifts[index]
            assert isinstance(drift, WindowDrift)
            drift.add_buffered(buffer.hashes[part], buffer.counts[part])
