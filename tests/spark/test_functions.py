"""Functions of SQL and of columns, in a real Spark: what they build and answer is what the library builds and answers."""

import doctest
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import lately as lt
from lately.spark import answers, udfs
from lately.spark import functions as LF

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
START = 1_767_225_600  # 2026-01-01
OPTIONS = {"window": "1h", "eps": 0.01, "delta": 0.01}
NUMBERS = {"window": "1h", "eps": 0.05, "lo": 0, "hi": 100, "resolution": 0.5, "outside": "clip"}
ROWS = 4_000

WORDS = ["", "a", "Grüße", "日本語", "a\0b", "x" * 33, "🦀"]
INTEGERS = [0, 1, -1, 42, 127, -128]
KEYS = {
    "tinyint": INTEGERS,
    "smallint": [*INTEGERS, 2**15 - 1, -(2**15)],
    "int": [*INTEGERS, 2**31 - 1, -(2**31)],
    "bigint": [*INTEGERS, 2**63 - 1, -(2**63)],
    "string": WORDS,
    "binary": [*(word.encode() for word in WORDS), b"\xff\x00"],
}


@pytest.fixture(scope="module")
def stream():
    """Four thousand arrivals at three sites over two hours, in time order."""
    rng = np.random.default_rng(7)
    keys = np.array([f"/{i}" for i in range(50)])[np.minimum(rng.zipf(1.5, ROWS) - 1, 49)]
    times = START + np.sort(rng.integers(0, 7200, ROWS))
    return pa.table(
        {
            "site": np.array(["lima", "paris", "tokyo"])[rng.integers(0, 3, ROWS)],
            "key": keys,
            "ts": pa.array(times * 1_000_000, pa.timestamp("us", tz="UTC")),
            "n": rng.integers(1, 4, ROWS),
            "v": rng.uniform(0, 99, ROWS),
        }
    )


@pytest.fixture(scope="module")
def sql(spark, stream):
    """SQL with the functions and the stream in it, as ``events`` (in order) and ``scattered`` (over seven partitions)."""
    LF.register(spark, **OPTIONS, **{name: value for name, value in NUMBERS.items() if name not in OPTIONS}, k=5)
    events = spark.createDataFrame(stream).coalesce(1).cache()
    events.createOrReplaceTempView("events")
    events.repartition(7).cache().createOrReplaceTempView("scattered")

    def run(query):
        return spark.sql(query).collect()

    return run


def only_value(rows):
    ((value,),) = rows
    return value


def sketch_of(kind, stream, options, key="key", counts=None):
    made = kind(**options)
    made.update(stream[key], stream["ts"], None if counts is None else stream[counts])
    return made


def recent(stream, seconds, site=None):
    """The keys of the last so many seconds."""
    ticks = stream["ts"].cast(pa.int64()).to_numpy() // 1_000_000
    keep = ticks > ticks[-1] - seconds
    if site is not None:
        keep &= stream["site"].to_numpy() == site
    return stream.filter(pa.array(keep))["key"].to_numpy()


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_key_is_the_same_key_in_sql_in_columns_and_in_python(spark, sql):
    size = max(map(len, KEYS.values()))
    padded = zip(*([*keys, *[None] * (size - len(keys))] for keys in KEYS.values()), strict=True)
    kinds = ", ".join(f"k_{kind} {kind}" for kind in KEYS)
    rows = spark.createDataFrame([(*keys, START + i) for i, keys in enumerate(padded)], f"{kinds}, s bigint")
    rows = rows.withColumn("ts", F.timestamp_seconds("s")).coalesce(1)
    rows.createOrReplaceTempView("keyed")
    hashes = rows.select(*(LF.key_hash(f"k_{kind}").alias(kind) for kind in KEYS)).collect()
    (by_sql,) = sql("select " + ", ".join(f"ecm_sketch_agg(k_{kind}, ts) {kind}" for kind in KEYS) + " from keyed")
    (by_column,) = rows.agg(*(LF.ecm_sketch_agg(f"k_{kind}", "ts", **OPTIONS).alias(kind) for kind in KEYS)).collect()
    blobs = spark.createDataFrame([tuple(by_sql)], ", ".join(f"s_{kind} binary" for kind in KEYS))
    ask = [f"ecm_count(s_{kind}, k_{kind}).value {kind}" for kind in KEYS]
    counted = rows.crossJoin(blobs).orderBy("s").selectExpr(*ask).collect()
    for kind, keys in KEYS.items():
        expected = [*lt.hash_keys(keys).view(np.int64).tolist(), *[None] * (size - len(keys))]
        assert [row[kind] for row in hashes] == expected
        library = lt.EcmSketch(**OPTIONS)
        library.update(keys, np.arange(START, START + len(keys)))
        assert by_sql[kind] == by_column[kind] == library.to_bytes()
        assert [row[kind] for row in counted][: len(keys)] == [library.count(key).value for key in keys]


