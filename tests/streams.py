"""Streams for property tests: Hypothesis picks the character, NumPy makes the events."""

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

FAMILIES = ("wave", "exphist", "randwave", "exact")


@dataclass(frozen=True)
class Stream:
    """Arrivals in time order at small cells or keys."""

    ticks: np.ndarray
    cells: np.ndarray
    counts: np.ndarray | None

    def __len__(self):
        return len(self.ticks)

    @property
    def weights(self):
        return np.ones(len(self), np.int64) if self.counts is None else self.counts

    def pieces(self, cuts):
        """The stream cut into batches."""
        edges = [0, *sorted(c % (len(self) + 1) for c in cuts), len(self)]
        for a, b in itertools.pairwise(edges):
            if b > a:
                yield Stream(self.ticks[a:b], self.cells[a:b], None if self.counts is None else self.counts[a:b])


def make(seed, size, cells, gap, weight, start=0):
    """A stream of ``size`` arrivals: gaps up to ``gap`` with bursts and silences, weights up to ``weight`` (0: none)."""
    rng = np.random.default_rng(seed)
    gaps = rng.integers(0, gap + 1, size)
    gaps[rng.random(size) < 0.3] = 0
    gaps[rng.random(size) < 0.01] *= 50
    ticks = start + np.cumsum(gaps)
    favourite = rng.integers(0, cells, size)
    uniform = rng.random(size) < 0.5
    where = np.where(uniform, favourite, 0).astype(np.uint32)
    counts = None if weight == 0 else rng.integers(0, weight + 1, size)
    return Stream(ticks.astype(np.int64), where, counts)


def streams(most=400, cells=3, start=0):
    """Streams of every character that a counter meets."""
    return st.builds(
        make,
        seed=st.integers(0, 2**32),
        size=st.integers(1, most),
        cells=st.just(cells),
        gap=st.sampled_from([0, 1, 3, 40]),
        weight=st.sampled_from([0, 0, 1, 7, 5000]),
        start=st.just(start),
    )


spans = st.sampled_from([1, 7, 60, 900, 100_000])
epsilons = st.sampled_from([0.5, 0.3, 0.15, 0.1, 0.03])
cuts = st.lists(st.integers(0, 10_000), max_size=6)
