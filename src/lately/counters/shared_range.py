"""What a row of shared waves tells about a range: how many multiples its cells passed, and the bounds that follow.

Kernels over the arrays of ``shared_row.Row``; its picture says what they hold.
"""

from typing import Any

import numpy as np

from lately.core.jit import helper, kernel
from lately.counters.base import MAX_COUNT
from lately.counters.shared_row import HEAD, HELD, LOST, NEWEST, phase, place

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel
def finest(lost: Any, since: Any) -> Any:
    """The finest level from which on nothing was lost at ``since`` or later; the top never loses anything."""
    level = lost.size - 1
    while level > 0 and lost[level - 1] < since:
        level -= 1
    return level


@kernel
def add_up(row: Any, since: Any, level: Any, limits: Any, sums: Any) -> None:
    """Add how many multiples of 1 << level each cell of the row passed since a stamp, in a place of its own."""
    marks, size = row.marks, np.uint64(row.gaps.shape[1])
    for upper in range(level, marks.shape[0]):
        slot, stamp = np.uint64(marks[upper, HEAD]), np.uint64(marks[upper, NEWEST])
        for _ in range(marks[upper, HELD]):
            if stamp < since:
                break
            slot = slot - _ONE if slot > _ZERO else size - _ONE
            if row.cells[upper, slot] != limits.filler:
                sums[limits.start + row.cells[upper, slot]] += row.runs[upper, slot] if row.runs.size else _ONE
            stamp -= np.uint64(row.gaps[upper, slot])


@kernel
def tabulate(row: Any, since: Any, level: Any, limits: Any, keys: Any, sums: Any) -> None:
    """``add_up`` of the cells in a table of open addresses only; the size of the table is a power of two."""
    marks, size = row.marks, np.uint64(row.gaps.shape[1])
    for upper in range(level, marks.shape[0]):
        slot, stamp = np.uint64(marks[upper, HEAD]), np.uint64(marks[upper, NEWEST])
        for _ in range(marks[upper, HELD]):
            if stamp < since:
                break
            slot = slot - _ONE if slot > _ZERO else size - _ONE
            if row.cells[upper, slot] != limits.filler:
                cell = np.uint32(limits.start + row.cells[upper, slot])
                at = place(cell, keys)
                if keys[at] == cell:
                    sums[at] += row.runs[upper, slot] if row.runs.size else _ONE
            stamp -= np.uint64(row.gaps[upper, slot])


@kernel
def place_all(cells: Any, keys: Any, places: Any) -> None:
    """Put cells in a table of open addresses; ``places`` becomes where they are."""
    for i in range(cells.size):
        places[i] = place(cells[i], keys)
        keys[places[i]] = cells[i]


@helper
def _bracket(multiples: Any, n: Any, most: Any, level: Any, slack: Any) -> Any:
    """(low, value, high) of a cell that passed ``multiples`` multiples; ``value`` is right on average."""
    value = np.int64(multiples) << level
    rest = np.int64(n & ((_ONE << np.uint64(level)) - _ONE))
    least = value - (np.int64(1) << level) + rest + 1 if value > 0 else np.int64(0)
    return max(least - slack, 0), value, min(value + rest, np.int64(most)) + slack


@kernel
def look_up(cells: Any, multiples: Any, n: Any, numbering: Any, rows: Any, bounds: Any) -> None:
    """Bracket the counts of some cells from the multiples that each passed."""
    starts, levels, slack = rows
    low, value, high = bounds
    for i in range(cells.size):
        cell = cells[i]
        row = np.searchsorted(starts, cell, side="right") - 1
        most = _most(n[cell], cell, numbering, row)
        low[i], value[i], high[i] = _bracket(multiples[i], n[cell], most, levels[row], slack[row])


@kernel
def bracket_all(multiples: Any, n: Any, numbering: Any, rows: Any, bounds: Any) -> None:
    """Bracket the count of every cell."""
    starts, levels, slack = rows
    low, value, high = bounds
    for row in range(levels.size):
        for cell in range(starts[row], starts[row + 1]):
            most = _most(n[cell], cell, numbering, row)
            low[cell], value[cell], high[cell] = _bracket(multiples[cell], n[cell], most, levels[row], slack[row])


@helper
def _most(n: Any, cell: Any, numbering: Any, row: Any) -> Any:
    """The most that a cell may have counted: its number less its phase, unless 32 bits may have run over."""
    height, mask, overflowed = numbering
    return np.uint64(MAX_COUNT) if overflowed[row] else (np.uint64(n) - phase(cell, height)) & mask


@kernel
def as_weighted_arrivals(row: Any, live_from: Any, shift: Any, limits: Any, out: Any) -> int:
    """The row as weighted arrivals: each note represents its run at the finest level that was complete at its time."""
    cells, stamps, weights = out
    marks, size = row.marks, np.uint64(row.gaps.shape[1])
    lost, at = marks[:, LOST], 0
    for level in range(marks.shape[0]):
        slot, stamp = np.uint64(marks[level, HEAD]), np.uint64(marks[level, NEWEST])
        for _ in range(marks[level, HELD]):
            if stamp < live_from:
                break
            zone = finest(lost, stamp)
            if zone > level:
                break  # incomplete from here back
            slot = slot - _ONE if slot > _ZERO else size - _ONE
            if row.cells[level, slot] != limits.filler:
                cells[at] = limits.start + row.cells[level, slot]
                stamps[at] = np.int64(stamp) + shift
                weights[at] = np.int64(row.runs[level, slot] if row.runs.size else _ONE) << zone
                at += 1
            stamp -= np.uint64(row.gaps[level, slot])
    return at
