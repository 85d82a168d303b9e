"""Web traffic as a pipeline leaves it in a store, made without Spark: for tests that look at the page.

Every answer comes from a real sketch, and the rows are kept, so that the truth is known as well.
"""

from datetime import UTC, datetime, timedelta

import numpy as np
from store_builder import GUARANTEE, SHOP, answer_row, new_store, put_batch, put_sketches, site_row

import lately as lt

SITES = ("austin", "lima", "mumbai", "nairobi", "oslo", "paris", "sydney", "tokyo")
PATHS = ["/", "/cart", "/login", "/search", *(f"/shop/{i}" for i in range(60)), "/tickets/cup-final"]
SHARES = (np.arange(len(PATHS)) + 1.5) ** -1.1
STEP = 5
TOP, TIMES, JOINS = "topk eps=0.01", "quantiles eps=0.01", "ecm inner eps=0.01"
ABOUT = SHOP | {
    "name": "web traffic",
    "window": {"length": "1h", "tick": "1s", "lateness": "30s"},
    "queries": [
        {"name": "hot pages", "kind": "top", "last": "10m", "k": 12, "sketches": [TOP]},
        {"name": "hot by site", "kind": "top", "last": "10m", "by": "site", "k": 3, "sketches": [TOP]},
        {"name": "latency", "kind": "quantiles", "last": "5m", "sketches": [TIMES]},
        {"name": "skew", "kind": "self-join", "last": "10m", "sketches": [JOINS]},
    ],
    "monitors": [{"name": "flood", "kind": "frequent", "tau": 2000.0, "last": "10m"}],
    "sketches": {
        name: {"kind": name.split()[0], "query": "inner" if name == JOINS else None, **GUARANTEE}
        for name in (TOP, TIMES, JOINS)
    },
}


def new_sketches():
    return {
        TOP: lt.TopK(window="1h", k=20, **GUARANTEE),
        TIMES: lt.Quantiles(window="1h", lo=0, hi=10_000, resolution=1, outside="clip", **GUARANTEE),
        JOINS: lt.EcmSketch(window="1h", query="inner", **GUARANTEE),
    }


class Traffic:
    """A stream of so many rows a batch and site, whose newest row is never ahead of the clock."""

    def __init__(self, path, batches, rows=60, *, store_sketches=True):
        self.store = new_store(path, **ABOUT | {"stored": "always" if store_sketches else "never"})
        self.rows, self.batch, self.store_sketches = rows, 0, store_sketches
        self.start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=STEP * batches)
        self.random = np.random.default_rng(8)
        self.all, self.sites = new_sketches(), {site: new_sketches() for site in SITES}
        self.seen = []
        for done in range(batches):
            self.step(keep=done == batches - 1)

    def truth(self, key, last=600):
        """How often a key really came in the last so many seconds."""
        now = self.seen[-1][1]
        return sum(1 for seen, time in self.seen if seen == key and time > now - timedelta(seconds=last))

    def step(self, alerts=(), keep=True):
        """One batch more, with these alerts (item, state); ``keep``: with the sketches, as far as they are stored at all."""
        times = [self.start + timedelta(seconds=STEP * self.batch + second) for second in range(STEP)]
        column = np.sort(self.random.integers(0, STEP, self.rows))
        for number, site in enumerate(SITES):
            keys = [PATHS[i] for i in self.random.choice(len(PATHS), self.rows // (1 + number), p=SHARES / SHARES.sum())]
            values = self.random.gamma(2, 40, len(keys)).round()
            at = [times[i] for i in column[-len(keys) :]]
            self.seen += zip(keys, at, strict=True)
            self._grow(self.sites[site], keys, values, at)
        fresh = self.seen[-sum(self.rows // (1 + number) for number in range(len(SITES))) :]
        fresh.sort(key=lambda row: row[1])
        self.seen[-len(fresh) :] = fresh
        values = self.random.gamma(2, 40, len(fresh)).round()
        self._grow(self.all, [key for key, _ in fresh], values, [time for _, time in fresh])
        self._put(fresh, alerts, keep and self.store_sketches)
        self.batch += 1

    @staticmethod
    def _grow(sketches, keys, values, times):
        for name, sketch in sketches.items():
            sketch.update(values if name == TIMES else keys, times)

    def _put(self, fresh, alerts, keep):
        now, batch = self.seen[-1][1], self.batch
        answers = [estimate_row("hot pages", key, count) for key, count in self.all[TOP].top(12, last="10m")]
        for site, sketches in self.sites.items():
            top = sketches[TOP].top(3, last="10m")
            answers += [estimate_row("hot by site", key, count) | {"site": site} for key, count in top]
        quantiles = self.all[TIMES].quantile([0.5, 0.95, 0.99], last="5m")
        answers += [estimate_row("latency", f"{q:g}", value) for q, value in quantiles]
        answers.append(estimate_row("skew", None, self.all[JOINS].self_join(last="10m")))
        bounds = {"value": 2100.0, "low": 1950.0, "high": 2200.0, "confidence": 0.9}
        alerts = [{"monitor": "flood", "item": item, "state": state, **bounds} for item, state in alerts]
        if keep:
            put_sketches(self.store, batch, now, self.sites)
        began = now + timedelta(seconds=1)
        run = {
            "began": began, "seconds": 0.4 + 0.1 * float(self.random.random()),
            "rows": len(fresh) + 3, "counted": len(fresh), "late": 2, "rejected": 1, "sites": len(SITES),
            "state_bytes": sum(sketch.nbytes for sketches in self.sites.values() for sketch in sketches.values()),
            "shipped_bytes": 3_000, "monitor_bytes": 40 * (batch % 3), "everything_bytes": 38 * len(fresh),
        }  # fmt: skip
        put_batch(self.store, batch, now, run, answers=answers, alerts=alerts, sites=self._snapshot(now, began))

    def _snapshot(self, now, began):
        """The sites after this batch: Lima has been silent since the first one, and the clock of Oslo is 22 hours ahead."""
        self.first = getattr(self, "first", {"time": now, "seen": began})
        counts = {"counted": 60 * (self.batch + 1), "late": 2, "rejected": 1, "seen": began}
        special = {"lima": self.first, "oslo": {"time": now + timedelta(hours=22), "ahead": 1, "ahead_seen": began}}
        return [site_row(self.batch, site, **{"time": now, **counts, **special.get(site, {})}) for site in SITES]


def estimate_row(query, item, estimate):
    bounds = float(estimate.value), float(estimate.low), float(estimate.high)
    return answer_row(query, item, *bounds) | {"confidence": estimate.confidence}
