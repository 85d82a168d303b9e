"""Intervals of time with a value each: which of them contain a given tick and have a value in a given range?

This is the dynamic interval tree of CI-MAX (SHARE §4.3), made of one ordered set. An interval (start, end] belongs to the
highest bit in which its two ends differ: that is the height of the smallest dyadic block that contains both, and the middle of
the block lies between them. All intervals that contain a tick x belong to blocks that contain x, one at each height:

         block [8, 16)
    8 ──────── 12 ──────── 16       middle 12, height 2
        (──────┼───]                contains x < 12 if start < x, whatever its end
             (─┼────────]           contains x >= 12 if end >= x, whatever its start

So the set is ordered by (middle, value), and a subtree stores its smallest start and its largest end: a walk through a range of
values in one block enters only subtrees with something to report. The set is a treap, whose shape does not depend on the
order of insertions and removals. Node 0 is a sentinel: it ends every path, and its left child is the root.

A node is a row of 64 bytes, a cache line. Values are integers in the order of the numbers that they represent.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import helper, kernel

#: The columns of a row, 8 bytes each; then three links, 4 bytes each, by their place in the same memory.
START, END, VALUE, MIDDLE, FIRST, LAST = 0, 1, 2, 3, 4, 5
LEFT, RIGHT, PARENT = 12, 13, 14

#: The parent of a node that is not in the tree.
OUTSIDE = np.int32(-1)

#: Before and after every tick.
NEVER, EVER = np.int64(-(2**63)), np.int64(2**63 - 1)

_ONE = np.int64(1)
_LOW_BITS = np.int64(2**32 - 1)


class Tree(NamedTuple):
    """The nodes, their links, and the number of intervals of each height."""

    rows: NDArray[np.int64]
    links: NDArray[np.int32]  # a view of the rows
    heights: NDArray[np.int64]

    @classmethod
    def of(cls, size: int) -> "Tree":
        rows = _aligned(size)
        rows[0, FIRST], rows[0, LAST] = EVER, NEVER
        return cls(rows, rows.view(np.int32), np.zeros(64, np.int64))

    def grown(self, size: int) -> "Tree":
        rows = _aligned(size)
        rows[: len(self.rows)] = self.rows
        return Tree(rows, rows.view(np.int32), self.heights)


class Search(NamedTuple):
    """What a lookup searches in one block."""

    middle: Any
    tick: Any
    low: Any
    high: Any


def _aligned(size: int) -> NDArray[np.int64]:
    """Rows that begin at a cache line; otherwise each node would take two."""
    room = np.zeros(8 * size + 8, np.int64)
    skipped = -(room.ctypes.data // 8) % 8
    return room[skipped : skipped + 8 * size].reshape(size, 8)


@helper
def _priority(node: Any) -> Any:
    """A pseudo-random number; no product exceeds 63 bits."""
    mixed = (np.int64(node) * np.int64(0x9E3779B1)) & _LOW_BITS
    mixed = ((mixed ^ (mixed >> 15)) * np.int64(0x2C1B3C6D)) & _LOW_BITS
    return mixed ^ (mixed >> 13)


@helper
def _height(start: Any, end: Any) -> Any:
    """The highest bit in which two ticks differ."""
    differing = start ^ end
    height = np.int64(0)
    if differing < 0:
        height = np.int64(63)
    else:
        for step in (32, 16, 8, 4, 2, 1):
            if differing >> (height + step):
                height += step
    return height


@helper
def _middle(tick: Any, height: Any) -> Any:
    """The middle of the block of this height that contains a tick. The largest block is all of time; its middle is 0."""
    middle = np.int64(0)
    if height < 63:
        bit = _ONE << height
        middle = (tick | bit) & -bit
    return middle


@helper
def _gather(rows: Any, links: Any, node: Any) -> Any:
    """Set the smallest start and the largest end of a node's subtree; return whether they changed."""
    left, right = links[node, LEFT], links[node, RIGHT]
    first = min(rows[node, START], min(rows[left, FIRST], rows[right, FIRST]))
    last = max(rows[node, END], max(rows[left, LAST], rows[right, LAST]))
    changed = first != rows[node, FIRST] or last != rows[node, LAST]
    rows[node, FIRST], rows[node, LAST] = first, last
    return changed


@kernel
def place(tree: Any, nodes: Any) -> Any:
    """Set the middles of nodes whose intervals are set."""
    rows, _, _ = tree
    for node in nodes:
        rows[node, MIDDLE] = _middle(rows[node, END], _height(rows[node, START], rows[node, END]))


