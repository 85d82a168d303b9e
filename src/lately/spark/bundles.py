"""Bundles: rows are grouped by task before they are shuffled, so that Spark moves a few large values instead of single rows.

Spark's cost of shuffling a row is higher than the cost of counting it in a sketch. A bundle holds the rows of all sites that
one task counts, as an Arrow stream: the name of every site once, and its code in every row. Columns that are entirely NULL are
left out. The cost of a bundle depends on its rows, not on the number of their sites.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lately.pipeline.site_assignment import SiteAssignment
from lately.spark.partials import concatenate, number_groups

#: How many rows a task gathers before it makes bundles of them.
_ROWS = 2**20

BUNDLES = "task int, rows binary"
_SCHEMA = pa.schema({"task": pa.int32(), "rows": pa.binary()})


def bundle(assignment: SiteAssignment) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that makes bundles of rows, for ``mapInArrow``. The first column of rows is the site.

    Parameters
    ----------
    assignment
        The task of every site.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered: list[pa.RecordBatch] = []
        size = 0
        for rows in batches:
            gathered.append(rows)
            size += rows.num_rows
            if size >= _ROWS:
                yield _bundles(gathered, assignment)
                gathered, size = [], 0
        if size:
            yield _bundles(gathered, assignment)

    return run


def _bundles(batches: list[pa.RecordBatch], assignment: SiteAssignment) -> pa.RecordBatch:
    names = batches[0].schema.names
    columns = [concatenate(list(parts)) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    codes, groups = number_groups(columns[:1], len(columns[0]))
    sites = [site_name(name) for (name,) in groups]
    task_of = np.array([assignment.task_of(site) for site in sites], np.int32)
    # Ranking sites by task makes the sites of a task contiguous, and with them the rows of a site.
    by_task = np.argsort(task_of, kind="stable")
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
    tasks, firsts = np.unique(task_of[by_task], return_index=True)
    blobs = []
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(sites)], strict=True):
        start, stop = np.searchsorted(ranks, (first, end)).tolist()
        site = _site_column(ranks[start:stop] - first, [sites[i] for i in by_task[first:end].tolist()])
        blobs.append(
            _to_bytes(pa.record_batch({names[0]: site} | {name: c.slice(start, stop - start) for name, c in moved.items()}))
        )
    return pa.record_batch([pa.array(tasks, pa.int32()), pa.array(blobs, pa.binary())], schema=_SCHEMA)


def _site_column(codes: Any, sites: list[str | None]) -> pa.DictionaryArray:
    """Return the sites of rows as a dictionary. NULL is a NULL code; codes are always int32, so that arrays concatenate."""
    missing = np.array([site is None for site in sites])
    names = pa.array([site or "" for site in sites], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=missing[codes]), names)


def site_name(site: Any) -> str | None:
    """Return the name of a site. Sites that are integers are passed as integers, which is cheaper than text.

    Parameters
    ----------
    site
        A string, an integer, or None.
    """
    return None if site is None else str(site)


def _to_bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unbundle(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of bundles, with the columns that were left out.

    Parameters
    ----------
    batches
        Bundles, as ``bundle`` yields them.
    schema
        The columns of rows, before they were bundled.
    """
    for batch in batches:
        for blob in batch.column("rows"):
            for rows in pa.ipc.open_stream(blob.as_buffer()):
                yield _with_all_columns(rows, schema)


def _with_all_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    present = set(rows.schema.names)
    columns = [rows.column(f.name) if f.name in present else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.record_batch(columns, names=schema.names)
