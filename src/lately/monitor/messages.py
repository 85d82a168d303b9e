"""What sites and coordinators say to each other: typed messages, and an encoding whose every byte counts.

A site is a state machine: ``update(...)``, ``advance(...)`` and ``receive(message)`` return the messages it wants sent; so
does ``coordinator.receive(message)``. Who carries them is somebody else's business: a simulator, rounds of Spark, a broker.
Messages may come late, twice, or in another order; ``sequence`` tells which of a site's is newer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import LIMIT, Reader, Writer
from lately.core.errors import FormatError, InputError
from lately.core.keys import Hashes, hash_keys
from lately.core.stored_keys import read_key, write_key
from lately.counters.base import MAX_COUNT, Counts

#: More than any query has, or any monitor; what says otherwise was not written by lately.
MOST_NUMBERS, MOST_STREAMS = 2**16, 2**12

#: What has changed in a stream: every number, or the keys that came and how often.
Change = Counts | tuple[Hashes, Counts]

#: Messages of this kind and beyond are for sites.
_FIRST_TO_SITES = 16

_KINDS: dict[int, type[Any]] = {}
#: Kinds as they were written before; they are read and no longer sent.
_EARLIER: dict[int, type[Any]] = {}
M = TypeVar("M", bound=type[Any])


def kind(number: int, earlier: int | None = None) -> Callable[[M], M]:
    """Register a message under the number that begins its bytes; ``earlier`` is that of its bytes without a time."""

    def register(cls: M) -> M:
        assert number not in _KINDS, f"kind {number} is {_KINDS[number]}"
        cls.KIND = number
        _KINDS[number] = cls
        if earlier is not None:
            _EARLIER[earlier] = cls
        return cls

    return register


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Base of all messages: from which site, or to which, and the how-manieth it is.

    >>> decode(LeaveNotice(3, 17).to_bytes())
    LeaveNotice(site=3, sequence=17)
    """

    KIND: ClassVar[int] = 0

    site: int
    sequence: int

    def to_bytes(self) -> bytes:
        """The message as it is sent."""
        out = Writer()
        for number in (self.KIND, self.site, self.sequence):
            out.varint(number)
        self._write(out)
        return out.bytes()

    @property
    def to_site(self) -> bool:
        """Whether it is for a site; others are for the coordinator."""
        return self.KIND >= _FIRST_TO_SITES

    @property
    def nbytes(self) -> int:
        """How many bytes are sent."""
        return len(self.to_bytes())

    def _write(self, out: Writer) -> None:
        """Write what this kind has besides."""

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence)


def decode(data: bytes | memoryview) -> Any:
    """Read a message back; anything else raises ``FormatError``.

    >>> decode(UpdateRequest(3, 17, 2).to_bytes()).epoch
    2
    """
    try:
        source = Reader(memoryview(data).cast("B"), LIMIT)
        number, site, sequence = (source.varint() for _ in range(3))
        if number in _EARLIER:
            message = _EARLIER[number]._read_earlier(site, sequence, source)
        elif number in _KINDS:
            message = _KINDS[number]._read(site, sequence, source)
        else:
            raise FormatError(f"a message of kind {number}: it is none of lately's, or of a newer lately; upgrade this one")
        source.finish()
    except TypeError as error:
        raise FormatError(f"cannot read a message from a {type(data).__name__}; give bytes") from error
    except FormatError as error:
        raise FormatError(str(error).replace("not a sketch that lately wrote", "not a message that lately wrote")) from None
    return message


def must_be_message(message: object) -> None:
    """Refuse bytes that were not decoded, lists, and all else."""
    if not isinstance(message, Message):
        raise InputError(f"a {type(message).__name__} where a message belongs; decode() bytes first, and give one at a time")


def _write_elapsed(out: Writer, elapsed: int | None, flag: bool = False) -> None:
    """Write ticks of either sign that may be missing, and a flag, in as few bytes as will do."""
    code = 0 if elapsed is None else 1 + (2 * elapsed if elapsed >= 0 else -2 * elapsed - 1)
    out.varint(2 * code + flag)


