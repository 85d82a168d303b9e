"""Slow and obvious twins of the fast code. Nothing here knows a trick; every line can be checked by eye."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import xxhash


@dataclass
class NaiveWindow:
    """Keeps every arrival. ``span`` is how many ticks before now are still inside."""

    span: int
    events: list[tuple[int, object, int]] = field(default_factory=list)
    now: int | None = None

    def add(self, tick, key, count=1):
        self.events.append((int(tick), key, int(count)))
        self.now = int(tick) if self.now is None else max(self.now, int(tick))

    def since(self, tick, key=None):
        """Arrivals (of a key) at this tick or later."""
        return sum(c for t, k, c in self.events if t >= tick and (key is None or k == key))

    def frequencies(self, start, stop=None):
        """How often each key was seen from tick ``start`` on and before ``stop``."""
        found = Counter()
        for t, k, c in self.events:
            if t >= start and (stop is None or t < stop):
                found[k] += c
        return found


@dataclass
class NaiveWave:
    """A deterministic wave as the paper draws it: the newest ``capacity`` positions of each level, by position."""

    capacity: int
    stamps: list[int] = field(default_factory=list)  # of every arrival: only to look the retained ones up

    def add(self, stamp, count=1):
        self.stamps.extend([stamp] * count)

    def retained(self):
        """Positions that a wave with enough levels still has, oldest first."""
        kept = []
        for level in range(64):
            positions = list(range(1 << level, len(self.stamps) + 1, 2 << level))
            if not positions:
                break
            kept += positions[-self.capacity :]
        return sorted(kept)

    def since(self, stamp):
        """The bracket that the retained positions leave around the first arrival at ``stamp`` or later."""
        n = len(self.stamps)
        if n and self.stamps[0] >= stamp:
            return n, n
        before, after = 0, n + 1
        for p in self.retained():
            if self.stamps[p - 1] < stamp:
                before = max(before, p)
            else:
                after = min(after, p)
        return n + 1 - after, n - before


@dataclass
class NaiveHistogram:
    """An exponential histogram as a plain list of buckets [size, end], newest first."""

    k: int
    buckets: list[list[int]] = field(default_factory=list)

    def add(self, stamp, count=1):
        for _ in range(count):
            self.buckets.insert(0, [1, stamp])
            size = 1
            while True:
                same = [i for i, b in enumerate(self.buckets) if b[0] == size]
                if len(same) <= (2 * self.k if size == 1 else self.k + 1):
                    break
                oldest, second = same[-1], same[-2]
                self.buckets[second][0] = 2 * size  # keeps the end of the newer one
                del self.buckets[oldest]
                size *= 2


def replayed(segments_of_each_input):
    """The stream that merging replays: half of each segment at its start, the rest at its end, in time order."""
    events = []
    for segments in segments_of_each_input:
        for start, end, size in zip(*segments, strict=True):
            events += [(int(start), int(size) // 2), (int(end), int(size) - int(size) // 2)]
    return sorted((t, c) for t, c in events if t > 0 and c > 0)


def key_hash(key):
    """Spark's xxhash64 of a key, by the xxhash package."""
    parts = key if isinstance(key, tuple) else (key,)
    value = 42
    for part in parts:
        raw = (
            part
            if isinstance(part, bytes)
            else part.encode()
            if isinstance(part, str)
            else int(part).to_bytes(8, "little", signed=True)
        )
        value = xxhash.xxh64(raw, seed=value).intdigest()
    return value


def cell(key, words, width):
    """The cell of a key in one row, in Python's integers."""
    a, b, c = (int(w) for w in words)
    hashed = key_hash(key)
    mixed = ((a + (hashed >> 32)) * (b + (hashed & 0xFFFFFFFF)) + c) % 2**64
    return ((mixed >> 32) * width) >> 32


def count_min(frequencies, words, width):
    """The Count-Min table of known frequencies."""
    table = np.zeros((len(words), width), np.int64)
    for key, count in frequencies.items():
        for row, word in enumerate(words):
            table[row, cell(key, word, width)] += count
    return table


def hoeffding(trials, p, doubt=1e-9):
    """More failures than this in so many trials of probability p have a chance below ``doubt``."""
    return trials * p + math.sqrt(trials * math.log(1 / doubt) / 2)
