"""What a monitor watches: each query knows its estimate, its tolerance, and the zones in which drift cannot break it.

Counts of arrivals drift up and down, and what rose can only raise an estimate, what fell only lower it (ECM-15 Theorem 5).
Numbers with random signs have one drift for both.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from lately.core.columns import Ints, whole_numbers
from lately.core.errors import InputError, ParameterError
from lately.core.keys import Hashes, hash_keys, one_key
from lately.counters.base import Counts
from lately.monitor.layout import Layout
from lately.monitor.sketch import Ecm, FastAms, Sketch
from lately.monitor.zones import Floats, Form

#: The sides of a value that may be limited.
UPPER, LOWER = 1, 2
#: The tolerance of an alarm that is given none.
ALARM_THETA = 0.1
#: An alarm keeps its state in this share of its tolerance; the rest leaves room to drift once it has changed.
_KEPT = 0.9


@dataclass(frozen=True, kw_only=True, repr=False)
class Query(ABC):
    """Base of the queries: a value kept within ``theta``, or an alarm while it is ``above`` or ``below`` a threshold.

    Without a threshold the announced value is within ``theta`` of the estimate, relatively, or within ``floor`` if that is
    wider. With one only the side matters: an alarm is firing beyond the threshold, and within ``theta`` of it stays as it
    is. A window that nothing has come into has a value of 0, so an alarm ``below`` fires from the start, until enough came.

    - ``theta``: the tolerance, a share of the value or of the threshold. Left out, that of an alarm is 0.1, or twice what
      its sketch needs if that is more.
    - ``above``: fire while the value is at least this.
    - ``below``: fire while the value is less than this; give one of ``above`` and ``below``.
    - ``floor``: the least tolerance of a value that is tracked (0).
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
                raise ParameterError(f"{name}({part}={value!r}): give a number")
        if self.above is not None and self.below is not None:
            raise ParameterError(
                f"{name}(above={self.above!r}, below={self.below!r}): give one of them; two queries watch both lines"
            )
        if self.theta is None and self.line is None:
            raise ParameterError(f"{name}(): give theta=0.1 to keep its value within 10 %, or above=… or below=… for an alarm")
        if self.theta is not None and not (0 if self.line is not None else 1e-9) <= self.theta < 1:
            raise ParameterError(f"{name}(theta={self.theta!r}): give a number between 0 and 1, such as 0.1")
        if self.floor < 0:
            raise ParameterError(f"{name}(floor={self.floor!r}): give the least tolerance, from 0 up")

    def __repr__(self) -> str:
        """As a dataclass prints itself; ``below`` only where it is given, so that fingerprints of other queries stay."""
        shown = [one.name for one in fields(self) if one.repr and (one.name != "below" or self.below is not None)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def line(self) -> float | None:
        """The threshold of an alarm, on either side of which it fires."""
        return self.above if self.below is None else self.below

    def flipped(self, state: bool | None) -> bool | None:
        """Whether a value is above the line, from whether the alarm is firing; and the other way round.

        >>> Count(key=1, above=5).flipped(True), Count(key=1, below=5).flipped(True)
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
        """Refuse a sketch that cannot answer this, or not as closely as this asks."""
        if isinstance(sketch, FastAms):
            least = sketch.eps if self.line is None else sketch.eps / (1 - sketch.eps)
            if self.theta is None or self.theta <= least:
                raise ParameterError(
                    f"theta={self.theta!r} with eps={sketch.eps!r}: the tolerance of a Fast-AMS monitor includes the error of "
                    f"its sketch, so nothing would be left for drift, and every event would have to be told; give theta "
                    f"above {least:.4g}, better twice that, or a smaller eps"
                )

    @abstractmethod
    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        """Which of the monitor's streams it is about."""

    def details(self) -> str:
        """What tells it from others beside how it is printed."""
        return ""

    # -- estimate and tolerance ----------------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        """What every row estimates, from the numbers of all sites added up."""

    def estimate(self, tables: Sequence[Floats], layout: Layout) -> float:
        """The median of the rows, or their minimum where they can only be too high."""
        rows = self.rows(tables, layout)
        return float(np.median(rows) if layout.signed else rows.min())

    def unit(self, tables: Sequence[Floats], layout: Layout) -> float | None:
        """What theta is a share of, where that is not the value itself."""
        return None

    def alarm(self, value: float, before: bool | None, eps: float) -> bool | None:
        """Whether the alarm is firing at a value, when ``before`` it was or was not; None where there is no threshold.

        Inside the tolerance it keeps its state, so that a value near the threshold does not raise it again and again.
        """
        line, was_above = self.line, self.flipped(before)
        if line is None:
            return None
        if was_above is None:
            return self.flipped(value >= line)
        edge = self.interval(value, None, eps, before)[0 if was_above else 1]
        return self.flipped(value >= line + _KEPT * (edge - line))

    def interval(self, value: float, unit: float | None, eps: float, alarm: bool | None = None) -> tuple[float, float]:
        """Where the estimate may go before the coordinator must hear of it, when it was ``value``.

        ``eps`` is the part of theta that the sketch's own error takes (GM-AMS §3.1). Of an alarm only its state matters.
        """
        theta = self.theta or 0.0
        if (line := self.line) is not None:
            bar = abs(line)
            if value >= line if alarm is None else self.flipped(alarm):
                return line + bar * ((1 - theta) * (1 + eps) - 1), math.inf
            return -math.inf, line + bar * ((1 + theta) * (1 - eps) - 1)
        if unit is not None:
            low, high = value - (theta - eps) * unit, value + (theta - eps) * unit
        else:
            low, high = (1 + eps) / (1 + theta) * value, (1 - eps) / (1 - theta) * value
        return min(low, value - self.floor), max(high, value + self.floor)

    # -- what some of the sites prove ------------------------------------------------------------------------------------

    def only_grows(self, layout: Layout) -> bool:
        """Whether more events can only raise it, so that some of the sites prove a lower bound for all of them."""
        return layout.window is not None  # without one, counts may be negative

    @abstractmethod
    def fallen(self, tables: Sequence[Floats], layout: Layout, falls: Sequence[Floats]) -> Floats:
        """What every row estimates at least, when its numbers may have moved by so much (their norm), a stream each."""

    def least(self, tables: Sequence[Floats], layout: Layout, falls: Sequence[Floats]) -> float:
        """The least that the estimate can be, when rows may have moved so far."""
        rows = self.fallen(tables, layout, falls)
        return float(np.median(rows) if layout.signed else rows.min())

    # -- zones ---------------------------------------------------------------------------------------------------------

    def form(self, side: int, layout: Layout) -> Form:
        """How rows break on a side."""
        return "linear"

    @abstractmethod
    def margins(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        """The numbers of the zone on a side, for the drift of all sites together."""

    def quorum(self, side: int, layout: Layout) -> int:
        """How many rows must hold."""
        if layout.signed:
            return (layout.rows + 1) // 2
        return 1 if side == UPPER else layout.rows


def norms_of(table: Floats) -> Floats:
    """The norm of every row."""
    lengths: Floats = np.sqrt((table * table).sum(axis=1))
    return lengths


def position(names: Sequence[str], name: str | None) -> int:
    """Which stream a name means; no name means the only one, or the first."""
    if name is None and len(names) == 1:
        return 0
    if name is None:
        raise ParameterError(f"the monitor has the streams {', '.join(map(repr, names))}; say which with stream=")
    if name not in names:
        raise ParameterError(
            f"no stream {name!r}: the monitor has {', '.join(map(repr, names))}; name all of them with Monitor(…, streams=(…))"
        )
    return names.index(name)


@dataclass(frozen=True, kw_only=True, repr=False)
class SelfJoin(Query):
    """The self-join size (second moment) of a stream over all sites.

    >>> SelfJoin(above=1e6, theta=0.05).above
    1000000.0
    """

    stream: str | None = None

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        return (position(names, self.stream),)

    def rows(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        squares: Floats = (tables[0] * tables[0]).sum(axis=1)
        return squares

    def fallen(self, tables: Sequence[Floats], layout: Layout, falls: Sequence[Floats]) -> Floats:
        squares: Floats = np.maximum(norms_of(tables[0]) - falls[0], 0) ** 2
        return squares

    def margins(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        edge, norms = math.sqrt(max(bound, 0.0)), norms_of(tables[0])
        return (edge - norms if side == UPPER else norms - edge)[:, None]


@dataclass(frozen=True, kw_only=True, repr=False)
class InnerProduct(Query):
    """The size of the join of two streams over all sites: the sum over all keys of the product of their counts.

    Over Fast-AMS sketches ``theta`` is a share of the product of both streams' norms, which is what their error is a share
    of (GM-AMS Theorem 2.1); over ECM-sketches of the value, so that a ``floor`` is wise where the value can come near 0.

    >>> InnerProduct(of=("orders", "clicks"), theta=0.1).of
    ('orders', 'clicks')
    """

    of: tuple[str, str]

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        if len(self.of) != 2 or self.of[0] == self.of[1]:
            raise ParameterError(f"InnerProduct(of={self.of!r}): name two streams; a SelfJoin joins one with itself")
        return tuple(position(names, name) for name in self.of)

    def rows(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        products: Floats = (tables[0] * tables[1]).sum(axis=1)
        return products

    def fallen(self, tables: Sequence[Floats], layout: Layout, falls: Sequence[Floats]) -> Floats:
        lost = norms_of(tables[0]) * falls[1] + norms_of(tables[1]) * falls[0] + falls[0] * falls[1]
        products: Floats = np.maximum(self.rows(tables, layout) - lost, 0)
        return products

    def unit(self, tables: Sequence[Floats], layout: Layout) -> float | None:
        if not layout.signed:
            return None
        return float(np.median(norms_of(tables[0])) * np.median(norms_of(tables[1])))

    def form(self, side: int, layout: Layout) -> Form:
        return "bilinear" if layout.signed or side == UPPER else "plane"

    def margins(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        products = self.rows(tables, layout)
        room = bound - products if side == UPPER else products - bound
        return np.stack([norms_of(tables[1]), norms_of(tables[0]), room], axis=1)


@dataclass(frozen=True, kw_only=True, repr=False)
class RangeSum(Query):
    """The weighted sum of the counts of given keys over all sites, from Fast-AMS sketches (GM-AMS §3.4).

    ``keys`` is a column of keys, such as ``range(100, 200)``; ``weights`` has an integer for each, one if left out.
    ``theta`` is a share of the product of the stream's norm and that of the weights.

    >>> RangeSum(keys=range(3), theta=0.2).weights is None
    True
    """

    keys: Any = field(repr=False)
    weights: Any = field(default=None, repr=False)
    stream: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        hashes, weights = self.constant
        if not hashes.size or hashes.size != weights.size:
            raise ParameterError(f"{hashes.size:,} keys and {weights.size:,} weights; give one weight for each key, and a key")

    @cached_property
    def constant(self) -> tuple[Hashes, Counts]:
        """The vector that the stream is multiplied with."""
        hashes = hash_keys(np.asarray(self.keys) if isinstance(self.keys, range) else self.keys)
        weights = np.ones(hashes.size, np.int64) if self.weights is None else whole_numbers(self.weights, "weights")
        return hashes, weights

    def check(self, sketch: Sketch) -> None:
        super().check(sketch)
        if isinstance(sketch, Ecm):
            raise ParameterError("a RangeSum needs Fast-AMS sketches; over ECM-sketches use a KeyRange or a Count")

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        return (position(names, self.stream),)

    @cached_property
    def _tables(self) -> dict[Layout, Floats]:
        return {}

    def _table(self, layout: Layout) -> Floats:
        """The sketch of the weights, made once."""
        if layout not in self._tables:
            sketched = layout.sketch(*self.constant).astype(np.float64)
            self._tables[layout] = sketched.reshape(layout.rows, layout.width)
        return self._tables[layout]

    def details(self) -> str:
        hashes, weights = self.constant
        return f"{hash_keys([hashes.tobytes() + weights.tobytes()])[0]:x}"

    def rows(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        products: Floats = (tables[0] * self._table(layout)).sum(axis=1)
        return products

    def only_grows(self, layout: Layout) -> bool:
        return super().only_grows(layout) and bool((self.constant[1] >= 0).all())

    def fallen(self, tables: Sequence[Floats], layout: Layout, falls: Sequence[Floats]) -> Floats:
        sums: Floats = np.maximum(self.rows(tables, layout) - norms_of(self._table(layout)) * falls[0], 0)
        return sums

    def unit(self, tables: Sequence[Floats], layout: Layout) -> float | None:
        return float(np.median(norms_of(tables[0]))) * math.sqrt(float((self.constant[1].astype(np.float64) ** 2).sum()))

    def lengths(self, layout: Layout) -> Floats:
        """The norm of the weights in every row."""
        return norms_of(self._table(layout))

    def margins(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        sums, lengths = self.rows(tables, layout), self.lengths(layout)
        room = bound - sums if side == UPPER else sums - bound
        never = np.where(room > 0, 1e30, 0.0)
        return np.where(lengths > 0, room / np.maximum(lengths, 1e-300), never)[:, None]


@dataclass(frozen=True, kw_only=True, repr=False)
class Count(Query):
    """How often a key came at all sites in the window; it has a counter of its own, without collisions.

    >>> Count(key="/cart", above=1000).key
    '/cart'
    """

    key: Any
    stream: str | None = None

    def check(self, sketch: Sketch) -> None:
        if isinstance(sketch, FastAms):
            raise ParameterError(f"a {type(self).__name__} is counted over a window by Ecm(…); over FastAms(…) use a RangeSum")

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        return (position(names, self.stream),)

    def layout(self, sketch: Sketch) -> Layout:
        """One counter, and no sketch."""
        assert isinstance(sketch, Ecm)
        return sketch.counter()

    def picks(self, hashes: Hashes, keys: Ints | None) -> Any:
        """Which events it counts; ``keys`` are the keys themselves where they are integers."""
        return hashes == hash_keys(one_key(self.key))[0]

    def rows(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        return tables[0][:, 0]

    def fallen(self, tables: Sequence[Floats], layout: Layout, falls: Sequence[Floats]) -> Floats:
        counts: Floats = np.maximum(tables[0][:, 0] - falls[0], 0)
        return counts

    def margins(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        return bound - tables[0] if side == UPPER else tables[0] - bound


@dataclass(frozen=True, kw_only=True, repr=False)
class KeyRange(Count):
    """How often keys from ``start`` up to, not including, ``stop`` came at all sites in the window; keys are integers.

    >>> KeyRange(start=0, stop=1024, above=1000).stop
    1024
    """

    start: int
    stop: int
    key: None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for end in (self.start, self.stop):
            if isinstance(end, bool) or not isinstance(end, int) or not -(2**63) <= end < 2**63:
                raise ParameterError(
                    f"KeyRange: {end!r} is no integer of 64 bits; ranges are of integer keys, watch others with Count"
                )
        if self.start >= self.stop:
            raise ParameterError(f"KeyRange(start={self.start}, stop={self.stop}) is empty; stop must be larger")

    def picks(self, hashes: Hashes, keys: Ints | None) -> Any:
        if keys is None:
            raise InputError("a KeyRange is watched, so all keys must be integers; watch others with Count or Frequent")
        return (keys >= self.start) & (keys < self.stop)


@dataclass(frozen=True, kw_only=True, repr=False)
class TotalCount(Count):
    """How many arrivals a stream has in the window, within a factor of two; a monitor adds it where bounds depend on it.

    >>> TotalCount(stream="").interval(100.0, None, 0.1)
    (50.0, 200.0)
    """

    key: None = None
    theta: float | None = 0.5

    def check(self, sketch: Sketch) -> None:
        """Any sketch with a window will do."""

    def layout(self, sketch: Sketch) -> Layout:
        shape = sketch.layout()
        return Layout(1, 1, shape.seed, False, shape.window, shape.eps)

    def picks(self, hashes: Hashes, keys: Ints | None) -> Any:
        return slice(None)

    def interval(self, value: float, unit: float | None, eps: float, alarm: bool | None = None) -> tuple[float, float]:
        return value / 2, 2 * value
