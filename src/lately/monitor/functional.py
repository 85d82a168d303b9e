"""Functional geometric monitoring's coordinator (Samoladas & Garofalakis): it counts steps, and asks when they are used up.

    idle ──more steps than sites──> polling: how high is your pressure? ──some left──> idle, with smaller steps
                                        └──hardly any left──> gathering, where lazy: where are your rows? ──> collecting

A turn costs each site a few bytes, and each leaves at least half of the pressure used up, so there are a handful between two
references, however many sites there are.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lately.core.codec import Reader, Writer
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.coordinator import ENOUGH, Activity, Coordinator
from lately.monitor.coordinator_state import SiteState
from lately.monitor.region import Region
from lately.monitor.zones import Floats, to_float32

if TYPE_CHECKING:
    from lately.monitor.monitor import Monitor

#: About the bytes that a turn, and a reference besides what is told, cost a site.
_TURN, _REFERENCE = 28, 60


class FunctionalCoordinator(Coordinator):
    """Adds up the steps by which pressures rise."""

    _understood = (m.LeaveNotice, m.DriftReport, m.Increment, m.SafeFunctionReport)

    def __init__(self, monitor: "Monitor", sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._about = 0
        self._steps = [0] * len(monitor.queries)
        self._first = [0.0] * len(monitor.queries)
        self._pressure = 0.0
        self._told_bytes = sum(layout.size for layout in monitor.layouts)

    def _total(self, query: int, region: Region, telling: set[int]) -> float:
        """The pressures of all sites, where they said that their rows are."""
        none = region.safe_function(0 * self._points(query, self.sites[0]))
        return sum(none if n in telling else region.safe_function(self._points(query, n)) for n in self.sites)

    def _is_enough(self, regions: Sequence[Region], telling: set[int]) -> bool:
        return all(
            self._total(query, region, telling) <= ENOUGH * self._total(query, region, set(self.sites))
            for query, region in enumerate(regions)
        )

    def _start(self, query: int, region: Region) -> Floats:
        self._steps[query] = 0
        self._first[query] = self._total(query, region, set())
        return self._step(self._first[query])

    def _step(self, value: float) -> Floats:
        return to_float32([max(-value / (2 * len(self.sites)), 1e-12)])  # so that it need not travel to be what it will be

    def _hear_about(self, number: int, peer: SiteState, message: m.QueryMessage) -> None:
        if isinstance(message, m.Increment):
            if message.subround != self._watched[message.query].subround:
                self.ignored += 1
                return
            self._steps[message.query] += message.steps
            if self.activity == Activity.IDLE:
                self._poll()
        elif isinstance(message, m.SafeFunctionReport):
            if self.activity == Activity.POLLING and number in self._pending:
                self._pressure += float(message.numbers[0])
                self._pending.discard(number)
                if not self._pending:
                    self._polled()
            else:
                self.ignored += 1
        elif self.activity == Activity.GATHERING:
            self._pending.discard(number)
            if not self._pending:
                self._renew()

    def _is_worth_a_turn(self, left: float, turns: int) -> bool:
        """Whether another turn makes the reference last longer for less than it has cost for its time so far.

        ``left`` of the first pressure is left, of which a turn uses up half at the least, and all at the most.
        """
        spent = self._told_bytes + _REFERENCE + _TURN * (turns + 1)
        return left >= 1 or _TURN / (0.75 * left) < spent / (1 - left)

    def _poll(self) -> None:
        """Ask all sites for their pressure where the steps of a query are used up."""
        for query, steps in enumerate(self._steps):
            if steps > len(self.sites):
                self._about, self._pressure = query, 0.0
                self._begin(Activity.POLLING, self.sites)
                for number in self.sites:
                    self._send(number, m.SafeFunctionRequest, self.epoch, query, self._watched[query].subround)
                return

    def _polled(self) -> None:
        query = self._about
        watched = self._watched[query]
        if self._pressure < 0 and self._is_worth_a_turn(self._pressure / self._first[query], watched.subround):
            watched.subround += 1
            self._steps[query] = 0
            step = self._step(self._pressure)
            for number in self.sites:
                self._send(number, m.Quantum, self.epoch, query, watched.subround, step)
            self._begin(Activity.IDLE)
            self._poll()
        elif self.monitor.flush == "eager":
            self._renew()
        else:
            self._begin(Activity.GATHERING, self.sites)
            for number in self.sites:
                self._send(number, m.DriftRequest, self.epoch, query, watched.subround)

    def _write_own(self, out: Writer) -> None:
        out.varint(self._about)
        out.f64(self._pressure)
        for steps, first in zip(self._steps, self._first, strict=True):
            out.varint(min(steps, MAX_COUNT))  # more say no more
            out.f64(first)

    def _read_own(self, source: Reader) -> None:
        self._about = source.within(source.varint(), 0, max(len(self._steps) - 1, 0))
        self._pressure = source.f64()
        for query in range(len(self._steps)):
            self._steps[query], self._first[query] = source.varint(), source.f64()
