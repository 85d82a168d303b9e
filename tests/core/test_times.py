"""Instants of every kind, as ticks."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.durations import Window
from lately.core.times import is_instant, tick_of, ticks_of

HOUR = Window.of("1h")
MILLIS = Window.of("1h", "1ms")
INTEGERS = Window.of(1_000)
COARSE = Window.of(1_000, 10)

#: The same instant, 2026-01-01 12:00:10.75 UTC, and its Unix time.
NOON = 1_767_268_810
NAIVE = datetime(2026, 1, 1, 12, 0, 10, 750_000)
AWARE = NAIVE.replace(tzinfo=UTC)
BERLIN = AWARE.astimezone(ZoneInfo("Europe/Berlin"))

COLUMNS = {
    "naive datetimes": [NAIVE],
    "aware datetimes": [AWARE],
    "datetimes of another zone": [BERLIN],
    "datetimes with an offset": [AWARE.astimezone(timezone(timedelta(hours=-9, minutes=-30)))],
    "a tuple": (NAIVE,),
    "one datetime": NAIVE,
    "one aware datetime": BERLIN,
    "text": ["2026-01-01T12:00:10.750"],
    "text in UTC": ["2026-01-01T12:00:10.75Z"],
    "text with an offset": ["2026-01-01 13:00:10.75+01:00"],
    "one text": "2026-01-01T12:00:10.750",
    "bytes": np.array([b"2026-01-01T12:00:10.750"]),
    "datetime64[ms]": np.array([NAIVE], "datetime64[ms]"),
    "datetime64[us]": np.array([NAIVE], "datetime64[us]"),
    "datetime64[ns]": np.array([NAIVE], "datetime64[ns]"),
    "datetime64[250ms]": np.array([NAIVE], "datetime64[ms]").astype("datetime64[250ms]"),
    "big-endian datetime64": np.array([NAIVE], ">M8[ms]"),
    "a list of datetime64": [np.datetime64(NAIVE, "ms")],
    "one datetime64": np.datetime64(NAIVE, "ms"),
    "float seconds": [NOON + 0.75],
    "one float": NOON + 0.75,
    "Arrow timestamps": pa.array([NAIVE], pa.timestamp("ms")),
    "Arrow timestamps in UTC": pa.array([NAIVE], pa.timestamp("us", "UTC")),
    "Arrow timestamps with a zone": pa.array([BERLIN], pa.timestamp("ns", "Europe/Berlin")),
    "chunked Arrow timestamps": pa.chunked_array([[NAIVE]], pa.timestamp("us")),
    "a slice of Arrow timestamps": pa.array([datetime(1999, 1, 1), NAIVE, datetime(2050, 1, 1)], pa.timestamp("us")).slice(
        1, 1
    ),
    "an Arrow scalar": pa.scalar(NAIVE, pa.timestamp("us")),
    "a pandas column": pd.Series([NAIVE]),
    "a pandas column with a zone": pd.Series([BERLIN]),
    "a pandas column in milliseconds": pd.Series([NAIVE]).astype("datetime64[ms]"),
    "a pandas column of text": pd.Series(["2026-01-01T12:00:10.750Z"]),
    "a pandas column of Arrow timestamps": pd.Series([AWARE], dtype=pd.ArrowDtype(pa.timestamp("us", "UTC"))),
    "a pandas index": pd.DatetimeIndex([NAIVE]),
    "a pandas index with a zone": pd.DatetimeIndex([BERLIN]),
    "a pandas timestamp": pd.Timestamp(BERLIN),
    "a list of pandas timestamps": [pd.Timestamp(BERLIN)],
    "a polars column": pl.Series([NAIVE]),
    "a polars column with a zone": pl.Series([NAIVE]).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
    "a polars column in milliseconds": pl.Series([NAIVE]).dt.cast_time_unit("ms"),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_one_instant_in_every_form(column):
    assert ticks_of(column, HOUR).tolist() == [NOON]
    assert ticks_of(column, MILLIS).tolist() == [1_000 * NOON + 750]
    assert ticks_of(column, MILLIS).dtype == np.int64


DATES = {
    "dates": [date(2026, 1, 1)],
    "one date": date(2026, 1, 1),
    "text": ["2026-01-01"],
    "days": np.array(["2026-01-01"], "datetime64[D]"),
    "months": np.array(["2026-01"], "datetime64[M]"),
    "years": np.array(["2026"], "datetime64[Y]"),
    "hours": np.array(["2026-01-01T00"], "datetime64[h]"),
    "Arrow date32": pa.array([date(2026, 1, 1)], pa.date32()),
    "Arrow date64": pa.array([date(2026, 1, 1)], pa.date64()),
    "polars": pl.Series([date(2026, 1, 1)]),
    "pandas objects": pd.Series([date(2026, 1, 1)]),
    "seconds": [NOON // 86_400 * 86_400],
    "seconds of Arrow": pa.array([NOON // 86_400 * 86_400]),
    "seconds of uint32": np.array([NOON // 86_400 * 86_400], np.uint32),
}


@pytest.mark.parametrize("column", DATES.values(), ids=DATES)
def test_dates_and_whole_seconds_are_midnight_of_utc(column):
    assert ticks_of(column, HOUR).tolist() == [1_767_225_600]


INTEGER_COLUMNS = {
    "a list": [-7, 0, 12, 2**40],
    "a tuple": (-7, 0, 12, 2**40),
    "whole floats": [-7.0, 0.0, 12.0, float(2**40)],
    "int64": np.array([-7, 0, 12, 2**40]),
    "big-endian": np.array([-7, 0, 12, 2**40], ">i8"),
    "every second one": np.array([-7, 1, 0, 1, 12, 1, 2**40])[::2],
    "Arrow": pa.array([-7, 0, 12, 2**40]),
    "chunked Arrow": pa.chunked_array([[-7, 0], [12, 2**40]]),
    "pandas": pd.Series([-7, 0, 12, 2**40]),
    "nullable pandas": pd.Series([-7, 0, 12, 2**40], dtype="Int64"),
    "polars": pl.Series([-7, 0, 12, 2**40]),
}


@pytest.mark.parametrize("column", INTEGER_COLUMNS.values(), ids=INTEGER_COLUMNS)
def test_integers_in_every_form(column):
    assert ticks_of(column, INTEGERS).tolist() == [-7, 0, 12, 2**40]
    assert ticks_of(column, COARSE).tolist() == [-1, 0, 1, 2**40 // 10]


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.sampled_from(["1us", "1ms", "1s", "7s", "1.5s", "1h"]))
def test_any_datetime_in_any_form_falls_into_its_tick(moment, tick):
    window = Window.of("21h", tick) if tick != "1us" else Window.of("1s", tick)
    exact = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1_000 // window.unit
    for column in ([moment], [moment.isoformat()], np.array([moment], "M8[us]"), pa.array([moment], pa.timestamp("us"))):
        assert ticks_of(column, window).tolist() == [exact]


@given(st.floats(-9e9, 9e9), st.sampled_from([HOUR, MILLIS]))
def test_float_seconds_are_exact_to_the_nanosecond(seconds, window):
    (tick,) = ticks_of([seconds], window).tolist()
    exact = seconds * 1e9 / window.unit
    assert tick - 0.001 <= exact <= tick + 1.001


def test_ticks_of_a_fraction_of_a_second_count_down_before_1970():
    assert ticks_of([-0.25, -0.0, 0.25], MILLIS).tolist() == [-250, 0, 250]
    assert ticks_of([-0.25, 0.25], HOUR).tolist() == [-1, 0]


@pytest.mark.parametrize("unit", ["ps", "fs"])
def test_units_finer_than_a_nanosecond_are_rounded_down(unit):
    moments = np.array([-1, 0, 1_500], "datetime64[ms]").astype(f"datetime64[{unit}]") + np.timedelta64(1, unit)
    assert ticks_of(moments, MILLIS).tolist() == [-1, 0, 1_500]


def test_an_empty_column_has_no_ticks():
    for empty in (
        [],
        np.array([], "datetime64[s]"),
        pa.array([], pa.timestamp("s")),
        pa.chunked_array([], pa.int64()),
        pd.Series([]),
    ):
        assert ticks_of(empty, HOUR).tolist() == []


REFUSED = {
    "None": (None, "None"),
    "a None among datetimes": ([NAIVE, None], "None"),
    "a None first": ([None, NAIVE], "None"),
    "a None among integers": ([1, None], "None"),
    "NaT": (np.array([NAIVE, "NaT"], "datetime64[s]"), "1 of the times are NaT"),
    "one NaT": (np.datetime64("NaT"), "NaT"),
    "NaT of pandas": ([NAIVE, pd.NaT], "NaT"),
    "one NaT of pandas": (pd.NaT, "NaT"),
    "NaT in a pandas column": (pd.Series([NAIVE, None]), "1 of the times are NaT"),
    "NaT in a zone": (pd.Series([BERLIN, None]), "1 of the times are NaT"),
    "a null of Arrow": (pa.array([NAIVE, None], pa.timestamp("s")), "1 of the times are null"),
    "a null of polars": (pl.Series([NAIVE, None, None]), "2 of the times are null"),
    "nan": ([1.0, float("nan")], "nan"),
    "infinity": ([float("-inf")], "-inf"),
    "nan in Arrow": (pa.array([1.0, float("nan")]), "nan"),
    "text that is no time": (["yesterday"], "yesterday"),
    "empty text": ([""], "isoformat"),
    "booleans": ([True, False], "bool"),
    "times of day": ([time(12)], r"time\(12, 0\)"),
    "timedeltas": ([timedelta(1)], "timedelta"),
    "Arrow times of day": (pa.array([1], pa.time32("s")), "time32"),
    "datetimes and numbers": ([NAIVE, 5], "5"),
    "numbers and datetimes": ([5, NAIVE], "5"),
    "complex numbers": ([1j], "complex"),
    "objects": ([object()], "object"),
    "a dict": ({1: 2}, "dict"),
    "two dimensions": ([[1, 2]], "2 dimensions"),
    "two dimensions of text": ([["2026-01-01"]], "must be str"),
    "ragged lists": ([[1], [2, 3]], "inhomogeneous"),
    "seconds as nanoseconds": ([1e19], r"1e\+19.*seconds since 1970"),
    "integers beyond int64": ([2**70], str(2**70)),
    "unsigned beyond int64": (np.array([2**63], np.uint64), str(2**63)),
    "years beyond all": (np.array([10**15], "datetime64[Y]"), "too far from 1970"),
}


@pytest.mark.parametrize(("column", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_time_is_refused_by_value(column, what):
    with pytest.raises(lt.InputError, match=what):
        ticks_of(column, HOUR)


def test_dates_do_not_belong_into_a_window_of_integers():
    for dated in (NAIVE, ["2026-01-01"], np.array(["2026-01-01"], "M8[D]"), pa.array([NAIVE], pa.timestamp("s"))):
        with pytest.raises(lt.InputError, match="integer"):
            ticks_of(dated, INTEGERS)


def test_a_window_of_integers_takes_no_fractions():
    with pytest.raises(lt.InputError, match=r"1\.5.*whole"):
        ticks_of([1.0, 1.5], INTEGERS)
    with pytest.raises(lt.InputError, match="too large for an exact float"):
        ticks_of([2.0**60], INTEGERS)


def test_times_that_their_ticks_cannot_number_are_refused():
    fine = Window.of("1s", "1ns")
    assert ticks_of([2**33], fine).tolist() == [2**33 * 10**9]
    with pytest.raises(lt.InputError, match="coarser tick"):
        ticks_of([2**34], fine)
    with pytest.raises(lt.InputError, match="coarser tick"):
        ticks_of([datetime(2300, 1, 1)], fine)
    with pytest.raises(lt.InputError, match="divide milliseconds by 1000"):
        ticks_of([-(2**63)], fine)
    assert ticks_of([datetime(2300, 1, 1)], HOUR).tolist() == [10_413_792_000]


def test_one_instant_is_one():
    assert tick_of(NAIVE, HOUR) == NOON
    with pytest.raises(lt.InputError, match="one instant"):
        tick_of([1, 2], INTEGERS)
    with pytest.raises(lt.InputError, match=r"2\*\*62"):
        tick_of(2**62 + 1, INTEGERS)


def test_instants_are_told_from_lengths():
    assert all(is_instant(x) for x in (NAIVE, AWARE, np.datetime64(NAIVE), pd.Timestamp(NAIVE)))
    assert not any(is_instant(x) for x in (5, "10m", timedelta(1), np.timedelta64(1, "s"), None))
