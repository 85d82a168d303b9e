"""The only file that knows bytes: header, fields, packed integer columns. docs/format.md is its table.

    offset  size  what
         0     4  magic "LTLY"
         4     1  format version
         5     1  family: which class reads the payload
         6     2  flags: 1 if the payload has the extended fields, else 0
         8     4  payload length
        12     4  CRC32 of the 12 bytes before and the payload after
        16     …  payload: fields in the order in which the class writes them, little-endian

Integer columns are packed as the zigzag of each step to the next value, in base 128: a sorted column of ages costs
about one byte an entry. No length in the input makes us allocate more than the input could hold.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lately.core.arguments import MIN_SHARE
from lately.core.errors import FormatError
from lately.core.jit import kernel

MAGIC = b"LTLY"
#: What is written; every version from 1 on is read.
VERSION = 2
_HEADER = struct.Struct("<4sBBHI")
_CRC = struct.Struct("<I")

#: The flag of a payload with the extended fields of docs/format.md: what the first layout had no room for.
EXTENDED = 1

#: What only the monitor that it belongs to can read (``Monitor.restore``), by family number.
OF_MONITORS = {16: "site", 17: "coordinator"}

#: Blobs that would need more memory than this, or 32 times their own size, are refused unless the caller allows it.
LIMIT = 2**28

_SEVEN, _LOW7, _MORE = np.uint64(7), np.uint64(127), np.uint64(128)
_ONE, _63 = np.uint64(1), np.uint64(63)


class Storable(Protocol):
    """A class that can write its state as fields and read it back."""

    FAMILY: ClassVar[int]

    def _write(self, out: "Writer") -> None: ...

    @classmethod
    def _read(cls, source: "Reader") -> Self: ...


_FAMILIES: dict[int, type[Any]] = {}
C = TypeVar("C", bound=type[Any])


def storable(family: int) -> Callable[[C], C]:
    """Register a class under its family number, so that ``from_bytes`` finds it."""

    def register(cls: C) -> C:
        assert family not in _FAMILIES, f"family {family} is {_FAMILIES[family]}"
        cls.FAMILY = family
        _FAMILIES[family] = cls
        return cls

    return register


def families() -> dict[int, type[Any]]:
    """Every class that can be stored, by its family number."""
    return dict(_FAMILIES)


def to_bytes(state: Storable) -> bytes:
    """Write a sketch or counter as bytes: versioned, checked, the same on every machine."""
    out = Writer(extended=getattr(state, "_extended", False))
    state._write(out)
    return sealed(state.FAMILY, out)


def sealed(family: int, out: "Writer") -> bytes:
    """What was written, under a header."""
    payload = out.bytes()
    head = _HEADER.pack(MAGIC, VERSION, family, EXTENDED if out.extended else 0, len(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(payload, zlib.crc32(head))), payload))


def from_bytes(data: bytes | bytearray | memoryview, *, limit: int | None = None) -> Any:
    """Read what ``to_bytes`` wrote. Damaged or foreign bytes raise ``FormatError`` and nothing else.

    Parameters
    ----------
    data
        The bytes, as ``to_bytes`` returned them.
    limit
        The most memory, in bytes, that the result may take. By default 256 MiB or 32 times the input, whichever is more.

    >>> import lately as lt
    >>> counter = lt.WindowCounter(window=100, eps=0.1)
    >>> counter.add(7, 3)
    >>> lt.from_bytes(counter.to_bytes()).count()
    Estimate(3, 3..3, 100%)
    """
    family, source = opened(data, limit)
    if family in OF_MONITORS:
        raise FormatError(
            f"the data is a {OF_MONITORS[family]} of a monitor (family {family}), which only an equal Monitor can read",
            remedy="build that Monitor and call its restore(data)",
        )
    state = _FAMILIES[family]._read(source)
    source.finish()
    source.check(source.extended == getattr(state, "_extended", False), "extended fields that say nothing")
    return state


def opened(data: bytes | bytearray | memoryview, limit: int | None) -> tuple[int, "Reader"]:
    """The family of what ``sealed`` wrote, once its header is found good, and a reader of its payload."""
    try:
        view = memoryview(data).cast("B")
    except TypeError as error:
        raise FormatError(f"cannot read a sketch from a {type(data).__name__}", remedy="give bytes") from error
    size = _HEADER.size + _CRC.size
    if len(view) < size:
        raise FormatError(f"{len(view)} bytes are too few for a sketch, which starts with a {size}-byte header")
    magic, version, family, flags, length = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise FormatError(f"the data starts with {magic!r}, not {MAGIC!r}; it is no sketch of lately")
    if not 1 <= version <= VERSION:
        raise FormatError(
            f"the data has format version {version}, and this lately reads versions 1 to {VERSION}", remedy="upgrade lately"
        )
    if len(view) - size != length:
        raise FormatError(f"the data is {len(view):,} bytes, its header says {length + size:,}; it was cut or padded")
    (crc,) = _CRC.unpack_from(view, _HEADER.size)
    if zlib.crc32(view[size:], zlib.crc32(view[: _HEADER.size])) != crc:
        raise FormatError("the checksum does not match; the data was damaged on its way here")
    extended = flags == EXTENDED and version > 1 and hasattr(_FAMILIES.get(family), "_extended")
    if (flags and not extended) or family not in _FAMILIES.keys() | OF_MONITORS.keys():
        raise FormatError(f"the data has family {family} and flags {flags}, unknown to this lately", remedy="upgrade lately")
    return family, Reader(view[size:], max(LIMIT, 32 * len(view)) if limit is None else limit, version, extended)


def from_trusted_bytes(data: bytes) -> Any:
    """What unpickling calls: any size, because pickles are trusted anyway."""
    return from_bytes(data, limit=2**63)


#: A deflated byte cannot hold more than this many.
_DEFLATED = 1032


class Writer:
    """Fields, one after the other."""

    def __init__(self, extended: bool = False) -> None:
        self._parts: list[bytes] = []
        self.extended = extended  # whether to write the extended fields too

    def raw(self, data: bytes) -> None:
        """Bytes as they are; whoever reads them knows how many."""
        self._parts.append(data)

    def bytes(self) -> bytes:
        return b"".join(self._parts)

    def u8(self, value: int) -> None:
        self._parts.append(struct.pack("<B", value))

    def i64(self, value: int) -> None:
        self._parts.append(struct.pack("<q", value))

    def u64(self, value: int) -> None:
        self._parts.append(struct.pack("<Q", value))

    def f64(self, value: float) -> None:
        self._parts.append(struct.pack("<d", value))

    def varint(self, value: int) -> None:
        """A number that is mostly small, in base 128."""
        digits = bytearray()
        while value >= 128:
            digits.append(value & 127 | 128)
            value >>= 7
        digits.append(value)
        self._parts.append(bytes(digits))

    def text(self, value: str) -> None:
        """Text, its length in bytes first."""
        content = value.encode()
        self.varint(len(content))
        self.raw(content)

    def maybe(self, value: int | None) -> None:
        """An integer that may be missing."""
        self.u8(value is not None)
        if value is not None:
            self.i64(value)

    def f64s(self, values: NDArray[np.float64]) -> None:
        """A column of floats: eight bytes each; every NaN is the same one."""
        column = np.ascontiguousarray(values, np.float64).ravel()
        self.u64s(np.where(np.isnan(column), np.nan, column).view(np.uint64))

    def u64s(self, values: NDArray[np.uint64]) -> None:
        """A column without structure (hashes): eight bytes each."""
        self.u64(values.size)
        self._parts.append(np.ascontiguousarray(values, "<u8").tobytes())

    def integers(self, values: NDArray[Any]) -> None:
        """A column of integers, packed by their steps; its length goes first."""
        column = np.ascontiguousarray(values).ravel().astype(np.int64, copy=False)
        packed = np.empty(10 * column.size, np.uint8)
        used = _pack(column, packed)
        self.u64(column.size)
        self._parts.append(packed[:used].tobytes())

    def f32s(self, values: NDArray[np.float64]) -> None:
        """A few floats of four bytes each; whoever reads them knows how many."""
        self._parts.append(np.ascontiguousarray(values, "<f4").tobytes())

    def deltas(self, values: NDArray[np.int64]) -> None:
        """A column of mostly small integers of either sign, deflated where that makes it smaller."""
        column = np.cumsum(values, dtype=np.int64)  # whose steps are packed
        packed = np.empty(10 * column.size, np.uint8)
        plain = packed[: _pack(column, packed)].tobytes()
        deflated = zlib.compress(plain, 6)
        best = min(plain, deflated, key=len)
        self.varint(column.size)
        self.varint(2 * len(best) + (best is deflated))
        self._parts.append(best)


class Reader:
    """Fields in the order in which they were written; whatever is not as written is a ``FormatError``."""

    def __init__(self, view: memoryview, limit: int, version: int = VERSION, extended: bool = False) -> None:
        self._view, self._at, self.limit, self.version = view, 0, limit, version
        self.extended = extended  # whether the extended fields were written too

    def u8(self) -> int:
        return int(self._field("<B"))

    def i64(self) -> int:
        return int(self._field("<q"))

    def u64(self) -> int:
        return int(self._field("<Q"))

    def f64(self) -> float:
        return float(self._field("<d"))

    def varint(self) -> int:
        value = shift = 0
        while True:
            self.check(self._at < len(self._view), "it ends in the middle of a field")
            byte = self._view[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            self.check(shift < 70, "a number is too long")

    def text(self) -> str:
        content = self.raw(self.varint())
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"not a sketch that lately wrote: a text is not UTF-8 ({error.reason})") from error

    def maybe(self, low: int, high: int) -> int | None:
        """An integer in ``low..high`` that may be missing."""
        return self.within(self.i64(), low, high) if self.choice(0, 1) else None

    def f64s(self) -> NDArray[np.float64]:
        values = self.u64s().view(np.float64)
        values[np.isnan(values)] = np.nan  # there are many, and some of them raise the processor's alarm
        return values

    def u64s(self) -> NDArray[np.uint64]:
        size = self.u64()
        self.check(size * 8 <= self._left(), "a column runs past the end")
        values = np.frombuffer(self._view, "<u8", size, self._at).astype(np.uint64)
        self._at += size * 8
        return values

    def integers(self, low: int, high: int) -> NDArray[np.int64]:
        """A packed column whose values must lie in ``low..high``."""
        size = self.u64()
        self.check(size <= self._left(), "a column runs past the end")
        values = np.empty(size, np.int64)
        used = _unpack(np.frombuffer(self._view, np.uint8, offset=self._at), values)
        self.check(used >= 0, "a column is cut short")
        self._at += used
        if size:
            self.check(low <= int(values.min()) and int(values.max()) <= high, f"a column leaves {low}..{high}")
        return values

    def f32s(self, size: int) -> NDArray[np.float64]:
        """``size`` floats of four bytes each, all of them finite."""
        values = np.frombuffer(self.raw(4 * size), "<f4")
        self.check(bool(np.isfinite(values).all()), "a float is not finite")
        return values.astype(np.float64)

    def deltas(self, size: int) -> NDArray[np.int64]:
        """A column of ``size`` integers, as ``Writer.deltas`` wrote it."""
        self.check(self.varint() == size, f"a column has not {size} entries")
        length, is_deflated = divmod(self.varint(), 2)
        data = self.raw(length)
        self.check(size <= length * (_DEFLATED if is_deflated else 1), "a column of more entries than it can hold")
        if is_deflated:
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(data, 10 * size + 1)
            except zlib.error as error:
                raise FormatError(f"not a sketch that lately wrote: a column does not inflate ({error})") from error
            self.check(inflater.eof and not inflater.unused_data, "a deflated column of another size")
        values = np.empty(size, np.int64)
        self.check(_unpack(np.frombuffer(data, np.uint8), values) == len(data), "a column is cut short")
        return np.diff(values, prepend=np.int64(0))

    def raw(self, size: int) -> bytes:
        """``size`` bytes, not interpreted."""
        self.check(0 <= size <= self._left(), f"{size} bytes run past the end")
        self._at += size
        return bytes(self._view[self._at - size : self._at])

    def fraction(self) -> float:
        """An eps or delta."""
        value = self.f64()
        self.check(MIN_SHARE <= value < 1, f"{value} where a fraction belongs")
        return value

    def choice(self, *allowed: int) -> int:
        """A byte that must be one of the allowed ones."""
        value = self.u8()
        self.check(value in allowed, f"{value} where one of {allowed} belongs")
        return value

    def within(self, value: int, low: int, high: int) -> int:
        """Pass a value that must lie in ``low..high``."""
        self.check(low <= value <= high, f"{value} where {low}..{high} belongs")
        return value

    def fits(self, nbytes: int) -> None:
        """Refuse, before allocating, a state that would take more memory than allowed."""
        if nbytes > self.limit:
            raise FormatError(
                f"the sketch would take {nbytes:,} bytes, more than {self.limit:,}",
                remedy=f"if you trust it, pass limit={nbytes}",
            )

    def check(self, fine: bool, problem: str) -> None:
        """Refuse the input unless ``fine``."""
        if not fine:
            raise FormatError(f"not a sketch that lately wrote: {problem} (payload offset {self._at})")

    def copy(self) -> "Reader":
        """One that reads on from here by itself."""
        twin = Reader(self._view, self.limit, self.version, self.extended)
        twin._at = self._at
        return twin

    def move_to(self, other: "Reader") -> None:
        """Go on where a copy has come to."""
        self._at = other._at

    def finish(self) -> None:
        """Nothing may be left over."""
        self.check(self._left() == 0, f"{self._left()} bytes too many")

    def _left(self) -> int:
        return len(self._view) - self._at

    def _field(self, form: str) -> Any:
        self.check(struct.calcsize(form) <= self._left(), "it ends in the middle of a field")
        (value,) = struct.unpack_from(form, self._view, self._at)
        self._at += struct.calcsize(form)
        return value


@kernel
def _pack(values: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
    at = 0
    before = np.uint64(0)
    for i in range(values.size):
        value = np.uint64(values[i])
        step = value - before
        before = value
        word = (step << _ONE) ^ (np.uint64(0) - (step >> _63))  # zigzag: small steps either way become small words
        while word >= _MORE:
            out[at] = np.uint8((word & _LOW7) | _MORE)
            word >>= _SEVEN
            at += 1
        out[at] = np.uint8(word)
        at += 1
    return at


@kernel
def _unpack(data: NDArray[np.uint8], out: NDArray[np.int64]) -> int:
    at = 0
    before = np.uint64(0)
    for i in range(out.size):
        word = np.uint64(0)
        shift = np.uint64(0)
        while True:
            if at == data.size or shift > _63:
                return -1
            byte = np.uint64(data[at])
            at += 1
            word |= (byte & _LOW7) << shift
            if byte < _MORE:
                break
            shift += _SEVEN
        before += (word >> _ONE) ^ (np.uint64(0) - (word & _ONE))
        out[i] = np.int64(before)
    return at
