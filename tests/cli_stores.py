"""Stores as pipelines leave them, written without Spark."""

from datetime import UTC, datetime, timedelta

import numpy as np

import lately as lt
from lately.store import Store
from lately.store.tables import TIME_TYPES

START = datetime(2026, 1, 1, tzinfo=UTC)
SITES = ("lima", "oslo", "paris")
PAGES = ["/", "/cart", "/search", "/help", "/about", "[red]/odd\x1b[2J"]
#: Questions that the shop answers.
QUESTIONS = [
    ["count", "/cart"],
    ["count", "/cart", "/nowhere", "[red]/odd\x1b[2J", "--last", "10m", "--site", "paris"],
    ["count", "/cart", "--last", "10m", "--site", "paris", "--site", "lima"],
    ["count", "/", "--from", "20m", "--to", "10m"],
    ["count", "/", "--from", "2026-01-01T00:05:00Z"],
    ["count", "/", "--of", "ecm odd"],
    ["top"],
    ["top", "-k", "2", "--last", "10m"],
    ["top", "-k", "2", "--each", "--site", "oslo", "--site", "lima"],
    ["quantiles"],
    ["quantiles", "0.5", "0.999", "--site", "oslo", "--last", "15m"],
    ["range", "0", "99", "--last", "10m"],
    ["self-join", "--last", "10m"],
    ["inner-product", "ecm odd", "ecm even"],
    ["inner-product", "both", "both", "--last", "10m", "--site", "lima"],
    ["total", "--last", "10m"],
    ["answers"],
    ["answers", "latency"],
    ["history", "hot", "--item", "/cart"],
    ["history", "latency", "--item", "0.5", "--site", "lima", "--limit", "2"],
    ["history", "both"],
    ["alerts"],
    ["alerts", "--limit", "1"],
    ["runs"],
    ["sites"],
    ["sites", "--limit", "2"],
    ["sites", "--state", "silent"],
    ["late"],
    ["rejected"],
    ["rejected", "--site", "lima", "--reason", "no", "--limit", "1"],
]
#: Rows that the shop has rejected, oldest first: batch, site and reason.
REJECTED = [(0, "lima", "no key"), (1, "lima", "count is negative: -2"), (1, "oslo", "no key"), (2, "lima", "no time")]


def traffic(site):
    """Half an hour at a site: pages, seconds and milliseconds, one row a second."""
    rng = np.random.default_rng(sum(site.encode()))
    pages = [PAGES[i] for i in rng.choice(len(PAGES), 1800, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])]
    return pages, np.arange(1800), rng.integers(0, 1000, 1800).astype(float)


def put_sketches(store, version, now, by_site):
    for site, sketches in by_site.items():
        rows = [
            {"version": version, "time": now, "site": site, "sketch": name, "kind": name.split()[0], "blob": one.to_bytes()}
            for name, one in sketches.items()
        ]
        store.put("sketches", version, rows, site)


def run_row(batch, time, began=START):
    return {
        "batch": batch, "time": time, "began": began, "seconds": 0.25, "rows": 1800, "counted": 1790, "late": 7, "rejected": 3,
        "sites": 3, "state_bytes": 30_000, "shipped_bytes": 2_048, "monitor_bytes": 512, "everything_bytes": 90_000,
    }  # fmt: skip


def site_rows(batch, time):
    """Paris had its last row in batch 0 and Oslo's clock is a day ahead."""
    totals = {"counted": 600 * (batch + 1), "late": 2, "rejected": 1, "ahead": 0, "ahead_seen": None}
    seen = START + timedelta(hours=batch)
    rows = {
        "lima": {"time": time, "seen": seen},
        "oslo": {"time": time + timedelta(days=1), "seen": seen, "ahead": 5, "ahead_seen": seen},
        "paris": {"time": START - timedelta(hours=2, seconds=1), "seen": START, "counted": 600},
    }
    return [{"batch": batch, "site": site, **totals, **row} for site, row in rows.items()]


