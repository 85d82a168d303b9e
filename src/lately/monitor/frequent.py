"""Which keys come often over all sites: one small query for each key that comes often somewhere (ECM-15 §6.3).

A site speaks of a key when its own count reaches a cap; at first every key has the same, its share of tau. Then all sites say
how often they count it, and get limits of their own: floors if the sum is tau or more, else caps. A key's count can only
rise when it arrives, so arrivals are checked; it falls when a counter of it does, which the counters' order of expiry tells.

Caps add up to less than (1 + theta)·tau and floors to (1 - theta)·tau or more. So a key that is listed is counted at least
(1 - theta)·tau times; one that is not listed was counted fewer than (1 + theta)·tau times whenever it came (Lemma 1).

Keys that came before a site had limits are remembered until it has them. A site that spoke of a key and has waited for a few
batches speaks again when its count has grown by theta. So a site that never answers hides nothing: a key is listed as soon as
the counts of the others add up to tau, which they do before the others really count (1 + theta)·tau.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.errors import ParameterError
from lately.core.keys import Hashes, Keys, all_hashes, hash_keys, one_key
from lately.core.stored_keys import column_of, read_keys, write_keys
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.announcement import FrequentKeys, span_of
from lately.monitor.drift import WindowDrift
from lately.monitor.queries import position
from lately.monitor.stored import SITES

if TYPE_CHECKING:
    from lately.monitor.coordinator import Coordinator

#: A site that has limits for more keys than this, and twice as many as the last time, looks for some to drop.
_MANY = 64
#: A site, or a key, that has waited for an answer through so many batches and advances is spoken of again.
PATIENCE = 8
#: A site remembers at least this number of keys, the most frequent ones, of those that came before it had any limits.
_FIRST = 2**14


@dataclass(frozen=True, kw_only=True)
class Frequent:
    """The keys that come ``tau`` times or more in the window, over all sites; within ``theta`` of tau they may be or not.

    >>> Frequent(tau=1000, theta=0.1).tau
    1000
    """

    tau: float
    theta: float
    stream: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tau, bool) or not isinstance(self.tau, int | float) or not 1 <= self.tau <= MAX_COUNT:
            raise ParameterError(f"Frequent(tau={self.tau!r}): give how often a key must come, from 1 up")
        if isinstance(self.theta, bool) or not isinstance(self.theta, int | float) or not 0 <= self.theta < 1:
            raise ParameterError(f"Frequent(theta={self.theta!r}): give the tolerance, from 0 to below 1, such as 0.1")

    def channel(self, names: Sequence[str]) -> int:
        """The stream that it is about."""
        return position(names, self.stream)


@dataclass(slots=True, eq=False)
class _Item:
    """What the coordinator knows of a key."""

    key: Any
    counts: dict[int, int] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    total: int = 0
    listed: bool = False
    ticks: dict[int, int | None] = field(default_factory=dict)  # when each site counted so
    reported: int = 0  # the sum of the counts

    def __post_init__(self) -> None:
        self.reported = sum(self.counts.values())


@dataclass(slots=True, eq=False)
class _Known:
    """What a site knows of a key: it speaks up when its count reaches ``cap`` or falls below ``floor``."""

    key: Any
    cap: int = MAX_COUNT
    floor: int = 0
    waits: bool = True  # it was spoken of, and nothing more is said until that is answered
    offered: bool = False  # it was spoken of as one that might be dropped, and has been rare since
    again: int = MAX_COUNT  # while it waits, the count at which it is spoken of again
    unanswered: int = 0  # how often it was spoken of without an answer, at most
    calls: int = 0  # batches and advances since it was last spoken of


class ItemsGuard:
    """A site's limits for keys."""

    def __init__(self, theta: float) -> None:
        #: Of keys that nobody has spoken of.
        self.cap = MAX_COUNT
        self._theta = theta
        self._known: dict[int, _Known] = {}
        self._many = _MANY
        self._first: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def apply(self, drift: WindowDrift) -> None:
        """Have the counters stop at the limits."""
        items = sorted(self._known)
        hashes, known = np.array(items, np.uint64), [self._known[item] for item in items]
        caps = np.array([self.cap, *(MAX_COUNT if one.waits else one.cap for one in known)], np.int64)
        floors, low = (
            np.zeros(drift.layout.counters, np.int64),
            np.array([0 if one.waits else one.floor for one in known], np.int64),
        )
        for row in drift.layout.cells(hashes):
            np.maximum.at(floors, row, low)
        drift.limit(hashes, caps, floors)

    def remember(self, hashes: Hashes, column: Keys, order: Ints, drift: WindowDrift) -> None:
        """Remember keys that come before there are limits, the most frequent ones if they are many."""
        unique, at = np.unique(hashes, return_index=True)
        if unique.size > _FIRST:
            counts = drift.counts(drift.layout.cells(unique))
            most = np.argsort(-counts, kind="stable")[:_FIRST]
            unique, at = unique[most], at[most]
        self._first.update(zip(unique.tolist(), column.pick(order[at]), strict=True))
        if len(self._first) > 2 * _FIRST:
            items = sorted(self._first)
            best = np.argsort(-np.array(self.counts(drift, items)), kind="stable")[:_FIRST]
            self._first = {items[i]: self._first[items[i]] for i in best.tolist()}

    def recall(self, drift: WindowDrift) -> list[tuple[int, int, Any]]:
        """Hash, count and key of those that had reached the cap before there was one; they are spoken of now."""
        items = sorted(self._first.keys() - self._known.keys())
        counts = dict(zip(items, self.counts(drift, items), strict=True))
        most = int(drift.numbers[: drift.layout.width].sum()) // max(self.cap, 1)  # no more keys can have come so often
        reached = sorted((item for item in items if counts[item] >= self.cap), key=lambda item: (-counts[item], item))[:most]
        found = [(item, counts[item], self._first[item]) for item in reached]
        for item, count, key in found:
            self._speak(self._known.setdefault(item, _Known(key)), count)
        self._first = {}
        return found

    def _speak(self, one: _Known, count: int) -> None:
        one.waits, one.again = True, min(max(count + 1, math.floor((1 + self._theta) * count)), MAX_COUNT)
        one.unanswered, one.calls = one.unanswered + 1, 0

    def grown(self, drift: WindowDrift) -> list[tuple[int, int, Any]]:
        """Hash, count and key of those that have waited for long, and come so often since that they are spoken of again."""
        waiting, found = sorted(item for item, one in self._known.items() if one.waits), []
        for item, count in zip(waiting, self.counts(drift, waiting), strict=True):
            one = self._known[item]
            one.calls = min(one.calls + 1, PATIENCE)
            if one.calls == PATIENCE and count >= one.again:
                found.append((item, count, one.key))
                self._speak(one, count)
        return found

    def spoken(self, drift: WindowDrift) -> list[tuple[int, int, Any]]:
        """Hash, count and key of those to speak of: they have left their limits, or are so rare that they might be dropped."""
        items, is_full = sorted(self._known), len(self._known) >= self._many
        found, busy = [], 0
        for item, count in zip(items, self.counts(drift, items), strict=True):
            one = self._known[item]
            is_rare = one.floor == 0 and one.cap < MAX_COUNT and 2 * count < self.cap
            busy += not is_rare
            one.offered &= is_rare
            is_offer = is_full and is_rare and not one.offered
            if not one.waits and (is_offer or not one.floor <= count < one.cap):
                found.append((item, count, one.key))
                self._speak(one, count)
                one.offered |= is_offer
        if is_full:
            self._many = max(2 * busy, _MANY)
        return found

    def count(self, drift: WindowDrift, item: int, key: Any) -> int | None:
        """What is counted of a key that is being spoken of; None if that was said and not answered yet."""
        one = self._known.setdefault(item, _Known(key, waits=False))
        if one.waits:
            return None
        self._speak(one, count := self.counts(drift, [item])[0])
        return count

    def set(self, message: m.KeyLimits, drift: WindowDrift) -> None:
        """Take the limit of a key, or drop it; unless it has come again so often that it must be spoken of."""
        one = self._known.get(message.item)
        if one is None:
            return
        one.unanswered = max(one.unanswered - 1, 0)
        if message.listed or message.limit:
            one.cap, one.floor = (MAX_COUNT, message.limit) if message.listed else (message.limit, 0)
            one.waits = False
        elif one.unanswered or self.counts(drift, [message.item])[0] >= self.cap:
            one.cap, one.floor, one.waits = self.cap, 0, False
        else:
            del self._known[message.item]

    def write(self, out: Writer) -> None:
        """Write the limits; the counters get them from here."""
        known = [self._known[item] for item in sorted(self._known)]
        out.varint(self.cap)
        out.varint(self._many)
        write_keys(out, [one.key for one in known])
        out.integers(np.array([one.cap for one in known], np.int64))
        out.integers(np.array([one.floor for one in known], np.int64))
        out.integers(np.array([one.waits + 2 * one.offered for one in known], np.int64))
        out.integers(np.array([one.again for one in known], np.int64))
        out.integers(np.array([one.unanswered for one in known], np.int64))
        out.integers(np.array([one.calls for one in known], np.int64))
        write_keys(out, [self._first[item] for item in sorted(self._first)])

    def read(self, source: Reader, is_earlier: bool) -> None:
        """Read what ``write`` wrote, or as it was written before it remembered first keys."""
        self.cap, self._many = source.within(source.varint(), 0, MAX_COUNT), source.varint()
        keys = _read_named(source)
        caps, floors, flags = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT), source.integers(0, 3)
        source.check(caps.size == floors.size == flags.size == len(keys), "limits of other keys")
        limits = zip(caps.tolist(), floors.tolist(), flags.tolist(), strict=True)
        self._known = {
            item: _Known(key, cap, floor, bool(flag & 1), bool(flag & 2))
            for (item, key), (cap, floor, flag) in zip(keys, limits, strict=True)
        }
        if not is_earlier:
            columns = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT), source.integers(0, PATIENCE)
            source.check(all(column.size == len(keys) for column in columns), "limits of other keys")
            for one, *said in zip(self._known.values(), *(column.tolist() for column in columns), strict=True):
                one.again, one.unanswered, one.calls = said
            self._first = dict(_read_named(source))

    @staticmethod
    def counts(drift: WindowDrift, items: Sequence[int]) -> list[int]:
        """How often keys were counted."""
        if not items:
            return []
        found: list[int] = drift.counts(drift.layout.cells(np.array(items, np.uint64))).tolist()
        return found


