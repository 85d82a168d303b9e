"""What do sketches cost on Spark? On two cores, beside an empty pass through Python, sketches per minute, and exact windows."""

import statistics
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lately as lt
from bench import spark_rows as rows_of
from bench.data import UNIVERSE, Ints, Stream, stream
from bench.report import Options, Report, Table, Verdict
from bench.spark_jobs import COLUMNS, JOBS, ONE, SITES, Apart, Here, Spent, exact, spent
from bench.spark_rows import SPAN, START
from bench.spark_stream import streaming
from bench.spark_ticks import ticks
from bench.timing import laps

MASTER = "local[2]"
#: Seconds after which an exact window is not counted again.
LONG = 60
RATES = {
    "what": "", "rows": ",", "M/s": ".2f", "median": ".2f", "compared with": "", "its M/s": ".2f", "its median": ".2f",
    "ratio": ".2f",
}  # fmt: skip
WINDOWS = {
    "what": "", "runs": "d", "seconds": ".2f", "median": ".2f", "exact / this": ",.1f", "shuffled KB": ",.0f",
    "exact / this, bytes": ",.0f", "JVM reserved MB": ",.0f", "peak RSS, MB": ",.0f",
}  # fmt: skip
TRAFFIC = {
    "sites": ",", "rows": ",", "seconds": ".2f", "shuffled KB": ",.0f", "bytes a row": ".3f", "a sketch, KB": ",.1f",
    "shuffled / (sites × tasks × a sketch)": ".2f",
}  # fmt: skip


def run(options: Options) -> Report:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise lt.LatelyError(f"the benchmark of Spark needs Spark ({error}); pip install 'lately[spark]'") from error
    from lately.spark.session import session

    report = Report("What does Spark cost?")
    was_there = SparkSession.getActiveSession() is not None
    options.tell("starting Spark")
    spark = session(MASTER, app="lately bench")
    try:
        with tempfile.TemporaryDirectory(prefix="lately-bench-") as directory:
            _all(report, options, Path(directory), spark)
    finally:
        if not was_there:
            spark.stop()
    return report


def _all(report: Report, options: Options, folder: Path, spark: Any) -> None:
    rounds = 1 if options.quick else 5
    universe = UNIVERSE // 100 if options.quick else UNIVERSE
    size = options.size(20_000_000, 20_000)
    options.tell(f"writing {size:,} rows")
    integers = rows_of.integers(folder / "integers.parquet", size, universe)
    _crossing(report, options, spark, (integers, universe, rounds))
    ticks(report, options, spark, (integers, size, rounds))
    _sliding(report, options, folder, spark)
    streaming(report, options, folder, spark)
    _scaling(report, options, spark, (integers, size, rounds))
    _traffic(report, options, spark)
    _counted_first(report, options, spark, (folder, rounds))
    report.notes += [
        f"Spark {spark.version} on {spark.sparkContext.master}. Contestants take turns after a round that warms up; the best "
        f"of {rounds} turns counts, the median is beside it. Results go to Spark's noop sink unless they are stored.",
        f"Rows: {SITES} sites at random, Zipf(1.1) keys over {universe:,}, two hours of whole seconds in order, in Parquet. "
        f"Sketches: eps {ONE['eps']}, delta {ONE['delta']}, a window of an hour.",
    ]


# -- the road to Python ------------------------------------------------------------------------------------------------------


def _crossing(report: Report, options: Options, spark: Any, source: tuple[Path, int, int]) -> None:
    """Sketches of a DataFrame and of files, beside a pass of the same columns that does nothing."""
    integers, universe, rounds = source
    size = options.size(20_000_000, 20_000)
    table = Table("sketches by site of Parquet files, beside an identity pass of the same columns by mapInArrow", RATES)
    inputs = [("integer keys", integers, size, 0.7)]
    fewer = options.size(10_000_000, 20_000)
    options.tell(f"writing {fewer:,} rows of text")
    inputs.append(("text keys", rows_of.words(integers.with_name("words.parquet"), fewer, universe), fewer, 0.6))
    if options.data is not None:
        data = stream(options, 10_000_000, 20_000)
        inputs.append((f"keys of {data.name}", rows_of.dealt(integers.with_name("dealt.parquet"), data), len(data), 0.6))
    for what, path, count, required in inputs:
        options.tell(f"sketches, {what}")
        named = {"identity": "identity", "sketch": "frame", "sketch_files": "files"}
        times = laps(rounds, {name: partial(_job, spark, job, path) for name, job in named.items()})
        for name, base in (("sketch", "identity"), ("sketch_files", "sketch")):
            ratio = min(times[base]) / min(times[name])
            table.add(f"{name}, {what}", count, *_rate(count, times[name]), base, *_rate(count, times[base]), ratio)
            report.verdicts.append(
                Verdict.at_least(f"{name}, {what}: rate / that of {base}", ratio, required if name == "sketch" else 4)
            )
    report.tables.append(table)


