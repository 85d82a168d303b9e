"""The coordinator: announces the estimates, and hears from a site when its limits no longer make them good.

    starting ──all have joined──> idle ──a scheme's own business──> idle
                                    └──limits used up──> collecting ──enough sites have told──> idle

Collecting ends with a new reference for all queries at once. A site that speaks in between waits and is answered with the
others. Sites that come or go make everyone tell, because limits depend on how many there are.

A site that does not answer holds this up. Those that wait for it tell by themselves when they have changed much; from then on
what they told is announced as what is known: bounds that hold whatever the missing site counts, and alarms that they prove.
"""

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError, MergeError, ParameterError
from lately.counters.base import MAX_COUNT, Counts
from lately.monitor import messages as m
from lately.monitor.announcement import NOTHING, Announcement, span_of
from lately.monitor.coordinator_state import QueryState, SiteState
from lately.monitor.frequent import Items
from lately.monitor.messages import Limits, Message
from lately.monitor.queries import Query, norms_of
from lately.monitor.region import Region, limits_of, region_of
from lately.monitor.stored import SITES, coordinator_bytes
from lately.monitor.true_bounds import Evidence, true_bounds
from lately.monitor.zones import Floats, to_float32

if TYPE_CHECKING:
    from lately.monitor.monitor import Monitor

#: Lazily, sites tell until the drift of the others leaves this share of the room.
ENOUGH = 0.25