def _read_elapsed(source: Reader) -> tuple[int | None, bool]:
    code, flag = divmod(source.varint(), 2)
    elapsed = None if code == 0 else -(code // 2) if (code - 1) % 2 else (code - 1) // 2
    source.check(abs(elapsed or 0) <= 2 * MAX_COUNT, "ticks beyond all times")
    return elapsed, bool(flag)


def hash_of(key: Any) -> int:
    """The number by which messages speak of a key."""
    return int(hash_keys([key])[0])


@kind(1)
@dataclass(frozen=True, slots=True, eq=False)
class CellsMessage(Message):
    """What every cell of a site's sketch counts, and how many arrivals its window has."""

    arrivals: int
    cells: Counts

    def _write(self, out: Writer) -> None:
        out.varint(self.arrivals)
        out.integers(self.cells)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        arrivals = source.within(source.varint(), 0, MAX_COUNT)
        cells = source.integers(0, MAX_COUNT)
        source.check(float(cells.sum(dtype=np.float64)) <= MAX_COUNT, "more arrivals than can be")
        return cls(site, sequence, arrivals, cells)


# -- monitors: from a site to the coordinator --------------------------------------------------------------------------


@kind(2)
@dataclass(frozen=True, slots=True, eq=False)
class JoinRequest(Message):
    """A site wants to be watched too; ``built`` tells what it was built for, ``birth`` is its own, and no other site's."""

    built: int
    birth: int

    def _write(self, out: Writer) -> None:
        out.u64(self.built)
        out.u64(self.birth)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, source.u64(), source.u64())


@kind(3)
@dataclass(frozen=True, slots=True, eq=False)
class LeaveNotice(Message):
    """A site stops, and takes its stream with it."""


@dataclass(frozen=True, slots=True, eq=False)
class EpochMessage(Message):
    """Base of the messages that are about a certain reference (``epoch``)."""

    epoch: int

    def _write(self, out: Writer) -> None:
        out.varint(self.epoch)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, source.varint())


@dataclass(frozen=True, slots=True, eq=False)
class QueryMessage(EpochMessage):
    """Base of the messages about one query, since its limits were last set (``turn``)."""

    query: int
    subround: int

    def _write(self, out: Writer) -> None:
        for number in (self.epoch, self.query, self.subround):
            out.varint(number)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, source.varint(), source.varint(), source.varint())


@dataclass(frozen=True, slots=True, eq=False)
class VectorMessage(QueryMessage):
    """Base of the messages about one query that bring numbers."""

    numbers: NDArray[np.float64]

    def _write(self, out: Writer) -> None:
        QueryMessage._write(self, out)
        out.varint(self.numbers.size)
        out.f32s(self.numbers)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        about = source.varint(), source.varint(), source.varint()
        return cls(site, sequence, *about, source.f32s(source.within(source.varint(), 0, MOST_NUMBERS)))


@kind(4)
@dataclass(frozen=True, slots=True, eq=False)
class DriftReport(VectorMessage):
    """Where a site's rows have drifted to, and how many changes it has not told; because it was asked, or must say so."""

    updates: int

    def _write(self, out: Writer) -> None:
        VectorMessage._write(self, out)
        out.varint(self.updates)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        plain = VectorMessage._read(site, sequence, source)
        return cls(site, sequence, plain.epoch, plain.query, plain.subround, plain.numbers, source.varint())


@kind(5)
@dataclass(frozen=True, slots=True, eq=False)
class Increment(QueryMessage):
    """By how many steps a site's pressure has risen."""

    steps: int

    def _write(self, out: Writer) -> None:
        QueryMessage._write(self, out)
        out.varint(self.steps)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, *(source.varint() for _ in range(4)))


@kind(6)
@dataclass(frozen=True, slots=True, eq=False)
class SafeFunctionReport(VectorMessage):
    """A site's pressure, because it was asked."""


@kind(10, earlier=7)
@dataclass(frozen=True, slots=True, eq=False)
class SketchUpdate(EpochMessage):
    """What has changed at a site since it last told, stream by stream: every number, or the keys themselves if that is less.

    ``elapsed`` is how many ticks have passed at the site since it last said so; the first time it is the tick itself. A site
    that waits too long for an answer tells ``unasked``: the same changes will be told again when it is asked.
    """

    changes: tuple["Change", ...]
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
    def _read_changes(source: Reader) -> tuple["Change", ...]:
        changes: list[Change] = []
        total = 0
        for _ in range(source.within(source.varint(), 0, MOST_STREAMS)):
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
    """Everything that arrived, as it came; or no events and one tick, up to which time has passed."""

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
        source.check(ticks in (0, max(size, 1)), "times of other events")
        hashes = np.frombuffer(source.raw(8 * size), "<u8").astype(np.uint64)
        return cls(site, sequence, stream, hashes, np.cumsum(source.deltas(ticks)), source.deltas(size) + 1)