def _job(spark: Any, name: str, path: Path) -> Any:
    return partial(JOBS[name], spark, str(path))


def _rate(count: int, seconds: list[float]) -> tuple[float, float]:
    return count / min(seconds) / 1e6, count / statistics.median(seconds) / 1e6


def _counted_first(report: Report, options: Options, spark: Any, data: tuple[Path, int]) -> None:
    """Equal rows counted in the JVM before they are sketched, for streams with many of them and with few."""
    folder, rounds = data
    size = options.size(10_000_000, 20_000)
    table = Table("groupBy(site, key, ts).count() first, then sketch(count=…), beside sketch of the rows", RATES)
    made = {
        "a thousand keys, Zipf(1.5)": rows_of.integers(folder / "same.parquet", size, 1000, exponent=1.5),
        "a million keys, Zipf(1.1)": rows_of.integers(folder / "some.parquet", size, UNIVERSE),
        "a million keys, all as likely": rows_of.uniform(folder / "other.parquet", size, UNIVERSE),
    }
    for what, path in made.items():
        options.tell(f"counting first, {what}")
        times = laps(min(rounds, 3), {name: partial(_job, spark, name, path) for name in ("frame", "counted")})
        distinct = spark.read.parquet(str(path)).distinct().count()
        table.add(
            f"{what}: {size / distinct:.2f} rows alike", size, *_rate(size, times["counted"]), "sketch",
            *_rate(size, times["frame"]), min(times["frame"]) / min(times["counted"]),
        )  # fmt: skip
    report.tables.append(table)


# -- exact windows -----------------------------------------------------------------------------------------------------------


def _sliding(report: Report, options: Options, folder: Path, spark: Any) -> None:
    """Spark's sliding window, and a sketch of the same rows that answers for all of its windows."""
    data = stream(options, 10_000_000 if options.data is not None else 1_000_000, 5_000)
    path, seconds = rows_of.of_stream(folder / "stream.parquet", data)
    few, _ = rows_of.of_stream(folder / "few.parquet", Stream(data.name, data.codes[:1000], data.texts, seconds[:1000]))
    window = {"window": f"{int(seconds[-1] - seconds[0]) + 2 * 3600}s", "by": None}
    jobs: dict[str, dict[str, Any]] = {"sliding": {}, "frame": window, "files": window}
    shown = {"sliding": "Spark: groupBy(window, key).count()", "frame": "sketch", "files": "sketch_files"}
    apps = {name: Here(spark) if options.quick else Apart(MASTER) for name in jobs}
    spent_by_job: dict[str, list[Spent]] = {name: [] for name in jobs}
    try:
        for name, arguments in jobs.items():
            options.tell(f"exact windows: warming up {shown[name]}")
            apps[name].run(name, path=str(few), **arguments)
            if name != "sliding":
                apps[name].run(name, path=str(path), **arguments)
        for turn in range(1 if options.quick else 3):
            for name, arguments in jobs.items():
                if name != "sliding" or turn == 0 or spent_by_job[name][0].seconds < LONG:
                    options.tell(f"exact windows: {shown[name]}, turn {turn + 1}")
                    spent_by_job[name].append(apps[name].run(name, path=str(path), **arguments))
    finally:
        for app in apps.values():
            app.close()
    table = Table(f"all hours that end at a full minute, {len(data):,} rows of {data.name}", WINDOWS)
    base, _ = _best(spent_by_job["sliding"])
    for name, runs in spent_by_job.items():
        best, peak = _best(runs)
        table.add(
            shown[name], len(runs), best.seconds, statistics.median(one.seconds for one in runs), base.seconds / best.seconds,
            best.shuffle / 1e3, base.shuffle / best.shuffle if best.shuffle else None, best.execution / 1e6,
            peak and peak / 1e6,
        )  # fmt: skip
        if name != "sliding":
            report.verdicts += [
                Verdict.at_least(f"exact windows: time / that of {shown[name]}", base.seconds / best.seconds, 10),
                Verdict.at_least(
                    f"exact windows: bytes shuffled / those of {shown[name]}", base.shuffle / max(best.shuffle, 1), 20
                ),
            ]
    report.tables.append(table)
    outside, off = _beside_exact(spark, path, data, seconds, window)
    report.verdicts.append(Verdict.at_most("exact windows: share of answers outside their bounds", outside, ONE["delta"]))
    report.notes.append(
        f"Exact windows: one sketch with a window of {window['window']} answers for every hour, with between=. Of 60 keys, "
        f"half of them frequent, in all hours: off by {off:.4f} of the hour's rows on average. Each contestant has a Spark "
        f"application of its own{' (not with --quick)' if options.quick else ''}. JVM "
        "reserved: the most that a stage's tasks had at once. Peak RSS: driver, JVM and Python workers "
        "together; a JVM takes what it is allowed before it collects garbage."
    )


