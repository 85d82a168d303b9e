"""How far a site's numbers have drifted since its last update, kept up to date event by event.

For every row the sums of squares of what rose and of what fell are maintained, so that a check costs a few operations an event
and not an extraction of the whole sketch. Over a window numbers also change while no event arrives: each counter knows when its
count will change next. The order of expiry (a search tree in ECM-15 §6.3) is a timing wheel: counters that change at about the
same time are on the same spoke, and there are as many spokes as counters.

    events ──> counters ──> counts ──> numbers ─┐
               wheel by due stamp               ├──> rise², fall² of each row ──> moved beyond the threshold? then check
                       numbers of the last update ─┘
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.keys import Hashes
from lately.counters.base import MAX_COUNT, MAX_STAMP, Cells, Counts
from lately.counters.wave import Wave
from lately.monitor.drift_kernels import (
    AGE,
    BUFFER,
    BUFFERED,
    CAP,
    COUNT,
    DIRECT,
    DUE,
    FLOOR,
    FLOOR_OF,
    GROW,
    HIGH,
    HUGE,
    LOW,
    LOWEST_CAP,
    MODE,
    MOVED,
    NEXT,
    RELEASE,
    SPOKE_TICKS,
    TURNED_TO,
    WORD,
    add_squares,
    run_stream,
    run_window,
    wheel_insert,
    wheel_order,
)
from lately.monitor.layout import Layout

__all__ = [
    "BUFFER", "BUFFERED", "CAP", "COUNT", "DIRECT", "DUE", "FLOOR", "FLOOR_OF", "MOVED", "NEXT", "RELEASE",
    "Drift", "StreamDrift", "WindowDrift", "drift_of", "read_drifts", "write_drifts",
]  # fmt: skip

#: Ticks that a run may span; with a window added they still fit into a stamp.
_PIECE = 2**30


def drift_of(layout: Layout) -> "Drift":
    """A new drift of a layout, without a threshold."""
    drift: Drift = StreamDrift(layout) if layout.window is None else WindowDrift(layout)
    drift.set_threshold(math.inf)
    return drift


class Drift(ABC):
    """The numbers of a layout at a site, and how far they have drifted since its last update.

    Parameters
    ----------
    layout
        How the numbers are laid out.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        #: The numbers now, and as they were in the last update.
        self._vectors = np.zeros((2, layout.size), np.int64)
        #: The sums of squares of what rose and of what fell in each row; where numbers have signs, of both, in the first line.
        #: They are integers of two words, so that nothing is lost where huge changes cancel. All changes of a site add up to
        #: at most 2**62, so the sum of their squares fits.
        self._squares = np.zeros((2, layout.rows, 2), np.int64)
        #: The norms at the last check, and the square of the threshold.
        self._checked = np.zeros(2 * layout.rows + 1)
        #: Events since the last update.
        self.updates = 0

    @property
    def numbers(self) -> Counts:
        """The numbers now."""
        now: Counts = self._vectors[0]
        return now

    @property
    def sent(self) -> Counts:
        """The numbers as they were in the last update."""
        before: Counts = self._vectors[1]
        return before

    def table(self) -> NDArray[np.float64]:
        """The numbers now, as floats in rows."""
        return self.numbers.astype(np.float64).reshape(self.layout.rows, self.layout.width)

    @property
    def extra_nbytes(self) -> int:
        """The memory that it takes beyond what follows from its layout, in bytes."""
        return 0

    def norms(self) -> NDArray[np.float64]:
        """How far each row has drifted, in two lines: what rose and what fell; in one line where numbers have signs."""
        norms: NDArray[np.float64] = np.sqrt(self._float_squares()[: self.layout.lines[0]])
        return norms

    def _float_squares(self) -> NDArray[np.float64]:
        words = self._squares.astype(np.float64)
        squares: NDArray[np.float64] = words[..., HIGH] * 2.0**WORD + words[..., LOW]
        return squares

    def set_threshold(self, distance: float) -> None:
        """Stop the next runs when the norms have moved further than ``distance`` from where they are now."""
        norms = self.norms().ravel()
        self._checked[: norms.size] = norms
        self._checked[-1] = distance * distance

    def take_changes(self) -> Counts:
        """What has changed since the last update; the drift begins again at zero."""
        changes: Counts = self._vectors[0] - self._vectors[1]
        self._vectors[1] = self._vectors[0]
        self._squares[:] = 0
        self.updates = 0
        return changes

    def verbatim(self) -> tuple[Hashes, Counts] | None:
        """The hashes of the keys since the last update and their counts; None if they are too many or not known."""
        return None

    def write(self, out: Writer) -> None:
        """Write the changes since the last update, and the threshold. No batch may be half counted."""
        out.deltas(self._vectors[0] - self._vectors[1])
        out.f64s(self._float_squares())  # kept for the layout of the bytes; they follow from the changes
        out.f64s(self._checked)
        out.varint(self.updates)

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote; the numbers must have been read before."""
        changes, squares, checked = source.deltas(self.layout.size), source.f64s(), source.f64s()
        source.check(bool((np.abs(changes.astype(np.float64)) <= MAX_COUNT).all()), "changes beyond 2**62")
        source.check(
            squares.size == self._squares[..., 0].size and bool(np.isfinite(squares).all()), "squares of another shape"
        )
        source.check(checked.size == self._checked.size and not np.isnan(checked).any(), "norms of another shape")
        self._vectors[1] = self._vectors[0] - changes
        self._checked = checked
        add_squares(changes.reshape(self.layout.rows, self.layout.width), self._squares, self.layout.signed)
        self.updates = source.varint()

    @abstractmethod
    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts, mode: int = DIRECT) -> None:
        """Take a batch in time order, to be counted by ``run``.

        Over a window, mode ``BUFFER`` counts events that stay in the reorder buffer because earlier ones may still arrive;
        ``RELEASE`` is for events from the buffer that nothing can overtake any more.
        """

    @abstractmethod
    def run(self) -> int:
        """Count on until something must be checked (MOVED, CAP, FLOOR), or return 0 at the end of the batch."""


class StreamDrift(Drift):
    """The drift of a whole stream, without a window: numbers with random signs (Fast-AMS)."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._at = np.zeros(1, np.int64)
        self._batch = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._from = 0  # the events before this position were in the last update
        #: The keys and counts of earlier batches since the last update, as long as they are few beside the numbers.
        self._earlier: list[tuple[Hashes, Counts]] | None = []

    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts, mode: int = DIRECT) -> None:
        if self._earlier is not None:
            self._earlier.append((self._batch[0][self._from :], self._batch[1][self._from :]))
            if self.updates > max(2 * self.layout.size, 64):  # more than pays, even if each key arrives a few times
                self._earlier = None
        self._events, self._batch, self._from = (self.layout.cells(hashes), counts), (hashes, counts), 0
        self._at[0] = 0
        self.updates += counts.size

    def run(self) -> int:
        return int(run_stream(self._events, self._vectors, self._squares, self._checked, self._at))

    def verbatim(self) -> tuple[Hashes, Counts] | None:
        if self._earlier is None:
            return None
        done = slice(self._from, int(self._at[0]))
        parts = [*self._earlier, (self._batch[0][done], self._batch[1][done])]
        hashes, inverse = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        counts = np.zeros(hashes.size, np.int64)
        np.add.at(counts, inverse, np.concatenate([part[1] for part in parts]))
        return hashes[counts != 0], counts[counts != 0]

    def take_changes(self) -> Counts:
        changes = super().take_changes()
        self._earlier, self._from = [], int(self._at[0])
        self.updates = self._batch[0].size - self._from
        return changes

    def write(self, out: Writer) -> None:
        out.deltas(self._vectors[0])
        super().write(out)
        keys = self.verbatim()
        out.u8(keys is not None)
        if keys is not None:
            out.u64s(keys[0])
            out.deltas(keys[1])

    def read(self, source: Reader) -> None:
        self._vectors[0] = numbers = source.deltas(self.layout.size)
        source.check(bool((np.abs(numbers.astype(np.float64)) <= MAX_COUNT).all()), "numbers beyond 2**62")
        super().read(source)
        self._earlier = None
        if source.choice(0, 1):  # all keys in one batch are as good as in several
            hashes = source.u64s()
            self._earlier, self._batch = [], (hashes, source.deltas(hashes.size))
            self._at[0] = hashes.size


