"""Kernels that count events and turn the expiry wheel until something must be checked; ``drift.py`` has the picture."""

import math
from typing import Any

import numpy as np

from lately.core.jit import helper, kernel
from lately.counters.base import MAX_STAMP
from lately.counters.wave import add_one, add_weighted, count_and_expiry

#: Why a run over events stopped: rings must grow, rows moved too far, a key reached its cap, a counter fell below its floor.
GROW, MOVED, CAP, FLOOR = 1, 2, 4, 8
#: The columns of ``book``, a row for each counter: its count, the floor below which to stop, the stamp until which the count
#: stays as it is, the next counter on the same spoke of the wheel, and how much of the count is in the reorder buffer.
COUNT, FLOOR_OF, DUE, NEXT, BUFFERED = range(5)
#: What a run does with events: count them in order, count and buffer them, or move buffered ones into the waves.
DIRECT, BUFFER, RELEASE = range(3)
#: The fields of ``shape``: numbers in a row, whether they have signs, the ages of the range and the window in ticks, the lowest
#: cap, ticks to a spoke, the stamp that the wheel has been turned to, and what a run does with events.
WIDTH, SIGNED, AGE, SPAN, LOWEST_CAP, SPOKE_TICKS, TURNED_TO, MODE = range(8)
_ONE = np.uint32(1)
#: Sums of squares are integers of two words: ``high`` times 2**62, and ``low`` from 0 to 2**62 - 1.
HIGH, LOW = 0, 1
WORD = 62
_MASK = (1 << WORD) - 1
#: Numbers below this have a product that fits into a word.
_SMALL = 1 << 31
_HALF, _LOWER, _TOP, _SHIFT = np.uint64(32), np.uint64(2**32 - 1), np.uint64(WORD), np.uint64(64 - WORD)
#: The share of norms and distances that is reserved for rounding errors.
_ROUNDING = 1e-14
#: A cap that no count reaches.
HUGE = 2**62


