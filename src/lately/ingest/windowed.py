"""The base of all counters and sketches over a sliding window: the current time, the order of arrivals, ranges, merging.

An arrival goes through here before it is counted:

    times ──> ticks ──> in order? ──> late? ──> held back? ──> stamps ──> counted
              int64     sort if not   left out,   lateness=     uint32,
                                      counted in                since ``origin``
                                      ``late``

Stamps are 32 bits wide. Before they would overflow, the origin moves on and every part is rebased: one pass over the state
in four billion ticks. Subclasses implement how a block of arrivals is counted into their parts (``_count``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from lately.core import codec
from lately.core.arguments import check_probability
from lately.core.codec import Reader, Writer
from lately.core.columns import Ints, arrival_counts
from lately.core.durations import Duration, Window
from lately.core.errors import InputError, MergeError, ParameterError
from lately.core.jit import tell_if_cold
from lately.core.keys import HashedKeys, Hashes, Keys, all_hashes
from lately.core.stored_keys import read_column, write_column
from lately.core.times import instant_of, tick_of, ticks_of_keys
from lately.counters.base import MAX_COUNT, MAX_STAMP, Bounds, Cells, CounterArray, Counts, Part, Stamps
from lately.ingest.order import ReorderBuffer, put_stamps, time_order
from lately.ingest.ranges import range_ages
from lately.ingest.shape import RESIZED, WindowShape

#: The most levels of merging. Bounds widen with every level, and are useless long before this one.
MAX_HEIGHT = 255

#: ``a | b | c | …`` keeps up to 64 inputs of one height before it merges them; fewer, but at least 8, above 64 MiB in all.
_MOST_INPUTS, _FEWEST_INPUTS, _INPUT_BYTES = 64, 8, 2**26

#: Arrivals are counted in blocks of this many: large enough to make calls cheap, small enough to stay in the cache.
BLOCK = 16_384


S = TypeVar("S", bound=WindowShape)


class Aligned(NamedTuple):
    """Inputs of a merge at one time: those with arrivals in the window, and what to add to their stamps for a common origin."""

    now: int
    origin: int
    live_from: int  # the first stamp inside the window
    live: list[Any]
    shifts: list[int]


class Windowed(ABC, Generic[S]):
    """Base of counters and sketches over a sliding window."""

    FAMILY: ClassVar[int]
    #: How many arrivals are counted at a time.
    _block: ClassVar[int] = BLOCK
    #: Whether answers contain keys, so that held-back arrivals must keep theirs.
    _keeps_keys: ClassVar[bool] = False
    _shape: S
    _parts: tuple[Part, ...]
    #: The inputs of ``|`` that are not merged yet; an instance with this attribute has no other.
    _inputs: tuple[Self, ...]

    def _begin(self, shape: S, parts: Sequence[Part]) -> Self:
        """Initialize an empty instance with these parts."""
        tell_if_cold()
        self._shape, self._parts = shape, tuple(parts)
        self._window, self._lateness = shape.window, shape.lateness
        self._now: int | None = None
        self._origin = 0  # the tick whose stamp would be 0
        self._reorder_buffer = ReorderBuffer.empty()
        self._arrived = 0
        self._late = 0
        return self

    def _empty_like(self, parts: Sequence[Part]) -> Self:
        """An empty instance of the same shape, with these parts."""
        return object.__new__(type(self))._begin(self._shape, parts)

    @classmethod
    @abstractmethod
    def _new_parts(cls, shape: S) -> Sequence[Part]:
        """Empty parts of the size that a shape asks for."""

    @property
    @abstractmethod
    def _total_counter(self) -> CounterArray:
        """The array whose cell 0 counts all arrivals."""

    @property
    def _extended(self) -> bool:
        """Whether the stored bytes need the extended fields."""
        return self._shape.extended or any(part.is_extended(self._stamp_of_now) for part in self._parts)

    @abstractmethod
    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        """Count the ``stamps.size`` arrivals whose keys begin at ``start``."""

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def window(self) -> Window:
        """The window, with its length and tick."""
        return self._window

    @property
    def now(self) -> datetime | np.datetime64 | int | None:
        """The newest time seen or advanced to, cut to its tick: a date, an integer, or the number of arrivals."""
        return None if self._now is None else instant_of(self._now, self._window)

    @property
    def late(self) -> int:
        """The number of arrivals that came too late to be counted."""
        return self._late

    @property
    def merges(self) -> int:
        """The levels of merging behind this state; its bounds account for them."""
        return self._parts[0].height

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the state takes."""
        return sum(part.nbytes for part in self._parts) + self._reorder_buffer.nbytes

    def advance(self, time: Any) -> None:
        """Move the window to a later time without an arrival; arrivals older than the window expire. Never moves back.

        Parameters
        ----------
        time
            The instant to move to, in any form that ``update`` takes; ``now`` returns it.
        """
        if time is None:
            raise InputError("advance(None)", remedy="give the time to advance to")
        if self._window.kind == "arrivals":
            raise ParameterError("a window of arrivals moves with its arrivals only; advance() is for windows of time")
        self._advance(tick_of(time, self._window))

    def _advance(self, tick: int) -> None:
        self._move_now(tick)
        self._release()

    def _move_now(self, tick: int) -> None:
        """Move ``now`` forward to this tick; the first tick also sets the origin of stamps."""
        if self._now is None:
            self._now, self._origin = tick, self._origin_for(tick)
            for part in self._parts:
                part.begin(self._origin)
        self._now = max(self._now, tick)

    def _origin_for(self, tick: int) -> int:
        # Two windows back, so that stamp 0 has left the window of every arrival to come, late ones too.
        return tick - 2 * self._window.span - 2

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def _ingest(self, keys: Keys, times: Any, counts: Any) -> None:
        """Check a whole batch, then put it in time order and count it. If anything is wrong, nothing has changed."""
        size = len(keys)
        if size == 0:
            raise InputError("an empty column; skip the call, or use advance(time) to let time pass")
        ticks = self._ticks(times, size)
        checked = arrival_counts(counts, size)
        arrived = size if checked is None else int(checked.sum())
        if self._arrived + arrived > MAX_COUNT:
            raise InputError(f"{self._arrived + arrived:,} arrivals in all, more than 2**62; scale the counts down")

        order = time_order(ticks, None if self._now is None else self._now - self._lateness)
        if order is None and not self._lateness:
            self._arrived += arrived
            self._move_now(int(ticks[0]))
            self._move_now(int(ticks[-1]))
            self._apply(keys, ticks, checked)
            return
        if order is None:
            order = np.arange(size)
        late = size - order.size if checked is None else arrived - int(checked[order].sum())
        self._late = min(self._late + late, MAX_COUNT)
        arrived -= late
        if not order.size:
            return
        self._arrived += arrived
        ticks = ticks[order]
        weights = np.ones(order.size, np.int64) if checked is None else checked[order]
        hashes = all_hashes(keys)[order]
        self._move_now(int(ticks[0]))
        self._move_now(int(ticks[-1]))
        if self._lateness:
            buffered = ReorderBuffer(ticks, hashes, weights, keys.take(order) if self._keeps_keys else None)
            self._reorder_buffer = ReorderBuffer.concat([self._reorder_buffer, buffered])
            self._release()
        else:
            self._apply(HashedKeys(hashes, keys, order), ticks, None if checked is None else weights)

    def _ticks(self, times: Any, size: int) -> Ints:
        if self._window.kind == "arrivals":
            if times is not None:
                raise InputError("times given to a window of arrivals; leave times out, or build it with window='1h'")
            start = (self._now or 0) + 1
            return np.arange(start, start + size, dtype=np.int64)
        return ticks_of_keys(times, self._window, size)

    def _release(self) -> None:
        """Count the held-back arrivals that no arrival in time can precede any more."""
        if self._reorder_buffer.ticks.size and self._now is not None:
            due, self._reorder_buffer = self._reorder_buffer.split(self._now - self._lateness)
            self._apply(HashedKeys(due.hashes, due.keys), due.ticks, due.counts)

    def _apply(self, keys: Keys, ticks: Ints, counts: Counts | None) -> None:
        """Count arrivals in time order, block by block, moving the origin where stamps would overflow."""
        start, room = 0, np.empty(min(self._block, ticks.size), np.uint32)
        while start < ticks.size:
            stop = min(start + self._block, ticks.size)
            limit = self._origin + MAX_STAMP - 1
            if ticks[stop - 1] > limit:
                stop = start + int(np.searchsorted(ticks[start:stop], limit, "right"))
            if stop == start:
                origin = self._origin_for(int(ticks[start]))
                for part in self._parts:
                    part.rebase(origin - self._origin)
                self._origin = origin
                continue
            stamps = room[: stop - start]
            put_stamps(ticks[start:stop], self._origin, stamps)
            self._count(keys, start, stamps, None if counts is None else counts[start:stop])
            start = stop

    # -- ranges --------------------------------------------------------------------------------------------------------

    def _range(self, last: Duration | None, between: tuple[Any, Any] | None) -> tuple[int, int | None]:
        """The range of a query as ages in ticks: from the older one, up to the newer one (None: up to now)."""
        return range_ages(self._window, self._now, last, between)

    def _tick_at(self, age: int, now: int) -> int:
        """The first tick inside the range of this age."""
        return now - age + 1

    def _stamp_at(self, age: int, now: int) -> int:
        return min(max(self._tick_at(age, now) - self._origin, 1), MAX_STAMP)

    def _bounds(
        self,
        array: CounterArray,
        cells: Cells | None,
        buffered_since: Any,
        ages: tuple[int, int | None],
        now: int | None = None,
    ) -> Bounds:
        """What these cells, or all, counted in a range: one suffix, or the difference of two with their errors added.

        ``buffered_since(tick)`` is the number of held-back arrivals of the same cells since a tick; ``now`` is by default the
        sketch's own.
        """
        instant = now if now is not None else self._now
        if instant is None:
            return Bounds(*(np.zeros(array.cells if cells is None else cells.size, np.int64) for _ in range(3)))
        older, newer = ages
        stamp = self._stamp_at(older, instant)
        start = array.all_since(stamp) if cells is None else array.since(cells, stamp)
        if self._reorder_buffer.ticks.size:
            start = Bounds(*(part + buffered_since(self._tick_at(older, instant)) for part in start))
        if newer is None:
            return start
        end = self._bounds(array, cells, buffered_since, (newer, None), instant)
        return Bounds(
            np.maximum(start.low - end.high, 0), np.maximum(start.value - end.value, 0), np.maximum(start.high - end.low, 0)
        )

    # -- merging -------------------------------------------------------------------------------------------------------

    def _merge(self, others: Sequence[Self], eps: float | None = None) -> Self:
        """A new instance with the arrivals of all inputs; the inputs are not modified."""
        inputs = [part for operand in (self, *others) for part in inputs_of(operand)]
        first: Self = inputs[0]
        shape = first._shape_for(inputs, eps)
        first._check_size(inputs)
        aligned = first._aligned(inputs)
        live = [] if aligned is None else aligned.live
        alone = live or [next((part for part in inputs if part._now is not None), first)]
        if len(alone) == 1 and alone[0]._shape == shape:  # nothing to replay, so it costs no level
            result: Self = alone[0].copy()
        elif aligned is None or not live:
            result = object.__new__(type(first))._begin(shape, first._new_parts(shape))
        else:
            result = first._union(aligned, shape)
        if aligned is not None:
            result._advance(aligned.now)
        result._arrived = sum(part._arrived for part in inputs)
        result._late = min(sum(part._late for part in inputs), MAX_COUNT)
        return result

    def _union(self, aligned: Aligned, shape: S) -> Self:
        """The parts of all live inputs, merged into parts of this shape."""
        now, origin, live_from, live, shifts = aligned
        inputs = [sketch._parts for sketch in live]
        if live[0]._shape != shape:  # what is merged takes after its first input
            inputs, shifts = [tuple(self._new_parts(shape)), *inputs], [0, *shifts]
        parts = [first.merged(rest, shifts, live_from) for first, *rest in zip(*inputs, strict=True)]
        result = object.__new__(type(self))._begin(shape, parts)
        result._now, result._origin = now, origin
        result._reorder_buffer = ReorderBuffer.concat([sketch._reorder_buffer for sketch in live])
        return result

    def _shape_for(self, inputs: Sequence[Any], eps: float | None) -> S:
        """The shape of what these are merged into: as fine as the finest of them, or as ``eps`` says."""
        self._must_agree(inputs[1:])
        if eps is None:
            shapes: list[S] = [sketch._shape for sketch in inputs]
            return min(shapes, key=lambda shape: (shape.before_merges(shape.eps), shape.additive))
        check_probability("eps", eps)
        if getattr(self._shape, "counter", None) not in RESIZED:
            raise MergeError(
                f"lt.merge(…, eps={eps!r}): only waves and exponential histograms can become finer or coarser by merging, and "
                f"{self._why_fixed()}; leave eps out"
            )
        return replace(self._shape, counter_eps=float(eps))

    def _why_fixed(self) -> str:
        """Why its counters cannot be rebuilt, as part of a sentence."""
        counter = getattr(self._shape, "counter", None)
        if counter is None:
            return f"the sizes of a {type(self).__name__} follow from the eps that it was built with"
        return "randomized waves unite without any loss" if counter == "randwave" else "exact counters have no error"

    def _check_size(self, inputs: Sequence[Self]) -> None:
        if self._window.kind == "arrivals" and len(inputs) > 1:
            raise MergeError(
                "windows of arrivals cannot be merged: which of two sites' arrivals are the last n overall is in neither "
                "sketch (ECM-15, section 5.1); use a window of time, such as window='1h'"
            )
        if (arrived := sum(part._arrived for part in inputs)) > MAX_COUNT:
            raise MergeError(f"{arrived:,} arrivals in all, more than 2**62", remedy="scale the counts down")

    def _aligned(self, inputs: Sequence[Self]) -> Aligned | None:
        """The inputs at one time, if they can be merged; None if none of them has arrivals."""
        times = [sketch._now for sketch in inputs if sketch._now is not None]
        if not times:
            return None
        now = max(times)
        live = [sketch._caught_up(now) for sketch in inputs if sketch._is_live(now)]
        if len(live) > 1 and max(part.height for sketch in live for part in sketch._parts) >= MAX_HEIGHT:
            raise MergeError(
                f"more than {MAX_HEIGHT} levels of merging", remedy="merge many sketches in one call, lt.merge([...])"
            )
        origin = self._origin_for(now)
        live_from = now - self._window.span - origin
        shifts = [sketch._origin - origin for sketch in live]
        for first, *rest in zip(*(sketch._parts for sketch in live), strict=True):
            first.check_apart(rest, shifts, live_from)
        return Aligned(now, origin, live_from, live, shifts)

    def _is_live(self, now: int) -> bool:
        """Whether it may hold arrivals of the window that ends at ``now``: if not, merging it in would add nothing."""
        start = now - self._window.span
        if self._now is None or self._arrived == 0 or self._now < start:
            return False
        if self._reorder_buffer.ticks.size and self._reorder_buffer.ticks[-1] >= start:
            return True
        return bool(self._total_counter.since(np.zeros(1, np.uint32), min(max(start - self._origin, 1), MAX_STAMP)).high[0] > 0)

    def _caught_up(self, now: int) -> Self:
        """Itself, or where held-back arrivals fall due by ``now``, a copy that has counted them."""
        if not self._reorder_buffer.ticks.size or self._reorder_buffer.ticks[0] > now - self._lateness:
            return self
        twin = self.copy()
        twin._advance(now)
        return twin

    def copy(self) -> Self:
        """An independent copy."""
        twin = self._empty_like([part.copy() for part in self._parts])
        for name in ("_now", "_origin", "_reorder_buffer", "_arrived", "_late"):
            setattr(twin, name, getattr(self, name))
        return twin

    def _must_agree(self, others: Sequence[Any]) -> None:
        for other in others:
            if type(other) is not type(self):
                raise MergeError(
                    f"cannot merge a {type(self).__name__} with a {type(other).__name__}; give sketches of one class"
                )
            for field in fields(self._shape):
                if field.kw_only:  # how fine its counters are: merging replays either
                    continue
                left, right = getattr(self._shape, field.name), getattr(other._shape, field.name)
                if left != right:
                    raise MergeError(
                        f"cannot merge: {field.name} is {left!r} in one and {right!r} in another", remedy="build them alike"
                    )

    def __or__(self, other: Self) -> Self:
        """Merge two; a chain ``a | b | c | …`` is merged in one step when it is first used, as ``lt.merge`` would.

        Until the result is read, updated or stored, it keeps copies of its inputs, so that ``reduce(operator.or_, sites)``
        costs one level of merging and not one for each site. Memory is bounded: 64 inputs (8 to 64 if they take more than
        64 MiB in all) are merged into one, and 64 of those into one again. Errors are raised at once.
        """
        inputs = [*inputs_of(self), *inputs_of(other)]
        first: Self = inputs[0]
        first._must_agree(inputs[1:])
        first._check_size(inputs)
        parts = [part for sketch in inputs for part in sketch._parts]
        if max(part.height for part in parts) >= MAX_HEIGHT or any(part.shares for part in parts):
            first._aligned(inputs)  # raises where merging would
        copies = [part.copy() if part is operand else part for operand in (self, other) for part in inputs_of(operand)]
        result = object.__new__(type(first))
        result._inputs = tuple(_compacted(copies))
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The first access to an attribute of a result of ``|`` merges its inputs."""
            inputs = self.__dict__.get("_inputs")
            if inputs is None or name.startswith("__"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__.update(vars(inputs[0]._merge(inputs[1:])))
            self.__dict__.pop("_inputs", None)
            return getattr(self, name)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The state as bytes: versioned, with a checksum, the same on every machine; ``lt.from_bytes`` reads them."""
        return codec.to_bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return codec.from_trusted_bytes, (self.to_bytes(),)

    @property
    def _stamp_of_now(self) -> int:
        return 1 if self._now is None else self._now - self._origin

    def _write_state(self, out: Writer) -> None:
        out.u8(self._now is not None)
        out.i64(self._now or 0)
        out.u64(self._arrived)
        out.u64(self._late)
        out.integers(self._reorder_buffer.ticks - (self._now or 0))
        out.u64s(self._reorder_buffer.hashes)
        out.integers(self._reorder_buffer.counts)
        if self._reorder_buffer.keys is not None:
            write_column(out, self._reorder_buffer.keys)
        for part in self._parts:
            part.write(out, self._stamp_of_now)

    def _read_state(self, source: Reader) -> None:
        started = source.choice(0, 1)
        now = source.within(source.i64(), -(2**62), 2**62)
        self._now = now if started else None
        self._origin = self._origin_for(now) if started else 0
        self._arrived = source.within(source.u64(), 0, MAX_COUNT)
        self._late = source.within(source.u64(), 0, MAX_COUNT)
        ticks = source.integers(1 - self._lateness, 0) + now
        hashes, counts = source.u64s(), source.integers(0, MAX_COUNT)
        source.check(ticks.size == hashes.size == counts.size, "columns of different lengths")
        source.check(bool((np.diff(ticks) >= 0).all()) and (started == 1 or not ticks.size), "entries are out of order")
        source.check(started == 1 or self._arrived == 0, "arrivals before time began")
        source.check(float(counts.sum(dtype=np.float64)) <= 1.000001 * self._arrived, "more arrivals held back than taken")
        self._reorder_buffer = ReorderBuffer(ticks, hashes, counts, self._read_buffered_keys(source, hashes))
        stamp = now - self._origin if started else 1
        for part in self._parts:
            part.begin(self._origin)
            part.read(source, stamp, stamp - self._lateness if started else 1, self._arrived)

    def _read_buffered_keys(self, source: Reader, hashes: Hashes) -> Keys | None:
        if not self._keeps_keys or not hashes.size:
            return None
        keys = read_column(source)
        source.check(len(keys) == hashes.size and bool((all_hashes(keys) == hashes).all()), "keys that are not those held back")
        return keys

    @classmethod
    @abstractmethod
    def _read(cls, source: Reader) -> Self:
        """Read what ``_write`` wrote."""

    def _write(self, out: Writer) -> None:
        self._shape.write(out)
        self._write_state(out)


