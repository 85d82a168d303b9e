"""A tree over the integers below ``universe``, sixteen children a node, every level counted over the window.

    shift 28   0 ······························ f          few nodes: a cell each
    shift 24   00 ························· ff
      …
    shift  4   0000000 ·············· fffffff              many nodes: Count-Min rows
    shift  0   00000000 ··········· ffffffff               the keys themselves

A range of keys is a sum of at most 30 nodes a level. All levels live in one array of shared waves, a level that has a cell
for each node in one of its rows, a sketched one in ``depth`` of them.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core import plan
from lately.core.arguments import check_probability, check_word
from lately.core.codec import Reader, Writer
from lately.core.errors import ParameterError
from lately.core.jit import kernel
from lately.core.plan import shared_capacity
from lately.counters.shared import SharedWave
from lately.counters.wave import Wave
from lately.ingest.shape import WindowShape, read_window_shape
from lately.sketches.hashing import coefficients
from lately.sketches.sketch_kind import Options

#: Children of a node: 1 << 4. Fewer rows to update than a binary tree, more nodes in a range.
BITS = 4
FAN = 1 << BITS

#: The most nodes that a range of keys takes on one level: some children on its left, some on its right.
COVER = 2 * (FAN - 1)

MAX_UNIVERSE = 2**63
_MOST_CELLS = 2**28

#: The shares of eps that collisions and the window's counters take; the counter of the total takes a tenth.
_COLLISIONS, _WINDOW, _TENTH = 0.45, 0.45, 10
#: By which multiple of its error a level of merging makes a sum over nodes worse, as measured.
_MERGING = 2.4


@dataclass(frozen=True, slots=True)
class TreeShape(WindowShape):
    """The options of a tree of counters."""

    universe: int
    seed: int

    def write(self, out: Writer) -> None:
        WindowShape.write(self, out)
        out.u64(self.universe)
        out.u64(self.seed)


def tree_shape(window: tuple[Any, int], eps: float, delta: float, merge_height: int, universe: int, seed: int) -> TreeShape:
    """Check the options."""
    check_probability("eps", eps)
    check_probability("delta", delta)
    plan.premerge_error(eps, merge_height)
    shape = TreeShape(*window, eps, delta, merge_height, universe, check_word("seed", seed))
    if (cells := layout(shape).cells) > _MOST_CELLS:
        raise ParameterError(
            f"eps={eps!r}, delta={delta!r} over {universe:,} keys need {cells:,} cells", remedy="give a larger eps"
        )
    return shape


@dataclass(frozen=True, eq=False, slots=True)
class Level:
    """One level of the tree, and which rows and cells count it."""

    shift: int
    nodes: int
    start: int
    row: int
    width: int  # of a sketched row; 0 where every node has its cell
    words: NDArray[np.uint64]

    @property
    def rows(self) -> int:
        return max(1, len(self.words))

    def cells(self, nodes: Any) -> NDArray[np.uint32]:
        """The cells of these nodes, for each row of the level."""
        flat = np.ascontiguousarray(nodes, np.uint64).ravel()
        out = np.empty((self.rows, flat.size), np.uint32)
        for row in range(self.rows):
            self.cells_in_row(flat, np.uint64(0), row, out[row])
        return out

    def cells_in_row(self, keys: Any, shift: Any, row: int, out: Any) -> None:
        """The cells that the nodes above these keys have in one row."""
        if self.width:
            _sketched_cells(keys, shift, self.words[row], np.uint64(self.width), np.uint64(self.start + row * self.width), out)
        else:
            _node_cells(keys, shift, np.uint64(self.start), out)


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The levels, the coarsest first, and the sizes that follow from the guarantee."""

    levels: tuple[Level, ...]
    cells: int
    starts: tuple[int, ...]
    depth: int
    width: int
    odds: float  # a row's collisions exceed odds times what is expected with a probability of 1/odds
    eps_sw: float
    eps_total: float

    @property
    def leaves(self) -> Level:
        return self.levels[-1]