def test_keys_of_several_columns_are_hashed_first(spark, sql, stream):
    made = only_value(sql("select ecm_sketch_agg(xxhash64(site, key), ts, hashed => true) from events"))
    library = lt.EcmSketch(**OPTIONS)
    library.update(stream.select(["site", "key"]).to_pandas(), stream["ts"])
    assert made == library.to_bytes()
    column = LF.ecm_sketch_agg(F.xxhash64("site", "key"), "ts", hashed=True, **OPTIONS)
    assert only_value(spark.table("events").agg(column).collect()) == library.to_bytes()


# -- building ----------------------------------------------------------------------------------------------------------


def test_one_partition_in_order_gives_the_bytes_of_the_library(spark, sql, stream):
    query = (
        "select ecm_sketch_agg(key, ts) e, topk_sketch_agg(key, ts) t, quantiles_sketch_agg(v, ts, eps => 0.05) q from events"
    )
    (row,) = sql(query)
    assert row.e == sketch_of(lt.EcmSketch, stream, OPTIONS).to_bytes()
    assert row.t == sketch_of(lt.TopK, stream, OPTIONS | {"k": 5}).to_bytes()
    assert row.q == sketch_of(lt.Quantiles, stream, NUMBERS, "v").to_bytes()
    made = spark.table("events").agg(
        LF.ecm_sketch_agg("key", "ts", **OPTIONS).alias("e"),
        LF.topk_sketch_agg(F.col("key"), "ts", k=5, **OPTIONS).alias("t"),
        LF.quantiles_sketch_agg("v", "ts", **NUMBERS).alias("q"),
    )
    assert made.collect() == [row]


def test_counts_say_how_often_a_row_arrived(sql, stream):
    expected = sketch_of(lt.EcmSketch, stream, OPTIONS, counts="n").to_bytes()
    assert only_value(sql("select ecm_sketch_agg(key, ts, n) from events")) == expected
    assert only_value(sql("select ecm_sketch_agg(key, ts, count => n) from events")) == expected


def test_scattered_rows_are_sorted_and_not_called_late(sql, stream):
    made = lt.from_bytes(only_value(sql("select ecm_sketch_agg(key, ts) from scattered")))
    assert (made.merges, made.late) == (0, 0)
    exact = recent(stream, 600)
    for key in np.unique(exact):
        assert int((exact == key).sum()) in made.count(str(key), last="10m")


def test_options_by_name_come_before_the_defaults(sql):
    query = """
        select ecm_sketch_agg(key, ts, window => '30 minutes', eps => 0.1, delta => 0.05D) a,
               ecm_sketch_agg(key, ts, window => interval 30 minutes, tick => '1 minute') b,
               topk_sketch_agg(key, ts, phi => 0.2, eps => 0.05) c from events"""
    a, b, c = (lt.from_bytes(blob) for blob in sql(query)[0])
    assert (repr(a.window), a.eps, a.delta) == ("Window('30m', tick='1s')", 0.1, 0.05)
    assert (repr(b.window), b.eps) == ("Window('30m', tick='1m')", 0.01)
    assert (c.k, c.eps) == (5, 0.05)


def test_windows_of_integers(sql):
    query = """
        select ecm_total(s).value a, ecm_total(s, 10).value b, ecm_total(s, '10').value c, ecm_count(s, 4, last => '20').value d
        from (select ecm_sketch_agg(id % 5, id, window => 100) s from range(200))"""
    assert sql(query) == [(100, 10, 10, 4)]


