"""What a coordinator keeps: of every site, and of every query."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lately.core.codec import Reader, Writer
from lately.counters.base import MAX_COUNT, Counts
from lately.monitor.announcement import Announcement
from lately.monitor.inbox import Inbox
from lately.monitor.layout import Layout
from lately.monitor.messages import Message
from lately.monitor.queries import Query
from lately.monitor.region import Region, read_region
from lately.monitor.zones import Floats


@dataclass(slots=True, eq=False)
class SiteState:
    """What the coordinator knows of a site."""

    inbox: Inbox = field(default_factory=Inbox)
    vectors: list[Counts] = field(default_factory=list)  # what it told
    norms: list[Floats] = field(default_factory=list)  # where it last said that its rows are
    sent: int = 0
    joined: bool = False  # it has joined and told what it had
    waits: bool = False  # it has spoken and is to be answered
    updates: int = 0
    shown: list[Counts] | None = None  # what it has by now, as it told unasked while it waited
    now: int | None = None  # its clock, as it last said
    told_at: int | None = None  # its clock when it last told, asked or not

    @property
    def latest(self) -> list[Counts]:
        """What it told last, asked or not."""
        return self.vectors if self.shown is None else self.shown

    def hear_clock(self, elapsed: int | None) -> None:
        """So much time has passed at the site since it last said so."""
        if elapsed is not None:
            self.now = max(-MAX_COUNT, min((self.now or 0) + elapsed, MAX_COUNT))

    def write(self, out: Writer) -> None:
        """Write what is known; norms came, or would have come, as floats of four bytes."""
        out.u8(self.joined + 2 * self.waits)
        out.varint(self.sent)
        out.varint(self.updates)
        self.inbox.write(out)
        out.maybe(self.now)
        out.maybe(self.told_at)
        out.u8(self.shown is not None)
        for i, (vector, norms) in enumerate(zip(self.vectors, self.norms, strict=True)):  # none before it is here
            out.deltas(vector)
            out.f32s(norms)
            if self.shown is not None:
                out.deltas(self.shown[i])

    def read(self, source: Reader, layouts: Sequence[Layout], is_earlier: bool) -> list[Message]:
        """Read what ``write`` wrote, or as before clocks were kept; returns the messages that wait, as ``Inbox.read``."""
        flags = source.choice(0, 1, 2, 3)
        self.joined, self.waits = bool(flags & 1), bool(flags & 2)
        self.sent, self.updates = source.varint(), source.varint()
        waiting = self.inbox.read(source)
        shown: list[Counts] | None = None
        if not is_earlier:
            self.now, self.told_at = (source.maybe(-MAX_COUNT, MAX_COUNT) for _ in range(2))
            shown = [] if source.choice(0, 1) else None
            source.check(shown is None or self.joined, "numbers of a site that is not here")
        for layout in layouts if self.joined else ():
            self.vectors.append(source.deltas(layout.size))
            self.norms.append(source.f32s(layout.lines[0] * layout.lines[1]).reshape(layout.lines))
            if shown is not None:
                shown.append(source.deltas(layout.size))
        self.shown = shown
        return waiting


@dataclass(slots=True, eq=False)
class QueryState:
    """The state of a query."""

    announcement: Announcement
    region: Region = field(default_factory=lambda: Region(()))
    subround: int = 0

    def write(self, out: Writer) -> None:
        """Write it; what is announced may be older than what sites have told since."""
        said = self.announcement
        for number in (said.value, *said.tolerance):
            out.f64(number)
        out.u8(2 if said.alarm is None else said.alarm)
        for number in (said.low, said.high, said.confidence):
            out.f64(number)
        out.maybe(said.oldest)
        out.maybe(said.newest)
        self.region.write(out)
        out.varint(self.subround)

    def read(self, source: Reader, query: Query, layout: Layout, is_earlier: bool) -> None:
        """Read what ``write`` wrote, or as it was in format version 1: without bounds of the true value, and without ages."""
        value, tolerance, alarm = source.f64(), (source.f64(), source.f64()), source.choice(0, 1, 2)
        low, high, confidence = -math.inf, math.inf, 1.0
        oldest = newest = None
        if not is_earlier:
            low, high, confidence = source.f64(), source.f64(), source.f64()
            oldest, newest = (source.maybe(-MAX_COUNT, MAX_COUNT) for _ in range(2))
        source.check(not np.isnan([*tolerance, low, high]).any(), "bounds that are no numbers")
        source.check(0 <= confidence <= 1, "a confidence that is no probability")
        self.announcement = Announcement(
            value, low, high, None if alarm == 2 else bool(alarm), confidence, tolerance, oldest, newest
        )
        self.region, self.subround = read_region(source, query, layout), source.varint()
