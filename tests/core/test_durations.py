"""Lengths of time, and windows cut into ticks."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.durations import MAX_WINDOW_TICKS, Window, nanoseconds

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1ns", 1),
        ("250us", 250_000),
        ("250µs", 250_000),
        ("3 ms", 3_000_000),
        ("10s", 10 * SECOND),
        ("10 sec", 10 * SECOND),
        ("10m", 600 * SECOND),
        ("1 min", 60 * SECOND),
        ("1.5h", 5_400 * SECOND),
        ("1h 30m", 5_400 * SECOND),
        ("1h30m", 5_400 * SECOND),
        ("2 Hours", 7_200 * SECOND),
        ("  7d ", 604_800 * SECOND),
        ("1w", 604_800 * SECOND),
        ("1 week 1 day 1 hour 1 minute 1 second", (604_800 + 86_400 + 3_600 + 61) * SECOND),
        ("0.1s", 100_000_000),
        ("9223372036854775807ns", 2**63 - 1),
    ],
)
def test_text_is_read_as_people_write_it(text, expected):
    assert nanoseconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "10",
        "m",
        "ten minutes",
        "10 parsecs",
        "-5m",
        "1y",
        "1h, 30m",
        "1e3s",
        "5m!",
        ".5s",
        "1" * 5000 + "s",
        "9" * 400 + ".5s",
    ],
)
def test_text_that_is_no_duration_is_refused(text):
    with pytest.raises(lt.ParameterError, match="'10m'"):
        nanoseconds(text)


@pytest.mark.parametrize("value", [None, 5, 2.5, True, [], b"10m"])
def test_what_is_no_duration_is_refused_by_value(value):
    with pytest.raises(lt.ParameterError, match="is not a duration"):
        nanoseconds(value)


@given(st.timedeltas(timedelta(0), timedelta(days=100_000)))
def test_a_timedelta_is_exact(duration):
    assert nanoseconds(duration) == duration // timedelta(microseconds=1) * 1_000


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (np.timedelta64(90, "m"), 5_400 * SECOND),
        (np.timedelta64(3, "D"), 3 * 86_400 * SECOND),
        (np.timedelta64(7, "ns"), 7),
        (np.timedelta64(5_000, "ps"), 5),
    ],
)
def test_numpy_timedeltas_of_any_unit(duration, expected):
    assert nanoseconds(duration) == expected


@pytest.mark.parametrize("duration", [np.timedelta64("NaT"), np.timedelta64(10**12, "D"), np.timedelta64(1, "ps")], ids=str)
def test_numpy_timedeltas_that_nanoseconds_cannot_hold_are_refused(duration):
    with pytest.raises(lt.ParameterError, match="whole number of nanoseconds"):
        nanoseconds(duration)


@given(st.integers(1, 10**4), st.sampled_from(["ns", "us", "ms", "s", "m", "h", "d", "w"]))
def test_a_window_reads_back_what_it_prints(n, unit):
    window = Window.of(f"{n}{unit}", f"{n}{unit}")
    assert window == Window("time", 1, nanoseconds(f"{n}{unit}"))
    assert nanoseconds(window.text(1)) == window.unit


# -- windows -----------------------------------------------------------------------------------------------------------


def test_a_window_of_time_has_ticks_of_a_second_unless_told():
    assert Window.of("1h") == Window("time", 3_600, SECOND)
    assert Window.of("1h", tick="10ms") == Window("time", 360_000, 10**7)
    assert Window.of(timedelta(minutes=1), tick=np.timedelta64(1, "s")) == Window("time", 60, SECOND)


def test_a_window_that_is_no_multiple_of_its_tick_is_refused():
    for window, tick in (("1500ms", "1s"), ("1h", "7s"), (1000, 60)):
        with pytest.raises(lt.ParameterError, match="not a whole number of ticks"):
            Window.of(window, tick)


def test_a_window_of_integers():
    assert Window.of(1_000) == Window("integer", 1_000, 1)
    assert Window.of(np.int64(1_000), np.int32(10)) == Window("integer", 100, 10)


def test_numpy_timedeltas_are_no_integers():
    window = Window.of(np.timedelta64(1, "h"), np.timedelta64(1, "m"))
    assert window == Window("time", 60, 60 * SECOND)
    assert window.length(np.timedelta64(30, "m")) == 30
    for integers in (Window.of(100), Window.of(lt.arrivals(100))):
        with pytest.raises(lt.ParameterError, match="whole number"):
            integers.length(np.timedelta64(5, "s"))


def test_a_window_holds_exactly_its_ticks_or_arrivals():
    window = Window.of(lt.arrivals(500))
    assert (window.kind, window.ticks, window.span) == ("arrivals", 500, 499)
    assert Window.of(500).span == Window.of("500s").span == 499


@pytest.mark.parametrize(
    ("window", "tick", "what"),
    [
        ("1s", "1h", "shorter than one tick"),
        (5, 10, "shorter than one tick"),
        ("1s", "2s", "finer tick"),
        ("0s", None, "longer than nothing"),
        (0, None, "longer than nothing"),
        (-5, None, "longer than nothing"),
        (10, 0, "longer than nothing"),
        (timedelta(seconds=-1), None, "longer than nothing"),
        (MAX_WINDOW_TICKS + 1, None, "coarser tick"),
        ("1000d", "1ms", "coarser tick"),
        (2**80, 2**70, "finer tick"),
        ("60000w", "20000w", "finer tick"),
        (10, "1s", "the same way"),
        ("10s", 1, "tick='1s'"),
        (True, None, "True"),
        ("1h", True, "True"),
        (1.5, None, "1.5 is not a duration"),
        (None, None, "None is not a duration"),
        (lt.arrivals(5), "1s", "leave tick out"),
    ],
)
def test_windows_that_cannot_be_are_refused(window, tick, what):
    with pytest.raises(lt.ParameterError, match=what):
        Window.of(window, tick)


def test_the_longest_window_is_as_long_as_it_says():
    assert Window.of(MAX_WINDOW_TICKS).ticks == MAX_WINDOW_TICKS
    assert lt.arrivals(MAX_WINDOW_TICKS).n == MAX_WINDOW_TICKS


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "5", None, MAX_WINDOW_TICKS + 1])
def test_arrivals_must_be_a_number_of_them(n):
    with pytest.raises(lt.ParameterError, match=r"n=.* is not an integer"):
        lt.arrivals(n)


def test_lengths_are_in_the_windows_own_terms():
    assert Window.of("1h", "10s").length("1m") == 6
    assert Window.of(100, 10).length(20) == 2
    assert Window.of(lt.arrivals(100)).length(25) == 25
    for window, length, what in (
        (Window.of("1h"), 60, "in time"),
        (Window.of(100), "1m", "integer times"),
        (Window.of("1h", "10s"), "59s", "'59s' is not a whole number of ticks of 10s"),
        (Window.of(100, 10), 25, "25 is not a whole number of ticks of 10"),
        (Window.of(100), True, "whole number"),
        (Window.of(100), 2.5, "whole number"),
        (Window.of(lt.arrivals(100)), "1m", "arrivals"),
    ):
        with pytest.raises(lt.ParameterError, match=what):
            window.length(length)


def test_windows_print_as_they_are_written():
    assert repr(Window.of("90m", "250ms")) == "Window('90m', tick='250ms')"
    assert repr(Window.of(1_000, 10)) == "Window(1000, tick=10)"
    assert repr(Window.of(lt.arrivals(7))) == "Window(arrivals(7))"
    assert Window.of("1h").text(90) == "90s"
    assert Window.of(10_000).text(1_234) == "1,234"
    assert Window.of("5ns", "1ns").text(3) == "3ns"