@kind(11, earlier=9)
@dataclass(frozen=True, slots=True, eq=False)
class KeyCount(Message):
    """How often a site has counted a key; the ``key`` itself goes along unless the coordinator asked.

    ``elapsed`` is as in ``SketchUpdate``.
    """

    item: int
    count: int
    key: Any = None
    elapsed: int | None = None

    def _write(self, out: Writer) -> None:
        _write_elapsed(out, self.elapsed)
        out.varint(2 * self.count + (self.key is not None))
        if self.key is None:
            out.u64(self.item)
        else:
            write_key(out, self.key)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        elapsed, flag = _read_elapsed(source)
        source.check(not flag, "a count that nobody could have sent")
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


# -- monitors: from the coordinator to a site --------------------------------------------------------------------------


@kind(16)
@dataclass(frozen=True, slots=True, eq=False)
class DriftRequest(QueryMessage):
    """Say where your rows are."""


@kind(17)
@dataclass(frozen=True, slots=True, eq=False)
class SafeFunctionRequest(QueryMessage):
    """Say how high your pressure is."""


@kind(18)
@dataclass(frozen=True, slots=True, eq=False)
class Balance(VectorMessage):
    """Count on as if your rows were here, where the mean of those who reported is; ``is_all``: of all sites."""

    is_all: bool

    def _write(self, out: Writer) -> None:
        VectorMessage._write(self, out)
        out.u8(self.is_all)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        plain = VectorMessage._read(site, sequence, source)
        return cls(site, sequence, plain.epoch, plain.query, plain.subround, plain.numbers, bool(source.choice(0, 1)))


@kind(19)
@dataclass(frozen=True, slots=True, eq=False)
class Quantum(VectorMessage):
    """Tell from now on when your pressure has risen by so much."""


@kind(20)
@dataclass(frozen=True, slots=True, eq=False)
class UpdateRequest(EpochMessage):
    """Tell everything that has changed."""


@kind(21)
@dataclass(frozen=True, slots=True, eq=False)
class Reference(EpochMessage):
    """A new reference: for each query its limits; for keys that nobody has spoken of, the ``cap`` of their count."""

    limits: tuple["Limits", ...]
    cap: int = 0

    def _write(self, out: Writer) -> None:
        EpochMessage._write(self, out)
        out.varint(self.cap)
        out.varint(len(self.limits))
        for limits in self.limits:
            out.u8(limits.sides)
            for numbers in (limits.zones, limits.start):
                out.varint(numbers.size)
                out.f32s(numbers)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        epoch, cap, limits = source.varint(), source.within(source.varint(), 0, MAX_COUNT), []
        for _ in range(source.within(source.varint(), 0, MOST_STREAMS)):
            sides = source.choice(0, 1, 2, 3)
            zones, start = (source.f32s(source.within(source.varint(), 0, MOST_NUMBERS)) for _ in range(2))
            limits.append(Limits(sides, zones, start))
        return cls(site, sequence, epoch, tuple(limits), cap)


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Of one query: which sides of its value are limited (1: not higher, 2: not lower), how, and from where on."""

    sides: int
    zones: NDArray[np.float64]
    start: NDArray[np.float64]


@kind(22)
@dataclass(frozen=True, slots=True, eq=False)
class KeyCountRequest(Message):
    """Say how often you have counted a key."""

    key: Any

    def _write(self, out: Writer) -> None:
        write_key(out, self.key)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, read_key(source))


@kind(23)
@dataclass(frozen=True, slots=True, eq=False)
class KeyLimits(Message):
    """Speak up when the count of a key that is ``listed`` falls below ``limit``, of another when it reaches it.

    A limit of 0 for a key that is not listed: it is like all others again.
    """

    item: int
    listed: bool
    limit: int

    def _write(self, out: Writer) -> None:
        out.u64(self.item)
        out.varint(2 * self.limit + self.listed)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        item, (limit, listed) = source.u64(), divmod(source.varint(), 2)
        return cls(site, sequence, item, bool(listed), source.within(limit, 0, MAX_COUNT))
