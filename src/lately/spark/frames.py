"""Sketches of a DataFrame: partial ones where the data is, then merged; rows never travel between executors.

    partition ──mapInArrow──> a sketch for each group ──┐
    partition ──mapInArrow──> a sketch for each group ──┼──by group──> merged ──> one row for each group
    partition ──mapInArrow──> a sketch for each group ──┘

What is shuffled is groups × partitions sketches, however many rows there are. Counting equal rows in the JVM first
(``groupBy(by, key, tick).count()``) shuffles rows instead; ``lately bench spark`` shows it beside this way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.core.codec import from_trusted_bytes
from lately.core.errors import ParameterError
from lately.ingest.windowed import merge as merge_sketches
from lately.pipeline.sketch_recipe import Kind, SketchRecipe
from lately.spark.arrow_types import arrow_schema
from lately.spark.partials import Partials

#: Sketches that one task merges at a time. More are merged in two steps, which costs a level of error but no executor's memory.
FAN = 64

Names = str | Sequence[str] | None


def sketch(
    df: DataFrame,
    *,
    key: str | Sequence[str],
    time: str,
    by: Names = None,
    count: str | None = None,
    kind: Kind = "ecm",
    fan: int = FAN,
    **options: Any,
) -> DataFrame:
    """One sketch for each group of a DataFrame: columns ``by``, then ``sketch`` (bytes) and its facts.

    ``kind`` is "ecm", "topk", "quantiles", "dyadic", "wcm" or "ams"; ``options`` are what its class takes, such as
    ``window="1h", eps=0.01, delta=0.01``. Partitions are sketched where they are and merged by group: in one step, so that
    ``merge_height=1`` keeps eps, or in two where there are more than ``fan`` partitions. A group whose rows lie in one
    partition in time order is not merged at all: it is bit for bit what the library makes of those rows. Rows without a
    key, time or count are left out and counted in ``skipped``. ``lt.from_bytes`` and the functions of
    ``lately.spark.functions`` read the sketches.

        sites = lately.spark.sketch(df, key="url", time="ts", by="site", window="1h", eps=0.01, delta=0.01)
    """
    recipe, groups = SketchRecipe.of(kind, **options), names(by)
    columns = [
        key_of(df, key, recipe),
        time_of(df, time, recipe),
        *counts_of(df, count),
        *(_col(df, name) for name in groups),
    ]
    partials = partial_frame(df.select(*columns), recipe, groups, count is not None)
    return merged(partials, recipe, groups, fan, df.rdd.getNumPartitions() if fan > 0 else 1)


def merge(df: DataFrame, *, by: Names = None, sketch: str = "sketch") -> DataFrame:
    """Merge sketches by group, in one step: columns ``by``, then ``sketch`` and its facts.

    ``skipped`` and the type of ``newest`` come from columns of these names; without them nothing was skipped, and ``newest`` is
    a timestamp, which is NULL where times are integers.

        everywhere = lately.spark.merge(sites)      # one row
    """
    groups, whole = names(by), dict(df.dtypes).get("newest") == "bigint"
    skipped = F.coalesce(F.col("skipped").cast("long"), F.lit(0)) if "skipped" in df.columns else F.lit(0)
    blobs = df.select(*(_col(df, name) for name in groups), _col(df, sketch).alias("sketch"), skipped.alias("skipped")).where(
        F.col("sketch").isNotNull()
    )
    newest = "long" if whole else "timestamp"
    return _grouped(blobs, groups, _merged_rows(groups, newest), _result_schema(blobs, groups, newest))


# -- the columns that cross --------------------------------------------------------------------------------------------------


def names(by: Names) -> list[str]:
    """The names of the columns to group by."""
    return [] if by is None else [by] if isinstance(by, str) else list(by)


def key_of(df: DataFrame, key: str | Sequence[str], recipe: SketchRecipe) -> Column:
    """The key as it crosses: its hash where that is enough. A row that lacks a part of its key has none."""
    parts = [_col(df, name) for name in names(key)]
    kinds = [df.schema[name].dataType for name in names(key)]
    if not parts:
        raise ParameterError("key=[]: name at least one column")
    if recipe.key_encoding in ("integer", "number"):
        wanted = T.NumericType if recipe.key_encoding == "number" else T.IntegralType
        if len(parts) > 1 or not isinstance(kinds[0], wanted):
            what = "numbers" if recipe.key_encoding == "number" else "integers"
            raise ParameterError(
                f"kind={recipe.kind!r} takes one column of {what}; {key!r} is {kinds[0].simpleString()}: cast it first"
            )
        return parts[0].cast("double" if recipe.key_encoding == "number" else "long").alias("_key")
    wide = [_wide(name, part, kind) for name, part, kind in zip(names(key), parts, kinds, strict=True)]
    if recipe.key_encoding == "key":
        value = wide[0] if len(wide) == 1 else F.struct(*wide)
    else:
        value = F.xxhash64(*wide)  # of NULL it would be the seed
    known = wide[0].isNotNull()
    for part in wide[1:]:
        known = known & part.isNotNull()
    return F.when(known, value).alias("_key")


def _wide(name: str, column: Column, kind: T.DataType) -> Column:
    """Keys are told apart by their value, not by their width."""
    if isinstance(kind, T.IntegralType):
        return column.cast("long")
    if isinstance(kind, T.StringType | T.BinaryType | T.CharType | T.VarcharType):
        return column
    raise ParameterError(
        f"the key {name!r} is of type {kind.simpleString()}; keys are integers, strings or binary: cast it first"
    )


def time_of(df: DataFrame, time: str, recipe: SketchRecipe) -> Column:
    """The time as it crosses."""
    kind = df.schema[_named(df, time)].dataType
    if not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.NumericType):
        raise ParameterError(
            f"the time {time!r} is of type {kind.simpleString()}; give a timestamp, a date or a number, as in "
            f"F.to_timestamp({time!r})"
        )
    if recipe.empty().window.kind == "integer" and not isinstance(kind, T.NumericType):
        raise ParameterError(
            f"the time {time!r} is of type {kind.simpleString()}, but the window is in integers; give a window like '1h'"
        )
    column = _col(df, time)
    return (column.cast("double") if isinstance(kind, T.DecimalType) else column).alias("_time")


def counts_of(df: DataFrame, count: str | None) -> list[Column]:
    """The column of counts, if there is one."""
    if count is None:
        return []
    kind = df.schema[_named(df, count)].dataType
    if not isinstance(kind, T.IntegralType):
        raise ParameterError(
            f"the count {count!r} is of type {kind.simpleString()}; counts are whole numbers: cast it to bigint"
        )
    return [_col(df, count).cast("long").alias("_count")]


def _col(df: DataFrame, name: str) -> Column:
    quoted = _named(df, name).replace("`", "``")  # a dot in a name is no field
    return F.col(f"`{quoted}`")


def _named(df: DataFrame, name: str) -> str:
    if name not in df.columns:
        raise ParameterError(f"no column {name!r}; the frame has {', '.join(map(repr, df.columns))}")
    return name


# -- partial sketches, and merging them ----------------------------------------------------------------------------------------


def partial_frame(df: DataFrame, recipe: SketchRecipe, groups: list[str], counted: bool) -> DataFrame:
    """Sketches of each partition: the groups, ``sketch`` and ``skipped``."""
    first = 3 if counted else 2

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Partials(recipe)
        for batch in batches:
            task.add(batch.column(0), batch.column(1), batch.column(2) if counted else None, batch.columns[first:])
        yield from partial_rows(task, recipe, schema)

    fields = list(df.schema.fields[first:])
    spark_schema = T.StructType([*fields, T.StructField("sketch", T.BinaryType()), T.StructField("skipped", T.LongType())])
    schema = arrow_schema(spark_schema)
    return df.mapInArrow(run, spark_schema)


def partial_rows(task: Partials, recipe: SketchRecipe, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a task has made, a row for each sketch; groups of which nothing could be counted have an empty one."""
    told: set[Any] = set()
    for row, made in task.finish():
        skipped = 0 if row in told else task.skipped.get(row, 0)
        told.add(row)
        yield pa.record_batch([[value] for value in (*row, made.to_bytes(), skipped)], schema=schema)
    for row in task.skipped.keys() - told:
        yield pa.record_batch([[value] for value in (*row, recipe.empty().to_bytes(), task.skipped[row])], schema=schema)


