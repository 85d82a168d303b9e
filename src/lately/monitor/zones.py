"""Where drifting rows may go before an estimate can leave its tolerance: the geometry of GM-AMS §3.3 to §3.5, ECM-15 §6.5.

An estimate is the median or the minimum of its rows, and each row is bounded by how far the sites' vectors have drifted in
it: a point z of one coordinate (or two, where two streams are joined) per row. A row *holds* while its form does:

    linear      z₀ ≤ margin
    plane       a·z₀ + b·z₁ ≤ room
    bilinear    a·z₀ + b·z₁ + z₀·z₁ ≤ room

and the estimate is within its tolerance while at least ``quorum`` of m rows hold: (m + 1)/2 for a median, one for a minimum
that must not rise, all for a minimum that must not fall. It leaves it where the other ``m - quorum + 1`` rows all break, so
the distance to there is the root of the sum of that many smallest squared distances of single rows (Algorithm 1 is the case
of medians and linear forms).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import kernel

Form = Literal["linear", "plane", "bilinear"]
Floats = NDArray[np.float64]

#: Zones travel as floats of four bytes; they are made smaller by this much, so that rounding never makes them larger.
SHRINK = 1e-6
#: Stands for a row that can never break.
_NEVER = 1e30


@kernel
def on_hyperbola(alpha: float, beta: float, tau: float) -> float:
    """The p of the point nearest to (alpha, beta) on p·q = tau > 0, p > 0, for a point on the other side of it.

    It is the one positive root of p⁴ - alpha·p³ + tau·beta·p - tau²: the set above the branch is convex, so the distance
    has one minimum along it. Newton's steps, halved back into the bracket where they leave it.
    """
    low, high = 0.0, max(abs(alpha), math.sqrt(tau))
    while ((high - alpha) * high * high + tau * beta) * high < tau * tau:
        low, high = high, 2 * high
    p = (low + high) / 2
    for _ in range(200):
        value = ((p - alpha) * p * p + tau * beta) * p - tau * tau
        if value > 0:
            high = p
        else:
            low = p
        slope = (4 * p - 3 * alpha) * p * p + tau * beta
        step = p - value / slope if slope > 0 else low
        if not low < step < high:
            step = (low + high) / 2
        if abs(step - p) <= 1e-15 * p:
            return step
        p = step
    return p


def hyperbola_distance(alpha: float, beta: float, tau: float) -> float:
    """How far (alpha, beta) is from the curve p·q = tau, both of whose branches count (GM-AMS §3.5)."""
    if tau == 0:
        return min(abs(alpha), abs(beta))
    if tau < 0:
        return hyperbola_distance(alpha, -beta, -tau)
    if alpha + beta < 0:  # the reflection that swaps the branches keeps distances
        alpha, beta = -alpha, -beta
    if alpha * beta > tau:  # inside the branch, where the distance has several minima along it
        return min(_inside_distance(alpha, beta, tau), _inside_distance(beta, alpha, tau))
    p = float(on_hyperbola(alpha, beta, tau))
    return math.hypot(p - alpha, tau / p - beta)


def _inside_distance(alpha: float, beta: float, tau: float) -> float:
    """The nearest of the stationary points, those at least whose p is not tiny beside the others."""
    roots = np.roots([1.0, -alpha, 0.0, tau * beta, -tau * tau])
    real = roots.real[(np.abs(roots.imag) <= 1e-6 * np.abs(roots)) & (np.abs(roots) > 0)]
    return float(np.hypot(real - alpha, tau / real - beta).min(initial=math.inf))


def median_distance(points: Floats, margins: Floats) -> float:
    """Algorithm 1 of GM-AMS: how far a point is from where the median of ``points - margins`` reaches zero.

    >>> median_distance(np.array([0.0, 0.0, 0.0]), np.array([3.0, 4.0, 9.0]))
    5.0
    """
    return Zone("linear", margins[:, None], (margins.size + 1) // 2).distance(points[:, None])


@dataclass(frozen=True, eq=False)
class Zone:
    """Where the drift of all rows may be, for one side of a tolerance; ``rows`` has a form's numbers for each row."""

    form: Form
    rows: Floats
    quorum: int

    @property
    def breaking(self) -> int:
        """How many rows must break before the estimate leaves."""
        return int(self.rows.shape[0]) - self.quorum + 1

    def distances(self, points: Floats) -> Floats:
        """How far each row is from breaking; nothing where it is broken."""
        if self.form == "linear":
            return np.maximum(self.rows[:, 0] - points[:, 0], 0)
        a, b, room = self.rows.T
        x, y = points.T
        if self.form == "plane":
            length = np.hypot(a, b)
            left = np.maximum(room - a * x - b * y, 0)
            return np.where(length > 0, left / np.maximum(length, 1e-300), np.where(left > 0, _NEVER, 0.0))
        # x·y + a·x + b·y = (x + b)(y + a) - a·b
        p, q, tau = x + b, y + a, room + a * b
        return np.array(
            [0.0 if pi * qi >= ti else hyperbola_distance(pi, qi, ti) for pi, qi, ti in zip(p, q, tau, strict=True)]
        )

    def distance(self, points: Floats) -> float:
        """How far the whole point is from where enough rows break."""
        squares = np.sort(self.distances(points) ** 2)
        return math.sqrt(float(squares[: self.breaking].sum()))

    def ball_room(self, centre: Floats, point: Floats) -> float:
        """How much further a point may go while the ball between the common centre and it touches nothing inadmissible.

        The balls of all sites cover the hull of their points, and so their mean (Sharfman et al.). Their midpoint moves
        half as far as the point and their radius grows by no more than the other half, so the room shrinks no faster.
        """
        return self.distance((centre + point) / 2) - float(np.linalg.norm(point - centre)) / 2

    @cached_property
    def _nearest(self) -> Floats:
        """For each row the nearest point where it breaks, seen from no drift at all."""
        if self.form == "linear":
            return np.clip(self.rows[:, :1], 0, _NEVER)
        a, b, room = self.rows.T
        if self.form == "plane":
            square = np.maximum(a * a + b * b, 1e-300)
            share = np.maximum(room, 0) / square
            never = (a == 0) & (b == 0) & (room > 0)
            return np.stack([np.where(never, _NEVER, a * share), np.where(never, _NEVER, b * share)], axis=1)
        found = np.zeros((room.size, 2))
        for i in np.flatnonzero(room > 0):
            tau = float(room[i] + a[i] * b[i])
            p = float(on_hyperbola(float(b[i]), float(a[i]), tau))
            found[i] = p - b[i], tau / p - a[i]
        return np.maximum(found, 0)

    @cached_property
    def _start(self) -> float:
        """The pressure of no drift, before it is scaled."""
        squares = np.sort((self._nearest**2).sum(axis=1))
        return -float(squares[: self.breaking].sum())

    @cached_property
    def steepness(self) -> float:
        """How fast the pressure can rise with the distance that a point moves."""
        squares = np.sort((self._nearest**2).sum(axis=1))
        finite = squares[squares < _NEVER**2 / 2]
        return math.sqrt(float(finite[-self.breaking :].sum())) / -self._start if self._start < 0 else math.inf

    def safe_function(self, points: Floats) -> float:
        """A convex function of the drift: -1 for none; while it is not above 0 the estimate is within its tolerance.

        Beyond the plane through a row's nearest breaking point w, across the way there, lies all where the row breaks:
        w·z > |w|². If a set of enough rows breaks, these excesses add up to something positive over the set. So the sum
        of the largest ones, as many as must break, being at most 0 says that none does; and such a sum is convex.
        """
        w = self._nearest
        excess = np.sort((w * points).sum(axis=1) - (w * w).sum(axis=1))
        total = float(excess[-self.breaking :].sum())
        if self._start == 0:  # no room at all
            return 0.0 if not points.any() else _NEVER
        return total / -self._start


def to_float32_conservative(form: Form, rows: Any) -> Floats:
    """The numbers of a zone as they arrive in floats of four bytes, allowing a little less than they did."""
    exact = np.asarray(rows, np.float64)
    less = exact - np.abs(exact) * SHRINK
    if form != "linear":
        less[:, :2] = exact[:, :2] * (1 + SHRINK)
    return to_float32(np.clip(less, -_NEVER, _NEVER))


def to_float32(numbers: Any) -> Floats:
    """Numbers as they arrive in floats of four bytes."""
    return np.asarray(numbers, np.float32).astype(np.float64)
