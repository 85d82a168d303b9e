"""How far a site's numbers have drifted since it last told them, kept up to date event by event.

For every row the squares of what rose and of what fell are carried along, so that looking costs a few operations an event
and not an extraction of the whole sketch. Over a window numbers also change while nothing arrives: each counter knows until
when its count stays as it is. The order of expiry (a search tree in ECM-15 §6.3) is a wheel that turns with time: counters that
change at about the same time hang from the same spoke, and there are as many spokes as counters.

    events ──> counters ──> parts ──> numbers ─┐
               wheel by due                    ├──> rose², fell² of each row ──> moved further than ``room``? then look
                            what was told ─────┘
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.core.keys import Hashes
from lately.counters.base import MAX_STAMP, Cells, Counts
from lately.counters.wave import Wave, add_one, add_weighted, followed
from lately.monitor.layout import Layout

#: Why a run over events stopped: rings must grow, rows moved too far, a key passed its cap, a counter fell below its floor.
GROW, MOVED, CAP, FLOOR = 1, 2, 4, 8
#: What the book has for each counter: its count, the floor below which to stop, until when it stays so, what is next to it
#: on the wheel.
PART, FLOOR_OF, DUE, NEXT = range(4)
_ONE = np.uint32(1)
_HUGE = 2**62
#: Ticks that a run may span; a window more still fits into a stamp.
_PIECE = 2**30


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
def _run_window(events: Any, waves: Any, local: Any, watch: Any, shape: Any, at: Any) -> int:
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
        least = _HUGE
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
def _hang(book: Any, wheel: Any, grain: Any) -> None:
    """Put all counters on the wheel anew."""
    wheel[:] = -1
    for cell in range(book.shape[0]):
        _put_due(cell, book[cell, DUE], book, wheel, grain)


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
def _run_stream(events: Any, told: Any, squares: Any, seen: Any, at: Any) -> int:
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


def drift_of(layout: Layout) -> "Drift":
    """A drift of what a layout counts, with nothing to stop its runs yet."""
    drift: Drift = StreamDrift(layout) if layout.window is None else WindowDrift(layout)
    drift.wake_after(math.inf)
    return drift


class Drift(ABC):
    """A site's numbers, and those that it told last."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        #: The numbers, and as they were told last.
        self._told = np.zeros((2, layout.size), np.int64)
        self._squares = np.zeros((2, layout.rows))
        self._seen = np.zeros(2 * layout.rows + 1)
        #: Changes since it was last told.
        self.updates = 0

    @property
    def numbers(self) -> Counts:
        """What the rows hold now."""
        now: Counts = self._told[0]
        return now

    def norms(self) -> NDArray[np.float64]:
        """How far each row has drifted, in two lines, what rose and what fell; in one where numbers have signs."""
        squares = self._squares.sum(axis=0, keepdims=True) if self.layout.signed else self._squares
        lengths: NDArray[np.float64] = np.sqrt(np.maximum(squares, 0))
        return lengths

    def look(self) -> NDArray[np.float64]:
        """``norms``, added up anew where the squares are no longer whole numbers that a float can hold exactly."""
        if self._squares.max() < 2.0**53:
            return self.norms()
        drift = (self._told[0] - self._told[1]).astype(np.float64).reshape(self.layout.rows, self.layout.width)
        self._squares[0] = (np.maximum(drift, 0) ** 2).sum(axis=1)
        self._squares[1] = (np.minimum(drift, 0) ** 2).sum(axis=1)
        return self.norms()

    def wake_after(self, room: float) -> None:
        """Stop the next runs where the norms have moved further than this from where they are."""
        norms = self.norms().ravel()
        self._seen[: norms.size] = norms
        self._seen[-1] = room * room

    def tell(self) -> Counts:
        """What has changed since the last time this was asked."""
        changed: Counts = self._told[0] - self._told[1]
        self._told[1] = self._told[0]
        self._squares[:] = 0
        self.updates = 0
        return changed

    @abstractmethod
    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts) -> None:
        """Take a batch in time order, to be counted by ``run``."""

    @abstractmethod
    def run(self) -> int:
        """Count on, until something has to be looked at (MOVED, CAP, FLOOR), or 0 at the end of the batch."""