class Activity(StrEnum):
    """What a coordinator is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BALANCING = "balancing"
    POLLING = "polling"
    GATHERING = "gathering"
    COLLECTING = "collecting"


class Coordinator:
    """Base of the coordinators; ``Monitor.coordinator`` makes the one of its scheme.

    ``receive`` takes a message of a site and returns those to be carried to sites (each says to which).

    >>> from lately.monitor import FastAms, Monitor, SelfJoin
    >>> watch = Monitor(FastAms(eps=0.1, delta=0.1, seed=1), {"skew": SelfJoin(theta=0.2)})
    >>> coordinator = watch.coordinator(sites=[1])
    >>> replies = [coordinator.receive(message) for message in watch.site(1).update(["a", "a", "b"])]
    >>> coordinator["skew"].value, coordinator.activity.value, coordinator.sites
    (5.0, 'idle', [1])
    """

    def __init__(self, monitor: "Monitor", sites: Sequence[int]) -> None:
        if isinstance(sites, int):
            raise ParameterError(f"sites={sites!r}: give the numbers of the sites, such as range({sites})")
        numbers = list(sites)
        if not numbers or len(set(numbers)) != len(numbers):
            raise ParameterError(f"sites={sites!r}: give the numbers of the sites to begin with, each once")
        self.monitor = monitor
        self.activity = Activity.STARTING
        self.epoch = 0
        self._peers: dict[int, SiteState] = {}
        self._present: list[int] = []  # the sites that are here, in order
        self._is_outdated = False  # more is known than what is announced while sites are awaited
        self._expected = set(numbers)
        self._sums: list[Counts] = [np.zeros(layout.size, np.int64) for layout in monitor.layouts]
        self._watched = [QueryState(NOTHING) for _ in monitor.queries]
        self._pending: set[int] = set()
        self._told: set[int] = set()
        self._births: dict[int, int] = {}
        self._gone: set[int] = set()  # what still comes of these came too late
        self._changed = False  # sites came or went since the last reference
        self._blocked = False  # a site has waited so long that it told unasked
        self._items = Items(monitor.frequent[1]) if monitor.frequent else None
        self._out: list[Message] = []
        #: How often each activity was begun.
        self.synchronisations: Counter[str] = Counter()
        #: Messages that were about something over and done.
        self.ignored = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.sites)} sites, {self.activity}, epoch={self.epoch})"

    @property
    def sites(self) -> list[int]:
        """The sites that are watched."""
        return list(self._present)

    @property
    def awaited(self) -> list[int]:
        """The sites whose answer is awaited; one that stays here has died, or its messages are not carried."""
        return sorted(self._pending | self._expected | (set() if self._items is None else self._items.awaited))

    def __getitem__(self, name: str) -> Any:
        announced = self.announcements()
        if name not in announced:
            raise InputError(f"no query {name!r}; the monitor has {', '.join(map(repr, announced))}")
        return announced[name]

    def announcements(self) -> dict[str, Any]:
        """What is announced now, by the names of the queries: an ``Announcement`` each, or ``FrequentKeys``."""
        awaited = tuple(sorted(self._pending | self._expected))
        said: dict[str, Any] = {
            name: replace(watched.announcement, awaited=awaited)
            for name, watched in zip(self.monitor.names, self._watched, strict=False)
        }
        if self._items is not None and self.monitor.frequent is not None:
            asked = tuple(sorted(self._items.awaited | self._expected))
            said[self.monitor.frequent[0]] = replace(self._items.announcements(), awaited=asked)
        return said

    def to_bytes(self) -> bytes:
        """All that it knows, at any moment between two calls; ``Monitor.restore`` makes a coordinator of it that goes on so.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> watch = Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> watch.restore(watch.coordinator(sites=[1, 2]).to_bytes()).awaited
        [1, 2]
        """
        return coordinator_bytes(self)

    def _write_own(self, out: Writer) -> None:
        """Write what this scheme has besides."""

    def _read_own(self, source: Reader) -> None:
        """Read what ``_write_own`` wrote."""

    # -- messages ------------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[Message]:
        """Take what a site sent; returns what to send to sites. What is refused changes nothing."""
        return self.receive_all([message])

    def receive_all(self, messages: Iterable[Message]) -> list[Message]:
        """Take many messages, in this order; returns what to send to sites.

        While sites are awaited, what the others prove is announced once, after the last of the messages. So thousands of sites
        that join at a time cost in proportion to their number; with a call of ``receive`` for each, to its square.

        Args:
            messages: what sites sent. One that is refused changes nothing, and those after it are not taken; replies to those
                before it are returned by the next call.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> watch = Monitor(FastAms(eps=0.1, delta=0.1, seed=1), {"skew": SelfJoin(theta=0.2)})
        >>> coordinator, sites = watch.coordinator(sites=range(3)), [watch.site(number) for number in range(3)]
        >>> replies = coordinator.receive_all([message for site in sites for message in site.update(["a", "b"])])
        >>> coordinator["skew"].value, [reply.site for reply in replies]
        (18.0, [0, 1, 2])
        """
        try:
            for message in messages:
                self._receive(message)
        finally:
            if self._is_outdated:
                self._announce_known()
        return self._sent()

    def _receive(self, message: Message) -> None:
        m.must_be_message(message)
        number = message.site
        if message.to_site:
            raise InputError(f"a {type(message).__name__} for site {number} came to the coordinator; carry it there")
        if isinstance(message, m.JoinRequest) and self._births.get(number, message.birth) != message.birth:
            raise InputError(
                f"another site has used the number {number}; call remove({number}) if it is no more, "
                "and give the new one a number of its own"
            )
        if number in self._gone:
            self.ignored += 1
            return
        self._check(message)
        if isinstance(message, m.JoinRequest):
            self._births[number] = message.birth
        peer = self._peers.setdefault(number, SiteState())
        for ready in peer.inbox.take(message):
            self._hear(number, peer, ready)

    def remove(self, number: int) -> list[Message]:
        """Go on without a site that will not be heard of again; returns what to send to the others."""
        if number not in self._peers and number not in self._expected:
            raise InputError(f"no site has the number {number}; those here have {self.sites}")
        self._leave(number)
        if self._is_outdated:
            self._announce_known()
        return self._sent()

    def _sent(self) -> list[Message]:
        out, self._out = self._out, []
        return out

    def _check(self, message: Message) -> None:
        """Refuse what this coordinator's sites would not say."""
        layouts = self.monitor.layouts
        if message.site >= SITES:
            raise InputError(f"a message of site {message.site}; number sites from 0 to 2**48 - 1")
        if (message.sequence == 1) != isinstance(message, m.JoinRequest):
            raise InputError(f"site {message.site} began with a {type(message).__name__}, or joined twice; it must join first")
        if isinstance(message, m.JoinRequest):
            if message.built != self.monitor.fingerprint:
                raise MergeError(
                    f"site {message.site} was built for another monitor than this coordinator; build both from one Monitor(…), "
                    "or alike and with the same seed"
                )
        elif isinstance(message, m.SketchUpdate):
            sizes = [None if isinstance(change, tuple) else change.size for change in message.changes]
            if len(sizes) != len(layouts) or any(
                size not in (None, layout.size) for size, layout in zip(sizes, layouts, strict=True)
            ):
                raise MergeError(f"site {message.site} told of other streams than this coordinator has; build them alike")
            self._check_size(message)
        elif isinstance(message, m.DriftReport):
            if message.numbers.size != sum(math.prod(layout.lines) for layout in layouts):
                raise MergeError(f"site {message.site} reported {message.numbers.size} numbers; build it like this coordinator")
        elif isinstance(message, m.SafeFunctionReport) and message.numbers.size != 1:
            raise InputError(f"site {message.site} sent a pressure of {message.numbers.size} numbers; build it alike")
        elif isinstance(message, m.Events) and message.stream >= len(self.monitor.streams):
            raise InputError(f"site {message.site} sent events of stream {message.stream}; build it like this coordinator")
        elif isinstance(message, m.KeyCount) and self._items is not None:
            pass
        elif not isinstance(message, self._understood):
            raise InputError(f"a {type(message).__name__} came to a coordinator that does not watch that way; build all alike")

    def _check_size(self, message: m.SketchUpdate) -> None:
        """Refuse numbers that would not fit into 64 bits with those of the other sites."""
        for total, change in zip(self._sums, message.changes, strict=True):
            if isinstance(change, tuple):  # keys, which may all fall into one number
                largest = float(np.abs(total).max()) + float(np.abs(change[1].astype(np.float64)).sum())
            else:
                largest = float(np.abs(total + change.astype(np.float64)).max())
            if largest > MAX_COUNT:
                raise InputError(
                    f"with what site {message.site} told, a number is more than 2**62 over all sites; scale the counts down"
                )

    _understood: tuple[type[Message], ...] = (m.LeaveNotice,)

    def _hear(self, number: int, peer: SiteState, message: Message) -> None:
        if isinstance(message, m.SketchUpdate | m.KeyCount):
            peer.hear_clock(message.elapsed)
        if isinstance(message, m.LeaveNotice):
            self._leave(number)
        elif isinstance(message, m.SketchUpdate):
            self._hear_told(number, peer, message)
        elif isinstance(message, m.QueryMessage):
            if not peer.joined or message.epoch != self.epoch or message.query >= len(self._watched):
                self.ignored += 1
                return
            if isinstance(message, m.DriftReport):
                self._note(peer, message)
            self._hear_about(number, peer, message)
        elif isinstance(message, m.KeyCount) and self._items is not None and peer.joined:
            self._items.hear(self, message, peer.now)

    def _hear_about(self, number: int, peer: SiteState, message: m.QueryMessage) -> None:
        """A site says something of a query under the limits of now; where there are none, it has nothing to say."""
        self.ignored += 1

    def _send(self, number: int, kind: type[Message], *content: Any) -> None:
        peer = self._peers[number]
        peer.sent += 1
        self._out.append(kind(number, peer.sent, *content))

    def _begin(self, activity: Activity, pending: Iterable[int] = ()) -> None:
        self.activity, self._pending = activity, set(pending)
        if activity != Activity.IDLE:
            self.synchronisations[activity] += 1

    # -- what sites tell -----------------------------------------------------------------------------------------------

    def _note(self, peer: SiteState, message: m.DriftReport) -> None:
        """Note where a site's rows are."""
        at, peer.waits, peer.updates = 0, True, message.updates
        for i, layout in enumerate(self.monitor.layouts):
            size = math.prod(layout.lines)
            peer.norms[i] = message.numbers[at : at + size].reshape(layout.lines)
            at += size

    def _hear_told(self, number: int, peer: SiteState, message: m.SketchUpdate) -> None:
        if message.unsolicited:
            self._hear_unasked(peer, message)
            return
        if not peer.joined:
            peer.vectors = [np.zeros(layout.size, np.int64) for layout in self.monitor.layouts]
            peer.norms = [np.zeros(layout.lines) for layout in self.monitor.layouts]
        for i, (layout, change) in enumerate(zip(self.monitor.layouts, message.changes, strict=True)):
            numbers = layout.sketch(*change) if isinstance(change, tuple) else change
            peer.vectors[i] += numbers
            self._sums[i] += numbers
            peer.norms[i] = np.zeros(layout.lines)
        peer.waits, peer.updates, peer.shown, peer.told_at = True, 0, None, peer.now
        self._told.add(number)
        if not peer.joined:
            peer.joined, self._changed = True, True
            insort(self._present, number)
            self._expected.discard(number)
            if self.activity == Activity.STARTING:
                if not self._expected:
                    self._refer()
                elif self.monitor.impatience:
                    self._is_outdated = True
            elif self.activity != Activity.COLLECTING:
                self._collect(other for other in self.sites if other != number)
                self._told.add(number)
        else:
            self._pending.discard(number)
            if self.activity == Activity.COLLECTING and not self._pending:
                self._collected()
        if self._blocked:
            self._is_outdated = True

    def _hear_unasked(self, peer: SiteState, message: m.SketchUpdate) -> None:
        """A site has waited so long that it told by itself: somebody may have died, unless its answer is on the way."""
        is_waiting = message.epoch == self.epoch or (message.epoch == 0 and peer.waits)  # the latter has joined meanwhile
        if not peer.joined or not is_waiting or self.activity == Activity.IDLE:
            self.ignored += 1
            return
        changes = zip(self.monitor.layouts, message.changes, peer.vectors, strict=True)
        peer.shown = [told + (layout.sketch(*one) if isinstance(one, tuple) else one) for layout, one, told in changes]
        if self.activity == Activity.STARTING:
            self._refer()  # begin without those who have not joined yet
            return
        peer.told_at = peer.now
        if self.activity != Activity.COLLECTING:
            self._collect(self.sites)
        self._blocked = self._is_outdated = True

    def _leave(self, number: int) -> None:
        peer = self._peers.pop(number, SiteState())
        if peer.joined:
            self._present.remove(number)
        for total, mine in zip(self._sums, peer.vectors, strict=False):  # none, if it has not told anything yet
            total -= mine
        self._gone.add(number)
        self._expected.discard(number)
        self._pending.discard(number)
        self._changed = True
        if self._items is not None:
            self._items.forget(self, number)
        if not self.sites and (self.activity != Activity.STARTING or not self._expected):
            self._begin(Activity.STARTING)
            for watched in self._watched:
                watched.announcement = NOTHING
            self._is_outdated = False
        elif self.activity == Activity.COLLECTING:
            if not self._pending:
                self._collected()
        elif self.activity != Activity.STARTING:
            self._collect(self.sites)
        elif not self._expected and self.sites:
            self._refer()
        if self._pending and self.monitor.impatience:  # what was announced had the part of this site in it
            self._blocked = self._is_outdated = True

    # -- a new reference -----------------------------------------------------------------------------------------------

    def _collect(self, sites: Iterable[int]) -> None:
        """Have these sites tell what has changed."""
        if self.activity != Activity.COLLECTING:
            self._told = set()
        self._begin(Activity.COLLECTING, sites)
        for number in sorted(self._pending):
            self._send(number, m.UpdateRequest, self.epoch)

    def _renew(self) -> None:
        """The limits are used up: have all sites tell, or lazily as few as will do."""
        if self.monitor.flush == "lazy" and not self._changed:
            self._told = set()
            self._collect(self._next_to_tell([watched.region for watched in self._watched]))
        else:
            self._collect(self.sites)

    def _collected(self) -> None:
        """Those who were asked have told; see whether it is enough."""
        rest = [number for number in self.sites if number not in self._told]
        if rest and (self._changed or self.monitor.flush == "eager"):
            self._collect(rest)
            return
        if rest:
            regions = [region for _, region in self._announce(len(self.sites))]
            if not self._is_enough(regions, set()):
                self._collect(self._next_to_tell(regions))
                return
        self._refer()

    def _next_to_tell(self, regions: Sequence[Region]) -> list[int]:
        """As few sites as will leave enough room, those with most changes first; judged by limits that will change a bit."""
        rest = sorted((n for n in self.sites if n not in self._told), key=lambda n: (-self._peers[n].updates, n))
        low, high = 1, len(rest)
        while low < high:
            middle = (low + high) // 2
            if self._is_enough(regions, set(rest[:middle])):
                high = middle
            else:
                low = middle + 1
        return rest[:low]

    def _points(self, query: int, number: int) -> Floats:
        """Where a site said that the rows of a query are."""
        return np.stack([self._peers[number].norms[i] for i in self.monitor.channels[query]], axis=-1)

    def _mean(self, query: int, without: set[int]) -> Floats:
        sites = self.sites
        points = np.stack([self._points(query, number) * (number not in without) for number in sites])
        mean: Floats = points.mean(axis=0)
        return mean

    def _is_enough(self, regions: Sequence[Region], telling: set[int]) -> bool:
        """Whether there would be enough room if these sites told what has changed; without limits there always is."""
        return True

    def _start(self, query: int, region: Region) -> Floats:
        """From where sites are to go on; without limits they need not know."""
        return np.zeros(0)

    def _tolerance(self, query: Query, value: float, unit: float | None, alarm: bool | None) -> tuple[float, float]:
        """Where an estimate that was ``value`` is promised to stay, with the alarm in this state."""
        return query.interval(value, unit, self.monitor.eps, alarm)

    def _growth(self, query: Query) -> float | None:
        """By which share norms and totals may have grown since they were told; None: as far as limits allow."""
        return None

    def _bound(self) -> None:
        """Work out the bounds of the true values from what sites told, where the announced tolerances hold."""
        oldest, newest = self._ages()
        totals = {
            stream: true_bounds(self.monitor.queries[number], self._evidence(number, ()))[1]
            for stream, number in self.monitor.totals.items()
        }
        for number, watched in enumerate(self._watched[: len(self.monitor.names)]):
            query = self.monitor.queries[number]
            known = tuple(totals[stream] for stream in query.streams(self.monitor.streams) if stream in totals)
            low, high, confidence = true_bounds(query, self._evidence(number, known))
            watched.announcement = replace(
                watched.announcement, low=low, high=high, confidence=confidence, oldest=oldest, newest=newest
            )

    def _evidence(self, number: int, totals: tuple[float, ...]) -> Evidence:
        query, layout = self.monitor.about(number)
        tables = self.monitor.tables(number, self._sums)
        tolerance, growth = self._watched[number].announcement.tolerance, self._growth(query)
        if growth == math.inf and number >= len(self.monitor.names):  # nobody keeps totals within their tolerance
            tolerance = (0.0, math.inf)
        return Evidence(layout, self.monitor.sketch.delta, tables, tolerance, growth, totals)

    def _announce(self, sites: int) -> list[tuple[Limits, Region]]:
        """Announce what is known; returns the limits that keep it good for so many sites."""
        made = []
        self._is_outdated = False
        for number, (query, watched) in enumerate(zip(self.monitor.queries, self._watched, strict=True)):
            layout = self.monitor.layouts[self.monitor.channels[number][0]]
            tables = self.monitor.tables(number, self._sums)
            value, before = query.estimate(tables, layout), watched.announcement.alarm
            alarm = query.alarm(value, before, self.monitor.eps)
            tolerance = self._tolerance(query, value, query.unit(tables, layout), alarm)
            if self._expected:  # those who have not joined may count anything
                alarm = query.flipped((query.flipped(alarm) and query.only_grows(layout)) or query.flipped(before))
            watched.announcement = Announcement(value, -math.inf, math.inf, alarm, tolerance=tolerance)
            limits = limits_of(query, tolerance, tables, layout, max(sites, 1))
            made.append((limits, region_of(query, layout, limits)))
        self._bound()
        for number, watched in enumerate(self._watched if self._expected else ()):
            low = (
                watched.announcement.low
                if self.monitor.queries[number].only_grows(self.monitor.about(number)[1])
                else -math.inf
            )
            watched.announcement = replace(watched.announcement, low=low, high=math.inf)
        return made

    def _ages(self) -> tuple[int | None, int | None]:
        """The oldest and the newest tick at which a site told what is added up."""
        return span_of([peer.told_at for peer in self._peers.values() if peer.joined])

    def _announce_known(self) -> None:
        """Announce what those who have told prove, while others are awaited; an alarm changes only if they prove it wrong."""
        self._is_outdated = False
        (oldest, newest), window = self._ages(), self.monitor.window
        known = [
            peer.latest
            for number, peer in self._peers.items()
            if peer.joined and (peer.shown is not None or number in self._told)
            # One that waits tells again before all that it counted has left the window.
            if window is None or newest is None or peer.told_at is None or newest - peer.told_at <= window.ticks
        ]
        latest = [
            sum((peer.latest[i] for peer in self._peers.values() if peer.joined), 0 * s) for i, s in enumerate(self._sums)
        ]
        totals = {stream: self._known_total(number, known) for stream, number in self.monitor.totals.items()}
        for number, watched in enumerate(self._watched[: len(self.monitor.names)]):
            (query, layout), before = self.monitor.about(number), watched.announcement.alarm
            said = Announcement(self.monitor.estimate(number, latest), -math.inf, math.inf, before)
            if query.only_grows(layout):
                tables, falls = self._known_rows(number, known)
                least, estimate = query.least(tables, layout, falls), query.estimate(tables, layout)
                most = tuple(totals[stream] for stream in query.streams(self.monitor.streams) if stream in totals)
                growth = _growth_of(tables, falls, layout.signed)
                evidence = Evidence(layout, self.monitor.sketch.delta, tables, (least, math.inf), growth, most)
                low, _, confidence = true_bounds(query, evidence)
                is_above = query.flipped(True)  # the state of the alarm while the value is above its line
                edge = query.interval(estimate, None, self.monitor.eps, is_above)[0]
                is_proven = query.line is not None and estimate >= query.line and least >= edge
                said = replace(
                    said, low=low, confidence=confidence, tolerance=(least, math.inf), alarm=is_above if is_proven else before
                )
            watched.announcement = replace(said, oldest=oldest, newest=newest)

    def _known_rows(self, number: int, known: Sequence[Sequence[Counts]]) -> tuple[list[Floats], list[Floats]]:
        """What a query reads of some sites, added up, and how far the rows can be from that before one of them tells again."""
        sums = [sum((vectors[i] for vectors in known), 0 * total) for i, total in enumerate(self._sums)]
        tables, each = self.monitor.tables(number, sums), [self.monitor.tables(number, vectors) for vectors in known]
        share = self.monitor.impatience / (1 - self.monitor.impatience)  # of what it was, not of what it is
        return tables, [share * sum((norms_of(one[i]) for one in each), np.zeros(len(table))) for i, table in enumerate(tables)]

    def _known_total(self, number: int, known: Sequence[Sequence[Counts]]) -> float:
        """The most arrivals that some sites can have counted in a stream."""
        query, layout = self.monitor.about(number)
        tables, falls = self._known_rows(number, known)
        tolerance = (0.0, float(tables[0][0, 0] + falls[0][0]))
        return true_bounds(query, Evidence(layout, self.monitor.sketch.delta, tables, tolerance))[1]

    def _refer(self) -> None:
        """Send everyone a new reference."""
        self.epoch += 1
        changed, self._changed = self._changed, False
        self._blocked = False
        for peer in self._peers.values():
            peer.shown = None
        limits, cap = [], 0 if self._items is None else self._items.cap(len(self.sites))
        for number, (plain, region) in enumerate(self._announce(len(self.sites))):
            self._watched[number].region, self._watched[number].subround = region, 0
            limits.append(Limits(plain.sides, plain.zones, to_float32(self._start(number, region)).ravel()))
        for number in self.sites:
            self._peers[number].waits = False
            self._send(number, m.Reference, self.epoch, tuple(limits), cap)
        if changed and self._items is not None:
            self._items.again(self)
        self._begin(Activity.IDLE)


def _growth_of(tables: Sequence[Floats], moves: Sequence[Floats], signed: bool) -> float:
    """By which share the norms of rows, and the sums of those without signs, can have grown when they moved so far."""
    growth = 0.0
    for table, move in zip(tables, moves, strict=True):
        sizes = norms_of(table) if signed else table.sum(axis=1)
        longest = move if signed else move * math.sqrt(table.shape[1])
        growth = max(growth, *np.where(sizes > 0, longest / np.maximum(sizes, 1e-300), np.where(move > 0, math.inf, 0.0)))
    return float(growth)
