"""The geometric method's coordinator: a site in trouble is balanced with others before anyone must tell (GM-AMS §3.6).

    idle ──Report──> balancing: ask one more site, two, four … ──their mean has room──> idle
                         └──all sites asked, and no room──> collecting

In ECM-15 §6.4 the first phase of a synchronisation collects the sites' drifts, the second their sketches.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lately.core.codec import Reader, Writer
from lately.monitor import messages as m
from lately.monitor.coordinator import ENOUGH, Activity, Coordinator
from lately.monitor.coordinator_state import SiteState
from lately.monitor.region import Region
from lately.monitor.stored import read_numbers, write_numbers
from lately.monitor.zones import Floats, to_float32

if TYPE_CHECKING:
    from lately.monitor.monitor import Monitor

#: Balancing must leave this share of the first room, or there will be trouble again at once.
BALANCED = 0.03


class GeometricCoordinator(Coordinator):
    """Balances drifts by slack vectors."""

    _understood = (m.LeaveNotice, m.DriftReport)

    def __init__(self, monitor: "Monitor", sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._about = 0
        self._next = 0
        self._centres: list[Floats] = []
        self._slacks: list[dict[int, Floats]] = []

    def _room(self, query: int, region: Region, centre: Floats, points: Floats) -> float:
        if self.monitor.layouts[self.monitor.channels[query][0]].signed:
            return region.ball_room(centre, points)
        return region.plane_room(points)

    def _is_enough(self, regions: Sequence[Region], telling: set[int]) -> bool:
        for query, region in enumerate(regions):
            mean = self._mean(query, telling)
            first = self._room(query, region, 0 * mean, 0 * mean)
            if first < math.inf and self._room(query, region, mean, mean) <= ENOUGH * first:
                return False
        return True

    def _start(self, query: int, region: Region) -> Floats:
        if query == 0:
            self._centres, self._slacks = [], []
        mean = to_float32(self._mean(query, set()))
        self._centres.append(mean)
        self._slacks.append({number: mean - self._points(query, number) for number in self.sites})
        return mean

    def _hear_about(self, number: int, peer: SiteState, message: m.QueryMessage) -> None:
        if self.activity == Activity.IDLE:
            self._about = message.query
            self._begin(Activity.BALANCING)
            self._balance()
        elif self.activity == Activity.BALANCING:
            self._pending.discard(number)
            if not self._pending:
                self._balance()
        # while collecting it waits for the reference like all others

    def _balance(self) -> None:
        """Balance those who have reported, or ask as many others again."""
        query, sites = self._about, self.sites
        reported = [number for number in sites if self._peers[number].waits]
        is_all = len(reported) == len(sites)
        region, slacks, watched = self._watched[query].region, self._slacks[query], self._watched[query]
        mean = to_float32(np.mean([self._points(query, number) + slacks[number] for number in reported], axis=0))
        centre = mean if is_all else self._centres[query]
        origin = self._centres[query]
        if self._room(query, region, centre, mean) > BALANCED * self._room(query, region, 0 * origin, 0 * origin):
            watched.subround += 1
            if is_all:
                self._centres[query] = mean
            for number in reported:
                slacks[number] = mean - self._points(query, number)
                self._peers[number].waits = False
                self._send(number, m.Balance, self.epoch, query, watched.subround, mean.ravel(), is_all)
            self._begin(Activity.IDLE)
        elif is_all:
            self._renew()
        else:
            self._ask([number for number in sites if not self._peers[number].waits], len(reported))

    def _ask(self, others: list[int], size: int) -> None:
        """Ask so many others, in turn, where their rows are."""
        start = self._next % len(others)
        chosen = (others[start:] + others[:start])[:size]
        self._next += size
        self._pending = set(chosen)
        for number in chosen:
            self._send(number, m.DriftRequest, self.epoch, self._about, self._watched[self._about].subround)

    def _write_own(self, out: Writer) -> None:
        out.varint(self._about)
        out.varint(self._next)
        out.u8(bool(self._centres))  # not before the first reference
        for centre, slacks in zip(self._centres, self._slacks, strict=True):
            out.f32s(centre)
            write_numbers(out, slacks)
            out.f64s(np.array([slacks[number] for number in sorted(slacks)]))

    def _read_own(self, source: Reader) -> None:
        queries = len(self.monitor.queries)
        self._about, self._next = source.within(source.varint(), 0, max(queries - 1, 0)), source.varint()
        for query in range(queries if source.choice(0, 1) else 0):
            layout, streams = self.monitor.about(query)[1], len(self.monitor.channels[query])
            shape = (*layout.lines, streams)
            self._centres.append(source.f32s(math.prod(shape)).reshape(shape))
            numbers, slacks = read_numbers(source), source.f64s()
            source.check(slacks.size == len(numbers) * math.prod(shape), "slacks of other sites")
            source.check(bool(np.isfinite(slacks).all()), "slack that is no number")
            self._slacks.append(dict(zip(numbers, slacks.reshape(-1, *shape), strict=True)))
