"""Sketches of Parquet files that workers read themselves: what a DataFrame of the same files would give."""

import functools
import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from naive import NaiveWindow, between_keys, quantile
from pyspark.sql import DataFrame

import lately as lt
from lately.core.errors import InputError, ParameterError
from lately.pipeline.sketch_recipe import SketchRecipe
from lately.spark import sketch, sketch_files

ROWS = 2_000
START = 1_767_225_600  # 2026-01-01
SURE = 1e-7  # so small that what is likely can be taken for certain
BASE = {"window": "1h", "eps": 0.1, "delta": SURE}
KINDS = {
    "ecm": ("url", BASE),
    "topk": ("url", {"window": "1h", "eps": 0.05, "delta": SURE, "phi": 0.1}),
    "quantiles": ("x", BASE | {"lo": 0, "hi": 64, "resolution": 1}),
    "dyadic": ("i", BASE | {"universe": 1000}),
    "wcm": ("i", {"window": "1h", "eps": 0.1, "delta": 0.1}),
    "ams": ("i", {"window": "1h", "eps": 0.4, "delta": 0.2}),
}


def make_table(nulls=0.05):
    """Arrivals at three sites over two hours, in time order; some lack a key, a time or a count."""
    rng = np.random.default_rng(11)
    keys = np.where(rng.random(ROWS) < 0.3, 7, rng.integers(0, 64, ROWS))
    seconds = START + np.sort(rng.integers(0, 7200, ROWS))
    missing = [rng.random(ROWS) < nulls for _ in range(5)]
    return pa.table(
        {
            "url": pa.array([f"/{key}" for key in keys], mask=missing[0]),
            "i": pa.array(keys, pa.int64(), mask=missing[1]),
            "x": pa.array(keys.astype(float), mask=missing[2]),
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC"), mask=missing[3]),
            "n": pa.array(rng.integers(0, 5, ROWS), pa.int32(), mask=missing[4]),
            "site": np.array(["lima", "paris", "tokyo"])[rng.integers(0, 3, ROWS)],
            "zone": pa.array(rng.integers(0, 2, ROWS), pa.int16()),
        }
    )


TABLE = make_table()


def put(path, table=TABLE, files=3, rows=150, **options):
    """The table in several files of several row groups, in order."""
    os.makedirs(path, exist_ok=True)
    each = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * each, each), f"{path}/{number}.parquet", row_group_size=rows, **options)
    return str(path)


def exact(key, by=(), count=None, table=TABLE):
    """Exact windows by group, and how many rows could not be counted."""
    windows, skipped = {}, Counter()
    keys = [key] if isinstance(key, str) else list(key)
    for row in table.to_pylist():
        group, parts = tuple(row[name] for name in by), tuple(row[name] for name in keys)
        twin = windows.setdefault(group, NaiveWindow(3600))
        if None in parts or row["ts"] is None or (count and row[count] is None):
            skipped[group] += 1
        else:
            twin.add(int(row["ts"].timestamp()), parts if len(keys) > 1 else parts[0], row[count] if count else 1)
    return windows, skipped


def assert_rows(df, key, by=(), count=None, table=TABLE, kind="ecm"):
    windows, skipped = exact(key, by, count, table)
    rows = df.collect()
    assert sorted((tuple(row[name] for name in by) for row in rows), key=repr) == sorted(windows, key=repr)
    for row in rows:
        group = tuple(row[name] for name in by)
        made, twin = lt.from_bytes(bytes(row["sketch"])), windows[group]
        assert (row["arrivals"], row["skipped"]) == (twin.since(-1), skipped[group])
        assert row["newest"].timestamp() == twin.now
        counts = twin.frequencies(twin.now - 3600 + 1)
        assert sum(counts.values()) in made.total()
        if kind in ("ecm", "topk", "dyadic"):
            assert all(count in made.count(key) for key, count in counts.items())
        if kind == "topk":
            assert {key for key, count in counts.items() if count >= 0.15 * sum(counts.values())} <= set(
                made.heavy_hitters().key
            )
        if kind == "quantiles":
            assert quantile(+counts, 0.5) in made.quantile(0.5)
        if kind == "dyadic":
            assert between_keys(counts, 5, 20) in made.count_range(5, 20)
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return put(tmp_path_factory.mktemp("events"))


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_sketch_with_rows_that_lack_something(spark, folder, kind):
    key, options = KINDS[kind]
    made = sketch_files(folder, key=key, time="ts", by="site", count="n", kind=kind, tasks=3, **options)
    assert made.columns == ["site", "sketch", "arrivals", "skipped", "newest", "merges", "bytes"]
    assert_rows(made, key, ["site"], "n", kind=kind)


