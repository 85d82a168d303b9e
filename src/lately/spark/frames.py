"""Sketches of a DataFrame: every task sketches its partition, then sketches are merged by group. Rows are never shuffled.

    partition ──mapInArrow──> a sketch for each group ──┐
    partition ──mapInArrow──> a sketch for each group ──┼──by group──> merged ──> one row for each group
    partition ──mapInArrow──> a sketch for each group ──┘

The shuffle moves at most groups × partitions sketches, whatever the number of rows. The alternative is to count equal rows in
the JVM first (``groupBy(by, key, tick).count()``), which shuffles rows; ``lately bench spark`` compares the two.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.core.codec import from_trusted_bytes
from lately.core.errors import ParameterError
from lately.ingest.merging import merge as merge_sketches
from lately.pipeline.sketch_recipe import KindName, SketchRecipe
from lately.spark.arrow_types import arrow_schema
from lately.spark.partials import Partials

#: The number of sketches that one task merges at a time. More are merged in two steps, which bounds the memory of an executor
#: and costs one more level of merge error.
FAN = 64

Names = str | Sequence[str] | None


def sketch(
    df: DataFrame,
    *,
    key: str | Sequence[str],
    time: str,
    by: Names = None,
    count: str | None = None,
    kind: KindName = "ecm",
    fan: int = FAN,
    **options: Any,
) -> DataFrame:
    """Sketch a DataFrame by group.

    The result has one row for each group: the columns ``by``, ``sketch`` (bytes), ``arrivals`` (how many events were counted),
    ``skipped`` (rows without a key, time or count, which are left out), ``newest`` (the latest time), ``merges`` (the levels of
    merging) and ``bytes``. Nothing runs before the result is used. ``lt.from_bytes`` and ``lately.spark.functions`` read the
    sketches.

    Every partition is sketched by its task, then sketches are merged by group: in one step, for which ``merge_height=1`` keeps
    eps, or in two if there are more than ``fan`` partitions. A group whose rows are in one partition, in time order, is not
    merged: its sketch has exactly the bytes that the library makes of those rows.

    Parameters
    ----------
    df
        The events, one per row.
    key
        The column of the key, or several columns that form the key together: integers, strings or binary ("quantiles" takes
        one column of numbers, "dyadic" one of integers).
    time
        The column of event times: timestamps, dates, or numbers (seconds since 1970, or integers of the window's unit).
    by
        The column or columns to group by. By default there is one group.
    count
        A column of integers that says how many events a row represents. By default 1.
    kind
        The kind of sketch: "ecm" (the default), "topk", "quantiles", "dyadic", "wcm" or "ams".
    fan
        How many sketches one task merges at a time, at least 2; by default 64.
    options
        The parameters of the sketch class, such as ``window="1h", eps=0.01, delta=0.01``.

        sites = lately.spark.sketch(df, key="url", time="ts", by="site", window="1h", eps=0.01, delta=0.01)
    """
    recipe, groups = SketchRecipe.of(kind, **options), names(by)
    columns = [
        key_of(df, key, recipe),
        time_of(df, time, recipe),
        *counts_of(df, count),
        *(_col(df, name) for name in groups),
    ]
    partials = sketch_partitions(df.select(*columns), recipe, count is not None)
    return merge_partials(partials, recipe, groups, fan, df.rdd.getNumPartitions() if fan > 0 else 1)


def merge(df: DataFrame, *, by: Names = None, sketch: str = "sketch") -> DataFrame:
    """Merge sketches by group, in one step. The result has the columns of ``lately.spark.sketch``.

    If there are columns ``skipped`` and ``newest``, as in a result of ``lately.spark.sketch``, the first is summed and the
    second determines the type of ``newest``. Otherwise ``skipped`` is 0, and ``newest`` is a timestamp, NULL if times are
    integers. Sketches that are NULL are ignored.

    Parameters
    ----------
    df
        Sketches, one per row.
    by
        The column or columns to group by. By default all sketches are merged into one.
    sketch
        The column of sketches; by default "sketch".

        everywhere = lately.spark.merge(sites)      # one row
    """
    groups, has_integer_times = names(by), dict(df.dtypes).get("newest") == "bigint"
    skipped = F.coalesce(F.col("skipped").cast("long"), F.lit(0)) if "skipped" in df.columns else F.lit(0)
    blobs = df.select(*(_col(df, name) for name in groups), _col(df, sketch).alias("sketch"), skipped.alias("skipped")).where(
        F.col("sketch").isNotNull()
    )
    newest = "long" if has_integer_times else "timestamp"
    return _grouped(blobs, groups, _merge_job(groups, newest), _result_schema(blobs, groups, newest))


# -- the columns that Python reads -----------------------------------------------------------------------------------------


def names(by: Names) -> list[str]:
    """Return column names as a list.

    Parameters
    ----------
    by
        One name, several, or None.
    """
    return [] if by is None else [by] if isinstance(by, str) else list(by)


def key_of(df: DataFrame, key: str | Sequence[str], recipe: SketchRecipe) -> Column:
    """Return the key column that Python reads: the hash of the key if the sketch needs only that. NULL if any part is NULL.

    Parameters
    ----------
    df
        The rows.
    key
        The column of the key, or the columns of its parts.
    recipe
        The sketch that is built; it determines the encoding of keys.
    """
    parts = [_col(df, name) for name in names(key)]
    kinds = [df.schema[name].dataType for name in names(key)]
    if not parts:
        raise ParameterError("key=[]", remedy="name at least one column")
    if recipe.key_encoding in ("integer", "number"):
        required = T.NumericType if recipe.key_encoding == "number" else T.IntegralType
        if len(parts) > 1 or not isinstance(kinds[0], required):
            expected = "numbers" if recipe.key_encoding == "number" else "integers"
            raise ParameterError(
                f"kind={recipe.kind!r} takes one column of {expected}, but key={key!r} has the type {kinds[0].simpleString()}",
                remedy="cast it first",
            )
        return parts[0].cast("double" if recipe.key_encoding == "number" else "long").alias("_key")
    wide = [_widened(name, part, kind) for name, part, kind in zip(names(key), parts, kinds, strict=True)]
    if recipe.key_encoding == "key":
        value = wide[0] if len(wide) == 1 else F.struct(*wide)
    else:
        value = F.xxhash64(*wide)  # xxhash64 of NULL would be its seed
    is_complete = wide[0].isNotNull()
    for part in wide[1:]:
        is_complete = is_complete & part.isNotNull()
    return F.when(is_complete, value).alias("_key")


def _widened(name: str, column: Column, kind: T.DataType) -> Column:
    """Return integers as bigint, since integers of any width are the same key; strings and binary as they are."""
    if isinstance(kind, T.IntegralType):
        return column.cast("long")
    if isinstance(kind, T.StringType | T.BinaryType | T.CharType | T.VarcharType):
        return column
    raise ParameterError(
        f"the key {name!r} has the type {kind.simpleString()}, but keys are integers, strings or binary", remedy="cast it first"
    )


def time_of(df: DataFrame, time: str, recipe: SketchRecipe) -> Column:
    """Return the column of times that Python reads.

    Parameters
    ----------
    df
        The rows.
    time
        The name of the column.
    recipe
        The sketch that is built; its window determines whether times may be integers.
    """
    kind = df.schema[_named(df, time)].dataType
    if not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.NumericType):
        raise ParameterError(
            f"the time {time!r} has the type {kind.simpleString()}",
            remedy=f"give a timestamp, a date or a number, as in F.to_timestamp({time!r})",
        )
    if recipe.empty().window.kind == "integer" and not isinstance(kind, T.NumericType):
        raise ParameterError(
            f"the time {time!r} has the type {kind.simpleString()}, but the window is an integer",
            remedy="give a window like '1h'",
        )
    column = _col(df, time)
    return (column.cast("double") if isinstance(kind, T.DecimalType) else column).alias("_time")


def counts_of(df: DataFrame, count: str | None) -> list[Column]:
    """Return the column of counts in a list, or an empty list.

    Parameters
    ----------
    df
        The rows.
    count
        The name of the column; None if every row counts once.
    """
    if count is None:
        return []
    kind = df.schema[_named(df, count)].dataType
    if not isinstance(kind, T.IntegralType):
        raise ParameterError(
            f"the count {count!r} has the type {kind.simpleString()}, but counts are integers", remedy="cast it to bigint"
        )
    return [_col(df, count).cast("long").alias("_count")]


def _col(df: DataFrame, name: str) -> Column:
    quoted = _named(df, name).replace("`", "``")  # otherwise a dot in a name would mean a field
    return F.col(f"`{quoted}`")


def _named(df: DataFrame, name: str) -> str:
    if name not in df.columns:
        raise ParameterError(f"no column {name!r}", remedy=f"the DataFrame has {', '.join(map(repr, df.columns))}")
    return name


# -- sketching partitions, merging sketches --------------------------------------------------------------------------------


def sketch_partitions(df: DataFrame, recipe: SketchRecipe, has_counts: bool) -> DataFrame:
    """Sketch every partition. The result has the group columns, ``sketch`` and ``skipped``.

    Parameters
    ----------
    df
        Rows: the key, the time, the count if there is one, and the group columns.
    recipe
        The sketch to build.
    has_counts
        Whether the third column has counts.
    """
    first = 3 if has_counts else 2

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Partials(recipe)
        for batch in batches:
            task.add(batch.column(0), batch.column(1), batch.column(2) if has_counts else None, batch.columns[first:])
        yield from partial_rows(task, recipe, schema)

    fields = list(df.schema.fields[first:])
    spark_schema = T.StructType([*fields, T.StructField("sketch", T.BinaryType()), T.StructField("skipped", T.LongType())])
    schema = arrow_schema(spark_schema)
    return df.mapInArrow(run, spark_schema)


def partial_rows(task: Partials, recipe: SketchRecipe, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Finish the sketches of a task and yield a row for each. A group all of whose rows were skipped gets an empty sketch.

    Parameters
    ----------
    task
        The sketches of the task; it must not be used afterwards.
    recipe
        The sketch that is built.
    schema
        The group columns, ``sketch`` and ``skipped``.
    """
    reported: set[Any] = set()  # a group may have several sketches; its skipped rows are reported with the first
    for group, made in task.finish():
        skipped = 0 if group in reported else task.skipped.get(group, 0)
        reported.add(group)
        yield pa.record_batch([[value] for value in (*group, made.to_bytes(), skipped)], schema=schema)
    for group in task.skipped.keys() - reported:
        yield pa.record_batch([[value] for value in (*group, recipe.empty().to_bytes(), task.skipped[group])], schema=schema)


def merge_partials(partials: DataFrame, recipe: SketchRecipe, groups: list[str], fan: int, tasks: int) -> DataFrame:
    """Merge the sketches of tasks by group: in one step, or in two if there are more than ``fan`` tasks.

    Parameters
    ----------
    partials
        The group columns, ``sketch`` and ``skipped``.
    recipe
        The sketch that is built.
    groups
        The names of the group columns.
    fan
        How many sketches one task merges at a time, at least 2.
    tasks
        How many tasks made the sketches.
    """
    if fan < 2:
        raise ParameterError(f"fan={fan} is below 2", remedy="give the number of sketches to merge at a time, at least 2")
    newest = "timestamp" if recipe.empty().window.kind == "time" else "long"
    if tasks > fan:
        subgroup = (F.spark_partition_id() % ((tasks + fan - 1) // fan)).alias("_subgroup")
        partials = partials.select(*groups, subgroup, "sketch", "skipped")
        inner = [*groups, "_subgroup"]
        schema = T.StructType(
            [*(partials.schema[name] for name in inner), partials.schema["sketch"], partials.schema["skipped"]]
        )
        partials = _grouped(partials, inner, _merge_job(inner), schema).drop("_subgroup")
    return _grouped(partials, groups, _merge_job(groups, newest), _result_schema(partials, groups, newest))


def _grouped(df: DataFrame, groups: list[str], run: Callable[..., pa.Table], schema: T.StructType) -> DataFrame:
    return df.groupBy(*groups).applyInArrow(run, schema)


def _result_schema(df: DataFrame, groups: list[str], newest: str) -> T.StructType:
    schema = T.StructType([df.schema[name] for name in groups]).add("sketch", "binary").add("arrivals", "long")
    return schema.add("skipped", "long").add("newest", newest).add("merges", "integer").add("bytes", "long")


def _merge_job(groups: list[str], newest: str | None = None) -> Callable[..., pa.Table]:
    """Return the function that merges the sketches of a group. Given the type of ``newest``, it returns a row of the result."""
    time_type = pa.timestamp("us", "UTC") if newest == "timestamp" else pa.int64()

    def run(table: pa.Table) -> pa.Table:
        sketches = [from_trusted_bytes(blob) for blob in table.column("sketch").to_pylist()]
        started = [sketch for sketch in sketches if sketch.now is not None]
        merged = started[0] if len(started) == 1 else merge_sketches(started or sketches[:1])
        blob, skipped = merged.to_bytes(), sum(table.column("skipped").to_pylist())
        columns = {name: _in_utc(table.column(name)[:1]) for name in groups} | {"sketch": pa.array([blob], pa.binary())}
        if newest is None:
            return pa.table(columns | {"skipped": pa.array([skipped], pa.int64())})
        has_newest = (merged.window.kind == "time") == (newest == "timestamp")
        return pa.table(
            columns
            | {
                "arrivals": pa.array([merged._arrived], pa.int64()),
                "skipped": pa.array([skipped], pa.int64()),
                "newest": pa.array([merged.now if has_newest else None], time_type),
                "merges": pa.array([merged.merges], pa.int32()),
                "bytes": pa.array([len(blob)], pa.int64()),
            }
        )

    return run


def _in_utc(column: Any) -> Any:
    """Return timestamps in UTC, as ``applyInArrow`` requires; Spark passes them in the session's time zone."""
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp("us", "UTC")) if is_zoned else column