def _best(runs: list[Spent]) -> tuple[Spent, int | None]:
    peaks = [one.resident for one in runs if one.resident is not None]
    return min(runs, key=lambda one: one.seconds), max(peaks, default=None)


def _beside_exact(spark: Any, path: Path, data: Stream, seconds: Ints, window: dict[str, Any]) -> tuple[float, float]:
    """The share of answers outside their bounds, and the mean error as a share of the rows in the hour."""
    from pyspark.sql import functions as F

    import lately.spark

    counts = np.bincount(data.codes)
    order = np.argsort(counts)[::-1]
    rng = np.random.default_rng(3)
    sampled = np.unique(np.concatenate([order[:30], rng.choice(order, min(30, order.size), replace=False)]))
    keys = data.texts.take(sampled).cast("string")
    df = spark.read.parquet(str(path))
    exact_counts = exact(df.where(F.col("key").isin(keys.to_pylist())))
    exact_counts = exact_counts.select(F.unix_seconds("window.start").alias("start"), "key", "count").collect()
    made = lately.spark.sketch(df, **(COLUMNS | ONE | window)).first()
    assert made is not None
    sketch = lt.from_bytes(bytes(made["sketch"]))
    truth: dict[int, dict[Any, int]] = {}
    for row in exact_counts:
        truth.setdefault(row["start"], {})[row["key"]] = row["count"]
    outside, errors = [], []
    for start, known in truth.items():
        ends = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(start + 3600, UTC)
        estimates = sketch.counts(keys, between=ends)
        real = np.array([known.get(key, 0) for key in keys.to_pylist()])
        inside = np.searchsorted(seconds, [start, start + 3600])
        outside.append((real < estimates.low) | (real > estimates.high))
        errors.append(np.abs(estimates.value - real) / max(int(inside[1] - inside[0]), 1))
    return float(np.mean(outside)), float(np.mean(errors))


# -- cores, and what travels between them ------------------------------------------------------------------------------------


def _scaling(report: Report, options: Options, spark: Any, data: tuple[Path, int, int]) -> None:
    """The same files on one core and on two."""
    path, size, rounds = data
    masters = ("local[1]", "local[2]")
    columns = {"master": "", "rows": ",", "M/s": ".2f", "median": ".2f", "times local[1]": ".2f"}
    table = Table("sketch_files on one core and on two, in Spark applications of their own", columns)
    apps = {master: Here(spark) if options.quick else Apart(master) for master in masters}
    times: dict[str, list[float]] = {master: [] for master in masters}
    try:
        for turn in range(rounds + 1):
            for master, app in apps.items():
                options.tell(f"scaling: {master}, turn {turn}")
                seconds = app.run("files", path=str(path)).seconds
                if turn:
                    times[master].append(seconds)
    finally:
        for app in apps.values():
            app.close()
    for master in masters:
        table.add(master, size, *_rate(size, times[master]), min(times[masters[0]]) / min(times[master]))
    report.tables.append(table)
    faster = min(times[masters[0]]) / min(times[masters[1]])
    report.verdicts.append(Verdict.at_least("sketch_files: rate on two cores / on one", faster, 1.7))
    if options.quick:
        report.notes.append("Scaling with --quick: both rows are of the session that is here, so that the ratio says nothing.")


def _traffic(report: Report, options: Options, spark: Any) -> None:
    """What is shuffled, by rows and by sites."""
    import lately.spark

    most = options.size(16_000_000, 16_000)
    table = Table("what sketch(by=site) shuffles, two tasks, two hours of rows", TRAFFIC)
    for sites in (4, SITES):
        for rows in (most // 16, most) if options.quick else (most // 16, most // 4, most):
            options.tell(f"merge traffic: {sites} sites, {rows:,} rows")
            source = spark.range(0, rows, 1, 2).selectExpr(
                f"int(pmod(xxhash64(id, 1), {sites})) AS site",
                f"pmod(xxhash64(id, 2), pmod(xxhash64(id, 3), {UNIVERSE}) + 1) AS key",  # small ones are more frequent
                f"{START} + id * {SPAN} div {rows} AS ts",
            )
            made: list[Any] = []
            taken = spent(
                spark,
                lambda source=source, made=made: made.extend(
                    lately.spark.sketch(source, by="site", **COLUMNS, **ONE).select("bytes").collect()
                ),
            )
            bytes_each = statistics.mean(row["bytes"] for row in made)
            shares = taken.shuffle / rows, bytes_each / 1e3, taken.shuffle / (sites * 2 * bytes_each)
            table.add(sites, rows, taken.seconds, taken.shuffle / 1e3, *shares)
    report.tables.append(table)
    most_of_all = max(row[-1] for row in table.rows)
    report.verdicts.append(Verdict.at_most("bytes shuffled / (sites × tasks × bytes of a sketch)", most_of_all, 1.2))
