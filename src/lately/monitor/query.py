"""The base of the queries: each knows its estimate, its tolerance, and the safe zones within which drift cannot leave it.

Counts of arrivals drift up and down; rises can only raise an estimate, falls only lower it (ECM-15 Theorem 5). Numbers with
random signs have one drift for both.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from lately.core.errors import ParameterError
from lately.monitor.layout import Layout
from lately.monitor.sketch import FastAms, Sketch
from lately.monitor.zones import Floats, Form

#: The sides of a value that may be limited.
UPPER, LOWER = 1, 2
#: The theta of an alarm if none is given.
ALARM_THETA = 0.1
#: An alarm keeps its state in this share of its tolerance; the rest leaves room to drift after it has changed.
_HYSTERESIS = 0.9


@dataclass(frozen=True, kw_only=True, repr=False)
class Query(ABC):
    """Base of the queries: a value tracked within ``theta``, or an alarm at a threshold.

    A tracked value is announced within ``theta`` of the estimate, relatively, or within ``floor`` if that is wider. An alarm
    fires beyond its threshold, and within ``theta`` of the threshold it keeps its state. The value of an empty window is 0,
    so an alarm ``below`` a threshold fires from the start until enough events have arrived.

    Parameters
    ----------
    theta
        The tolerance, as a share of the value or of the threshold, between 0 and 1. By default an alarm has 0.1, or twice
        what its sketch needs if that is more; a tracked value needs one.
    above
        Fire while the value is at least this. By default there is no alarm.
    below
        Fire while the value is less than this. Give at most one of ``above`` and ``below``.
    floor
        The smallest tolerance of a tracked value, in units of the value; 0 by default.
    """

    theta: float | None = None
    above: float | None = None
    below: float | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        name = type(self).__name__
        for part in ("theta", "above", "below", "floor"):
            value = getattr(self, part)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
            ):
                raise ParameterError(f"{name}({part}={value!r}) is not a finite number", remedy="give a number")
        if self.above is not None and self.below is not None:
            raise ParameterError(
                f"{name}(above={self.above!r}, below={self.below!r}) has two thresholds",
                remedy="give one of them; two queries can watch both",
            )
        if self.theta is None and self.threshold is None:
            raise ParameterError(
                f"{name}() has neither a tolerance nor a threshold",
                remedy="give theta=0.1 to keep its value within 10 %, or above=… or below=… for an alarm",
            )
        if self.theta is not None and not (0 if self.threshold is not None else 1e-9) <= self.theta < 1:
            raise ParameterError(
                f"{name}(theta={self.theta!r}) is out of range", remedy="give a number between 0 and 1, such as 0.1"
            )
        if self.floor < 0:
            raise ParameterError(f"{name}(floor={self.floor!r}) is negative", remedy="give the smallest tolerance, 0 or more")

    def __repr__(self) -> str:
        """As a dataclass prints itself; ``below`` only if it is given, which keeps the fingerprints of older monitors."""
        shown = [field.name for field in fields(self) if field.repr and (field.name != "below" or self.below is not None)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def threshold(self) -> float | None:
        """The threshold of an alarm, whichever side of it fires."""
        return self.above if self.below is None else self.below

    def invert_if_below(self, state: bool | None) -> bool | None:
        """Whether a value is above the threshold, given whether the alarm is firing; or the reverse.

        >>> from lately.monitor import Count
        >>> Count(key=1, above=5).invert_if_below(True), Count(key=1, below=5).invert_if_below(True)
        (True, False)
        """
        return state if state is None or self.below is None else not state

    def for_sketch(self, sketch: Sketch) -> Self:
        """The same query, with the theta that an alarm over this sketch has by default."""
        if self.theta is not None:
            return self
        least = sketch.eps / (1 - sketch.eps) if isinstance(sketch, FastAms) else 0.0
        return replace(self, theta=max(ALARM_THETA, 2 * least)) if 2 * least < 1 else self

    def check(self, sketch: Sketch) -> None:
        """Raise ``ParameterError`` if this sketch cannot answer the query, or not within its theta."""
        if isinstance(sketch, FastAms):
            least = sketch.eps if self.threshold is None else sketch.eps / (1 - sketch.eps)
            if self.theta is None or self.theta <= least:
                raise ParameterError(
                    f"theta={self.theta!r} with eps={sketch.eps!r}: the tolerance of a Fast-AMS monitor includes the error of "
                    "its sketch, so nothing would be left for drift and every event would have to be sent",
                    remedy=f"give theta above {least:.4g}, better twice that, or a smaller eps",
                )

    @abstractmethod
    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        """The indexes of the monitor's streams that it reads."""

    def fingerprint_details(self) -> str:
        """What distinguishes it from other queries and is not in its repr."""
        return ""

    # -- estimate and tolerance ----------------------------------------------------------------------------------------

    @abstractmethod
    def row_estimates(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        """The estimate of every row, from the numbers of all sites added up: a table for each stream."""

    def estimate(self, tables: Sequence[Floats], layout: Layout) -> float:
        """The median of the rows, or their minimum where they can only be too high."""
        rows = self.row_estimates(tables, layout)
        return float(np.median(rows) if layout.signed else rows.min())

    def theta_unit(self, tables: Sequence[Floats], layout: Layout) -> float | None:
        """What theta is a share of, if not of the value itself."""
        return None

    def alarm(self, value: float, before: bool | None, eps: float) -> bool | None:
        """Whether the alarm is firing at a value, given its state ``before``; None without a threshold.

        Within the tolerance it keeps its state, so that a value near the threshold does not raise it repeatedly.
        """
        threshold, was_above = self.threshold, self.invert_if_below(before)
        if threshold is None:
            return None
        if was_above is None:
            return self.invert_if_below(value >= threshold)
        edge = self.tolerance(value, None, eps, before)[0 if was_above else 1]
        return self.invert_if_below(value >= threshold + _HYSTERESIS * (edge - threshold))

    def tolerance(self, value: float, unit: float | None, eps: float, alarm: bool | None = None) -> tuple[float, float]:
        """Where the estimate may move from ``value`` before the coordinator must hear of it.

        ``eps`` is the part of theta that the sketch's own error takes (GM-AMS §3.1). For an alarm only its state matters.
        """
        theta = self.theta or 0.0
        if (threshold := self.threshold) is not None:
            size = abs(threshold)
            if value >= threshold if alarm is None else self.invert_if_below(alarm):
                return threshold + size * ((1 - theta) * (1 + eps) - 1), math.inf
            return -math.inf, threshold + size * ((1 + theta) * (1 - eps) - 1)
        if unit is not None:
            low, high = value - (theta - eps) * unit, value + (theta - eps) * unit
        else:
            low, high = (1 + eps) / (1 + theta) * value, (1 - eps) / (1 - theta) * value
        return min(low, value - self.floor), max(high, value + self.floor)

    # -- what some of the sites prove ------------------------------------------------------------------------------------

    def is_monotone(self, layout: Layout) -> bool:
        """Whether more events can only raise the value, so that some of the sites prove a lower bound for all of them."""
        return layout.window is not None  # without one, counts may be negative

    @abstractmethod
    def row_lower_bounds(self, tables: Sequence[Floats], layout: Layout, moves: Sequence[Floats]) -> Floats:
        """The least estimate of every row if the numbers of its stream have moved by a vector of at most this norm."""

    def lower_bound(self, tables: Sequence[Floats], layout: Layout, moves: Sequence[Floats]) -> float:
        """The least estimate if every row has moved by at most these norms."""
        rows = self.row_lower_bounds(tables, layout, moves)
        return float(np.median(rows) if layout.signed else rows.min())

    # -- safe zones ----------------------------------------------------------------------------------------------------

    def form(self, side: int, layout: Layout) -> Form:
        """The form of the rows' conditions on a side; ``zones.py`` defines the forms."""
        return "linear"

    @abstractmethod
    def zone_rows(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        """The parameters of the zone on a side, for each row, for the drift of all sites together."""

    def quorum(self, side: int, layout: Layout) -> int:
        """How many rows must satisfy their condition."""
        if layout.signed:
            return (layout.rows + 1) // 2
        return 1 if side == UPPER else layout.rows


def row_norms(table: Floats) -> Floats:
    """The Euclidean norm of every row."""
    norms: Floats = np.sqrt((table * table).sum(axis=1))
    return norms


def stream_index(names: Sequence[str], name: str | None) -> int:
    """The index of a stream by its name; None means the only stream."""
    if name is None and len(names) == 1:
        return 0
    if name is None:
        raise ParameterError(f"the monitor has the streams {', '.join(map(repr, names))}", remedy="say which with stream=")
    if name not in names:
        raise ParameterError(
            f"no stream {name!r}: the monitor has {', '.join(map(repr, names))}",
            remedy="name all of them with Monitor(…, streams=(…))",
        )
    return names.index(name)
