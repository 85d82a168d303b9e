"""Stores for tests: what batches leave in them, and filesystems on which things go wrong."""

from datetime import UTC, datetime, timedelta

from pyarrow import fs

from lately.store import Store, tables
from lately.store.tables import TIME_TYPES

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
INTEGERS = TIME_TYPES["integer"]


def filled(path, batches, time_type=INTEGERS, step=10, sketches_every=5, sites=0):
    """A store with so many batches, ``step`` of time apart: each has answers, some have late rows, alerts or sketches."""
    store = Store(str(path), time_type)
    store.prepare()
    store.describe({"time_type": "integer" if time_type == INTEGERS else "timestamp"})
    for batch in range(batches):
        add_batch(store, batch, at(batch, time_type, step), sketches_every, sites)
    return store


def at(batch, time_type=INTEGERS, step=10):
    return step * batch if time_type == INTEGERS else NOON + timedelta(seconds=step * batch)


def add_batch(store, batch, time, sketches_every=5, sites=0):
    store.put("answers", batch, [{"time": time, "batch": batch, "query": "hot", "item": f"/{i}", "value": i} for i in range(3)])
    if batch % 4 == 1:
        for part in ("0000", "0001"):
            store.put("late", batch, [{"batch": batch, "site": part, "reason": "late", "row": "{}"}], part)
    if batch % 7 == 2:
        store.put("alerts", batch, [{"time": time, "batch": batch, "monitor": "rush", "state": "firing"}])
    if sketches_every is not None and batch % sketches_every == 0:
        for part in ("00000", "00001"):
            store.put("sketches", batch, [{"version": batch, "time": time, "site": part, "blob": b"x"}], part)
    store.put("sites", batch, [site_row(batch, f"site-{number:04}", time) for number in range(sites)])
    store.put("runs", batch, [{"batch": batch, "time": time, "rows": 10}])


def site_row(batch, site, time, **more):
    """What a snapshot has of a site that had a row in this batch."""
    seen = NOON + timedelta(seconds=batch)
    counts = {"counted": 10 * (batch + 1), "late": 0, "rejected": 0, "ahead": 0}
    return {"batch": batch, "site": site, "time": time, "seen": seen, **counts, "ahead_seen": None, **more}


def everything(store):
    """All rows, as a reader sees them."""
    return {table: store.read(table).to_pylist() for table in tables()}


def names(store, table):
    return [one.name for one in store.all_files(table)]


def all_names(store):
    return {table: names(store, table) for table in tables()}


class PowerCutError(Exception):
    """The lights went out."""


class Faulty(fs.LocalFileSystem):
    """A disk on which the power fails before the n-th change; ``seen`` is called before every change."""

    def __init__(self, changes=None, seen=None):
        super().__init__()
        self.left, self.seen, self.changes = changes, seen, 0

    def _change(self):
        if self.seen is not None:
            self.seen()
        if self.left is not None:
            if self.left == 0:
                raise PowerCutError
            self.left -= 1
        self.changes += 1

    def delete_file(self, path):
        self._change()
        super().delete_file(path)

    def move(self, src, dest):
        self._change()
        super().move(src, dest)

    def open_output_stream(self, path, *args, **kwargs):
        self._change()
        return super().open_output_stream(path, *args, **kwargs)


def on(store, filesystem):
    """The same store on another filesystem."""
    other = Store(store.path, store.schema("runs").field("time").type)
    other._fs = filesystem
    return other
