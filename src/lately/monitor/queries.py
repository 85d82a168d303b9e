"""What a monitor can watch: joins, sums and counts over the streams of all sites. ``query.py`` has their base."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lately.core.columns import Ints, whole_numbers
from lately.core.errors import InputError, ParameterError
from lately.core.keys import Hashes, hash_keys, one_key
from lately.counters.base import Counts
from lately.monitor.layout import Layout
from lately.monitor.query import LOWER, UPPER, Query, row_norms, stream_index
from lately.monitor.sketch import Ecm, FastAms, Sketch
from lately.monitor.zones import NEVER, Floats, Form

__all__ = ["LOWER", "UPPER", "Count", "InnerProduct", "KeyRange", "Query", "RangeSum", "SelfJoin", "TotalCount"]


@dataclass(frozen=True, kw_only=True, repr=False)
class SelfJoin(Query):
    """The self-join size (second moment) of a stream over all sites.

    Parameters
    ----------
    theta, above, below, floor
        The tolerance, the threshold of an alarm, and the smallest tolerance, as in ``Query``.
    stream
        The name of the stream; by default the only one.

    >>> SelfJoin(above=1e6, theta=0.05).above
    1000000.0
    """

    stream: str | None = None

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        return (stream_index(names, self.stream),)

    def row_estimates(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        squares: Floats = (tables[0] * tables[0]).sum(axis=1)
        return squares

    def row_lower_bounds(self, tables: Sequence[Floats], layout: Layout, moves: Sequence[Floats]) -> Floats:
        squares: Floats = np.maximum(row_norms(tables[0]) - moves[0], 0) ** 2
        return squares

    def zone_rows(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        edge, norms = math.sqrt(max(bound, 0.0)), row_norms(tables[0])
        return (edge - norms if side == UPPER else norms - edge)[:, None]


@dataclass(frozen=True, kw_only=True, repr=False)
class InnerProduct(Query):
    """The size of the join of two streams over all sites: the sum over all keys of the product of their counts.

    Over Fast-AMS sketches ``theta`` is a share of the product of both streams' norms, as is their error (GM-AMS Theorem 2.1).
    Over ECM-sketches it is a share of the value, so give a ``floor`` if the value can be near 0.

    Parameters
    ----------
    theta, above, below, floor
        The tolerance, the threshold of an alarm, and the smallest tolerance, as in ``Query``.
    of
        The names of the two streams, which differ.

    >>> InnerProduct(of=("orders", "clicks"), theta=0.1).of
    ('orders', 'clicks')
    """

    of: tuple[str, str]

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        if len(self.of) != 2 or self.of[0] == self.of[1]:
            raise ParameterError(
                f"InnerProduct(of={self.of!r}) does not name two streams",
                remedy="name two; a SelfJoin joins a stream with itself",
            )
        return tuple(stream_index(names, name) for name in self.of)

    def row_estimates(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        products: Floats = (tables[0] * tables[1]).sum(axis=1)
        return products

    def row_lower_bounds(self, tables: Sequence[Floats], layout: Layout, moves: Sequence[Floats]) -> Floats:
        lost = row_norms(tables[0]) * moves[1] + row_norms(tables[1]) * moves[0] + moves[0] * moves[1]
        products: Floats = np.maximum(self.row_estimates(tables, layout) - lost, 0)
        return products

    def theta_unit(self, tables: Sequence[Floats], layout: Layout) -> float | None:
        if not layout.signed:
            return None
        return float(np.median(row_norms(tables[0])) * np.median(row_norms(tables[1])))

    def form(self, side: int, layout: Layout) -> Form:
        return "bilinear" if layout.signed or side == UPPER else "plane"

    def zone_rows(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        products = self.row_estimates(tables, layout)
        room = bound - products if side == UPPER else products - bound
        return np.stack([row_norms(tables[1]), row_norms(tables[0]), room], axis=1)


@dataclass(frozen=True, kw_only=True, repr=False)
class RangeSum(Query):
    """The weighted sum of the counts of given keys over all sites, from Fast-AMS sketches (GM-AMS §3.4).

    ``theta`` is a share of the product of the stream's norm and that of the weights.

    Parameters
    ----------
    theta, above, below, floor
        The tolerance, the threshold of an alarm, and the smallest tolerance, as in ``Query``.
    keys
        A column of keys, such as ``range(100, 200)``.
    weights
        An integer for each key; by default 1 for each.
    stream
        The name of the stream; by default the only one.

    >>> RangeSum(keys=range(3), theta=0.2).weights is None
    True
    """

    keys: Any = field(repr=False)
    weights: Any = field(default=None, repr=False)
    stream: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        hashes, weights = self.weight_vector
        if not hashes.size or hashes.size != weights.size:
            raise ParameterError(
                f"{hashes.size:,} keys and {weights.size:,} weights", remedy="give at least one key, and one weight for each"
            )

    @cached_property
    def weight_vector(self) -> tuple[Hashes, Counts]:
        """The hashes of the keys and their weights: the vector that the stream is multiplied by."""
        hashes = hash_keys(np.asarray(self.keys) if isinstance(self.keys, range) else self.keys)
        weights = np.ones(hashes.size, np.int64) if self.weights is None else whole_numbers(self.weights, "weights")
        return hashes, weights

    def check(self, sketch: Sketch) -> None:
        super().check(sketch)
        if isinstance(sketch, Ecm):
            raise ParameterError("a RangeSum needs Fast-AMS sketches", remedy="over ECM-sketches use a KeyRange or a Count")

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        return (stream_index(names, self.stream),)

    @cached_property
    def _tables(self) -> dict[Layout, Floats]:
        return {}

    def _table(self, layout: Layout) -> Floats:
        """The sketch of the weights, computed once for each layout."""
        if layout not in self._tables:
            sketched = layout.sketch(*self.weight_vector).astype(np.float64)
            self._tables[layout] = sketched.reshape(layout.rows, layout.width)
        return self._tables[layout]

    def fingerprint_details(self) -> str:
        hashes, weights = self.weight_vector
        return f"{hash_keys([hashes.tobytes() + weights.tobytes()])[0]:x}"

    def row_estimates(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        products: Floats = (tables[0] * self._table(layout)).sum(axis=1)
        return products

    def is_monotone(self, layout: Layout) -> bool:
        return super().is_monotone(layout) and bool((self.weight_vector[1] >= 0).all())

    def row_lower_bounds(self, tables: Sequence[Floats], layout: Layout, moves: Sequence[Floats]) -> Floats:
        sums: Floats = np.maximum(self.row_estimates(tables, layout) - row_norms(self._table(layout)) * moves[0], 0)
        return sums

    def theta_unit(self, tables: Sequence[Floats], layout: Layout) -> float | None:
        return float(np.median(row_norms(tables[0]))) * math.sqrt(float((self.weight_vector[1].astype(np.float64) ** 2).sum()))

    def weight_norms(self, layout: Layout) -> Floats:
        """The norm of the sketched weights in every row."""
        return row_norms(self._table(layout))

    def zone_rows(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        sums, norms = self.row_estimates(tables, layout), self.weight_norms(layout)
        room = bound - sums if side == UPPER else sums - bound
        never = np.where(room > 0, NEVER, 0.0)
        return np.where(norms > 0, room / np.maximum(norms, 1e-300), never)[:, None]


@dataclass(frozen=True, kw_only=True, repr=False)
class Count(Query):
    """How often a key arrived at all sites within the window. It has its own counter, without collisions.

    Parameters
    ----------
    theta, above, below, floor
        The tolerance, the threshold of an alarm, and the smallest tolerance, as in ``Query``.
    key
        The key: a string, bytes, an integer, or a tuple of these.
    stream
        The name of the stream; by default the only one.

    >>> Count(key="/cart", above=1000).key
    '/cart'
    """

    key: Any
    stream: str | None = None

    def check(self, sketch: Sketch) -> None:
        if isinstance(sketch, FastAms):
            raise ParameterError(
                f"a {type(self).__name__} needs the windowed counters of Ecm(…)", remedy="over FastAms(…) use a RangeSum"
            )

    def streams(self, names: Sequence[str]) -> tuple[int, ...]:
        return (stream_index(names, self.stream),)

    def layout(self, sketch: Sketch) -> Layout:
        """One counter instead of a sketch."""
        assert isinstance(sketch, Ecm)
        return sketch.counter()

    def picks(self, hashes: Hashes, keys: Ints | None) -> Any:
        """Selects the events that it counts; ``keys`` are the keys themselves if they are integers."""
        return hashes == hash_keys(one_key(self.key))[0]

    def row_estimates(self, tables: Sequence[Floats], layout: Layout) -> Floats:
        return tables[0][:, 0]

    def row_lower_bounds(self, tables: Sequence[Floats], layout: Layout, moves: Sequence[Floats]) -> Floats:
        counts: Floats = np.maximum(tables[0][:, 0] - moves[0], 0)
        return counts

    def zone_rows(self, side: int, bound: float, tables: Sequence[Floats], layout: Layout) -> Floats:
        return bound - tables[0] if side == UPPER else tables[0] - bound


@dataclass(frozen=True, kw_only=True, repr=False)
class KeyRange(Count):
    """How often integer keys from ``start`` up to, but not including, ``stop`` arrived at all sites within the window.

    Parameters
    ----------
    theta, above, below, floor
        The tolerance, the threshold of an alarm, and the smallest tolerance, as in ``Query``.
    stream
        The name of the stream; by default the only one.
    start, stop
        The first key, and the first one beyond the range.

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
                    f"KeyRange: {end!r} is not a 64-bit integer", remedy="a range has integer keys; count other keys with Count"
                )
        if self.start >= self.stop:
            raise ParameterError(f"KeyRange(start={self.start}, stop={self.stop}) is empty", remedy="give a stop above start")

    def picks(self, hashes: Hashes, keys: Ints | None) -> Any:
        if keys is None:
            raise InputError(
                "the monitor has a KeyRange, so all keys must be integers", remedy="monitor other keys with Count or Frequent"
            )
        return (keys >= self.start) & (keys < self.stop)


@dataclass(frozen=True, kw_only=True, repr=False)
class TotalCount(Count):
    """How many arrivals a stream has within the window, within a factor of two.

    A monitor adds it if the bounds of the true values depend on it.

    >>> TotalCount(stream="").tolerance(100.0, None, 0.1)
    (50.0, 200.0)
    """

    key: None = None
    theta: float | None = 0.5

    def check(self, sketch: Sketch) -> None:
        """Every sketch with a window can answer it."""

    def layout(self, sketch: Sketch) -> Layout:
        shape = sketch.layout()
        return Layout(1, 1, shape.seed, False, shape.window, shape.eps)

    def picks(self, hashes: Hashes, keys: Ints | None) -> Any:
        return slice(None)

    def tolerance(self, value: float, unit: float | None, eps: float, alarm: bool | None = None) -> tuple[float, float]:
        return value / 2, 2 * value
