"""However a stream is given, its answers are the same: dicts, frames and tables, times of every kind, late rows."""

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lately as lt

PRICE = [20.5, 21.0, None, 19.5]
SHARES = [100, 50, 30, 70]
SYMBOL = ["A", "B", "A", "A"]
TIMES = [10, 11, 11, 13]


def build(**options):
    w = lt.Windows(**({"tick": 1} | options))
    w.add("volume", lt.agg.sum("shares"), last=3)
    w.add("mean", lt.agg.avg("price"), last=4)
    w.add("high", lt.agg.max("price"), between=(4, 2))
    w.add("median", lt.agg.quantile("shares", 0.5), last=lt.arrivals(3))
    w.add("rows", lt.agg.count(), last=4)
    w.add("prices", lt.agg.count("price"), last=4)
    if "lateness" not in options:
        w.add("busy", lt.agg.count() > 2, per="symbol", last=4)
    return w


def seen(w):
    return {
        name: (list(a.value) if isinstance(a.value, lt.Answers) else a.value, a.rows, a.missing)
        for name, a in w.answers().items()
    }


def columns(**others):
    return {"price": PRICE, "shares": SHARES, "symbol": SYMBOL} | others


EXPECTED = build()
EXPECTED.update(columns(), TIMES)
NULLABLE = pd.DataFrame(columns()).astype({"price": "Float64", "shares": "Int64", "symbol": "string"})
FRAMES = {
    "lists": columns(),
    "tuples": columns(price=tuple(PRICE), shares=tuple(SHARES)),  # a tuple of text is one key
    "NumPy": columns(price=np.array([20.5, 21.0, math.nan, 19.5]), shares=np.array(SHARES, np.int16), symbol=np.array(SYMBOL)),
    "NumPy objects": {name: np.array(column, object) for name, column in columns().items()},
    "float32": columns(price=np.array([20.5, 21.0, math.nan, 19.5], np.float32)),
    "not contiguous": columns(shares=np.array([SHARES, SHARES]).T[:, 0]),
    "unsigned": columns(shares=np.array(SHARES, np.uint64)),
    "Arrow table": pa.table(columns()),
    "Arrow table in chunks": pa.concat_tables([pa.table(columns()).slice(0, 3), pa.table(columns()).slice(3)]),
    "Arrow batch": pa.RecordBatch.from_pydict(columns()),
    "Arrow arrays": {name: pa.array(column) for name, column in columns().items()},
    "Arrow dictionary": columns(symbol=pa.array(SYMBOL).dictionary_encode(), shares=pa.array(SHARES).dictionary_encode()),
    "pandas": pd.DataFrame(columns()),
    "pandas nullable": NULLABLE,
    "pandas on Arrow": pa.table(columns()).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, another index": pd.DataFrame(columns(), index=[7, 3, 7, 1]),
    "polars": pl.DataFrame(columns()),
    "polars categorical": pl.DataFrame(columns()).with_columns(pl.col("symbol").cast(pl.Categorical)),
    "extra columns": columns(ignored=[object()] * 4, more=["x"] * 4),
    "extra columns of other lengths": columns(ignored=[1, 2]),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_kind_of_frame_gives_the_same(frame):
    w = build()
    w.update(frame, TIMES)
    assert seen(w) == seen(EXPECTED)
    assert isinstance(w["volume"].value, int)
    assert isinstance(w["median"].value, int)
    assert isinstance(w["mean"].value, float)


def test_what_they_give():
    found = seen(EXPECTED)
    assert found["volume"] == (150, 3, 0)
    assert found["mean"] == (pytest.approx(61 / 3), 4, 1)
    assert found["high"] == (21.0, 3, 1)
    assert found["median"] == (50, 3, 0)
    assert (found["rows"], found["prices"]) == ((4, 4, 0), (3, 4, 1))
    assert [row.key for row in found["busy"][0]] == ["A"]


def test_a_scalar_is_a_column_of_one():
    w = build()
    for price, shares, symbol, time in zip(PRICE, SHARES, SYMBOL, TIMES, strict=True):
        w.update({"price": math.nan if price is None else price, "shares": shares, "symbol": symbol}, time)
    assert seen(w) == seen(EXPECTED)
    w = build()
    for price, shares, symbol, time in zip(PRICE, SHARES, SYMBOL, TIMES, strict=True):
        w.update({"price": np.float64(price or math.nan), "shares": np.int8(shares), "symbol": [symbol]}, np.int64(time))
    assert seen(w) == seen(EXPECTED)


def test_a_scalar_that_is_missing():
    w = build()
    w.update({"price": None, "shares": 3, "symbol": "A"}, 5)
    assert seen(w)["mean"] == (None, 1, 1)


# -- types ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [[True, False, True], np.array([True, False, True]), pa.array([True, False, True]), pd.Series([True, False, True])],
    ids=["list", "NumPy", "Arrow", "pandas"],
)
def test_columns_of_booleans_are_counted(column):
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("ok"), last=lt.arrivals(9))
    w.add("share", lt.agg.avg("ok"), last=lt.arrivals(9))
    w.update({"ok": column})
    assert (w["sum"].value, w["share"].value) == (2, pytest.approx(2 / 3))
    assert isinstance(w["sum"].value, int)


