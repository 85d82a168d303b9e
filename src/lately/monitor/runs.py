"""Kernels that count events, and turn the wheel, until something has to be looked at; ``drift.py`` has the picture."""

import math
from typing import Any

import numpy as np

from lately.core.jit import helper, kernel
from lately.counters.base import MAX_STAMP
from lately.counters.wave import add_one, add_weighted, followed

#: Why a run over events stopped: rings must grow, rows moved too far, a key passed its cap, a counter fell below its floor.
GROW, MOVED, CAP, FLOOR = 1, 2, 4, 8
#: What the book has for each counter: its count, the floor below which to stop, until when it stays so, what is next to it
#: on the wheel.
PART, FLOOR_OF, DUE, NEXT = range(4)
_ONE = np.uint32(1)
#: Stands for a cap that no count reaches.
HUGE = 2**62


@helper
def _put_due(cell: Any, due: Any, book: Any, wheel: Any, grain: Any) -> None:
    """Note until when a counter stays as it is, and put it on the wheel if that is not for ever."""
    book[cell, DUE] = due
    if due != MAX_STAMP:
        spoke = (due // grain) & (wheel.size - 1)
        book[cell, NEXT], wheel[spoke] = wheel[spoke], cell


@helper
def _put_count(cell: Any, count: Any, book: Any, told: Any, squares: Any, shape: Any) -> Any:
    """Note what a counter counts, in its number and its row's rise and fall; tells whether it fell below its floor."""
    by = count - book[cell, PART]
    if by != 0:
        book[cell, PART] = count
        number, change = np.int64(cell), by
        if shape[1]:
            number, change = np.int64(cell) >> 1, by * (1 - 2 * (np.int64(cell) & 1))
        before = np.float64(told[0, number] - told[1, number])
        told[0, number] += change
        after = before + change
        row = number // shape[0]
        squares[0, row] += max(after, 0.0) ** 2 - max(before, 0.0) ** 2
        squares[1, row] += min(after, 0.0) ** 2 - min(before, 0.0) ** 2
    return by < 0 and count < book[cell, FLOOR_OF]


@helper
def _has_moved(squares: Any, seen: Any, signed: Any) -> Any:
    """Whether the rows' norms are further than the room (the last of ``seen``) from those seen last."""
    rows = squares.shape[1]
    total = 0.0
    for row in range(rows):
        if signed:
            total += (math.sqrt(max(squares[0, row] + squares[1, row], 0.0)) - seen[row]) ** 2
        else:
            total += (math.sqrt(max(squares[0, row], 0.0)) - seen[row]) ** 2
            total += (math.sqrt(max(squares[1, row], 0.0)) - seen[rows + row]) ** 2
    return total > seen[-1]


@kernel
def run_window(events: Any, waves: Any, local: Any, watch: Any, shape: Any, at: Any) -> int:
    """Count events until something has to be looked at; ``at`` is the event, and the row, to go on with."""
    cells, stamps, counts, hashes = events
    n, first, base, rings = waves
    book, wheel, told, squares = local
    seen, known, caps = watch
    age, span, lowest_cap, grain = shape[2], np.uint32(shape[3]), shape[4], shape[5]
    reason = 0
    for i in range(at[0], stamps.size):
        since = np.uint32(max(np.int64(stamps[i]) - age, 1))
        if since > shape[6]:
            newest = (np.int64(since) - 1) // grain
            for turned in range(max(shape[6] // grain, newest - wheel.size + 1), newest + 1):
                spoke = turned & (wheel.size - 1)
                cell, wheel[spoke] = wheel[spoke], -1
                while cell >= 0:
                    following, count, due = book[cell, NEXT], book[cell, PART], np.uint32(book[cell, DUE])
                    if due < since:
                        count, due = followed(cell, since, n, first, base, rings)
                    _put_due(cell, np.int64(due), book, wheel, grain)
                    if _put_count(cell, count, book, told, squares, shape):
                        reason |= FLOOR
                    cell = following
            shape[6] = since
        least = HUGE
        for row in range(at[1], cells.shape[0]):
            cell = np.int64(cells[row, i])
            if counts[i] == 1:
                fits = add_one(cell, stamps[i], n, first, rings, span)
            else:
                fits = add_weighted(cells[row, i : i + 1], stamps[i : i + 1], counts[i : i + 1], waves, span) == 1
            if not fits:
                at[0], at[1] = i, row
                return reason | GROW
            count = book[cell, PART] + counts[i]  # what the start of the range cuts off stays the same
            if book[cell, DUE] == MAX_STAMP:
                count, due = followed(cell, since, n, first, base, rings)
                _put_due(cell, np.int64(due), book, wheel, grain)
            _put_count(cell, count, book, told, squares, shape)
            least = min(least, count)
        at[1] = 0
        if least >= lowest_cap and cells.shape[0] and _is_over(least, cells[:, i], hashes[i], book, known, caps):
            reason |= CAP
        if _has_moved(squares, seen, shape[1]):
            reason |= MOVED
        if reason:
            at[0] = i + 1
            return reason
    at[0] = stamps.size
    return reason


@kernel
def hang(cells: Any, book: Any, wheel: Any, grain: Any) -> None:
    """Put counters on the wheel anew, in this order; of those on one spoke the last will be the first."""
    wheel[:] = -1
    for i in range(cells.size):
        _put_due(cells[i], book[cells[i], DUE], book, wheel, grain)


@kernel
def hung(book: Any, wheel: Any, cells: Any) -> int:
    """The counters on the wheel, spoke by spoke, the last ones first: hung again they will be as they were."""
    at = cells.size
    for spoke in range(wheel.size):
        cell = wheel[spoke]
        while cell >= 0:
            at -= 1
            cells[at] = cell
            cell = book[cell, NEXT]
    return int(at)


@kernel
def _is_over(least: Any, cells: Any, key: Any, book: Any, known: Any, caps: Any) -> bool:
    """Whether the count of a key has reached its cap, which is the first of them for keys that are not known."""
    for row in range(cells.size):  # the run may have begun in the middle of an event
        least = min(least, book[cells[row], PART])
    where = np.searchsorted(known, key)
    if where < known.size and known[where] == key:
        return bool(least >= caps[where + 1])
    return bool(least >= caps[0])


@kernel
def run_stream(events: Any, told: Any, squares: Any, seen: Any, at: Any) -> int:
    """Count events with signs until the rows have moved too far."""
    cells, counts = events
    for i in range(at[0], counts.size):
        for row in range(cells.shape[0]):
            number = cells[row, i] >> _ONE
            by = -counts[i] if cells[row, i] & _ONE else counts[i]
            before = np.float64(told[0, number] - told[1, number])
            told[0, number] += by
            squares[0, row] += (2 * before + by) * by
        if _has_moved(squares, seen, True):
            at[0] = i + 1
            return MOVED
    at[0] = counts.size
    return 0
