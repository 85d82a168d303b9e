"""Finding heavy keys by descending the tree: a key is no heavier than any of the prefixes above it."""

import math

import numpy as np

from lately.core.arguments import check_number, check_probability
from lately.core.columns import Ints
from lately.core.errors import ParameterError
from lately.counters.base import Bounds
from lately.sketches.ranks import TreeRange
from lately.sketches.tree import BITS, FAN, Level


def threshold(phi: float, eps: float, total: Bounds) -> float:
    """How many arrivals make a key heavy: at most a share of phi + eps of the total, so that no such key is left out."""
    return max((phi + eps) * float(total.low[0]) * (1 - 1e-12), 1.0)  # a key with exactly this share is listed


def check_phi(phi: float, eps: float) -> float:
    """Check a share; it must be larger than the error, or every key could be heavy."""
    check_probability("phi", phi)
    if phi <= eps:
        raise ParameterError(
            f"phi={phi!r} is not above eps={eps!r}, so keys that never occurred could pass",
            remedy=f"build the sketch with an eps below {float(phi):g}, such as {float(phi) / 4:g}, "
            f"or ask for a phi above {eps:g}",
        )
    return float(phi)


def check_at_least(at_least: float) -> float:
    """Check a number of arrivals."""
    return check_number("at_least", at_least, 1, 2**62, remedy="give a number of arrivals")


def most_listed(eps: float) -> int:
    """The longest list of heavy keys: several times what an error of eps can distinguish."""
    return 128 + math.ceil(8 / eps)


def heavy_nodes(tree: TreeRange, levels: tuple[Level, ...], least: float, most: int) -> tuple[list[Ints], float, int]:
    """On each level the nodes that may have ``least`` arrivals; certainly all that do.

    Where bounds are so wide that more than ``most`` nodes may, ``least`` is raised until they are few enough. Returns the
    nodes, the final ``least``, and how many keys were examined: which ones does not depend on the cells of keys.
    """
    candidates: list[Ints] = []
    highs: list[Ints] = []
    nodes: Ints = np.arange(levels[0].nodes)
    for level in levels:
        if candidates:
            nodes = (candidates[-1][:, None] * FAN + np.arange(FAN)).ravel()
            nodes = nodes[nodes < level.nodes]
        high, examined = tree.nodes(level, nodes).high, nodes.size
        if int((high >= least).sum()) > most:
            least = float(np.partition(high, high.size - most)[high.size - most]) + 1
        candidates.append(nodes[high >= least])
        highs.append(high[high >= least])
    # Nodes of coarser levels must pass the raised ``least`` too, and so must all nodes above a listed one.
    listed: list[Ints] = []
    for nodes, high in zip(candidates, highs, strict=True):
        passes = high >= least
        if listed:
            passes &= np.isin(nodes >> BITS, listed[-1])
        listed.append(nodes[passes])
    return listed, least, examined


def heavy_keys(tree: TreeRange, levels: tuple[Level, ...], least: float, most: int) -> tuple[Ints, Bounds, float]:
    """The keys that may have ``least`` arrivals, their bounds, and the final ``least``."""
    nodes, least, _ = heavy_nodes(tree, levels, least, most)
    return nodes[-1], tree.nodes(levels[-1], nodes[-1]), least


def heavy_prefixes(
    tree: TreeRange, levels: tuple[Level, ...], least: float, most: int, bits: int, step: int
) -> tuple[Ints, Ints, Bounds, Bounds, float]:
    """Prefixes, their lengths, their counts, their own counts (without those of heavy prefixes below), and the final ``least``.

    It goes from the keys up and subtracts from each prefix the highest listed ones below it. ``own`` is bounded from above by
    a certain count less likely ones, so with the likelihood of those a prefix is left out only if it is below ``least``.
    The longest prefixes come first.
    """
    heavy_by_level, least, _ = heavy_nodes(tree, levels, least, most)
    nodes = dict(zip((level.shift for level in levels), heavy_by_level, strict=True))
    by_shift = {level.shift: level for level in levels}
    listed: list[tuple[Ints, Ints, Bounds, Bounds]] = []
    below = _nothing(), Bounds(_nothing(), _nothing(), _nothing())  # the highest listed prefixes so far, as of this level
    for shift in range(0, bits, step):
        finer = shift - shift % BITS
        if shift == finer:
            candidates = nodes[finer]
        else:  # any prefix under a heavy node: its own nodes may all be light
            wider = finer + BITS - shift
            parents = nodes.get(finer + BITS, np.zeros(1, np.int64))
            candidates = (parents[:, None] * (1 << wider) + np.arange(1 << wider)).ravel()
            candidates = candidates[candidates << (shift - finer) < by_shift[finer].nodes]
        count = _prefix_bounds(tree, by_shift[finer], candidates, shift - finer)
        places, inside = below
        owner = np.searchsorted(candidates, places >> shift)  # the parent of a heavy prefix is heavy itself
        below_it = [np.bincount(owner, part, candidates.size).astype(np.int64) for part in inside]
        own = Bounds(*(np.maximum(part - other, 0) for part, other in zip(count, reversed(below_it), strict=True)))
        heavy = own.high >= least
        own_high = np.maximum(own.high, own.low)
        listed.append(
            (
                candidates[heavy] << shift,
                np.full(int(heavy.sum()), bits - shift),
                Bounds(*(part[heavy] for part in count)),
                Bounds(own.low[heavy], np.clip(own.value, own.low, own_high)[heavy], own_high[heavy]),
            )
        )
        # From here on a listed prefix includes all that is listed below it.
        stays = ~heavy[owner] if places.size else np.zeros(0, bool)
        below = (
            np.concatenate([places[stays], candidates[heavy] << shift]),
            Bounds(*(np.concatenate([a[stays], b[heavy]]) for a, b in zip(inside, count, strict=True))),
        )
    prefixes, lengths, counts, owns = zip(*listed, strict=True)
    return np.concatenate(prefixes), np.concatenate(lengths), _joined(counts), _joined(owns), least


def _prefix_bounds(tree: TreeRange, level: Level, prefixes: Ints, spread: int) -> Bounds:
    """Bounds of prefixes that lie ``spread`` bits above a level: sums of neighbouring nodes."""
    if spread == 0:
        return tree.nodes(level, prefixes)
    nodes = (prefixes[:, None] << spread) + np.arange(1 << spread)
    exists = nodes < level.nodes
    bounds = tree.nodes(level, np.where(exists, nodes, 0).ravel())
    most = float(tree.total().high[0])
    sums = [np.minimum((part.reshape(nodes.shape) * exists).sum(axis=1, dtype=np.float64), most) for part in bounds]
    return Bounds(*(part.astype(np.int64) for part in sums))


def _nothing() -> Ints:
    return np.empty(0, np.int64)


def _joined(parts: tuple[Bounds, ...]) -> Bounds:
    return Bounds(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
