"""Stores made without Spark: events of some sites, the sketches of them, and what is exactly true of them."""

from collections import Counter
from datetime import timedelta

import numpy as np
from store_builder import NOON, duration, new_store, put_batch, put_sketches, time_at

import lately as lt

WINDOW = 1000
SURE = 1e-7  # so small that what is likely can be taken for certain

SKETCHES = {
    "ecm fine": ("ecm", {"eps": 0.02, "delta": SURE}),
    "ecm coarse": ("ecm", {"eps": 0.2, "delta": SURE}),
    "ecm inner": ("ecm", {"eps": 0.1, "delta": SURE, "query": "inner"}),
    "topk": ("topk", {"k": 1, "eps": 0.05, "delta": SURE}),
    "quantiles": ("quantiles", {"eps": 0.05, "delta": SURE, "lo": 0, "hi": 500, "resolution": 1}),
    "dyadic": ("dyadic", {"eps": 0.05, "delta": SURE, "universe": 64}),
    "ecm inner where even": ("ecm", {"eps": 0.1, "delta": SURE, "query": "inner"}),
    "ecm inner where odd": ("ecm", {"eps": 0.1, "delta": SURE, "query": "inner"}),
}
WHERE = {"ecm inner where even": lambda times: times % 2 == 0, "ecm inner where odd": lambda times: times % 2 == 1}
CLASSES = {"ecm": lt.EcmSketch, "topk": lt.TopK, "quantiles": lt.Quantiles, "dyadic": lt.Dyadic}
QUERIES = [
    {"name": "hot", "kind": "top", "sketches": ["topk"]},
    {"name": "funnel", "kind": "counts", "sketches": ["ecm coarse"]},
    {"name": "pairs", "kind": "join", "sketches": ["ecm inner where even", "ecm inner where odd"]},
    {"name": "slow", "kind": "quantiles", "sketches": ["quantiles"]},
    {"name": "longest", "kind": "exact", "sketches": []},
    {"name": "new", "kind": "top", "sketches": ["topk that is not there yet"]},
]


def about(time_type="integer", keys="integer", names=SKETCHES):
    """What a pipeline would write of these sketches."""
    sketches = {}
    for name in names:
        kind, options = SKETCHES[name]
        query = options.get("query", "point") if kind == "ecm" else None
        where = name.partition(" where ")[2] or None
        sketches[name] = {"kind": kind, "where": where, "eps": options["eps"], "delta": options["delta"], "query": query}
    return {
        "lately": "0.1.0",
        "name": "shop",
        "time_type": time_type,
        "keys": keys,
        "window": {"length": duration(WINDOW, time_type)},
        "queries": QUERIES,
        "monitors": [{"name": "rush", "kind": "count"}],
        "sketches": sketches,
    }


class StoredStream:
    """A store with events at sites: integer keys below 64 (or the same as text), at integer times (or that many seconds)."""

    def __init__(self, path, time_type="integer", keys="integer", names=SKETCHES, lateness=None):
        self.time_type, self.keys, self.names, self.lateness = time_type, keys, names, lateness
        self.store = new_store(path, **about(time_type, keys, names))
        self.events = {}
        self.sketches = {}

    def time(self, tick):
        return time_at(tick, self.time_type)

    def length(self, ticks):
        return duration(ticks, self.time_type)

    def key(self, key):
        return key if self.keys == "integer" else f"/page/{key}"

    def add(self, site, keys, times):
        """More events of a site, in the order of time."""
        keys, times = np.asarray(keys), np.asarray(times)
        before = self.events.get(site, (np.empty(0, np.int64),) * 2)
        self.events[site] = np.concatenate((before[0], keys)), np.concatenate((before[1], times))
        sketches = self.sketches.setdefault(site, {})
        for name in self.names:
            kind, options = SKETCHES[name]
            if name not in sketches:
                sketches[name] = CLASSES[kind](window=self.length(WINDOW), lateness=self.lateness, **options)
            counted = WHERE[name](times) if name in WHERE else np.full(times.size, True)
            if not counted.any():
                continue
            items, ticks = keys[counted], times[counted]
            if kind == "quantiles":
                items = 7 * items
            elif kind != "dyadic":
                items = [self.key(int(key)) for key in items]
            sketches[name].update(items, ticks if self.time_type == "integer" else [self.time(int(tick)) for tick in ticks])

    def finish(self, batch, stored=True):
        """Write a batch as a pipeline would."""
        time = self.time(self.now)
        if stored:
            put_sketches(self.store, batch, time, self.sketches)
        began = NOON + timedelta(microseconds=batch)
        put_batch(self.store, batch, time, run={"began": began, "rows": 1, "sites": len(self.events)})

    @property
    def now(self):
        return max(int(times[-1]) for _, times in self.events.values())

    def exact(self, last=None, between=None, sites=None, where=None):
        """How often each key occurred."""
        counts = Counter()
        start = self.now + 1 - (between[0] if between else WINDOW if last is None else last)
        stop = self.now + 1 - (between[1] if between else 0)
        for site, (keys, times) in self.events.items():
            if sites is None or site in sites:
                inside = (times >= start) & (times < stop) & (True if where is None else where(times))
                counts.update(keys[inside].tolist())
        return counts


def filled(path, **options):
    """Four sites: two that are busy, one that fell silent a while ago, one that has been silent for longer than the window."""
    stream = StoredStream(path, **options)
    rng = np.random.default_rng(7)
    for site, (size, start, stop) in {
        "lima": (900, 1500, 3000),
        "paris": (1200, 1200, 3000),
        "quiet": (500, 1900, 2600),
        "tokyo": (300, 100, 1700),
    }.items():
        times = np.sort(rng.integers(start, stop, size))
        times[-1] = stop - 1 if stop < 3000 else 3000 - (site == "lima")
        stream.add(site, np.minimum(rng.zipf(1.4, size), 63), times)
    return stream
