"""The coordinator of the geometric method: a site that leaves its safe zone is balanced with others first (GM-AMS §3.6).

    idle ──DriftReport──> balancing: ask one more site, two, four … ──their mean has room──> idle
                              └──all sites asked, and no room──> collecting

In ECM-15 §6.4 the first phase of a synchronisation collects the sites' drifts, the second their sketches.
"""

import math
from collections.abc import Sequence

import numpy as np

from lately.core.codec import Reader, Writer
from lately.monitor import messages as m
from lately.monitor.coordinator_state import Activity, SiteState
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift_coordinator import ENOUGH_ROOM, DriftCoordinator
from lately.monitor.region import Region
from lately.monitor.state_bytes import read_site_numbers, write_site_numbers
from lately.monitor.zones import Floats, to_float32

#: The minimum room after balancing, as a share of the initial room; with less, a site would report again at once.
MIN_ROOM_AFTER_BALANCING = 0.03


class GeometricCoordinator(DriftCoordinator):
    """Balances drifts by slack vectors; ``Coordinator`` documents the parameters."""

    accepted = (m.LeaveNotice, m.DriftReport)

    def __init__(self, monitor: MonitorDefinition, sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._balanced_query = 0
        self._next_position = 0  # which site is asked next
        self._centres: list[Floats] = []
        self._slacks: list[dict[int, Floats]] = []

    def _room(self, query: int, region: Region, centre: Floats, points: Floats) -> float:
        """How far the mean drift may still move."""
        if self.monitor.query_and_layout(query)[1].signed:
            return region.ball_distance(centre, points)
        return region.plane_distance(points)

    def _has_enough_room(self, regions: Sequence[Region], updating: set[int]) -> bool:
        for query, region in enumerate(regions):
            mean = self._mean_norms(query, updating)
            first = self._room(query, region, 0 * mean, 0 * mean)
            if first < math.inf and self._room(query, region, mean, mean) <= ENOUGH_ROOM * first:
                return False
        return True

    def _start_vector(self, query: int, region: Region) -> Floats:
        if query == 0:
            self._centres, self._slacks = [], []
        mean = to_float32(self._mean_norms(query, set()))
        self._centres.append(mean)
        self._slacks.append({number: mean - self._reported_norms(query, number) for number in self.sites})
        return mean

    def _handle_query(self, number: int, state: SiteState, message: m.QueryMessage) -> None:
        if self.activity == Activity.IDLE:
            self._balanced_query = message.query
            self._begin(Activity.BALANCING)
            self._balance()
        elif self.activity == Activity.BALANCING:
            self._pending.discard(number)
            if not self._pending:
                self._balance()
        # while collecting, the site waits for the reference like all others

    def _balance(self) -> None:
        """Balance the sites that have reported or, if that is not enough, ask as many more."""
        query, sites = self._balanced_query, self.sites
        site_states, state = self._members.states, self._announcer.queries[self._balanced_query]
        reported = [number for number in sites if site_states[number].waits]
        is_all = len(reported) == len(sites)
        region, slacks = state.region, self._slacks[query]
        mean = to_float32(np.mean([self._reported_norms(query, number) + slacks[number] for number in reported], axis=0))
        centre = mean if is_all else self._centres[query]
        origin = self._centres[query]
        if self._room(query, region, centre, mean) > MIN_ROOM_AFTER_BALANCING * self._room(
            query, region, 0 * origin, 0 * origin
        ):
            state.subround += 1
            if is_all:
                self._centres[query] = mean
            for number in reported:
                slacks[number] = mean - self._reported_norms(query, number)
                site_states[number].waits = False
                self._members.send(number, m.Balance, self.epoch, query, state.subround, mean.ravel(), is_all)
            self._begin(Activity.IDLE)
        elif is_all:
            self._synchronise()
        else:
            self._request_drifts([number for number in sites if not site_states[number].waits], len(reported))

    def _request_drifts(self, others: list[int], size: int) -> None:
        """Request the drifts of ``size`` other sites, in turn."""
        start = self._next_position % len(others)
        requested = (others[start:] + others[:start])[:size]
        self._next_position += size
        self._pending = set(requested)
        query = self._balanced_query
        for number in requested:
            self._members.send(number, m.DriftRequest, self.epoch, query, self._announcer.queries[query].subround)

    def _write_scheme(self, out: Writer) -> None:
        out.varint(self._balanced_query)
        out.varint(self._next_position)
        out.u8(bool(self._centres))  # none before the first reference
        for centre, slacks in zip(self._centres, self._slacks, strict=True):
            out.f32s(centre)
            write_site_numbers(out, slacks)
            out.f64s(np.array([slacks[number] for number in sorted(slacks)]))

    def _read_scheme(self, source: Reader) -> None:
        queries = len(self.monitor.queries)
        self._balanced_query = source.within(source.varint(), 0, max(queries - 1, 0))
        self._next_position = source.varint()
        for query in range(queries if source.choice(0, 1) else 0):
            layout, streams = self.monitor.query_and_layout(query)[1], len(self.monitor.channels[query])
            shape = (*layout.lines, streams)
            self._centres.append(source.f32s(math.prod(shape)).reshape(shape))
            numbers, slacks = read_site_numbers(source), source.f64s()
            source.check(slacks.size == len(numbers) * math.prod(shape), "slacks of other sites")
            source.check(bool(np.isfinite(slacks).all()), "slack that is not finite")
            self._slacks.append(dict(zip(numbers, slacks.reshape(-1, *shape), strict=True)))
