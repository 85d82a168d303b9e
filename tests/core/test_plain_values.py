"""Single values that are read without arrays: they are read as a column would be, or not at all."""

import math
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lately.core.columns import arrival_counts
from lately.core.durations import Window
from lately.core.errors import InputError
from lately.core.keys import hash_keys, key_column
from lately.core.plain_values import MOST_LETTERS, plain_column, plain_count, plain_key, plain_number, plain_ticks
from lately.core.times import tick_of
from lately.sketches.number_steps import numbers_of

WINDOWS = [Window.of("1h"), Window.of("1s", "1ns"), Window.of("7s", "7ms"), Window.of("2h", "1h"), Window.of("10s", "2500ms")]
WINDOWS += [Window.of(1000), Window.of(1000, 10), Window("arrivals", 10, 1)]

zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5, minutes=45))])
datetimes = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)
numbers = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(-(10**10), 10**10),
    st.floats(),
    st.floats(-1e10, 1e10),
    st.sampled_from([2**62, -(2**62), 2**62 + 1, 2**63, 253_402_300_799, 253_402_300_800, -62_135_596_800, 9_223_372_036]),
    st.sampled_from([9_223_372_036.0, 9_223_372_037.0, 0.9999999999, -0.5, 4_611_686_018.5]),
)
units = st.sampled_from(["Y", "M", "D", "h", "m", "s", "25s", "ms", "us", "ns", "ps"])
datetime64s = st.builds(np.datetime64, st.one_of(st.integers(-(2**40), 2**40), st.integers(-(2**62), 2**62)), units)
times = st.one_of(
    numbers,
    datetimes,
    datetimes.map(datetime.isoformat),
    datetimes.map(str),
    st.dates().map(str),
    st.text(max_size=12),
    datetime64s,
    st.integers(-(2**62), 2**62).map(np.int64),
    st.floats(-1e11, 1e11).map(np.float64),
    st.dates(),
    st.sampled_from([None, True, np.datetime64("NaT"), pd.NaT, pd.Timestamp(5), "2026-01-01\0", "2026-01-01T24:00", b"2026"]),
)


@pytest.mark.parametrize("window", WINDOWS[:-1], ids=repr)
@given(time=times)
@example(time=np.datetime64("2300-01-01", "s"))
@example(time=datetime(2300, 1, 1))
@example(time=9_223_372_037)
@example(time=4_611_686_018.427388)
def test_a_plain_time_has_the_tick_of_a_column_and_is_never_one_that_is_refused(window, time):
    tick = plain_ticks(window)(time)
    assert tick is None or (type(tick) is int and tick == tick_of(time, window))


def test_the_times_of_most_streams_are_plain():
    seconds, number = plain_ticks(Window.of("1h")), plain_ticks(Window.of(100))
    for time in (0, 0.5, datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01", "1970-01-01T00:00:00Z"):
        assert seconds(time) == 0
    for unit in ("h", "s", "ms", "us", "ns"):
        assert seconds(np.datetime64(0, unit)) == 0
    assert (seconds(np.int64(7)), seconds(np.float64(7.9)), number(7), number(np.int64(7))) == (7, 7, 7, 7)
    for time in (None, [0], (0,), np.array(0), date(1970, 1, 1), pd.Timestamp(0), math.nan, 10**12):
        assert seconds(time) is None


keys = st.one_of(st.text(), st.binary(), st.integers(-(2**64), 2**64), st.booleans(), st.tuples(st.integers()), st.none())


@given(key=st.one_of(keys, st.text(), st.characters(categories=["Cs"]), st.integers().map(str).map(np.str_)))
@example(key=np.int64(-5))
@example(key="a" * MOST_LETTERS)
@example(key="ä" * (MOST_LETTERS + 1))
def test_a_plain_key_is_the_same_key(key):
    plain = plain_key(key)
    if plain is None:
        return
    assert type(plain) in (str, bytes, int)
    assert (hash_keys(plain) == hash_keys(key)).all()
    assert key_column(plain).pick(np.zeros(1, np.int64)) == [key]


def test_the_keys_of_most_streams_are_plain():
    for key in ("", "a", "ä" * MOST_LETTERS, b"", b"a", 0, -(2**63), 2**63 - 1):
        assert plain_key(key) == key
    for key in (None, True, 2**63, 1.0, ("a",), ["a"], "a" * (MOST_LETTERS + 1), b"a" * (MOST_LETTERS + 1), "\ud800"):
        assert plain_key(key) is None


@given(column=st.lists(keys.filter(lambda key: plain_key(key) is not None), min_size=1, max_size=20))
def test_a_column_of_plain_keys_has_their_hashes_and_gives_them_back(column):
    read = plain_column(column)
    hashes = np.full(len(column), 42, np.uint64)
    read.hash_into(0, hashes)
    assert len(read) == len(column)
    assert hashes.tolist() == [int(hash_keys(key)[0]) for key in column]
    for source in (read, read.take(np.arange(len(column))), read.part(0, len(column))):
        picked = source.pick(np.arange(len(column)))
        assert picked == column
        assert [type(key) for key in picked] == [type(key) for key in column]


@given(count=st.one_of(st.none(), numbers, numbers.map(str), st.booleans(), st.integers(-5, 5).map(np.int64)))
@example(count=[2])
def test_a_plain_count_is_that_of_a_column(count):
    plain = plain_count(count)
    if plain is None or plain > 2**62:
        return
    read = arrival_counts(count, 1)
    assert [plain] == ([1] if read is None else read.tolist())


@given(value=st.one_of(numbers, st.text(max_size=4), st.none(), st.booleans(), st.floats().map(np.float64)))
def test_a_plain_number_is_that_of_a_column(value):
    plain = plain_number(value)
    if plain is not None:
        assert type(plain) is float
        assert [plain] == numbers_of(value).tolist()


def test_what_is_no_finite_number_is_not_plain():
    for value in (math.nan, math.inf, -math.inf, "1", True, None, [1.0], 2**53 + 1):
        assert plain_number(value) is None
    with pytest.raises(InputError):
        numbers_of(math.nan)