def test_group_by_having_and_rollup(sql, stream):
    query = "select site, ecm_total(ecm_sketch_agg(key, ts)) v from scattered group by rollup(site) order by site"
    rows = sql(query)
    assert [row.site for row in rows] == [None, "lima", "paris", "tokyo"]
    exact = [len(recent(stream, 3600)), *(len(recent_of(stream, row.site)) for row in rows[1:])]
    assert all(row.v.low <= truth <= row.v.high for row, truth in zip(rows, exact, strict=True))
    some = sorted(row.v.value for row in rows)[1]
    having = f"select site from events group by site having ecm_total(ecm_sketch_agg(key, ts)).value > {some - 1}"
    assert 2 <= len(sql(having)) <= 3


def test_two_aggregates_over_the_same_rows(sql):
    """In a UNION and in subqueries, of a sketch or of an answer: versions of Spark differ in which of them they would merge."""
    ask = "select ecm_total(ecm_sketch_agg(key, ts{})).value from events"
    make = "select ecm_sketch_agg(key, ts{}) from events"
    other = ", eps => 0.1"
    alone = [only_value(sql(ask.format(options))) for options in ("", other)]
    assert [row[0] for row in sql(f"{ask.format('')} union all {ask.format(other)}")] == alone
    assert sql(f"select ({ask.format('')}), ({ask.format(other)})") == [tuple(alone)]
    (sketches,) = sql(f"select ({make.format('')}), ({make.format(other)})")
    assert [lt.from_bytes(bytes(blob)).total().value for blob in sketches] == alone
    mixed = f"select ({ask.format('')}), (select max(key) from events) = (select max(key) from events where key is not null)"
    assert sql(mixed) == [(alone[0], True)]


def recent_of(stream, site):
    """A site's own last hour: its sketch's clock stands at its own last arrival."""
    return recent(stream.filter(pa.array(stream["site"].to_numpy() == site)), 3600)


# -- asking ------------------------------------------------------------------------------------------------------------


def fields(answer):
    return answer.value, answer.low, answer.high, answer.confidence


def test_answers_of_sql_are_those_of_the_library(sql, stream):
    library = sketch_of(lt.EcmSketch, stream, OPTIONS)
    (row,) = sql("""
        select ecm_count(s, '/0') a, ecm_count(s, '/0', '10m') b, ecm_count(s, '/0', interval 10 minutes) c,
               ecm_counts(s, array('/1', null, '/nowhere'), last => '30 minutes') d, ecm_total(s, '10 minutes') e,
               ecm_self_join(s, '1h') f, ecm_inner_product(s, s) g, sketch_info(s) h, ecm_count(s, '/0', null) i
        from (select ecm_sketch_agg(key, ts) s from events)""")
    assert row.a == row.i == fields(library.count("/0"))
    assert row.b == row.c == fields(library.count("/0", last="10m"))
    first, nothing, nowhere = row.d
    assert (first, nothing, nowhere) == (
        fields(library.count("/1", last="30m")),
        None,
        fields(library.count("/nowhere", last="30m")),
    )
    assert row.e == fields(library.total("10m"))
    assert row.f == row.g == fields(library.self_join())
    assert row.h.asDict() == {
        "class": "EcmSketch",
        "window": "1h",
        "arrivals": library.total().value,
        "merges": 0,
        "nbytes": lt.from_bytes(library.to_bytes()).nbytes,
    }


