"""Bounds of the true value of a query, from where its estimate is known to be.

A coordinator knows the numbers of the sites' last updates, and that the estimate is within its tolerance. How far the exact
value over all events can be from that depends on the sketch, and on how many events can have arrived since:

    Count, KeyRange     a wave is off by at most a share s of its count, for certain
    joins over Ecm      every row counts all wanted pairs, and those that collide. Upper bounds are certain; for lower bounds,
                        some row has at most odds/width of all pairs N·N in it, with odds^-rows = delta (Markov). So N must be
                        bounded: by the rows of the last updates, and how far the zones let them rise
    Fast-AMS            most rows are within a share of the norms (Chebyshev), so norms must be bounded, in the same way
    with a window       its counters are off by s of what collides, too: |c|² = F2 + N²/width on average (Markov), so N is
                        counted separately (``TotalCount``)

All true values are integers, so bounds are, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lately.core import plan
from lately.monitor.layout import Layout
from lately.monitor.queries import Count, InnerProduct, RangeSum, SelfJoin
from lately.monitor.query import LOWER, UPPER, Query, row_norms
from lately.monitor.zones import Floats
from lately.sketches.countmin import without_collisions

#: The share of bounds that is reserved for rounding errors.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Evidence:
    """What a coordinator knows about a query.

    Parameters
    ----------
    layout, delta
        The layout of the query, and the failure probability of the sketch.
    tables
        The numbers of the sites' last updates added up, for each stream.
    tolerance
        Where the estimate is now.
    growth
        The share by which norms and totals may have grown since the updates, infinite if unknown; by default as far as the
        zones of the tolerance allow.
    totals
        The most arrivals that each stream can have within the window, if these are counted separately.
    """

    layout: Layout
    delta: float
    tables: Sequence[Floats]
    tolerance: tuple[float, float]
    growth: float | None = None
    totals: tuple[float, ...] = ()

    def sides(self) -> list[tuple[int, float]]:
        """The sides with a finite bound, and these bounds."""
        sides = ((UPPER, self.tolerance[1]), (LOWER, self.tolerance[0]))
        return [(side, bound) for side, bound in sides if math.isfinite(bound)]


def true_bounds(query: Query, evidence: Evidence) -> tuple[float, float, float]:
    """The lower and upper bound of the true value of a query, and the confidence that it is between them."""
    if isinstance(query, Count):
        low, high, failure = *_count(evidence), 0.0
    elif not evidence.layout.signed:
        low, high, failure = *_ecm_join(query, evidence), evidence.delta
    elif isinstance(query, SelfJoin):
        low, high, failure = *_second_moment(evidence), evidence.delta
    elif isinstance(query, RangeSum):
        low, high, failure = *_range_sum(query, evidence), 2 * evidence.delta
    else:
        assert isinstance(query, InnerProduct)
        low, high, failure = _signed_join(query, evidence)
    return *_integers(low, high), max(1 - failure, 0.0)


def _integers(low: float, high: float) -> tuple[float, float]:
    """The smallest and largest integer between two bounds, which are allowed a rounding error."""
    least = low - _ROUNDING * max(abs(low), 1) if math.isfinite(low) else low
    most = high + _ROUNDING * max(abs(high), 1) if math.isfinite(high) else high
    least, most = (float(math.ceil(least)) if math.isfinite(least) else least), most
    return least, max(float(math.floor(most)) if math.isfinite(most) else most, least)


def _count(evidence: Evidence) -> tuple[float, float]:
    low, high = evidence.tolerance
    return max(low, 0.0) / (1 + evidence.layout.eps), high / (1 - evidence.layout.eps)


# -- joins over ECM-sketches ---------------------------------------------------------------------------------------------


def _ecm_join(query: Query, evidence: Evidence) -> tuple[float, float]:
    """Cells are off by at most a share s, for certain; collisions only add to a row."""
    layout, (low, high) = evidence.layout, evidence.tolerance
    s, low = layout.eps, max(low, 0.0)
    odds = evidence.delta ** (-1 / layout.rows)
    least = float(without_collisions(low / (1 + s) ** 2, _pairs(query, evidence), layout.width, odds))
    if isinstance(query, SelfJoin):  # a row is at most the square of all its arrivals, and each of these is a pair with itself
        least = max(least, math.sqrt(low) / (1 + s))
    return least, high / (1 - s) ** 2


def _pairs(query: Query, evidence: Evidence) -> float:
    """The most pairs of arrivals that both streams, or one with itself, can have now.

    A row whose norm rises by z rises by at most √width·z in its sum. Of two streams, with norms a and b and sums A ≤ √width·a
    and B ≤ √width·b, A·B rises by at most width·(a·z₁ + b·z₀ + z₀·z₁): width times the room that the zone leaves to the row.
    """
    layout, tables, high = evidence.layout, evidence.tables, evidence.tolerance[1]
    sums = [table.sum(axis=1) for table in tables]
    pairs = sums[0] * sums[-1]
    shrink = (1 - layout.eps) ** 2
    if evidence.growth is not None:
        most = math.inf if math.isinf(evidence.growth) else float(pairs.min()) * (1 + evidence.growth) ** 2
    elif math.isinf(high):
        most = math.inf
    else:
        rooms = high - query.row_estimates(tables, layout)
        rises = np.maximum(math.sqrt(max(high, 0.0)) - row_norms(tables[0]), 0) * math.sqrt(layout.width)
        risen = (sums[0] + rises) ** 2 if isinstance(query, SelfJoin) else pairs + layout.width * np.maximum(rooms, 0)
        most = float(risen[rooms >= 0].max(initial=float(pairs.max())))
    if isinstance(query, SelfJoin):  # a row of this sum has a self-join of at least its square divided by the width
        most = min(most, layout.width * high)
    return most / shrink


# -- Fast-AMS ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """How far most rows are from the truth: a share ``eps`` of both norms, plus the errors of counters.

    Counters are off by ``s`` of cells whose norm is at most that of the stream and of ``collisions``, for each stream.
    """

    eps: float
    s: float
    collisions: tuple[float, ...]

    @classmethod
    def of(cls, evidence: Evidence, streams: int) -> "_Rows":
        """A row may fail by its signs, and with a window by the collisions of each stream, with equal probability."""
        layout = evidence.layout
        odds = plan.row_odds(layout.rows, evidence.delta)
        if layout.window is None:
            return cls(math.sqrt(2 / (layout.width * odds)), 0.0, (0.0,) * streams)
        share = odds / (1 + streams)
        collisions = tuple(total / math.sqrt(layout.width * share) for total in evidence.totals)
        return cls(math.sqrt(2 / (layout.width * share)), layout.eps, collisions)

    def norm_above(self, norm: float, stream: int) -> float:
        """The largest norm that a stream can have if most rows have at most this norm."""
        left = math.sqrt(max(1 - self.eps, 0.0)) - self.s
        return (norm + self._off(stream)) / left if left > 0 else math.inf

    def norm_below(self, norm: float, stream: int) -> float:
        """The smallest norm that a stream can have if most rows have at least this norm."""
        return max(norm - self._off(stream), 0.0) / (math.sqrt(1 + self.eps) + self.s)

    def cells(self, norm: float, stream: int) -> float:
        """The largest norm of a row of counters, given the norm of the stream."""
        return math.hypot(norm, self.collisions[stream]) if self.s else 0.0

    def _off(self, stream: int) -> float:
        return self.s * self.collisions[stream] if self.s else 0.0


def _second_moment(evidence: Evidence) -> tuple[float, float]:
    rows, (low, high) = _Rows.of(evidence, 1), evidence.tolerance
    above = rows.norm_above(math.sqrt(max(high, 0.0)), 0)
    most = min(above, *evidence.totals, math.inf)
    return rows.norm_below(math.sqrt(max(low, 0.0)), 0) ** 2, most * most


def _range_sum(query: RangeSum, evidence: Evidence) -> tuple[float, float]:
    rows, (low, high) = _Rows.of(evidence, 1), evidence.tolerance
    norms, weights = row_norms(evidence.tables[0]), query.weight_vector[1].astype(np.float64)
    if evidence.growth is not None:
        norm = _grown(float(np.median(norms)), evidence.growth)
    else:
        margins = [query.zone_rows(side, bound, evidence.tables, evidence.layout)[:, 0] for side, bound in evidence.sides()]
        norm = min((float((norms + np.maximum(margin, 0)).max()) for margin in margins), default=math.inf)
    norm = min(rows.norm_above(norm, 0), *evidence.totals, math.inf)
    longest = float(query.weight_norms(evidence.layout).max())
    off = rows.eps * norm * math.sqrt(float((weights**2).sum())) + rows.s * rows.cells(norm, 0) * longest
    low, high = low - off, high + off
    for total in (total for total in evidence.totals if math.isfinite(total)):  # counts are not negative
        low, high = max(low, total * min(float(weights.min()), 0.0)), min(high, total * max(float(weights.max()), 0.0))
    return low, high


def _signed_join(query: InnerProduct, evidence: Evidence) -> tuple[float, float, float]:
    """Bounds, and the probability that they fail; without a window both norms are bounded at once, which is tighter."""
    rows, (low, high) = _Rows.of(evidence, 2), evidence.tolerance
    left, right = (row_norms(table) for table in evidence.tables)
    products, growth = left * right, evidence.growth
    rooms = [query.zone_rows(side, bound, evidence.tables, evidence.layout)[:, 2] for side, bound in evidence.sides()]
    if not rows.s:
        odds = plan.row_odds(evidence.layout.rows, evidence.delta) / 2  # either norm may be too low in a row (Cantelli)
        below = 1 - math.sqrt(2 / evidence.layout.width * (1 - odds) / odds)
        if growth is not None:
            most = _grown(float(np.median(products)), (1 + growth) ** 2 - 1)
        else:
            most = min((float((products + np.maximum(room, 0)).max()) for room in rooms), default=math.inf)
        off = rows.eps * most / below if below > 0 else math.inf
        return low - off, high + off, 2 * evidence.delta
    norms = []
    for stream, (own, other) in enumerate(((left, right), (right, left))):
        if growth is not None:
            norm = _grown(float(np.median(own)), growth)
        else:
            rises = [np.where(other > 0, np.maximum(room, 0) / np.maximum(other, 1e-300), math.inf) for room in rooms]
            norm = min((float((own + rise).max()) for rise in rises), default=math.inf)
        norms.append(min(rows.norm_above(norm, stream), evidence.totals[stream]))
    counters = (2 * rows.s + rows.s**2) * rows.cells(norms[0], 0) * rows.cells(norms[1], 1)
    off = rows.eps * norms[0] * norms[1] + counters
    return max(low - off, 0.0), min(high + off, math.prod(evidence.totals)), 3 * evidence.delta


def _grown(norm: float, share: float) -> float:
    return math.inf if math.isinf(share) else norm * (1 + share)
