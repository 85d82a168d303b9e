"""Windowed Count-Min (Rivetti, Busnel and Mostefaoui, 2014; WCM below): the whole window in little memory.

The cells of an ECM-sketch store when arrivals occurred; these store far less, and estimate. PERFECT stores every arrival and
is the reference for the others. SIMPLE counts since the last multiple of the window. PROPORTIONAL removes the counts of the
previous window at an even rate; SPLITTER does so piece by piece, where each cell cuts its past into pieces of even rate.

The paper proves no error for the last three. Bounds here are certain nevertheless, up to collisions: they come from what
a cell knows to be inside the window and what may be. They are wide where the estimate is poor.
"""

import math
from abc import abstractmethod
from typing import Any, Self

import numpy as np

from lately.core.arguments import check_number, check_probability, check_word
from lately.core.codec import Reader, storable
from lately.core.durations import Duration, arrivals
from lately.core.errors import ParameterError, QueryError
from lately.core.keys import Hashes, Keys
from lately.counters.base import MAX_STAMP, Bounds, CounterArray, Counts, Stamps
from lately.counters.exact import Exact
from lately.counters.periodic import Proportional, Simple
from lately.counters.splitter import Splitter
from lately.counters.wave import Wave
from lately.ingest.shape import read_window_shape, window_and_lateness
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.range_view import CellCounts, CountMinView
from lately.sketches.sketch_kind import SketchKind
from lately.sketches.wcm_shape import WcmShape
from lately.sketches.windowed_countmin import SketchCells, WindowedCountMin

_MOST_CELLS = 2**28


