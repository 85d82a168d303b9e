"""Messages from a site to the coordinator."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from lately.core.codec import LIMIT, Reader, Writer
from lately.core.keys import Hashes
from lately.core.stored_keys import read_key, write_key
from lately.counters.base import MAX_COUNT, Counts
from lately.monitor.messages.message import Message, hash_of, kind
from lately.monitor.messages.query_messages import MAX_STREAMS, EpochMessage, QueryMessage, VectorMessage

#: The change of a stream's sketch: the change of every number, or the hashes of the keys that arrived and their counts.
Change = Counts | tuple[Hashes, Counts]


@kind(1)
@dataclass(frozen=True, slots=True, eq=False)
class CellsMessage(Message):
    """All cells of a site's windowed Count-Min, and the number of arrivals in its window (DISTCM)."""

    arrivals: int
    cells: Counts

    def _write(self, out: Writer) -> None:
        out.varint(self.arrivals)
        out.integers(self.cells)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        arrivals = source.within(source.varint(), 0, MAX_COUNT)
        cells = source.integers(0, MAX_COUNT)
        source.check(float(cells.sum(dtype=np.float64)) <= MAX_COUNT, "the cells add up to more than 2**62")
        return cls(site, sequence, arrivals, cells)


@kind(2)
@dataclass(frozen=True, slots=True, eq=False)
class JoinRequest(Message):
    """A site wants to be monitored: the fingerprint of its monitor, and its ``birth``, which no other site has."""

    fingerprint: int
    birth: int

    def _write(self, out: Writer) -> None:
        out.u64(self.fingerprint)
        out.u64(self.birth)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, source.u64(), source.u64())


@kind(3)
@dataclass(frozen=True, slots=True, eq=False)
class LeaveNotice(Message):
    """A site stops, and its streams no longer count."""


@kind(4)
@dataclass(frozen=True, slots=True, eq=False)
class DriftReport(VectorMessage):
    """The drift norms of a site's rows, and its number of updates since its last ``SketchUpdate``.

    Sent on request, or because the site's guard requires it.
    """

    updates: int

    def _write(self, out: Writer) -> None:
        VectorMessage._write(self, out)
        out.varint(self.updates)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        base = VectorMessage._read(site, sequence, source)
        return cls(site, sequence, base.epoch, base.query, base.subround, base.vector, source.varint())


@kind(5)
@dataclass(frozen=True, slots=True, eq=False)
class Increment(QueryMessage):
    """By how many quanta a site's safe function has risen since its last increment."""

    quanta: int

    def _write(self, out: Writer) -> None:
        QueryMessage._write(self, out)
        out.varint(self.quanta)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, *(source.varint() for _ in range(4)))


@kind(6)
@dataclass(frozen=True, slots=True, eq=False)
class SafeFunctionReport(VectorMessage):
    """The value of a site's safe function, sent on request."""


@kind(10, earlier=7)
@dataclass(frozen=True, slots=True, eq=False)
class SketchUpdate(EpochMessage):
    """What has changed in each stream of a site since its last update: all numbers, or the keys if these take fewer bytes.

    ``elapsed`` is the number of ticks since the site last sent its clock; the first time it is the tick itself. An
    ``unsolicited`` update comes from a site that has waited too long for an answer: it does not replace the next update,
    which contains the same changes again.
    """

    changes: tuple[Change, ...]
    elapsed: int | None = None
    unsolicited: bool = False

    def _write(self, out: Writer) -> None:
        EpochMessage._write(self, out)
        _write_elapsed(out, self.elapsed, self.unsolicited)
        out.varint(len(self.changes))
        for change in self.changes:
            if isinstance(change, tuple):
                hashes, counts = change
                out.varint(0)
                out.varint(hashes.size)
                out.raw(np.ascontiguousarray(hashes, "<u8").tobytes())
                out.deltas(counts)
            else:
                out.varint(change.size)
                out.deltas(change)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        epoch, (elapsed, unsolicited) = source.varint(), _read_elapsed(source)
        return cls(site, sequence, epoch, cls._read_changes(source), elapsed, unsolicited)

    @classmethod
    def _read_earlier(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, source.varint(), cls._read_changes(source))

    @staticmethod
    def _read_changes(source: Reader) -> tuple[Change, ...]:
        changes: list[Change] = []
        total = 0
        for _ in range(source.within(source.varint(), 0, MAX_STREAMS)):
            if size := source.varint():
                total += size
                source.fits(16 * total)
                changes.append(source.deltas(size))
            else:
                size = source.within(source.varint(), 0, LIMIT)
                hashes = np.frombuffer(source.raw(8 * size), "<u8").astype(np.uint64)
                changes.append((hashes, source.deltas(size)))
        return tuple(changes)


@kind(8)
@dataclass(frozen=True, slots=True, eq=False)
class Events(Message):
    """All events of a batch (scheme "ship"); or no events and one tick, up to which time has passed."""

    stream: int
    hashes: Hashes
    ticks: Counts
    counts: Counts

    def _write(self, out: Writer) -> None:
        for number in (self.stream, self.hashes.size, self.ticks.size):
            out.varint(number)
        out.raw(np.ascontiguousarray(self.hashes, "<u8").tobytes())
        out.deltas(np.diff(self.ticks, prepend=0))
        out.deltas(self.counts - 1)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        stream, size, ticks = source.varint(), source.within(source.varint(), 0, LIMIT), source.varint()
        source.check(ticks in (0, max(size, 1)), "the number of times is not that of the events")
        hashes = np.frombuffer(source.raw(8 * size), "<u8").astype(np.uint64)
        return cls(site, sequence, stream, hashes, np.cumsum(source.deltas(ticks)), source.deltas(size) + 1)


@kind(11, earlier=9)
@dataclass(frozen=True, slots=True, eq=False)
class KeyCount(Message):
    """A site's count of a key; it includes the ``key`` itself unless the coordinator asked for it.

    ``elapsed`` is as in ``SketchUpdate``.
    """

    key_hash: int
    count: int
    key: Any = None
    elapsed: int | None = None

    def _write(self, out: Writer) -> None:
        _write_elapsed(out, self.elapsed)
        out.varint(2 * self.count + (self.key is not None))
        if self.key is None:
            out.u64(self.key_hash)
        else:
            write_key(out, self.key)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        elapsed, flag = _read_elapsed(source)
        source.check(not flag, "a flag that counts of keys do not have")
        return cls._read_count(site, sequence, source, elapsed)

    @classmethod
    def _read_earlier(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls._read_count(site, sequence, source, None)

    @classmethod
    def _read_count(cls, site: int, sequence: int, source: Reader, elapsed: int | None) -> Self:
        count, has_key = divmod(source.varint(), 2)
        source.within(count, 0, MAX_COUNT)
        if not has_key:
            return cls(site, sequence, source.u64(), count, None, elapsed)
        key = read_key(source)
        return cls(site, sequence, hash_of(key), count, key, elapsed)


def _write_elapsed(out: Writer, elapsed: int | None, flag: bool = False) -> None:
    """Write ticks of either sign that may be missing, and a flag, as one varint."""
    code = 0 if elapsed is None else 1 + (2 * elapsed if elapsed >= 0 else -2 * elapsed - 1)
    out.varint(2 * code + flag)


def _read_elapsed(source: Reader) -> tuple[int | None, bool]:
    code, flag = divmod(source.varint(), 2)
    elapsed = None if code == 0 else -(code // 2) if (code - 1) % 2 else (code - 1) // 2
    source.check(abs(elapsed or 0) <= 2 * MAX_COUNT, "elapsed ticks out of range")
    return elapsed, bool(flag)
