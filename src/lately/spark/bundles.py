"""Rows put together by task before they are shuffled: a few large values move, and not every row by itself.

What Spark pays for a row on its way through a shuffle is more than what a sketch pays to count it. A bundle is the columns
of the rows of all sites that one task counts, as Arrow writes them: the names of those sites once each, and a code in every
row. Columns that hold nothing are left out. A bundle costs the same however few rows each of its sites has.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lately.pipeline.site_assignment import SiteAssignment
from lately.spark.partials import grouped, together

#: Rows that a task gathers for its bundles.
_ROWS = 2**20

BUNDLES = "task int, rows binary"
_SCHEMA = pa.schema({"task": pa.int32(), "rows": pa.binary()})


def bundle(homes: SiteAssignment) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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


def _bundles(batches: list[pa.RecordBatch], homes: SiteAssignment) -> pa.RecordBatch:
    names = batches[0].schema.names
    columns = [together(list(parts)) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    codes, called = grouped(columns[:1], len(columns[0]))
    sites = [site_name(name) for (name,) in called]
    home = np.array([homes.of(site) for site in sites], np.int32)
    # Sites by their tasks: those of a task are neighbours then, and so are the rows of a site.
    by_task = np.argsort(home, kind="stable")
    rank = np.empty(len(sites), np.int32)
    rank[by_task] = np.arange(len(sites), dtype=np.int32)
    ranks = rank[codes]
    order = np.argsort(ranks, kind="stable")
    ranks = ranks[order]
    moved = {
        name: column.take(pa.array(order))
        for name, column in zip(names[1:], columns[1:], strict=True)
        if column.null_count < len(column)
    }
    tasks, firsts = np.unique(home[by_task], return_index=True)
    blobs = []
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(sites)], strict=True):
        start, stop = np.searchsorted(ranks, (first, end)).tolist()
        mine = [sites[i] for i in by_task[first:end].tolist()]
        site = _coded(ranks[start:stop] - first, mine)
        blobs.append(
            _written(pa.record_batch({names[0]: site} | {name: c.slice(start, stop - start) for name, c in moved.items()}))
        )
    return pa.record_batch([pa.array(tasks, pa.int32()), pa.array(blobs, pa.binary())], schema=_SCHEMA)


def _coded(codes: Any, sites: list[str | None]) -> pa.DictionaryArray:
    """The sites of rows; NULL is no name, but a code that is missing. Codes of 32 bits are enough for any two of these."""
    missing = np.array([site is None for site in sites])
    names = pa.array([site or "" for site in sites], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=missing[codes]), names)


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
        for blob in batch.column("rows"):
            for rows in pa.ipc.open_stream(blob.as_buffer()):
                yield _whole(rows, schema)


def _whole(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    held = set(rows.schema.names)
    columns = [rows.column(f.name) if f.name in held else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.record_batch(columns, names=schema.names)
