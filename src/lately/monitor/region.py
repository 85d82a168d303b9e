"""The safe zones of one query, on both sides of its value: computed by the coordinator, sent to the sites, used by both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lately.core.codec import Reader, Writer
from lately.monitor.layout import Layout
from lately.monitor.messages import Limits
from lately.monitor.query import LOWER, UPPER, Query
from lately.monitor.zones import Floats, Zone, to_float32_conservative

_SIDES = (UPPER, LOWER)


@dataclass(frozen=True, eq=False)
class Region:
    """Where the mean drift of all sites may be.

    Parameters
    ----------
    zones
        The zones, each with the line of the drift that it limits.
    sides
        The sides of the limits that it was made from.
    """

    zones: tuple[tuple[int, Zone], ...]
    sides: int = 0

    def distance(self, points: Floats) -> float:
        """The distance from a point to the nearest inadmissible one; 0 beyond it."""
        return min((zone.distance(points[line]) for line, zone in self.zones), default=math.inf)

    def ball_distance(self, centre: Floats, points: Floats) -> float:
        """The smallest ``Zone.ball_distance`` of its zones."""
        return min((zone.ball_distance(centre[line], points[line]) for line, zone in self.zones), default=math.inf)

    def safe_function(self, points: Floats) -> float:
        """The largest ``Zone.safe_function`` of its zones: the maximum of convex functions is convex."""
        return max((zone.safe_function(points[line]) for line, zone in self.zones), default=-1.0)

    @property
    def lipschitz_constant(self) -> float:
        """The largest rise of the safe function per distance that a point moves."""
        return max((zone.lipschitz_constant for _, zone in self.zones), default=0.0)

    def plane_distance(self, points: Floats) -> float:
        """How much further a point may move before it can cross the planes of its zones."""
        value, slope = self.safe_function(points), self.lipschitz_constant
        if math.isinf(slope):
            return -1.0 if value > 0 else 0.0
        return -value / slope if slope > 0 else math.inf

    def write(self, out: Writer) -> None:
        """Write its limits; their numbers are 32-bit floats already."""
        out.u8(self.sides)
        for _, zone in self.zones:
            out.f32s(zone.rows)


def limits_of(query: Query, bounds: tuple[float, float], tables: Sequence[Floats], layout: Layout, sites: int) -> Limits:
    """The zones of a query as they are sent, for the mean drift of ``sites`` sites.

    ``bounds`` are the lower and upper end of the estimate's tolerance, ``tables`` the numbers of all sites added up.
    """
    sides, numbers = 0, []
    for side, bound in zip(_SIDES, reversed(bounds), strict=True):
        if math.isinf(bound) or (side == LOWER and bound <= 0 and not layout.signed):
            continue
        sides |= side
        rows = query.zone_rows(side, bound, tables, layout) / sites
        if rows.shape[1] == 3:  # a·z₀ + b·z₁ + z₀·z₁ ≤ room, for n times the mean drift
            rows[:, 2] /= sites
        numbers.append(to_float32_conservative(query.form(side, layout), rows).ravel())
    return Limits(sides, np.concatenate(numbers) if numbers else np.zeros(0), np.zeros(0))


def zone_size(query: Query, layout: Layout, sides: int) -> int:
    """How many numbers the zones of these sides have."""
    forms = [query.form(side, layout) for side in _SIDES if sides & side]
    return layout.rows * sum(1 if form == "linear" else 3 for form in forms)


def region_of(query: Query, layout: Layout, limits: Limits) -> Region:
    """The zones that limits describe."""
    zones, rest = [], limits.zones
    for side in _SIDES:
        if limits.sides & side:
            form = query.form(side, layout)
            size = layout.rows * (1 if form == "linear" else 3)
            rows, rest = rest[:size].reshape(layout.rows, -1), rest[size:]
            line = 0 if layout.signed else _SIDES.index(side)
            zones.append((line, Zone(form, rows, query.quorum(side, layout))))
    return Region(tuple(zones), limits.sides)


def read_region(source: Reader, query: Query, layout: Layout) -> Region:
    """Read what ``Region.write`` wrote."""
    sides = source.choice(0, 1, 2, 3)
    return region_of(query, layout, Limits(sides, source.f32s(zone_size(query, layout, sides)), np.zeros(0)))
