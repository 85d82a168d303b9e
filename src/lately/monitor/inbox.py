"""Messages of one sender put in order: carriers may bring them late, twice, or one before another."""

from lately.core.errors import InputError
from lately.monitor.messages import Message

#: More messages than this ahead of a missing one, and something is wrong with the carrier.
MOST_EARLY = 10_000


class Inbox:
    """Gives out the messages of one sender each once, in the order in which they were sent.

    >>> inbox = Inbox()
    >>> [[message.sequence for message in inbox.take(Message(0, number))] for number in (2, 1, 1, 3)]
    [[], [1, 2], [], [3]]
    >>> inbox.repeated
    1
    """

    def __init__(self) -> None:
        self._next = 1
        self._early: dict[int, Message] = {}
        #: Messages that had come before.
        self.repeated = 0

    @property
    def waiting(self) -> int:
        """Messages that came before one that was sent earlier."""
        return len(self._early)

    def take(self, message: Message) -> list[Message]:
        """What can be read now that this one has come."""
        number = message.sequence
        if number < self._next or number in self._early:
            self.repeated += 1
            return []
        if len(self._early) >= MOST_EARLY and number != self._next:
            raise InputError(
                f"{MOST_EARLY:,} messages of site {message.site} wait for its message {self._next}, which never came; "
                "deliver every message at least once"
            )
        self._early[number] = message
        ready = []
        while self._next in self._early:
            ready.append(self._early.pop(self._next))
            self._next += 1
        return ready
