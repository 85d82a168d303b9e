"""Sketches of Parquet files, which the Python workers read without the JVM.

Spark schedules the tasks; rows never enter the JVM, and workers return only sketches. That is several times faster than
``lately.spark.sketch`` of a DataFrame, but there are no pushed-down filters, no table formats such as Delta, and no columns
computed in SQL.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lately.core.errors import InputError, ParameterError
from lately.core.keys import hash_keys
from lately.core.paths import filesystem_of
from lately.pipeline.sketch_recipe import KindName, SketchRecipe
from lately.spark.frames import FAN, Names, counts_of, key_of, merge_partials, names, partial_rows, time_of
from lately.spark.partials import Partials

#: How many rows a worker decodes at a time.
_ROWS = 2**17
#: How many file footers the driver reads in parallel.
_FOOTERS = 16


def sketch_files(
    path: str | Sequence[str],
    *,
    key: str | Sequence[str],
    time: str,
    by: Names = None,
    count: str | None = None,
    kind: KindName = "ecm",
    tasks: int | None = None,
    fan: int = FAN,
    filesystem: Any = None,
    spark: SparkSession | None = None,
    **options: Any,
) -> DataFrame:
    """Sketch Parquet files by group. The result has the columns of ``lately.spark.sketch``, several times as fast.

    Neighbouring row groups go to the same task, so that files in time order need little merging.

    Parameters
    ----------
    path
        A file, a directory, or a list of files, on any filesystem that pyarrow or fsspec supports: local, ``s3://``, ``gs://``,
        ``hdfs://``. A directory may have partitions such as ``site=paris/…``; ``by`` may name their columns.
    key
        The column of the key, or several columns that form the key together.
    time
        The column of event times: timestamps, dates, or numbers.
    by
        The column or columns to group by. By default there is one group.
    count
        A column of integers that says how many events a row represents. By default 1.
    kind
        The kind of sketch: "ecm" (the default), "topk", "quantiles", "dyadic", "wcm" or "ams".
    tasks
        How many tasks read the files, at least 1; by default Spark's default parallelism.
    fan
        How many sketches one task merges at a time, at least 2; by default 64.
    filesystem
        A pyarrow or fsspec filesystem for ``path``. By default it follows from the path.
    spark
        The session; by default the active one.
    options
        The parameters of the sketch class, such as ``window="1h", eps=0.01, delta=0.01``.

        sites = lately.spark.sketch_files("events/", key="url", time="ts", by="site", window="1h", eps=0.01, delta=0.01)
    """
    recipe, groups, keys = SketchRecipe.of(kind, **options), names(by), names(key)
    source = _dataset(path, filesystem, keys if recipe.key_encoding in ("hash", "key") else [])
    columns = list(dict.fromkeys([*keys, time, *([count] if count else []), *groups]))
    for name in columns:
        if name not in source.schema.names:
            raise ParameterError(
                f"no column {name!r} in {path!r}", remedy=f"the files have {', '.join(map(repr, source.schema.names))}"
            )
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ParameterError("no active Spark session", remedy="start one with lately.spark.session(), or pass spark=")
    schema = source.schema
    empty_frame = session.createDataFrame([], _spark_schema(pa.schema([_spark_field(schema.field(name)) for name in columns])))
    key_of(empty_frame, key, recipe)  # these three raise if a column cannot be a key, a time or a count
    time_of(empty_frame, time, recipe)
    counts_of(empty_frame, count)
    pieces = _pieces(path, source, session.sparkContext.defaultParallelism if tasks is None else tasks)
    by_schema = pa.schema([_spark_field(schema.field(name)) for name in groups])
    out = by_schema.append(pa.field("sketch", pa.binary())).append(pa.field("skipped", pa.int64()))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = Partials(recipe)
                for piece in pieces[number]:
                    for rows in piece.to_batches(schema=schema, columns=columns, batch_size=_ROWS, use_threads=False):
                        _add(task, rows, recipe, (keys, time, count, groups))
                yield from partial_rows(task, recipe, out)

    numbers = session.range(0, len(pieces), 1, len(pieces))
    partials = numbers.mapInArrow(run, _spark_schema(out))
    return merge_partials(partials, recipe, groups, fan, len(pieces))


def _dataset(path: str | Sequence[str], filesystem: Any, keys: list[str]) -> Any:
    import pyarrow.dataset as ds

    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise ParameterError("path=[]", remedy="name at least one Parquet file or directory")
    files, first = filesystem_of(paths[0], filesystem)
    inner_paths = [first, *(filesystem_of(path, filesystem)[1] for path in paths[1:])]
    # Keys that Parquet stores in a dictionary stay encoded: each distinct key is hashed once.
    form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=set(keys)))
    try:
        source = ds.dataset(inner_paths if len(inner_paths) > 1 else first, filesystem=files, partitioning="hive", format=form)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot read {path!r} as Parquet: {error}") from error
    if not source.files:
        raise InputError(f"no Parquet files in {path!r}", remedy="check the path")
    return source


def _pieces(path: str | Sequence[str], source: Any, tasks: int) -> list[list[Any]]:
    """Divide the row groups among tasks: neighbours together, about the same number of rows for each task."""
    if tasks < 1:
        raise ParameterError(f"tasks={tasks} is below 1", remedy="give at least 1")
    try:
        with ThreadPoolExecutor(_FOOTERS) as pool:
            split = pool.map(lambda fragment: fragment.split_by_row_group(), source.get_fragments())
            groups = [part for parts in split for part in parts]
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot read {path!r} as Parquet: {error}") from error
    total, assigned = sum(part.row_groups[0].num_rows for part in groups), 0
    pieces: list[list[Any]] = [[] for _ in range(tasks)]
    for part in groups:
        rows = part.row_groups[0].num_rows
        pieces[min(tasks * (2 * assigned + rows) // (2 * total or 1), tasks - 1)].append(part)
        assigned += rows
    return [piece for piece in pieces if piece] or [[]]


def _add(
    task: Partials, rows: pa.RecordBatch, recipe: SketchRecipe, columns: tuple[list[str], str, str | None, list[str]]
) -> None:
    keys, time, count, groups = columns
    column = _key([rows.column(name) for name in keys], keys, recipe)
    task.add(column, rows.column(time), None if count is None else rows.column(count), [rows.column(name) for name in groups])


def _key(parts: list[Any], names: list[str], recipe: SketchRecipe) -> Any:
    """Return the key column as ``frames.key_of`` computes it. NULL if any part of the key is NULL."""
    if recipe.key_encoding in ("integer", "number"):
        return parts[0].cast(pa.int64() if recipe.key_encoding == "integer" else pa.float64())
    is_complete = np.logical_and.reduce([part.is_valid().to_numpy(zero_copy_only=False) for part in parts])
    column = parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, names=names, mask=pa.array(~is_complete))
    if recipe.key_encoding == "key":
        return column
    hashes = np.zeros(len(column), np.int64)
    complete = column if is_complete.all() else column.filter(pa.array(is_complete))
    hashes[is_complete] = hash_keys(complete).view(np.int64)
    return pa.array(hashes, mask=~is_complete)


def _spark_field(field: pa.Field) -> pa.Field:
    """Return a field with a type that Spark has: that of a dictionary's values, and signed integers."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, pa.int64() if pa.types.is_unsigned_integer(kind) else kind)


def _spark_schema(schema: pa.Schema) -> T.StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
