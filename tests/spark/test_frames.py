"""Sketches of DataFrames in a real Spark: however the rows lie, bounds hold; one partition in order is the library's sketch."""

import datetime
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from naive import NaiveWindow, between_keys, quantile, second_moment

import lately as lt
from lately.core.errors import ParameterError
from lately.pipeline.sketch_recipe import SketchRecipe
from lately.spark import merge, sketch

ROWS = 3_000
START = 1_767_225_600  # 2026-01-01
SURE = 1e-7  # so small that what is likely can be taken for certain
BASE = {"window": "1h", "eps": 0.1, "delta": SURE}
KINDS = {
    "ecm": BASE,
    "topk": {"window": "1h", "eps": 0.05, "delta": SURE, "phi": 0.1},
    "quantiles": BASE | {"lo": 0, "hi": 64, "resolution": 1},
    "dyadic": BASE | {"universe": 1000},
    "wcm": {"window": "1h", "eps": 0.1, "delta": 0.1},
    "ams": {"window": "1h", "eps": 0.4, "delta": 0.2},
}
FACTS = ["sketch", "arrivals", "skipped", "newest", "merges", "bytes"]


def make_table():
    """Arrivals at three sites over two hours, in time order; some lack a key, a time, a count or a site."""
    rng = np.random.default_rng(7)
    keys = np.where(rng.random(ROWS) < 0.3, 7, rng.integers(0, 64, ROWS))
    seconds = START + np.sort(rng.integers(0, 7200, ROWS))
    missing = {name: rng.random(ROWS) < 0.02 for name in ("url", "i", "ts", "n", "site")}
    sites = np.array(["lima", "paris", "tokyo"])[rng.integers(0, 3, ROWS)]
    return pa.table(
        {
            "url": pa.array([f"/{key}" for key in keys], mask=missing["url"]),
            "i": pa.array(keys, mask=missing["i"]),
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC"), mask=missing["ts"]),
            "n": pa.array(rng.integers(0, 5, ROWS), mask=missing["n"]),
            "site": pa.array(sites, mask=missing["site"]),
            "zone": pa.array(rng.integers(0, 2, ROWS), pa.int16()),
            "row": np.arange(ROWS),
        }
    )


TABLE = make_table()


@pytest.fixture(scope="module")
def frames(spark):
    """The rows in one partition, and cut over seven regardless of their order."""
    whole = spark.createDataFrame(TABLE).coalesce(1).sortWithinPartitions("row").cache()
    return {1: whole, 7: whole.repartition(7, "row").cache()}


def exact(key, by=(), count=None, table=TABLE, window=3600):
    """Exact windows by group, how many arrivals each had, and how many rows could not be counted."""
    windows, skipped = {}, Counter()
    keys = [key] if isinstance(key, str) else list(key)
    for row in table.to_pylist():
        group = tuple(row[name] for name in by)
        parts = tuple(row[name] for name in keys)
        twin = windows.setdefault(group, NaiveWindow(window))
        if None in parts or row["ts"] is None or (count and row[count] is None):
            skipped[group] += 1
        else:
            moment = row["ts"]
            tick = moment if isinstance(moment, int) else int(moment.timestamp())
            twin.add(tick, parts if len(keys) > 1 else parts[0], row[count] if count else 1)
    return windows, skipped


def assert_answers(made, twin, kind):
    """Every answer's bounds hold."""
    counts = twin.frequencies(twin.now - 3600 + 1)
    total = sum(counts.values())
    assert total in made.total()
    if kind in ("ecm", "topk", "dyadic"):
        for key, count in counts.items():
            assert count in made.count(key)
    if kind == "ecm":
        assert second_moment(counts) in made.self_join()
    if kind == "topk":
        assert {key for key, count in counts.items() if count >= 0.15 * total} <= set(made.heavy_hitters().key)
    if kind == "quantiles":
        assert quantile(+counts, 0.5) in made.quantile(0.5)
        assert between_keys(counts, 0, 20) in made.rank(20)
    if kind == "dyadic":
        assert between_keys(counts, 5, 20) in made.count_range(5, 20)
        assert quantile(+counts, 0.9) in made.quantile(0.9)
    if kind == "wcm":
        assert abs(made.count(7).value - counts[7]) <= 0.25 * total  # what it counts is not certain
    if kind == "ams":
        assert abs(made.self_join().value - second_moment(counts)) <= 0.6 * second_moment(counts)


