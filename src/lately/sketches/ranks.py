"""What a tree counted in a range of time: sums over nodes, ranks, and the descent to a quantile.

For a sum over nodes each row of the sketched levels gives an answer of its own, the sum of its cells; the smallest has the
fewest collisions. By Markov's inequality one row's collisions exceed b times what is expected with probability 1/b,
all rows' with b^-depth. The window's error of the sum is bounded by Hoeffding's inequality over the random phases of the
cells, and by plain addition, whichever is less.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.errors import ParameterError, RangeError
from lately.core.estimate import Estimate
from lately.counters.base import Bounds
from lately.sketches.countmin import without_collisions
from lately.sketches.tree import BITS, FAN, Layout, Level, noise_exponent

Floats = NDArray[np.float64]

#: More than the rounding of any sum of fewer than 2**53 arrivals.
_ROUNDING = 1e-6
#: Nodes of a level that a search for the outermost key examines.
_MOST_NODES = 256


def check_shares(q: Any) -> Floats:
    """Read ``q`` of a quantile: one share, or several."""
    try:
        shares = np.atleast_1d(np.asarray(q, np.float64))
    except (TypeError, ValueError):
        raise ParameterError(f"q={q!r}", remedy="give a share from 0 to 1, or a list of them") from None
    if shares.ndim != 1 or not shares.size or not ((shares >= 0) & (shares <= 1)).all():
        raise ParameterError(f"q={q!r}", remedy="give a share from 0 to 1, or a list of them")
    return shares


def round_to_estimate(bounds: tuple[float, float, float], confidence: float) -> Estimate:
    """Bounds (low, value, high) of a number of arrivals, rounded inwards: the true number is an integer."""
    low, high = sorted((math.ceil(bounds[0] - _ROUNDING), math.floor(bounds[2] + _ROUNDING)))  # likely bounds may cross
    return Estimate(min(max(round(bounds[1]), low), high), low, high, confidence)


class Run(NamedTuple):
    """Neighbouring nodes of one level, both ends included."""

    level: Level
    first: int
    last: int


def cover(levels: tuple[Level, ...], lo: int, hi: int) -> list[Run]:
    """The fewest nodes whose keys are exactly ``lo..hi``: at most one run on the left and one on the right of a level."""
    runs = []
    for level, coarser in zip(reversed(levels), [*reversed(levels[:-1]), None], strict=True):
        if lo > hi:
            break
        if coarser is None:
            runs.append(Run(level, lo, hi))
            break
        # What is left of the first whole parent, and right of the last one.
        first, last = (lo + FAN - 1) >> BITS, (hi + 1) >> BITS
        if first >= last:
            runs.append(Run(level, lo, hi))
            break
        if lo < first << BITS:
            runs.append(Run(level, lo, (first << BITS) - 1))
        if last << BITS <= hi:
            runs.append(Run(level, last << BITS, hi))
        lo, hi = first, last - 1
    return runs


class Counted(Protocol):
    """What every cell counted since some time: a snapshot of one sketch, or the sum of several."""

    @property
    def spread(self) -> Floats:
        """For each row, how far apart two values that one cell may be given can lie."""

    def raw(self, cells: Any) -> Bounds:
        """Bounds, with values that are right on average and may therefore lie outside of them."""


class Suffix:
    """All arrivals since a tick.

    Parameters
    ----------
    layout
        The levels of the tree.
    delta
        The probability that a likely bound is wrong.
    snapshot
        What the cells counted since the tick.
    total
        Bounds of the number of arrivals since then.
    buffered
        The keys and counts in the reorder buffer since then, which the cells have not counted yet.
    """

    def __init__(self, layout: Layout, delta: float, snapshot: Counted, total: Bounds, buffered: tuple[Ints, Ints]):
        self._layout, self._snapshot = layout, snapshot
        self._exponent = noise_exponent(layout.depth, delta)
        self._buffered_keys, self._buffered_counts = buffered
        self.total = total

    # -- single nodes --------------------------------------------------------------------------------------------------

    def raw(self, level: Level, nodes: Any) -> Bounds:
        """The bounds of these nodes from each row of the level; values are right on average, apart from collisions."""
        cells = level.cells(nodes)
        buffered = self._buffered_in(level, np.asarray(nodes, np.int64).ravel())
        low, value, high = self._snapshot.raw(cells.ravel())
        return Bounds(*((part.reshape(cells.shape) + buffered) for part in (low, value, high)))

    def nodes(self, level: Level, nodes: Any, together: int = 1) -> Bounds:
        """Bounds of single nodes; ``high`` is certain, and so is ``low`` where a node has a cell of its own.

        Otherwise it is likely, for any ``together`` nodes at once that were chosen without a look at the level's cells.
        """
        low, value, high = (part.min(axis=0) for part in self.raw(level, nodes))
        most = self.total.high[0]
        if level.width:
            odds = self._layout.odds * together ** (1 / self._layout.depth)  # all rows exceed it ``together`` times less often
            low = np.ceil(without_collisions(low, most, level.width, odds) * (1 - 1e-12)).astype(np.int64)
        high = np.minimum(high, most)
        low = np.minimum(low, high)
        return Bounds(low, np.clip(value, low, high), high)

    def _buffered_in(self, level: Level, nodes: Ints) -> Ints:
        if not self._buffered_keys.size:
            return np.zeros(nodes.size, np.int64)
        occupied, inverse = np.unique(self._buffered_keys >> level.shift, return_inverse=True)
        counts = np.bincount(inverse, self._buffered_counts).astype(np.int64)
        at = np.minimum(np.searchsorted(occupied, nodes), occupied.size - 1)
        return np.where(occupied[at] == nodes, counts[at], 0)

    # -- sums ----------------------------------------------------------------------------------------------------------

    def sum(self, runs: list[Run]) -> tuple[float, float, float]:
        """Bounds of the arrivals under all these nodes together: (low, value, high)."""
        rows, certain_low, certain_high, square, collisions = np.zeros(self._layout.depth), 0.0, 0.0, 0.0, 0
        for level, first, last in runs:
            size = last - first + 1
            low, value, high = self.raw(level, first + np.arange(size))
            rows += value.sum(axis=1, dtype=np.float64)
            certain_high += float(high.min(axis=0).sum(dtype=np.float64))
            if level.width:
                collisions += size
            else:
                certain_low += float(low.sum(dtype=np.float64))
            square += size * self._spread(level) ** 2
        noise = math.sqrt(square * self._exponent / 2)
        least = float(rows.min())
        bottom = max(certain_low, least - noise - self._collisions(collisions))
        top = max(min(certain_high, least + noise, float(self.total.high[0])), bottom)
        return bottom, min(max(least, bottom), top), top

    def rank_errors(self) -> tuple[float, float]:
        """(by how much a rank may be too low, too high), with probability 1 - delta, for any key."""
        square = sum((FAN - 1) * self._spread(level) ** 2 for level in self._layout.levels)
        sketched = sum(FAN - 1 for level in self._layout.levels if level.width)
        noise = math.sqrt(square * self._exponent / 2)
        return noise, noise + self._collisions(sketched)

    def _spread(self, level: Level) -> float:
        spread = self._snapshot.spread[level.row : level.row + level.rows]
        return 0.0 if (spread == 1).all() else float(spread.max())  # every arrival is still noted, so nothing spreads

    def _collisions(self, nodes: int) -> float:
        return self._layout.odds * nodes * float(self.total.high[0]) / self._layout.width if nodes else 0.0


class TreeRange:
    """The arrivals in a range of time: those since it began, less those since it ended."""

    def __init__(self, layout: Layout, start: Suffix, end: Suffix | None) -> None:
        self._layout, self._parts = layout, [start] if end is None else [start, end]
        self.start = start

    def total(self) -> Bounds:
        """Bounds of all arrivals."""
        return _difference([part.total for part in self._parts])

    def nodes(self, level: Level, nodes: Any, together: int = 1) -> Bounds:
        """Bounds of single nodes, likely ones for ``together`` of them at once."""
        return _difference([part.nodes(level, nodes, together) for part in self._parts])

    def sum(self, runs: list[Run]) -> tuple[float, float, float]:
        """Bounds of the arrivals under all these nodes together: (low, value, high)."""
        bounds = _difference([Bounds(*(np.array([x]) for x in part.sum(runs))) for part in self._parts])
        low, value, high = (float(x[0]) for x in bounds)
        return low, value, high

    def quantile(self, q: Floats) -> tuple[Ints, Ints, Ints]:
        """For each q, bounds of the smallest key up to which a share of q of the arrivals lies: (low, value, high).

        ``low`` is at most the first key whose rank can be that large, ``high`` at least the last one whose predecessor's
        can be smaller. For both only the error at the true quantile counts, which is one key, not all that are compared.
        """
        low, value, high = (float(x[0]) for x in self.total())
        if high == 0:
            raise RangeError(
                "no arrivals in this range, so it has no quantiles", remedy="ask for a longer one, or see total() first"
            )
        errors = [part.rank_errors() for part in self._parts]
        may_lack = errors[0][0] + sum(too_high for _, too_high in errors[1:])
        may_exceed = errors[0][1] + sum(too_low for too_low, _ in errors[1:])
        # Ranks are integers of at least 1, so that q=0 is the smallest key that occurred.
        rank_low, rank_high = (np.ceil(np.maximum(q * n, 1.0) - _ROUNDING) for n in (low, high))
        at = self._descend(np.maximum(q * value * (1 - 1e-12), 1.0), "value")  # reaching a share exactly is enough
        first = self._descend(np.ceil(rank_low - may_lack - _ROUNDING), "first")
        last = self._descend(np.floor(rank_high + may_exceed + _ROUNDING), "last")
        return np.minimum(first, at), at, np.maximum(last, at)

    def _descend(self, targets: Floats, which: str) -> Ints:
        """Descend the tree to where the rank passes each target.

        The rank over a range of time is a difference of two, so it need not grow with the key. "value" keeps to a child
        over which it passes the target; "first" and "last" take the outermost child in which it could, which is decided
        by the two ranks at either end of the child. Where none of the next children can, the search goes on in the others.
        """
        size, two = targets.size, len(self._parts) == 2
        node, stopped = np.zeros(size, np.int64), np.zeros(size, bool)
        prefixes = [_Prefix(part, self._layout.depth, size) for part in self._parts]
        for level in self._layout.levels:
            children, exists = self._children(level, node)
            fits = self._fits(level, children, exists, prefixes, targets, which)
            choice = exists.shape[1] - 1 - fits[:, ::-1].argmax(axis=1) if which == "last" else fits.argmax(axis=1)
            stuck = ~fits.any(axis=1)
            stopped |= stuck & two & (which != "value")
            edge = 0 if two and which == "first" else exists.sum(axis=1) - 1
            choice = np.where(stuck | stopped, edge, choice)
            node = children[np.arange(size), choice]
            for prefix in prefixes:
                prefix.go_into(np.arange(size), choice)
        for i in np.flatnonzero(stopped):
            node[i] = self._outermost(targets[i], which, int(node[i]))
        return node

    def _outermost(self, target: float, which: str, otherwise: int) -> int:
        """The first or last key in which, and in all nodes above which, the rank could pass the target.

        All nodes of a level in which it could are examined, up to a limit; beyond it the bound is the edge of the first
        node that was left out, so that it holds in any case. If there is no such key, the answer is ``otherwise``.
        """
        node, first = np.zeros(1, np.int64), which == "first"
        prefixes = [_Prefix(part, self._layout.depth, 1) for part in self._parts]
        for level in self._layout.levels:
            children, exists = self._children(level, node)
            at, child = np.nonzero(self._fits(level, children, exists, prefixes, np.full(node.size, target), which))
            if not at.size:
                break
            left_out = at.size - _MOST_NODES
            if left_out > 0:
                inside, cut = (slice(_MOST_NODES), _MOST_NODES) if first else (slice(left_out, None), left_out - 1)
                edge = int(children[at[cut], child[cut]]) + (not first) << level.shift
                otherwise = edge if first else min(edge, self._layout.leaves.nodes) - 1
                at, child = at[inside], child[inside]
            node = children[at, child]
            for prefix in prefixes:
                prefix.go_into(at, child)
        else:
            return int(node[0] if first else node[-1])
        return otherwise

    def _children(self, level: Level, node: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """The children on this level of each node of the level before, and which of them are in the universe."""
        coarsest = level is self._layout.levels[0]
        children = (0 if coarsest else node[:, None] * FAN) + np.arange(level.nodes if coarsest else FAN)
        children = np.broadcast_to(children, (node.size, children.shape[-1]))
        return children, children < level.nodes

    def _fits(
        self,
        level: Level,
        children: Ints,
        exists: NDArray[np.bool_],
        prefixes: "list[_Prefix]",
        targets: Floats,
        which: str,
    ) -> NDArray[np.bool_]:
        """Which children the rank passes the target of their row in, or could pass it in; see ``_descend``."""
        ranks = [prefix.ranks(level, children, exists) for prefix in prefixes]  # at the start and end of each child
        starts, ends, two = ranks[0][:, :-1], ranks[0][:, 1:], len(ranks) == 2
        fits: NDArray[np.bool_]
        if which == "last":
            fits = exists & (starts - (ranks[1][:, 1:] if two else 0) < targets[:, None])
        else:
            gone = (ranks[1][:, 1:] if which == "value" else ranks[1][:, :-1]) if two else 0
            fits = exists & (ends - gone >= targets[:, None])
        return fits


class _Prefix:
    """The arrivals left of the nodes that a descent has reached, for each row."""

    def __init__(self, part: Suffix, depth: int, size: int) -> None:
        self._part = part
        self._rows = np.zeros((size, depth))

    def ranks(self, level: Level, children: Ints, exists: NDArray[np.bool_]) -> Floats:
        """The rank before the first child and at the end of each."""
        values = self._part.raw(level, np.where(exists, children, 0)).value.reshape(-1, *children.shape) * exists
        steps = np.concatenate([np.zeros((*values.shape[:2], 1)), np.cumsum(values, axis=2)], axis=2)
        self._ends: Floats = np.moveaxis(steps, 0, 1) + self._rows[:, :, None]  # target, row, child; levels of cells spread
        lowest: Floats = self._ends.min(axis=1)
        return lowest

    def go_into(self, at: Ints, child: Ints) -> None:
        """Descend into these children, each the child with this number of the node at this place."""
        self._rows = self._ends[at, :, child]


def _difference(parts: list[Bounds]) -> Bounds:
    """The difference of two suffixes, with their errors added; of one, itself."""
    if len(parts) == 1:
        return parts[0]
    start, end = parts
    low, high = np.maximum(start.low - end.high, 0), np.maximum(start.high - end.low, 0)
    return Bounds(low, np.clip(start.value - end.value, low, high), high)
