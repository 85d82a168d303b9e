"""Which keys come often over all sites: one small query for each key that comes often somewhere (ECM-15 §6.3).

A site speaks of a key when its own count reaches a cap; at first every key has the same, its share of tau. Then all sites say
how often they count it, and get limits of their own: floors if the sum is tau or more, else caps. A key's count can only
rise when it arrives, so arrivals are checked; it falls when a counter of it does, which the counters' order of expiry tells.

Caps add up to less than (1 + theta)·tau and floors to (1 - theta)·tau or more. So a key that is listed is counted at least
(1 - theta)·tau times; one that is not listed was counted fewer than (1 + theta)·tau times whenever it came (Lemma 1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.errors import ParameterError
from lately.core.keys import all_hashes, hash_keys, one_key
from lately.core.stored_keys import column_of, read_keys, write_keys
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.announced import Listed
from lately.monitor.drift import WindowDrift
from lately.monitor.queries import position
from lately.monitor.stored import SITES

if TYPE_CHECKING:
    from lately.monitor.coordinator import Coordinator

#: A site that has limits for more keys than this, and twice as many as the last time, looks for some to drop.
_MANY = 64


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


@dataclass(slots=True, eq=False)
class _Known:
    """What a site knows of a key: it speaks up when its count reaches ``cap`` or falls below ``floor``."""

    key: Any
    cap: int = MAX_COUNT
    floor: int = 0
    waits: bool = True  # it was spoken of, and nothing more is said until that is answered
    offered: bool = False  # it was spoken of as one that might be dropped, and has been rare since


class ItemsGuard:
    """A site's limits for keys."""

    def __init__(self) -> None:
        #: Of keys that nobody has spoken of.
        self.cap = MAX_COUNT
        self._known: dict[int, _Known] = {}
        self._many = _MANY

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
                one.waits = True
                one.offered |= is_offer
        if is_full:
            self._many = max(2 * busy, _MANY)
        return found

    def count(self, drift: WindowDrift, item: int, key: Any) -> int | None:
        """What is counted of a key that is being spoken of; None if that was said and not answered yet."""
        one = self._known.setdefault(item, _Known(key, waits=False))
        if one.waits:
            return None
        one.waits = True
        return self.counts(drift, [item])[0]

    def set(self, message: m.ItemLimits, drift: WindowDrift) -> None:
        """Take the limit of a key, or drop it; unless it has come again so often that it must be spoken of."""
        one = self._known.get(message.item)
        if one is None:
            return
        if message.listed or message.limit:
            one.cap, one.floor = (MAX_COUNT, message.limit) if message.listed else (message.limit, 0)
            one.waits = False
        elif self.counts(drift, [message.item])[0] >= self.cap:
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

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote."""
        self.cap, self._many = source.within(source.varint(), 0, MAX_COUNT), source.varint()
        keys = _read_named(source)
        caps, floors, flags = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT), source.integers(0, 3)
        source.check(caps.size == floors.size == flags.size == len(keys), "limits of other keys")
        limits = zip(caps.tolist(), floors.tolist(), flags.tolist(), strict=True)
        self._known = {
            item: _Known(key, cap, floor, bool(flag & 1), bool(flag & 2))
            for (item, key), (cap, floor, flag) in zip(keys, limits, strict=True)
        }

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

    def announced(self) -> Listed:
        """The keys that are listed."""
        listed = sorted((item for item in self._items.values() if item.listed), key=lambda item: (-item.total, str(item.key)))
        return Listed({item.key: item.total for item in listed}, self._tau * (1 - self._theta))

    def cap(self, sites: int) -> int:
        """The cap of a key that nothing is known of."""
        return max(1, math.floor(self._tau * (1 + self._theta) / sites))

    def hear(self, coordinator: "Coordinator", message: m.ItemCount) -> None:
        """A site says how often it counts a key: by itself, or because it was asked."""
        item = self._items.get(message.item)
        if item is None:
            if message.key is None:  # an answer about what was dropped meanwhile
                return
            item = self._items[message.item] = _Item(message.key)
        if not item.pending:
            self._ask(coordinator, message.item, item, without=message.site)
        item.counts[message.site] = message.count
        item.pending.discard(message.site)
        self._decide(coordinator, message.item, item)

    def _ask(self, coordinator: "Coordinator", number: int, item: _Item, without: int | None = None) -> None:
        item.counts, item.pending = {}, set(coordinator.sites)
        for site in sorted(item.pending - {without}):
            coordinator._send(site, m.AskItem, item.key)
        coordinator.synchronisations["items"] += 1

    def again(self, coordinator: "Coordinator") -> None:
        """Sites came or went: all that was decided must be decided again."""
        for number, item in sorted(self._items.items()):
            if not item.pending:
                self._ask(coordinator, number, item)
            else:
                for site in sorted(set(coordinator.sites) - item.pending - set(item.counts)):
                    item.pending.add(site)
                    coordinator._send(site, m.AskItem, item.key)

    def forget(self, coordinator: "Coordinator", site: int) -> None:
        """A site has left."""
        if not coordinator.sites:
            self._items.clear()
        for number, item in sorted(self._items.items()):
            item.counts.pop(site, None)
            if site in item.pending:
                item.pending.discard(site)
                self._decide(coordinator, number, item)

    def _decide(self, coordinator: "Coordinator", number: int, item: _Item) -> None:
        if item.pending:
            return
        sites, counts = coordinator.sites, item.counts
        item.total = sum(counts.values())
        item.listed = item.total >= self._tau
        room = self._tau * (1 + self._theta) - item.total
        slack = math.floor((item.total - self._tau * (1 - self._theta)) / max(len(sites), 1))
        rare = not item.listed and all(2 * count < self.cap(len(sites)) for count in counts.values())
        for site, count in sorted(counts.items()):
            limit = max(count - slack, 0) if item.listed else 0 if rare else count + max(1, math.floor(room / len(sites)))
            coordinator._send(site, m.ItemLimits, number, item.listed, limit)
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

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote."""
        keys = _read_named(source)
        decided = [divmod(source.varint(), 2) for _ in keys]
        counted, pending = (_read_sites(source, len(keys)) for _ in range(2))
        counts = source.integers(0, MAX_COUNT).tolist()
        source.check(len(counts) == sum(map(len, counted)), "counts of other sites")
        at = iter(counts)
        for (number, key), (total, listed), sites, asked in zip(keys, decided, counted, pending, strict=True):
            self._items[number] = _Item(key, {site: next(at) for site in sites}, set(asked), total, bool(listed))


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
