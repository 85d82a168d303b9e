"""Which sites a coordinator knows (expected, joined or departed), and the messages to them."""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError
from lately.monitor import messages as m
from lately.monitor.coordinator_state import SiteState
from lately.monitor.inbox import read_messages, write_messages
from lately.monitor.layout import Layout
from lately.monitor.messages import Message
from lately.monitor.state_bytes import check_early_messages, read_site_numbers, write_site_numbers


class Membership:
    """The sites of a coordinator.

    Parameters
    ----------
    expected
        The sites to begin with.
    """

    def __init__(self, expected: Iterable[int]) -> None:
        #: The sites that have sent messages and not left.
        self.states: dict[int, SiteState] = {}
        #: Those whose first update has arrived, in ascending order.
        self.joined: list[int] = []
        #: Those that must join before the monitor starts.
        self.expected = set(expected)
        #: Those that have left or were removed; their messages are ignored.
        self.departed: set[int] = set()
        self._births: dict[int, int] = {}
        self._outbox: list[Message] = []

    def check_birth(self, message: Message) -> None:
        """Raise ``InputError`` if a site wants to join with the number of another one."""
        if isinstance(message, m.JoinRequest) and self._births.get(message.site, message.birth) != message.birth:
            raise InputError(
                f"another site has used the number {message.site}",
                remedy=f"call remove({message.site}) if it no longer exists, and give the new one a number of its own",
            )

    def take(self, message: Message) -> tuple[SiteState, list[Message]]:
        """Take a checked message; returns its site and the messages that can be handled now, in order."""
        if isinstance(message, m.JoinRequest):
            self._births[message.site] = message.birth
        state = self.states.setdefault(message.site, SiteState())
        return state, state.inbox.take(message)

    def join(self, number: int) -> None:
        """The first update of a site has arrived."""
        self.states[number].joined = True
        insort(self.joined, number)
        self.expected.discard(number)

    def remove(self, number: int) -> SiteState:
        """Forget a site; returns what was known of it."""
        state = self.states.pop(number, SiteState())
        if state.joined:
            self.joined.remove(number)
        self.expected.discard(number)
        self.departed.add(number)
        return state

    def send(self, number: int, kind: type[Message], *content: Any) -> None:
        """Send a site a message, given its class and fields."""
        state = self.states[number]
        state.sent += 1
        self._outbox.append(kind(number, state.sent, *content))

    def take_outbox(self) -> list[Message]:
        """The messages to send since the last call."""
        messages, self._outbox = self._outbox, []
        return messages

    def write(self, out: Writer) -> None:
        """Write which sites ever joined, the messages to send, and what is known of each site."""
        write_site_numbers(out, self._births)
        out.u64s(np.array([self._births[number] for number in sorted(self._births)], np.uint64))
        write_messages(out, self._outbox)
        write_site_numbers(out, self.states)
        for number in sorted(self.states):
            self.states[number].write(out)

    def read(self, source: Reader, layouts: Sequence[Layout], is_version_1: bool, validate: Callable[[Message], None]) -> None:
        """Read what ``write`` wrote; ``validate`` checks the messages that wait for earlier ones."""
        born, births = read_site_numbers(source), source.u64s()
        source.check(births.size == len(born), "births of other sites")
        self._births = dict(zip(born, births.tolist(), strict=True))
        self._outbox = read_messages(source)
        numbers = read_site_numbers(source)
        source.fits(len(numbers) * sum(8 * layout.size for layout in layouts))
        for number in numbers:
            state = self.states[number] = SiteState()
            check_early_messages(source, state.read(source, layouts, is_version_1), validate, number)
        self.joined = sorted(number for number, state in self.states.items() if state.joined)
