"""What does a site cost? A pipeline over the same number of rows from 16 to 10,000 sites: time, memory and state."""

import os
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lately as lt
from bench.data import zipf
from bench.report import Options, Report, Table, Verdict
from bench.spark_jobs import spent

MASTER = "local[2]"
SITES = (16, 160, 1_600, 10_000)
#: Batches of each size; the first warms up. Every site has rows in every batch.
BATCHES, STEP = 4, 60
START = 1_767_225_600
COLUMNS = {
    "sites": ",", "rows a batch": ",", "seconds a batch": ".2f", "ms a site": ".2f", "all processes, MB": ",.0f",
    "state, KB": ",.0f", "KB a site": ".1f", "version JSON, KB": ",.0f", "count_min_sketch a minute, seconds": ".2f",
    "its / ours": ".2f",
}  # fmt: skip


def run(options: Options) -> Report:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise lt.LatelyError(f"the benchmark of sites needs Spark ({error}); pip install 'lately[spark]'") from error
    from lately.spark.session import session

    report = Report("What does a site cost?")
    table = Table("a pipeline of top keys, quantiles, an exact sum, and a monitor, eps 0.1, a window of ten minutes", COLUMNS)
    was_there = SparkSession.getActiveSession() is not None
    options.tell("starting Spark")
    spark = session(MASTER, app="lately bench sites")
    try:
        with tempfile.TemporaryDirectory(prefix="lately-bench-") as directory:
            for sites in (8, 16) if options.quick else SITES:
                options.tell(f"{sites:,} sites")
                table.add(*_measured(Path(directory) / str(sites), sites, options, spark))
    finally:
        if not was_there:
            spark.stop()
    report.tables.append(table)
    _judge(report, table)
    report.notes.append(
        f"Spark {spark.version} on {MASTER}. Parquet files, one a batch, available-now, {STEP} s of the stream each; every "
        "site has rows in each. Seconds a batch: the median from the end of one batch to that of the next. All processes: the "
        "most that the driver, the JVM and the Python workers had together. Beside it what one would write without a window: "
        "the built-in count_min_sketch of each site and minute of the same file, written to Parquet, with no state, no "
        "quantiles, no sum and no monitor."
    )
    return report


def _judge(report: Report, table: Table) -> None:
    """From the second largest number of sites to the largest, everything grows at most in proportion."""
    before, after = table.as_dicts()[-2:]
    more = after["sites"] / before["sites"]
    for name in ("seconds a batch", "state, KB", "all processes, MB"):
        if before[name] is not None:
            growth = after[name] / before[name] / more
            report.verdicts.append(Verdict.at_most(f"{name}: growth / growth of the sites", growth, 1.25))


def _measured(folder: Path, sites: int, options: Options, spark: Any) -> tuple[Any, ...]:
    rows = max(options.size(200_000, 500), sites)
    batches = 2 if options.quick else BATCHES
    paths = [_write(folder / "in", number, sites, rows) for number in range(batches)]
    pipeline = _pipeline(folder)
    ends: list[float] = []
    taken = spent(spark, lambda: pipeline.run(spark, on_batch=lambda report: ends.append(perf_counter())))
    seconds = statistics.median(end - begin for begin, end in pairwise(ends))
    version = pipeline.versions.read(batches - 1)
    json = (Path(pipeline.versions.path) / f"{batches - 1:012d}.json").stat().st_size
    built_in = min(spent(spark, lambda path=path: _built_in(spark, path, folder / "minutes")).seconds for path in paths[1:])
    state = version.live_bytes / 1e3
    memory = None if taken.resident is None else taken.resident / 1e6
    return (
        sites, rows, seconds, seconds / sites * 1e3, memory, state, state / sites, json / 1e3, built_in, built_in / seconds
    )  # fmt: skip


def _write(folder: Path, number: int, sites: int, rows: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(number)
    names = np.concatenate([np.arange(sites), random.integers(0, sites, rows - sites)])
    random.shuffle(names)
    columns = {
        "ts": START + number * STEP + np.arange(rows) * STEP // rows,
        "site": pa.array(names).cast(pa.string()),
        "key": zipf(rows, seed=number),
        "value": np.minimum(random.exponential(200.0, rows), 59_999.0),
    }
    path = folder / f"{number:03d}.parquet"
    pq.write_table(pa.table(columns), path)
    os.utime(path, (START + number, START + number))  # Spark takes the oldest first
    return path


def _pipeline(folder: Path) -> Any:
    from lately.spark import Pipeline

    return Pipeline.of({
        "name": "lately-bench-sites",
        "source": {
            "format": "parquet", "path": str(folder / "in"), "mode": "available-now",
            "columns": "ts bigint, site string, key bigint, value double", "options": {"maxFilesPerTrigger": 1},
        },
        "columns": {"time": "ts", "key": "key", "site": "site", "value": "value"},
        "window": {"length": "10m", "ahead": "any"},
        "guarantee": {"eps": 0.1, "delta": 0.1},
        "queries": [
            {"name": "top", "kind": "top", "k": 10, "last": "5m"},
            {"name": "values", "kind": "quantiles", "lo": 0, "hi": 60_000, "resolution": 100},
            {"name": "sum", "kind": "exact", "aggregate": "sum", "of": "value", "last": "5m"},
        ],
        "monitors": [{"name": "rush", "kind": "count", "key": 1, "theta": 0.2, "last": "10m"}],
        "store": {"path": str(folder / "store")},
        "run": {"checkpoint": str(folder / "state")},
    })  # fmt: skip


def _built_in(spark: Any, path: Path, folder: Path) -> None:
    """A built-in sketch for each site and minute of a file."""
    from pyspark.sql import functions as F

    rows = spark.read.parquet(str(path))
    sketch = F.count_min_sketch("key", F.lit(0.1), F.lit(0.1), F.lit(1)).alias("sketch")
    minute = (F.col("ts") / 60).cast("bigint").alias("minute")
    rows.groupBy("site", minute).agg(sketch).write.mode("overwrite").parquet(str(folder))