def test_answers_of_columns_are_those_of_sql(spark, sql):
    made = (
        spark.table("events")
        .groupBy("site")
        .agg(
            LF.ecm_sketch_agg("key", "ts", **OPTIONS).alias("e"),
            LF.topk_sketch_agg("key", "ts", k=5, **OPTIONS).alias("t"),
            LF.quantiles_sketch_agg("v", "ts", **NUMBERS).alias("q"),
        )
    )
    made.cache().createOrReplaceTempView("made")
    columns = made.orderBy("site").select(
        LF.ecm_count("e", F.lit("/0"), last="10m"),
        LF.ecm_counts(F.col("e"), ["/0", "/1"]),
        LF.ecm_total("e"),
        LF.ecm_self_join("e"),
        LF.ecm_inner_product("e", "e", "10m"),
        LF.topk_top("t", 3, last="30m"),
        LF.ecm_top("t"),
        LF.quantiles_quantile("q", 0.5),
        LF.quantiles_quantile("q", [0.1, 0.9], last="30m"),
        LF.quantiles_quantiles("q", F.array(F.lit(0.1))),
        LF.quantiles_rank("q", 50),
        LF.quantiles_count_range("q", 10, F.lit(20.5)),
        LF.sketch_info("e"),
    )
    query = """
        select ecm_count(e, '/0', '10m'), ecm_counts(e, array('/0', '/1')), ecm_total(e), ecm_self_join(e),
               ecm_inner_product(e, e, '10m'), topk_top(t, 3, '30m'), ecm_top(t), quantiles_quantile(q, 0.5),
               quantiles_quantiles(q, array(0.1, 0.9), '30m'), quantiles_quantiles(q, array(0.1)), quantiles_rank(q, 50),
               quantiles_count_range(q, 10, 20.5), sketch_info(e)
        from made order by site"""
    rows = columns.collect()
    assert [tuple(row) for row in rows] == [tuple(row) for row in sql(query)]
    hot = [lt.from_bytes(row.t).top(3, last="30m") for row in made.orderBy("site").collect()]
    assert [[(each.key, each.value) for each in row[5]] for row in rows] == [
        [(r.key, r.count.value) for r in top] for top in hot
    ]
    numbers = [lt.from_bytes(row.q) for row in made.orderBy("site").collect()]
    assert [row[7] for row in rows] == [fields(number.quantile(0.5)) for number in numbers]
    assert [row[10] for row in rows] == [fields(number.rank(50)) for number in numbers]
    assert [row[11] for row in rows] == [fields(number.count_range(10, 20.5)) for number in numbers]


def test_top_keys_become_rows(sql, stream):
    query = """
        select site, key, value from (select site, topk_sketch_agg(key, ts) s from scattered group by site)
        lateral view inline(topk_top(s, 2, '10m')) hottest order by site, value desc"""
    rows = sql(query)
    assert [row.site for row in rows] == ["lima", "lima", "paris", "paris", "tokyo", "tokyo"]
    assert {row.key for row in rows if row.site == "lima"} <= set(recent(stream, 3600, "lima"))


def test_top_keys_are_text(sql):
    query = "select topk_top(topk_sketch_agg({}, id, window => 100)).key from range(20)"
    assert only_value(sql(query.format("7")))[0] == "7"
    assert only_value(sql(query.format("X'ff00'")))[0] == "ff00"
    assert only_value(sql(query.format("X'6162'")))[0] == "ab"


def test_a_sketch_that_repeats_is_read_once(spark, sql, monkeypatch):
    reads = []
    monkeypatch.setattr(answers, "from_bytes", lambda data: reads.append(1) or lt.from_bytes(data))
    blob = only_value(sql("select ecm_sketch_agg(key, ts) from events"))
    counts = answers.count(pa.array([blob] * 1000), pa.array(["/0", "/1"] * 500), pa.array(["10m"] * 1000))
    assert len(reads) == 1
    assert len({each["value"] for each in counts.to_pylist()}) == 2


def test_a_streaming_query_asks_sketches(spark, sql, tmp_path):
    folder = str(tmp_path / "sketches")
    spark.sql("select site, topk_sketch_agg(key, ts) s from events group by site").write.parquet(folder)
    flowing = spark.readStream.schema("site string, s binary").parquet(folder)
    answers = flowing.selectExpr("site", "ecm_count(s, '/0', '10m') c", "topk_top(s, 1)[0].key k")
    query = answers.writeStream.format("memory").queryName("answers").trigger(availableNow=True).start()
    query.awaitTermination()
    expected = "select site, ecm_count(s, '/0', '10m') c, topk_top(s, 1)[0].key k from parquet.`{}` order by site"
    assert sql("select * from answers order by site") == sql(expected.format(folder))


# -- merging -----------------------------------------------------------------------------------------------------------


def test_union_is_the_merge_of_the_library(spark, sql, stream):
    spark.sql("select site, ecm_sketch_agg(key, ts) s from events group by site").cache().createOrReplaceTempView("sites")
    blobs = [row.s for row in sql("select s from sites")]
    made = lt.from_bytes(only_value(sql("select ecm_union_agg(s) from sites")))
    library = lt.merge([lt.from_bytes(blob) for blob in blobs])
    assert made.merges == 1
    assert [made.count(f"/{i}") for i in range(50)] == [library.count(f"/{i}") for i in range(50)]
    exact = recent(stream, 3600)
    assert all(int((exact == f"/{i}").sum()) in made.count(f"/{i}") for i in range(50))
    alone = sql("select ecm_union_agg(s) u, first_value(s) over () f from (select ecm_union_agg(s) s from sites) group by s")
    assert alone[0].u == alone[0].f
    assert only_value(spark.table("sites").agg(LF.ecm_union_agg("s")).collect()) == made.to_bytes()


