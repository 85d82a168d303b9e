"""The coordinator: announces the estimates, and synchronises with the sites when its limits no longer guarantee them.

    starting ──all have joined──> idle ──limits used up──> [the scheme's own steps] ──> collecting ──enough updates──> idle

A synchronisation ends with a new reference for all queries at once. A site that sends something in between is answered then,
with the others. When sites join or leave, all sites send updates, because limits depend on the number of sites.

A site that does not answer blocks a synchronisation. The sites that wait then send unsolicited updates when they have changed
much, and what these prove is announced: bounds that hold whatever the missing site counts, and alarms that follow from them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import InputError, ParameterError
from lately.monitor import messages as m
from lately.monitor.announcer import Announcer, Promise
from lately.monitor.coordinator_checks import check_message
from lately.monitor.coordinator_state import Activity, SiteState
from lately.monitor.definition import MonitorDefinition
from lately.monitor.frequent_coordinator import FrequentKeysTracker
from lately.monitor.membership import Membership
from lately.monitor.messages import Limits, Message
from lately.monitor.region import Region
from lately.monitor.state_bytes import (
    COORDINATOR_FAMILY,
    is_version_1,
    read_enum,
    read_site_numbers,
    state_bytes,
    write_enum,
    write_site_numbers,
)
from lately.monitor.zones import Floats, to_float32


class Coordinator:
    """Base of the coordinators; ``Monitor.coordinator`` makes that of its scheme.

    Parameters
    ----------
    monitor
        The definition of the monitor, equal to that of the sites.
    sites
        The numbers of the sites to begin with; the monitor starts when all of them have joined.

    >>> from lately.monitor import FastAms, Monitor, SelfJoin
    >>> monitor = Monitor(FastAms(eps=0.1, delta=0.1, seed=1), {"skew": SelfJoin(theta=0.2)})
    >>> coordinator = monitor.coordinator(sites=[1])
    >>> replies = [coordinator.receive(message) for message in monitor.site(1).update(["a", "a", "b"])]
    >>> coordinator["skew"].value, coordinator.activity.value, coordinator.sites
    (5.0, 'idle', [1])
    """

    #: What the scheme promises of estimates, and the messages that its sites send besides those of all schemes.
    promise: ClassVar[type[Promise]] = Promise
    accepted: ClassVar[tuple[type[Message], ...]] = (m.LeaveNotice,)

    def __init__(self, monitor: MonitorDefinition, sites: Sequence[int]) -> None:
        if isinstance(sites, int):
            raise ParameterError(f"sites={sites!r} is one number", remedy=f"give all numbers, such as range({sites})")
        numbers = list(sites)
        if not numbers or len(set(numbers)) != len(numbers):
            raise ParameterError(f"sites={sites!r} are not distinct sites", remedy="give the first sites, each once")
        self.monitor = monitor
        self.activity = Activity.STARTING
        self.epoch = 0
        #: How often each activity was begun.
        self.synchronisations: Counter[str] = Counter()
        #: Messages that were about an earlier epoch or subround.
        self.ignored = 0
        self._announcer = Announcer(monitor, self.promise(monitor))
        self._members = Membership(numbers)
        self._pending: set[int] = set()  # the sites whose answer is awaited
        self._updated: set[int] = set()  # the sites that have sent an update in this synchronisation
        self._has_changed_sites = False  # sites joined or left since the last reference
        self._is_blocked = False  # a site has waited so long that it sent an unsolicited update
        self._is_outdated = False  # more is known than was announced while sites are awaited
        members = self._members
        self._frequent = FrequentKeysTracker.of(monitor, lambda: members.joined, members.send, self.synchronisations)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.sites)} sites, {self.activity}, epoch={self.epoch})"

    @property
    def sites(self) -> list[int]:
        """The sites that have joined, in ascending order."""
        return list(self._members.joined)

    @property
    def awaited(self) -> list[int]:
        """The sites whose answer is missing; one that stays here has died, or its messages are not carried."""
        return sorted(self._pending | self._members.expected | (set() if self._frequent is None else self._frequent.awaited))

    def __getitem__(self, name: str) -> Any:
        announced = self.announcements()
        if name not in announced:
            raise InputError(f"no query {name!r}", remedy=f"the monitor has {', '.join(map(repr, announced))}")
        return announced[name]

    def announcements(self) -> dict[str, Any]:
        """What is announced now, by the names of the queries: an ``Announcement`` each, or ``FrequentKeys``."""
        awaited = tuple(sorted(self._pending | self._members.expected))
        announced: dict[str, Any] = self._announcer.announcements(awaited)
        if self._frequent is not None and self.monitor.frequent is not None:
            awaited = tuple(sorted(self._frequent.awaited | self._members.expected))
            announced[self.monitor.frequent[0]] = replace(self._frequent.announcement(), awaited=awaited)
        return announced

    # -- messages ------------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[Message]:
        """Take a message of a site; returns the messages to send. One that raises changes nothing.

        Parameters
        ----------
        message
            A decoded message.
        """
        return self.receive_all([message])

    def receive_all(self, messages: Iterable[Message]) -> list[Message]:
        """Take many messages, in this order; returns the messages to send.

        While sites are awaited, what the others prove is announced once, after the last message. So thousands of sites that
        join at a time cost in proportion to their number; with a call of ``receive`` for each, to its square.

        Parameters
        ----------
        messages
            Decoded messages. One that raises changes nothing, and those after it are not taken; the replies to those before
            it are returned by the next call.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> monitor = Monitor(FastAms(eps=0.1, delta=0.1, seed=1), {"skew": SelfJoin(theta=0.2)})
        >>> coordinator, sites = monitor.coordinator(sites=range(3)), [monitor.site(number) for number in range(3)]
        >>> replies = coordinator.receive_all([message for site in sites for message in site.update(["a", "b"])])
        >>> coordinator["skew"].value, [reply.site for reply in replies]
        (18.0, [0, 1, 2])
        """
        try:
            for message in messages:
                self._receive(message)
        finally:
            self._announce_if_outdated()
        return self._members.take_outbox()

    def _receive(self, message: Message) -> None:
        m.check_is_message(message)
        number = message.site
        if message.to_site:
            raise InputError(f"a {type(message).__name__} for site {number} came to the coordinator", remedy="carry it there")
        self._members.check_birth(message)
        if number in self._members.departed:
            self.ignored += 1
            return
        self._validate(message)
        state, ready = self._members.take(message)
        for each in ready:
            self._handle(number, state, each)

    def _validate(self, message: Message) -> None:
        """Raise an error for messages that the sites of this monitor could not have sent."""
        check_message(message, self.monitor, self._announcer.sums, self.accepted)

    def remove(self, number: int) -> list[Message]:
        """Continue without a site that will send no more messages; returns the messages to send to the others.

        Parameters
        ----------
        number
            The number of the site. It cannot be used again.
        """
        if number not in self._members.states and number not in self._members.expected:
            raise InputError(f"no site has the number {number}", remedy=f"the sites are {self.sites}")
        self._remove(number)
        self._announce_if_outdated()
        return self._members.take_outbox()

    def _announce_if_outdated(self) -> None:
        if self._is_outdated:
            self._is_outdated = False
            self._announcer.announce_partial(self._members.states, self._updated)

    def _handle(self, number: int, state: SiteState, message: Message) -> None:
        match message:
            case m.LeaveNotice():
                self._remove(number)
            case m.SketchUpdate():
                state.advance_clock(message.elapsed)
                if message.unsolicited:
                    self._handle_unsolicited(state, message)
                else:
                    self._handle_update(number, state, message)
            case m.QueryMessage():
                if not state.joined or message.epoch != self.epoch or message.query >= len(self.monitor.queries):
                    self.ignored += 1
                    return
                if isinstance(message, m.DriftReport):
                    state.add_report(message, self.monitor.layouts)
                self._handle_query(number, state, message)
            case m.KeyCount():
                state.advance_clock(message.elapsed)
                if self._frequent is not None and state.joined:
                    self._frequent.receive(message, state.clock)

    def _handle_query(self, number: int, state: SiteState, message: m.QueryMessage) -> None:
        """A message about a query in this epoch; a scheme without limits ignores it."""
        self.ignored += 1

    def _begin(self, activity: Activity, pending: Iterable[int] = ()) -> None:
        self.activity, self._pending = activity, set(pending)
        if activity != Activity.IDLE:
            self.synchronisations[activity] += 1

    def _handle_update(self, number: int, state: SiteState, message: m.SketchUpdate) -> None:
        self._announcer.add(state.add_update(message, self.monitor.layouts))
        self._updated.add(number)
        if not state.joined:
            self._add_site(number)
        else:
            self._pending.discard(number)
            if self.activity == Activity.COLLECTING and not self._pending:
                self._finish_collecting()
        if self._is_blocked:
            self._is_outdated = True

    def _add_site(self, number: int) -> None:
        """A site has joined with its first update: begin if it was the last one expected, else have all others update."""
        self._members.join(number)
        self._has_changed_sites = True
        if self.activity == Activity.STARTING:
            if not self._members.expected:
                self._send_reference()
            elif self.monitor.impatience:
                self._is_outdated = True
        elif self.activity != Activity.COLLECTING:
            self._collect(other for other in self._members.joined if other != number)
            self._updated.add(number)

    def _handle_unsolicited(self, state: SiteState, message: m.SketchUpdate) -> None:
        """A site has waited long: another one may have died, unless the answer is on its way."""
        is_waiting = message.epoch == self.epoch or (message.epoch == 0 and state.waits)  # the latter has just joined
        if not state.joined or not is_waiting or self.activity == Activity.IDLE:
            self.ignored += 1
            return
        state.add_unsolicited(message, self.monitor.layouts)
        if self.activity == Activity.STARTING:
            self._send_reference()  # begin without those that have not joined yet
            return
        state.updated_at = state.clock
        if self.activity != Activity.COLLECTING:
            self._collect(self._members.joined)
        self._is_blocked = self._is_outdated = True

    def _remove(self, number: int) -> None:
        """Forget a site, and end what waited for it."""
        self._announcer.subtract(self._members.remove(number).vectors)
        self._pending.discard(number)
        self._has_changed_sites = True
        if self._frequent is not None:
            self._frequent.forget(number)
        if not self._members.joined and (self.activity != Activity.STARTING or not self._members.expected):
            self._begin(Activity.STARTING)
            self._announcer.clear()
            self._is_outdated = False
        elif self.activity == Activity.COLLECTING:
            if not self._pending:
                self._finish_collecting()
        elif self.activity != Activity.STARTING:
            self._collect(self._members.joined)
        elif not self._members.expected and self._members.joined:
            self._send_reference()
        if self._pending and self.monitor.impatience:  # what was announced includes the part of this site
            self._is_blocked = self._is_outdated = True

    # -- a new reference -----------------------------------------------------------------------------------------------

    def _collect(self, sites: Iterable[int]) -> None:
        """Request the updates of these sites."""
        if self.activity != Activity.COLLECTING:
            self._updated = set()
        self._begin(Activity.COLLECTING, sites)
        for number in sorted(self._pending):
            self._members.send(number, m.UpdateRequest, self.epoch)

    def _synchronise(self) -> None:
        """The limits are used up: request the updates of all sites, or with flush="lazy" of as few as will do."""
        if self.monitor.flush == "lazy" and not self._has_changed_sites:
            self._updated = set()
            self._collect(self._next_to_update([state.region for state in self._announcer.queries]))
        else:
            self._collect(self._members.joined)

    def _finish_collecting(self) -> None:
        """All requested updates have arrived: request more, or send a new reference."""
        rest = [number for number in self._members.joined if number not in self._updated]
        if rest and (self._has_changed_sites or self.monitor.flush == "eager"):
            self._collect(rest)
            return
        if rest:
            regions = [region for _, region in self._announce()]
            if not self._has_enough_room(regions, set()):
                self._collect(self._next_to_update(regions))
                return
        self._send_reference()

    def _announce(self) -> list[tuple[Limits, Region]]:
        self._is_outdated = False
        return self._announcer.announce(self._members.states, all_joined=not self._members.expected)

    def _next_to_update(self, regions: Sequence[Region]) -> list[int]:
        """Which sites should send updates next; all that have not, unless the scheme knows better."""
        return [number for number in self._members.joined if number not in self._updated]

    def _has_enough_room(self, regions: Sequence[Region], updating: set[int]) -> bool:
        """Whether the drift of the other sites leaves enough room if these sites send updates; always, without limits."""
        return True

    def _start_vector(self, query: int, region: Region) -> Floats:
        """What the guards of the sites start with; nothing, without limits."""
        return np.zeros(0)

    def _send_reference(self) -> None:
        """Announce the estimates, and send all sites a new reference."""
        self.epoch += 1
        has_changed_sites, self._has_changed_sites = self._has_changed_sites, False
        self._is_blocked = False
        for state in self._members.states.values():
            state.unsolicited = None
        limits, cap = [], 0 if self._frequent is None else self._frequent.cap(len(self._members.joined))
        for number, (zones, region) in enumerate(self._announce()):
            self._announcer.queries[number].region, self._announcer.queries[number].subround = region, 0
            limits.append(Limits(zones.sides, zones.zones, to_float32(self._start_vector(number, region)).ravel()))
        for number in self._members.joined:
            self._members.states[number].waits = False
            self._members.send(number, m.Reference, self.epoch, tuple(limits), cap)
        if has_changed_sites and self._frequent is not None:
            self._frequent.request_all_again()
        self._begin(Activity.IDLE)

    # -- bytes -----------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The state of the coordinator between two calls; ``Monitor.restore`` makes one of it that continues identically.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> monitor = Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> monitor.restore(monitor.coordinator(sites=[1, 2]).to_bytes()).awaited
        [1, 2]
        """
        return state_bytes(COORDINATOR_FAMILY, self.monitor, self.write)

    def write(self, out: Writer) -> None:
        """Write all fields."""
        write_enum(out, self.activity)
        out.u8(self._has_changed_sites + 2 * self._is_blocked)
        out.varint(self.epoch)
        out.varint(self.ignored)
        for name in (*Activity, "items"):
            out.varint(self.synchronisations[name])
        for numbers in (self._members.expected, self._pending, self._updated, self._members.departed):
            write_site_numbers(out, numbers)
        self._members.write(out)
        self._announcer.write(out)
        if self._frequent is not None:
            self._frequent.write(out)
        self._write_scheme(out)

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote, into a new coordinator."""
        is_old = is_version_1(source)
        self.activity = read_enum(source, Activity)
        flags = source.choice(0, 1, 2, 3)
        self._has_changed_sites, self._is_blocked = bool(flags & 1), bool(flags & 2)
        self.epoch, self.ignored = source.varint(), source.varint()
        for name in (*Activity, "items"):
            if times := source.varint():
                self.synchronisations[name] = times
        members, read = self._members, read_site_numbers
        members.expected, self._pending, self._updated, members.departed = (set(read(source)) for _ in range(4))
        self._members.read(source, self.monitor.layouts, is_old, self._validate)
        for number in self._members.joined:
            self._announcer.add(self._members.states[number].vectors)
        self._announcer.read(source, is_old, self._members.states)
        if self._frequent is not None:
            self._frequent.read(source, is_old)
        self._read_scheme(source)

    def _write_scheme(self, out: Writer) -> None:
        """Write what this scheme stores besides."""

    def _read_scheme(self, source: Reader) -> None:
        """Read what ``_write_scheme`` wrote."""