def assert_rows(rows, windows, skipped, kind="ecm", by=(), merges=None):
    """One row for each group, with its facts, and answers within bounds."""
    assert sorted((tuple(row[name] for name in by) for row in rows), key=repr) == sorted(windows, key=repr)
    for row in rows:
        group = tuple(row[name] for name in by)
        made, twin = lt.from_bytes(bytes(row["sketch"])), windows[group]
        assert (row["arrivals"], row["skipped"], row["bytes"]) == (twin.since(-1), skipped[group], len(row["sketch"]))
        assert row["newest"].timestamp() == twin.now
        assert (row["merges"], made.late) == (made.merges, 0)
        assert merges is None or row["merges"] == merges
        assert_answers(made, twin, kind)


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_over_any_partitions(frames, kind, parts):
    key = "url" if kind in ("ecm", "topk") else "i"
    made = sketch(frames[parts], key=key, time="ts", kind=kind, **KINDS[kind])
    assert made.columns == FACTS
    assert_rows(made.collect(), *exact(key), kind, merges=int(parts > 1))


@pytest.mark.parametrize("kind", KINDS)
def test_one_partition_in_order_is_bit_for_bit_the_librarys_sketch(frames, kind):
    key = "url" if kind in ("ecm", "topk") else "i"
    rows = sketch(frames[1], key=key, time="ts", by="site", count="n", kind=kind, **KINDS[kind]).collect()
    for row in rows:
        site_rows = [r for r in TABLE.to_pylist() if r["site"] == row["site"] and None not in (r[key], r["ts"], r["n"])]
        plain = SketchRecipe.of(kind, **KINDS[kind]).empty()
        plain.update([r[key] for r in site_rows], [r["ts"] for r in site_rows], [r["n"] for r in site_rows])
        assert bytes(row["sketch"]) == plain.to_bytes()
    assert {row["site"] for row in rows} == {"lima", "paris", "tokyo", None}


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize(("by", "names"), [("site", ["site"]), (["site", "zone"], ["site", "zone"]), ([], [])])
def test_groups_and_counts(frames, parts, by, names):
    made = sketch(frames[parts], key="url", time="ts", by=by, count="n", **BASE)
    assert made.columns == [*names, *FACTS]
    assert_rows(made.collect(), *exact("url", names, "n"), by=names)


def test_more_partitions_than_fan_are_merged_in_two_steps(frames):
    options = BASE | {"merge_height": 2}
    rows = sketch(frames[7], key="url", time="ts", by="site", fan=2, **options).collect()
    assert_rows(rows, *exact("url", ["site"]), by=["site"], merges=2)
    one_step = sketch(frames[7], key="url", time="ts", by="site", fan=7, **options).collect()
    assert {row["merges"] for row in one_step} == {1}


def test_keys_of_several_columns(frames):
    for kind, options in (("topk", KINDS["topk"] | {"phi": 0.06}), ("ecm", BASE)):
        rows = sketch(frames[7], key=["url", "zone"], time="ts", kind=kind, **options).collect()
        windows, skipped = exact(["url", "zone"])
        assert_rows(rows, windows, skipped)
        made, counts = lt.from_bytes(bytes(rows[0]["sketch"])), windows[()].frequencies(windows[()].now - 3600 + 1)
        assert counts[("/7", 1)] in made.count(("/7", 1))
        if kind == "topk":
            assert ("/7", 0) in made.top().key


def test_sketches_are_merged_by_group(frames):
    sites = sketch(frames[7], key="url", time="ts", by=["site", "zone"], **BASE).cache()
    windows, skipped = exact("url")
    assert_rows(merge(sites).collect(), windows, skipped, merges=2)
    windows, skipped = exact("url", ["zone"])
    assert_rows(merge(sites, by="zone").collect(), windows, skipped, by=["zone"], merges=2)
    renamed = sites.withColumnRenamed("sketch", "blob").select("zone", "blob")
    rows = merge(renamed, by="zone", sketch="blob").collect()
    assert {row["zone"]: row["arrivals"] for row in rows} == {zone: twin.since(-1) for (zone,), twin in windows.items()}
    assert {row["skipped"] for row in rows} == {0}


def test_sketches_that_are_null_are_left_out_of_a_merge(spark):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    sketch.update(["a"], [START])
    blobs = [("x", sketch.to_bytes()), ("x", None), ("y", None)]
    rows = merge(spark.createDataFrame(blobs, "site string, sketch binary"), by="site").collect()
    assert [(row["site"], bytes(row["sketch"]), row["arrivals"]) for row in rows] == [("x", sketch.to_bytes(), 1)]