def test_partial_sketches_are_made_where_the_rows_are(spark, sql, stream):
    cases = ("ecm_partial", "key", ""), ("ecm_partial", "xxhash64(key)", ", hashed => true"), ("topk_partial", "key", "")
    for case in cases:
        rows = sql("select * from {}(table(select site, {}, ts from scattered){})".format(*case))
        assert sorted(row.site for row in rows) == ["lima"] * 7 + ["paris"] * 7 + ["tokyo"] * 7
        for site in ("lima", "tokyo"):
            exact = recent_of(stream, site)
            made = lt.merge([lt.from_bytes(row.sketch) for row in rows if row.site == site])
            assert (made.merges, made.late) == (1, 0)
            assert all(int((exact == f"/{i}").sum()) in made.count(f"/{i}") for i in range(50))
    query = "select site, ecm_union_agg(sketch) s from ecm_partial(table(select site, key, ts from scattered)) group by site"
    assert sorted((row.site, lt.from_bytes(row.s).merges) for row in sql(query)) == [("lima", 1), ("paris", 1), ("tokyo", 1)]
    plan = spark.sql("select * from ecm_partial(table(select site, key, ts from events))")._jdf.queryExecution().toString()
    assert "Exchange" not in plan


def test_partial_sketches_without_a_site_and_with_counts(sql, stream):
    rows = sql("select * from ecm_partial(table(select key, ts from events))")
    assert [(row.site, bytes(row.sketch)) for row in rows] == [(None, sketch_of(lt.EcmSketch, stream, OPTIONS).to_bytes())]
    rows = sql("select * from ecm_partial(table(select 7, key, ts, n from events), eps => 0.01)")
    expected = sketch_of(lt.EcmSketch, stream, OPTIONS, counts="n").to_bytes()
    assert [(row.site, bytes(row.sketch)) for row in rows] == [("7", expected)]
    numbers = sql("select quantiles_quantile(sketch, 0.5).value from quantiles_partial(table(select v, ts from events))")
    assert 40 < only_value(numbers) < 60


# -- nothing -----------------------------------------------------------------------------------------------------------


def test_rows_without_key_time_or_count_are_skipped(spark, sql):
    rows = [("a", 1, 1), (None, 2, 1), ("a", None, 1), ("a", 3, None), ("a", 4, 5)]
    spark.createDataFrame(rows, "key string, s bigint, n int").createOrReplaceTempView("holes")
    source = "from (select key, timestamp_seconds(s) ts, n from holes)"
    assert only_value(sql(f"select ecm_total(ecm_sketch_agg(key, ts)).value {source}")) == 3
    assert only_value(sql(f"select ecm_total(ecm_sketch_agg(key, ts, n)).value {source}")) == 6
    frame = spark.table("holes").select("key", F.timestamp_seconds("s").alias("ts"), "n")
    made = frame.agg(LF.ecm_sketch_agg("key", "ts", "n", **OPTIONS).alias("s")).select(LF.ecm_total("s").value)
    assert only_value(made.collect()) == 6
    rows = sql(f"select ecm_total(ecm_union_agg(sketch)).value v from ecm_partial(table(select null, key, ts, n {source}))")
    assert only_value(rows) == 6