@pytest.mark.parametrize("kind", ["ecm", "topk", "quantiles", "dyadic"])
def test_one_task_over_files_in_order_is_bit_for_bit_the_librarys_sketch(spark, folder, kind):
    """Also with nulls among the keys, which leave the others what they are."""
    key, options = KINDS[kind]
    (row,) = sketch_files(folder, key=key, time="ts", kind=kind, tasks=1, **options).collect()
    rows = [row for row in TABLE.to_pylist() if None not in (row[key], row["ts"])]
    plain = SketchRecipe.of(kind, **options).empty()
    plain.update([r[key] for r in rows], [r["ts"] for r in rows])
    assert bytes(row["sketch"]) == plain.to_bytes()


@pytest.mark.parametrize("key", ["url", "i"])
def test_keys_with_nulls_in_some_row_groups_only(spark, tmp_path, key):
    """A worker sees batches with nulls and without: all must hash to the same keys."""
    table = TABLE.slice(0, 600)
    parts = [table.slice(0, 200), table.slice(200, 200).filter(table.slice(200, 200).column(key).is_valid()), table.slice(400)]
    for number, part in enumerate(parts):
        pq.write_table(part, f"{tmp_path}/{number}.parquet")
    whole = pa.concat_tables(parts)
    assert parts[0].column(key).null_count
    for tasks in (1, 3):
        assert_rows(sketch_files(str(tmp_path), key=key, time="ts", tasks=tasks, **BASE), key, table=whole)


def test_what_spark_has_written(spark, tmp_path):
    """And the same answers as of the DataFrame."""
    path = f"{tmp_path}/events"
    spark.createDataFrame(TABLE).repartition(3, "zone", "i").write.parquet(path)
    assert any(name.startswith("_SUCCESS") for name in os.listdir(path))
    made = assert_rows(sketch_files(path, key="url", time="ts", by=["site", "zone"], **BASE), "url", ["site", "zone"])
    frame = sketch(spark.read.parquet(path), key="url", time="ts", by=["site", "zone"], **BASE).collect()
    facts = [{(r["site"], r["zone"]): (r["arrivals"], r["skipped"], r["newest"]) for r in rows} for rows in (made, frame)]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("options", [{"use_dictionary": False}, {"use_dictionary": True}, {"compression": "zstd"}])
def test_what_pyarrow_has_written(spark, tmp_path, options):
    path = put(tmp_path / "events", **options)
    assert_rows(sketch_files(path, key="url", time="ts", kind="topk", **KINDS["topk"][1]), "url", kind="topk")


def test_dictionaries_of_arrow(spark, tmp_path):
    table = TABLE.set_column(0, "url", TABLE.column("url").dictionary_encode())
    table = table.set_column(5, "site", table.column("site").dictionary_encode())
    path = put(tmp_path / "events", table)
    for kind in ("ecm", "topk"):
        made = sketch_files(path, key="url", time="ts", by="site", kind=kind, **KINDS[kind][1])
        assert made.schema["site"].dataType.simpleString() == "string"
        assert_rows(made, "url", ["site"], kind=kind)


