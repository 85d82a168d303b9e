"""What people do on Spark without windows: a built-in sketch for every minute, put together when somebody asks."""

import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import lately as lt
from bench.report import Options, Report, Table
from bench.spark_jobs import COLUMNS, ONE
from bench.spark_rows import SPAN, START
from bench.timing import laps

MINUTE = 60
#: Keys that approx_top_k tracks, for an error of 0.01 (theirs is 3.5 / this, rounded up to a power of two).
TRACKED = 512
ASKED, TOP, LAST = 100, 10, 600
TABLE = {
    "what": "", "build s": ".2f", "median": ".2f", "stored sketches": ",", "stored KB": ",.0f", "query ms": ",.1f",
    "its median": ",.1f", "largest error": ".4f", "of the true top 10": "d",
}  # fmt: skip

Built = Callable[[Path], None]
#: Keys and how often each came.
Told = dict[int, float]


def ticks(report: Report, options: Options, spark: Any, data: tuple[Path, int, int]) -> None:
    """Build, store and ask, both ways: the counts of 100 keys and the top 10 of the last ten minutes, over all sites."""
    path, size, rounds = data
    truth = _truth(spark, path)
    keys = sorted(truth, key=lambda key: (-truth[key], key))[:ASKED]
    build, ask = _ways(spark, str(path), keys)
    folders = {name: path.with_name(f"ticks {number}") for number, name in enumerate(build)}
    options.tell("a sketch for every minute: building")
    built = laps(min(rounds, 3), {name: partial(_prepared, make, folders[name]) for name, make in build.items()})
    options.tell("a sketch for every minute: asking")
    answers = {name: get(folders[name]) for name, get in ask.items()}  # it also warms up
    took: dict[str, list[float]] = {name: [] for name in ask}
    for _ in range(rounds):
        for name, get in ask.items():
            start = perf_counter()
            get(folders[name])
            took[name].append(1000 * (perf_counter() - start))
    total, best = sum(truth.values()), set(keys[:TOP])
    table = Table(f"{size:,} rows: a built-in sketch for every site and minute, beside one with a window for every site", TABLE)
    for name, counts in answers.items():
        stored = spark.read.parquet(str(folders[name])).count()
        kilobytes = sum(file.stat().st_size for file in folders[name].glob("*.parquet")) / 1e3
        error = max(abs(count - truth.get(key, 0)) for key, count in counts.items()) / total
        listed = len(best & counts.keys()) if "top" in name else None
        table.add(
            name, min(built[name]), statistics.median(built[name]), stored, kilobytes, min(took[name]),
            statistics.median(took[name]), error, listed,
        )  # fmt: skip
    report.tables.append(table)
    report.notes.append(
        f"A sketch for every minute: built and stored as Parquet, then asked for {ASKED} keys, or the top {TOP}, in the last "
        f"{LAST // 60} minutes over all sites, reading included. SQL has no union of count_min_sketch: they are read and "
        "merged by Spark's own class in the JVM, through Py4J; ours in Python. approx_top_k has one, all of it is SQL. "
        "Theirs answers in whole minutes and keeps an hour of them; ours answers for any second of the last hour. "
        f"Errors are a share of the {total:,} rows in the range. The bytes of theirs are those of all minutes of the stream."
    )


def _truth(spark: Any, path: Path) -> dict[int, int]:
    from pyspark.sql import functions as F

    recent = spark.read.parquet(str(path)).where(F.col("ts") >= START + SPAN - LAST)
    counts = recent.groupBy("key").count().toArrow()
    return dict(zip(counts["key"].to_pylist(), counts["count"].to_pylist(), strict=True))


def _prepared(make: Built, folder: Path) -> Callable[[], None]:
    return partial(make, folder)


def _ways(spark: Any, path: str, keys_to_count: list[int]) -> tuple[dict[str, Built], dict[str, Callable[[Path], Told]]]:
    from pyspark.sql import functions as F

    import lately.spark

    rows = spark.read.parquet(path)
    by_minute = rows.groupBy("site", F.expr(f"ts div {MINUTE}").alias("minute"))
    recent = F.col("minute") >= (START + SPAN - LAST) // MINUTE
    between = datetime.fromtimestamp(START + SPAN - LAST, UTC), datetime.fromtimestamp(START + SPAN, UTC)
    keys = np.array(keys_to_count)
    ours = COLUMNS | {"by": "site"} | ONE
    theirs = {"eps": F.lit(ONE["eps"]), "confidence": F.lit(1 - ONE["delta"]), "seed": F.lit(7)}

    def store(df: Any, folder: Path) -> None:
        df.write.mode("overwrite").parquet(str(folder))

    def read(folder: Path) -> Any:
        return spark.read.parquet(str(folder))

    def merged(folder: Path) -> Any:
        return lt.merge([lt.from_bytes(bytes(row["sketch"])) for row in read(folder).select("sketch").collect()])

    def count_min(folder: Path) -> Told:
        their = spark._jvm.org.apache.spark.util.sketch.CountMinSketch
        first, *others = (their.readFrom(bytes(row["sketch"])) for row in read(folder).where(recent).select("sketch").collect())
        for other in others:
            first.mergeInPlace(other)
        return {key: first.estimateCount(key) for key in keys_to_count}

    def top_k(folder: Path) -> Told:
        top_items = F.expr(f"approx_top_k_estimate(approx_top_k_combine(sketch), {TOP})").alias("top")
        return {row["item"]: row["count"] for row in read(folder).where(recent).agg(top_items).first()["top"]}

    def ecm(folder: Path) -> Told:
        return dict(zip(keys_to_count, merged(folder).counts(keys, between=between).value.tolist(), strict=True))

    def top(folder: Path) -> Told:
        return {row.key: row.count.value for row in merged(folder).top(TOP, between=between)}

    build: dict[str, Built] = {
        "counts: count_min_sketch a minute": lambda folder: store(
            by_minute.agg(F.count_min_sketch("key", *theirs.values()).alias("sketch")), folder
        ),
        "counts: sketch": lambda folder: store(lately.spark.sketch(rows, **ours), folder),
        "counts: sketch_files": lambda folder: store(lately.spark.sketch_files(path, spark=spark, **ours), folder),
        "top: approx_top_k a minute": lambda folder: store(
            by_minute.agg(F.expr(f"approx_top_k_accumulate(key, {TRACKED})").alias("sketch")), folder
        ),
        "top: sketch_files, kind='topk'": lambda folder: store(
            lately.spark.sketch_files(path, spark=spark, kind="topk", k=TOP, **ours), folder
        ),
    }
    return build, dict(zip(build, (count_min, ecm, ecm, top_k, top), strict=True))