def test_integer_times(spark):
    """Windows of integers, also when they are merged again."""
    table = pa.table({"url": ["a", "b", "a", None], "ts": pa.array([5, 7, 900, 3], pa.int32()), "site": ["x", "y", "x", "y"]})
    sites = sketch(spark.createDataFrame(table), key="url", time="ts", by="site", window=1000, eps=0.1, delta=0.1)
    assert {row["site"]: (row["newest"], row["arrivals"], row["skipped"]) for row in sites.collect()} == {
        "x": (900, 2, 0),
        "y": (7, 1, 1),
    }
    (row,) = merge(sites).collect()
    assert (row["newest"], row["arrivals"], row["skipped"]) == (900, 3, 1)
    assert lt.from_bytes(bytes(row["sketch"])).count("a").value == 2
    (row,) = merge(sites.select("sketch")).collect()
    assert (row["newest"], row["arrivals"]) == (None, 3)


WORDS = ["", "a", "Grüße", "日本語", "a\0b", "x" * 33]
NUMBERS = [0, 1, -1, 127, -128]
KEYS = {
    "tinyint": NUMBERS,
    "smallint": [*NUMBERS, 2**15 - 1, -(2**15)],
    "int": [*NUMBERS, 2**31 - 1, -(2**31)],
    "bigint": [*NUMBERS, 2**63 - 1, -(2**63)],
    "string": WORDS,
    "binary": [*(word.encode() for word in WORDS), b"\xff\x00"],
}


def test_the_jvm_hashes_keys_as_the_library_does(spark):
    """Keys of all types and widths in one run, a group for each; and the same keys given back by a TopK."""
    import pyspark.sql.functions as F

    made = {}
    for kind, options in (("ecm", {}), ("topk", {"k": 20})):
        parts = []
        for name, keys in KEYS.items():
            rows = [(key, START + i) for i, key in enumerate(keys)]
            df = spark.createDataFrame(rows, f"key {name}, ts long").coalesce(1)
            parts.append(sketch(df, key="key", time="ts", kind=kind, window="1h", eps=0.01, delta=0.01, **options))
            parts[-1] = parts[-1].withColumn("type", F.lit(name))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.union(part)
        made[kind] = {row["type"]: bytes(row["sketch"]) for row in whole.collect()}
    for name, keys in KEYS.items():
        for kind, options in (("ecm", {}), ("topk", {"k": 20})):
            plain = SketchRecipe.of(kind, window="1h", eps=0.01, delta=0.01, **options).empty()
            plain.update(keys, [START + i for i in range(len(keys))])
            assert made[kind][name] == plain.to_bytes(), (kind, name)
        assert sorted(lt.from_bytes(made["topk"][name]).top().key) == sorted(keys)


def test_dates_decimals_and_times_without_a_zone(spark):
    import pyspark.sql.functions as F

    df = spark.createDataFrame([("a", "2026-01-01 00:00:00"), ("a", "2026-01-03 00:00:00")], "url string, text string")
    df = df.select(
        "url",
        F.to_date("text").alias("date"),
        F.to_timestamp_ntz("text").alias("ntz"),
        F.expr(f"cast(if(text < '2026-01-02', {START}, {START + 2 * 86400}) as decimal(12, 2))").alias("decimal"),
    ).coalesce(1)
    plain = lt.EcmSketch(window="7d", tick="1h", eps=0.1, delta=0.1)
    plain.update(["a", "a"], ["2026-01-01", "2026-01-03"])
    for time in ("date", "ntz", "decimal"):
        (row,) = sketch(df, key="url", time=time, window="7d", tick="1h", eps=0.1, delta=0.1).collect()
        assert bytes(row["sketch"]) == plain.to_bytes(), time


