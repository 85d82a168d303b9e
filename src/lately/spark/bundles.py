"""Rows put together by site before they are shuffled: a few large values move, and not every row by itself.

What Spark pays for a row on its way through a shuffle is more than what a sketch pays to count it. A bundle is the columns
of one site's rows as Arrow writes them; columns that hold nothing are left out.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lately.spark.partials import grouped, together
from lately.spark.sites import number_of

#: Rows that a task gathers for its bundles.
_ROWS = 2**20

BUNDLES = "task int, site string, rows binary"
_SCHEMA = pa.schema({"task": pa.int32(), "site": pa.string(), "rows": pa.binary()})


class Homes:
    """Which task counts which site: those that are known are dealt out evenly, new ones by their names."""

    def __init__(self, known: Iterable[str], tasks: int) -> None:
        self._known = {site: number % tasks for number, site in enumerate(sorted(known))}
        self._tasks = tasks

    def of(self, site: str | None) -> int:
        """The task of a site, the same for all rows of a batch."""
        if site is None:  # to be rejected, by any
            return 0
        return self._known[site] if site in self._known else number_of(site) % self._tasks


def bundle(homes: Homes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What tasks run to make bundles of rows, whose first column is the site; for ``mapInArrow``."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        size = 0
        for rows in batches:
            waiting.append(rows)
            size += rows.num_rows
            if size >= _ROWS:
                yield _bundles(waiting, homes)
                waiting, size = [], 0
        if size:
            yield _bundles(waiting, homes)

    return run


def _bundles(batches: list[pa.RecordBatch], homes: Homes) -> pa.RecordBatch:
    names = batches[0].schema.names
    columns = [together(list(parts)) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    codes, called = grouped(columns[:1], len(columns[0]))
    held = {
        name: column
        for name, column in zip(names[1:], columns[1:], strict=True)
        if column.null_count < len(column) or name == names[1]  # one must tell how many rows there are
    }
    order = pa.array(np.argsort(codes, kind="stable"))
    rows = pa.record_batch({name: column.take(order) for name, column in held.items()})
    sizes = np.bincount(codes, minlength=len(called)).tolist()
    starts = [0, *np.cumsum(sizes)[:-1].tolist()]
    blobs = [_written(rows.slice(start, size)) for start, size in zip(starts, sizes, strict=True)]
    sites = [site_name(name) for (name,) in called]
    return pa.record_batch([pa.array([homes.of(site) for site in sites], pa.int32()), sites, blobs], schema=_SCHEMA)


def site_name(site: Any) -> str | None:
    """Integers cross as such, which is cheaper than as text, and become names here."""
    return None if site is None else str(site)


def _written(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unbundled(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of bundles, with all the columns that they had."""
    for batch in batches:
        for site, blob in zip(batch.column("site").to_pylist(), batch.column("rows"), strict=True):
            for rows in pa.ipc.open_stream(blob.as_buffer()):
                yield _whole(site, rows, schema)


def _whole(site: str | None, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    size = rows.num_rows
    codes = pa.array(np.zeros(size, np.int8), mask=np.full(size, site is None))
    columns: list[Any] = [pa.DictionaryArray.from_arrays(codes, pa.array([site or ""], pa.string()))]
    for field in list(schema)[1:]:
        columns.append(rows.column(field.name) if field.name in rows.schema.names else pa.nulls(size, field.type))
    return pa.record_batch(columns, names=schema.names)
