"""What every counter and sketch over a window consists of, and its bytes.

    _shape           the parameters that it was built with
    _parts           the arrays of cells that count
    _now, _origin    the newest tick, and the tick whose stamp would be 0; stamps are relative to it
    _reorder_buffer  arrivals that are held back until nothing can overtake them
    _arrived, _late  how many arrivals were taken, and how many came too late
    _write_buffer    None; while single arrivals wait, an instance has only this and ``_shape`` (``write_buffer.py``)

An instance that nothing has reached yet has no time: ``_now`` is None, and its parts begin with the first tick.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from lately.core import codec
from lately.core.codec import Reader, Writer
from lately.core.jit import tell_if_cold
from lately.core.keys import Hashes, Keys, all_hashes
from lately.core.stored_keys import read_column, write_column
from lately.counters.base import MAX_COUNT, CounterArray, Part
from lately.ingest.order import ReorderBuffer
from lately.ingest.shape import WindowShape

if TYPE_CHECKING:
    from lately.ingest.write_buffer import WriteBuffer

S = TypeVar("S", bound=WindowShape)


class WindowedState(ABC, Generic[S]):
    """The fields of a counter or sketch over a window: how they begin, are copied, written and read."""

    FAMILY: ClassVar[int]
    #: Whether answers contain keys, so that held-back arrivals must keep theirs.
    _keeps_keys: ClassVar[bool] = False
    _shape: S
    _parts: tuple[Part, ...]

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
        self._write_buffer: WriteBuffer | None = None
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

    @abstractmethod
    def _advance(self, tick: int) -> None:
        """Move the window to this tick, and count the held-back arrivals that fall due by then; never moves back."""

    @property
    def _extended(self) -> bool:
        """Whether the stored bytes need the extended fields."""
        return self._shape.extended or any(part.is_extended(self._stamp_of_now) for part in self._parts)

    def _origin_for(self, tick: int) -> int:
        # Two windows back, so that stamp 0 has left the window of every arrival to come, late ones too.
        return tick - 2 * self._window.span - 2

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the state takes."""
        return sum(part.nbytes for part in self._parts) + self._reorder_buffer.nbytes

    def copy(self) -> Self:
        """An independent copy."""
        twin = self._empty_like([part.copy() for part in self._parts])
        for name in ("_now", "_origin", "_reorder_buffer", "_arrived", "_late"):
            setattr(twin, name, getattr(self, name))
        return twin

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