@pytest.mark.parametrize("zone", ["UTC", "America/Lima"])
def test_groups_of_other_types_come_back_as_they_were(spark, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        _group_by_all_types(spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def _group_by_all_types(spark):
    day, noon = datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 12, 0, 0, 5)
    groups = [(day, noon, True, 1.5, b"\xff"), (None, None, None, None, None), (day, None, False, -0.5, b"")]
    rows = [("a", START + i, *groups[i % 3]) for i in range(6)]
    schema = "url string, ts long, day date, noon timestamp, flag boolean, x double, raw binary"
    names = ["day", "noon", "flag", "x", "raw"]
    made = sketch(spark.createDataFrame(rows, schema), key="url", time="ts", by=names, **BASE).collect()
    assert sorted((tuple(row[name] for name in names) for row in made), key=repr) == sorted(groups, key=repr)
    assert [row["arrivals"] for row in made] == [2, 2, 2]


def test_columns_may_have_the_names_that_we_use(spark):
    df = spark.createDataFrame([("a", START, "x"), ("b", START, "y"), ("a", START, "x")], "time string, key long, count string")
    rows = sketch(df, key="time", time="key", by="count", **BASE).collect()
    assert sorted((row["count"], row["arrivals"]) for row in rows) == [("x", 2), ("y", 1)]
    rows = sketch(df, key="time", time="key", by=["time", "key"], **BASE).collect()
    assert sorted((row["time"], row["key"], row["arrivals"]) for row in rows) == [("a", START, 2), ("b", START, 1)]


def test_groups_without_a_row_that_counts_are_told(spark):
    df = spark.createDataFrame([(None, START, "x"), ("a", None, "x"), ("a", START, "y")], "url string, ts long, site string")
    rows = {row["site"]: row for row in sketch(df, key="url", time="ts", by="site", **BASE).collect()}
    assert (rows["x"]["arrivals"], rows["x"]["skipped"], rows["x"]["newest"]) == (0, 2, None)
    assert lt.from_bytes(bytes(rows["x"]["sketch"])).total().value == 0
    assert (rows["y"]["arrivals"], rows["y"]["skipped"]) == (1, 0)


def test_no_rows_make_no_groups(spark):
    df = spark.createDataFrame([], "url string, ts timestamp, site string")
    assert sketch(df, key="url", time="ts", by="site", **BASE).collect() == []
    assert sketch(df, key="url", time="ts", **BASE).collect() == []


# -- what is wrong is told before anything runs ------------------------------------------------------------------------

WRONG = {
    "no such key": ({"key": "nope"}, "no column 'nope'; the DataFrame has 'url', 'i', 'ts'"),
    "no such part of a key": ({"key": ["url", "nope"]}, "no column 'nope'"),
    "no key": ({"key": []}, "name at least one column"),
    "no such time": ({"time": "nope"}, "no column 'nope'"),
    "no such group": ({"by": "nope"}, "no column 'nope'"),
    "no such count": ({"count": "nope"}, "no column 'nope'"),
    "time that is text": ({"time": "url"}, r"the time 'url' has the type string; .*F\.to_timestamp\('url'\)"),
    "dates in a window of integers": ({"window": 100}, "the time 'ts' has the type timestamp, but the window is an integer"),
    "key that is a time": (
        {"key": "ts"},
        "the key 'ts' has the type timestamp, but keys are integers, strings or binary; cast it first",
    ),
    "count that is text": ({"count": "url"}, "the count 'url' has the type string, but counts are integers; cast it"),
    "quantiles of text": (
        {"kind": "quantiles", "lo": 0, "hi": 1, "resolution": 0.1},
        "takes one column of numbers, but key='url' has the type string",
    ),
    "dyadic of text": ({"kind": "dyadic", "universe": 10}, "takes one column of integers, but key='url' has the type string"),
    "dyadic of two": ({"kind": "dyadic", "universe": 10, "key": ["i", "zone"]}, "takes one column of integers"),
    "arrivals": ({"window": lt.arrivals(100)}, "a window of arrivals needs one order of all rows"),
    "kind": ({"kind": "hll"}, "kind='hll'; give one of ecm, topk, quantiles, dyadic, wcm, ams"),
    "option": ({"epsilon": 0.1}, "kind='ecm': .*epsilon"),
    "no window": ({"window": None}, "kind='ecm': .*window"),
    "eps": ({"eps": 2}, "eps"),
    "variant": ({"kind": "wcm", "variant": "nope"}, "variant='nope'; give one of perfect, simple"),
    "fan": ({"fan": 1}, "fan=1 is below 2; give the number of sketches to merge"),
    "no fan": ({"fan": 0}, "fan=0"),
}


def jobs(spark):
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_before_anything_runs(spark, frames, wrong, message):
    before = jobs(spark)
    with pytest.raises(ParameterError, match=message):
        sketch(frames[7], **({"key": "url", "time": "ts"} | BASE | wrong))
    assert jobs(spark) == before


def test_a_merge_of_what_is_not_there_is_told(frames):
    with pytest.raises(ParameterError, match="no column 'sketch'"):
        merge(frames[1])
    with pytest.raises(ParameterError, match="no column 'nope'"):
        merge(frames[1], by="nope", sketch="url")


def test_nothing_runs_until_the_answer_is_asked_for(spark, frames):
    before = jobs(spark)
    sketch(frames[7], key="url", time="ts", by="site", **BASE)
    assert jobs(spark) == before
