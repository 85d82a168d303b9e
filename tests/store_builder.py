"""Stores for tests, written through ``lately.store`` as a pipeline writes them, but without Spark.

    store = new_store(path, keys="text", sketches={"topk": {"kind": "topk"}})
    put_sketches(store, 3, NOON, {"lima": {"topk": sketch}})
    put_batch(store, 3, NOON, answers=[answer_row("hot", "/cart", 2.0)], run=RUN)

Entries of about.json and columns that a test does not give have their defaults.
"""

from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta

import lately as lt
from lately.store import Store
from lately.store.tables import TIME_TYPES

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
INTEGERS = TIME_TYPES["integer"]
GUARANTEE = {"eps": 0.01, "delta": 0.01}
#: Entries of about.json of a pipeline that counts web traffic: text keys at timestamps.
SHOP = {
    "lately": lt.__version__,
    "name": "shop",
    "time_type": "timestamp",
    "keys": "text",
    "window": {"length": "1h", "tick": "1s", "lateness": None},
    "guarantee": GUARANTEE,
    "stored": "always",
}
#: Columns of ``runs``, no two numbers of rows or of bytes alike.
RUN = {
    "began": datetime(2026, 1, 2, tzinfo=UTC), "seconds": 0.25, "rows": 1800, "counted": 1790, "late": 7, "rejected": 3,
    "sites": 3, "state_bytes": 30_000, "shipped_bytes": 2_048, "monitor_bytes": 512, "everything_bytes": 90_000,
}  # fmt: skip


def new_store(path, time_type="timestamp", **about):
    """A store without batches, whose about.json has these entries."""
    store = Store(str(path), TIME_TYPES[time_type])
    store.prepare()
    store.describe({"time_type": time_type, **about})
    return store


def time_at(ticks, time_type):
    """A time of the stream: the integer, or so many seconds after noon."""
    return ticks if time_type == "integer" else NOON + timedelta(seconds=ticks)


def duration(ticks, time_type):
    return ticks if ticks is None or time_type == "integer" else f"{ticks}s"


def put_batch(store, batch, time, run=(), **tables):
    """Write the rows of a batch by table, and last its row of ``runs``, which says that the batch has finished.

    Mappings get the number of the batch, and in ``answers`` and ``alerts`` its time.
    """
    for table, rows in tables.items():
        common = {"batch": batch, "time": time} if table in ("answers", "alerts") else {"batch": batch}
        store.put(table, batch, [row if is_dataclass(row) else common | row for row in rows])
    store.put("runs", batch, [{"batch": batch, "time": time, **dict(run)}])


def put_sketches(store, version, time, by_site):
    """Write the sketches of sites, a file for each: {site: {name: sketch}}."""
    for site, sketches in by_site.items():
        store.put("sketches", version, sketch_rows(version, time, site, sketches), part=site)


def sketch_rows(version, time, site, sketches):
    """Rows of sketches by name, whose first word is their kind."""
    common = {"version": version, "time": time, "site": site}
    return [common | {"sketch": name, "kind": name.split()[0], "blob": sketch.to_bytes()} for name, sketch in sketches.items()]


def answer_row(query, item, value, low=None, high=None, site=None):
    """A row of ``answers``; without bounds the value is exact."""
    low, high = value if low is None else low, value if high is None else high
    return {"query": query, "site": site, "item": item, "value": value, "low": low, "high": high, "confidence": 0.99}


def site_row(batch, site, time, **columns):
    """A row of ``sites`` of a site that had a row in this batch."""
    seen = NOON + timedelta(seconds=batch)
    counts = {"counted": 10 * (batch + 1), "late": 0, "rejected": 0, "ahead": 0}
    return {"batch": batch, "site": site, "time": time, "seen": seen, **counts, "ahead_seen": None, **columns}