class WindowDrift(Drift):
    """The drift of a window: numbers counted by waves."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        assert layout.window is not None
        window = layout.window
        self._waves = Wave(layout.counters, window.span, layout.eps)
        self._book = np.zeros((layout.counters, 5), np.int64)
        self._book[:, DUE] = MAX_STAMP
        self._wheel = np.full(1 << (layout.counters - 1).bit_length(), -1, np.int64)
        spoke_ticks = -(-(window.span + 2) // self._wheel.size)
        #: What the kernels need besides arrays; ``drift_kernels.py`` names the fields.
        self._shape = np.array([layout.width, layout.signed, window.span, window.span, HUGE, spoke_ticks, 0, DIRECT], np.int64)
        self._limited_keys, self._caps = np.empty(0, np.uint64), np.full(1, HUGE, np.int64)
        self._at = np.zeros(2, np.int64)
        self.now: int | None = None
        self._origin = 0
        self._counted = 0

    @property
    def extra_nbytes(self) -> int:
        return self._waves.rings.nbytes

    @property
    def position(self) -> int:
        """How many events of the batch are counted."""
        return self._counted + int(self._at[0])

    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts, mode: int = DIRECT) -> None:
        assert ticks is not None
        self._batch, self._shape[MODE] = (hashes, ticks, counts), mode
        self._counted = 0
        self._at[:] = 0
        self.updates += 0 if mode == RELEASE else counts.size
        self._begin_piece()

    def add_buffered(self, hashes: Hashes, counts: Counts) -> None:
        """Note which counts of a drift that was read are those of buffered events; they are included already."""
        for row in self.layout.cells(hashes):
            np.add.at(self._book[:, BUFFERED], row, counts)

    def _begin_piece(self) -> None:
        """Begin with as many events of the batch as 32-bit stamps can distinguish."""
        rest = slice(self._counted, None)
        hashes, ticks, counts = self._batch[0][rest], self._batch[1][rest], self._batch[2][rest]
        size = int(np.searchsorted(ticks, ticks[0] + _PIECE, "right"))
        self._reach(int(ticks[0]), int(ticks[size - 1]))
        stamps = (ticks[:size] - self._origin).astype(np.uint32)
        self._events = self.layout.cells(hashes[:size]), stamps, counts[:size], hashes[:size]

    def advance(self, tick: int) -> None:
        """Let time pass up to a tick, to be counted by ``run``."""
        self._reach(tick, tick)
        self._shape[MODE] = DIRECT
        no_cells = np.empty((0, 1), np.uint32)
        stamps = np.array([tick - self._origin], np.uint32)
        self._events = no_cells, stamps, np.zeros(1, np.int64), np.zeros(1, np.uint64)
        self._batch, self._counted = (np.zeros(1, np.uint64), np.array([tick]), np.zeros(1, np.int64)), 0
        self._at[:] = 0

    def _reach(self, first: int, last: int) -> None:
        """Move the clock to ``last``, and the origin of stamps if they would overflow."""
        if self.now is None:
            self._origin = first - 2 * self._waves.span - 2
        elif last - self._origin >= MAX_STAMP:
            shift = first - 2 * self._waves.span - 2 - self._origin
            self._waves.rebase(shift)
            due = self._book[:, DUE]
            due[:] = np.where(due == MAX_STAMP, due, np.maximum(due - shift, 0))
            self._shape[TURNED_TO] = max(self._shape[TURNED_TO] - shift, 0)
            wheel_insert(np.arange(self.layout.counters), self._book, self._wheel, self._shape[SPOKE_TICKS])
            self._origin += shift
        self.now = last if self.now is None else max(self.now, last)

    def set_key_limits(self, hashes: Hashes, caps: Counts, floors: Counts) -> None:
        """Stop runs when a key's count reaches its cap, or a counter falls below its floor.

        ``caps[0]`` is the cap of all other keys, then follow those of ``hashes``, which are sorted; ``floors`` has one entry
        for each counter.
        """
        self._limited_keys, self._caps = hashes, caps
        self._book[:, FLOOR_OF] = floors
        self._shape[LOWEST_CAP] = caps.min()

    def counts(self, cells: Cells) -> Counts:
        """The counts of keys, given their cells."""
        least: Counts = self._book[cells, COUNT].min(axis=0)
        return least

    def run(self) -> int:
        local = (self._book, self._wheel, self._vectors, self._squares)
        limits = (self._checked, self._limited_keys, self._caps)
        while True:
            reason = int(run_window(self._events, self._waves._state, local, limits, self._shape, self._at))
            if reason & GROW:
                self._waves._grow()
            elif not reason and self.position < self._batch[0].size:
                self._counted, self._at[0] = self.position, 0
                self._begin_piece()
                continue
            if not reason:
                self._shape[MODE] = DIRECT
            if reason & ~GROW or not reason:
                return reason & ~GROW

    def write(self, out: Writer) -> None:
        out.maybe(self.now)
        if self.now is not None:
            stamp, due = self.now - self._origin, self._book[:, DUE]
            order = np.empty(self.layout.counters, np.int64)
            out.varint(stamp)
            self._waves.write(out, stamp)
            out.integers(self._book[:, COUNT])  # waves do not store where the oldest part of a count is cut off
            out.integers(np.where(due == MAX_STAMP, -1, stamp - due))
            out.integers(order[wheel_order(self._book, self._wheel, order) :])
        super().write(out)

    def read(self, source: Reader) -> None:
        self.now = source.maybe(-MAX_COUNT, MAX_COUNT)
        if self.now is not None:
            self._read_counters(source, self.now)
        super().read(source)

    def _read_counters(self, source: Reader, now: int) -> None:
        age, span, counters = int(self._shape[AGE]), self._waves.span, self.layout.counters
        age += source.version == 1  # whose windows had one more tick
        stamp = source.within(source.varint(), 2 * span + 2, MAX_STAMP - 1)
        self._origin, self._shape[TURNED_TO] = now - stamp, stamp - age
        self._waves.read(source, stamp, stamp, MAX_COUNT)
        counts, due, order = source.integers(0, MAX_COUNT), source.integers(-1, age), source.integers(0, counters - 1)
        source.check(counts.size == due.size == counters, "counters are missing")
        source.check(np.array_equal(np.sort(order), np.flatnonzero(due >= 0)), "counters that are due are not on the wheel")
        self._book[:, COUNT], self._book[:, DUE] = counts, np.where(due < 0, MAX_STAMP, stamp - due)
        wheel_insert(order, self._book, self._wheel, self._shape[SPOKE_TICKS])
        self._vectors[0] = counts[0::2] - counts[1::2] if self.layout.signed else counts


def write_drifts(out: Writer, drifts: Sequence[Drift]) -> None:
    """Write the drifts of a site."""
    for drift in drifts:
        drift.write(out)


def read_drifts(source: Reader, drifts: Sequence[Drift], size: int = 0) -> int:
    """Read what ``write_drifts`` wrote, within the reader's limit; returns ``size`` plus the extra memory in bytes."""
    for drift in drifts:
        drift.read(source)
        size += drift.extra_nbytes
        source.fits(size)
    return size