def test_directories_partitioned_by_a_column(spark, tmp_path):
    """As Spark and Arrow write them; the column is in no file."""
    arrow, by_spark = f"{tmp_path}/arrow", f"{tmp_path}/spark"
    form = ds.partitioning(pa.schema({"site": pa.string(), "zone": pa.int16()}), flavor="hive")
    ds.write_dataset(TABLE, arrow, format="parquet", partitioning=form)
    spark.createDataFrame(TABLE).coalesce(1).write.partitionBy("site").parquet(by_spark)
    rows = assert_rows(sketch_files(arrow, key="url", time="ts", by=["site", "zone"], **BASE), "url", ["site", "zone"])
    assert {(row["site"], row["zone"]) for row in rows} == {(s, z) for s in ("lima", "paris", "tokyo") for z in (0, 1)}
    assert_rows(sketch_files(by_spark, key="url", time="ts", by="site", **BASE), "url", ["site"])


def test_lists_of_files_and_single_ones(spark, folder):
    files = [f"{folder}/{number}.parquet" for number in range(3)]
    assert_rows(sketch_files(files, key="url", time="ts", **BASE), "url")
    first = pq.read_table(files[0])
    for paths in (files[0], files[:1], f"file://{files[0]}"):
        assert_rows(sketch_files(paths, key="url", time="ts", **BASE), "url", table=first)


def test_filesystems_by_their_names_and_as_they_are(spark, folder):
    paths = [(f"file://{folder}", None), (folder, pa.fs.LocalFileSystem()), (f"file://{folder}", pa.fs.LocalFileSystem())]
    for path, filesystem in paths:
        assert_rows(sketch_files(path, key="url", time="ts", filesystem=filesystem, **BASE), "url")


def test_filesystems_of_fsspec(spark, folder):
    fsspec = pytest.importorskip("fsspec", reason="pip install fsspec")
    assert_rows(sketch_files(folder, key="url", time="ts", filesystem=fsspec.filesystem("file"), **BASE), "url")


def test_relative_paths(spark, folder, monkeypatch):
    monkeypatch.chdir(os.path.dirname(folder))
    assert_rows(sketch_files(os.path.basename(folder), key="url", time="ts", **BASE), "url")


@pytest.mark.parametrize("kind", ["ecm", "topk"])
def test_keys_of_several_columns_with_nulls_in_any(spark, folder, kind):
    options = KINDS[kind][1]
    (row,) = assert_rows(sketch_files(folder, key=["url", "i"], time="ts", kind=kind, tasks=2, **options), ["url", "i"])
    made = lt.from_bytes(bytes(row["sketch"]))
    if kind == "topk":
        assert made.top(1)[0].key == ("/7", 7)


def test_integers_of_all_widths_are_the_same_keys(spark, tmp_path):
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32()):
        table = pa.table({"k": pa.array([1, 2, None, 1], kind), "ts": [START, START, START, START + 1]})
        pq.write_table(table, f"{tmp_path}/{kind}.parquet")
    for kind, extra in (("ecm", {}), ("topk", {"k": 5}), ("dyadic", {"universe": 10})):
        plain = SketchRecipe.of(kind, **BASE, **extra).empty()
        plain.update([1, 2, 1], [START, START, START + 1])
        made = [
            sketch_files(f"{tmp_path}/{name}", key="k", time="ts", kind=kind, **BASE, **extra) for name in os.listdir(tmp_path)
        ]
        rows = functools.reduce(DataFrame.union, made).collect()
        assert [(bytes(row["sketch"]), row["skipped"]) for row in rows] == [(plain.to_bytes(), 1)] * 6, kind


def test_groups_that_spark_has_no_type_for(spark, tmp_path):
    table = pa.table({"k": ["a", "b", "a"], "ts": [START] * 3, "port": pa.array([80, None, 80], pa.uint16())})
    pq.write_table(table, f"{tmp_path}/0.parquet")
    rows = sketch_files(str(tmp_path), key="k", time="ts", by="port", **BASE).collect()
    assert {row["port"]: row["arrivals"] for row in rows} == {80: 2, None: 1}


def test_tasks_share_the_row_groups(spark, folder):
    for tasks, merges in ((1, 0), (1000, 1)):
        made = sketch_files(folder, key="url", time="ts", tasks=tasks, fan=64, **BASE)
        (row,) = assert_rows(made, "url")
        assert row["merges"] == merges
    # In two steps. Bunches of two would lie more than a window apart: what has nothing in the window costs no level.
    for fan, merges in ((3, 2), (2, 1)):
        (row,) = assert_rows(sketch_files(folder, key="url", time="ts", tasks=7, fan=fan, **BASE), "url")
        assert row["merges"] == merges