def merged(partials: DataFrame, recipe: SketchRecipe, groups: list[str], fan: int, tasks: int) -> DataFrame:
    """One row for each group: merged in one step, or in two where there are many tasks."""
    if fan < 2:
        raise ParameterError(f"fan={fan}: give how many sketches to merge at a time, at least 2")
    newest = "timestamp" if recipe.empty().window.kind == "time" else "long"
    if tasks > fan:
        bunch = (F.spark_partition_id() % ((tasks + fan - 1) // fan)).alias("_bunch")
        partials = partials.select(*groups, bunch, "sketch", "skipped")
        inner = [*groups, "_bunch"]
        schema = T.StructType(
            [*(partials.schema[name] for name in inner), partials.schema["sketch"], partials.schema["skipped"]]
        )
        partials = _grouped(partials, inner, _merged_rows(inner), schema).drop("_bunch")
    return _grouped(partials, groups, _merged_rows(groups, newest), _result_schema(partials, groups, newest))


def _grouped(df: DataFrame, groups: list[str], run: Callable[..., pa.Table], schema: T.StructType) -> DataFrame:
    return df.groupBy(*groups).applyInArrow(run, schema)


def _result_schema(df: DataFrame, groups: list[str], newest: str) -> T.StructType:
    schema = T.StructType([df.schema[name] for name in groups]).add("sketch", "binary").add("arrivals", "long")
    return schema.add("skipped", "long").add("newest", newest).add("merges", "integer").add("bytes", "long")


def _merged_rows(groups: list[str], newest: str | None = None) -> Callable[..., pa.Table]:
    """What merges the sketches of a group; with the type of ``newest`` their facts are told too."""
    moment = pa.timestamp("us", "UTC") if newest == "timestamp" else pa.int64()

    def run(table: pa.Table) -> pa.Table:
        sketches = [from_trusted_bytes(blob) for blob in table.column("sketch").to_pylist()]
        started = [one for one in sketches if one.now is not None]
        whole = started[0] if len(started) == 1 else merge_sketches(started or sketches[:1])
        blob, skipped = whole.to_bytes(), sum(table.column("skipped").to_pylist())
        found = {name: _in_utc(table.column(name)[:1]) for name in groups} | {"sketch": pa.array([blob], pa.binary())}
        if newest is None:
            return pa.table(found | {"skipped": pa.array([skipped], pa.int64())})
        is_told = (whole.window.kind == "time") == (newest == "timestamp")
        return pa.table(
            found
            | {
                "arrivals": pa.array([whole._taken], pa.int64()),
                "skipped": pa.array([skipped], pa.int64()),
                "newest": pa.array([whole.now if is_told else None], moment),
                "merges": pa.array([whole.merges], pa.int32()),
                "bytes": pa.array([len(blob)], pa.int64()),
            }
        )

    return run


def _in_utc(column: Any) -> Any:
    """Timestamps come in the session's zone and must be given back in UTC; they are the same moments."""
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp("us", "UTC")) if is_zoned else column