@lru_cache(maxsize=64)
def layout(shape: TreeShape) -> Layout:
    """How to spend eps and delta: 45 % of eps on collisions, 45 % on the window, 10 % on the total; delta in halves.

    The window's part is a sum of independent errors, one for each node of a range, so it grows with the root of their
    number only (Hoeffding). A level is sketched where that takes less room than a cell for each node.
    """
    shifts = range(0, max(1, (shape.universe - 1).bit_length()), BITS)
    sketched, width, depth = 0, 0, 1
    while sketched < len(shifts):
        wider, deeper = _size(shape, sketched + 1)
        ring = 8 * 8 * shared_capacity(_eps_sw(shape, len(shifts), deeper))  # eight levels, where most streams end up
        nodes = ((shape.universe - 1) >> shifts[sketched]) + 1
        if 8 * nodes + ring <= 2 * deeper * (8 * wider + ring):  # one row is updated faster than ``deeper`` of them
            break
        sketched, width, depth = sketched + 1, wider, deeper
    eps_sw = _eps_sw(shape, len(shifts), depth)
    levels: list[Level] = []
    start = 0
    starts: list[int] = []
    for index in reversed(range(len(shifts))):
        nodes = ((shape.universe - 1) >> shifts[index]) + 1
        words = coefficients(shape.seed + index, depth if index < sketched else 0)
        level = Level(shifts[index], nodes, start, len(starts), width if index < sketched else 0, words)
        levels.append(level)
        for row in range(level.rows):
            starts.append(start + row * level.width)
        start += level.rows * level.width or nodes
    eps_total = shape.before_merges(shape.eps / _TENTH)
    odds = (2 * max(sketched, 1) / shape.delta) ** (1 / depth)
    return Layout(tuple(levels), start, tuple(starts), depth, width, odds, eps_sw, eps_total)


def _size(shape: TreeShape, sketched: int) -> tuple[int, int]:
    """(width, depth) of each of ``sketched`` levels: a quantile compares one rank on each."""
    odds, depth = plan.fewest_rows(shape.delta / (2 * sketched))
    return math.ceil(odds * COVER * sketched / (_COLLISIONS * shape.eps)), depth


def _eps_sw(shape: TreeShape, levels: int, depth: int) -> float:
    """The error of a cell that makes that of a range's sum 45 % of eps, merges included."""
    deviation = math.sqrt(COVER * levels / 2 * noise_exponent(depth, shape.delta))
    return _WINDOW * shape.eps / deviation / (1 + _MERGING * shape.merge_height)


def noise_exponent(depth: int, delta: float) -> float:
    """ln of the number of events to exclude, over delta/2: each row's sum, either way, on each of at most 16 ranks.

    Any of 64 levels of notes may be the one that answers; which one it is depends on the phases too.
    """
    return math.log(2 * depth * 16 * 64 / (delta / 2))


def merged_eps(options: Options) -> float:
    """About the eps of trees that are merged in one step: their counters' errors grow by ``_MERGING``, the total's doubles.

    Parameters
    ----------
    options
        The options of the trees, of which only ``eps`` counts.
    """
    return round(float(options["eps"]) * (_COLLISIONS + _WINDOW * (1 + _MERGING) + 2 / _TENTH), 6)


def read_tree_shape(source: Reader) -> TreeShape:
    """Read what ``TreeShape.write`` wrote, if it is not too large."""
    base = read_window_shape(source)
    universe = source.within(source.u64(), 2, MAX_UNIVERSE)
    guarantee = base.window, base.lateness, base.eps, base.delta, base.merge_height
    shape = TreeShape(*guarantee, universe, source.u64(), additive=base.additive)
    cells = layout(shape).cells
    source.check(cells <= _MOST_CELLS, f"{cells} cells")
    source.fits(16 * cells)
    return shape


def tree_arrays(shape: TreeShape) -> tuple[SharedWave, Wave]:
    """The nodes of all levels, and one finer counter for the total."""
    sizes, span = layout(shape), shape.window.span
    return SharedWave(sizes.cells, span, sizes.eps_sw, sizes.starts), Wave(1, span, sizes.eps_total)


@kernel
def _node_cells(keys: Any, shift: Any, start: Any, out: Any) -> None:
    for i in range(keys.size):
        out[i] = np.uint32((keys[i] >> shift) + start)


@kernel
def _sketched_cells(keys: Any, shift: Any, words: Any, width: Any, start: Any, out: Any) -> None:
    """As ``hashing.row_cells``, of the nodes above the keys."""
    a, b, c, half, low = words[0], words[1], words[2], np.uint64(32), np.uint64(2**32 - 1)
    for i in range(keys.size):
        node = keys[i] >> shift
        mixed = (a + (node >> half)) * (b + (node & low)) + c
        out[i] = np.uint32((((mixed >> half) * width) >> half) + start)
