"""The base of all messages, and their encoding: kind, site and sequence number as varints, then the fields of the kind.

A site is a state machine: ``update(…)``, ``advance(…)`` and ``receive(message)`` return the messages to send, and so does
``coordinator.receive(message)``. The caller transports them: the simulator, rounds of Spark, or a broker. Messages may arrive
late, twice or out of order; ``Inbox`` sorts them by ``sequence``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from lately.core.codec import LIMIT, Reader, Writer
from lately.core.errors import FormatError, InputError
from lately.core.keys import hash_keys

#: One more than the largest number that a site can have.
MAX_SITES = 2**48

#: Kinds from this number on are for sites, those below for the coordinator.
_FIRST_TO_SITES = 16

#: Message classes by the number that begins their bytes.
KINDS: dict[int, type[Any]] = {}
#: Classes by the numbers of earlier encodings, which are still read but no longer written.
EARLIER_KINDS: dict[int, type[Any]] = {}
M = TypeVar("M", bound=type[Any])


def kind(number: int, earlier: int | None = None) -> Callable[[M], M]:
    """Register a message class under the number that begins its bytes.

    ``earlier`` is the number of its earlier encoding, which had no clock.
    """

    def register(cls: M) -> M:
        assert number not in KINDS, f"kind {number} is {KINDS[number]}"
        cls.KIND = number
        KINDS[number] = cls
        if earlier is not None:
            EARLIER_KINDS[earlier] = cls
        return cls

    return register


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Base of all messages.

    Parameters
    ----------
    site
        The site that sent it, or that it is for; 0 to 2**48 - 1.
    sequence
        Its sequence number: a sender counts its messages to one receiver from 1.

    >>> from lately.monitor.messages import LeaveNotice
    >>> decode(LeaveNotice(3, 17).to_bytes())
    LeaveNotice(site=3, sequence=17)
    """

    KIND: ClassVar[int] = 0

    site: int
    sequence: int

    def to_bytes(self) -> bytes:
        """The bytes to send; ``decode`` reads them."""
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
        """The size of its bytes."""
        return len(self.to_bytes())

    def _write(self, out: Writer) -> None:
        """Write the fields of this kind."""

    @classmethod
    def _read(cls, site: int, sequence: int, source: Reader) -> Self:
        """Read what ``_write`` wrote."""
        return cls(site, sequence)


def decode(data: bytes | memoryview) -> Any:
    """Read a message from its bytes.

    Parameters
    ----------
    data
        What ``message.to_bytes()`` returned. Anything else raises ``FormatError``.

    >>> from lately.monitor.messages import UpdateRequest
    >>> decode(UpdateRequest(3, 17, 2).to_bytes()).epoch
    2
    """
    try:
        source = Reader(memoryview(data).cast("B"), LIMIT)
        number, site, sequence = (source.varint() for _ in range(3))
        if number in EARLIER_KINDS:
            message = EARLIER_KINDS[number]._read_earlier(site, sequence, source)
        elif number in KINDS:
            message = KINDS[number]._read(site, sequence, source)
        else:
            raise FormatError(
                f"unknown message kind {number}: not a message of lately, or of a newer version", remedy="upgrade lately"
            )
        source.finish()
    except TypeError as error:
        raise FormatError(f"cannot read a message from a {type(data).__name__}", remedy="give bytes") from error
    except FormatError as error:
        what = error.message.replace("not a sketch that lately wrote", "not a message that lately wrote")
        raise FormatError(what, remedy=error.remedy) from None
    return message


def check_is_message(message: object) -> None:
    """Raise ``InputError`` for anything but a decoded message, such as bytes or a list."""
    if not isinstance(message, Message):
        raise InputError(
            f"expected a message, got a {type(message).__name__}", remedy="decode() bytes first, and give one at a time"
        )


def hash_of(key: Any) -> int:
    """The 64-bit hash by which messages name a key."""
    return int(hash_keys([key])[0])
