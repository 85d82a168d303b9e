"""What a site watches of one query between two references; each scheme has its own guard.

``room`` is how far the rows' norms may surely move before the guard has anything to say, so that a site looks seldom.
"""

import math
from abc import ABC, abstractmethod

import numpy as np

from lately.core.codec import Reader, Writer
from lately.monitor import messages as m
from lately.monitor.layout import Layout
from lately.monitor.messages import Limits
from lately.monitor.queries import Query
from lately.monitor.region import Region, read_region
from lately.monitor.zones import Floats

#: A site speaks up when this share of its room is left: looking at every event of the last bit costs more than it saves.
EARLY = 0.002
#: More steps at once say no more.
_MOST_STEPS = 10**6


class Guard(ABC):
    """Base of the guards of a site."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.region = Region(())
        #: Where the rows were when the coordinator was last told; since then they have moved on.
        self.said = np.zeros(shape)
        self.subround = 0

    def begin(self, region: Region, limits: Limits) -> None:
        """Take a new reference."""
        self.region, self.subround = region, 0

    @property
    def starts(self) -> int:
        """How many numbers a reference gives it to start from."""
        return 1

    def understands(self, message: m.QueryMessage) -> bool:
        """Whether a message is one that its coordinator would send."""
        return False

    @abstractmethod
    def room(self, points: Floats) -> float:
        """How far the rows may move before the guard speaks; negative when it must."""

    def write(self, out: Writer) -> None:
        """Write what it watches; what it said was rounded to floats of four bytes."""
        out.varint(self.subround)
        self.region.write(out)
        out.f32s(self.said)

    def read(self, source: Reader, query: Query, layout: Layout) -> None:
        """Read what ``write`` wrote."""
        self.subround, self.region = source.varint(), read_region(source, query, layout)
        self.said = source.f32s(self.said.size).reshape(self.said.shape)


class GeometricGuard(Guard):
    """The geometric method (Sharfman et al.): speak when the ball around the drift touches what is inadmissible.

    Where a minimum is watched, convex safe zones replace the balls (ECM-15 §6.5). ``slack`` is what balancing gave to this
    site and took from others; over all sites it adds up to nothing.
    """

    def __init__(self, shape: tuple[int, int, int], balls: bool) -> None:
        super().__init__(shape)
        self._balls = balls
        self.centre = np.zeros(shape)
        self.slack = np.zeros(shape)
        self._least = 0.0

    @property
    def starts(self) -> int:
        return self.said.size

    def understands(self, message: m.QueryMessage) -> bool:
        return isinstance(message, m.DriftRequest) or (
            isinstance(message, m.Balance) and message.numbers.size == self.said.size
        )

    def begin(self, region: Region, limits: Limits) -> None:
        super().begin(region, limits)
        self.centre = limits.start.reshape(self.said.shape)
        self.balance(self.centre)

    def balance(self, mean: Floats, is_all: bool = False) -> None:
        """Count on from the mean of those who reported, as if the rows had been there."""
        if is_all:
            self.centre = mean
        self.slack = mean - self.said
        room = self._room(mean)
        self._least = EARLY * room if room < math.inf else 0.0

    def _room(self, points: Floats) -> float:
        return self.region.ball_room(self.centre, points) if self._balls else self.region.plane_room(points)

    def room(self, points: Floats) -> float:
        return self._room(points + self.slack) - self._least

    def write(self, out: Writer) -> None:
        super().write(out)
        out.f32s(self.centre)
        out.f64s(self.slack)
        out.f64(self._least)

    def read(self, source: Reader, query: Query, layout: Layout) -> None:
        super().read(source, query, layout)
        shape = self.said.shape
        self.centre, slack, self._least = source.f32s(self.said.size).reshape(shape), source.f64s(), source.f64()
        source.check(slack.size == self.said.size and bool(np.isfinite(slack).all()), "slack of another shape")
        source.check(0 <= self._least < math.inf, "room of a wrong size")
        self.slack = slack.reshape(shape)


class FunctionalGuard(Guard):
    """Functional geometric monitoring (Samoladas & Garofalakis): count the steps by which the pressure rises.

    With n sites the pressures add up to P at the start of a turn and a step is -P/2n. While all sites together have told of
    at most n steps, no site being more than a step beyond what it told, they add up to less than P + 2n steps: to less
    than 0, so that the mean of the sites' drifts, by convexity, is where the estimate is within its tolerance.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__(shape)
        self._step = math.inf
        self._start = 0.0
        self._steps = 0

    def understands(self, message: m.QueryMessage) -> bool:
        return isinstance(message, m.DriftRequest | m.SafeFunctionRequest) or (
            isinstance(message, m.Quantum) and message.numbers.size == 1
        )

    def begin(self, region: Region, limits: Limits) -> None:
        super().begin(region, limits)
        self.step(float(limits.start[0]), region.safe_function(self.said))

    def step(self, step: float, value: float) -> None:
        """Start a turn from the pressure that was told."""
        self._step, self._start, self._steps = step, value, 0

    def rise(self, points: Floats) -> int:
        """By how many steps the pressure has risen since it was last asked."""
        ratio = (self.region.safe_function(points) - self._start) / self._step
        risen = min(math.floor(min(ratio, _MOST_STEPS) + EARLY), _MOST_STEPS) - self._steps
        if risen <= 0:
            return 0
        self._steps += risen
        return risen

    def room(self, points: Floats) -> float:
        if self._steps >= _MOST_STEPS or self.region.steepness == 0:
            return math.inf
        left = self._start + (self._steps + 1 - EARLY) * self._step - self.region.safe_function(points)
        return max(left / self.region.steepness, 0.0)

    def write(self, out: Writer) -> None:
        super().write(out)
        out.f64(self._step)
        out.f64(self._start)
        out.varint(self._steps)

    def read(self, source: Reader, query: Query, layout: Layout) -> None:
        super().read(source, query, layout)
        self._step, self._start, self._steps = source.f64(), source.f64(), source.varint()
        source.check(self._step > 0 and math.isfinite(self._start), "steps of a wrong size")


class PushingGuard(Guard):
    """CG (Cormode & Garofalakis): speak when the drift is more than a share of the site's own norm."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__(shape)
        self._share = 0.0
        #: The norms of the site's own numbers, a stream each.
        self.lengths = np.zeros(shape[2])

    def begin(self, region: Region, limits: Limits) -> None:
        super().begin(region, limits)
        self._share = float(limits.start[0])

    def room(self, points: Floats) -> float:
        left = float((self._share * self.lengths - np.sort(points[0], axis=0)[points.shape[1] // 2]).min())
        return left / 2 if left > 0 else -1.0  # half, because the site's own norm changes too

    def write(self, out: Writer) -> None:
        super().write(out)
        out.f64(self._share)

    def read(self, source: Reader, query: Query, layout: Layout) -> None:
        super().read(source, query, layout)
        self._share = source.f64()
        source.check(0 <= self._share < 1, "a share of a wrong size")


class SilentGuard(Guard):
    """Of sites that ship everything, or that an oracle watches."""

    @property
    def starts(self) -> int:
        return 0

    def room(self, points: Floats) -> float:
        return math.inf
