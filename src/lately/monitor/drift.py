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

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.keys import Hashes
from lately.counters.base import MAX_COUNT, MAX_STAMP, Cells, Counts
from lately.counters.wave import Wave
from lately.monitor.drift_kernels import (
    CAP,
    DIRECT,
    DUE,
    FLOOR,
    FLOOR_OF,
    GROW,
    HELD,
    HIGH,
    HOLD,
    HUGE,
    LOW,
    MOVED,
    NEXT,
    PART,
    RELEASE,
    WORD,
    add_squares,
    run_stream,
    run_window,
    wheel_insert,
    wheel_order,
)
from lately.monitor.layout import Layout

__all__ = [
    "CAP", "DIRECT", "DUE", "FLOOR", "FLOOR_OF", "HELD", "HOLD", "MOVED", "NEXT", "PART", "RELEASE",
    "Drift", "StreamDrift", "WindowDrift", "drift_of",
]  # fmt: skip

#: Ticks that a run may span; a window more still fits into a stamp.
_PIECE = 2**30


def drift_of(layout: Layout) -> "Drift":
    """A drift of what a layout counts, with nothing to stop its runs yet."""
    drift: Drift = StreamDrift(layout) if layout.window is None else WindowDrift(layout)
    drift.set_threshold(math.inf)
    return drift


class Drift(ABC):
    """A site's numbers, and those that it told last."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        #: The numbers, and as they were told last.
        self._told = np.zeros((2, layout.size), np.int64)
        #: The squares of what rose and of what fell in each row (where numbers have signs, of both, in the first line):
        #: whole numbers of two words, so that nothing is lost where huge changes cancel. All changes of a site add up to
        #: At most 2**62, so the sum of their squares fits.
        self._squares = np.zeros((2, layout.rows, 2), np.int64)
        self._seen = np.zeros(2 * layout.rows + 1)
        #: Changes since it was last told.
        self.updates = 0

    @property
    def numbers(self) -> Counts:
        """What the rows hold now."""
        now: Counts = self._told[0]
        return now

    @property
    def told(self) -> Counts:
        """What they held when this was last told."""
        before: Counts = self._told[1]
        return before

    @property
    def grown(self) -> int:
        """The bytes that it takes besides those that follow from its layout."""
        return 0

    def norms(self) -> NDArray[np.float64]:
        """How far each row has drifted, in two lines, what rose and what fell; in one where numbers have signs."""
        lengths: NDArray[np.float64] = np.sqrt(self._float_squares()[: self.layout.lines[0]])
        return lengths

    def _float_squares(self) -> NDArray[np.float64]:
        words = self._squares.astype(np.float64)
        squares: NDArray[np.float64] = words[..., HIGH] * 2.0**WORD + words[..., LOW]
        return squares

    def set_threshold(self, room: float) -> None:
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

    def write(self, out: Writer) -> None:
        """Write what has changed since it was told, and when to look again. All of the last batch was counted."""
        out.deltas(self._told[0] - self._told[1])
        out.f64s(self._float_squares())  # nobody needs them: they follow from what has changed
        out.f64s(self._seen)
        out.varint(self.updates)

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote; the numbers are there already."""
        changed, squares, seen = source.deltas(self.layout.size), source.f64s(), source.f64s()
        source.check(bool((np.abs(changed.astype(np.float64)) <= MAX_COUNT).all()), "changes beyond all counts")
        source.check(
            squares.size == self._squares[..., 0].size and bool(np.isfinite(squares).all()), "squares of another shape"
        )
        source.check(seen.size == self._seen.size and not np.isnan(seen).any(), "norms of another shape")
        self._told[1] = self._told[0] - changed
        self._seen = seen
        add_squares(changed.reshape(self.layout.rows, self.layout.width), self._squares, self.layout.signed)
        self.updates = source.varint()

    @abstractmethod
    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts, mode: int = DIRECT) -> None:
        """Take a batch in time order, to be counted by ``run``.

        Over a window it may be held back (``HOLD``), which counts it while earlier events may still come; ``RELEASE`` is for
        what was held back and can no longer be overtaken.
        """

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

    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts, mode: int = DIRECT) -> None:
        if self._earlier is not None:
            self._earlier.append((self._batch[0][self._from :], self._batch[1][self._from :]))
            if self.updates > max(2 * self.layout.size, 64):  # more than pays, even where keys come a few times each
                self._earlier = None
        self._events, self._batch, self._from = (self.layout.cells(hashes), counts), (hashes, counts), 0
        self._at[0] = 0
        self.updates += counts.size

    def run(self) -> int:
        return int(run_stream(self._events, self._told, self._squares, self._seen, self._at))

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

    def write(self, out: Writer) -> None:
        out.deltas(self._told[0])
        super().write(out)
        keys = self.verbatim()
        out.u8(keys is not None)
        if keys is not None:
            out.u64s(keys[0])
            out.deltas(keys[1])

    def read(self, source: Reader) -> None:
        self._told[0] = numbers = source.deltas(self.layout.size)
        source.check(bool((np.abs(numbers.astype(np.float64)) <= MAX_COUNT).all()), "numbers beyond all counts")
        super().read(source)
        self._earlier = None
        if source.choice(0, 1):  # keys that came are as good in one batch as in several
            hashes = source.u64s()
            self._earlier, self._batch = [], (hashes, source.deltas(hashes.size))
            self._at[0] = hashes.size


