"""Where drifting rows may move before an estimate can leave its tolerance: the geometry of GM-AMS §3.3 to §3.5, ECM-15 §6.5.

An estimate is the median or the minimum of its rows, and each row is bounded by how far the sites' vectors have drifted in
it: a point z with one coordinate per row, or two for a join of two streams. A row *holds* while its condition does:

    linear      z₀ ≤ margin
    plane       a·z₀ + b·z₁ ≤ room
    bilinear    a·z₀ + b·z₁ + z₀·z₁ ≤ room

and the estimate is within its tolerance while at least ``quorum`` of m rows hold: (m + 1)/2 for a median, one for a minimum
that must not rise, all for a minimum that must not fall. It can leave only if ``m - quorum + 1`` rows break. So the distance to
leaving is the root of the sum of that number of smallest squared distances of single rows (Algorithm 1 of GM-AMS is the case
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

#: Zones are sent as 32-bit floats; they shrink by this share first, so that rounding never enlarges them.
SHRINK = 1e-6
#: The margin of a row that can never break.
NEVER = 1e30


@kernel
def on_hyperbola(alpha: float, beta: float, tau: float) -> float:
    """The p of the point nearest to (alpha, beta) on p·q = tau > 0, p > 0, for a point on the other side of it.

    It is the only positive root of p⁴ - alpha·p³ + tau·beta·p - tau²: the set above the branch is convex, so the distance
    has one minimum along it. Newton's method, with bisection where a step leaves the bracket.
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
    """The distance from (alpha, beta) to the curve p·q = tau, to either of its branches (GM-AMS §3.5)."""
    if tau == 0:
        return min(abs(alpha), abs(beta))
    if tau < 0:
        return hyperbola_distance(alpha, -beta, -tau)
    if alpha + beta < 0:  # the reflection that swaps the branches preserves distances
        alpha, beta = -alpha, -beta
    if alpha * beta > tau:  # inside the branch, where the distance has several minima along it
        return min(_inside_distance(alpha, beta, tau), _inside_distance(beta, alpha, tau))
    p = float(on_hyperbola(alpha, beta, tau))
    return math.hypot(p - alpha, tau / p - beta)


def _inside_distance(alpha: float, beta: float, tau: float) -> float:
    """The distance to the nearest stationary point, ignoring roots p that are tiny beside the others."""
    roots = np.roots([1.0, -alpha, 0.0, tau * beta, -tau * tau])
    real = roots.real[(np.abs(roots.imag) <= 1e-6 * np.abs(roots)) & (np.abs(roots) > 0)]
    return float(np.hypot(real - alpha, tau / real - beta).min(initial=math.inf))