class StreamDrift(Drift):
    """Of all that ever came: numbers with random signs (Fast-AMS)."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._at = np.zeros(1, np.int64)
        self._batch = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._from = 0  # what came before in the batch was told
        #: The keys and counts of batches since the last telling, as long as they are few beside the numbers.
        self._earlier: list[tuple[Hashes, Counts]] | None = []

    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts) -> None:
        if self._earlier is not None:
            self._earlier.append((self._batch[0][self._from :], self._batch[1][self._from :]))
            if self.updates > max(2 * self.layout.size, 64):  # more than pays, even where keys come a few times each
                self._earlier = None
        self._events, self._batch, self._from = (self.layout.cells(hashes), counts), (hashes, counts), 0
        self._at[0] = 0
        self.updates += counts.size

    def run(self) -> int:
        return int(_run_stream(self._events, self._told, self._squares, self._seen, self._at))

    def verbatim(self) -> tuple[Hashes, Counts] | None:
        """The keys and their counts since the last telling, or None where they are too many."""
        if self._earlier is None:
            return None
        done = slice(self._from, int(self._at[0]))
        parts = [*self._earlier, (self._batch[0][done], self._batch[1][done])]
        hashes, inverse = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        counts = np.zeros(hashes.size, np.int64)
        np.add.at(counts, inverse, np.concatenate([part[1] for part in parts]))
        return hashes[counts != 0], counts[counts != 0]

    def tell(self) -> Counts:
        changed = super().tell()
        self._earlier, self._from = [], int(self._at[0])
        self.updates = self._batch[0].size - self._from
        return changed


class WindowDrift(Drift):
    """Of the last so long: numbers counted by waves."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        assert layout.window is not None
        window = layout.window
        self._waves = Wave(layout.counters, window.span, layout.eps)
        self._book = np.zeros((layout.counters, 4), np.int64)
        self._book[:, DUE] = MAX_STAMP
        self._wheel = np.full(1 << (layout.counters - 1).bit_length(), -1, np.int64)
        grain = -(-(window.span + 2) // self._wheel.size)
        #: Width, signed, age of the range, span, the lowest cap, ticks to a spoke, since when the wheel has been turned.
        self._shape = np.array([layout.width, layout.signed, window.ticks, window.span, _HUGE, grain, 0], np.int64)
        self._known, self._caps = np.empty(0, np.uint64), np.full(1, _HUGE, np.int64)
        self._at = np.zeros(2, np.int64)
        self.now: int | None = None
        self._origin = 0
        self._counted = 0

    @property
    def position(self) -> int:
        """How many events of the batch are counted."""
        return self._counted + int(self._at[0])

    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts) -> None:
        assert ticks is not None
        self._batch = hashes, ticks, counts
        self._counted = 0
        self._at[:] = 0
        self.updates += counts.size
        self._begin_piece()

    def _begin_piece(self) -> None:
        """Begin as much of the batch as stamps of 32 bits can tell apart."""
        rest = slice(self._counted, None)
        hashes, ticks, counts = self._batch[0][rest], self._batch[1][rest], self._batch[2][rest]
        size = int(np.searchsorted(ticks, ticks[0] + _PIECE, "right"))
        self._reach(int(ticks[0]), int(ticks[size - 1]))
        stamps = (ticks[:size] - self._origin).astype(np.uint32)
        self._events = self.layout.cells(hashes[:size]), stamps, counts[:size], hashes[:size]

    def advance(self, tick: int) -> None:
        """Let time pass, to be counted by ``run``."""
        self._reach(tick, tick)
        none = np.empty((0, 1), np.uint32)
        stamps = np.array([tick - self._origin], np.uint32)
        self._events = none, stamps, np.zeros(1, np.int64), np.zeros(1, np.uint64)
        self._batch, self._counted = (np.zeros(1, np.uint64), np.array([tick]), np.zeros(1, np.int64)), 0
        self._at[:] = 0

    def _reach(self, first: int, last: int) -> None:
        """Move now on, and the origin of stamps where they would run over."""
        if self.now is None:
            self._origin = first - 2 * self._waves.span - 2
        elif last - self._origin >= MAX_STAMP:
            shift = first - 2 * self._waves.span - 2 - self._origin
            self._waves.rebase(shift)
            due = self._book[:, DUE]
            due[:] = np.where(due == MAX_STAMP, due, np.maximum(due - shift, 0))
            self._shape[6] = max(self._shape[6] - shift, 0)
            _hang(self._book, self._wheel, self._shape[5])
            self._origin += shift
        self.now = last

    def limit(self, known: Hashes, caps: Counts, floors: Counts) -> None:
        """Stop where a key's count reaches its cap (``caps[0]`` for those not known) or a counter falls below its floor."""
        self._known, self._caps = known, caps
        self._book[:, FLOOR_OF] = floors
        self._shape[4] = caps.min()

    def counts(self, cells: Cells) -> Counts:
        """What keys count, given their cells."""
        least: Counts = self._book[cells, PART].min(axis=0)
        return least

    def run(self) -> int:
        local = (self._book, self._wheel, self._told, self._squares)
        watch = (self._seen, self._known, self._caps)
        while True:
            reason = int(_run_window(self._events, self._waves._state, local, watch, self._shape, self._at))
            if reason & GROW:
                self._waves._grow()
            elif not reason and self.position < self._batch[0].size:
                self._counted, self._at[0] = self.position, 0
                self._begin_piece()
                continue
            if reason & ~GROW or not reason:
                return reason & ~GROW