def test_nothing_gives_null(sql):
    nothing = "(select string(null) key, timestamp_seconds(1) ts, binary(null) s, double(null) v)"
    (row,) = sql(f"select ecm_sketch_agg(key, ts) a, topk_sketch_agg(key, ts) b, quantiles_sketch_agg(v, ts) c from {nothing}")
    assert tuple(row) == (None, None, None)
    assert only_value(sql(f"select sketch_union_agg(s) from {nothing}")) is None
    (row,) = sql(f"""
        select ecm_count(s, 'a'), ecm_counts(s, array('a')), ecm_total(s), ecm_self_join(s), ecm_inner_product(s, s),
               topk_top(s), quantiles_quantile(s, 0.5), quantiles_quantiles(s, array(0.5)), quantiles_rank(s, 1),
               quantiles_count_range(s, 1, 2), sketch_info(s) from {nothing}""")
    assert set(row) == {None}
    (row,) = sql("""
        select ecm_count(s, string(null)), ecm_counts(s, array('/0', null))[1], ecm_counts(s, null), ecm_inner_product(s, null)
        from (select ecm_sketch_agg(key, ts) s from events)""")
    assert tuple(row) == (None, None, None, None)
    (row,) = sql("select ecm_counts(s, array()) from (select ecm_sketch_agg(key, ts) s from events)")
    assert tuple(row) == ([],)


# -- what is refused ---------------------------------------------------------------------------------------------------

# Each costs Spark a Python worker, so the rest is below.
REFUSALS = {
    "select ecm_count(X'6162', 'a')": "2 bytes are too few for a sketch",
    "select ecm_top(ecm_sketch_agg(key, ts)) from events": "build the sketch with topk_sketch_agg",
    "select ecm_sketch_agg(v, ts) from events": "is a float; give text, bytes, integers",
    "select ecm_sketch_agg(key, ts, windw => '1h') from events": "ecm_sketch_agg has no option 'windw'; the options are",
    "select * from ecm_partial(table(select site, xxhash64(key), ts from events))": "add hashed => true",
}


@pytest.mark.parametrize("query", REFUSALS)
def test_what_is_wrong_is_told_by_spark_with_the_remedy(sql, query):
    with pytest.raises(PySparkException, match=re.escape(REFUSALS[query])):
        sql(query)


def test_what_cannot_be_asked_is_told_with_the_remedy(stream):
    ecm = pa.array([sketch_of(lt.EcmSketch, stream, OPTIONS).to_bytes()])
    numbers = pa.array([sketch_of(lt.Quantiles, stream, NUMBERS, "v").to_bytes()])
    for ask, remedy in (
        (lambda: answers.count(pa.array(["text"]), pa.array(["a"])), "'text' is of the type string; give the binary column"),
        (
            lambda: answers.quantile(ecm, pa.array([0.5])),
            "given a EcmSketch, which cannot answer it; build .* quantiles_sketch_agg",
        ),
        (lambda: answers.count(numbers, pa.array(["a"])), "build the sketch with ecm_sketch_agg or topk_sketch_agg"),
        (lambda: answers.count(ecm, pa.array([1.5])), "the key 1.5 is a float"),
        (lambda: answers.total(ecm, pa.array(["2h"])), "2h"),
        (lambda: answers.total(ecm, pa.array([600])), "write it like '10m'"),
        (lambda: answers.total(ecm, pa.array(["soon"])), "cannot read the duration 'soon'"),
        (lambda: answers.inner_product(ecm, numbers), "give two EcmSketches"),
        (lambda: answers.quantile(numbers, pa.array([1.5])), "1.5"),
        (lambda: udfs.union(pa.array([b"ab"])), "2 bytes are too few"),
        (lambda: udfs.union(pa.concat_arrays([ecm, numbers])), "EcmSketch"),
    ):
        with pytest.raises(lt.LatelyError, match=remedy):
            ask()


def test_what_cannot_be_built_is_told_with_the_remedy(stream):
    recipe, _ = udfs.recipe_of("ecm", "ecm_sketch_agg", OPTIONS, {})
    topk, _ = udfs.recipe_of("topk", "topk_sketch_agg", OPTIONS, {})
    key, ts = stream["key"].combine_chunks(), stream["ts"].combine_chunks()
    for build, remedy in (
        (lambda: udfs.sketch_of(recipe, key, ts.cast(pa.string())), r"to_timestamp\(ts\)"),
        (lambda: udfs.sketch_of(recipe, udfs.keys_for(recipe, key, False), ts, pa.array(np.full(ROWS, -1))), "-1"),
        (lambda: udfs.keys_for(recipe, key, True), "give xxhash64"),
        (lambda: udfs.keys_for(topk, key, True), "needs the keys themselves"),
        (
            lambda: udfs.constants("ecm_sketch_agg", {"eps": pa.array([0.1, 0.2])}),
            "eps differs from row to row; give a constant",
        ),
        (lambda: udfs.constants("ecm_sketch_agg", {"eps": pa.array([0.1, None])}), "eps differs from row to row"),
        (lambda: udfs.recipe_of("ecm", "ecm_sketch_agg", OPTIONS, {"eps": 2}), "eps=2"),
        (lambda: udfs.columns_of("ecm_partial", pa.record_batch({"key": key})), "select site, key, ts"),
        (lambda: udfs.columns_of("ecm_partial", pa.record_batch({"a": key, "ts": ts, "n": ts})), "takes ts for the key"),
        (lambda: udfs.columns_of("ecm_partial", pa.record_batch({"s": pa.array([[1]]), "k": [1], "t": [1]})), "to_json"),
    ):
        with pytest.raises(lt.LatelyError, match=remedy):
            build()


