"""What a site checks for one query between two references, and how it answers the coordinator: a guard for each scheme.

``check`` returns how far the norms of the rows can certainly move before the guard must be checked again, so that a site checks
seldom.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lately.core.codec import Reader, Writer
from lately.monitor import messages as m
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import Drift
from lately.monitor.query import row_norms
from lately.monitor.region import Region, read_region, region_of, zone_size
from lately.monitor.zones import Floats, to_float32

#: A guard acts when this share of its distance is left: checking after every event of the last bit costs more than it saves.
EARLY = 0.002
#: More quanta at once have no further effect.
_MAX_QUANTA = 10**6


class GuardedSite(Protocol):
    """What a guard needs of its site."""

    #: Whether the site has reported its drift and waits for the answer.
    has_reported: bool
    #: The value of the safe function that the site last reported.
    reported_safe_function: float

    def send_increment(self, query: int, subround: int, quanta: int) -> None:
        """Send by how many quanta the safe function has risen."""

    def report_drift(self, query: int, subround: int) -> None:
        """Report the drift of all streams, and wait for the answer."""

    def report_safe_function(self, query: int, subround: int) -> None:
        """Report the value of the safe function at the reported drift, and wait for the answer."""

    def send_update(self) -> None:
        """Send what has changed since the last update."""

    def resume(self, has_reported: bool) -> None:
        """Stop waiting."""


class Guard(ABC):
    """Base of the guards.

    Parameters
    ----------
    monitor
        The definition of the monitor.
    query
        The number of the query.
    drifts
        What the site counts in each layout.
    """

    def __init__(self, monitor: MonitorDefinition, query: int, drifts: Sequence[Drift]) -> None:
        self._query, self._layout = monitor.query_and_layout(query)
        self._number = query
        self._drifts = [drifts[i] for i in monitor.channels[query]]
        self.region = Region(())
        #: The drift norms as they were last reported; the rows have moved on since.
        self.reported = np.zeros((*self._layout.lines, len(monitor.channels[query])))
        self.subround = 0

    def begin(self, limits: m.Limits) -> None:
        """Begin with the limits of a new reference."""
        self.region, self.subround = region_of(self._query, self._layout, limits), 0

    def drift_norms(self) -> Floats:
        """The norms of the rows: what rose and what fell, by row and stream."""
        return np.stack([drift.norms() for drift in self._drifts], axis=-1)

    def note_reported(self) -> None:
        """The site has reported its drift norms, rounded to 32-bit floats."""
        self.reported = to_float32(self.drift_norms())

    @property
    def start_size(self) -> int:
        """The size of the start vector in its limits."""
        return 1

    def fits(self, limits: m.Limits) -> bool:
        """Whether limits have the sizes of this query and scheme."""
        zones = zone_size(self._query, self._layout, limits.sides)
        return limits.start.size == self.start_size and limits.zones.size == zones

    def accepts(self, message: m.QueryMessage) -> bool:
        """Whether its coordinator could have sent this message."""
        return False

    @abstractmethod
    def safe_distance(self, points: Floats) -> float:
        """How far the rows may move before the guard must act; negative if it must act now."""

    @abstractmethod
    def check(self, site: GuardedSite) -> float:
        """Send what must be sent; returns how far the rows may move before the next check."""

    def receive(self, message: m.QueryMessage, site: GuardedSite) -> None:
        """Answer a message about this query."""
        if isinstance(message, m.DriftRequest) and not site.has_reported:  # else the report is already on its way
            site.report_drift(self._number, message.subround)

    def write(self, out: Writer) -> None:
        """Write its state; reported norms were rounded to 32-bit floats."""
        out.varint(self.subround)
        self.region.write(out)
        out.f32s(self.reported)

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote."""
        self.subround, self.region = source.varint(), read_region(source, self._query, self._layout)
        self.reported = source.f32s(self.reported.size).reshape(self.reported.shape)


class GeometricGuard(Guard):
    """The geometric method (Sharfman et al.): report when the ball around the drift touches an inadmissible point.

    For minima, convex safe zones replace the balls (ECM-15 §6.5). Balancing gives a site a ``slack`` vector and takes it from
    others; over all sites these vectors add up to zero.
    """

    def __init__(self, monitor: MonitorDefinition, query: int, drifts: Sequence[Drift]) -> None:
        super().__init__(monitor, query, drifts)
        shape = self.reported.shape
        self.centre = np.zeros(shape)
        self.slack = np.zeros(shape)
        self._least_distance = 0.0

    @property
    def start_size(self) -> int:
        return self.reported.size

    def accepts(self, message: m.QueryMessage) -> bool:
        is_balance = isinstance(message, m.Balance) and message.vector.size == self.reported.size
        return is_balance or isinstance(message, m.DriftRequest)

    def begin(self, limits: m.Limits) -> None:
        super().begin(limits)
        self.centre = limits.start.reshape(self.reported.shape)
        self.balance(self.centre)

    def balance(self, mean: Floats, is_all: bool = False) -> None:
        """Continue from the mean of the sites that reported, as if the rows had been there; ``is_all``: all sites did."""
        if is_all:
            self.centre = mean
        self.slack = mean - self.reported
        distance = self._distance(mean)
        self._least_distance = EARLY * distance if distance < math.inf else 0.0

    def _distance(self, points: Floats) -> float:
        return self.region.ball_distance(self.centre, points) if self._layout.signed else self.region.plane_distance(points)

    def safe_distance(self, points: Floats) -> float:
        return self._distance(points + self.slack) - self._least_distance

    def check(self, site: GuardedSite) -> float:
        distance = self.safe_distance(self.drift_norms())
        if distance < 0:
            site.report_drift(self._number, self.subround)
        return distance

    def receive(self, message: m.QueryMessage, site: GuardedSite) -> None:
        if isinstance(message, m.Balance):
            self.balance(message.vector.reshape(self.reported.shape), message.is_all)
            self.subround = message.subround
            site.resume(has_reported=False)
        else:
            super().receive(message, site)

    def write(self, out: Writer) -> None:
        super().write(out)
        out.f32s(self.centre)
        out.f64s(self.slack)
        out.f64(self._least_distance)

    def read(self, source: Reader) -> None:
        super().read(source)
        shape = self.reported.shape
        self.centre, slack = source.f32s(self.reported.size).reshape(shape), source.f64s()
        self._least_distance = source.f64()
        source.check(slack.size == self.reported.size and bool(np.isfinite(slack).all()), "slack of another shape")
        source.check(0 <= self._least_distance < math.inf, "a distance out of range")
        self.slack = slack.reshape(shape)