class WcmSketch(WindowedCountMin[WcmShape]):
    """Base of the four, which differ in their cells."""

    _parts: tuple[CounterArray, CounterArray]

    def __init__(
        self,
        *,
        window: Duration | arrivals,
        eps: float,
        delta: float,
        tick: Duration | None = None,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        self._build(window_and_lateness(window, tick, lateness), eps, delta, seed, 0.0, 0.0)

    def _build(self, window: tuple[Any, int], eps: float, delta: float, seed: int, tau: float, mu: float) -> None:
        check_probability("eps", eps)
        check_probability("delta", delta)
        shape = WcmShape(*window, eps, delta, 0, check_word("seed", seed), tau, mu)
        if (cells := math.prod(shape.size)) > _MOST_CELLS:
            raise ParameterError(f"eps={eps!r}, delta={delta!r} need {cells:,} cells", remedy="give a larger eps")
        self._begin(shape, self._new_parts(shape))

    def _begin(self, shape: WcmShape, parts: Any) -> Self:
        return self._begin_rows(shape.size, shape.seed, shape, parts)

    @classmethod
    def _new_parts(cls, shape: WcmShape) -> tuple[CounterArray, CounterArray]:
        return cls._new_cells(shape), cls._new_total(shape)

    @classmethod
    @abstractmethod
    def _new_cells(cls, shape: WcmShape) -> CounterArray:
        """Empty cells."""

    @classmethod
    def _new_total(cls, shape: WcmShape) -> CounterArray:
        return Wave(1, shape.window.span, shape.eps / 2)

    def __repr__(self) -> str:
        options = f"{self._window!r}, eps={self.eps}, delta={self.delta}{self._more()}"
        return f"{type(self).__name__}({options}, width={self.width}, depth={self.depth}, nbytes={self.nbytes:_})"

    def _more(self) -> str:
        return ""

    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        self._count_rows(keys, start, stamps, counts)

    def in_range(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> CountMinView:
        """A view of the window, which answers several questions about it; of a ``PerfectCountMin``, of any range.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self._view(SketchCells(self, self._range(last, between)))

    def _view(self, counts: CellCounts) -> CountMinView:
        return CountMinView(self._rows, self.delta, counts, self._key_types)

    def cells(self) -> Counts:
        """The current count of each cell, row by row: the matrix of the paper, rounded. Those of several sites add up."""
        return self._cells_in_range(None, (self._window.ticks, None)).value

    def _is_live(self, now: int) -> bool:
        # Cells that estimate may still count what has left the window, and those of several sites add up.
        if (live := super()._is_live(now)) or self._now is None:
            return live
        start = min(max(now - self._window.span - self._origin, 1), MAX_STAMP)
        return bool(self._array.all_since(start).value.any())

    def _empty(self) -> Self:
        """A new one of the same shape."""
        return self._empty_like(self._new_parts(self._shape))

    def _range(self, last: Duration | None, between: tuple[Any, Any] | None) -> tuple[int, int | None]:
        ages = super()._range(last, between)
        if ages != (self._window.ticks, None):
            raise QueryError(
                f"a {type(self).__name__} answers for the whole window only, not for last={last!r}, between={between!r}",
                remedy="leave them out, or use an EcmSketch",
            )
        return ages

    @classmethod
    def _read(cls, source: Reader) -> Self:
        base = read_window_shape(source)
        source.check(base.merge_height == 0, "a merge height, which this class does not have")
        shape = WcmShape(base.window, base.lateness, base.eps, base.delta, 0, source.u64(), source.f64(), source.f64())
        cls._check_read(shape, source)
        cells = math.prod(shape.size)
        source.check(cells <= _MOST_CELLS, f"{cells} cells")
        source.fits(64 * cells)
        sketch = object.__new__(cls)._begin(shape, cls._new_parts(shape))
        sketch._read_state(source)
        return sketch

    @classmethod
    def _check_read(cls, shape: WcmShape, source: Reader) -> None:
        source.check(shape.tau == shape.mu == 0, "parameters of another class")


@storable(7)
class PerfectCountMin(WcmSketch):
    """A Count-Min of exactly the arrivals in the window, all of which it stores (WCM §3.1); the reference for the others.

    Within ``eps`` of all arrivals in the window, with probability 1 - ``delta``, and never too low. It answers for any range.

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error, as a share of the arrivals in the window.
    delta
        The probability that an answer is off by more.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = PerfectCountMin(window=60, eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b", "a"], [0, 50, 100])
    >>> sketch.count("a"), sketch.total().value
    (Estimate(1, 1..1, 90%), 2)
    """

    @classmethod
    def _new_cells(cls, shape: WcmShape) -> CounterArray:
        return Exact(math.prod(shape.size), shape.window.span)

    @classmethod
    def _new_total(cls, shape: WcmShape) -> CounterArray:
        return Exact(1, shape.window.span)

    def _range(self, last: Duration | None, between: tuple[Any, Any] | None) -> tuple[int, int | None]:
        return WindowedCountMin._range(self, last, between)


@storable(8)
class SimpleCountMin(WcmSketch):
    """A Count-Min that is reset at every multiple of the window (WCM §3.2): the smallest and the least accurate.

    Twelve bytes a cell. Arrivals are counted since the last multiple of the window, so counts are half of the true ones on
    average.

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error that collisions add, as a share of the arrivals in the window; that of the estimates has no bound in
        advance.
    delta
        The probability that an answer is off by more.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = SimpleCountMin(window=60, eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b", "a"], [70, 100, 110])
    >>> sketch.count("a").value
    2
    """

    @classmethod
    def _new_cells(cls, shape: WcmShape) -> CounterArray:
        return Simple(math.prod(shape.size), shape.window.span)

    def _view(self, counts: CellCounts) -> CountMinView:
        return _SimpleView(self._rows, self.delta, counts, self._key_types)


class _SimpleView(CountMinView):
    """Counts of a ``SimpleCountMin``, whose cells do not know the arrivals before the current period."""

    def key_bounds(self, hashes: Hashes, together: float = 1) -> Bounds:
        low, value, high = super().key_bounds(hashes, together)
        # Arrivals before this period are not known by key, but their number is.
        counted = int(self.cell_bounds().value[: int(self._rows.width)].sum())
        before = max(int(self.total_bounds().high[0]) - counted, 0)
        return Bounds(low, value, np.minimum(high, value + before))


@storable(9)
class ProportionalCountMin(WcmSketch):
    """A Count-Min that removes the counts of the previous window at an even rate (WCM §3.3).

    36 bytes a cell. Good while the rates of keys change little within a window; a burst that has ended is removed too slowly.

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error that collisions add, as a share of the arrivals in the window; that of the estimates has no bound in
        advance.
    delta
        The probability that an answer is off by more.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = ProportionalCountMin(window=arrivals(100), eps=0.1, delta=0.1)
    >>> sketch.update(["a", "b"] * 100)
    >>> sketch.count("a").value
    50
    """

    @classmethod
    def _new_cells(cls, shape: WcmShape) -> CounterArray:
        return Proportional(math.prod(shape.size), shape.window.span)


@storable(10)
class SplitterCountMin(WcmSketch):
    """A Count-Min whose cells cut their past into pieces of even rate, and remove it piece by piece (WCM §3.4).

    There are at most depth·width/tau pieces; in windows of time about that number, as the arrivals of a window are not known
    in advance.

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error that collisions add, as a share of the arrivals in the window; that of the estimates has no bound in
        advance.
    delta
        The probability that an answer is off by more.
    tau
        The smallest piece, as a share of the arrivals that a cell has in a window on average: 0.0001 to 1, by default
        0.05.
    mu
        The factor, from 1, by which the rates of two pieces must differ so that they stay apart; 1.5 by default.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = SplitterCountMin(window=arrivals(1000), eps=0.1, delta=0.1, tau=0.05, mu=1.5)
    >>> sketch.update([1] * 800 + [2] * 800)
    >>> sketch.count(1).value, sketch.splits
    (200, 0)
    """

    def __init__(
        self,
        *,
        window: Duration | arrivals,
        eps: float,
        delta: float,
        tau: float = 0.05,
        mu: float = 1.5,
        tick: Duration | None = None,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        check_number("tau", tau, 0.0001, 1, remedy="give the smallest share of a cell's arrivals that makes a piece")
        check_number("mu", mu, 1, 1_000_000, remedy="give the factor between rates that makes a split, such as 1.5")
        self._build(window_and_lateness(window, tick, lateness), eps, delta, seed, float(tau), float(mu))

    @property
    def splits(self) -> int:
        """The number of pieces in addition to two for each cell."""
        return 0 if self._now is None else self._splitter.splits(self._now - self._origin)

    @property
    def _splitter(self) -> Splitter:
        cells = self._parts[0]
        assert isinstance(cells, Splitter)
        return cells

    def _more(self) -> str:
        return f", tau={self._shape.tau}, mu={self._shape.mu}"

    @classmethod
    def _new_cells(cls, shape: WcmShape) -> CounterArray:
        width, depth = shape.size
        return Splitter(width * depth, shape.window.span, shape.tau, shape.mu, width, shape.window.kind == "arrivals")

    @classmethod
    def _check_read(cls, shape: WcmShape, source: Reader) -> None:
        source.check(0.0001 <= shape.tau <= 1 and 1 <= shape.mu <= 1e6, "parameters out of range")


KIND = SketchKind(
    "wcm",
    SplitterCountMin,
    variants={
        "perfect": PerfectCountMin,
        "simple": SimpleCountMin,
        "proportional": ProportionalCountMin,
        "splitter": SplitterCountMin,
    },
)