def make_shop(path):
    """Web traffic at three sites: text keys, times as dates, three batches of ten minutes."""
    store = Store(str(path))
    store.prepare()
    told = {"where": None, "eps": 0.01, "delta": 0.01, "query": None}
    store.describe(
        {
            "lately": lt.__version__, "name": "shop", "time_type": "timestamp", "keys": "text",
            "window": {"length": "1h", "tick": "1s", "lateness": None}, "guarantee": {"eps": 0.01, "delta": 0.01},
            "queries": [
                {"name": "hot", "kind": "top", "last": "10m", "by": "all", "k": 3, "sketches": ["topk eps=0.01"]},
                {"name": "latency", "kind": "quantiles", "last": None, "by": "site", "sketches": ["quantiles eps=0.02"]},
                {"name": "both", "kind": "join", "last": None, "by": "all", "sketches": ["ecm odd", "ecm even"]},
            ],
            "monitors": [{"name": "rush", "kind": "count", "key": "/cart", "above": 100}],
            "sketches": {
                "topk eps=0.01": told | {"kind": "topk"},
                "quantiles eps=0.02": told | {"kind": "quantiles", "eps": 0.02},
                "ecm odd": told | {"kind": "ecm", "query": "inner", "where": "s % 2 = 1"},
                "ecm even": told | {"kind": "ecm", "query": "inner", "where": "s % 2 = 0"},
                "ecm all": told | {"kind": "ecm", "query": "inner", "eps": 0.05},
            },
            "keep": "7d", "stored": "always",
        }
    )  # fmt: skip
    for batch in range(3):
        time = START + timedelta(minutes=10 * (batch + 1), seconds=-1)
        rows = [
            {"query": "hot", "site": None, "item": page, "value": 100.0 - batch - i, "low": 90.0, "high": 120.0}
            for i, page in enumerate(PAGES[:3])
        ]
        rows += [
            {"query": "latency", "site": site, "item": "0.5", "value": 500.0 + batch, "low": 480.0, "high": 520.0}
            for site in SITES
        ]
        store.put("answers", batch, [row | {"time": time, "batch": batch, "confidence": 0.99} for row in rows])
        if batch:
            numbers = {"value": 120.0, "low": 110.0, "high": float("inf"), "confidence": 0.99}
            store.put(
                "alerts",
                batch,
                [
                    {
                        "time": time,
                        "batch": batch,
                        "monitor": "rush",
                        "item": None,
                        "state": "firing" if batch == 1 else "resolved",
                    }
                    | numbers
                ],
            )
        rows = [
            {"batch": number, "site": site, "time": time, "reason": reason, "row": '{"page":"/[red]"}'}
            for number, site, reason in REJECTED
            if number == batch
        ]
        store.put("rejected", batch, rows)
        store.put("sites", batch, site_rows(batch, time))
        store.put("runs", batch, [run_row(batch, time, START + timedelta(hours=batch))])
    by_site = {}
    for site in SITES:
        pages, seconds, ms = traffic(site)
        times = np.datetime64("2026-01-01T00:00:00") + seconds.astype("timedelta64[s]")
        odd = seconds % 2 == 1
        made = {
            "topk eps=0.01": lt.TopK(k=3, window="1h", eps=0.01, delta=0.01),
            "quantiles eps=0.02": lt.Quantiles(window="1h", eps=0.02, lo=0, hi=1000, resolution=1),
            "ecm odd": lt.EcmSketch(window="1h", eps=0.01, delta=0.01, query="inner"),
            "ecm even": lt.EcmSketch(window="1h", eps=0.01, delta=0.01, query="inner"),
            "ecm all": lt.EcmSketch(window="1h", eps=0.05, delta=0.01, query="inner"),
        }
        made["topk eps=0.01"].update(pages, times)
        made["quantiles eps=0.02"].update(ms, times)
        made["ecm all"].update(pages, times)
        made["ecm odd"].update([page for page, one in zip(pages, odd, strict=True) if one], times[odd])
        made["ecm even"].update([page for page, one in zip(pages, odd, strict=True) if not one], times[~odd])
        by_site[site] = made
    put_sketches(store, 2, START + timedelta(seconds=1799), by_site)
    return store.path


def make_flows(path):
    """Flows at one site: integer keys, integer times."""
    store = Store(str(path), TIME_TYPES["integer"])
    store.prepare()
    store.describe(
        {
            "lately": lt.__version__, "name": "flows", "time_type": "integer", "keys": "integer",
            "window": {"length": 1000, "tick": 1, "lateness": None}, "guarantee": {"eps": 0.05, "delta": 0.05},
            "queries": [{"name": "ports", "kind": "ranges", "last": None, "by": "all", "sketches": ["dyadic eps=0.05"]}],
            "monitors": [], "sketches": {
                "dyadic eps=0.05": {"kind": "dyadic", "where": None, "eps": 0.05, "delta": 0.05, "query": None},
                "ecm eps=0.05": {"kind": "ecm", "where": None, "eps": 0.05, "delta": 0.05, "query": "point"},
            },
            "keep": None, "stored": "always",
        }
    )  # fmt: skip
    tree = lt.Dyadic(universe=2**16, window=1000, eps=0.05, delta=0.05)
    tree.update(np.arange(500) % 100, np.arange(500))
    counts = lt.EcmSketch(window=1000, eps=0.05, delta=0.05)
    counts.update(np.arange(500) % 100, np.arange(500))
    put_sketches(store, 0, 499, {"": {"dyadic eps=0.05": tree, "ecm eps=0.05": counts}})
    store.put("runs", 0, [run_row(0, 499)])
    return store.path
