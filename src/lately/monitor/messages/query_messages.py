"""Bases of the messages about an epoch or a query."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.monitor.messages.message import Message

#: More numbers than any query has, and more streams or queries than any monitor; larger values are refused.
MAX_VECTOR, MAX_STREAMS = 2**16, 2**12


@dataclass(frozen=True, slots=True, eq=False)
class EpochMessage(Message):
    """Base of the messages about one epoch, which is the number of a reference."""

    epoch: int

    def _write(self, out: Writer) -> None:
        out.varint(self.epoch)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence, source.varint())


@dataclass(frozen=True, slots=True, eq=False)
class QueryMessage(EpochMessage):
    """Base of the messages about one query in one subround of an epoch; a subround begins when its limits are set."""

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
    """Base of the messages about one query that carry a vector of 32-bit floats."""

    vector: NDArray[np.float64]

    def _write(self, out: Writer) -> None:
        QueryMessage._write(self, out)
        out.varint(self.vector.size)
        out.f32s(self.vector)

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        about = source.varint(), source.varint(), source.varint()
        return cls(site, sequence, *about, source.f32s(source.within(source.varint(), 0, MAX_VECTOR)))
