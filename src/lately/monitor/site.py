"""A site: sketches its own streams, and sends only what its guards require.

    joining ──Reference──> watching ──DriftReport, SafeFunctionReport, SketchUpdate──> waiting
                              ^                                                           │
                              └────────────────Balance, Quantum, Reference────────────────┘

A site that waits goes on counting, and checks its guards again when it is answered. After waiting for a few batches it sends an
unsolicited update, and another one whenever it has changed much: the answer may be blocked by a site that has died, and the
coordinator must know what the others count.
"""

import math
import secrets
from enum import StrEnum
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError, ParameterError
from lately.core.jit import tell_if_cold
from lately.core.times import check_tick, tick_of
from lately.monitor import messages as m
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import CAP, FLOOR, MOVED, Drift, WindowDrift
from lately.monitor.frequent_site import FrequentKeysGuard
from lately.monitor.guards import Guard
from lately.monitor.inbox import Inbox, read_messages, write_messages
from lately.monitor.messages import Message
from lately.monitor.site_streams import ArrivalBatch, SiteStreams
from lately.monitor.site_updates import SiteUpdates
from lately.monitor.state_bytes import SITE_FAMILY, check_early_messages, is_version_1, read_enum, state_bytes, write_enum
from lately.monitor.zones import to_float32


class State(StrEnum):
    """What a site is doing."""

    JOINING = "joining"
    WATCHING = "watching"
    WAITING = "waiting"
    LEFT = "left"


