"""The coordinator of functional geometric monitoring (Samoladas & Garofalakis).

    idle ──more increments than sites──> polling the values of the safe function ──some room left──> idle, new subround
                                               └──hardly any left──> gathering drifts, if lazy ──> collecting updates

A subround costs each site a few bytes and uses up at least half of the room that is left, so there are a handful of subrounds
between two references, however many sites there are.
"""

from collections.abc import Sequence

from lately.core.codec import Reader, Writer
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.coordinator_state import Activity, SiteState
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift_coordinator import ENOUGH_ROOM, DriftCoordinator
from lately.monitor.region import Region
from lately.monitor.zones import Floats, to_float32

#: The approximate bytes per site of a subround, and of a reference without the updates.
_SUBROUND, _REFERENCE = 28, 60


class FunctionalCoordinator(DriftCoordinator):
    """Adds up the quanta by which the sites' safe functions rise; ``Coordinator`` documents the parameters."""

    accepted = (m.LeaveNotice, m.DriftReport, m.Increment, m.SafeFunctionReport)

    def __init__(self, monitor: MonitorDefinition, sites: Sequence[int]) -> None:
        super().__init__(monitor, sites)
        self._polled_query = 0
        self._quanta = [0] * len(monitor.queries)
        self._first_totals = [0.0] * len(monitor.queries)  # the totals of the safe functions at the last reference
        self._polled_total = 0.0
        self._update_size = sum(layout.size for layout in monitor.layouts)  # the approximate bytes of an update

    def _total(self, query: int, region: Region, updating: set[int]) -> float:
        """The sum of the sites' safe functions at their reported drifts, if those ``updating`` have sent updates."""
        without_drift = region.safe_function(0 * self._reported_norms(query, self.sites[0]))
        return sum(
            without_drift if number in updating else region.safe_function(self._reported_norms(query, number))
            for number in self.sites
        )

    def _has_enough_room(self, regions: Sequence[Region], updating: set[int]) -> bool:
        return all(
            self._total(query, region, updating) <= ENOUGH_ROOM * self._total(query, region, set(self.sites))
            for query, region in enumerate(regions)
        )

    def _start_vector(self, query: int, region: Region) -> Floats:
        self._quanta[query] = 0
        self._first_totals[query] = self._total(query, region, set())
        return self._quantum(self._first_totals[query])

    def _quantum(self, total: float) -> Floats:
        """The quantum for a total, rounded as it arrives at the sites."""
        return to_float32([max(-total / (2 * len(self.sites)), 1e-12)])

    def _handle_query(self, number: int, state: SiteState, message: m.QueryMessage) -> None:
        match message:
            case m.Increment():
                self._handle_increment(message)
            case m.SafeFunctionReport():
                self._handle_value(number, message)
            case _ if self.activity == Activity.GATHERING:
                self._pending.discard(number)
                if not self._pending:
                    self._synchronise()

    def _handle_increment(self, message: m.Increment) -> None:
        if message.subround != self._announcer.queries[message.query].subround:
            self.ignored += 1
            return
        self._quanta[message.query] += message.quanta
        if self.activity == Activity.IDLE:
            self._poll_if_used_up()

    def _handle_value(self, number: int, message: m.SafeFunctionReport) -> None:
        if self.activity != Activity.POLLING or number not in self._pending:
            self.ignored += 1
            return
        self._polled_total += float(message.vector[0])
        self._pending.discard(number)
        if not self._pending:
            self._finish_polling()

    def _is_subround_worthwhile(self, left: float, subrounds: int) -> bool:
        """Whether another subround extends the reference at a lower cost than its time so far has had.

        ``left`` is the share of the first total that is left; a subround uses up between half and all of it.
        """
        spent = self._update_size + _REFERENCE + _SUBROUND * (subrounds + 1)
        return left >= 1 or _SUBROUND / (0.75 * left) < spent / (1 - left)

    def _poll_if_used_up(self) -> None:
        """Request the values of the safe function of a query whose quanta are used up."""
        for query, quanta in enumerate(self._quanta):
            if quanta > len(self.sites):
                self._polled_query, self._polled_total = query, 0.0
                self._begin(Activity.POLLING, self.sites)
                subround = self._announcer.queries[query].subround
                for number in self.sites:
                    self._members.send(number, m.SafeFunctionRequest, self.epoch, query, subround)
                return

    def _finish_polling(self) -> None:
        """Begin a subround with a smaller quantum if that is worthwhile, else a synchronisation."""
        query, total = self._polled_query, self._polled_total
        state = self._announcer.queries[query]
        if total < 0 and self._is_subround_worthwhile(total / self._first_totals[query], state.subround):
            state.subround += 1
            self._quanta[query] = 0
            quantum = self._quantum(total)
            for number in self.sites:
                self._members.send(number, m.Quantum, self.epoch, query, state.subround, quantum)
            self._begin(Activity.IDLE)
            self._poll_if_used_up()
        elif self.monitor.flush == "eager":
            self._synchronise()
        else:
            self._begin(Activity.GATHERING, self.sites)
            for number in self.sites:
                self._members.send(number, m.DriftRequest, self.epoch, query, state.subround)

    def _write_scheme(self, out: Writer) -> None:
        out.varint(self._polled_query)
        out.f64(self._polled_total)
        for quanta, first_total in zip(self._quanta, self._first_totals, strict=True):
            out.varint(min(quanta, MAX_COUNT))  # more have no further effect
            out.f64(first_total)

    def _read_scheme(self, source: Reader) -> None:
        self._polled_query = source.within(source.varint(), 0, max(len(self._quanta) - 1, 0))
        self._polled_total = source.f64()
        for query in range(len(self._quanta)):
            self._quanta[query], self._first_totals[query] = source.varint(), source.f64()
