"""The stream that ``lately demo`` tells about: three hours of web traffic at four sites, with a crowd at the end.

Everything is drawn from a fixed seed, so every run shows the same numbers. The exact answers come from the raw events,
which a real site would not keep.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.counters.windowed import merge
from lately.sketches.ecm import EcmSketch

SITES = ("Paris", "Tokyo", "Lima", "Nairobi")
SHARES = (0.4, 0.3, 0.2, 0.1)
PATHS = 20_000
SECONDS = 3 * 3600
START = 1_780_304_400  # 2026-06-01T09:00Z
CROWD = "/tickets/cup-final"
CROWD_SECONDS = 600
STEP = 120

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    """All events of one site in time order: the second of each, and its path as a number."""

    site: str
    seconds: Ints
    paths: Ints

    def between(self, start: int, stop: int) -> slice:
        """The events from second ``start`` up to, not including, ``stop``."""
        return slice(*(int(i) for i in np.searchsorted(self.seconds, (start, stop))))


def path_names() -> list[str]:
    """The text of each path; the last one is where the crowd goes."""
    kinds = ("shop", "news", "help", "search", "account")
    return ["/", "/cart", "/login", *(f"/{kinds[i % 5]}/{i}" for i in range(3, PATHS - 1)), CROWD]


def traffic(events: int = 2_000_000, seed: int = 1) -> list[Traffic]:
    """Zipf paths, each site with tastes of its own below the first few; a quarter of the last ten minutes is the crowd."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(np.arange(1, PATHS, dtype=np.float64) ** -1.1)
    sites = []
    for site, share in zip(SITES, SHARES, strict=True):
        size = round(events * share)
        seconds = START + np.sort(rng.integers(0, SECONDS, size))
        paths = np.searchsorted(ends, rng.random(size) * ends[-1])
        tastes = np.concatenate([np.arange(5), 5 + rng.permutation(PATHS - 6)])
        paths = tastes[paths]
        late = seconds >= START + SECONDS - CROWD_SECONDS
        paths[late & (rng.random(size) < 0.25)] = PATHS - 1
        sites.append(Traffic(site, seconds, paths))
    return sites


def new_sketch() -> EcmSketch:
    """What each site keeps: the last hour, answers within 2 % of the traffic in range, 95 % sure."""
    return EcmSketch(window="1h", eps=0.02, delta=0.05)


def steps() -> Iterator[tuple[int, int]]:
    """The stream in pieces of two minutes, as (start, stop) in seconds."""
    for start in range(START, START + SECONDS, STEP):
        yield start, start + STEP


class Line(NamedTuple):
    """One question, the truth, and what the sketch says."""

    path: str
    last: str
    exact: int
    value: int
    low: int
    high: int

    @property
    def within(self) -> bool:
        return self.low <= self.exact <= self.high


def exact_counts(sites: list[Traffic], last: int) -> Ints:
    """How often each path was truly seen at these sites in the last so many seconds, up to the end of the stream."""
    now = max(int(site.seconds[-1]) for site in sites)
    counts = np.zeros(PATHS, np.int64)
    for site in sites:
        counts += np.bincount(site.paths[site.between(now - last, now + 1)], minlength=PATHS)
    return counts


def hottest(sketch: EcmSketch, sites: list[Traffic], names: list[str], top: int) -> list[Line]:
    """The paths with the highest estimates over the last 10 minutes, asked about for that time and for the hour."""
    found = []
    recent = sketch.counts(names, last="10m")
    best = np.argsort(-recent.value, kind="stable")[:top]
    for last, length, answers in (("10m", 600, recent), ("1h", 3600, sketch.counts(names, last="1h"))):
        exact = exact_counts(sites, length)
        for i in best.tolist():
            found.append(Line(names[i], last, int(exact[i]), int(answers.value[i]), int(answers.low[i]), int(answers.high[i])))
    return found


def summary(sites: list[Traffic], sketches: list[EcmSketch], seconds: float) -> dict[str, Any]:
    """What the tour ends with, as plain data. ``seconds`` is the time that all updates took together."""
    names = path_names()
    merged = merge(sketches)
    events = sum(site.seconds.size for site in sites)
    within = {}
    for last, length in (("10m", 600), ("1h", 3600)):
        exact = exact_counts(sites, length)
        (seen,) = np.nonzero(exact)
        answers = merged.counts([names[i] for i in seen.tolist()], last=last)
        inside = (answers.low <= exact[seen]) & (exact[seen] <= answers.high)
        errors = np.abs(answers.value - exact[seen]) / exact.sum()
        within[last] = {"asked": int(seen.size), "within": int(inside.sum()), "average_error": float(errors.mean())}
    joined, exact = merged.self_join(last="10m"), exact_counts(sites, 600).astype(np.float64)
    window = [site.paths[site.between(START + SECONDS - 1 - 3600, START + SECONDS)] for site in sites]
    lengths = np.array([len(name.encode()) for name in names])
    return {
        "events": events,
        "events_per_second": events / seconds,
        "sites": [
            {"site": t.site, "events": int(t.seconds.size), "bytes": s.nbytes, "stored": len(s.to_bytes()), "merges": s.merges}
            for t, s in zip(sites, sketches, strict=True)
        ],
        "merged": {"bytes": merged.nbytes, "stored": len(merged.to_bytes()), "merges": merged.merges},
        "raw_bytes": int(sum((8 + lengths[paths]).sum() for paths in window)),
        "raw_events": int(sum(paths.size for paths in window)),
        "hottest": [{**line._asdict(), "within": line.within} for line in hottest(merged, sites, names, 6)],
        "self_join": {"exact": float((exact**2).sum()), "value": joined.value, "low": joined.low, "high": joined.high},
        "answers": within,
    }
