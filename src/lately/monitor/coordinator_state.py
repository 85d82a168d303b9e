"""What a coordinator stores of itself, of every site, and of every query."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from lately.core.codec import Reader, Writer
from lately.counters.base import MAX_COUNT, Counts
from lately.monitor.announcement import Announcement
from lately.monitor.inbox import Inbox
from lately.monitor.layout import Layout
from lately.monitor.messages import DriftReport, Message, SketchUpdate
from lately.monitor.query import Query
from lately.monitor.region import Region, read_region
from lately.monitor.zones import Floats


class Activity(StrEnum):
    """What a coordinator is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BALANCING = "balancing"
    POLLING = "polling"
    GATHERING = "gathering"
    COLLECTING = "collecting"


@dataclass(slots=True, eq=False)
class SiteState:
    """What the coordinator knows of a site."""

    inbox: Inbox = field(default_factory=Inbox)
    vectors: list[Counts] = field(default_factory=list)  # its numbers as of its last update
    norms: list[Floats] = field(default_factory=list)  # the drift norms that it last reported
    sent: int = 0  # messages sent to it
    joined: bool = False  # its first update has arrived
    waits: bool = False  # it has sent something that must be answered
    updates: int = 0  # its events since its last update, as it last reported
    unsolicited: list[Counts] | None = None  # its numbers as of an unsolicited update since then
    clock: int | None = None  # its clock, as it last sent it
    updated_at: int | None = None  # its clock at its last update of either kind

    @property
    def latest_vectors(self) -> list[Counts]:
        """Its numbers as of its last update of either kind."""
        return self.vectors if self.unsolicited is None else self.unsolicited

    def advance_clock(self, elapsed: int | None) -> None:
        """Let its clock advance by the ticks that it sent."""
        if elapsed is not None:
            self.clock = max(-MAX_COUNT, min((self.clock or 0) + elapsed, MAX_COUNT))

    def add_update(self, message: SketchUpdate, layouts: Sequence[Layout]) -> list[Counts]:
        """Apply an update; returns what has changed in each layout."""
        if not self.joined:
            self.vectors = [np.zeros(layout.size, np.int64) for layout in layouts]
        changes = changes_of(message, layouts)
        for vector, change in zip(self.vectors, changes, strict=True):
            vector += change
        self.norms = [np.zeros(layout.lines) for layout in layouts]
        self.waits, self.updates, self.unsolicited, self.updated_at = True, 0, None, self.clock
        return changes

    def add_unsolicited(self, message: SketchUpdate, layouts: Sequence[Layout]) -> None:
        """Note an unsolicited update, whose changes the next update contains again."""
        changes = changes_of(message, layouts)
        self.unsolicited = [vector + change for vector, change in zip(self.vectors, changes, strict=True)]

    def add_report(self, message: DriftReport, layouts: Sequence[Layout]) -> None:
        """Note the reported drift norms."""
        at, self.waits, self.updates = 0, True, message.updates
        for i, layout in enumerate(layouts):
            size = math.prod(layout.lines)
            self.norms[i] = message.vector[at : at + size].reshape(layout.lines)
            at += size

    def write(self, out: Writer) -> None:
        """Write all fields; norms are 32-bit floats already."""
        out.u8(self.joined + 2 * self.waits)
        out.varint(self.sent)
        out.varint(self.updates)
        self.inbox.write(out)
        out.maybe(self.clock)
        out.maybe(self.updated_at)
        out.u8(self.unsolicited is not None)
        for i, (vector, norms) in enumerate(zip(self.vectors, self.norms, strict=True)):  # none before it has joined
            out.deltas(vector)
            out.f32s(norms)
            if self.unsolicited is not None:
                out.deltas(self.unsolicited[i])

    def read(self, source: Reader, layouts: Sequence[Layout], is_version_1: bool) -> list[Message]:
        """Read what ``write`` wrote; version 1 had no clocks. Returns the early messages, as ``Inbox.read``."""
        flags = source.choice(0, 1, 2, 3)
        self.joined, self.waits = bool(flags & 1), bool(flags & 2)
        self.sent, self.updates = source.varint(), source.varint()
        early = self.inbox.read(source)
        unsolicited: list[Counts] | None = None
        if not is_version_1:
            self.clock, self.updated_at = (source.maybe(-MAX_COUNT, MAX_COUNT) for _ in range(2))
            unsolicited = [] if source.choice(0, 1) else None
            source.check(unsolicited is None or self.joined, "numbers of a site that has not joined")
        for layout in layouts if self.joined else ():
            self.vectors.append(source.deltas(layout.size))
            self.norms.append(source.f32s(layout.lines[0] * layout.lines[1]).reshape(layout.lines))
            if unsolicited is not None:
                unsolicited.append(source.deltas(layout.size))
        self.unsolicited = unsolicited
        return early


def changes_of(message: SketchUpdate, layouts: Sequence[Layout]) -> list[Counts]:
    """The change of every number, also where the message has keys instead."""
    return [
        layout.sketch(*change) if isinstance(change, tuple) else change
        for layout, change in zip(layouts, message.changes, strict=True)
    ]


@dataclass(slots=True, eq=False)
class QueryState:
    """The state of a query."""

    announcement: Announcement
    region: Region = field(default_factory=lambda: Region(()))
    subround: int = 0

    def write(self, out: Writer) -> None:
        """Write all fields; the announcement can be older than the updates of the sites."""
        announced = self.announcement
        for number in (announced.value, *announced.tolerance):
            out.f64(number)
        out.u8(2 if announced.alarm is None else announced.alarm)
        for number in (announced.low, announced.high, announced.confidence):
            out.f64(number)
        out.maybe(announced.oldest)
        out.maybe(announced.newest)
        self.region.write(out)
        out.varint(self.subround)

    def read(self, source: Reader, query: Query, layout: Layout, is_version_1: bool) -> None:
        """Read what ``write`` wrote; version 1 had neither bounds of the true value nor ages."""
        value, tolerance, alarm = source.f64(), (source.f64(), source.f64()), source.choice(0, 1, 2)
        low, high, confidence = -math.inf, math.inf, 1.0
        oldest = newest = None
        if not is_version_1:
            low, high, confidence = source.f64(), source.f64(), source.f64()
            oldest, newest = (source.maybe(-MAX_COUNT, MAX_COUNT) for _ in range(2))
        source.check(not np.isnan([*tolerance, low, high]).any(), "bounds that are not numbers")
        source.check(0 <= confidence <= 1, "a confidence that is not a probability")
        self.announcement = Announcement(
            value, low, high, None if alarm == 2 else bool(alarm), confidence, tolerance, oldest, newest
        )
        self.region, self.subround = read_region(source, query, layout), source.varint()
