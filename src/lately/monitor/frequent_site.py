"""A site's part of the query for frequent keys: their limits, and which keys to report. ``frequent.py`` has the protocol."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.keys import Hashes, Keys
from lately.core.stored_keys import write_keys
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import Drift, WindowDrift
from lately.monitor.frequent import read_hashed_keys

#: A site or key that has waited for an answer for this number of batches and advances is reported again.
PATIENCE = 8
#: A site with limits for at least this number of keys, and twice as many as it last needed, offers rare ones to be dropped.
_MANY = 64
#: The least number of keys, the most frequent ones, that a site remembers before it has limits.
_EARLY_KEYS = 2**14


@dataclass(slots=True, eq=False)
class _KeyState:
    """The limits of a key at a site, which reports it when its count reaches ``cap`` or falls below ``floor``."""

    key: Any
    cap: int = MAX_COUNT
    floor: int = 0
    waits: bool = True  # it was reported and not answered; it is not checked until then
    offered: bool = False  # it was reported as one that might be dropped, and has been rare since
    again: int = MAX_COUNT  # while it waits, the count at which it is reported again
    unanswered: int = 0  # the number of reports without an answer, at most
    calls: int = 0  # batches and advances since its last report


class FrequentKeysGuard:
    """A site's limits for keys.

    Parameters
    ----------
    stream
        The index of the stream.
    theta
        The tolerance of the query.
    drift
        The counters of the stream.
    report
        Called with the hash, the count and the key of a key to report; an answer to a request has None instead of the key.
    """

    def __init__(self, stream: int, theta: float, drift: WindowDrift, report: Callable[[int, int, Any], None]) -> None:
        #: The count at which a key without limits of its own is reported.
        self.cap = MAX_COUNT
        #: The stream that is monitored.
        self.stream = stream
        self._theta, self._drift, self._report = theta, drift, report
        self._keys: dict[int, _KeyState] = {}
        self._many = _MANY
        self._early_keys: dict[int, Any] = {}

    @classmethod
    def of(
        cls, monitor: MonitorDefinition, drifts: Sequence[Drift], report: Callable[[int, int, Any], None]
    ) -> "FrequentKeysGuard | None":
        """The guard of a site's frequent keys; None if the monitor has no query for them."""
        if monitor.frequent is None:
            return None
        query = monitor.frequent[1]
        stream = query.channel(monitor.streams)
        drift = drifts[stream]
        assert isinstance(drift, WindowDrift)
        return cls(stream, query.theta, drift, report)

    def __len__(self) -> int:
        return len(self._keys)

    def apply(self) -> None:
        """Set the limits in the counters, so that counting stops when one is reached."""
        hashes = sorted(self._keys)
        states = [self._keys[key_hash] for key_hash in hashes]
        caps = np.array([self.cap, *(MAX_COUNT if state.waits else state.cap for state in states)], np.int64)
        key_floors = np.array([0 if state.waits else state.floor for state in states], np.int64)
        floors = np.zeros(self._drift.layout.counters, np.int64)
        column = np.array(hashes, np.uint64)
        for row in self._drift.layout.cells(column):
            np.maximum.at(floors, row, key_floors)
        self._drift.set_key_limits(column, caps, floors)

    def remember(self, hashes: Hashes, column: Keys, order: Ints) -> None:
        """Remember keys that arrive before there are limits; if they are many, the most frequent ones."""
        unique, positions = np.unique(hashes, return_index=True)
        if unique.size > _EARLY_KEYS:
            counts = self._drift.counts(self._drift.layout.cells(unique))
            most = np.argsort(-counts, kind="stable")[:_EARLY_KEYS]
            unique, positions = unique[most], positions[most]
        self._early_keys.update(zip(unique.tolist(), column.pick(order[positions]), strict=True))
        if len(self._early_keys) > 2 * _EARLY_KEYS:
            early = sorted(self._early_keys)
            most = np.argsort(-np.array(self._counts(early)), kind="stable")[:_EARLY_KEYS]
            self._early_keys = {early[i]: self._early_keys[early[i]] for i in most.tolist()}

    def begin_epoch(self, cap: int) -> None:
        """Take the cap of a new reference, and report the early keys that have reached it; forget the others."""
        self.cap = cap
        early = sorted(self._early_keys.keys() - self._keys.keys())
        counts = dict(zip(early, self._counts(early), strict=True))
        most = int(self._drift.numbers[: self._drift.layout.width].sum()) // max(self.cap, 1)  # more keys cannot
        reached = [key_hash for key_hash in early if counts[key_hash] >= self.cap]
        reached = sorted(reached, key=lambda key_hash: (-counts[key_hash], key_hash))[:most]
        reports = [(key_hash, counts[key_hash], self._early_keys[key_hash]) for key_hash in reached]
        self._early_keys = {}
        for key_hash, count, key in reports:
            self._note_report(self._keys.setdefault(key_hash, _KeyState(key)), count)
        self._send(reports)

    def _send(self, reports: list[tuple[int, int, Any]]) -> None:
        for key_hash, count, key in reports:
            self._report(key_hash, count, key)

    def _note_report(self, state: _KeyState, count: int) -> None:
        state.waits, state.again = True, min(max(count + 1, math.floor((1 + self._theta) * count)), MAX_COUNT)
        state.unanswered, state.calls = state.unanswered + 1, 0

    def report_overdue(self) -> None:
        """Report keys again that have waited for long and have grown since; call it after every batch or advance."""
        waiting, reports = sorted(key_hash for key_hash, state in self._keys.items() if state.waits), []
        for key_hash, count in zip(waiting, self._counts(waiting), strict=True):
            state = self._keys[key_hash]
            state.calls = min(state.calls + 1, PATIENCE)
            if state.calls == PATIENCE and count >= state.again:
                reports.append((key_hash, count, state.key))
                self._note_report(state, count)
        self._send(reports)

    def check(self) -> None:
        """Report keys that have left their limits, and if there are many, those so rare that they might be dropped."""
        hashes, is_full = sorted(self._keys), len(self._keys) >= self._many
        reports, in_use = [], 0
        for key_hash, count in zip(hashes, self._counts(hashes), strict=True):
            state = self._keys[key_hash]
            is_rare = state.floor == 0 and state.cap < MAX_COUNT and 2 * count < self.cap
            in_use += not is_rare
            state.offered &= is_rare
            is_offer = is_full and is_rare and not state.offered
            if not state.waits and (is_offer or not state.floor <= count < state.cap):
                reports.append((key_hash, count, state.key))
                self._note_report(state, count)
                state.offered |= is_offer
        if is_full:
            self._many = max(2 * in_use, _MANY)
        self._send(reports)
        self.apply()

    def report(self, key: Any, is_requested: bool = False) -> None:
        """Report a key, unless an earlier report still waits for its answer."""
        key_hash = m.hash_of(key)
        state = self._keys.setdefault(key_hash, _KeyState(key, waits=False))
        if not state.waits:
            (count,) = self._counts([key_hash])
            self._note_report(state, count)
            self._report(key_hash, count, None if is_requested else key)

    def receive(self, message: m.KeyCountRequest | m.KeyLimits) -> None:
        """Answer a request, or take new limits."""
        if isinstance(message, m.KeyLimits):
            self._set_limits(message)
        else:
            self.report(message.key, is_requested=True)

    def _set_limits(self, message: m.KeyLimits) -> None:
        """Take the limit of a key, or drop it, unless the key must be reported again."""
        state = self._keys.get(message.key_hash)
        if state is None:
            return
        state.unanswered = max(state.unanswered - 1, 0)
        if message.listed or message.limit:
            state.cap, state.floor = (MAX_COUNT, message.limit) if message.listed else (message.limit, 0)
            state.waits = False
        elif state.unanswered or self._counts([message.key_hash])[0] >= self.cap:
            state.cap, state.floor, state.waits = self.cap, 0, False
        else:
            del self._keys[message.key_hash]

    def write(self, out: Writer) -> None:
        """Write the limits; ``apply`` sets them in the counters after they were read."""
        states = [self._keys[key_hash] for key_hash in sorted(self._keys)]
        out.varint(self.cap)
        out.varint(self._many)
        write_keys(out, [state.key for state in states])
        out.integers(np.array([state.cap for state in states], np.int64))
        out.integers(np.array([state.floor for state in states], np.int64))
        out.integers(np.array([state.waits + 2 * state.offered for state in states], np.int64))
        out.integers(np.array([state.again for state in states], np.int64))
        out.integers(np.array([state.unanswered for state in states], np.int64))
        out.integers(np.array([state.calls for state in states], np.int64))
        write_keys(out, [self._early_keys[key_hash] for key_hash in sorted(self._early_keys)])

    def read(self, source: Reader, is_version_1: bool) -> None:
        """Read what ``write`` wrote; version 1 had neither repeated reports nor early keys."""
        self.cap, self._many = source.within(source.varint(), 0, MAX_COUNT), source.varint()
        keys = read_hashed_keys(source)
        caps, floors, flags = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT), source.integers(0, 3)
        source.check(caps.size == floors.size == flags.size == len(keys), "the number of limits is not that of the keys")
        limits = zip(caps.tolist(), floors.tolist(), flags.tolist(), strict=True)
        self._keys = {
            key_hash: _KeyState(key, cap, floor, bool(flag & 1), bool(flag & 2))
            for (key_hash, key), (cap, floor, flag) in zip(keys, limits, strict=True)
        }
        if not is_version_1:
            columns = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT), source.integers(0, PATIENCE)
            source.check(all(column.size == len(keys) for column in columns), "the number of reports is not that of the keys")
            for state, *numbers in zip(self._keys.values(), *(column.tolist() for column in columns), strict=True):
                state.again, state.unanswered, state.calls = numbers
            self._early_keys = dict(read_hashed_keys(source))

    def _counts(self, hashes: Sequence[int]) -> list[int]:
        if not hashes:
            return []
        counts: list[int] = self._drift.counts(self._drift.layout.cells(np.array(hashes, np.uint64))).tolist()
        return counts