def inputs_of(sketch: Any) -> Sequence[Any]:
    """The inputs that a result of ``|`` still has to merge; of any other sketch, the sketch itself."""
    inputs: Sequence[Any] | None = getattr(sketch, "__dict__", {}).get("_inputs")
    return inputs or (sketch,)


def _compacted(inputs: list[Any]) -> list[Any]:
    """The inputs of ``|``; where too many have one height, those are merged into one."""
    while True:
        heights = [sketch.merges for sketch in inputs]
        for height in set(heights):
            group = [sketch for sketch in inputs if sketch.merges == height]
            if len(group) < _FEWEST_INPUTS:
                continue
            most = _INPUT_BYTES // max(sketch.nbytes for sketch in group)
            if len(group) >= min(max(most, _FEWEST_INPUTS), _MOST_INPUTS):
                inputs = [group[0]._merge(group[1:]), *(sketch for sketch in inputs if sketch.merges != height)]
                break
        else:
            return inputs


def merge(sketches: Iterable[Any], *, eps: float | None = None) -> Any:
    """Merge any number of sketches or counters of one kind into a new one.

    The result answers for the union of the streams, in time order. Its bounds are wider by one level of merging for each
    call, however many sketches are merged, and no wider if only one of them has arrivals in the window. The inputs are not
    modified.

    Parameters
    ----------
    sketches
        The sketches or counters, built with the same parameters.
    eps
        The error that the counters of the result are built with; by default that of the inputs' counters. Only for a
        ``WindowCounter``, ``EcmSketch`` or ``WindowedAmsSketch`` of waves or exponential histograms. The ``error`` of the
        result is at most e + eps + e·eps if that of the inputs is e (ECM-15 Theorem 4): a finer result adds less error, a
        coarser one is smaller.

    >>> import lately as lt
    >>> sites = [lt.WindowCounter(window="1h", eps=0.1) for _ in range(3)]
    >>> for i, site in enumerate(sites):
    ...     site.add(1000 + i, 5)
    >>> lt.merge(sites).count(last="1h")
    Estimate(15, 15..16, 100%)
    >>> lt.merge(sites).error <= 0.2101, lt.merge(sites, eps=0.01).error <= 0.1111
    (True, True)
    """
    sketches = list(sketches) if isinstance(sketches, Iterable) else [sketches]
    if not sketches:
        raise MergeError("nothing to merge", remedy="give at least one sketch")
    if not hasattr(sketches[0], "_merge"):
        raise MergeError(f"cannot merge a {type(sketches[0]).__name__}", remedy="give sketches or counters of lately")
    if eps is None:
        return sketches[0]._merge(sketches[1:])
    if not isinstance(sketches[0], Windowed):
        raise MergeError(f"lt.merge(…, eps={eps!r}): a {type(sketches[0]).__name__} is merged without any loss; leave eps out")
    return sketches[0]._merge(sketches[1:], eps)
