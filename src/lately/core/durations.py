"""How long a window is, and what one tick of it is: "10m", timedelta, plain integers, or arrivals."""

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Literal, TypeGuard

import numpy as np

from lately.core.arguments import check_integer
from lately.core.errors import ParameterError

#: What may stand for a length of time: "10m", a timedelta, or a plain integer when times are integers.
Duration = str | int | timedelta | np.timedelta64

_NANOSECONDS = {
    unit: scale
    for scale, units in {
        1: "ns nanosecond nanoseconds",
        1_000: "us µs microsecond microseconds",
        1_000_000: "ms millisecond milliseconds",
        1_000_000_000: "s sec second seconds",
        60_000_000_000: "m min minute minutes",
        3_600_000_000_000: "h hour hours",
        86_400_000_000_000: "d day days",
        604_800_000_000_000: "w week weeks",
    }.items()
    for unit in units.split()
}
_PART = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([a-zµ]+)\s*")

#: Stamps are 32 bits wide; a quarter of that room for the window leaves enough for time to pass between two rebasings.
MAX_WINDOW_TICKS = 2**30


def nanoseconds(duration: Duration) -> int:
    """Parse a length of time into nanoseconds.

    >>> nanoseconds("1h 30m") == nanoseconds(timedelta(minutes=90)) == 90 * 60 * 10**9
    True
    """
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * 10**9 + duration.microseconds * 1_000
    if isinstance(duration, np.timedelta64):
        exact = duration.astype("timedelta64[ns]")
        if exact.astype(duration.dtype) != duration:  # NaT, or too long
            raise ParameterError(f"{duration!r} is not a whole number of nanoseconds below 2**63", remedy="write it like '10m'")
        return int(exact.astype(np.int64))
    if not isinstance(duration, str):
        raise ParameterError(f"{duration!r} is not a duration", remedy="write it like '10m', '1h 30m' or timedelta(minutes=10)")
    return _parsed(duration)


@lru_cache(maxsize=256)  # questions repeat the same few
def _parsed(duration: str) -> int:
    fractional, integral, at = 0.0, 0, 0
    text = duration.lower()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _NANOSECONDS:
            raise ParameterError(
                f"cannot read the duration {duration!r}",
                remedy="write a number and one of ns, us, ms, s, m, h, d, w, as in '10m'",
            )
        scale = _NANOSECONDS[part[2]]
        if "." in part[1]:
            fractional += float(part[1]) * scale
        else:
            integral += int(part[1]) * scale
        at = part.end()
    if at == 0:
        raise ParameterError("an empty duration", remedy="write it like '10m'")
    return integral + round(fractional)


@dataclass(frozen=True, slots=True)
class arrivals:  # noqa: N801  (reads as a word: window=arrivals(1_000_000))
    """A window over the last ``n`` arrivals instead of a length of time.

    >>> arrivals(1_000_000)
    arrivals(n=1000000)
    """

    n: int

    def __post_init__(self) -> None:
        check_integer(
            "arrivals(n): n", self.n, 1, MAX_WINDOW_TICKS, remedy="give the number of arrivals, such as arrivals(1_000_000)"
        )


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window cut in ticks.

    ``kind`` says what a tick is: ``unit`` nanoseconds of time, ``unit`` of the caller's integers, or one arrival.
    It holds exactly ``ticks`` of them, the newest included: those after ``now - ticks`` and up to ``now``.
    """

    kind: Literal["time", "integer", "arrivals"]
    ticks: int
    unit: int

    @classmethod
    def of(cls, window: Duration | arrivals, tick: Duration | None = None) -> "Window":
        """Read the ``window=`` and ``tick=`` that a user gives.

        >>> Window.of("1h"), Window.of(1_000_000), Window.of(arrivals(500))
        (Window('1h', tick='1s'), Window(1000000, tick=1), Window(arrivals(500)))
        """
        if isinstance(window, arrivals):
            if tick is not None:
                raise ParameterError(
                    f"tick={tick!r} with a window of arrivals", remedy="leave tick out, an arrival is the tick"
                )
            return cls("arrivals", int(window.n), 1)
        if isinstance(window, bool) or isinstance(tick, bool):
            raise ParameterError(f"window={window!r}, tick={tick!r}: a duration is a text, a timedelta or an integer")
        if _is_whole(window):
            if tick is not None and not _is_whole(tick):
                raise ParameterError(
                    f"window={window!r} is an integer but tick={tick!r} is not", remedy="give both the same way"
                )
            return cls("integer", *_cut(int(window), 1 if tick is None else int(tick), window, 1 if tick is None else tick))
        if _is_whole(tick):
            raise ParameterError(f"tick={tick!r} is an integer but window={window!r} is not", remedy="write tick='1s'")
        length, unit = nanoseconds(window), nanoseconds("1s" if tick is None else tick)
        return cls("time", *_cut(length, unit, window, "1s" if tick is None else tick))

    @property
    def span(self) -> int:
        """The age of the oldest tick inside; the newest has age 0."""
        return self.ticks - 1

    def length(self, duration: Duration) -> int:
        """A length of time in ticks, of which it must be a whole number; not checked against the window."""
        if self.kind == "time":
            if _is_whole(duration):
                raise ParameterError(
                    f"{duration!r} is not a duration, and this window is in time", remedy="write it like '10m'"
                )
            units = nanoseconds(duration)
        elif isinstance(duration, bool) or not _is_whole(duration):
            what = "arrivals" if self.kind == "arrivals" else "integer times"
            raise ParameterError(f"{duration!r}: this window is over {what}", remedy="give a whole number")
        else:
            units = int(duration)
        if units % self.unit:
            raise ParameterError(
                f"{duration!r} is not a whole number of ticks of {self.text(1)}", remedy="ask for a multiple of a tick"
            )
        return units // self.unit

    def text(self, ticks: int) -> str:
        """A number of ticks as the user would write it."""
        return _readable(ticks * self.unit) if self.kind == "time" else f"{ticks * self.unit:,}"

    def __repr__(self) -> str:
        if self.kind == "arrivals":
            return f"Window(arrivals({self.ticks}))"
        if self.kind == "integer":
            return f"Window({self.ticks * self.unit}, tick={self.unit})"
        return f"Window({_readable(self.ticks * self.unit)!r}, tick={_readable(self.unit)!r})"


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, np.timedelta64)  # which NumPy calls an integer


def _cut(length: int, unit: int, window: object, tick: object) -> tuple[int, int]:
    if length <= 0 or unit <= 0:
        raise ParameterError(f"window={window!r}, tick={tick!r}: both must be longer than nothing")
    if unit >= 2**63:
        raise ParameterError(f"tick={tick!r} is longer than 2**63 - 1", remedy="give a finer tick=")
    if length < unit:
        raise ParameterError(
            f"window={window!r} is shorter than one tick of {tick!r}", remedy="give a finer tick= or a longer window="
        )
    if length % unit:
        raise ParameterError(
            f"window={window!r} is not a whole number of ticks of {tick!r}", remedy="make it a multiple of tick="
        )
    if length // unit > MAX_WINDOW_TICKS:
        raise ParameterError(
            f"window={window!r} has {length // unit:,} ticks of {tick!r}, more than {MAX_WINDOW_TICKS:,}",
            remedy="give a coarser tick=",
        )
    return length // unit, unit


def _readable(ns: int) -> str:
    for scale, unit in (
        (604_800_000_000_000, "w"),
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ):
        if ns >= scale and ns % scale == 0:
            return f"{ns // scale}{unit}"
    return f"{ns}ns"
