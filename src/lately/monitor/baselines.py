"""What monitors are measured against, behind the same interface: CG, shipping everything, and an oracle."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError
from lately.monitor import messages as m
from lately.monitor.coordinator import Activity, Coordinator
from lately.monitor.coordinator_state import SiteState
from lately.monitor.drift import Drift, WindowDrift, drift_of
from lately.monitor.messages import Message
from lately.monitor.queries import InnerProduct, Query, SelfJoin, TotalCount
from lately.monitor.region import Region
from lately.monitor.stored import read_drifts, read_numbers, write_drifts, write_numbers
from lately.monitor.zones import Floats

if TYPE_CHECKING:
    from lately.monitor.monitor import Monitor
    from lately.monitor.site import Site


def push_share(query: Query, eps: float, sites: int) -> float:
    """By which share of its own norm a site's drift may differ from what it told (Cormode & Garofalakis, TODS 2008).

    With vectors of counts, Σ|vᵢ| ≤ √n·|v|. So if every drift is at most c/√n of its site's vector, the drifts add up to at
    most c of |v|, and the announced norm is within c of the true one. c is what is left of theta beside eps, and a bit less
    because both norms are estimates themselves. Unlike the other schemes' promise this holds likely, not for certain, and
    for counts that are not negative.
    """
    theta = query.theta or 0.0
    if isinstance(query, TotalCount):  # all sites' counts together are at most twice what was told
        return 0.5 / math.sqrt(sites)
    if isinstance(query, SelfJoin):
        share = min(math.sqrt((1 + theta) / (1 + eps)) - 1, 1 - math.sqrt((1 - theta) / (1 - eps)))
    else:  # theta is a share of both norms as they were told: |Δ| ≤ k·|told| for one stream, or for two
        k = math.sqrt(1 + theta - eps) - 1 if isinstance(query, InnerProduct) else theta - eps
        share = k / (1 + k)
    return share * math.sqrt((1 - eps) / (1 + eps)) / math.sqrt(sites)


class PushCoordinator(Coordinator):
    """CG: sites push what has changed when they see fit, and are never asked."""

    def _tolerance(self, query: Query, value: float, unit: float | None, alarm: bool | None) -> tuple[float, float]:
        """The promise is about the truth; the estimate may be off by eps on top."""
        return query.interval(value, unit, -self.monitor.eps, alarm)

    def _growth(self, query: Query) -> float | None:
        return query.theta

    def _start(self, query: int, region: Region) -> Floats:
        return np.array([push_share(self.monitor.queries[query], self.monitor.eps, len(self.sites))])

    def _hear_told(self, number: int, peer: SiteState, message: m.SketchUpdate) -> None:
        known = peer.joined
        super()._hear_told(number, peer, message)
        if known:
            self._announce(len(self.sites))


class ShipCoordinator(Coordinator):
    """Every event is sent; the coordinator counts for all sites what they count themselves."""

    _understood = (m.LeaveNotice, m.Events)

    def __init__(self, monitor: "Monitor", sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._replicas: dict[int, list[Drift]] = {}

    def _tolerance(self, query: Query, value: float, unit: float | None, alarm: bool | None) -> tuple[float, float]:
        """It is what the sites would say."""
        return value, value

    def _growth(self, query: Query) -> float | None:
        return 0.0

    def _hear(self, number: int, peer: SiteState, message: Message) -> None:
        super()._hear(number, peer, message)
        if isinstance(message, m.LeaveNotice):
            self._replicas.pop(number, None)
        elif isinstance(message, m.Events) and peer.joined:
            self._count(number, peer, message)

    def _count(self, number: int, peer: SiteState, message: m.Events) -> None:
        replicas = self._replicas.setdefault(number, [drift_of(layout) for layout in self.monitor.layouts])
        reached: Iterable[int] = range(len(replicas))  # of time alone all streams are told
        if message.hashes.size:
            reached = self.monitor.layouts_of(message.stream)
            ticks = None if self.monitor.window is None else message.ticks
            for channel, mine in self.monitor.routes(message.stream, message.hashes, None):
                if message.hashes[mine].size:
                    replicas[channel].begin(message.hashes[mine], None if ticks is None else ticks[mine], message.counts[mine])
                    replicas[channel].run()
        if message.ticks.size:
            for one in (replicas[channel] for channel in reached):
                if isinstance(one, WindowDrift) and one.now is not None and one.now < message.ticks[-1]:
                    one.advance(int(message.ticks[-1]))
                    one.run()
        for i, one in enumerate(replicas):
            changed = one.tell()
            self._sums[i] += changed
            peer.vectors[i] += changed
        self._announce(len(self.sites))

    def _write_own(self, out: Writer) -> None:
        write_numbers(out, self._replicas)
        for number in sorted(self._replicas):
            write_drifts(out, self._replicas[number])

    def _read_own(self, source: Reader) -> None:
        size = 0
        for number in read_numbers(source):
            self._replicas[number] = [drift_of(layout) for layout in self.monitor.layouts]
            size = read_drifts(source, self._replicas[number], size)


class OracleCoordinator(Coordinator):
    """Knows what no coordinator can, and has sites tell only when an estimate has truly left its tolerance."""

    def __init__(self, monitor: "Monitor", sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._seen: Sequence[Site] = ()
        self._referred: set[int] = set()

    def look(self, sites: Sequence["Site"]) -> list[Message]:
        """Look at all sites; returns what to send. The simulator calls this after every step."""
        self._seen = sites
        if self.activity == Activity.IDLE and not self._is_enough([], set()):
            self._renew()
        return self._sent()

    def _is_enough(self, regions: Sequence[Region], telling: set[int]) -> bool:
        truth = self.monitor.truth([site for site in self._seen if site.number in self._peers])
        if not telling:
            return all(announced.tolerates(truth[name]) for name, announced in self.announcements().items())
        return True  # one more at a time: only having told shows whether it is enough

    def _growth(self, query: Query) -> float | None:
        """Nothing limits what sites count as long as the estimate is within its tolerance."""
        return math.inf

    def _next_to_tell(self, regions: Sequence[Region]) -> list[int]:
        updates = {site.number: sum(drift.updates for drift in site.drifts) for site in self._seen}
        return sorted((n for n in self.sites if n not in self._told), key=lambda n: (-updates.get(n, 0), n))[:1]

    def _refer(self) -> None:
        """Sites need no limits; they learn only that they are watched."""
        self._changed = False
        self.epoch = 1
        for number in set(self.sites) - self._referred:
            self._send(number, m.Reference, 1, tuple(m.Limits(0, np.zeros(0), np.zeros(0)) for _ in self._watched))
        self._referred.update(self.sites)
        self._announce(len(self.sites))
        self._begin(Activity.IDLE)

    def _write_own(self, out: Writer) -> None:
        if self.activity == Activity.COLLECTING:
            raise InputError(
                "an oracle looks at the sites themselves while it collects; carry what they have to say, then store it"
            )
        write_numbers(out, self._referred)

    def _read_own(self, source: Reader) -> None:
        source.check(self.activity != Activity.COLLECTING, "an oracle that collects")
        self._referred = set(read_numbers(source))
