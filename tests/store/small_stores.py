"""Stores for tests: what batches leave in them, and filesystems on which things go wrong."""

from pyarrow import fs
from store_builder import new_store, put_batch, site_row, time_at

from lately.store import Store, tables


def filled(path, batches, time_type="integer", sketches_every=5, sites=0):
    """A store with so many batches, 10 of time apart: each has answers, some have late rows, alerts or sketches."""
    store = new_store(path, time_type)
    for batch in range(batches):
        add_batch(store, batch, time_at(10 * batch, time_type), sketches_every, sites)
    return store


def add_batch(store, batch, time, sketches_every=5, sites=0):
    if batch % 4 == 1:
        for part in ("0000", "0001"):
            store.put("late", batch, [{"batch": batch, "site": part, "reason": "late", "row": "{}"}], part)
    if sketches_every is not None and batch % sketches_every == 0:
        for part in ("00000", "00001"):
            store.put("sketches", batch, [{"version": batch, "time": time, "site": part, "blob": b"x"}], part)
    put_batch(
        store,
        batch,
        time,
        answers=[{"query": "hot", "item": f"/{i}", "value": i} for i in range(3)],
        alerts=[{"monitor": "rush", "state": "firing"}] if batch % 7 == 2 else [],
        sites=[site_row(batch, f"site-{number:04}", time) for number in range(sites)],
        run={"rows": 10},
    )


def everything(store):
    """All rows, as a reader sees them."""
    return {table: store.read(table).to_pylist() for table in tables()}


def names(store, table):
    return [file.name for file in store.all_files(table)]


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
