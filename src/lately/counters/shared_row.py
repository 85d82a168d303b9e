"""One row of shared waves: how arrivals are noted, counted back, and handed on when rows merge.

Every cell numbers its arrivals, from a phase of its own on. Arrivals whose number is a multiple of 1 << level, and of no
higher power, are noted in the ring of that level; the top ring takes all higher ones too. Other than in a wave, a ring is
not a cell's own but the row's, in the order of time:

    words[level, slot]   stamp << 32 | cell       the newest C notes of the row, overwritten in a circle
    runs[level, slot]    how many such numbers one arrival of a large count passed (empty while all passed one)
    heads[level]         the slot to write next
    lost[level]          the stamp of the newest note that was overwritten while still in the window

Since any stamp newer than all that is lost on a level and above, the notes tell how many multiples each cell passed.
"""

from typing import Any

import numpy as np

from lately.core.jit import helper, kernel
from lately.core.splitmix64 import GAMMA, mix
from lately.counters.base import MAX_STAMP
from lately.counters.bits import newest_odd, trailing_zeros

_ZERO, _ONE, _32, _LOW = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)

#: Marks an empty place of a table; no cell has this number.
NO_CELL = np.uint32(2**32 - 1)


@helper
def phase(cell: Any, height: Any) -> Any:
    """Where a cell's numbers begin: a random number of 61 bits, the same in every array of the same height."""
    return mix((np.uint64(height) << _32) + np.uint64(cell) + GAMMA) >> np.uint64(3)


def room(size: int, capacity: int) -> int:
    """How many notes a level has room for after it outgrew ``size``; at first 16, then four times as many."""
    return min(4 * size or 16, capacity)