def test_columns_take_what_was_registered_and_options_before_it(spark, sql, stream):
    made = (
        spark.table("events")
        .agg(
            LF.ecm_sketch_agg("key", "ts").alias("ecm"),
            LF.topk_sketch_agg("key", "ts").alias("five"),
            LF.topk_sketch_agg("key", "ts", phi=0.2, eps=0.05).alias("phi"),
            LF.quantiles_sketch_agg("v", "ts", eps=0.05).alias("numbers"),
            LF.ecm_sketch_agg("key", "ts", eps=0.1, window="30m").alias("coarse"),
        )
        .collect()[0]
    )
    assert bytes(made.ecm) == sketch_of(lt.EcmSketch, stream, OPTIONS).to_bytes()
    assert bytes(made.five) == sketch_of(lt.TopK, stream, OPTIONS | {"k": 5}).to_bytes()
    assert bytes(made.phi) == sketch_of(lt.TopK, stream, OPTIONS | {"phi": 0.2, "eps": 0.05}).to_bytes()
    assert bytes(made.numbers) == sketch_of(lt.Quantiles, stream, NUMBERS, key="v").to_bytes()
    assert bytes(made.coarse) == sketch_of(lt.EcmSketch, stream, OPTIONS | {"eps": 0.1, "window": "30m"}).to_bytes()


@pytest.fixture
def nothing_registered(spark):
    """The session as it is before anybody registers; afterwards as it was."""
    before = spark.conf.get(LF._CONF, None)
    spark.conf.unset(LF._CONF)
    yield
    if before is not None:
        spark.conf.set(LF._CONF, before)


def test_columns_without_defaults_say_what_is_lacking(spark, nothing_registered):
    with pytest.raises(lt.ParameterError, match=r"ecm_sketch_agg lacks delta; .* or once in register\(spark, delta=0.01\)"):
        LF.ecm_sketch_agg("key", "ts", window="1h", eps=0.1)


def test_columns_refuse_before_spark_starts_anything(spark, sql):
    with pytest.raises(lt.ParameterError, match="has no option 'epsilon'"):
        LF.topk_sketch_agg("key", "ts", epsilon=0.1, **OPTIONS)
    with pytest.raises(lt.ParameterError, match="window of arrivals"):
        LF.ecm_sketch_agg("key", "ts", window=lt.arrivals(10), eps=0.1, delta=0.1)
    with pytest.raises(lt.ParameterError, match="eps"):
        LF.register(spark, window="1h", eps=3, delta=0.1)
    with pytest.raises(PySparkException, match="keys of the type double are not supported; cast them"):
        spark.table("events").agg(LF.ecm_sketch_agg("v", "ts", **OPTIONS)).collect()


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_on_sql_runs(spark):
    (section,) = re.findall(r"(?ms)^## SQL and column functions$(.*?)(?=^## |\Z)", PAGE.read_text())
    test = doctest.DocTestParser().get_doctest(section, {"spark": spark}, "docs/spark.md", str(PAGE), 0)
    assert len(test.examples) > 8
    report = []
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append).failed == 0, "".join(
        report
    )


def test_the_page_names_every_function():
    text = PAGE.read_text()
    functions = [name for name in vars(LF) if re.match(r"(ecm|topk|quantiles|sketch)_\w+$", name) and name != "sketch_of"]
    tables = ["ecm_partial", "topk_partial", "quantiles_partial"]
    assert len(functions) > 12
    assert [name for name in [*functions, *tables, "register", "key_hash"] if f"`{name}" not in text] == []
