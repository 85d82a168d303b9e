"""The coordinator's part of the query for frequent keys: counts from all sites, decisions, and limits."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.stored_keys import write_keys
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.announcement import FrequentKeys, oldest_and_newest
from lately.monitor.definition import MonitorDefinition
from lately.monitor.frequent import Frequent, read_hashed_keys


@dataclass(slots=True, eq=False)
class _KeyState:
    """What the coordinator knows of a key."""

    key: Any
    counts: dict[int, int] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)  # the sites that were asked and have not answered
    total: int = 0
    listed: bool = False
    ticks: dict[int, int | None] = field(default_factory=dict)  # the clock of each site when it sent its count
    reported: int = 0  # the sum of the counts

    def __post_init__(self) -> None:
        self.reported = sum(self.counts.values())


class FrequentKeysTracker:
    """Collects the counts that all sites have of a key, decides whether it is listed, and sets limits.

    Parameters
    ----------
    query
        The query for frequent keys.
    sites
        Returns the sites that have joined.
    send
        Sends a site a message, given its class and fields.
    synchronisations
        Counts as "items" how often all sites were asked for their counts of a key.
    """

    def __init__(
        self,
        query: Frequent,
        sites: Callable[[], Sequence[int]],
        send: Callable[..., None],
        synchronisations: Counter[str],
    ) -> None:
        self._tau, self._theta = query.tau, query.theta
        self._sites, self._send, self._synchronisations = sites, send, synchronisations
        self._keys: dict[int, _KeyState] = {}

    @classmethod
    def of(
        cls,
        monitor: MonitorDefinition,
        sites: Callable[[], Sequence[int]],
        send: Callable[..., None],
        synchronisations: Counter[str],
    ) -> "FrequentKeysTracker | None":
        """The tracker of a monitor's frequent keys; None if it has no query for them."""
        return None if monitor.frequent is None else cls(monitor.frequent[1], sites, send, synchronisations)

    def announcement(self) -> FrequentKeys:
        """The listed keys."""
        listed = sorted((state for state in self._keys.values() if state.listed), key=lambda s: (-s.total, str(s.key)))
        oldest, newest = oldest_and_newest([tick for state in listed for tick in state.ticks.values()])
        counts = {state.key: state.total for state in listed}
        return FrequentKeys(counts, self._tau * (1 - self._theta), oldest, newest)

    @property
    def awaited(self) -> set[int]:
        """The sites that have not answered yet how often they count some key."""
        return set().union(*(state.pending for state in self._keys.values()))

    def cap(self, sites: int) -> int:
        """The cap of keys without limits of their own."""
        return max(1, math.floor(self._tau * (1 + self._theta) / sites))

    def receive(self, message: m.KeyCount, tick: int | None) -> None:
        """Take a site's count of a key at the given tick of its clock, requested or not."""
        state = self._keys.get(message.key_hash)
        if state is None:
            if message.key is None:  # an answer about a key that was dropped in the meantime
                return
            state = self._keys[message.key_hash] = _KeyState(message.key)
        if not state.pending:
            self._request_counts(state, without=message.site)
        state.reported += message.count - state.counts.get(message.site, 0)
        state.counts[message.site], state.ticks[message.site] = message.count, tick
        state.pending.discard(message.site)
        if state.pending and state.reported >= self._tau:
            state.total, state.listed = state.reported, True  # the counts of the others can only add to it
        self._decide(message.key_hash, state)

    def _request_counts(self, state: _KeyState, without: int | None = None) -> None:
        state.counts, state.ticks, state.reported, state.pending = {}, {}, 0, set(self._sites())
        for site in sorted(state.pending - {without}):
            self._send(site, m.KeyCountRequest, state.key)
        self._synchronisations["items"] += 1

    def request_all_again(self) -> None:
        """Sites joined or left, so that every key must be decided again."""
        for _, state in sorted(self._keys.items()):
            if not state.pending:
                self._request_counts(state)
            else:
                for site in sorted(set(self._sites()) - state.pending - set(state.counts)):
                    state.pending.add(site)
                    self._send(site, m.KeyCountRequest, state.key)

    def forget(self, site: int) -> None:
        """Remove the counts of a site that has left."""
        if not self._sites():
            self._keys.clear()
        for key_hash, state in sorted(self._keys.items()):
            state.reported -= state.counts.pop(site, 0)
            state.ticks.pop(site, None)
            if site in state.pending:
                state.pending.discard(site)
                self._decide(key_hash, state)

    def _decide(self, key_hash: int, state: _KeyState) -> None:
        """When all sites have answered: list the key or not, and set its limits, or drop it if it is rare everywhere."""
        if state.pending:
            return
        sites, counts = self._sites(), state.counts
        state.total = state.reported
        state.listed = state.total >= self._tau
        room = self._tau * (1 + self._theta) - state.total
        slack = math.floor((state.total - self._tau * (1 - self._theta)) / max(len(sites), 1))
        is_rare = not state.listed and all(2 * count < self.cap(len(sites)) for count in counts.values())
        for site, count in sorted(counts.items()):
            if state.listed:
                limit = max(count - slack, 0)
            else:
                limit = 0 if is_rare else count + max(1, math.floor(room / len(sites)))
            self._send(site, m.KeyLimits, key_hash, state.listed, limit)
        if is_rare:
            del self._keys[key_hash]

    def write(self, out: Writer) -> None:
        """Write what is known of all keys."""
        states = [self._keys[key_hash] for key_hash in sorted(self._keys)]
        write_keys(out, [state.key for state in states])
        for state in states:
            out.varint(2 * state.total + state.listed)
        for sites_of_keys in ([sorted(state.counts) for state in states], [sorted(state.pending) for state in states]):
            out.integers(np.array([len(sites) for sites in sites_of_keys], np.int64))
            out.integers(np.array([site for sites in sites_of_keys for site in sites], np.int64))
        out.integers(np.array([state.counts[site] for state in states for site in sorted(state.counts)], np.int64))
        ticks = [state.ticks.get(site) for state in states for site in sorted(state.counts)]
        out.integers(np.array([tick is not None for tick in ticks], np.int64))
        out.integers(np.array([tick or 0 for tick in ticks], np.int64))

    def read(self, source: Reader, is_version_1: bool) -> None:
        """Read what ``write`` wrote; counts had no ticks in version 1."""
        keys = read_hashed_keys(source)
        decisions = [divmod(source.varint(), 2) for _ in keys]
        counted, pending = (_read_sites_of_keys(source, len(keys)) for _ in range(2))
        counts = source.integers(0, MAX_COUNT).tolist()
        source.check(len(counts) == sum(map(len, counted)), "the number of counts is not that of the sites")
        ticks: list[int | None] = [None] * len(counts)
        if not is_version_1:
            has_tick, column = source.integers(0, 1), source.integers(-MAX_COUNT, MAX_COUNT)
            source.check(has_tick.size == column.size == len(counts), "the number of ticks is not that of the counts")
            ticks = [tick if is_there else None for is_there, tick in zip(has_tick.tolist(), column.tolist(), strict=True)]
        next_count, next_tick = iter(counts), iter(ticks)
        for (key_hash, key), (total, listed), sites, awaited in zip(keys, decisions, counted, pending, strict=True):
            state = _KeyState(key, {site: next(next_count) for site in sites}, set(awaited), total, bool(listed))
            state.ticks = {site: next(next_tick) for site in sites}
            self._keys[key_hash] = state


def _read_sites_of_keys(source: Reader, size: int) -> list[list[int]]:
    """The numbers of sites for each of ``size`` keys."""
    sizes, sites = source.integers(0, m.MAX_SITES), source.integers(0, m.MAX_SITES - 1)
    source.check(sizes.size == size and int(sizes.sum()) == sites.size, "the number of sites is not that of the keys")
    ends, flat = np.cumsum(sizes).tolist(), sites.tolist()
    return [flat[start:end] for start, end in pairwise([0, *ends])]