def test_files_in_any_order_of_time(spark, tmp_path):
    """Their names say nothing about when their rows came."""
    for number in range(6):
        pq.write_table(TABLE.slice((5 - number) * 300, 300), f"{tmp_path}/{number}.parquet")
    assert_rows(sketch_files(str(tmp_path), key="url", time="ts", tasks=1, **BASE), "url", table=TABLE.slice(0, 1800))


def test_files_without_rows(spark, tmp_path):
    pq.write_table(TABLE.slice(0, 0), f"{tmp_path}/0.parquet")
    assert sketch_files(str(tmp_path), key="url", time="ts", by="site", **BASE).collect() == []
    pq.write_table(TABLE.slice(0, 100), f"{tmp_path}/1.parquet")
    assert_rows(sketch_files(str(tmp_path), key="url", time="ts", **BASE), "url", table=TABLE.slice(0, 100))


# -- what is wrong is told before anything runs ------------------------------------------------------------------------


def test_paths_that_lead_nowhere_are_told(spark, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no Parquet")
    (tmp_path / "mixed").mkdir()
    pq.write_table(TABLE, tmp_path / "mixed" / "a.parquet")
    (tmp_path / "mixed" / "b.csv").write_text("no,Parquet")
    for name, message in (
        ("empty", "no Parquet files in '.*empty'; check the path"),
        ("missing", "cannot read '.*missing' as Parquet"),
        ("notes.txt", r"cannot read '.*notes\.txt' as Parquet"),
        ("mixed", "cannot read '.*mixed' as Parquet"),
    ):
        with pytest.raises(InputError, match=message):
            sketch_files(f"{tmp_path}/{name}", key="url", time="ts", **BASE)
    with pytest.raises(ParameterError, match=r"path=\[\]; name at least one"):
        sketch_files([], key="url", time="ts", **BASE)


WRONG = {
    "no such key": ({"key": "nope"}, "no column 'nope' in '.*'; the files have 'url', 'i', 'x', 'ts'"),
    "no such part of a key": ({"key": ["url", "nope"]}, "no column 'nope'"),
    "no key": ({"key": []}, "name at least one column"),
    "no such time": ({"time": "nope"}, "no column 'nope'"),
    "no such group": ({"by": ["site", "nope"]}, "no column 'nope'"),
    "no such count": ({"count": "nope"}, "no column 'nope'"),
    "key that is a number": ({"key": "x"}, "the key 'x' has the type double, but keys are integers, strings or binary"),
    "time that is text": ({"time": "url"}, "the time 'url' has the type string"),
    "dates in a window of integers": ({"window": 100}, "the time 'ts' has the type timestamp.*, but the window is an integer"),
    "count that is a number": ({"count": "x"}, "the count 'x' has the type double, but counts are integers"),
    "quantiles of text": (
        {"kind": "quantiles", "lo": 0, "hi": 1, "resolution": 0.1},
        "takes one column of numbers, but key='url' has the type string",
    ),
    "dyadic of two": ({"kind": "dyadic", "universe": 10, "key": ["i", "zone"]}, "takes one column of integers"),
    "kind": ({"kind": "hll"}, "kind='hll'; give one of ecm"),
    "arrivals": ({"window": lt.arrivals(100)}, "a window of arrivals needs one order of all rows"),
    "tasks": ({"tasks": -1}, "tasks=-1 is below 1; give at least 1"),
    "no tasks": ({"tasks": 0}, "tasks=0 is below 1; give at least 1"),
    "fan": ({"fan": 1}, "fan=1 is below 2; give the number"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_before_anything_runs(spark, folder, wrong, message):
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    with pytest.raises(ParameterError, match=message):
        sketch_files(folder, **({"key": "url", "time": "ts"} | BASE | wrong))
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before
