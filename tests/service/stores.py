"""Stores as pipelines leave them, small enough that every answer is known: made here without Spark."""

import json
from datetime import UTC, datetime, timedelta

import lately as lt
from lately.store import Store
from lately.store.tables import TIME_TYPES

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GUARANTEE = {"eps": 0.01, "delta": 0.01}
TOP, JOINS, LEFT, RIGHT, TIMES = "topk", "ecm inner", "ecm left", "ecm right", "quantiles"

#: Minutes before noon, key, and milliseconds, by site.
EVENTS = {
    "lima": [(50, "/", 10), (40, "/cart", 20), (8, "/cart", 30), (2, "/", 40)],
    "paris": [(30, "/", 50), (9, "/cart", 60), (5, "/cart", 70), (1, "/pay", 80), (0, "/cart", 90)],
    "tokyo": [(55, "/", 100), (54, "/", 110)],
}
FILTERS = {TOP: None, JOINS: None, LEFT: "event = 'view'", RIGHT: "event = 'buy'", TIMES: None}
ABOUT = {
    "lately": lt.__version__,
    "name": "shop",
    "time_type": "timestamp",
    "keys": "text",
    "window": {"length": "1h", "tick": "1s", "lateness": None},
    "guarantee": GUARANTEE,
    "queries": [
        {"name": "hot", "kind": "top", "last": "10m", "by": "all", "where": None, "k": 10, "sketches": [TOP]},
        {"name": "skew", "kind": "self-join", "last": None, "by": "all", "where": None, "sketches": [JOINS]},
        {"name": "bought", "kind": "join", "last": None, "by": "all", "where": None, "sketches": [LEFT, RIGHT]},
        {"name": "slow", "kind": "quantiles", "last": None, "by": "site", "where": None, "sketches": [TIMES]},
        {"name": "sum", "kind": "exact", "last": None, "by": "all", "where": None, "sketches": []},
    ],
    "monitors": [{"name": "attack", "kind": "self-join", "above": 100.0}],
    "sketches": {
        name: {"kind": name.split()[0], "where": where, "query": "inner" if name.startswith("ecm") else None, **GUARANTEE}
        for name, where in FILTERS.items()
    },
    "keep": None,
    "stored": "always",
}


def at(minutes):
    return NOON - timedelta(minutes=minutes)


def sketch_of(name, site):
    """What a site keeps under a name; the left stream has what is old, the right one what is new."""
    rows = [row for row in EVENTS[site] if name not in (LEFT, RIGHT) or (row[0] >= 9) == (name == LEFT)]
    if name == TIMES:
        made = lt.Quantiles(window="1h", lo=0, hi=1000, resolution=1, **GUARANTEE)
    elif name == TOP:
        made = lt.TopK(window="1h", k=1, **GUARANTEE)
    else:
        made = lt.EcmSketch(window="1h", query="inner", **GUARANTEE)
    if rows:
        rows.sort(reverse=True)
        made.update([row[2] if name == TIMES else row[1] for row in rows], [at(row[0]) for row in rows])
    return made


def run(batch, time=NOON, **more):
    counts = {"rows": 11, "counted": 10, "late": 1, "rejected": 0, "sites": 3, "state_bytes": 5000}
    sent = {"shipped_bytes": 100, "monitor_bytes": 10, "everything_bytes": 10_000}
    began = datetime(2026, 1, 2, tzinfo=UTC)
    return {"batch": batch, "time": time, "began": began, "seconds": 0.5} | counts | sent | more


def answer(batch, query, item, value, site=None, low=None, high=None):
    low, high = value if low is None else low, value if high is None else high
    numbers = {"value": value, "low": low, "high": high, "confidence": 0.99}
    return {"time": NOON, "batch": batch, "query": query, "site": site, "item": item, **numbers}


def alert(batch, state, value=120.0):
    row = answer(batch, "", None, value)
    return {"monitor": "attack", "state": state, **{name: row[name] for name in row if name not in ("query", "site")}}


def put_batch(store, batch, alerts=()):
    """What a pipeline writes after a batch; the file that says it is done comes last."""
    rows = [answer(batch, "hot", "/cart", 4.0 + batch), answer(batch, "slow", "0.5", 25.0, "lima", float("-inf"), float("inf"))]
    store.put("answers", batch, [*rows, answer(batch, "sum", None, float("nan"))])
    if alerts:
        store.put("alerts", batch, list(alerts))
    store.put("runs", batch, [run(batch)])


def put_sketches(store, version, time=NOON, sites=tuple(EVENTS), names=tuple(FILTERS)):
    for site in sites:
        store.put(
            "sketches",
            version,
            [
                {
                    "version": version,
                    "time": time,
                    "site": site,
                    "sketch": name,
                    "kind": name.split()[0],
                    "blob": sketch_of(name, site).to_bytes(),
                }
                for name in names
            ],
            part=site,
        )