class WindowDrift(Drift):
    """Of the last so long: numbers counted by waves."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        assert layout.window is not None
        window = layout.window
        self._waves = Wave(layout.counters, window.span, layout.eps)
        self._book = np.zeros((layout.counters, 5), np.int64)
        self._book[:, DUE] = MAX_STAMP
        self._wheel = np.full(1 << (layout.counters - 1).bit_length(), -1, np.int64)
        grain = -(-(window.span + 2) // self._wheel.size)
        #: Width, signed, age of the range, span, the lowest cap, ticks to a spoke, since when the wheel has been turned, and
        #: what is done with events.
        self._shape = np.array([layout.width, layout.signed, window.span, window.span, HUGE, grain, 0, DIRECT], np.int64)
        self._known, self._caps = np.empty(0, np.uint64), np.full(1, HUGE, np.int64)
        self._at = np.zeros(2, np.int64)
        self.now: int | None = None
        self._origin = 0
        self._counted = 0

    @property
    def grown(self) -> int:
        return self._waves.rings.nbytes

    @property
    def position(self) -> int:
        """How many events of the batch are counted."""
        return self._counted + int(self._at[0])

    def begin(self, hashes: Hashes, ticks: Ints | None, counts: Counts, mode: int = DIRECT) -> None:
        assert ticks is not None
        self._batch, self._shape[7] = (hashes, ticks, counts), mode
        self._counted = 0
        self._at[:] = 0
        self.updates += 0 if mode == RELEASE else counts.size
        self._begin_piece()

    def hold(self, hashes: Hashes, counts: Counts) -> None:
        """Note what is held back of a drift that was read: it is in the counts already."""
        for row in self.layout.cells(hashes):
            np.add.at(self._book[:, HELD], row, counts)

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
        self._shape[7] = DIRECT
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
            wheel_insert(np.arange(self.layout.counters), self._book, self._wheel, self._shape[5])
            self._origin += shift
        self.now = last if self.now is None else max(self.now, last)

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
            reason = int(run_window(self._events, self._waves._state, local, watch, self._shape, self._at))
            if reason & GROW:
                self._waves._grow()
            elif not reason and self.position < self._batch[0].size:
                self._counted, self._at[0] = self.position, 0
                self._begin_piece()
                continue
            if not reason:
                self._shape[7] = DIRECT
            if reason & ~GROW or not reason:
                return reason & ~GROW

    def write(self, out: Writer) -> None:
        out.maybe(self.now)
        if self.now is not None:
            stamp, due = self.now - self._origin, self._book[:, DUE]
            order = np.empty(self.layout.counters, np.int64)
            out.varint(stamp)
            self._waves.write(out, stamp)
            out.integers(self._book[:, PART])  # not what the waves say: they forget where a count began to matter
            out.integers(np.where(due == MAX_STAMP, -1, stamp - due))
            out.integers(order[wheel_order(self._book, self._wheel, order) :])
        super().write(out)

    def read(self, source: Reader) -> None:
        self.now = source.maybe(-MAX_COUNT, MAX_COUNT)
        if self.now is not None:
            self._read_counters(source, self.now)
        super().read(source)

    def _read_counters(self, source: Reader, now: int) -> None:
        age, span, counters = int(self._shape[2]), self._waves.span, self.layout.counters
        age += source.version == 1  # windows had a tick more then
        stamp = source.within(source.varint(), 2 * span + 2, MAX_STAMP - 1)
        self._origin, self._shape[6] = now - stamp, stamp - age
        self._waves.read(source, stamp, stamp, MAX_COUNT)
        parts, due, order = source.integers(0, MAX_COUNT), source.integers(-1, age), source.integers(0, counters - 1)
        source.check(parts.size == due.size == counters, "counters are missing")
        source.check(np.array_equal(np.sort(order), np.flatnonzero(due >= 0)), "counters that are due are not on the wheel")
        self._book[:, PART], self._book[:, DUE] = parts, np.where(due < 0, MAX_STAMP, stamp - due)
        wheel_insert(order, self._book, self._wheel, self._shape[5])
        self._told[0] = parts[0::2] - parts[1::2] if self.layout.signed else parts
