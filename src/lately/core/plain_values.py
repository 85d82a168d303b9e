"""One key, one time, one count at a time: read without arrays, where ``keys``, ``times`` and ``columns`` need microseconds.

Only values of the most common types are read here, and only those that are in order. For anything else these functions
return None, and the caller must have it read, or refused, as a column. What they do return is what a column would give.
"""

import math
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.durations import Window
from lately.core.joined import JoinedKeys
from lately.core.keys import HashedKeys, IntegerKeys, Keys, TextKeys, all_hashes, key_column
from lately.core.times import EPOCH, FAR, FIRST_SECOND, LAST_SECOND

#: Longer keys are not plain, so that a list of plain ones has a bounded size.
MOST_LETTERS = 256

_NAIVE_EPOCH = EPOCH.replace(tzinfo=None)
_NANOSECONDS = np.dtype("datetime64[ns]")

#: From here on, nanoseconds do not fit in 64 bits.
_OVERFLOW = 2**63


def plain_key(key: Any) -> str | bytes | int | None:
    """A key as Python has it, if it is text, bytes or an integer; None for any other.

    >>> plain_key("a"), plain_key(np.int64(3)), plain_key(("a", 3)), plain_key(2**63)
    ('a', 3, None, None)
    """
    kind = type(key)
    if kind is str:
        return key if len(key) <= MOST_LETTERS and (key.isascii() or _is_unicode(key)) else None
    if kind is int:
        return key if -(2**63) <= key < 2**63 else None
    if kind is bytes:
        return key if len(key) <= MOST_LETTERS else None
    if kind is np.int64:
        return int(key)
    return plain_key(str(key)) if kind is np.str_ else None


def plain_count(count: Any) -> int | None:
    """How often to count a row, if that is a valid integer; once if it is None.

    >>> plain_count(None), plain_count(5), plain_count(np.int64(5)), plain_count(-1), plain_count(2.0), plain_count(True)
    (1, 5, 5, None, None, None)
    """
    if count is None:
        return 1
    if type(count) is not int:
        if type(count) is not np.int64:
            return None
        count = int(count)
    return count if count >= 0 else None


def plain_number(value: Any) -> float | None:
    """A number as a float, if it is a finite float or an integer that a float holds exactly; None for anything else.

    >>> plain_number(2.5), plain_number(3), plain_number(math.nan), plain_number("3")
    (2.5, 3.0, None, None)
    """
    kind = type(value)
    if kind is float or kind is np.float64:
        return float(value) if -math.inf < value < math.inf else None
    return float(value) if kind is int and -(2**53) <= value <= 2**53 else None


def plain_column(keys: list[Any]) -> Keys:
    """A column of plain keys, which may be of several types.

    >>> column = plain_column(["a", 3, b"c", "d"])
    >>> column.pick(np.array([3, 1, 2]))
    ['d', 3, b'c']
    """
    if len(keys) == 1:
        return key_column(keys[0])
    kinds = set(map(type, keys))
    if len(kinds) == 1:
        return _COLUMNS[kinds.pop()](keys)
    parts, rows, start = [], np.empty(len(keys), np.int64), 0
    for kind, as_column in _COLUMNS.items():
        places = [place for place, key in enumerate(keys) if type(key) is kind]
        if places:
            parts.append(as_column([keys[place] for place in places]))
            rows[places] = np.arange(start, start + len(places))
            start += len(places)
    column = JoinedKeys(parts)
    return HashedKeys(all_hashes(column)[rows], column, rows)


def plain_ticks(window: Window) -> Callable[[Any], int | None]:
    """A function that gives the tick of a time, if it is a number, a datetime or text that can be read; else None.

    Parameters
    ----------
    window
        The window, of time or of integers.

    >>> tick_of = plain_ticks(Window.of("1h"))
    >>> tick_of("2026-01-01T00:00:10"), tick_of(datetime(1970, 1, 1, 0, 1)), tick_of(3.5), tick_of("now"), tick_of(None)
    (1767225610, 60, 3, None, None)
    """
    return _integer_ticks(window.unit) if window.kind == "integer" else _time_ticks(window.unit)


def _is_unicode(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer_column(keys: list[int]) -> Keys:
    return IntegerKeys(np.array(keys, np.int64))


def _text_column(keys: list[str]) -> Keys:
    text = "".join(keys)
    if text.isascii():
        return TextKeys(np.frombuffer(text.encode(), np.uint8), _offsets(keys), True)
    raw = [key.encode() for key in keys]
    return TextKeys(np.frombuffer(b"".join(raw), np.uint8), _offsets(raw), True)


def _bytes_column(keys: list[bytes]) -> Keys:
    return TextKeys(np.frombuffer(b"".join(keys), np.uint8), _offsets(keys), False)


_COLUMNS: dict[type, Callable[[list[Any]], Keys]] = {int: _integer_column, str: _text_column, bytes: _bytes_column}


def _offsets(keys: list[Any]) -> Ints:
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)), out=offsets[1:])
    return offsets


@lru_cache(maxsize=64)  # a buffer is made whenever rows come after a question
def _integer_ticks(unit: int) -> Callable[[Any], int | None]:
    def tick_of(time: Any) -> int | None:
        if type(time) is not int:
            if type(time) is not np.int64:
                return None
            time = int(time)
        return time // unit if -FAR <= time <= FAR else None

    return tick_of


@lru_cache(maxsize=64)
def _time_ticks(unit: int) -> Callable[[Any], int | None]:
    """For windows whose ticks are ``unit`` nanoseconds long."""

    def rescaled(value: int, scale: int) -> int | None:
        # As _rescale in times.py: where ticks are not multiples of the scale, nanoseconds must fit in 64 bits.
        if unit % scale and abs(value) * scale >= _OVERFLOW:
            return None
        tick = value * scale // unit
        return tick if -FAR <= tick <= FAR else None

    def of_datetime(time: datetime) -> int | None:
        gap = time - (_NAIVE_EPOCH if time.tzinfo is None else EPOCH)
        return rescaled((gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds, 1_000)

    def of_number(time: float) -> int | None:
        if not FIRST_SECOND <= time < LAST_SECOND:  # nan as well
            return None
        if isinstance(time, int):
            return rescaled(time, 10**9)
        seconds = math.floor(time)
        nanos = seconds * 10**9 + round((time - seconds) * 1e9)
        if abs(time) * 1e9 >= _OVERFLOW or not -FAR <= nanos // unit <= FAR:
            return None
        return nanos // unit

    def of_datetime64(time: np.datetime64) -> int | None:
        value = time.item()
        if isinstance(value, datetime):  # in microseconds or coarser; not beyond where each unit can be rescaled
            tick = of_datetime(value)
            return None if abs(value - _NAIVE_EPOCH).days >= 106_000 else tick
        return rescaled(value, 1) if time.dtype == _NANOSECONDS and isinstance(value, int) else None

    def of_text(time: str) -> int | None:
        try:
            return of_datetime(datetime.fromisoformat(time))
        except ValueError:
            return None

    readers: dict[type, Callable[[Any], int | None]] = {
        int: of_number,
        float: of_number,
        datetime: of_datetime,
        str: of_text,
        np.datetime64: of_datetime64,
        np.int64: lambda time: of_number(int(time)),
        np.float64: lambda time: of_number(float(time)),
    }

    def tick_of(time: Any) -> int | None:
        reader = readers.get(type(time))
        return None if reader is None else reader(time)

    return tick_of
