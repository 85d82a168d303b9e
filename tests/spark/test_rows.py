"""Rows: each is counted, late or rejected, with its reason and itself as JSON; nothing that a file can hold stops a stream."""

import datetime as dt
import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pipelines import START, add_file, answers_to, content, events, micros, run, table

from lately.core.errors import ParameterError

COUNTS = [{"name": "a", "kind": "counts", "keys": ["a"]}]
VALUES = [{"name": "v", "kind": "quantiles", "q": [0.0, 1.0], "lo": 0, "hi": 10, "resolution": 1}]
CLIPPED = [VALUES[0] | {"outside": "clip"}]
UNIVERSE = [{"name": "r", "kind": "ranges", "universe": 1024, "ranges": [[0, 1023]]}]
PER = [{"name": "many", "kind": "exact", "aggregate": "count", "per": "g", "above": 0, "where": "k <> 'z'"}]
SUM = [{"name": "sum", "kind": "exact", "aggregate": "sum", "of": "v"}]
INF, NAN = math.inf, math.nan
SECOND = int(START.timestamp())


def new_config(folder, sql, columns, queries, window=100, mode="batch", **source):
    """What a pipeline file says of a folder of any format."""
    config = content(folder / "source", folder, mode, queries=queries, window={"length": window})
    config["source"] |= {"columns": sql} | source
    config["columns"] = columns
    return config


def judged(spark, folder, sql, rows, queries=COUNTS, window=100, **columns):
    """Run a batch over these rows; returns the reasons of those that were rejected, by their place."""
    names = [part.split()[0] for part in sql.split(", ")]
    (folder / "source").mkdir()
    schema = pa.schema([("i", pa.int32()), *((part.split()[0], TYPES[part.split()[1]]) for part in sql.split(", "))])
    sent = [dict(zip(["i", *names], [i, *row], strict=True)) for i, row in enumerate(rows)]
    add_file(pa.Table.from_pylist(sent, schema), folder / "source", 0)
    config = new_config(folder, f"i int, {sql}", {"time": "t", "key": "k"} | columns, queries, window)
    run(spark, config)
    (done,) = table(config, "runs")
    rejected = table(config, "rejected")
    assert done["rows"] == len(rows) == done["counted"] + done["late"] + done["rejected"]
    assert done["rejected"] == len(rejected)
    for row in rejected:  # itself as JSON, with what is NULL
        source, json_row = sent[json.loads(row["row"])["i"]], json.loads(row["row"])
        assert {name: value is None for name, value in json_row.items()} == {name: source[name] is None for name in source}
        assert row["batch"] == 0
    return config, {json.loads(row["row"])["i"]: row["reason"] for row in rejected}


TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(20,3)": pa.decimal128(20, 3),
    "binary": pa.binary(),
}
BEYOND = "time is beyond the year 9999: numbers are seconds since 1970"
CASES = {
    "whole numbers": ("t bigint, k string", [(5, "a"), (None, "a"), (6, None), (2**63 - 1, "a"), (-(2**63), "a")], {}, {
        1: "no time", 2: "no key", 3: "time is beyond 2**62", 4: "time is beyond 2**62"}),
    "whole numbers as text": ("t string, k string", [("5", "a"), ("soon", "a"), ("", "a")], {}, {
        1: "time cannot be read: soon", 2: "time cannot be read: "}),
    "counts": ("t bigint, k string, c bigint", [(5, "a", 3), (5, "a", None), (5, "a", -2), (5, "a", 0), (6, "a", 2**62)],
        {"count": "c"}, {1: "no count", 2: "count is negative: -2", 4: f"count is beyond 2**53: {2**62}"}),
    "sites": ("t bigint, k string, s string", [(5, "a", "lima"), (6, "a", None), (6, "a", "")], {"site": "s"}, {1: "no site"}),
    "values": ("t bigint, k string, v double", [(5, "a", 3.0), (5, "a", None), (5, "a", NAN), (5, "a", 1e9), (5, "a", INF),
        (6, "a", -1.0)], {"value": "v", "queries": VALUES}, {1: "no value",
        2: "value is not a number (NaN)",
        3: "value is outside of 0..10 (v): 1.0E9", 4: "value is outside of 0..10 (v): Infinity",
        5: "value is outside of 0..10 (v): -1.0"}),
    "clipped values": ("t bigint, k string, v double", [(5, "a", 3.0), (5, "a", None), (5, "a", NAN), (5, "a", INF),
        (6, "a", -INF)], {"value": "v", "queries": CLIPPED}, {1: "no value",
        2: "value is not a number (NaN)"}),
    "a universe": ("t bigint, k int", [(5, 3), (5, 1024), (5, -1), (6, None)], {"queries": UNIVERSE}, {
        1: "key is outside of 0..1023: 1024", 2: "key is outside of 0..1023: -1", 3: "no key"}),
    "groups": ("t bigint, k string, g string", [(5, "a", "x"), (6, "a", None), (6, "z", None)], {"queries": PER},
        {1: "no g (many)"}),
    "sums": ("t bigint, k string, v bigint", [(5, "a", 1), (5, "a", None), (6, "a", 2**53 + 1)], {"queries": SUM},
        {2: f"v is beyond 2**53 (sum): {2**53 + 1}"}),
    "an expression": ("t bigint, k string", [(5, "12"), (6, "x")], {"key": "try_cast(k as int)", "queries": [
        {"name": "a", "kind": "counts", "keys": [12]}]}, {1: "no key: try_cast(k as int) is NULL"}),
    "a cast": ("t bigint, k string", [(5, "12"), (6, "x"), (6, None), (7, "99999999999")], {"key": "cast(k as int)",
        "queries": [{"name": "a", "kind": "counts", "keys": [12], "where": "cast(k as int) > 0"}]}, {
        1: "key cannot be computed: cast(k as int)", 2: "no key: cast(k as int) is NULL",
        3: "key cannot be computed: cast(k as int)"}),
    "a format of times": ("t string, k string", [("05.01.2026", "a"), ("2026", "a"), (None, "a")], {"window": "1h",
        "time": "to_timestamp(t, 'dd.MM.yyyy')"}, {1: "time cannot be computed: to_timestamp(t, 'dd.MM.yyyy')",
        2: "no time: to_timestamp(t, 'dd.MM.yyyy') is NULL"}),
    "an overflow": ("t bigint, k string, v bigint", [(5, "a", 1), (5, "a", 2**62), (6, "a", None)], {"queries": [
        SUM[0] | {"of": "v * 4"}]}, {1: "expression cannot be computed: v * 4"}),
    "a division": ("t bigint, k string, v double", [(5, "a", 4.0), (5, "a", 0.0), (5, "a", None)], {"queries": VALUES,
        "value": "8 / v"}, {1: "value cannot be computed: 8 / v", 2: "no value: 8 / v is NULL"}),
    "a filter": ("t bigint, k string", [(5, "4"), (5, "0"), (6, "x"), (6, None)], {"queries": [
        {"name": "a", "kind": "join", "left": "1 / cast(k as int) > 0", "right": "k > 1"}]}, {
        1: "filter cannot be computed: 1 / cast(k as int) > 0", 2: "filter cannot be computed: 1 / cast(k as int) > 0",
        3: "no key"}),
    "bytes as keys": ("t bigint, b binary", [(5, b"a"), (6, b"\xff"), (6, None)], {"key": "cast(b as string)", "queries": [
        {"name": "t", "kind": "top"}]}, {1: "key is not valid UTF-8", 2: "no key: cast(b as string) is NULL"}),
    "bytes as sites": ("t bigint, k string, b binary", [(5, "a", b"lima"), (6, "a", b"\xc3")], {
        "site": "cast(b as string)"}, {1: "site is not valid UTF-8"}),
    "bytes as groups": ("t bigint, k string, b binary", [(5, "a", b"x"), (6, "a", b"\xc3"), (6, "z", b"\xc3")], {"queries": [
        PER[0] | {"per": "cast(b as string)"}]}, {1: "cast(b as string) is not valid UTF-8"}),
    "seconds": ("t bigint, k string", [(SECOND, "a"), (2**62, "a"), (10**12, "a")], {"window": "1h"}, {
        1: f"time cannot be read: {2**62}", 2: BEYOND}),
    "seconds in fractions": ("t double, k string", [(SECOND + 0.5, "a"), (NAN, "a"), (INF, "a"), (-1e300, "a")],
        {"window": "1h"}, {1: "time cannot be read: NaN", 2: BEYOND, 3: BEYOND}),
    "seconds as decimals": ("t decimal(20,3), k string", [(Decimal(f"{SECOND}.25"), "a")], {"window": "1h"}, {}),
    "dates": ("t date, k string", [(START.date(), "a"), (None, "a")], {"window": "1h"}, {1: "no time"}),
    "times as text": ("t string, k string", [("2026-01-05T12:00:00Z", "a"), ("2026-01-05 13:00:00+01:00", "a"), ("noon", "a"),
        ("", "a")], {"window": "1h"}, {2: "time cannot be read: noon", 3: "time cannot be read: "}),
    "timestamps": ("t timestamp, k string", [(START, "a"), (dt.datetime.now(dt.UTC) + dt.timedelta(days=2), "a"),
        (dt.datetime.now(dt.UTC) + dt.timedelta(hours=22), "a")], {"window": "7d"}, {
        1: "time is more than 5m in the future", 2: "time is more than 5m in the future"}),
    "binary keys": ("t bigint, k binary", [(5, b"a"), (6, b"\xff")], {"queries": [{"name": "t", "kind": "top"}]}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_counted_is_rejected_with_its_reason(spark, tmp_path, case):
    sql, rows, options, reasons = CASES[case]
    _, rejected = judged(spark, tmp_path, sql, rows, **options)
    assert rejected == reasons


def test_a_date_that_no_timestamp_can_hold_stops_nothing(spark, tmp_path):
    days = pa.array([20_000, 2 * 10**8], pa.int32()).cast(pa.date32())
    (tmp_path / "source").mkdir()
    add_file(pa.table({"t": days, "k": ["a", "a"]}), tmp_path / "source", 0)
    config = new_config(tmp_path, "t date, k string", {"time": "t", "key": "k"}, COUNTS, "1h")
    run(spark, config)
    assert [(row["time"], row["reason"]) for row in table(config, "rejected")] == [(None, BEYOND)]


def test_a_row_that_is_not_counted_keeps_its_microseconds(spark, tmp_path):
    moment = START + dt.timedelta(microseconds=584_297)
    config, _ = judged(spark, tmp_path, "t timestamp, k string", [(moment, None)], window="1h")
    (row,) = table(config, "rejected")
    assert row["time"] == moment == dt.datetime.fromisoformat(json.loads(row["row"])["t"])


def test_exact_counts_take_rows_as_many_times_as_the_others_do(spark, tmp_path):
    rows = [(5, "a", 3), (5, "b", 0), (6, "a", 4), (9, "a", 2)]
    queries = [
        {"name": "all", "kind": "exact", "aggregate": "count", "last": 3},
        {"name": "no b", "kind": "exact", "aggregate": "count", "where": "k = 'x'"},
        {"name": "many", "kind": "exact", "aggregate": "count", "per": "k", "above": 6, "last": 300},
        {"name": "sum", "kind": "exact", "aggregate": "sum", "of": "c", "last": 300},
        {"name": "a", "kind": "counts", "keys": ["a", "b"], "last": 300},
    ]
    config, rejected = judged(spark, tmp_path, "t bigint, k string, c bigint", rows, queries, 300, count="c")
    assert not rejected
    values = {(row["query"], row["item"]): row["value"] for row in table(config, "answers")}
    assert values == {("all", None): 2, ("no b", None): 0, ("many", "a"): 9, ("sum", None): 9, ("a", "a"): 9, ("a", "b"): 0}


def test_rejected_rows_count_for_nothing(spark, tmp_path):
    rows = [(5, "a", 2), (6, "a", -1), (6, "b", 5), (7, "a", 0), (7, "a", 1)]
    config, _ = judged(spark, tmp_path, "t bigint, k string, c bigint", rows, count="c")
    assert answers_to(config, "a")[None, "a"] == (3, 3, 3)


LINES = {
    "json": ('{"t":5,"k":"a"}\n{"t":oops\n{"t":"x","k":"a"}\n\n{"k":"a"}\n', ['{"t":oops', '{"t":"x","k":"a"}'], ["no time"]),
    "csv": ("5,a\nx,a\n7\n6,b\n", ["x,a", "7"], []),
}


@pytest.mark.parametrize("mode", ["batch", "available-now"])
@pytest.mark.parametrize("columns", ["t bigint, k string", "t bigint, k string, _corrupt_record string", None])
@pytest.mark.parametrize("kind", LINES)
def test_lines_that_cannot_be_read_are_kept_as_they_are(spark, tmp_path, kind, columns, mode):
    if columns is None and (mode != "batch" or kind == "csv"):
        columns = "t bigint, k string"
    text, unreadable, reasons = LINES[kind]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "lines").write_text(text)
    time = "t" if columns else "cast(t as bigint)"  # Spark infers that it is text
    config = new_config(tmp_path, columns, {"time": time, "key": "k"}, COUNTS, format=kind, mode=mode)
    if columns is None:
        del config["source"]["columns"]
        unreadable, reasons = (
            unreadable[:1],
            ["no time: cast(t as bigint) is NULL", "time cannot be computed: cast(t as bigint)"],
        )
    run(spark, config)
    (done,) = table(config, "runs")
    rejected = table(config, "rejected")
    assert sorted(row["row"] for row in rejected if row["reason"] == "line cannot be read") == sorted(unreadable)
    assert sorted(row["reason"] for row in rejected if row["reason"] != "line cannot be read") == sorted(reasons)
    assert done["rows"] == 4 == done["counted"] + done["rejected"]


def test_lines_that_the_user_wants_dropped_are_dropped(spark, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "lines").write_text("5,a\nx,a\n6,b\n")
    config = new_config(
        tmp_path, "t bigint, k string", {"time": "t", "key": "k"}, COUNTS, format="csv", options={"mode": "DROPMALFORMED"}
    )
    run(spark, config)
    assert [(row["rows"], row["counted"]) for row in table(config, "runs")] == [(2, 2)]


def test_binary_columns_are_kept_as_text_where_they_are_text(spark, tmp_path):
    (tmp_path / "source").mkdir()
    values = [b'{"port": 80}', b'{"port": "x"}', b"\xff\xfe", None, b""]
    add_file(pa.table({"t": pa.array([5] * 5, pa.int64()), "value": pa.array(values, pa.binary())}), tmp_path / "source", 0)
    key = "cast(get_json_object(cast(value as string), '$.port') as int)"
    config = new_config(tmp_path, "t bigint, value binary", {"time": "t", "key": key}, [COUNTS[0] | {"keys": [80]}])
    run(spark, config)
    rejected = sorted((json.loads(row["row"])["value"] or "", row["reason"]) for row in table(config, "rejected"))
    assert rejected == sorted(
        [
            ('{"port": "x"}', f"key cannot be computed: {key}"),
            ("//4=", f"no key: {key} is NULL"),
            ("", f"no key: {key} is NULL"),  # NULL
            ("", f"no key: {key} is NULL"),
        ]
    )
    assert answers_to(config, "a")[None, "80"][1] == 1


def test_dirty_rows_stop_no_session_of_the_users(spark, tmp_path):
    """A session that somebody else has made, with whatever settings: the stream goes on, and goes on again."""
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.codegen.wholeStage", "false")
    theirs.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    (tmp_path / "source").mkdir()
    config = new_config(
        tmp_path,
        "t string, k string",
        {"time": "to_timestamp(t)", "key": "cast(k as bigint) * 2"},
        [COUNTS[0] | {"keys": [4], "where": "cast(k as bigint) * 2 > 1"}],
        "1h",
        mode="available-now",
    )
    rows = [("2026-01-05 12:00:00", "2"), ("noon", "2"), ("2026-01-05 12:00:01", "two"), ("2026-01-05 12:00:01", str(2**62))]
    for number in range(2):
        batch = pa.table({"t": [row[0] for row in rows], "k": [row[1] for row in rows]})
        add_file(batch, tmp_path / "source", number)
        run(theirs, config)
    assert [(row["rows"], row["counted"], row["rejected"]) for row in table(config, "runs")] == [(4, 1, 3)] * 2
    assert answers_to(config, "a")[None, "4"][1] == 2


@pytest.mark.parametrize(
    ("sql", "columns", "queries", "window", "message"),
    [
        (
            "t bigint, k string",
            {"time": "when"},
            COUNTS,
            100,
            'columns.time = "when": the source has no column "when"; its columns are t, k$',
        ),
        ("t bigint, k string", {"key": "k +"}, COUNTS, 100, 'columns.key = "k \\+": Syntax error'),
        ("t bigint, k double", {}, COUNTS, 100, 'columns.key = "k": it is of type double'),
        ("t double, k string", {}, COUNTS, 100, 'columns.time = "t": it is of type double; the window is in integers'),
        ("t boolean, k string", {}, COUNTS, "1h", 'columns.time = "t": it is of type boolean'),
        ("t bigint, k string, c double", {"count": "c"}, COUNTS, 100, 'columns.count = "c": it is of type double'),
        ("t bigint, k string, v string", {"value": "v"}, VALUES, 100, 'columns.value = "v": it is of type string'),
        ("t bigint, k string", {}, UNIVERSE, 100, "queries for ranges need integer keys"),
        ("t bigint, k string", {}, [COUNTS[0] | {"where": "t"}], 100, 'where = "t" of the query "a": it is of type bigint'),
        (
            "t bigint, k string",
            {},
            [COUNTS[0] | {"where": "u > 1"}],
            100,
            'where = "u > 1" of the query "a": the source has no column "u"',
        ),
        ("t bigint, k string", {}, [SUM[0] | {"of": "k"}], 100, 'of = "k" of the query "sum": it is of type string'),
    ],
)
def test_columns_that_do_not_fit_are_told_before_anything_starts(spark, tmp_path, sql, columns, queries, window, message):
    (tmp_path / "source").mkdir()
    config = new_config(tmp_path, sql, {"time": "t", "key": "k"} | columns, queries, window, mode="available-now")
    with pytest.raises(ParameterError, match=message):
        run(spark, config)
    assert not (tmp_path / "state" / "spark").exists()


# -- a stream with everything in it ------------------------------------------------------------------------------------------


def soiled(size, seed):
    """Rows of three sites, of which some are late, and some are bad in one way or several."""
    random = np.random.default_rng(seed)
    rows = events(size, minutes=30, seed=seed).to_pylist()
    for row in rows:
        if random.random() < 0.05:
            row["ts"] -= dt.timedelta(minutes=int(random.integers(1, 9)))
        for name in ("ts", "key", "site", "n", "ms"):
            if random.random() < 0.01:
                row[name] = None
        if random.random() < 0.02:
            row["n"] = -int(random.integers(1, 9))
        if random.random() < 0.02:
            row["ms"] = [NAN, 1e6, -0.5][random.integers(0, 3)]
        if random.random() < 0.02:
            row["key"] = int(random.integers(1024, 2048))
    return rows


def reason_of(row):
    """Why a row of ``soiled`` cannot be counted."""
    if row["ts"] is None:
        return "no time"
    if row["key"] is None:
        return "no key"
    if row["key"] >= 1024:
        return f"key is outside of 0..1023: {row['key']}"
    if row["site"] is None:
        return "no site"
    if row["ms"] is None or math.isnan(row["ms"]):
        return "no value" if row["ms"] is None else "value is not a number (NaN)"
    if not 0 <= row["ms"] <= 100:
        return "value is outside of 0..100 (v): " + ("1000000.0" if row["ms"] > 0 else "-0.5")
    return "no count" if row["n"] is None else f"count is negative: {row['n']}" if row["n"] < 0 else None


@pytest.mark.parametrize("lateness", [None, "2m"])
def test_every_row_is_counted_or_late_or_rejected(spark, tmp_path, lateness):
    rows = soiled(3_000, seed=5)
    (tmp_path / "source").mkdir()
    schema = events(1).schema
    batches = [rows[i : i + 1_000] for i in range(0, 3_000, 1_000)]
    for number, batch in enumerate(batches):
        add_file(pa.Table.from_pylist(batch, schema), tmp_path / "source", number)
    config = content(
        tmp_path / "source",
        tmp_path,
        columns={"value": "ms", "count": "n"},
        window={"length": "1h"} | ({"lateness": lateness} if lateness else {}),
        queries=[
            {"name": "n", "kind": "counts", "keys": list(range(20))},
            {"name": "r", "kind": "ranges", "universe": 1024, "ranges": [[0, 1023]]},
            {"name": "v", "kind": "quantiles", "lo": 0, "hi": 100, "resolution": 1},
        ],
    )
    run(spark, config)
    floors, weight, allowed = {}, 0, 120 if lateness else 0
    expected = []
    for batch in batches:
        newest, counts = dict(floors), {"counted": 0, "late": [], "rejected": []}
        for row in batch:
            if reason := reason_of(row):
                counts["rejected"].append((row["site"], row["ts"], reason))
                continue
            second = micros(row["ts"].replace(microsecond=0)) // 10**6
            if second < floors.get(row["site"], second) - allowed:
                counts["late"].append((row["site"], row["ts"], "late"))
                continue
            newest[row["site"]] = max(newest.get(row["site"], second), second)
            counts["counted"] += 1
            weight += row["n"]
        floors = newest
        expected.append(counts)
    runs = table(config, "runs")
    assert [row["rows"] for row in runs] == [1_000] * 3
    assert [row["counted"] for row in runs] == [counts["counted"] for counts in expected]
    for name in ("late", "rejected"):
        assert [row[name] for row in runs] == [len(counts[name]) for counts in expected]
        stored = table(config, name)
        for number, counts in enumerate(expected):
            batch_rows = [row for row in stored if row["batch"] == number]
            assert sorted(
                (row["site"], row["time"], row["reason"]) for row in batch_rows if row["site"] and row["time"]
            ) == sorted(one for one in counts[name] if one[0] and one[1])
            assert sorted(row["reason"] for row in batch_rows) == sorted(one[2] for one in counts[name])
        whole = [json.loads(row["row"]) for row in stored]
        assert all(row.keys() <= set(schema.names) and "event" in row for row in whole)
    assert sum(row["counted"] + row["late"] + row["rejected"] for row in runs) == len(rows)
    low, _, high = answers_to(config, "r")[None, "0..1023"]
    assert low <= weight <= high