def test_integers_stay_integers_until_a_float_comes():
    w = lt.Windows(tick=1)
    kinds = {"sum": lt.agg.sum, "min": lt.agg.min, "max": lt.agg.max, "first": lt.agg.first, "last": lt.agg.last}
    for name, make in kinds.items():
        w.add(name, make("x"), last=lt.arrivals(3))
    w.add("avg", lt.agg.avg("x"), last=lt.arrivals(3))
    w.update({"x": [1, 2, 3]})
    assert all(isinstance(w[name].value, int) for name in kinds)
    assert isinstance(w["avg"].value, float)
    w.update({"x": [1.0]})
    assert all(isinstance(w[name].value, float) for name in kinds)


def test_decimals_are_numbers():
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(9))
    w.update({"x": [Decimal("1.25"), Decimal("2.50"), None]})
    assert w["sum"] == lt.Answer(3.75, 3, 1)


def test_integers_up_to_2_53_are_exact():
    w = lt.Windows(tick=1)
    w.add("max", lt.agg.max("x"), last=lt.arrivals(9))
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(9))
    w.update({"x": [2**53, -(2**53), 2**53 - 1]})
    assert (w["max"].value, w["sum"].value) == (2**53, 2**53 - 1)


def test_only_missing_values():
    for column in ([None, None], [math.nan] * 2, pa.nulls(2), np.full(2, np.nan), pd.Series([None, None], dtype="Int64")):
        w = lt.Windows(tick=1)
        w.add("sum", lt.agg.sum("x"), last=lt.arrivals(9))
        w.add("count", lt.agg.count("x"), last=lt.arrivals(9))
        w.update({"x": column})
        assert (w["sum"], w["count"]) == (lt.Answer(None, 2, 2), lt.Answer(0, 2, 2))


# -- times ---------------------------------------------------------------------------------------------------------------

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
STAMPS = [START + timedelta(seconds=second) for second in TIMES]
ABROAD = timezone(timedelta(hours=5, minutes=30))
CLOCKS = {
    "datetimes": STAMPS,
    "datetimes elsewhere": [stamp.astimezone(ABROAD) for stamp in STAMPS],
    "seconds": [stamp.timestamp() for stamp in STAMPS],
    "datetime64": np.array([stamp.replace(tzinfo=None) for stamp in STAMPS], "M8[ns]"),
    "Arrow": pa.array(STAMPS, pa.timestamp("us", "UTC")),
    "pandas": pd.Series(STAMPS),
    "polars": pl.Series(STAMPS),
}


@pytest.mark.parametrize("times", CLOCKS.values(), ids=CLOCKS)
def test_times_of_every_kind(times):
    w = lt.Windows()
    w.add("recent", lt.agg.sum("shares"), last="3s")
    w.add("past", lt.agg.sum("shares"), between=("4s", "3s"))
    w.update({"shares": SHARES}, times)
    assert (w["recent"].value, w["past"].value, w.now) == (150, 100, START + timedelta(seconds=13))
    w.advance(START + timedelta(minutes=1))
    assert (w["recent"], w.now) == (lt.Answer(None, 0), START + timedelta(minutes=1))


def test_one_time_for_all():
    w = build()
    w.update(columns(), 20)
    assert (w["volume"].value, w.now) == (250, 20)
    w.update({name: column * 2 for name, column in columns().items()}, 22)
    assert (w["volume"].rows, w["high"].rows) == (12, 4)


