"""The zones of one query, on both sides of its value: made by the coordinator, sent to the sites, used by both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lately.core.codec import Reader, Writer
from lately.monitor.layout import Layout
from lately.monitor.messages import Limits
from lately.monitor.queries import LOWER, UPPER, Query
from lately.monitor.zones import Floats, Zone, to_float32_conservative

_SIDES = (UPPER, LOWER)


@dataclass(frozen=True, eq=False)
class Region:
    """Where the mean drift of all sites may be: ``zones`` and the line of the drift that each is about.

    ``sides`` are those of the limits that it was made from.
    """

    zones: tuple[tuple[int, Zone], ...]
    sides: int = 0

    def distance(self, points: Floats) -> float:
        """How far the point is from the nearest inadmissible one; 0 beyond."""
        return min((zone.distance(points[line]) for line, zone in self.zones), default=math.inf)

    def ball_room(self, centre: Floats, points: Floats) -> float:
        """``Zone.ball_room`` of the zone that has least."""
        return min((zone.ball_room(centre[line], points[line]) for line, zone in self.zones), default=math.inf)

    def safe_function(self, points: Floats) -> float:
        """``Zone.pressure`` of the zone that has most: the largest of convex functions is convex."""
        return max((zone.safe_function(points[line]) for line, zone in self.zones), default=-1.0)

    @property
    def steepness(self) -> float:
        """How fast the pressure can rise with the distance that a point moves."""
        return max((zone.steepness for _, zone in self.zones), default=0.0)

    def plane_room(self, points: Floats) -> float:
        """How much further a point may go before it crosses the planes of its zones."""
        value, steepness = self.safe_function(points), self.steepness
        if math.isinf(steepness):
            return -1.0 if value > 0 else 0.0
        return -value / steepness if steepness > 0 else math.inf

    def write(self, out: Writer) -> None:
        """Write its limits: their numbers have travelled, or would travel, as floats of four bytes, and are none the worse."""
        out.u8(self.sides)
        for _, zone in self.zones:
            out.f32s(zone.rows)


def limits_of(query: Query, bounds: tuple[float, float], tables: Sequence[Floats], layout: Layout, sites: int) -> Limits:
    """The zones of a query as they are sent, for the mean drift of so many sites."""
    sides, numbers = 0, []
    for side, bound in zip(_SIDES, reversed(bounds), strict=True):
        if math.isinf(bound) or (side == LOWER and bound <= 0 and not layout.signed):
            continue
        sides |= side
        rows = query.margins(side, bound, tables, layout) / sites
        if rows.shape[1] == 3:  # a·z₀ + b·z₁ + z₀·z₁ ≤ room, for n times the mean drift
            rows[:, 2] /= sites
        numbers.append(to_float32_conservative(query.form(side, layout), rows).ravel())
    return Limits(sides, np.concatenate(numbers) if numbers else np.zeros(0), np.zeros(0))


def zone_size(query: Query, layout: Layout, sides: int) -> int:
    """How many numbers the zones of these sides are."""
    forms = [query.form(side, layout) for side in _SIDES if sides & side]
    return layout.rows * sum(1 if form == "linear" else 3 for form in forms)


def region_of(query: Query, layout: Layout, limits: Limits) -> Region:
    """The zones that were sent."""
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
