"""The ranges that users ask for, as ages in ticks: the most recent period, or between two ages or dates.

An age of ``a`` ticks is the edge before the newest ``a`` ticks, so a range holds the ticks t with

    last=a           now - a < t <= now             exactly a ticks, the newest included
    between=(a, b)   now - a < t <= now - b         exactly a - b ticks

and a longer range is a shorter one plus the range before it. A date is the edge before its own tick: ``between`` two dates
holds the ticks from the first date up to, not including, the second.
"""

from typing import Any

from lately.core.durations import Duration, Window
from lately.core.errors import ParameterError, RangeError
from lately.core.times import is_instant, tick_of


def range_ages(
    window: Window, now: int | None, last: Duration | None, between: tuple[Any, Any] | None
) -> tuple[int, int | None]:
    """A range as ages in ticks: from the older one, up to the newer one (None: up to now)."""
    if between is None:
        return _age(window, now, last, "last") if last is not None else window.ticks, None
    if last is not None:
        raise RangeError(f"last={last!r} and between={between!r}", remedy="give one of them")
    try:
        older, newer = between
    except (TypeError, ValueError):
        raise RangeError(
            f"between={between!r} is not a range", remedy="give two ages, the older first, as in ('2h', '1h')"
        ) from None
    start, stop = _age(window, now, older, "between"), _age(window, now, newer, "between")
    if start < stop:
        raise RangeError(f"between={between!r} runs backwards", remedy="give the older end first, as in ('2h', '1h')")
    return start, stop if stop > 0 else None  # a date may lie in the future


def _age(window: Window, now: int | None, value: Any, name: str) -> int:
    if name == "between" and is_instant(value) and window.kind == "time":
        age = 0 if now is None else now + 1 - tick_of(value, window)
    else:
        try:
            age = window.length(value)
        except ParameterError as error:
            raise RangeError(f"{name}: {error.message}", remedy=error.remedy) from error
        if age < 0:
            raise RangeError(f"{name}={value!r} is negative", remedy=f"give an age, such as {window.text(1)!r}")
    if age > window.ticks:
        longest = window.text(window.ticks)
        raise RangeError(
            f"{name}={value!r} does not lie in the window of {longest}", remedy="ask for less, or build a longer window"
        )
    return age