def shop(path):
    """Three batches, an alert that fired and was resolved, sketches after the last batch."""
    store = Store(str(path))
    store.prepare()
    store.describe(ABOUT)
    put_batch(store, 0)
    put_batch(store, 1, [alert(1, "firing")])
    put_sketches(store, 2)
    put_batch(store, 2, [alert(2, "resolved", 80.0)])
    return store


def ports(path):
    """Integer keys and integer times: two sites that count ports in the last 100."""
    store = Store(str(path), TIME_TYPES["integer"])
    store.prepare()
    told = {"dyadic": {"kind": "dyadic", "where": None, "query": None, **GUARANTEE}}
    query = {"name": "ports", "kind": "ranges", "last": None, "by": "all", "where": None, "sketches": ["dyadic"]}
    about = {"name": "flows", "time_type": "integer", "keys": "integer", "queries": [query], "monitors": [], "sketches": told}
    store.describe(ABOUT | about | {"window": {"length": 100, "tick": None, "lateness": None}})
    for site, rows in {"a": [(10, 22), (60, 80), (95, 443)], "b": [(50, 80), (90, 8080), (91, 80)]}.items():
        made = lt.Dyadic(window=100, universe=65_536, **GUARANTEE)
        made.update([key for _, key in rows], [time for time, _ in rows])
        row = {"version": 0, "time": 95, "site": site, "sketch": "dyadic", "kind": "dyadic", "blob": made.to_bytes()}
        store.put("sketches", 0, [row], part=site)
    store.put("answers", 0, [answer(0, "ports", "0..1023", 5.0) | {"time": 95}])
    store.put("runs", 0, [run(0, 95)])
    return store


def many_sites(path, sites, time_type="timestamp", batches=30):
    """A store of many sites, each with a sketch of two rows: of 100 sites one is silent since batch 0, one is ahead.

    Every site has the key "/" and one of seven others; the stream's time goes on by 10 seconds, or 10, in each batch. Where
    times are integers they are as large as seconds since 1970.
    """
    is_integer = time_type == "integer"
    store = Store(str(path), TIME_TYPES[time_type])
    store.prepare()
    top = {"name": "hot", "kind": "top", "last": None, "by": "all", "where": None, "k": 10, "sketches": [TOP]}
    about = {"name": "many", "time_type": time_type, "keys": "text", "queries": [top], "monitors": [], "stored": "always"}
    told = {"kind": "topk", "where": None, "query": None, "eps": 0.1, "delta": 0.1}
    window = {"length": 1000 if is_integer else "1000s", "tick": None, "lateness": 20 if is_integer else "20s"}
    store.describe(ABOUT | about | {"sketches": {TOP: told}, "window": window})

    def time_of(batch):
        return 1_790_000_000 + 10 * batch if is_integer else NOON + timedelta(seconds=10 * batch)

    def began(batch):
        return datetime(2026, 1, 2, tzinfo=UTC) + timedelta(minutes=batch)

    newest, far = time_of(batches - 1), 79_200 if is_integer else timedelta(hours=22)
    rows, snapshot = [], []
    for number in range(sites):
        sketch = lt.TopK(window=window["length"], k=1, eps=0.1, delta=0.1)
        sketch.update(["/", f"/{number % 7}"], [newest, newest])
        named = {"site": f"site-{number:04}", "sketch": TOP, "kind": "topk"}
        rows.append({"version": batches - 1, "time": newest, **named, "blob": sketch.to_bytes()})
        is_ahead, last = number % 100 == 5, 0 if number % 100 == 3 else batches - 1
        counts = {"counted": 2 + number, "late": 0, "rejected": 4 * is_ahead, "ahead": 4 * is_ahead}
        time = time_of(last) + far if is_ahead else time_of(last)
        times = {"time": time, "seen": began(last), "ahead_seen": began(last) if is_ahead else None}
        snapshot.append({"batch": batches - 1, "site": named["site"], **times, **counts})
    for part in range(0, sites, 100):
        store.put("sketches", batches - 1, rows[part : part + 100], part=f"{part:05}")
    for batch in range(batches):
        store.put("answers", batch, [answer(batch, "hot", "/", float(sites)) | {"time": time_of(batch)}])
        store.put("late", batch, [refused_row(batch, f"site-{batch:04}", time_of(batch), "late")])
        rejected = [refused_row(batch, None, None, "no time"), refused_row(batch, "", None, f"no key: {batch}")]
        store.put("rejected", batch, rejected)
        if batch == batches - 1:
            store.put("sites", batch, snapshot)
        store.put("runs", batch, [run(batch, time_of(batch), began=began(batch), sites=sites, late=1, rejected=2)])
    return store


def refused_row(batch, site, time, reason):
    return {"batch": batch, "site": site, "time": time, "reason": reason, "row": json.dumps({"batch": batch})}
