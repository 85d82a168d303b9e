"""What sites and coordinators say to each other: typed messages, and an encoding whose every byte counts.

A site is a state machine: ``update(...)``, ``advance(...)`` and ``receive(message)`` return the messages it wants sent; so
does ``coordinator.receive(message)``. Who carries them is somebody else's business: a simulator, rounds of Spark, a broker.
Messages may come late, twice, or in another order; ``sequence`` tells which of a site's is newer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from lately.core.codec import LIMIT, Reader, Writer
from lately.core.errors import FormatError
from lately.counters.base import MAX_COUNT, Counts

_KINDS: dict[int, type[Any]] = {}
M = TypeVar("M", bound=type[Any])


def kind(number: int) -> Callable[[M], M]:
    """Register a message under the number that begins its bytes."""

    def register(cls: M) -> M:
        assert number not in _KINDS, f"kind {number} is {_KINDS[number]}"
        cls.KIND = number
        _KINDS[number] = cls
        return cls

    return register


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Base of all messages: from which site, or to which, and the how-manieth it is."""

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
    def nbytes(self) -> int:
        """How many bytes are sent."""
        return len(self.to_bytes())

    def _write(self, out: Writer) -> None:
        """Write what this kind has besides."""

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        return cls(site, sequence)


def decode(data: bytes | memoryview) -> Any:
    """Read a message back; anything else raises ``FormatError``."""
    source = Reader(memoryview(data).cast("B"), LIMIT)
    number, site, sequence = (source.varint() for _ in range(3))
    if number not in _KINDS:
        raise FormatError(f"a message of kind {number}, unknown to this lately: upgrade it")
    message = _KINDS[number]._read(site, sequence, source)
    source.finish()
    return message


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
