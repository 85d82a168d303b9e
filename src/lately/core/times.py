"""Instants as users have them, turned into tick numbers: datetimes in any zone, NumPy, Arrow, pandas, polars, numbers.

In a window of time, plain numbers are seconds since 1970 (Unix time); in an integer window they are what they are.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from lately.core.columns import Ints, arrow, is_arrow, refuse_masked, whole_numbers
from lately.core.durations import Window
from lately.core.errors import InputError

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Ticks farther from the epoch are refused.
FAR = 2**62

_DATE = re.compile(r"\s*\d{4}-\d{2}")

#: Seconds of the years 1 and 10,000: numbers beyond are in another unit.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_800


def ticks_of(times: Any, window: Window) -> Ints:
    """Turn a column (or one value) of instants into int64 tick numbers, one for each.

    >>> ticks_of(["2026-01-01T00:00:10", "2026-01-01T00:00:11.7"], Window.of("1h"))
    array([1767225610, 1767225611])
    >>> ticks_of([3, 4], Window.of(1000))
    array([3, 4])
    """
    values, scale = _normalise(times)
    if values.ndim != 1:
        raise InputError(f"times has {values.ndim} dimensions", remedy="give one column")
    if window.kind == "integer":
        if scale:
            raise InputError(
                "times are dates but the window is in integers", remedy="build it like window='1h', or give integer times"
            )
        ticks = whole_numbers(values, "times")
        ticks = ticks if window.unit == 1 else ticks // window.unit
    else:
        if not scale and values.size:
            _check_seconds(values)
        if values.dtype.kind == "f":
            ticks = _float_seconds(values, window.unit)
        else:
            ticks = _rescale(whole_numbers(values, "times"), scale or 10**9, window.unit)
    return ticks


def check_tick(tick: int) -> None:
    """Refuse a tick so far from the epoch that arithmetic on it could overflow."""
    if abs(tick) > FAR:
        raise InputError(f"a time lies {tick:,} ticks from the epoch, more than 2**62", remedy="check the unit of times")


def ticks_of_keys(times: Any, window: Window, size: int) -> Ints:
    """The ticks of ``size`` keys, from one time for each of them or one for all."""
    ticks = ticks_of(times, window)
    if ticks.size == size:
        return ticks
    if ticks.size == 1 and np.ndim(times) == 0:
        return np.full(size, ticks[0])
    hint = " (a tuple is one key: give a list)" if size == 1 else ""
    raise InputError(f"{size:,} keys but {ticks.size:,} times{hint}", remedy="give one time for each key, or one for all")


def tick_of(time: Any, window: Window) -> int:
    """The tick of one instant."""
    ticks = ticks_of(time, window)
    if ticks.size != 1:
        raise InputError(f"{time!r} is more than one instant", remedy="give one")
    check_tick(int(ticks[0]))
    return int(ticks[0])


def instant_of(tick: int, window: Window) -> datetime | np.datetime64 | int:
    """The instant that a tick begins with: a date in windows of time, else the caller's integer.

    >>> instant_of(1767225610, Window.of("1h"))
    datetime.datetime(2026, 1, 1, 0, 0, 10, tzinfo=datetime.timezone.utc)
    """
    if window.kind != "time":
        return tick * window.unit
    try:
        return EPOCH + timedelta(microseconds=tick * window.unit // 1_000)
    except OverflowError:  # before the year 1 or after 9999
        return np.datetime64(tick * window.unit // 10**9 % 2**63, "s")


def iso_time(time: datetime | np.datetime64 | int | None) -> str | int | None:
    """An instant as JSON has it: ISO 8601 in UTC with a Z, or the integer that it is.

    Parameters
    ----------
    time
        A datetime (one without a zone is in UTC), a NumPy datetime, an integer, or None, which stays None.

    >>> iso_time(datetime(2026, 1, 1, 12, tzinfo=UTC)), iso_time(np.datetime64("20000-01-01", "s")), iso_time(42)
    ('2026-01-01T12:00:00Z', '20000-01-01T00:00:00Z', 42)
    """
    if isinstance(time, datetime):
        in_utc = time.astimezone(UTC) if time.tzinfo else time
        return f"{in_utc.replace(tzinfo=None).isoformat()}Z"
    if isinstance(time, np.datetime64):
        return f"{time}Z"
    return None if time is None else int(time)


def is_instant(value: object) -> bool:
    """Whether a value names an instant, rather than a length of time."""
    return isinstance(value, date | np.datetime64) or (isinstance(value, str) and _DATE.match(value) is not None)


def _normalise(times: Any) -> tuple[np.ndarray[Any, Any], int]:
    """The raw numbers, and how many nanoseconds one of them is (0 when the caller gave plain numbers)."""
    if times is None:
        raise InputError("times is None", remedy="give the instant of each arrival")
    if isinstance(times, date):
        times = [times]
    if isinstance(times, list | tuple) and times and isinstance(times[0], date):
        return _datetimes(times), 1_000
    if is_arrow(times) or hasattr(times, "to_arrow"):
        return _arrow_times(arrow(times))
    if getattr(getattr(times, "dtype", None), "tz", None) is not None:  # a pandas column or index with a zone
        zoned = times.dt if hasattr(times, "dt") else times
        times = zoned.tz_convert("UTC")
        times = times.dt.tz_localize(None) if hasattr(times, "dt") else times.tz_localize(None)
    refuse_masked(times, "times")
    try:
        values = np.atleast_1d(np.asarray(times))
        if values.dtype.kind in "US" or (values.dtype.kind == "O" and values.size and isinstance(values.flat[0], str)):
            return _datetimes([datetime.fromisoformat(text) for text in values.astype(str).tolist()]), 1_000
    except (ValueError, TypeError) as error:
        remedy = "give datetimes, datetime64, Arrow timestamps or numbers"
        raise InputError(f"cannot read times: {error}", remedy=remedy) from error
    if values.dtype.kind == "M":
        return _datetime64s(values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"times has the value {values[~np.isfinite(values)][0]}", remedy="fill or drop it first")
    if values.dtype.kind == "O":
        return _datetimes(values.tolist()), 1_000
    if values.dtype.kind not in "iuf":
        raise InputError(f"times has the type {values.dtype}", remedy="give datetimes, datetime64, Arrow timestamps or numbers")
    return values, 0


def _datetimes(times: list[Any] | tuple[Any, ...]) -> Ints:
    """Microseconds since 1970; a datetime without a zone is taken as UTC, a date as its midnight."""
    for missing in (t for t in times if t is None or t != t):  # NaT and nan differ from themselves
        raise InputError(f"times has the value {missing!r}", remedy="fill or drop it first")
    for odd in (t for t in times if not isinstance(t, date)):
        raise InputError(
            f"times has the value {odd!r} of type {type(odd).__name__}", remedy="give all as datetimes or as numbers"
        )
    dated = (t if isinstance(t, datetime) else datetime(t.year, t.month, t.day) for t in times)
    gaps = [(t if t.tzinfo else t.replace(tzinfo=UTC)) - EPOCH for t in dated]
    return np.array([(g.days * 86_400 + g.seconds) * 10**6 + g.microseconds for g in gaps], np.int64)


def _datetime64s(values: np.ndarray[Any, Any]) -> tuple[Ints, int]:
    """The numbers inside, in a unit between seconds and nanoseconds."""
    if np.isnat(values).any():
        raise InputError(f"{int(np.isnat(values).sum())} of the times are NaT", remedy="fill or drop them first")
    unit = np.datetime_data(values.dtype)[0]
    fine = unit if unit in _UNIT_NS else "ns" if unit in ("ps", "fs", "as") else "s"
    converted = values.astype(f"datetime64[{fine}]", copy=False)
    if fine != "ns" and (converted.astype(values.dtype) != values).any():
        raise InputError(f"times has the value {values[converted.astype(values.dtype) != values][0]}, too far from 1970")
    return converted.view(np.int64), _UNIT_NS[fine]


def _arrow_times(column: Any) -> tuple[np.ndarray[Any, Any], int]:
    import pyarrow as pa

    if column.null_count:
        raise InputError(f"{column.null_count} of the times are null", remedy="fill or drop them first")
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False), _UNIT_NS[kind.unit]
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64), 86_400 * 10**9
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _normalise(column.to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return _normalise(column.to_pylist())
    raise InputError(f"times has the Arrow type {kind}", remedy="give timestamps, dates or numbers")


def _check_seconds(values: np.ndarray[Any, Any]) -> None:
    """One number in milliseconds among seconds would push everything else out of the window for ever."""
    for worst in (values.min(), values.max()):
        if not FIRST_SECOND <= worst < LAST_SECOND:
            raise InputError(
                f"times has the value {worst}: in a window of time numbers are seconds since 1970, and that is beyond "
                "the year 9999",
                remedy="divide milliseconds by 1000, or give datetime64[ms]",
            )


def _rescale(values: Ints, scale: int, unit: int) -> Ints:
    """floor(values * scale / unit) without overflow."""
    if unit % scale == 0:
        return values if unit == scale else values // (unit // scale)
    if values.size and max(int(values.max()), -int(values.min())) * scale >= 2**63:
        raise InputError(
            f"times reach {int(np.abs(values).max()):,}, too far from 1970 for ticks of {unit} ns", remedy="use a coarser tick="
        )
    return values * scale // unit


def _float_seconds(values: np.ndarray[Any, Any], unit: int) -> Ints:
    if values.size and float(np.abs(values).max()) * 1e9 >= 2.0**63:
        raise InputError(f"times reach {np.abs(values).max():.6g} seconds; numbers in a time window are Unix seconds")
    seconds = np.floor(values)
    nanos = seconds.astype(np.int64) * 10**9 + np.round((values - seconds) * 1e9).astype(np.int64)
    ticks: Ints = nanos // unit
    return ticks