class Items:
    """The coordinator's part: collects what all sites count of a key, decides, and sets limits."""

    def __init__(self, query: Frequent) -> None:
        self._tau, self._theta = query.tau, query.theta
        self._items: dict[int, _Item] = {}

    def announcements(self) -> FrequentKeys:
        """The keys that are listed."""
        listed = sorted((item for item in self._items.values() if item.listed), key=lambda item: (-item.total, str(item.key)))
        oldest, newest = span_of([tick for item in listed for tick in item.ticks.values()])
        return FrequentKeys({item.key: item.total for item in listed}, self._tau * (1 - self._theta), oldest, newest)

    @property
    def awaited(self) -> set[int]:
        """The sites that have not said yet how often they count some key."""
        return set().union(*(item.pending for item in self._items.values()))

    def cap(self, sites: int) -> int:
        """The cap of a key that nothing is known of."""
        return max(1, math.floor(self._tau * (1 + self._theta) / sites))

    def hear(self, coordinator: "Coordinator", message: m.KeyCount, tick: int | None) -> None:
        """A site says how often it counts a key, at which tick: by itself, or because it was asked."""
        item = self._items.get(message.item)
        if item is None:
            if message.key is None:  # an answer about what was dropped meanwhile
                return
            item = self._items[message.item] = _Item(message.key)
        if not item.pending:
            self._ask(coordinator, message.item, item, without=message.site)
        item.reported += message.count - item.counts.get(message.site, 0)
        item.counts[message.site], item.ticks[message.site] = message.count, tick
        item.pending.discard(message.site)
        if item.pending and item.reported >= self._tau:
            item.total, item.listed = item.reported, True  # whatever the others count can only add to it
        self._decide(coordinator, message.item, item)

    def _ask(self, coordinator: "Coordinator", number: int, item: _Item, without: int | None = None) -> None:
        item.counts, item.ticks, item.reported, item.pending = {}, {}, 0, set(coordinator.sites)
        for site in sorted(item.pending - {without}):
            coordinator._send(site, m.KeyCountRequest, item.key)
        coordinator.synchronisations["items"] += 1

    def again(self, coordinator: "Coordinator") -> None:
        """Sites came or went: all that was decided must be decided again."""
        for number, item in sorted(self._items.items()):
            if not item.pending:
                self._ask(coordinator, number, item)
            else:
                for site in sorted(set(coordinator.sites) - item.pending - set(item.counts)):
                    item.pending.add(site)
                    coordinator._send(site, m.KeyCountRequest, item.key)

    def forget(self, coordinator: "Coordinator", site: int) -> None:
        """A site has left."""
        if not coordinator.sites:
            self._items.clear()
        for number, item in sorted(self._items.items()):
            item.reported -= item.counts.pop(site, 0)
            item.ticks.pop(site, None)
            if site in item.pending:
                item.pending.discard(site)
                self._decide(coordinator, number, item)

    def _decide(self, coordinator: "Coordinator", number: int, item: _Item) -> None:
        if item.pending:
            return
        sites, counts = coordinator.sites, item.counts
        item.total = item.reported
        item.listed = item.total >= self._tau
        room = self._tau * (1 + self._theta) - item.total
        slack = math.floor((item.total - self._tau * (1 - self._theta)) / max(len(sites), 1))
        rare = not item.listed and all(2 * count < self.cap(len(sites)) for count in counts.values())
        for site, count in sorted(counts.items()):
            limit = max(count - slack, 0) if item.listed else 0 if rare else count + max(1, math.floor(room / len(sites)))
            coordinator._send(site, m.KeyLimits, number, item.listed, limit)
        if rare:
            del self._items[number]

    def write(self, out: Writer) -> None:
        """Write what is known of all keys."""
        items = [self._items[number] for number in sorted(self._items)]
        write_keys(out, [item.key for item in items])
        for item in items:
            out.varint(2 * item.total + item.listed)
        for listed in ([sorted(item.counts) for item in items], [sorted(item.pending) for item in items]):
            out.integers(np.array([len(sites) for sites in listed], np.int64))
            out.integers(np.array([site for sites in listed for site in sites], np.int64))
        out.integers(np.array([item.counts[site] for item in items for site in sorted(item.counts)], np.int64))
        ticks = [item.ticks.get(site) for item in items for site in sorted(item.counts)]
        out.integers(np.array([tick is not None for tick in ticks], np.int64))
        out.integers(np.array([tick or 0 for tick in ticks], np.int64))

    def read(self, source: Reader, is_earlier: bool) -> None:
        """Read what ``write`` wrote, or as it was written before counts had times."""
        keys = _read_named(source)
        decided = [divmod(source.varint(), 2) for _ in keys]
        counted, pending = (_read_sites(source, len(keys)) for _ in range(2))
        counts = source.integers(0, MAX_COUNT).tolist()
        source.check(len(counts) == sum(map(len, counted)), "counts of other sites")
        ticks: list[int | None] = [None] * len(counts)
        if not is_earlier:
            known, given = source.integers(0, 1), source.integers(-MAX_COUNT, MAX_COUNT)
            source.check(known.size == given.size == len(counts), "times of other counts")
            ticks = [tick if is_known else None for is_known, tick in zip(known.tolist(), given.tolist(), strict=True)]
        at, when = iter(counts), iter(ticks)
        for (number, key), (total, listed), sites, asked in zip(keys, decided, counted, pending, strict=True):
            item = self._items[number] = _Item(key, {site: next(at) for site in sites}, set(asked), total, bool(listed))
            item.ticks = {site: next(when) for site in sites}


def _read_named(source: Reader) -> list[tuple[int, Any]]:
    """Hashes and keys, in the order of the hashes."""
    keys = read_keys(source)
    hashes = all_hashes(column_of(keys)) if keys else np.empty(0, np.uint64)
    source.check(bool((hashes[1:] > hashes[:-1]).all()), "keys out of order")
    return list(zip(hashes.tolist(), keys, strict=True))


def _read_sites(source: Reader, size: int) -> list[list[int]]:
    """The numbers of sites for each of so many keys."""
    sizes, sites = source.integers(0, SITES), source.integers(0, SITES - 1)
    source.check(sizes.size == size and int(sizes.sum()) == sites.size, "sites of other keys")
    ends, listed = np.cumsum(sizes).tolist(), sites.tolist()
    return [listed[start:end] for start, end in pairwise([0, *ends])]


class TrueCounts:
    """What all sites count of any key; for simulations and tests."""

    def __init__(self, drifts: Sequence[WindowDrift]) -> None:
        self._drifts = drifts

    def get(self, key: Any, default: int = 0) -> int:
        """What they count of one, added up."""
        hashes = hash_keys(one_key(key))
        return sum(int(drift.counts(drift.layout.cells(hashes))[0]) for drift in self._drifts)
