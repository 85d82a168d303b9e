"""A site: sketches its own streams, and says only what it must.

    joining ──Reference──> watching ──DriftReport, SafeFunctionReport, SketchUpdate──> waiting
                              ^                                                           │
                              └────────────────Balance, Quantum, Reference────────────────┘

While it waits it goes on counting; it looks again when it is answered. If it has waited through a few batches before that, it
tells by itself, and again whenever it has changed much: the answer may be held up by a site that has died, and what the others
count must be known.

Events may be older than the newest of their stream by the monitor's ``lateness``. They are counted when they come and held
back, because waves take events in time order only, until nothing can overtake them.
"""

import math
import secrets
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from lately.core.columns import Ints, arrival_counts, signed_counts
from lately.core.errors import InputError, ParameterError
from lately.core.jit import tell_if_cold
from lately.core.keys import Hashes, IntegerKeys, Keys, all_hashes, key_column
from lately.core.times import check_tick, tick_of, ticks_of_keys
from lately.counters.base import MAX_COUNT, Counts
from lately.ingest.order import ReorderBuffer, time_order
from lately.monitor import messages as m
from lately.monitor.drift import CAP, DIRECT, FLOOR, HOLD, MOVED, RELEASE, Drift, StreamDrift, WindowDrift, drift_of
from lately.monitor.frequent import PATIENCE, ItemsGuard
from lately.monitor.guards import FunctionalGuard, GeometricGuard, Guard, PushingGuard
from lately.monitor.inbox import Inbox
from lately.monitor.messages import Message
from lately.monitor.queries import norms_of
from lately.monitor.region import region_of, zone_size
from lately.monitor.stored import site_bytes
from lately.monitor.zones import Floats, to_float32

if TYPE_CHECKING:
    from lately.monitor.monitor import Monitor


class State(StrEnum):
    """What a site is doing."""

    JOINING = "joining"
    WATCHING = "watching"
    WAITING = "waiting"
    LEFT = "left"


