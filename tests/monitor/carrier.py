"""Carries messages between sites and their coordinator for tests: as bytes, at once or late, in any order, also twice."""

import numpy as np

from lately.monitor import FrequentKeys, decode
from lately.monitor.coordinator_state import Activity
from lately.monitor.site import State


class Carrier:
    """Sites, their coordinator, and what is on its way between them.

    Echoes are second copies of messages that have arrived: they may come at any time, must change nothing, and do not count as
    on their way.
    """

    def __init__(self, monitor, sites, twice=0.0, seed=0):
        self.monitor = monitor
        self.coordinator = monitor.coordinator(sites)
        self.sites = {number: monitor.site(number) for number in sites}
        self.gone = {}
        self.flying = []
        self.echoes = []
        self.log = []
        self.twice = twice
        self.random = np.random.default_rng(seed)

    # -- what sites do -------------------------------------------------------------------------------------------------

    def update(self, number, keys, times=None, counts=None, stream=None):
        self.send(True, self.sites[number].update(keys, times, counts, stream))

    def advance(self, time, only=None):
        for number in [only] if only is not None else sorted(self.sites):
            self.send(True, self.sites[number].advance(time))

    def join(self, number):
        self.sites[number] = self.monitor.site(number)

    def leave(self, number):
        self.gone[number] = self.sites.pop(number)
        self.send(True, self.gone[number].leave())

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self, up, messages):
        for message in messages:
            self.log.append(message)
            self.flying.append((up, message.to_bytes()))

    def deliver(self, index=0, echo=False):
        """Bring one of the messages on their way, or once more one that has arrived."""
        up, data = (self.echoes if echo else self.flying).pop(index)
        if not echo and self.twice and self.random.random() < self.twice:
            self.echoes.append((up, data))
        message = decode(data)
        if up:
            replies = self.coordinator.receive(message)
        else:
            replies = (self.sites.get(message.site) or self.gone[message.site]).receive(message)
        assert not (echo and replies), f"{message} came twice and was answered twice: {replies}"
        self.send(not up, replies)

    def settle(self, at_most=20_000):
        """Bring everything, oldest first."""
        for _ in range(at_most):
            if self.flying:
                self.deliver()
            elif not self.look():
                return
        raise AssertionError(f"still talking after {at_most} messages: {[decode(data) for _, data in self.flying[:5]]}")

    def look(self):
        """Let an oracle look; tells whether it had anything to say."""
        if hasattr(self.coordinator, "look"):
            self.send(False, self.coordinator.look(list(self.sites.values())))
        return bool(self.flying)

    def some(self, share):
        """Bring about this share of what is on its way, in any order, and some echoes."""
        for _ in range(self.random.binomial(len(self.flying), share)):
            if self.flying:
                self.deliver(int(self.random.integers(len(self.flying))))
        while self.echoes and self.random.random() < 0.5:
            self.deliver(int(self.random.integers(len(self.echoes))), echo=True)
        self.look()

    # -- what must hold ------------------------------------------------------------------------------------------------

    @property
    def joined(self):
        return [site for site in self.sites.values() if site._sequence]

    def has_begun(self):
        return self.coordinator.activity != Activity.STARTING

    def check(self):
        """The promise: what is announced is true, or a message is on its way."""
        if self.flying or not self.has_begun():
            return
        truth = self.monitor.truth(self.joined)
        for name, announcement in self.coordinator.announcements().items():
            lists_keys = isinstance(announcement, FrequentKeys)
            shown = (announcement, {key: truth[name].get(key) for key in announcement.counts}) if lists_keys else announcement
            assert announcement.tolerates(truth[name]), f"{name}: announced {shown}, but it is {truth[name]}"
            if not lists_keys and not announcement.awaited:  # without one that is awaited nobody can know
                self.check_alarm(name, announcement, truth[name])

    def check_alarm(self, name, announcement, truth):
        """Firing beyond the band around the line, not firing on its other side, and either inside of it."""
        query = self.monitor.queries[self.monitor.names.index(name)]
        if query.above is None and query.below is None:
            assert announcement.alarm is None
        elif query.above is not None:
            margin = abs(query.above) * query.theta + 1e-9 * (1 + abs(truth))
            assert announcement.alarm or truth <= query.above + margin, (name, announcement, truth)
            assert not announcement.alarm or truth >= query.above - margin, (name, announcement, truth)
        else:
            margin = abs(query.below) * query.theta + 1e-9 * (1 + abs(truth))
            assert announcement.alarm or truth >= query.below - margin, (name, announcement, truth)
            assert not announcement.alarm or truth <= query.below + margin, (name, announcement, truth)

    def check_rest(self):
        """When everything is delivered, nobody waits for anybody."""
        assert not self.flying
        self.check()
        if self.has_begun():
            assert self.coordinator.activity == Activity.IDLE
            assert self.coordinator.sites == sorted(site.number for site in self.joined)
            for site in self.joined if self.monitor.scheme != "oracle" else ():  # an oracle never answers
                assert site.state == State.WATCHING, site
        for party in (self.coordinator, *self.sites.values()):
            at_site = hasattr(party, "_inbox")
            for inbox in [party._inbox] if at_site else [state.inbox for state in party._members.states.values()]:
                assert inbox.waiting == 0
