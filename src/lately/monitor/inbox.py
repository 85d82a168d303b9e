"""The messages of one sender, put in order: they may arrive late, twice, or out of order."""

from collections.abc import Sequence
from itertools import pairwise

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError
from lately.monitor.messages import Message, SketchUpdate, decode

#: The most messages that may wait for a missing one.
MOST_EARLY = 10_000


class Inbox:
    """Returns each message of one sender once, in the order in which they were sent.

    >>> inbox = Inbox()
    >>> [[message.sequence for message in inbox.take(Message(0, number))] for number in (2, 1, 1, 3)]
    [[], [1, 2], [], [3]]
    >>> inbox.repeated
    1
    """

    def __init__(self) -> None:
        self._next = 1
        self._early: dict[int, Message] = {}
        #: Messages that had arrived before.
        self.repeated = 0

    @property
    def waiting(self) -> int:
        """How many messages wait for one that was sent before them."""
        return len(self._early)

    def take(self, message: Message) -> list[Message]:
        """Take a message; returns those that can be handled now, in order."""
        number = message.sequence
        if number < self._next or number in self._early:
            self.repeated += 1
            return []
        if len(self._early) >= MOST_EARLY and number != self._next:
            raise InputError(
                f"{MOST_EARLY:,} messages of site {message.site} wait for its message {self._next}, which never arrived",
                remedy="deliver every message at least once",
            )
        self._early[number] = message
        ready = []
        while self._next in self._early:
            ready.append(self._early.pop(self._next))
            self._next += 1
        return ready

    def write(self, out: Writer) -> None:
        """Write the next sequence number, and the messages that wait."""
        out.varint(self._next)
        out.varint(self.repeated)
        write_messages(out, [self._early[number] for number in sorted(self._early)])

    def read(self, source: Reader) -> list[Message]:
        """Read what ``write`` wrote; returns the messages that wait, which the caller should check."""
        self._next, self.repeated = source.varint(), source.varint()
        early = read_messages(source)
        numbers = [message.sequence for message in early]
        source.check(all(a < b for a, b in pairwise([self._next, *numbers])), "messages out of order")
        self._early = dict(zip(numbers, early, strict=True))
        return early


def write_messages(out: Writer, messages: Sequence[Message]) -> None:
    """Write messages, each with its size."""
    out.varint(len(messages))
    for message in messages:
        data = message.to_bytes()
        out.varint(len(data))
        out.raw(data)


def read_messages(source: Reader) -> list[Message]:
    """Read what ``write_messages`` wrote."""
    messages: list[Message] = []
    size = 0
    for _ in range(source.within(source.varint(), 0, 2 * MOST_EARLY)):
        messages.append(message := decode(source.raw(source.varint())))
        if isinstance(message, SketchUpdate):  # the only kind whose memory can far exceed its bytes
            size += sum(change.nbytes for change in message.changes if not isinstance(change, tuple))
            source.fits(size)
    return messages
