"""Stores as pipelines leave them, written without Spark."""

from datetime import UTC, datetime, timedelta

import numpy as np
from store_builder import GUARANTEE, RUN, SHOP, answer_row, new_store, put_batch, put_sketches, site_row

import lately as lt

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


def site_rows(batch, time):
    """Paris had its last row in batch 0 and Oslo's clock is a day ahead."""
    seen = START + timedelta(hours=batch)
    counts = {"counted": 600 * (batch + 1), "late": 2, "rejected": 1}
    ahead = {"ahead": 5, "ahead_seen": seen}
    return [
        site_row(batch, "lima", time, seen=seen, **counts),
        site_row(batch, "oslo", time + timedelta(days=1), seen=seen, **counts, **ahead),
        site_row(batch, "paris", START - timedelta(hours=2, seconds=1), seen=START, **counts | {"counted": 600}),
    ]


def make_shop(path):
    """Web traffic at three sites: text keys, times as dates, three batches of ten minutes."""
    about = {
        "queries": [
            {"name": "hot", "kind": "top", "last": "10m", "k": 3, "sketches": ["topk eps=0.01"]},
            {"name": "latency", "kind": "quantiles", "by": "site", "sketches": ["quantiles eps=0.02"]},
            {"name": "both", "kind": "join", "sketches": ["ecm odd", "ecm even"]},
        ],
        "monitors": [{"name": "rush", "kind": "count", "key": "/cart", "above": 100}],
        "sketches": {
            "topk eps=0.01": GUARANTEE | {"kind": "topk"},
            "quantiles eps=0.02": GUARANTEE | {"kind": "quantiles", "eps": 0.02},
            "ecm odd": GUARANTEE | {"kind": "ecm", "query": "inner", "where": "s % 2 = 1"},
            "ecm even": GUARANTEE | {"kind": "ecm", "query": "inner", "where": "s % 2 = 0"},
            "ecm all": GUARANTEE | {"kind": "ecm", "query": "inner", "eps": 0.05},
        },
        "keep": "7d",
    }
    store = new_store(path, **SHOP | about)
    for batch in range(3):
        time = START + timedelta(minutes=10 * (batch + 1), seconds=-1)
        answers = [answer_row("hot", page, 100.0 - batch - i, 90.0, 120.0) for i, page in enumerate(PAGES[:3])]
        answers += [answer_row("latency", "0.5", 500.0 + batch, 480.0, 520.0, site) for site in SITES]
        alert = {"monitor": "rush", "state": "firing" if batch == 1 else "resolved", "value": 120.0, "low": 110.0}
        put_batch(
            store,
            batch,
            time,
            answers=answers,
            alerts=[alert | {"high": float("inf"), "confidence": 0.99}] if batch else [],
            rejected=[
                {"site": site, "time": time, "reason": reason, "row": '{"page":"/[red]"}'}
                for number, site, reason in REJECTED
                if number == batch
            ],
            sites=site_rows(batch, time),
            run=RUN | {"began": START + timedelta(hours=batch)},
        )
    put_sketches(store, 2, START + timedelta(seconds=1799), {site: shop_sketches(site) for site in SITES})
    return store.path


def shop_sketches(site):
    pages, seconds, ms = traffic(site)
    times = np.datetime64("2026-01-01T00:00:00") + seconds.astype("timedelta64[s]")
    sketches = {
        "topk eps=0.01": lt.TopK(k=3, window="1h", **GUARANTEE),
        "quantiles eps=0.02": lt.Quantiles(window="1h", eps=0.02, lo=0, hi=1000, resolution=1),
        "ecm odd": lt.EcmSketch(window="1h", query="inner", **GUARANTEE),
        "ecm even": lt.EcmSketch(window="1h", query="inner", **GUARANTEE),
        "ecm all": lt.EcmSketch(window="1h", eps=0.05, delta=0.01, query="inner"),
    }
    sketches["topk eps=0.01"].update(pages, times)
    sketches["quantiles eps=0.02"].update(ms, times)
    sketches["ecm all"].update(pages, times)
    sketches["ecm odd"].update(pages[1::2], times[1::2])
    sketches["ecm even"].update(pages[0::2], times[0::2])
    return sketches


def make_flows(path):
    """Flows at one site: integer keys, integer times."""
    guarantee = {"eps": 0.05, "delta": 0.05}
    store = new_store(
        path,
        "integer",
        lately=lt.__version__,
        name="flows",
        keys="integer",
        window={"length": 1000, "tick": 1, "lateness": None},
        guarantee=guarantee,
        queries=[{"name": "ports", "kind": "ranges", "sketches": ["dyadic eps=0.05"]}],
        sketches={
            "dyadic eps=0.05": {"kind": "dyadic", **guarantee},
            "ecm eps=0.05": {"kind": "ecm", "query": "point", **guarantee},
        },
        stored="always",
    )
    tree = lt.Dyadic(universe=2**16, window=1000, **guarantee)
    counts = lt.EcmSketch(window=1000, **guarantee)
    for sketch in (tree, counts):
        sketch.update(np.arange(500) % 100, np.arange(500))
    put_sketches(store, 0, 499, {"": {"dyadic eps=0.05": tree, "ecm eps=0.05": counts}})
    put_batch(store, 0, 499, run=RUN)
    return store.path