class Row:
    """The notes of one row; see above. It begins with one level of ``room(0, capacity)`` notes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.heads = np.zeros(1, np.uint64)
        self.lost = np.zeros(1, np.uint32)
        self.words = np.zeros((1, room(0, capacity)), np.uint64)
        self.runs = np.zeros((0, 0), np.uint64)

    @property
    def state(self) -> tuple[Any, ...]:
        return self.heads, self.lost, self.words, self.runs

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.state)

    def copy(self) -> "Row":
        twin = Row(self.capacity)
        twin.heads, twin.lost, twin.words, twin.runs = (array.copy() for array in self.state)
        return twin

    def with_runs(self) -> None:
        """Make room for runs; until now all were of one."""
        if not self.runs.size:
            self.runs = np.ones_like(self.words)

    def rebase(self, shift: int) -> None:
        """Move the origin of the stamps."""
        by = np.uint64(min(shift, MAX_STAMP))
        self.words[...] = np.where(self.words >> _32 > by, self.words - (by << _32), 0)
        self.lost[...] = np.where(self.lost > shift, self.lost - np.uint32(by), 0)

    def oldest_first(self, rings: Any) -> Any:
        """The words or runs of each level, turned so that they begin with the oldest."""
        return (
            np.stack([np.roll(ring, -int(head)) for ring, head in zip(rings, self.heads, strict=True)]) if rings.size else rings
        )

    def grow(self, n: Any) -> None:
        """Enlarge the rings up to their capacity, or split the top one in two."""
        levels, size = self.words.shape
        words, runs = self.oldest_first(self.words), self.oldest_first(self.runs)
        if size < self.capacity:
            larger = room(size, self.capacity)
            self.words = np.zeros((levels, larger), np.uint64)
            self.words[:, :size] = words
            if runs.size:
                self.runs = np.ones((levels, larger), np.uint64)
                self.runs[:, :size] = runs
            self.heads[:] = size
            return
        top = levels - 1
        notes, lengths = words[top], runs[top] if runs.size else np.ones(size, np.uint64)
        odd = _odd_runs(notes, lengths, n, np.uint64(top))
        self.words = np.concatenate([self.words, np.zeros((1, size), np.uint64)])
        self.lost = np.append(self.lost, np.uint32(0))
        self.heads = np.append(self.heads, _ZERO)
        if runs.size:
            self.runs = np.concatenate([self.runs, np.ones((1, size), np.uint64)])
        for level, share in ((top, odd), (top + 1, lengths - odd)):
            kept = np.flatnonzero((share > 0) & (notes > 0))
            self.words[level] = 0
            self.words[level, : kept.size] = notes[kept]
            self.heads[level] = kept.size % size
            if runs.size:
                self.runs[level, : kept.size] = share[kept]


@helper
def _place(cell: Any, keys: Any) -> Any:
    """Where in a table of open addresses, whose size is a power of two, a cell is or belongs."""
    mask = np.uint32(keys.size - 1)
    at = (cell * np.uint32(0x9E3779B1)) & mask
    while keys[at] != NO_CELL and keys[at] != cell:
        at = (at + np.uint32(1)) & mask
    return at


@kernel
def add(cells: Any, stamps: Any, n: Any, row: Any, limits: Any) -> int:
    """Count one arrival each; returns how many were taken before the rings had to grow."""
    heads, lost, words, runs = row
    span, capacity = limits
    top, size = np.uint64(words.shape[0] - 1), np.uint64(words.shape[1])
    full, weighted = size == capacity, runs.size > 0
    if top == _ZERO and not weighted:  # nothing to choose: the slot stays in a register
        slot = heads[0]
        for i in range(cells.size):
            old = np.uint32(words[0, slot] >> _32)
            if old > 0 and stamps[i] - old <= span:
                heads[0] = slot
                return i
            words[0, slot] = (np.uint64(stamps[i]) << _32) | np.uint64(cells[i])
            slot += _ONE
            slot = slot if slot < size else _ZERO
            n[cells[i]] += _ONE
        heads[0] = slot
        return int(cells.size)
    for i in range(cells.size):
        cell, stamp = cells[i], stamps[i]
        position = n[cell] + _ONE
        level = min(trailing_zeros(position), top)
        slot = heads[level]
        old = np.uint32(words[level, slot] >> _32)
        if old > 0 and stamp - old <= span:
            if not full or level == top:
                return i
            lost[level] = old
        words[level, slot] = (np.uint64(stamp) << _32) | np.uint64(cell)
        if weighted:
            runs[level, slot] = _ONE
        slot += _ONE
        heads[level] = slot if slot < size else _ZERO
        n[cell] = position
    return int(cells.size)


@helper
def _passed(before: Any, after: Any, level: Any, top: Any) -> Any:
    """How many numbers of this level lie after ``before`` and up to ``after``."""
    if level == top:
        return (after >> top) - (before >> top)
    return newest_odd(after, level) - newest_odd(before, level)


@kernel
def add_weighted(cells: Any, stamps: Any, counts: Any, n: Any, row: Any, limits: Any) -> int:
    """Count ``counts[i]`` arrivals at once, in O(levels); the row must have room for runs."""
    heads, lost, words, runs = row
    span, capacity = limits
    top, size = np.uint64(words.shape[0] - 1), np.uint64(words.shape[1])
    full = size == capacity
    for i in range(cells.size):
        cell, stamp = cells[i], stamps[i]
        before = n[cell]
        after = before + np.uint64(counts[i])
        for at in range(top + _ONE):  # first see whether there is room, so that an arrival is noted on all levels or none
            level = np.uint64(at)
            old = np.uint32(words[level, heads[level]] >> _32)
            if old > 0 and stamp - old <= span and (not full or level == top) and _passed(before, after, level, top) > _ZERO:
                return i
        for at in range(top + _ONE):
            level = np.uint64(at)
            run = _passed(before, after, level, top)
            if run > _ZERO:
                slot = heads[level]
                old = np.uint32(words[level, slot] >> _32)
                if old > 0 and stamp - old <= span:
                    lost[level] = old
                words[level, slot] = (np.uint64(stamp) << _32) | np.uint64(cell)
                runs[level, slot] = run
                slot += _ONE
                heads[level] = slot if slot < size else _ZERO
        n[cell] = after
    return int(cells.size)


@kernel
def _odd_runs(words: Any, runs: Any, n: Any, top: Any) -> Any:
    """How many of each note's multiples of 1 << top are odd ones, found by counting back from each cell's newest."""
    size = 4
    while size < 2 * words.size:
        size *= 2
    keys, multiples = np.full(size, NO_CELL), np.zeros(size, np.uint64)
    odd = np.zeros(words.size, np.uint64)
    for i in range(words.size - 1, -1, -1):
        if words[i] > _ZERO:
            cell = np.uint32(words[i] & _LOW)
            at = _place(cell, keys)
            keys[at] = cell
            newest = (n[cell] >> top) - multiples[at]
            odd[i] = ((newest + _ONE) >> _ONE) - ((newest - runs[i] + _ONE) >> _ONE)
            multiples[at] += runs[i]
    return odd


@kernel
def finest(lost: Any, since: Any) -> Any:
    """The finest level from which on nothing was lost at ``since`` or later; the top never loses anything."""
    level = lost.size - 1
    while level > 0 and lost[level - 1] < since:
        level -= 1
    return level


@kernel
def notes_since(row: Any, since: Any, level: Any, cells: Any, runs_out: Any, at: Any) -> Any:
    """Append the notes since a stamp, from a level up; returns where the next ones go."""
    heads, _, words, runs = row
    size = np.uint64(words.shape[1])
    for upper in range(level, words.shape[0]):
        slot = heads[upper]
        for _ in range(size):
            slot = slot - _ONE if slot > _ZERO else size - _ONE
            word = words[upper, slot]
            if np.uint32(word >> _32) < since:
                break
            cells[at] = np.uint32(word & _LOW)
            runs_out[at] = runs[upper, slot] if runs.size else _ONE
            at += 1
    return at


@kernel
def tabulate(cells: Any, runs: Any, keys: Any, sums: Any) -> None:
    """Sum the runs of each cell in a table of open addresses whose size is a power of two."""
    for i in range(cells.size):
        at = _place(cells[i], keys)
        keys[at] = cells[i]
        sums[at] += runs[i]


@kernel
def tabulate_only(cells: Any, runs: Any, wanted: Any, keys: Any, sums: Any) -> None:
    """Sum the runs of the cells in ``wanted``, and of no others."""
    for cell in wanted:
        keys[_place(cell, keys)] = cell
    for i in range(cells.size):
        at = _place(cells[i], keys)
        if keys[at] == cells[i]:
            sums[at] += runs[i]


@kernel
def add_up(cells: Any, runs: Any, sums: Any) -> None:
    """Sum the runs of each cell in a place of its own."""
    for i in range(cells.size):
        sums[cells[i]] += runs[i]


@helper
def _bracket(multiples: Any, n: Any, most: Any, level: Any, slack: Any) -> Any:
    """(low, value, high) of a cell that passed ``multiples`` multiples; ``value`` is right on average."""
    value = np.int64(multiples) << level
    rest = np.int64(n & ((_ONE << np.uint64(level)) - _ONE))
    least = value - (np.int64(1) << level) + rest + 1 if value > 0 else np.int64(0)
    return max(least - slack, 0), value, min(value + rest, np.int64(most)) + slack


@kernel
def look_up(cells: Any, tables: Any, n: Any, height: Any, rows: Any, bounds: Any) -> None:
    """Bracket the count of each cell asked from the multiples that it passed."""
    keys, sums = tables
    starts, levels, slack = rows
    low, value, high = bounds
    for i in range(cells.size):
        cell = cells[i]
        at = _place(cell, keys)
        row = np.searchsorted(starts, cell, side="right") - 1
        multiples = sums[at] if keys[at] == cell else _ZERO
        low[i], value[i], high[i] = _bracket(multiples, n[cell], n[cell] - phase(cell, height), levels[row], slack[row])


@kernel
def bracket_all(sums: Any, n: Any, height: Any, rows: Any, bounds: Any) -> None:
    """Bracket the count of every cell."""
    starts, levels, slack = rows
    low, value, high = bounds
    for row in range(levels.size):
        for cell in range(starts[row], starts[row + 1]):
            most = n[cell] - phase(cell, height)
            low[cell], value[cell], high[cell] = _bracket(sums[cell], n[cell], most, levels[row], slack[row])


@kernel
def as_weighted_arrivals(row: Any, live_from: Any, shift: Any, cells: Any, stamps: Any, weights: Any) -> int:
    """The row as weighted arrivals: each note represents its run at the finest level that was complete at its time."""
    heads, lost, words, runs = row
    size = np.uint64(words.shape[1])
    at = 0
    for level in range(words.shape[0]):
        slot = heads[level]
        for _ in range(size):
            slot = slot - _ONE if slot > _ZERO else size - _ONE
            word = words[level, slot]
            stamp = np.uint32(word >> _32)
            if stamp < live_from:
                break
            zone = finest(lost, stamp)
            if zone > level:
                break  # incomplete from here back
            cells[at] = np.uint32(word & _LOW)
            stamps[at] = np.uint32(np.int64(stamp) + shift)
            weights[at] = np.int64(runs[level, slot] if runs.size else _ONE) << zone
            at += 1
    return at


@kernel
def phases(cells: Any, height: Any) -> Any:
    """The phases of the first ``cells`` cells."""
    out = np.empty(cells, np.uint64)
    for cell in range(cells):
        out[cell] = phase(cell, height)
    return out
