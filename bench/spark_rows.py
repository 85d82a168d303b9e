"""The rows that the benchmark of Spark reads: Parquet files in a directory that is gone afterwards."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import Ints, Stream, texts, zipf
from bench.spark_jobs import SITES

START = 1_699_999_200  # a full hour
SPAN = 2 * 3600
#: Rows that are made at a time, which is also a group of rows in the file.
_PART = 1_000_000


def times(rows: int, part: slice) -> Ints:
    """Seconds in order, so many rows in two hours."""
    return START + np.arange(part.start, part.stop, dtype=np.int64) * SPAN // rows


def parts(rows: int, size: int = _PART) -> list[slice]:
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]


def integers(path: Path, rows: int, universe: int, *, exponent: float = 1.1) -> Path:
    """site, key and ts: Zipf keys, at random sites, over two hours."""
    return _write(path, rows, zipf(rows, exponent=exponent, universe=universe), None)


def uniform(path: Path, rows: int, universe: int) -> Path:
    """The same, with every key as likely as any other."""
    return _write(path, rows, np.random.default_rng(8).integers(0, universe, rows), None)


def words(path: Path, rows: int, universe: int) -> Path:
    """The same, with keys of 20 bytes of text."""
    return _write(path, rows, zipf(rows, universe=universe), texts(universe))


def _write(path: Path, rows: int, keys: Ints, names: Any) -> Path:
    sites = np.random.default_rng(11).integers(0, SITES, rows).astype(np.int32)
    kind = pa.int64() if names is None else pa.string()
    schema = pa.schema([("site", pa.int32()), ("key", kind), ("ts", pa.int64())])
    with pq.ParquetWriter(path, schema) as file:
        for part in parts(rows):
            column = pa.array(keys[part]) if names is None else names.take(pa.array(keys[part]))
            file.write_table(pa.table([sites[part], column, times(rows, part)], schema=schema), row_group_size=_PART)
    return path


def of_stream(path: Path, stream: Stream) -> tuple[Path, Ints]:
    """ts (a timestamp) and key (text) of a stream, over 88 minutes unless it has times; and the seconds."""
    size = len(stream)
    seconds = START + np.arange(size) * 88 * 60 // size if stream.seconds is None else stream.seconds
    if int(seconds[-1]) >= 10**11:  # milliseconds, as some files have them
        seconds = seconds // 1000
    schema = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    with pq.ParquetWriter(path, schema) as file:
        for part in parts(size):
            stamps = pa.array(seconds[part] * 1_000_000, pa.timestamp("us", "UTC"))
            file.write_table(pa.table([stream.keys(part).cast(pa.string()), stamps], schema=schema), row_group_size=_PART)
    return path, seconds


def dealt(path: Path, stream: Stream) -> Path:
    """site, key (text) and ts of a stream, dealt out to sites at random."""
    size = len(stream)
    seconds = times(size, slice(0, size)) if stream.seconds is None else stream.seconds
    sites = np.random.default_rng(11).integers(0, SITES, size).astype(np.int32)
    schema = pa.schema([("site", pa.int32()), ("key", pa.string()), ("ts", pa.int64())])
    with pq.ParquetWriter(path, schema) as file:
        for part in parts(size):
            columns = [sites[part], stream.keys(part).cast(pa.string()), seconds[part]]
            file.write_table(pa.table(columns, schema=schema), row_group_size=_PART)
    return path
