"""Messages from the coordinator to a site."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.stored_keys import read_key, write_key
from lately.counters.base import MAX_COUNT
from lately.monitor.messages.message import Message, kind
from lately.monitor.messages.query_messages import MAX_STREAMS, MAX_VECTOR, EpochMessage, QueryMessage, VectorMessage


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """The limits of one query: the limited sides of its value, the numbers of their zones, and what the guard starts with.

    ``sides`` is 1 where the value must not rise above its tolerance, plus 2 where it must not fall below.
    """

    sides: int
    zones: NDArray[np.float64]
    start: NDArray[np.float64]


@kind(16)
@dataclass(frozen=True, slots=True, eq=False)
class DriftRequest(QueryMessage):
    """Asks for a ``DriftReport``."""


@kind(17)
@dataclass(frozen=True, slots=True, eq=False)
class SafeFunctionRequest(QueryMessage):
    """Asks for a ``SafeFunctionReport``."""


@kind(18)
@dataclass(frozen=True, slots=True, eq=False)
class Balance(VectorMessage):
    """The mean drift of the sites that reported, from which each of them continues; ``is_all``: all sites reported."""

    is_all: bool

    def _write(self, out: Writer) -> None:
        VectorMessage._write(self, out)
        out.u8(self.is_all)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        base = VectorMessage._read(site, sequence, source)
        return cls(site, sequence, base.epoch, base.query, base.subround, base.vector, bool(source.choice(0, 1)))


@kind(19)
@dataclass(frozen=True, slots=True, eq=False)
class Quantum(VectorMessage):
    """Begins a subround: the rise of the safe function after which a site sends an ``Increment``."""


@kind(20)
@dataclass(frozen=True, slots=True, eq=False)
class UpdateRequest(EpochMessage):
    """Asks for a ``SketchUpdate``."""


@kind(21)
@dataclass(frozen=True, slots=True, eq=False)
class Reference(EpochMessage):
    """A new reference: the limits of each query, and the count at which a site reports a key that has no limits (``cap``)."""

    limits: tuple[Limits, ...]
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
        for _ in range(source.within(source.varint(), 0, MAX_STREAMS)):
            sides = source.choice(0, 1, 2, 3)
            zones, start = (source.f32s(source.within(source.varint(), 0, MAX_VECTOR)) for _ in range(2))
            limits.append(Limits(sides, zones, start))
        return cls(site, sequence, epoch, tuple(limits), cap)


@kind(22)
@dataclass(frozen=True, slots=True, eq=False)
class KeyCountRequest(Message):
    """Asks how often the site has counted a key."""

    key: Any

    def _write(self, out: Writer) -> None:
        write_key(out, self.key)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, read_key(source))


@kind(23)
@dataclass(frozen=True, slots=True, eq=False)
class KeyLimits(Message):
    """The limit of a key: report it when a ``listed`` one falls below ``limit``, or when another one reaches it.

    A limit of 0 for a key that is not listed removes its limits.
    """

    key_hash: int
    listed: bool
    limit: int

    def _write(self, out: Writer) -> None:
        out.u64(self.key_hash)
        out.varint(2 * self.limit + self.listed)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        key_hash, (limit, listed) = source.u64(), divmod(source.varint(), 2)
        return cls(site, sequence, key_hash, bool(listed), source.within(limit, 0, MAX_COUNT))