@helper
def _put_due(cell: Any, due: Any, book: Any, wheel: Any, spoke_ticks: Any) -> None:
    """Note when the count of a counter will change, and put the counter on the wheel if it ever will."""
    book[cell, DUE] = due
    if due != MAX_STAMP:
        spoke = (due // spoke_ticks) & (wheel.size - 1)
        book[cell, NEXT], wheel[spoke] = wheel[spoke], cell


@kernel
def _add_large(squares: Any, line: Any, row: Any, first: Any, second: Any) -> None:
    """Add first · second, each below 2**63, to the sum of a row, by long multiplication of 32-bit halves."""
    x, y = np.uint64(abs(first)), np.uint64(abs(second))
    x1, x0, y1, y0 = x >> _HALF, x & _LOWER, y >> _HALF, y & _LOWER
    lowest = x0 * y0
    middle = x1 * y0 + (lowest >> _HALF)
    other = x0 * y1 + (middle & _LOWER)
    high = x1 * y1 + (middle >> _HALF) + (other >> _HALF)
    low = (other << _HALF) | (lowest & _LOWER)
    above, below = np.int64((high << _SHIFT) | (low >> _TOP)), np.int64(low & np.uint64(_MASK))
    if (first < 0) != (second < 0):
        above, below = -above, -below
    below += squares[line, row, LOW]
    squares[line, row, HIGH] += above + (below >> WORD)
    squares[line, row, LOW] = below & _MASK


@helper
def _add_product(squares: Any, line: Any, row: Any, first: Any, second: Any) -> None:
    """Add first · second to the sum of squares of a row, without rounding; for a² - b² = (a + b)(a - b)."""
    if -_SMALL < first < _SMALL and -_SMALL < second < _SMALL:
        low = squares[line, row, LOW] + first * second
        if low < 0 or low > _MASK:
            squares[line, row, HIGH] += low >> WORD
            low &= _MASK
        squares[line, row, LOW] = low
    else:
        _add_large(squares, line, row, first, second)


@kernel
def add_squares(drift: Any, squares: Any, signed: Any) -> None:
    """Add the squares of a drift to the sums of its rows: rises and falls separately, or all together if it has signs."""
    for row in range(drift.shape[0]):
        for x in drift[row]:
            _add_product(squares, 0 if signed or x > 0 else 1, row, x, x)


@helper
def _put_count(cell: Any, count: Any, book: Any, vectors: Any, squares: Any, shape: Any) -> Any:
    """Set the count of a counter, and update its number and the squares of its row; returns the change of the count."""
    by = count - book[cell, COUNT]
    if by != 0:
        book[cell, COUNT] = count
        number, change = np.int64(cell), by
        if shape[SIGNED]:
            number, change = np.int64(cell) >> 1, by * (1 - 2 * (np.int64(cell) & 1))
        before = vectors[0, number] - vectors[1, number]
        vectors[0, number] += change
        after = before + change
        row = number // shape[WIDTH]
        if shape[SIGNED]:
            _add_product(squares, 0, row, after + before, change)
            return by
        if before > 0 or after > 0:
            _add_product(squares, 0, row, max(after, 0) + max(before, 0), max(after, 0) - max(before, 0))
        if before < 0 or after < 0:
            _add_product(squares, 1, row, min(after, 0) + min(before, 0), min(after, 0) - min(before, 0))
    return by


@helper
def _norm(squares: Any, line: Any, row: Any) -> Any:
    return math.sqrt(np.float64(squares[line, row, HIGH]) * 2.0**WORD + np.float64(squares[line, row, LOW]))


@kernel
def distance_left(squares: Any, checked: Any, signed: Any) -> float:
    """How much further the norms of the rows may move from those last checked, up to the threshold.

    The square of the threshold is the last entry of ``checked``. Negative if they have moved too far. A change of a number by x
    moves the norms by at most x, so nothing must be checked before the changes add up to what is left. The result is an
    integer, which can be counted down without rounding.
    """
    rows = squares.shape[1]
    total = size = 0.0
    for line in range(1 if signed else 2):
        for row in range(rows):
            norm, before = _norm(squares, line, row), checked[line * rows + row]
            total += (norm - before) ** 2
            size += norm + before
    if total > checked[-1]:
        return -1.0
    left = math.sqrt(checked[-1]) * (1 - _ROUNDING) - math.sqrt(total) - _ROUNDING * size
    return float(math.floor(min(max(left, 0.0), 2.0**52)))


@kernel
def run_window(events: Any, waves: Any, local: Any, watch: Any, shape: Any, at: Any) -> int:
    """Count events until something must be checked; ``at`` is the event, and the row, to continue with."""
    cells, stamps, counts, hashes = events
    n, first, base, rings = waves
    book, wheel, vectors, squares = local
    checked, limited, caps = watch
    age, span, lowest_cap, spoke_ticks, mode = (
        shape[AGE],
        np.uint32(shape[SPAN]),
        shape[LOWEST_CAP],
        shape[SPOKE_TICKS],
        shape[MODE],
    )
    reason, left = 0, distance_left(squares, checked, shape[SIGNED])
    for i in range(at[0], stamps.size):
        moved = 0.0
        since = np.uint32(max(np.int64(stamps[i]) - age, 1, shape[TURNED_TO]))  # released events do not turn time back
        if since > shape[TURNED_TO]:
            newest = (np.int64(since) - 1) // spoke_ticks
            for turned in range(max(shape[TURNED_TO] // spoke_ticks, newest - wheel.size + 1), newest + 1):
                spoke = turned & (wheel.size - 1)
                cell, wheel[spoke] = wheel[spoke], -1
                while cell >= 0:
                    following, count, due = book[cell, NEXT], book[cell, COUNT], np.uint32(book[cell, DUE])
                    if due < since:
                        count, due = count_and_expiry(cell, since, n, first, base, rings)
                        count += book[cell, BUFFERED]
                    _put_due(cell, np.int64(due), book, wheel, spoke_ticks)
                    by = _put_count(cell, count, book, vectors, squares, shape)
                    moved += np.float64(abs(by))
                    if by < 0 and count < book[cell, FLOOR_OF]:
                        reason |= FLOOR
                    cell = following
            shape[TURNED_TO] = since
        least = HUGE
        for row in range(at[1], cells.shape[0]):
            cell = np.int64(cells[row, i])
            if mode == BUFFER:
                book[cell, BUFFERED] += counts[i]
                count = book[cell, COUNT] + counts[i]
                moved += np.float64(abs(_put_count(cell, count, book, vectors, squares, shape)))
                least = min(least, count)
                continue
            if mode == RELEASE and stamps[i] < since:  # it has left the window in the meantime
                book[cell, BUFFERED] -= counts[i]
                count = book[cell, COUNT] - counts[i]
                moved += np.float64(abs(_put_count(cell, count, book, vectors, squares, shape)))
                if count < book[cell, FLOOR_OF]:
                    reason |= FLOOR
                continue
            if counts[i] == 1:
                fits = add_one(cell, stamps[i], n, first, rings, span)
            else:
                fits = add_weighted(cells[row, i : i + 1], stamps[i : i + 1], counts[i : i + 1], waves, span) == 1
            if not fits:
                at[0], at[1] = i, row
                return reason | GROW
            count = book[cell, COUNT] + counts[i]  # what is cut off at the start of the range stays the same
            if mode == RELEASE:
                book[cell, BUFFERED] -= counts[i]
                count = book[cell, COUNT]  # it was counted when it was buffered
            if book[cell, DUE] == MAX_STAMP:
                count, due = count_and_expiry(cell, since, n, first, base, rings)
                count += book[cell, BUFFERED]
                _put_due(cell, np.int64(due), book, wheel, spoke_ticks)
            moved += np.float64(abs(_put_count(cell, count, book, vectors, squares, shape)))
            least = min(least, count)
        at[1] = 0
        if (
            mode != RELEASE
            and least >= lowest_cap
            and cells.shape[0]
            and _is_over(least, cells[:, i], hashes[i], book, limited, caps)
        ):
            reason |= CAP
        left -= moved
        if left <= 0 and moved > 0:
            left = distance_left(squares, checked, shape[SIGNED])
            if left < 0:
                reason |= MOVED
        if reason:
            at[0] = i + 1
            return reason
    at[0] = stamps.size
    return reason


@kernel
def wheel_insert(cells: Any, book: Any, wheel: Any, spoke_ticks: Any) -> None:
    """Rebuild the wheel from counters, in this order; the last counter of a spoke comes first on it."""
    wheel[:] = -1
    for i in range(cells.size):
        _put_due(cells[i], book[cells[i], DUE], book, wheel, spoke_ticks)


@kernel
def wheel_order(book: Any, wheel: Any, cells: Any) -> int:
    """The counters on the wheel in the order that ``wheel_insert`` needs to rebuild it.

    They fill ``cells`` from the end; returns where they begin.
    """
    at = cells.size
    for spoke in range(wheel.size):
        cell = wheel[spoke]
        while cell >= 0:
            at -= 1
            cells[at] = cell
            cell = book[cell, NEXT]
    return int(at)


@kernel
def _is_over(least: Any, cells: Any, key: Any, book: Any, limited: Any, caps: Any) -> bool:
    """Whether the count of a key has reached its cap; ``caps[0]`` is the cap of keys without limits of their own."""
    for row in range(cells.size):  # the run may have begun in the middle of an event
        least = min(least, book[cells[row], COUNT])
    where = np.searchsorted(limited, key)
    if where < limited.size and limited[where] == key:
        return bool(least >= caps[where + 1])
    return bool(least >= caps[0])


@kernel
def run_stream(events: Any, vectors: Any, squares: Any, checked: Any, at: Any) -> int:
    """Count events with signs until the rows have moved too far; ``at`` is the event to continue with."""
    cells, counts = events
    rows = cells.shape[0]
    left = distance_left(squares, checked, True)
    for i in range(at[0], counts.size):
        for row in range(rows):
            number = cells[row, i] >> _ONE
            by = -counts[i] if cells[row, i] & _ONE else counts[i]
            before = vectors[0, number] - vectors[1, number]
            vectors[0, number] += by
            _add_product(squares, 0, row, 2 * before + by, by)
        left -= rows * np.float64(abs(counts[i]))
        if left <= 0:
            left = distance_left(squares, checked, True)
            if left < 0:
                at[0] = i + 1
                return MOVED
    at[0] = counts.size
    return 0