class FunctionalGuard(Guard):
    """Functional geometric monitoring (Samoladas & Garofalakis): count the quanta by which the safe function φ rises.

    With n sites the values of φ add up to P < 0 at the start of a subround, and a quantum is -P/2n. While all sites together
    have sent at most n increments, and no site is more than a quantum beyond what it sent, the values add up to less than
    P + 2n quanta = 0. φ is convex, so the mean of the sites' drifts is then where the estimate is within its tolerance.
    """

    def __init__(self, monitor: MonitorDefinition, query: int, drifts: Sequence[Drift]) -> None:
        super().__init__(monitor, query, drifts)
        self._quantum = math.inf
        self._start_value = 0.0
        self._quanta = 0

    def accepts(self, message: m.QueryMessage) -> bool:
        is_quantum = isinstance(message, m.Quantum) and message.vector.size == 1
        return is_quantum or isinstance(message, m.DriftRequest | m.SafeFunctionRequest)

    def begin(self, limits: m.Limits) -> None:
        super().begin(limits)
        self.begin_subround(float(limits.start[0]), self.region.safe_function(self.reported))

    def begin_subround(self, quantum: float, value: float) -> None:
        """Begin a subround with this quantum, at the reported value of the safe function."""
        self._quantum, self._start_value, self._quanta = quantum, value, 0

    def take_risen_quanta(self, points: Floats) -> int:
        """By how many quanta the safe function has risen since the last call."""
        ratio = (self.region.safe_function(points) - self._start_value) / self._quantum
        risen = min(math.floor(min(ratio, _MAX_QUANTA) + EARLY), _MAX_QUANTA) - self._quanta
        if risen <= 0:
            return 0
        self._quanta += risen
        return risen

    def safe_distance(self, points: Floats) -> float:
        if self._quanta >= _MAX_QUANTA or self.region.lipschitz_constant == 0:
            return math.inf
        left = self._start_value + (self._quanta + 1 - EARLY) * self._quantum - self.region.safe_function(points)
        return max(left / self.region.lipschitz_constant, 0.0)

    def check(self, site: GuardedSite) -> float:
        points = self.drift_norms()
        if quanta := self.take_risen_quanta(points):
            site.send_increment(self._number, self.subround, quanta)
        return self.safe_distance(points)

    def receive(self, message: m.QueryMessage, site: GuardedSite) -> None:
        if isinstance(message, m.Quantum):
            self.begin_subround(float(message.vector[0]), site.reported_safe_function)
            self.subround = message.subround
            site.resume(site.has_reported)
        elif isinstance(message, m.SafeFunctionRequest):
            if not site.has_reported:
                site.report_safe_function(self._number, message.subround)
        else:
            super().receive(message, site)

    def write(self, out: Writer) -> None:
        super().write(out)
        out.f64(self._quantum)
        out.f64(self._start_value)
        out.varint(self._quanta)

    def read(self, source: Reader) -> None:
        super().read(source)
        self._quantum, self._start_value, self._quanta = source.f64(), source.f64(), source.varint()
        source.check(self._quantum > 0 and math.isfinite(self._start_value), "a quantum out of range")


class PushingGuard(Guard):
    """CG (Cormode & Garofalakis): send an update when the drift exceeds a share of the site's own norm."""

    def __init__(self, monitor: MonitorDefinition, query: int, drifts: Sequence[Drift]) -> None:
        super().__init__(monitor, query, drifts)
        self._share = 0.0
        #: The norm of the site's own numbers, for each stream.
        self.own_norms = np.zeros(self.reported.shape[2])

    def begin(self, limits: m.Limits) -> None:
        super().begin(limits)
        self._share = float(limits.start[0])

    def safe_distance(self, points: Floats) -> float:
        left = float((self._share * self.own_norms - np.sort(points[0], axis=0)[points.shape[1] // 2]).min())
        return left / 2 if left > 0 else -1.0  # half, because the site's own norm changes too

    def check(self, site: GuardedSite) -> float:
        self.own_norms = np.array([self._median_norm(drift) for drift in self._drifts])
        distance = self.safe_distance(self.drift_norms())
        if distance >= 0:
            return distance
        site.send_update()
        return self.check(site) if self.own_norms.all() else 0.0

    @staticmethod
    def _median_norm(drift: Drift) -> float:
        norms = np.sort(row_norms(drift.table()))
        return float(norms[norms.size // 2])

    def write(self, out: Writer) -> None:
        super().write(out)
        out.f64(self._share)

    def read(self, source: Reader) -> None:
        super().read(source)
        self._share = source.f64()
        source.check(0 <= self._share < 1, "a share out of range")


class SilentGuard(Guard):
    """For sites that send every event, or that an oracle observes: it never acts."""

    @property
    def start_size(self) -> int:
        return 0

    def safe_distance(self, points: Floats) -> float:
        return math.inf

    def check(self, site: GuardedSite) -> float:
        return math.inf
