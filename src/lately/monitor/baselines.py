"""What monitors are compared with, behind the same interface: CG, sending every event, and an oracle."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError
from lately.monitor import messages as m
from lately.monitor.announcer import Promise
from lately.monitor.coordinator import Coordinator
from lately.monitor.coordinator_state import Activity, SiteState
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import Drift, WindowDrift, drift_of, read_drifts, write_drifts
from lately.monitor.messages import Message
from lately.monitor.queries import InnerProduct, Query, SelfJoin, TotalCount
from lately.monitor.region import Region
from lately.monitor.site import Site
from lately.monitor.state_bytes import read_site_numbers, write_site_numbers
from lately.monitor.truth import true_values
from lately.monitor.zones import Floats


def push_share(query: Query, eps: float, sites: int) -> float:
    """The share of its own norm by which a site may drift before it sends an update (Cormode & Garofalakis, TODS 2008).

    For vectors of counts, Σ|vᵢ| ≤ √n·|v|. So if every drift is at most c/√n of its site's vector, the drifts add up to at
    most c of |v|, and the announced norm is within c of the true one. c is what is left of theta beside eps, and a bit less
    because both norms are estimates themselves. Unlike the promise of other schemes this holds likely, not for certain, and
    for counts that are not negative.
    """
    theta = query.theta or 0.0
    if isinstance(query, TotalCount):  # all sites' counts together are at most twice those of their last updates
        return 0.5 / math.sqrt(sites)
    if isinstance(query, SelfJoin):
        share = min(math.sqrt((1 + theta) / (1 + eps)) - 1, 1 - math.sqrt((1 - theta) / (1 - eps)))
    else:  # theta is a share of both norms as of the last updates: |Δ| ≤ k·|sent| for one stream, or for two
        k = math.sqrt(1 + theta - eps) - 1 if isinstance(query, InnerProduct) else theta - eps
        share = k / (1 + k)
    return share * math.sqrt((1 - eps) / (1 + eps)) / math.sqrt(sites)


class PushPromise(Promise):
    """CG promises a distance from the truth; the estimate may be off by eps in addition."""

    def tolerance(self, query: Query, value: float, unit: float | None, alarm: bool | None) -> tuple[float, float]:
        return query.tolerance(value, unit, -self._monitor.eps, alarm)

    def growth(self, query: Query) -> float | None:
        return query.theta


class PushCoordinator(Coordinator):
    """CG: sites send updates by themselves, and are never asked."""

    promise = PushPromise

    def _start_vector(self, query: int, region: Region) -> Floats:
        return np.array([push_share(self.monitor.queries[query], self.monitor.eps, len(self.sites))])

    def _handle_update(self, number: int, state: SiteState, message: m.SketchUpdate) -> None:
        had_joined = state.joined
        super()._handle_update(number, state, message)
        if had_joined:
            self._announce()


class ShipPromise(Promise):
    """The announced value is the estimate of the sites."""

    def tolerance(self, query: Query, value: float, unit: float | None, alarm: bool | None) -> tuple[float, float]:
        return value, value

    def growth(self, query: Query) -> float | None:
        return 0.0


class ShipCoordinator(Coordinator):
    """Receives every event, and counts for all sites what they count themselves."""

    promise = ShipPromise
    accepted = (m.LeaveNotice, m.Events)

    def __init__(self, monitor: MonitorDefinition, sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._replicas: dict[int, list[Drift]] = {}

    def _handle(self, number: int, state: SiteState, message: Message) -> None:
        super()._handle(number, state, message)
        if isinstance(message, m.LeaveNotice):
            self._replicas.pop(number, None)
        elif isinstance(message, m.Events) and state.joined:
            self._count(number, state, message)

    def _count(self, number: int, state: SiteState, message: m.Events) -> None:
        """Count the events of a site in its replica, and announce the result."""
        replicas = self._replicas.setdefault(number, [drift_of(layout) for layout in self.monitor.layouts])
        advanced: Iterable[int] = range(len(replicas))  # a message without events advances all streams
        if message.hashes.size:
            advanced = self.monitor.layouts_of(message.stream)
            ticks = None if self.monitor.window is None else message.ticks
            for channel, part in self.monitor.routes(message.stream, message.hashes, None):
                if message.hashes[part].size:
                    replicas[channel].begin(message.hashes[part], None if ticks is None else ticks[part], message.counts[part])
                    replicas[channel].run()
        if message.ticks.size:
            for replica in (replicas[channel] for channel in advanced):
                if isinstance(replica, WindowDrift) and replica.now is not None and replica.now < message.ticks[-1]:
                    replica.advance(int(message.ticks[-1]))
                    replica.run()
        changes = [replica.take_changes() for replica in replicas]
        self._announcer.add(changes)
        for vector, change in zip(state.vectors, changes, strict=True):
            vector += change
        self._announce()

    def _write_scheme(self, out: Writer) -> None:
        write_site_numbers(out, self._replicas)
        for number in sorted(self._replicas):
            write_drifts(out, self._replicas[number])

    def _read_scheme(self, source: Reader) -> None:
        size = 0
        for number in read_site_numbers(source):
            self._replicas[number] = [drift_of(layout) for layout in self.monitor.layouts]
            size = read_drifts(source, self._replicas[number], size)


class OraclePromise(Promise):
    """Nothing limits what sites count as long as the estimate is within its tolerance."""

    def growth(self, query: Query) -> float | None:
        return math.inf


class OracleCoordinator(Coordinator):
    """Sees the sites themselves, and requests updates only when an estimate has really left its tolerance."""

    promise = OraclePromise

    def __init__(self, monitor: MonitorDefinition, sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._visible_sites: Sequence[Site] = ()
        self._referenced: set[int] = set()  # the sites that have a reference

    def look(self, sites: Sequence[Site]) -> list[Message]:
        """Look at all sites; returns the messages to send. The simulator calls this after every step."""
        self._visible_sites = sites
        if self.activity == Activity.IDLE and not self._has_enough_room([], set()):
            self._synchronise()
        return self._members.take_outbox()

    def _has_enough_room(self, regions: Sequence[Region], updating: set[int]) -> bool:
        if updating:
            return True  # one more at a time: only its update shows whether it is enough
        truth = true_values(self.monitor, [site for site in self._visible_sites if site.number in self._members.states])
        return all(announced.tolerates(truth[name]) for name, announced in self.announcements().items())

    def _next_to_update(self, regions: Sequence[Region]) -> list[int]:
        updates = {site.number: sum(drift.updates for drift in site.drifts) for site in self._visible_sites}
        rest = super()._next_to_update(regions)
        return sorted(rest, key=lambda number: (-updates.get(number, 0), number))[:1]

    def _send_reference(self) -> None:
        """Sites need no limits; the reference only tells new ones that they are monitored."""
        self._has_changed_sites = False
        self.epoch = 1
        no_limits = tuple(m.Limits(0, np.zeros(0), np.zeros(0)) for _ in self.monitor.queries)
        for number in set(self.sites) - self._referenced:
            self._members.send(number, m.Reference, 1, no_limits)
        self._referenced.update(self.sites)
        self._announce()
        self._begin(Activity.IDLE)

    def _write_scheme(self, out: Writer) -> None:
        if self.activity == Activity.COLLECTING:
            raise InputError(
                "an oracle looks at the sites themselves while it collects", remedy="carry all messages first, then store it"
            )
        write_site_numbers(out, self._referenced)

    def _read_scheme(self, source: Reader) -> None:
        source.check(self.activity != Activity.COLLECTING, "an oracle that collects")
        self._referenced = set(read_site_numbers(source))