class Site:
    """One site of a monitor; ``Monitor.site`` makes it, wherever its streams are.

    Every method returns the messages to be carried to the coordinator, in any order, late or twice, but each at least once.

    >>> from lately.monitor import FastAms, Monitor, SelfJoin
    >>> site = Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2)).site(1)
    >>> [type(message).__name__ for message in site.update(["a", "b"])], site.state.value
    (['JoinRequest', 'SketchUpdate'], 'joining')
    """

    def __init__(self, monitor: "Monitor", number: int, birth: int | None = None) -> None:
        tell_if_cold()
        self.monitor, self.number = monitor, number
        #: What tells this site from any other that ever had its number.
        self.birth = secrets.randbits(64) if birth is None else birth
        self.state = State.JOINING
        self.drifts: list[Drift] = [drift_of(layout) for layout in monitor.layouts]
        self._guards: list[Guard] = [monitor.guard(i) for i in range(len(monitor.queries))]
        self._items = None if monitor.frequent is None else ItemsGuard(monitor.frequent[1].theta)
        self._watched = 0 if monitor.frequent is None else monitor.frequent[1].channel(monitor.streams)
        self._column: Keys | None = None
        self._order: Any = None
        self._epoch = 0
        self._inbox, self._sequence = Inbox(), 0
        self._out: list[Message] = []
        self._reported, self._pressure = False, 0.0
        self._taken = 0
        self._nows: list[int | None] = [None] * len(monitor.streams)  # streams may run ahead of each other
        self._reorder_buffer = [ReorderBuffer.empty() for _ in monitor.streams]
        self._said_tick = 0  # the clock as the coordinator knows it
        self._calls = 0  # batches and advances in which it waits for an answer
        self._shown: list[Counts] | None = None  # what it told since then unasked
        #: Events that came too late to be counted.
        self.late = 0
        #: Messages that were about something over and done.
        self.ignored = 0

    def __repr__(self) -> str:
        return f"Site({self.number}, {self.state}, late={self.late})"

    def to_bytes(self) -> bytes:
        """All that it knows, at any moment between two calls; ``Monitor.restore`` makes a site of it that goes on just so.

        What it had to say was returned by the calls before, and is not kept: store the messages too, or carry them first.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> watch = Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> site = watch.site(1)
        >>> told = site.update(["a", "b"])
        >>> watch.restore(site.to_bytes())
        Site(1, joining, late=0)
        """
        return site_bytes(self)

    # -- events --------------------------------------------------------------------------------------------------------

    def update(self, keys: Any, times: Any = None, counts: Any = None, stream: str | None = None) -> list[Message]:
        """Count a batch; returns what to send. Keys, times and counts are given as to the sketches.

        The site looks after every event, as if they came one by one and answers only after the batch. Without a window
        leave the times out; there counts may be negative. Events older than the newest of their stream, less the monitor's
        lateness, are counted in ``late`` and left out.
        """
        if self.monitor.scheme == "ship":
            self._join()
        channel, hashes, ticks, weights = self._take(keys, times, counts, stream)
        if self.monitor.scheme == "ship" and hashes.size:
            self._ship(channel, hashes, ticks, weights)
        self._speak_while_waiting()
        self._join()
        return self._sent()

    def join(self) -> list[Message]:
        """Ask to be watched, with what was counted so far; the first ``update`` or ``advance`` does it too."""
        self._must_be_here()
        self._join()
        return self._sent()

    def warm(self, keys: Any, times: Any = None, counts: Any = None, stream: str | None = None) -> list[Message]:
        """``update`` before joining: the site will join with what it has, not with nothing, and has nothing to send yet.

        Where everything is shipped there is no joining later: the messages must be carried.
        """
        if self.monitor.scheme == "ship":
            return self.update(keys, times, counts, stream)
        if self.state != State.JOINING or self._sequence:
            raise InputError(f"site {self.number} has joined already; use update()")
        self._take(keys, times, counts, stream)
        return []

    def _take(self, keys: Any, times: Any, counts: Any, stream: str | None) -> tuple[int, Hashes, Any, Counts]:
        """Check a whole batch, then count it in time order, without what comes too late; returns it so."""
        self._must_be_here()
        channel, column = self.monitor.stream(stream), key_column(keys)
        if len(column) == 0:
            raise InputError("an empty column; skip the call, or use advance(time) to let time pass")
        ticks, weights = self._ticks(times, len(column)), self._weights(counts, len(column))
        now = self._nows[channel]
        order = None if ticks is None else time_order(ticks, None if now is None else now - self.monitor.lateness)
        order = np.arange(len(column)) if order is None else order
        hashes, chosen = all_hashes(column)[order], weights[order]
        ticks = None if ticks is None else ticks[order]
        keys = IntegerKeys(column.values[order]) if isinstance(column, IntegerKeys) else None
        list(self.monitor.routes(channel, hashes, None if keys is None else keys.values))  # refuses keys of another kind
        self._taken += int(np.abs(weights).sum())
        self.late += int(weights.sum() - chosen.sum())
        if order.size:
            self._column, self._order = column, order
            if ticks is not None and self.monitor.lateness:
                self._hold(channel, ReorderBuffer(ticks, hashes, chosen, keys if self.monitor.holds_keys else None))
            else:
                self._count(channel, (hashes, ticks, chosen), keys, DIRECT)
            if self._items is not None and self.state == State.JOINING and channel == self._watched:
                drift = self.drifts[channel]
                assert isinstance(drift, WindowDrift)
                self._items.remember(hashes, column, order, drift)
            self._column = self._order = None
            if ticks is not None:
                self._pass(channel, int(ticks[-1]))
        return channel, hashes, ticks, chosen

    def _count(self, channel: int, events: tuple[Hashes, Ints | None, Counts], keys: Keys | None, mode: int) -> None:
        """Count events in time order, in all that a stream goes to."""
        hashes, ticks, counts = events
        integers = keys.values if isinstance(keys, IntegerKeys) else None
        for index, mine in self.monitor.routes(channel, hashes, integers):
            if hashes[mine].size:
                self.drifts[index].begin(hashes[mine], None if ticks is None else ticks[mine], counts[mine], mode)
                self._run(index)

    def _hold(self, channel: int, rows: ReorderBuffer) -> None:
        """Count rows and hold them back, in pieces so short that nothing that is held back leaves the window meanwhile."""
        window, order, start = self.monitor.window, self._order, 0
        assert window is not None
        longest = max(window.ticks - self.monitor.lateness, 1)
        while start < rows.ticks.size:
            first = int(rows.ticks[start])
            self._pass(channel, first)
            stop = int(np.searchsorted(rows.ticks, first + longest, "left"))
            piece = rows.slice(start, stop)
            self._order = order[start:stop]
            self._count(channel, (piece.hashes, piece.ticks, piece.counts), piece.keys, HOLD)
            self._reorder_buffer[channel] = ReorderBuffer.concat([self._reorder_buffer[channel], piece])
            start = stop

    def _weights(self, counts: Any, size: int) -> Counts:
        weights = signed_counts(counts, size) if self.monitor.window is None else arrival_counts(counts, size)
        if weights is None:
            weights = np.ones(size, np.int64)
        taken = self._taken + int(np.abs(weights).sum())
        if taken > MAX_COUNT:
            raise InputError(f"{taken:,} arrivals in all, more than 2**62; scale the counts down")
        return weights

    def _ticks(self, times: Any, size: int) -> Any:
        window = self.monitor.window
        if window is None:
            if times is not None:
                raise InputError("times given to a monitor without a window; leave them out, or give FastAms(window=…)")
            return None
        return ticks_of_keys(times, window, size)

    def advance(self, time: Any) -> list[Message]:
        """Let time pass: what is older than the window leaves it. Returns what to send."""
        self._must_be_here()
        if self.monitor.window is None:
            raise ParameterError("the monitor has no window, so time changes nothing; leave advance() out")
        tick = tick_of(time, self.monitor.window)
        check_tick(tick)
        for stream in range(len(self.monitor.streams)):
            self._pass(stream, tick)
        self._speak_while_waiting()
        if self._sequence and self.monitor.scheme == "ship" and any(drift.norms().any() for drift in self.drifts):
            self._ship(0, np.empty(0, np.uint64), np.array([tick]), np.empty(0, np.int64))
        self._join()
        return self._sent()

    def leave(self) -> list[Message]:
        """Stop being watched; the coordinator forgets this site's streams."""
        self._must_be_here()
        if self._sequence:
            self._send(m.LeaveNotice)
        self.state = State.LEFT
        return self._sent()

    def _pass(self, stream: int, tick: int) -> None:
        """Let the windows of a stream reach this tick, and no longer hold back what nothing can overtake then."""
        before = self._nows[stream]
        now = self._nows[stream] = tick if before is None else max(before, tick)
        held = self._reorder_buffer[stream]
        if held.ticks.size and held.ticks[0] <= now - self.monitor.lateness:
            due, self._reorder_buffer[stream] = held.split(now - self.monitor.lateness)
            self._count(stream, (due.hashes, due.ticks, due.counts), due.keys, RELEASE)
        for index in self.monitor.layouts_of(stream):
            drift = self.drifts[index]
            if isinstance(drift, WindowDrift) and drift.now is not None and drift.now < now:
                drift.advance(now)
                self._run(index)

    # -- looking -------------------------------------------------------------------------------------------------------

    def _run(self, index: int) -> None:
        """Count what was begun, looking whenever the rows have moved far enough or a key has left its limits."""
        drift = self.drifts[index]
        while reason := drift.run():
            if reason & MOVED:
                self._look()
            if reason & (CAP | FLOOR) and isinstance(drift, WindowDrift):
                self._look_at_items(drift.position - 1 if reason & CAP else None)

    def _look_at_items(self, at: int | None = None) -> None:
        """Speak of keys that have left their limits, and of the one at this event of the batch, which has reached its cap."""
        guard, drift = self._items, self.drifts[self._watched]
        if guard is None or self.state == State.JOINING:
            return
        assert isinstance(drift, WindowDrift)
        if at is not None and self._column is not None:
            key = self._column.pick(self._order[at : at + 1])[0]
            count = guard.count(drift, item := m.hash_of(key), key)
            if count is not None:
                self._send(m.KeyCount, item, count, key, self._elapsed())
        for item, count, key in guard.spoken(drift):
            self._send(m.KeyCount, item, count, key, self._elapsed())
        guard.apply(drift)

    def _look(self) -> None:
        """Say what must be said about any query, and note how far rows may move before looking again."""
        rooms = [math.inf] * len(self.drifts)
        for number, guard in enumerate(self._guards):
            if self.state != State.WATCHING:
                break
            room = self._speak(number, guard)
            channels = self.monitor.channels[number]
            for channel in channels:
                rooms[channel] = min(rooms[channel], room / math.sqrt(len(channels)))
        for drift, room in zip(self.drifts, rooms, strict=True):
            drift.set_threshold(room if self.state == State.WATCHING else math.inf)

    def _speak(self, number: int, guard: Guard) -> float:
        points = self._points(number)
        if isinstance(guard, FunctionalGuard):
            if steps := guard.rise(points):
                self._send(m.Increment, self._epoch, number, guard.subround, steps)
            return guard.room(points)
        if isinstance(guard, PushingGuard):
            norms = [np.sort(norms_of(self._table(i))) for i in self.monitor.channels[number]]
            guard.lengths = np.array([lengths[lengths.size // 2] for lengths in norms])
        room = guard.room(points)
        if room < 0:
            if isinstance(guard, PushingGuard):
                self._tell()
                return self._speak(number, guard) if guard.lengths.all() else 0.0
            self._report(number, guard.subround)
        return room

    def _table(self, channel: int) -> Floats:
        layout = self.monitor.layouts[channel]
        return self.drifts[channel].numbers.astype(np.float64).reshape(layout.rows, layout.width)

    def _points(self, number: int) -> Floats:
        return np.stack([self.drifts[i].norms() for i in self.monitor.channels[number]], axis=-1)

    # -- speaking ------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if self.state == State.JOINING and not self._sequence:
            self._send(m.JoinRequest, self.monitor.fingerprint, self.birth)
            self._tell()

    def _report(self, number: int, subround: int) -> None:
        """Say where the rows of every stream are, and wait."""
        norms = [to_float32(drift.norms()) for drift in self.drifts]
        self._remember(norms)
        flat = np.concatenate([part.ravel() for part in norms])
        self._send(m.DriftReport, self._epoch, number, subround, flat, sum(drift.updates for drift in self.drifts))
        self.state, self._reported = State.WAITING, True

    def _say_pressure(self, number: int, subround: int, guard: FunctionalGuard) -> None:
        """Say how high the pressure of a query is, and wait."""
        self._remember([to_float32(drift.norms()) for drift in self.drifts])
        self._pressure = float(np.float32(guard.region.safe_function(guard.said)))
        self._send(m.SafeFunctionReport, self._epoch, number, subround, np.array([self._pressure]))
        self.state = State.WAITING

    def _remember(self, norms: list[Floats]) -> None:
        for number, guard in enumerate(self._guards):
            guard.said = np.stack([norms[i] for i in self.monitor.channels[number]], axis=-1)

    def _speak_while_waiting(self) -> None:
        """Tell, though nobody asked, after waiting through some batches and advances, and again when much has changed."""
        if self._items is not None:
            drift = self.drifts[self._watched]
            assert isinstance(drift, WindowDrift)
            for item, count, key in self._items.grown(drift):
                self._send(m.KeyCount, item, count, key, self._elapsed())
        share = self.monitor.impatience
        if not share or not self._sequence or self.state not in (State.WAITING, State.JOINING):
            return
        self._calls = min(self._calls + 1, PATIENCE + 1)
        if self._calls < PATIENCE:
            return
        channels = {i for of_query in self.monitor.channels for i in of_query}
        if self._items is not None and self.state == State.JOINING:
            channels.add(self._watched)
        if self._calls == PATIENCE or any(self._has_changed(i, share) for i in channels):
            self._show()

    def _has_changed(self, channel: int, share: float) -> bool:
        """Whether a row has risen or fallen by more than a share of itself since it was last told or shown."""
        drift, layout = self.drifts[channel], self.monitor.layouts[channel]
        before = drift.told if self._shown is None else self._shown[channel]
        change = (drift.numbers - before).astype(np.float64).reshape(layout.rows, layout.width)
        parts = (change,) if layout.signed else (np.maximum(change, 0), np.minimum(change, 0))
        most = share * norms_of(self._table(channel))
        return any(bool((norms_of(part) > most).any()) for part in parts)

    def _show(self) -> None:
        """Tell what has changed, though nobody asked: what was told stays as it was, and so do the limits."""
        changes = tuple(self._change(drift, drift.numbers - drift.told) for drift in self.drifts)
        self._shown = [drift.numbers.copy() for drift in self.drifts]
        self._send(m.SketchUpdate, self._epoch, changes, self._elapsed(), True)

    def _tell(self) -> None:
        """Tell all that has changed."""
        changes = []
        for drift in self.drifts:
            changes.append(self._change(drift, drift.numbers - drift.told))
            drift.tell()
        self._remember([np.zeros_like(drift.norms()) for drift in self.drifts])
        self._shown = None
        self._send(m.SketchUpdate, self._epoch, tuple(changes), self._elapsed())

    @staticmethod
    def _change(drift: Drift, numbers: Counts) -> m.Change:
        keys = drift.verbatim() if isinstance(drift, StreamDrift) else None
        return numbers if keys is None else _shorter(keys, numbers)

    def _elapsed(self) -> int | None:
        """The ticks since this site last said how late it is; None before it knows."""
        nows = [now for now in self._nows if now is not None]
        if not nows:
            return None
        before, self._said_tick = self._said_tick, min(nows)
        return self._said_tick - before

    def _ship(self, stream: int, hashes: Hashes, ticks: Any, counts: Counts) -> None:
        """Send events as they came, or only how late it is."""
        for drift in self.drifts:
            drift.tell()
        self._send(m.Events, stream, hashes, np.zeros(0, np.int64) if ticks is None else ticks, counts)

    def _send(self, kind: type[Message], *content: Any) -> None:
        self._sequence += 1
        self._out.append(kind(self.number, self._sequence, *content))

    def _sent(self) -> list[Message]:
        out, self._out = self._out, []
        return out

    # -- listening -----------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[Message]:
        """Take what the coordinator sent; returns what to send."""
        m.must_be_message(message)
        if message.site != self.number:
            raise InputError(f"a message for site {message.site} came to site {self.number}; carry it there")
        if self.state == State.LEFT:
            self.ignored += 1
            return []
        self._check(message)
        for ready in self._inbox.take(message):
            self._hear(ready)
        return self._sent()

    def _check(self, message: Message) -> None:
        """Refuse what this site's coordinator would not say."""
        if not message.to_site:
            raise InputError(f"a {type(message).__name__}, which only coordinators understand, came to a site")
        if isinstance(message, m.KeyCountRequest | m.KeyLimits):
            fits = self._items is not None
        elif isinstance(message, m.Reference):
            fits = len(message.limits) == len(self._guards) and all(
                limits.start.size == guard.starts and limits.zones.size == zone_size(*self.monitor.about(i), limits.sides)
                for i, (guard, limits) in enumerate(zip(self._guards, message.limits, strict=True))
            )
        elif isinstance(message, m.QueryMessage):
            fits = message.query < len(self._guards) and self._guards[message.query].understands(message)
        else:
            fits = isinstance(message, m.UpdateRequest)
        if not fits:
            raise InputError(
                f"a {type(message).__name__} for another monitor than that of site {self.number}; build all from one Monitor(…)"
            )

    def _hear(self, message: Message) -> None:
        if isinstance(message, m.Reference):
            self._begin(message)
        elif isinstance(message, m.KeyCountRequest | m.KeyLimits):
            self._hear_of_item(message)
            return
        elif isinstance(message, m.EpochMessage) and (message.epoch != self._epoch or self.state == State.JOINING):
            self.ignored += 1
        elif isinstance(message, m.UpdateRequest):
            self._tell()
            self.state, self._reported = State.WAITING, True
        elif isinstance(message, m.QueryMessage):
            self._hear_about(message, self._guards[message.query])
        self._look()

    def _begin(self, message: m.Reference) -> None:
        self._epoch, self._reported = message.epoch, False
        self._watch()
        for number, (guard, limits) in enumerate(zip(self._guards, message.limits, strict=True)):
            guard.begin(region_of(*self.monitor.about(number), limits), limits)
        if self._items is not None:
            self._items.cap = message.cap
            drift = self.drifts[self._watched]
            assert isinstance(drift, WindowDrift)
            for item, count, key in self._items.recall(drift):
                self._send(m.KeyCount, item, count, key, self._elapsed())
            self._look_at_items()

    def _hear_of_item(self, message: m.KeyCountRequest | m.KeyLimits) -> None:
        guard, drift = self._items, self.drifts[self._watched]
        assert guard is not None
        assert isinstance(drift, WindowDrift)
        if isinstance(message, m.KeyLimits):
            guard.set(message, drift)
        else:
            count = guard.count(drift, item := m.hash_of(message.key), message.key)
            if count is not None:
                self._send(m.KeyCount, item, count, None, self._elapsed())
        self._look_at_items()

    def _hear_about(self, message: m.QueryMessage, guard: Guard) -> None:
        if isinstance(message, m.DriftRequest):
            if not self._reported:  # else what was said is on its way, and holds
                self._report(message.query, message.subround)
        elif isinstance(guard, FunctionalGuard):
            if isinstance(message, m.Quantum):
                guard.step(float(message.numbers[0]), self._pressure)
                guard.subround = message.subround
                self._watch()
            elif not self._reported:
                self._say_pressure(message.query, message.subround, guard)
        elif isinstance(guard, GeometricGuard) and isinstance(message, m.Balance):
            guard.balance(message.numbers.reshape(guard.said.shape), message.is_all)
            guard.subround = message.subround
            self._reported = False
            self._watch()

    def _watch(self) -> None:
        """Wait no longer."""
        self.state, self._calls, self._shown = State.WATCHING, 0, None

    def _must_be_here(self) -> None:
        if self.state == State.LEFT:
            raise InputError(f"site {self.number} has left; make a new one with Monitor.site")


def _shorter(keys: tuple[Hashes, Counts], numbers: Counts) -> m.Change:
    """The keys that came, or the numbers that they changed, whatever takes fewer bytes."""
    if keys[0].size < numbers.size // 64:  # sparse numbers take more: an entry in every row
        return keys
    if 8 * keys[0].size > 4 * numbers.size:
        return numbers
    verbatim, sketched = m.SketchUpdate(0, 0, 0, (keys,)).nbytes, m.SketchUpdate(0, 0, 0, (numbers,)).nbytes
    return keys if verbatim < sketched else numbers