def median_distance(points: Floats, margins: Floats) -> float:
    """Algorithm 1 of GM-AMS: the distance from a point to where the median of ``points - margins`` reaches zero.

    >>> median_distance(np.array([0.0, 0.0, 0.0]), np.array([3.0, 4.0, 9.0]))
    5.0
    """
    return Zone("linear", margins[:, None], (margins.size + 1) // 2).distance(points[:, None])


@dataclass(frozen=True, eq=False)
class Zone:
    """Where the drift of all rows may be, for one side of a tolerance.

    Parameters
    ----------
    form
        The form of the rows' conditions.
    rows
        The parameters of each row's condition: the margin of a linear one; a, b and the room of the others.
    quorum
        How many rows must hold.
    """

    form: Form
    rows: Floats
    quorum: int

    @property
    def rows_to_break(self) -> int:
        """How many rows must break before the estimate leaves its tolerance."""
        return int(self.rows.shape[0]) - self.quorum + 1

    def distances(self, points: Floats) -> Floats:
        """The distance of each row from breaking; 0 if it is broken."""
        if self.form == "linear":
            return np.maximum(self.rows[:, 0] - points[:, 0], 0)
        a, b, room = self.rows.T
        x, y = points.T
        if self.form == "plane":
            length = np.hypot(a, b)
            left = np.maximum(room - a * x - b * y, 0)
            return np.where(length > 0, left / np.maximum(length, 1e-300), np.where(left > 0, NEVER, 0.0))
        # x·y + a·x + b·y = (x + b)(y + a) - a·b
        p, q, tau = x + b, y + a, room + a * b
        return np.array(
            [0.0 if pi * qi >= ti else hyperbola_distance(pi, qi, ti) for pi, qi, ti in zip(p, q, tau, strict=True)]
        )

    def distance(self, points: Floats) -> float:
        """The distance from a point to where enough rows break."""
        squares = np.sort(self.distances(points) ** 2)
        return math.sqrt(float(squares[: self.rows_to_break].sum()))

    def ball_distance(self, centre: Floats, point: Floats) -> float:
        """How much further a point may move while the ball between the common centre and it touches no inadmissible point.

        The balls of all sites cover the hull of their points, and so their mean (Sharfman et al.). Their midpoint moves
        half as far as the point and their radius grows by no more than the other half, so the distance shrinks no faster.
        """
        return self.distance((centre + point) / 2) - float(np.linalg.norm(point - centre)) / 2

    @cached_property
    def _nearest(self) -> Floats:
        """For each row, the point nearest to zero drift where it breaks."""
        if self.form == "linear":
            return np.clip(self.rows[:, :1], 0, NEVER)
        a, b, room = self.rows.T
        if self.form == "plane":
            square = np.maximum(a * a + b * b, 1e-300)
            share = np.maximum(room, 0) / square
            never = (a == 0) & (b == 0) & (room > 0)
            return np.stack([np.where(never, NEVER, a * share), np.where(never, NEVER, b * share)], axis=1)
        nearest = np.zeros((room.size, 2))
        for i in np.flatnonzero(room > 0):
            tau = float(room[i] + a[i] * b[i])
            p = float(on_hyperbola(float(b[i]), float(a[i]), tau))
            nearest[i] = p - b[i], tau / p - a[i]
        return np.maximum(nearest, 0)

    @cached_property
    def _value_at_zero(self) -> float:
        """The safe function at zero drift, before it is scaled to -1."""
        squares = np.sort((self._nearest**2).sum(axis=1))
        return -float(squares[: self.rows_to_break].sum())

    @cached_property
    def lipschitz_constant(self) -> float:
        """The largest rise of the safe function per distance that a point moves."""
        squares = np.sort((self._nearest**2).sum(axis=1))
        finite = squares[squares < NEVER**2 / 2]
        return (
            math.sqrt(float(finite[-self.rows_to_break :].sum())) / -self._value_at_zero
            if self._value_at_zero < 0
            else math.inf
        )

    def safe_function(self, points: Floats) -> float:
        """φ, a convex function of the drift: -1 at zero drift; while it is at most 0, the estimate is within its tolerance.

        A row breaks only beyond the plane through its nearest breaking point w, perpendicular to w: where w·z > |w|². If
        enough rows break, these excesses have a positive sum over them. So if the sum of the largest excesses, as many as
        rows must break, is at most 0, too few rows break; and such a sum is convex.
        """
        w = self._nearest
        excess = np.sort((w * points).sum(axis=1) - (w * w).sum(axis=1))
        total = float(excess[-self.rows_to_break :].sum())
        if self._value_at_zero == 0:  # nothing may drift
            return 0.0 if not points.any() else NEVER
        return total / -self._value_at_zero


def to_float32_conservative(form: Form, rows: Any) -> Floats:
    """The parameters of a zone as 32-bit floats, rounded such that the zone never grows.

    Parameters
    ----------
    form
        The form of the zone's rows.
    rows
        The parameters of its rows.
    """
    exact = np.asarray(rows, np.float64)
    shrunk = exact - np.abs(exact) * SHRINK
    if form != "linear":
        shrunk[:, :2] = exact[:, :2] * (1 + SHRINK)
    return to_float32(np.clip(shrunk, -NEVER, NEVER))


def to_float32(numbers: Any) -> Floats:
    """Numbers rounded to 32-bit floats, as they arrive in messages."""
    return np.asarray(numbers, np.float32).astype(np.float64)