@kernel
def insert(tree: Any, nodes: Any) -> Any:
    """Insert nodes whose interval, value and middle are set. It is fastest in the order of the tree."""
    rows, links, heights = tree
    for node in nodes:
        start, end, value, middle = rows[node, START], rows[node, END], rows[node, VALUE], rows[node, MIDDLE]
        heights[_height(start, end)] += 1
        priority = _priority(node)
        parent, side, here = np.int32(0), LEFT, links[0, LEFT]
        while here != 0 and _priority(here) >= priority:
            if start < rows[here, FIRST]:
                rows[here, FIRST] = start
            if end > rows[here, LAST]:
                rows[here, LAST] = end
            less = rows[here, MIDDLE] < middle or (rows[here, MIDDLE] == middle and rows[here, VALUE] <= value)
            parent, side = here, RIGHT if less else LEFT
            here = links[here, side]
        links[parent, side], links[node, PARENT] = node, parent
        # The subtree here is split: smaller nodes go to the left of the new node, the others to its right.
        low, low_side, high, high_side = node, LEFT, node, RIGHT
        while here != 0:
            if rows[here, MIDDLE] < middle or (rows[here, MIDDLE] == middle and rows[here, VALUE] <= value):
                links[low, low_side], links[here, PARENT] = here, low
                low, low_side, here = here, RIGHT, links[here, RIGHT]
            else:
                links[high, high_side], links[here, PARENT] = here, high
                high, high_side, here = here, LEFT, links[here, LEFT]
        links[low, low_side], links[high, high_side] = 0, 0
        while low != node:
            _gather(rows, links, low)
            low = links[low, PARENT]
        while high != node:
            _gather(rows, links, high)
            high = links[high, PARENT]
        _gather(rows, links, node)


@helper
def remove(tree: Any, node: Any) -> Any:
    """Remove a node from the tree."""
    rows, links, heights = tree
    start, end = rows[node, START], rows[node, END]
    heights[_height(start, end)] -= 1
    above = links[node, PARENT]
    parent, side = above, LEFT if links[above, LEFT] == node else RIGHT
    left, right = links[node, LEFT], links[node, RIGHT]
    while left != 0 and right != 0:
        if _priority(left) >= _priority(right):
            links[parent, side], links[left, PARENT] = left, parent
            parent, side, left = left, RIGHT, links[left, RIGHT]
        else:
            links[parent, side], links[right, PARENT] = right, parent
            parent, side, right = right, LEFT, links[right, LEFT]
    rest = left if left != 0 else right
    links[parent, side] = rest
    if rest != 0:
        links[rest, PARENT] = parent
    links[node, PARENT] = OUTSIDE
    while parent != above:
        _gather(rows, links, parent)
        parent = links[parent, PARENT]
    # Above, only this node is missing: where it changes nothing, it changes nothing further up.
    while parent != 0 and (start <= rows[parent, FIRST] or end >= rows[parent, LAST]):
        if not _gather(rows, links, parent):
            break
        parent = links[parent, PARENT]


@helper
def _misses(rows: Any, node: Any, block: Any) -> Any:
    """Whether no interval of a subtree contains the tick, if all belong to this block; true for an empty subtree."""
    middle, tick = block.middle, block.tick
    return rows[node, FIRST] >= tick if tick < middle else rows[node, LAST] < tick


@helper
def _to_left(rows: Any, links: Any, here: Any, block: Any) -> Any:
    """The left child if it may have something to report, else 0."""
    middle, low = block.middle, block.low
    child = links[here, LEFT]
    below = rows[here, MIDDLE] < middle or (rows[here, MIDDLE] == middle and rows[here, VALUE] < low)
    return np.int32(0) if below or _misses(rows, child, block) else child


@helper
def _to_right(rows: Any, links: Any, here: Any, block: Any) -> Any:
    """The right child if it may have something to report, else 0."""
    middle, high = block.middle, block.high
    child = links[here, RIGHT]
    beyond = rows[here, MIDDLE] > middle or (rows[here, MIDDLE] == middle and rows[here, VALUE] > high)
    return np.int32(0) if beyond or _misses(rows, child, block) else child


@kernel
def stab(tree: Any, tick: Any, low: Any, high: Any, nodes: Any) -> Any:
    """Find the nodes whose interval contains a tick and whose value is in ``low..high``.

    Returns their number and the number of nodes visited. ``nodes`` receives as many as it has room for.
    """
    rows, links, heights = tree
    count, visited = 0, 0
    for height in range(64):
        if heights[height] == 0:
            continue
        middle = _middle(tick, np.int64(height))
        block = Search(middle, tick, low, high)
        here = links[0, LEFT]
        while here != 0:
            visited += 1
            if (
                rows[here, MIDDLE] == middle
                and low <= rows[here, VALUE] <= high
                and rows[here, START] < tick <= rows[here, END]
            ):
                if count < nodes.size:
                    nodes[count] = here
                count += 1
            after = _to_left(rows, links, here, block)
            if after == 0:
                after = _to_right(rows, links, here, block)
            while after == 0 and here != 0:
                below, here = here, links[here, PARENT]
                if here != 0 and links[here, LEFT] == below:
                    after = _to_right(rows, links, here, block)
            here = after
    return count, visited