class Site:
    """One site of a monitor; ``Monitor.site`` makes it, wherever its streams are.

    Every method returns messages to be carried to the coordinator: in any order, late or twice, but each at least once.

    Parameters
    ----------
    monitor
        The definition of the monitor, equal to the coordinator's.
    number
        The number of the site, which no other site of the monitor has.
    guard
        What the site checks for each query.
    birth
        A 64-bit number that distinguishes this site from any other that ever has its number; by default a random one.

    >>> from lately.monitor import FastAms, Monitor, SelfJoin
    >>> site = Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2)).site(1)
    >>> [type(message).__name__ for message in site.update(["a", "b"])], site.state.value
    (['JoinRequest', 'SketchUpdate'], 'joining')
    """

    def __init__(self, monitor: MonitorDefinition, number: int, guard: type[Guard], birth: int | None = None) -> None:
        tell_if_cold()
        self.monitor, self.number = monitor, number
        self.birth = secrets.randbits(64) if birth is None else birth
        self.state = State.JOINING
        self._streams = SiteStreams(monitor, self._on_stop)
        self._updates = SiteUpdates(monitor, self._streams.drifts)
        self._guards = [guard(monitor, i, self.drifts) for i in range(len(monitor.queries))]
        self._frequent = FrequentKeysGuard.of(monitor, self.drifts, self._report_key)
        self._epoch = 0
        self._inbox, self._sequence = Inbox(), 0
        self._outbox: list[Message] = []
        #: Whether it has reported its drift and waits for the answer, and the value of the safe function that it last reported.
        self.has_reported, self.reported_safe_function = False, 0.0
        #: Messages that were about an earlier epoch.
        self.ignored = 0

    def __repr__(self) -> str:
        return f"Site({self.number}, {self.state}, late={self.late})"

    @property
    def drifts(self) -> list[Drift]:
        """What is counted in each layout, and how far it has drifted since the last update."""
        return self._streams.drifts

    @property
    def late(self) -> int:
        """Events that were too late to be counted."""
        return self._streams.late

    # -- events --------------------------------------------------------------------------------------------------------

    def update(self, keys: Any, times: Any = None, counts: Any = None, stream: str | None = None) -> list[Message]:
        """Count a batch; returns the messages to send.

        The guards are checked after every event, as if events came one by one and were answered only after the batch. If
        anything is wrong with the batch, it raises and counts nothing.

        Parameters
        ----------
        keys, times, counts
            Columns as for sketches. Without a window leave the times out; counts may then be negative. Events older than the
            newest of their stream less the monitor's lateness are not counted, except in ``late``.
        stream
            The name of the stream; by default the only one.
        """
        self._ingest(keys, times, counts, stream)
        self._send_while_waiting()
        self._join()
        return self._take_outbox()

    def join(self) -> list[Message]:
        """Ask to be monitored, with what was counted so far; the first ``update`` or ``advance`` does it, too."""
        self._check_not_left()
        self._join()
        return self._take_outbox()

    def warm(self, keys: Any, times: Any = None, counts: Any = None, stream: str | None = None) -> list[Message]:
        """Count a batch before joining, so that the site joins with these events; returns no messages.

        The exception is the scheme "ship", which sends all events: its messages must be carried.

        Parameters
        ----------
        keys, times, counts, stream
            As in ``update``.
        """
        if self.state != State.JOINING or self._sequence:
            raise InputError(f"site {self.number} has joined already", remedy="use update()")
        self._ingest(keys, times, counts, stream)
        return []

    def _ingest(self, keys: Any, times: Any, counts: Any, stream: str | None) -> ArrivalBatch:
        """Check a whole batch, then count it."""
        self._check_not_left()
        batch = self._streams.check(keys, times, counts, stream)
        self._streams.count(batch)
        if batch.order.size:
            if self._frequent is not None and self.state == State.JOINING and batch.stream == self._frequent.stream:
                self._frequent.remember(batch.hashes, batch.column, batch.order)
            if batch.ticks is not None:
                self._streams.advance(batch.stream, int(batch.ticks[-1]))
        return batch

    def advance(self, time: Any) -> list[Message]:
        """Let time pass, so that events older than the window leave it; returns the messages to send.

        Parameters
        ----------
        time
            The time that all streams have reached, as in ``update``. An earlier time changes nothing.
        """
        self._check_not_left()
        if self.monitor.window is None:
            raise ParameterError("the monitor has no window, so time changes nothing", remedy="leave advance() out")
        tick = tick_of(time, self.monitor.window)
        check_tick(tick)
        for stream in range(len(self.monitor.streams)):
            self._streams.advance(stream, tick)
        self._send_while_waiting()
        self._join()
        return self._take_outbox()

    def leave(self) -> list[Message]:
        """Stop being monitored; the coordinator forgets the streams of this site."""
        self._check_not_left()
        if self._sequence:
            self._send(m.LeaveNotice)
        self.state = State.LEFT
        return self._take_outbox()

    def _check_not_left(self) -> None:
        if self.state == State.LEFT:
            raise InputError(f"site {self.number} has left", remedy="make a new one with Monitor.site")

    # -- guards --------------------------------------------------------------------------------------------------------

    def _on_stop(self, index: int, reasons: int) -> None:
        """Counting has stopped: rows have moved far enough to check guards, or keys have left their limits."""
        if reasons & MOVED:
            self._check_guards()
        drift = self.drifts[index]
        if reasons & (CAP | FLOOR) and isinstance(drift, WindowDrift):
            self._check_keys(drift.position - 1 if reasons & CAP else None)

    def _check_guards(self) -> None:
        """Check all guards, and set how far rows may move before the next check."""
        distances = [math.inf] * len(self.drifts)
        for guard, channels in zip(self._guards, self.monitor.channels, strict=True):
            if self.state != State.WATCHING:
                break
            distance = guard.check(self)
            for channel in channels:
                distances[channel] = min(distances[channel], distance / math.sqrt(len(channels)))
        for drift, distance in zip(self.drifts, distances, strict=True):
            drift.set_threshold(distance if self.state == State.WATCHING else math.inf)

    def _check_keys(self, position: int | None = None) -> None:
        """Report keys that have left their limits, and the key at a position of the batch, which has reached its cap."""
        if self._frequent is None or self.state == State.JOINING:
            return
        if position is not None and (at_cap := self._streams.key_at(position)) is not None:
            self._frequent.report(at_cap[0])
        self._frequent.check()

    def _report_key(self, key_hash: int, count: int, key: Any) -> None:
        self._send(m.KeyCount, key_hash, count, key, self._streams.take_elapsed())

    # -- sending -------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if self.state == State.JOINING and not self._sequence:
            self._send(m.JoinRequest, self.monitor.fingerprint, self.birth)
            self.send_update()

    def send_increment(self, query: int, subround: int, quanta: int) -> None:
        """Send by how many quanta the safe function of a query has risen."""
        self._send(m.Increment, self._epoch, query, subround, quanta)

    def report_drift(self, query: int, subround: int) -> None:
        """Report the drift norms of every stream, and wait for the answer."""
        norms = [to_float32(drift.norms()) for drift in self.drifts]
        for guard in self._guards:
            guard.note_reported()
        flat = np.concatenate([part.ravel() for part in norms])
        self._send(m.DriftReport, self._epoch, query, subround, flat, sum(drift.updates for drift in self.drifts))
        self.state, self.has_reported = State.WAITING, True

    def report_safe_function(self, query: int, subround: int) -> None:
        """Report the safe function of a query at its drift, and wait for the answer."""
        for guard in self._guards:
            guard.note_reported()
        guard = self._guards[query]
        self.reported_safe_function = float(np.float32(guard.region.safe_function(guard.reported)))
        self._send(m.SafeFunctionReport, self._epoch, query, subround, np.array([self.reported_safe_function]))
        self.state = State.WAITING

    def _send_while_waiting(self) -> None:
        """After waiting for some batches and advances, send an unsolicited update, and another when much has changed."""
        if self._frequent is not None:
            self._frequent.report_overdue()
        if not self.monitor.impatience or not self._sequence or self.state not in (State.WAITING, State.JOINING):
            return
        also = {self._frequent.stream} if self._frequent is not None and self.state == State.JOINING else set()
        if self._updates.is_due_while_waiting(also):
            self._send(m.SketchUpdate, self._epoch, self._updates.unsolicited_changes(), self._streams.take_elapsed(), True)

    def send_update(self) -> None:
        """Send what has changed since the last update."""
        changes = self._updates.take_changes()
        for guard in self._guards:
            guard.note_reported()  # there is no drift now
        self._send(m.SketchUpdate, self._epoch, changes, self._streams.take_elapsed())

    def _send(self, kind: type[Message], *content: Any) -> None:
        self._sequence += 1
        self._outbox.append(kind(self.number, self._sequence, *content))

    def _take_outbox(self) -> list[Message]:
        messages, self._outbox = self._outbox, []
        return messages

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[Message]:
        """Take a message of the coordinator; returns the messages to send.

        Parameters
        ----------
        message
            A decoded message for this site. One that its coordinator could not have sent raises ``InputError``.
        """
        m.check_is_message(message)
        if message.site != self.number:
            raise InputError(f"a message for site {message.site} came to site {self.number}", remedy="carry it there")
        if self.state == State.LEFT:
            self.ignored += 1
            return []
        self._validate(message)
        for ready in self._inbox.take(message):
            self._handle(ready)
        return self._take_outbox()

    def _validate(self, message: Message) -> None:
        """Raise ``InputError`` for messages that this site's coordinator could not have sent."""
        name = type(message).__name__
        if not message.to_site:
            raise InputError(f"a {name} came to site {self.number}", remedy="carry it to the coordinator")
        match message:
            case m.KeyCountRequest() | m.KeyLimits():
                fits = self._frequent is not None
            case m.Reference():
                fits = len(message.limits) == len(self._guards) and all(map(Guard.fits, self._guards, message.limits))
            case m.QueryMessage():
                fits = message.query < len(self._guards) and self._guards[message.query].accepts(message)
            case _:
                fits = isinstance(message, m.UpdateRequest)
        if not fits:
            raise InputError(
                f"a {name} for another monitor than that of site {self.number}", remedy="build all from one Monitor(…)"
            )

    def _handle(self, message: Message) -> None:
        match message:
            case m.Reference():
                self._begin_epoch(message)
            case m.KeyCountRequest() | m.KeyLimits():
                assert self._frequent is not None  # as ``_validate`` has checked
                self._frequent.receive(message)
                self._check_keys()
                return
            case m.EpochMessage() if message.epoch != self._epoch or self.state == State.JOINING:
                self.ignored += 1
            case m.UpdateRequest():
                self.send_update()
                self.state, self.has_reported = State.WAITING, True
            case m.QueryMessage():
                self._guards[message.query].receive(message, self)
        self._check_guards()

    def _begin_epoch(self, message: m.Reference) -> None:
        self._epoch = message.epoch
        self.resume(has_reported=False)
        for guard, limits in zip(self._guards, message.limits, strict=True):
            guard.begin(limits)
        if self._frequent is not None:
            self._frequent.begin_epoch(message.cap)
            self._check_keys()

    def resume(self, has_reported: bool) -> None:
        """Stop waiting; ``has_reported``: whether the answer to a drift report is still missing."""
        self.state, self.has_reported = State.WATCHING, has_reported
        self._updates.stop_waiting()

    # -- bytes -----------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The state of the site between two calls; ``Monitor.restore`` makes a site of it that continues identically.

        Messages that earlier calls returned are not in it: carry them first, or store them, too.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> monitor = Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> site = monitor.site(1)
        >>> messages = site.update(["a", "b"])
        >>> monitor.restore(site.to_bytes())
        Site(1, joining, late=0)
        """
        return state_bytes(SITE_FAMILY, self.monitor, self.write)

    def write(self, out: Writer) -> None:
        """Write all fields; number and birth come first."""
        out.varint(self.number)
        out.u64(self.birth)
        write_enum(out, self.state)
        out.u8(self.has_reported)
        out.f64(self.reported_safe_function)
        for number in (self._epoch, self._sequence, self._streams.arrivals, self.late, self.ignored):
            out.varint(number)
        self._streams.write_clocks(out)
        self._updates.write(out)
        self._inbox.write(out)
        write_messages(out, self._outbox)
        self._streams.write_drifts(out)
        for guard in self._guards:
            guard.write(out)
        if self._frequent is not None:
            self._frequent.write(out)

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote after number and birth, into a new site."""
        is_old = is_version_1(source)  # which had no clocks
        self.state = read_enum(source, State)
        self.has_reported, self.reported_safe_function = bool(source.choice(0, 1)), source.f64()
        source.check(math.isfinite(self.reported_safe_function), "a safe function that is not finite")
        self._epoch, self._sequence, self._streams.arrivals, self._streams.late, self.ignored = (
            source.varint() for _ in range(5)
        )
        self._streams.read_clocks(source, is_old)
        if not is_old:
            self._updates.read(source)
        check_early_messages(source, self._inbox.read(source), self._validate, self.number)
        self._outbox = read_messages(source)
        self._streams.read_drifts(source)
        for guard in self._guards:
            guard.read(source)
        if self._frequent is not None:
            self._frequent.read(source, is_old)
            if self.state != State.JOINING:  # before, there are no limits
                self._frequent.apply()
