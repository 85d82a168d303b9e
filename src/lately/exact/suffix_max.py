"""The elements of each substream that are the largest of all since them: its suffix maxima (SHARE §4.3).

A larger arrival takes the place of the smaller ones before it, so a substream's values fall from its oldest to its newest:

    9 · · · 7 · · 4 · 5     5 arrives, and 4 goes
    ]───────]─────────]     5 answers for windows that begin after 7's tick, 7 for those that begin after 9's

An element is a row of the tree of intervals (treap.py) and a row of links here. All elements of all substreams also form one
list in time order, by which they expire; row 0 is both ends of the list. When an element expires, the next newer element of
its substream still links to it. It also stores the tick of the link, and links to a tick before the floor are not followed.

Beside the element before it, each element links to one farther back: where the two jumps before it have equal length, it jumps
over both (the skew-binary lists of Myers). So a tick is found in logarithmic time, without an array for each substream.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import helper, kernel
from lately.exact.treap import END, NEVER, OUTSIDE, PARENT, START, VALUE, Tree, remove

#: The columns of a row of links: the substream, its element before, one farther back, the distance; then neighbours in time.
OWNER, OLDER, JUMP, LENGTH, BEFORE, AFTER = 0, 1, 2, 3, 4, 5


class Elements(NamedTuple):
    """Elements of all substreams, a row each. Free rows are linked by ``OLDER``."""

    tree: Tree
    chain: NDArray[np.int32]
    landing: NDArray[np.int64]  # the tick to which each one jumps
    free: NDArray[np.int64]  # the first free row (0: none), and the number of free rows

    @classmethod
    def of(cls, size: int) -> "Elements":
        empty = cls(Tree.of(1), np.zeros((1, 6), np.int32), np.zeros(1, np.int64), np.zeros(2, np.int64))
        return empty.grown(size)

    def grown(self, size: int) -> "Elements":
        """The same with more rows."""
        old = len(self.chain)
        chain, landing = np.zeros((size, 6), np.int32), np.zeros(size, np.int64)
        chain[:old], landing[:old] = self.chain, self.landing
        chain[old:, OLDER] = np.arange(old + 1, size + 1)
        chain[-1, OLDER] = self.free[0]
        return Elements(self.tree.grown(size), chain, landing, np.array([old, self.free[1] + size - old]))

    @property
    def nbytes(self) -> int:
        return self.tree.rows.nbytes + self.tree.heights.nbytes + self.chain.nbytes + self.landing.nbytes + self.free.nbytes


@helper
def _drop(elements: Any, node: Any) -> Any:
    """Free an element that cannot be an answer any more."""
    tree, chain, _, free = elements
    before, after = chain[node, BEFORE], chain[node, AFTER]
    chain[before, AFTER], chain[after, BEFORE] = after, before
    if tree.links[node, PARENT] != OUTSIDE:
        remove(tree, node)
    chain[node, OLDER] = free[0]
    free[0] = node
    free[1] += 1


@helper
def _append(elements: Any, owner: Any, older: Any, floor: Any) -> Any:
    """A new element of a substream, linked to the one before it, if any; it is not in the tree yet."""
    tree, chain, landing, free = elements
    node = np.int32(free[0])
    free[0] = chain[node, OLDER]
    free[1] -= 1
    newest = chain[0, BEFORE]
    chain[newest, AFTER], chain[0, BEFORE] = node, node
    chain[node, BEFORE], chain[node, AFTER] = newest, 0
    chain[node, OWNER], chain[node, OLDER] = owner, older
    tree.links[node, PARENT] = OUTSIDE
    jump, length, tick = older, np.int32(1), tree.rows[older, END]
    if older == 0:
        length, tick = np.int32(0), NEVER
    elif landing[older] >= floor:
        far = chain[older, JUMP]
        if chain[older, LENGTH] == chain[far, LENGTH]:
            jump, length, tick = chain[far, JUMP], np.int32(1 + 2 * chain[far, LENGTH]), landing[far]
    chain[node, JUMP], chain[node, LENGTH], landing[node] = jump, length, tick
    return node


@kernel
def arrive(elements: Any, newest: Any, arrivals: Any, floor: Any, done: Any) -> Any:
    """Add arrivals in time order, from the row ``done`` on; return the row at which no row was free, or the end."""
    rows, _, _ = elements.tree
    chain = elements.chain
    ids, ticks, values = arrivals
    for i in range(done, ids.size):
        owner, tick, value = ids[i], ticks[i], values[i]
        last = newest[owner]
        # Of arrivals with equal ticks only the largest matters.
        if tick < floor or (last != 0 and rows[last, END] == tick and rows[last, VALUE] >= value):
            continue
        start = rows[last, END] if last != 0 else NEVER
        while last != 0 and rows[last, VALUE] <= value:
            start = rows[last, START]
            older = chain[last, OLDER] if start >= floor else np.int32(0)
            _drop(elements, last)
            last = older
        if elements.free[1] == 0:  # then nothing was dropped for this arrival, and nothing has changed
            return i
        node = _append(elements, owner, last, floor)
        rows[node, START], rows[node, END], rows[node, VALUE] = start, tick, value
        newest[owner] = node
    return ids.size


@kernel
def arrived(elements: Any, nodes: Any) -> Any:
    """The elements that are not in the tree yet, which are the newest ones; returns their number."""
    links, chain = elements.tree.links, elements.chain
    count, node = 0, chain[0, BEFORE]
    while node != 0 and links[node, PARENT] == OUTSIDE:
        nodes[count] = node
        count += 1
        node = chain[node, BEFORE]
    return count


@kernel
def expire(elements: Any, newest: Any, floor: Any) -> Any:
    """Free all elements before a tick."""
    rows, chain = elements.tree.rows, elements.chain
    node = chain[0, AFTER]
    while node != 0 and rows[node, END] < floor:
        owner, after = chain[node, OWNER], chain[node, AFTER]
        if newest[owner] == node:
            newest[owner] = 0
        _drop(elements, node)
        node = after


@kernel
def forget(elements: Any, newest: Any, ids: Any, floor: Any) -> Any:
    """Free all elements of some substreams."""
    rows, chain = elements.tree.rows, elements.chain
    for owner in ids:
        node = newest[owner]
        newest[owner] = 0
        while node != 0:
            older = chain[node, OLDER] if rows[node, START] >= floor else np.int32(0)
            _drop(elements, node)
            node = older


@kernel
def answering(elements: Any, newest: Any, ids: Any, since: Any, nodes: Any) -> Any:
    """For each of these substreams the element with the largest value since a tick that has not expired; 0 for none."""
    rows, chain, landing = elements.tree.rows, elements.chain, elements.landing
    for i in range(ids.size):
        node = newest[ids[i]]
        if node != 0 and rows[node, END] < since:
            node = np.int32(0)
        while node != 0 and rows[node, START] >= since:
            node = chain[node, JUMP] if landing[node] >= since else chain[node, OLDER]
        nodes[i] = node


@kernel
def in_time_order(elements: Any, nodes: Any) -> Any:
    """All elements from the oldest to the newest."""
    chain = elements.chain
    node = chain[0, AFTER]
    for i in range(nodes.size):
        nodes[i] = node
        node = chain[node, AFTER]
