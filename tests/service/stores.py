"""Stores as pipelines leave them, small enough that every answer is known: made here without Spark."""

import json
from datetime import timedelta

from store_builder import (
    GUARANTEE,
    NOON,
    RUN,
    SHOP,
    answer_row,
    duration,
    new_store,
    put_batch,
    put_sketches,
    site_row,
    sketch_rows,
    time_at,
)

import lately as lt

TOP, JOINS, LEFT, RIGHT, TIMES = "topk", "ecm inner", "ecm left", "ecm right", "quantiles"

#: Minutes before noon, key, and milliseconds, by site.
EVENTS = {
    "lima": [(50, "/", 10), (40, "/cart", 20), (8, "/cart", 30), (2, "/", 40)],
    "paris": [(30, "/", 50), (9, "/cart", 60), (5, "/cart", 70), (1, "/pay", 80), (0, "/cart", 90)],
    "tokyo": [(55, "/", 100), (54, "/", 110)],
}
FILTERS = {TOP: None, JOINS: None, LEFT: "event = 'view'", RIGHT: "event = 'buy'", TIMES: None}
ABOUT = SHOP | {
    "queries": [
        {"name": "hot", "kind": "top", "last": "10m", "k": 10, "sketches": [TOP]},
        {"name": "skew", "kind": "self-join", "sketches": [JOINS]},
        {"name": "bought", "kind": "join", "sketches": [LEFT, RIGHT]},
        {"name": "slow", "kind": "quantiles", "by": "site", "sketches": [TIMES]},
        {"name": "sum", "kind": "exact", "sketches": []},
    ],
    "monitors": [{"name": "attack", "kind": "self-join", "above": 100.0}],
    "sketches": {
        name: {"kind": name.split()[0], "where": where, "query": "inner" if name.startswith("ecm") else None, **GUARANTEE}
        for name, where in FILTERS.items()
    },
}


def at(minutes):
    return NOON - timedelta(minutes=minutes)


def sketch_of(name, site):
    """What a site keeps under a name; the left stream has what is old, the right one what is new."""
    rows = [row for row in EVENTS[site] if name not in (LEFT, RIGHT) or (row[0] >= 9) == (name == LEFT)]
    if name == TIMES:
        sketch = lt.Quantiles(window="1h", lo=0, hi=1000, resolution=1, **GUARANTEE)
    elif name == TOP:
        sketch = lt.TopK(window="1h", k=1, **GUARANTEE)
    else:
        sketch = lt.EcmSketch(window="1h", query="inner", **GUARANTEE)
    if rows:
        rows.sort(reverse=True)
        sketch.update([row[2] if name == TIMES else row[1] for row in rows], [at(row[0]) for row in rows])
    return sketch


def alert(state, value=120.0):
    return {"monitor": "attack", "state": state, "value": value, "low": value, "high": value, "confidence": 0.99}


def put_shop_batch(store, batch, alerts=()):
    answers = [
        answer_row("hot", "/cart", 4.0 + batch),
        answer_row("slow", "0.5", 25.0, float("-inf"), float("inf"), "lima"),
        answer_row("sum", None, float("nan")),
    ]
    put_batch(store, batch, NOON, answers=answers, alerts=alerts, run=RUN)


def shop_sketches(sites=tuple(EVENTS)):
    return {site: {name: sketch_of(name, site) for name in FILTERS} for site in sites}


def shop(path):
    """Three batches, an alert that fired and was resolved, sketches after the last batch."""
    store = new_store(path, **ABOUT)
    put_shop_batch(store, 0)
    put_shop_batch(store, 1, [alert("firing")])
    put_sketches(store, 2, NOON, shop_sketches())
    put_shop_batch(store, 2, [alert("resolved", 80.0)])
    return store


def ports(path):
    """Integer keys and integer times: two sites that count ports in the last 100."""
    about = {
        "name": "flows",
        "time_type": "integer",
        "keys": "integer",
        "window": {"length": 100, "tick": None, "lateness": None},
        "queries": [{"name": "ports", "kind": "ranges", "sketches": ["dyadic"]}],
        "sketches": {"dyadic": {"kind": "dyadic", **GUARANTEE}},
    }
    store = new_store(path, **SHOP | about)
    for site, rows in {"a": [(10, 22), (60, 80), (95, 443)], "b": [(50, 80), (90, 8080), (91, 80)]}.items():
        sketch = lt.Dyadic(window=100, universe=65_536, **GUARANTEE)
        sketch.update([key for _, key in rows], [time for time, _ in rows])
        put_sketches(store, 0, 95, {site: {"dyadic": sketch}})
    put_batch(store, 0, 95, answers=[answer_row("ports", "0..1023", 5.0)], run=RUN)
    return store


def many_sites(path, sites, time_type="timestamp", batches=30):
    """A store of many sites, each with a sketch of two rows: of 100 sites one is silent since batch 0, one is ahead.

    Every site has the key "/" and one of seven others; the stream's time goes on by 10 seconds, or 10, in each batch. Where
    times are integers they are as large as seconds since 1970.
    """
    window = {"length": duration(1000, time_type), "tick": None, "lateness": duration(20, time_type)}
    about = {
        "name": "many",
        "time_type": time_type,
        "window": window,
        "queries": [{"name": "hot", "kind": "top", "k": 10, "sketches": [TOP]}],
        "sketches": {TOP: {"kind": "topk", "eps": 0.1, "delta": 0.1}},
    }
    store = new_store(path, **SHOP | about)
    first = 1_790_000_000 if time_type == "integer" else 0

    def began(batch):
        return RUN["began"] + timedelta(minutes=batch)

    newest = first + 10 * (batches - 1)
    rows, snapshot = [], []
    for number in range(sites):
        sketch = lt.TopK(window=window["length"], k=1, eps=0.1, delta=0.1)
        sketch.update(["/", f"/{number % 7}"], [time_at(newest, time_type)] * 2)
        rows += sketch_rows(batches - 1, time_at(newest, time_type), f"site-{number:04}", {TOP: sketch})
        is_ahead, last = number % 100 == 5, 0 if number % 100 == 3 else batches - 1
        time = time_at(first + 10 * last + 79_200 * is_ahead, time_type)
        counts = {"counted": 2 + number, "rejected": 4 * is_ahead, "ahead": 4 * is_ahead}
        ahead_seen = began(last) if is_ahead else None
        snapshot.append(site_row(batches - 1, f"site-{number:04}", time, seen=began(last), ahead_seen=ahead_seen, **counts))
    for part in range(0, sites, 100):
        store.put("sketches", batches - 1, rows[part : part + 100], part=f"{part:05}")
    for batch in range(batches):
        time, row = time_at(first + 10 * batch, time_type), json.dumps({"batch": batch})
        put_batch(
            store,
            batch,
            time,
            answers=[answer_row("hot", "/", float(sites))],
            late=[{"site": f"site-{batch:04}", "time": time, "reason": "late", "row": row}],
            rejected=[{"reason": "no time", "row": row}, {"site": "", "reason": f"no key: {batch}", "row": row}],
            sites=snapshot if batch == batches - 1 else [],
            run=RUN | {"began": began(batch), "sites": sites, "late": 1, "rejected": 2},
        )
    return store