def test_a_tick_is_as_fine_as_times_are_told_apart():
    w = lt.Windows(tick="10ms")
    w.add("n", lt.agg.count(), last="30ms")
    w.update({}, [0.0, 0.005, 0.012, 0.031, 0.039])
    assert w["n"].value == 3
    assert w.now == datetime(1970, 1, 1, 0, 0, 0, 30_000, tzinfo=UTC)


def test_rows_in_any_order_are_put_in_order():
    w, twin = build(), build()
    order = [3, 1, 0, 2]
    w.update({name: [column[i] for i in order] for name, column in columns().items()}, [TIMES[i] for i in order])
    twin.update(columns(), TIMES)
    assert seen(w) == seen(twin)
    w.update({name: column[:1] for name, column in columns().items()}, [12])
    assert (w.late, seen(w)) == (1, seen(twin))


def test_late_rows_find_their_place():
    w, twin = build(lateness=5), build(lateness=5)
    twin.update(columns(), TIMES)
    for i in (3, 0, 1, 2):
        w.update({name: column[i : i + 1] for name, column in columns().items()}, TIMES[i : i + 1])
    assert (seen(w), w.late) == (seen(twin), 0)
    w.update({name: column[:1] for name, column in columns().items()}, [7])
    assert (seen(w), w.late) == (seen(twin), 1)


def test_a_stream_without_times():
    w = lt.Windows(tick=1)
    w.add("recent", lt.agg.sum("x"), last=lt.arrivals(2))
    w.add("past", lt.agg.sum("x"), between=(lt.arrivals(4), lt.arrivals(2)))
    w.add("rows", lt.agg.count(), last=lt.arrivals(3))
    assert (w.now, w["recent"], w["rows"]) == (None, lt.Answer(None, 0), lt.Answer(0, 0))
    for value in (1, 2, 3, 4, 5):
        w.update({"x": value})
    assert (w["recent"].value, w["past"].value, w["rows"].value, w.now) == (9, 5, 3, 4)


def test_counts_need_no_column():
    w = lt.Windows(tick=1)
    w.add("n", lt.agg.count(), last=4)
    w.update({}, [1, 2, 3, 4])
    w.update({"whatever": ["a", "b"]}, [5, 6])
    assert w["n"].value == 4


# -- answers as tables ---------------------------------------------------------------------------------------------------


def test_answers_are_a_mapping_and_columns():
    answers = EXPECTED.answers()
    assert list(answers) == list(EXPECTED) == list(EXPECTED.queries)
    assert len(answers) == len(EXPECTED) == 7
    assert "mean" in answers
    assert "mean" in EXPECTED
    assert answers["mean"] == EXPECTED["mean"]
    assert answers.rows.tolist() == [3, 4, 3, 3, 4, 4, 1]
    assert answers.missing.tolist() == [0, 1, 1, 0, 0, 1, 0]
    assert answers.covered.tolist() == [1.0] * 7
    np.testing.assert_allclose(answers.value, [150, 61 / 3, 21, 50, 4, 3, np.nan])
    with pytest.raises(KeyError):
        answers["nobody"]


def test_answers_become_tables():
    w = build(lateness=1)
    w.update(columns(), TIMES)
    table = w.answers().to_arrow()
    assert table.column_names == ["query", "value", "rows", "missing", "covered"]
    assert table.column("query").to_pylist() == list(w.queries)
    assert table.column("value").to_pylist() == [150, pytest.approx(61 / 3), 21, 50, 4, 3]
    assert w.answers().to_pandas().equals(table.to_pandas())
    assert "volume" in repr(w.answers())
    assert "<table" in w.answers()._repr_html_()
    assert EXPECTED.answers().to_arrow().num_rows == 7


def test_an_answer_is_a_number():
    assert (float(EXPECTED["volume"]), int(EXPECTED["volume"])) == (150.0, 150)
    assert repr(EXPECTED["volume"]) == "Answer(150, 3 rows)"
    assert repr(EXPECTED["prices"]) == "Answer(3, 4 rows, 1 missing)"
    assert repr(EXPECTED["busy"]) == "Answer(1 keys)"


def test_sums_of_integers_are_integers():
    w = lt.Windows()
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(9))
    w.update({"x": [2**53 - 2, 1]})
    assert (w["sum"].value, type(w["sum"].value)) == (2**53 - 1, int)
    w.update({"x": [2]})  # 2**53 + 1 is no float
    assert (w["sum"].value, type(w["sum"].value)) == (2**53 + 1, int)
    assert w.partials(["sum"])["sum"] == w["sum"]
