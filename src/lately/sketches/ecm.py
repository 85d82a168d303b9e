"""ECM-sketches (ECM-15 §4 and §5): a Count-Min array whose cells are sliding-window counters.

    key ──> uint64 ──> one cell in each of ``depth`` rows of ``width`` ──> counters ──> min over the rows
                                                                     └──> one counter for the stream's total

With the papers' counters, a wave of its own for each cell, a point answer is within eps of all arrivals in range with
probability 1 - delta (Theorem 1; Theorem 3 for randomized waves), an inner product within eps of the product of both streams'
arrivals (Theorem 2).

With shared waves, the default for counts, the same holds at about 1/eps instead of 1/eps² entries a row. Proof: let N be the
arrivals in a range, f the count of a key. A cell holds more than odds/width of the other arrivals with probability 1/odds at
most (Markov), so with probability 1 - odds^-depth = 1 - delta some cell holds at most f + odds/width·N. A shared wave knows
the count of each cell to within 1 << level, which is at most eps_sw·N. Sizes are chosen so that odds/width + eps_sw = eps
(``core/shared_sizes.py``). The bounds that come with an answer are those of ``noise.py``: they are no wider, and much tighter
where few keys have most of the arrivals.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from lately.core import plan, plots
from lately.core.arguments import check_word
from lately.core.codec import Reader, Writer, storable
from lately.core.durations import Duration, arrivals
from lately.core.errors import MergeError, ParameterError, QueryError
from lately.core.estimate import Estimate
from lately.core.key_types import KeyTypes
from lately.core.keys import Keys, key_column
from lately.core.plan import SAMPLES, Counter, Query, check_samples
from lately.core.shared_sizes import merged_error, shared_size, total_error
from lately.core.sketch_plan import family_for
from lately.core.sketch_plan import plan as sized
from lately.counters.base import CounterArray, Counts, Stamps
from lately.counters.families import counter_array, starting_bytes
from lately.counters.shared import SharedWave
from lately.counters.wave import Wave
from lately.ingest.shape import Shape, read_shape, window_and_lateness
from lately.sketches.countmin import CountMin, without_collisions
from lately.sketches.extracts import Extract, ExtractableSketch
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.range_view import CellCounts, CountMinView, HashedRows
from lately.sketches.sketch_kind import PRODUCT_OF_ROWS, ROWS, SQUARE_OF_ROWS, Options, SketchKind, Suitability
from lately.sketches.windowed_countmin import SketchCells, WindowedCountMin

_QUERIES: tuple[Query, ...] = ("point", "inner")
_MOST_CELLS = 2**31


@dataclass(frozen=True, slots=True)
class EcmShape(Shape):
    """The options of an ECM-sketch."""

    query: Query
    seed: int

    @property
    def eps_sw(self) -> float:
        if self.counter == "shared":
            return shared_size(self.eps, self.delta, self.merge_height).eps_sw
        return self.before_merges(plan.split(self.eps, self.query)[1])

    @property
    def size(self) -> tuple[int, int]:
        """(width, depth)."""
        if self.counter == "shared":
            return shared_size(self.eps, self.delta, self.merge_height)[:2]
        return plan.count_min_size(plan.split(self.eps, self.query)[0], plan.deltas(self.delta, self.counter)[0])

    @property
    def odds(self) -> float:
        """With a probability of 1/odds, a cell holds more than odds/width of the other keys' arrivals."""
        return shared_size(self.eps, self.delta, self.merge_height).odds if self.counter == "shared" else math.e

    def write(self, out: Writer) -> None:
        Shape.write(self, out)  # super() does not work in a dataclass with slots
        out.u8(_QUERIES.index(self.query))
        out.u64(self.seed)


class EcmView(CountMinView):
    """Answers of an ``EcmSketch`` about one range.

    Parameters
    ----------
    shape
        What the sketch was asked for.
    rows, counts, key_types
        As in ``CountMinView``.
    """

    def __init__(self, shape: EcmShape, rows: HashedRows, counts: CellCounts, key_types: KeyTypes = None) -> None:
        super().__init__(rows, shape.delta, counts, key_types)
        self.shape = shape

    def self_join(self) -> Estimate:
        """The second moment of the range: the sum of the squares of all frequencies."""
        return self.inner_product(self)

    def inner_product(self, other: "EcmView") -> Estimate:
        """The sum over all keys of the product of their frequencies in two streams, over the same range of time."""
        _check_comparable(self.shape, other.shape)
        width, depth = self.shape.size
        tables = [[part.reshape(depth, width).astype(np.float64) for part in view.cell_bounds()] for view in (self, other)]
        rows = [(left * right).sum(axis=1).min() for left, right in zip(*tables, strict=True)]
        totals = float(self.total_bounds().high[0]) * float(other.total_bounds().high[0])
        low = float(without_collisions(np.float64(rows[0]), totals, width))
        return Estimate(float(rows[1]), min(low, float(rows[1])), float(rows[2]), 1 - max(self.delta, other.delta))


@storable(2)
class EcmSketch(WindowedCountMin[EcmShape], ExtractableSketch[EcmShape]):
    """Counts of keys, inner products and self-joins over a sliding window; mergeable across sites.

    A count over the most recent period is off by at most ``eps`` times the arrivals in it, with probability 1 - ``delta``; a
    count over a range in the past, by ``eps`` times the arrivals since it began plus those since it ended. With
    ``query="inner"`` the same holds for inner products, with the product of both streams' arrivals. Memory is
    O(1/eps · ln 1/delta · log arrivals) whatever the stream, with the papers' counters O(1/eps² · …); an update costs
    O(ln 1/delta).

    ``value`` is the best estimate, not the upper bound: see ``noise.py``. ``high`` is certain, ``low`` holds with probability
    1 - delta (with the papers' counters ``value`` is the smallest of a key's cells, as they have it).

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error, as a share of the arrivals in the range; with ``query="inner"``, of the product of both streams'
        arrivals.
    delta
        The probability that an answer is off by more.
    nbytes
        The most bytes of memory at a million arrivals in the window, instead of ``eps``; ``sketch.eps`` is what they buy. A
        level of notes is added each time the arrivals double. None by default.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    query
        What eps is promised for: "point" (the default) for counts of keys, "inner" for inner products and self-joins.
    counter
        The family of the window counters: "shared" (the default for counts), "wave" (the default for ``query="inner"``),
        "exphist", "randwave" or "exact".
    merge_height
        How many levels of merging are planned. Counters are built finer, so that eps holds after that many; 0 by
        default.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.
    samples
        The constant of randomized waves: 6 by default; their proof needs 36.
    salt
        What randomized waves draw their samples from; a random one by default, as sites must not draw the same.

    >>> sketch = EcmSketch(window="1h", eps=0.01, delta=0.01)
    >>> sketch.update(["/cart", "/", "/cart"], ["2026-01-01T12:00", "2026-01-01T12:20", "2026-01-01T12:30"])
    >>> sketch.count("/cart"), sketch.count("/cart", last="10m").value
    (Estimate(2, 2..2, 99%), 1)
    """

    _parts: tuple[CounterArray, CounterArray]

    def __init__(
        self,
        *,
        window: Duration | arrivals,
        eps: float | None = None,
        delta: float,
        nbytes: int | None = None,
        tick: Duration | None = None,
        query: Query = "point",
        counter: Counter | None = None,
        merge_height: int = 0,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
        samples: int = SAMPLES,
        salt: int | None = None,
    ) -> None:
        family = family_for(query, counter)
        guarantee = window_and_lateness(window, tick, lateness)
        if nbytes is not None or eps is None:
            sizing: dict[str, Any] = {"tick": tick, "query": query, "merge_height": merge_height, "counter": family}
            eps = sized(eps, delta, window, nbytes=nbytes, samples=samples, **sizing).eps
        plan.split(eps, query)
        plan.deltas(delta, family)
        plan.premerge_error(eps, merge_height)
        check_samples(samples)
        shape = EcmShape(
            *guarantee,
            eps,
            delta,
            merge_height,
            family,
            samples,
            query,
            check_word("seed", seed),
        )
        if math.prod(shape.size) > _MOST_CELLS:
            raise ParameterError(
                f"eps={eps!r}, delta={delta!r} need {math.prod(shape.size):,} cells", remedy="give a larger eps"
            )
        self._begin(shape, _arrays(shape, salt))

    # -- what it is made of --------------------------------------------------------------------------------------------

    @property
    def counter(self) -> str:
        """The family of the counters."""
        return self._shape.counter

    @property
    def error(self) -> float:
        """The current error of the counters, after h levels of merging: (1 + eps_sw)^(h + 1) - 1; 0 if they are exact.

        Of shared waves, whose error is a share of the arrivals of a row: (1 + 2h)·eps_sw.
        """
        return 0.0 if self.counter == "exact" else self._parts[0].error

    @classmethod
    def _new_parts(cls, shape: EcmShape) -> tuple[CounterArray, CounterArray]:
        return _arrays(shape, None)

    def __repr__(self) -> str:
        return (
            f"EcmSketch({self._window!r}, eps={self.eps}, delta={self.delta}, counter={self.counter!r}, "
            f"width={self.width}, depth={self.depth}, merges={self.merges}, nbytes={self.nbytes:_})"
        )

    def _begin(self, shape: EcmShape, parts: Any) -> Self:
        return self._begin_rows(shape.size, shape.seed, shape, parts, shape.odds)

    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        self._count_rows(keys, start, stamps, counts)

    # -- read ----------------------------------------------------------------------------------------------------------

    def self_join(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """The second moment of the range: the sum of the squares of all frequencies.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).self_join()

    def inner_product(
        self, other: "EcmSketch", last: Duration | None = None, between: tuple[Any, Any] | None = None
    ) -> Estimate:
        """The sum over all keys of the product of their frequencies in two streams, over the same range of time.

        Off by at most eps times the product of both streams' arrivals when built with ``query="inner"`` (Theorem 2).

        Parameters
        ----------
        other
            The sketch of the other stream, built with the same options.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        if not isinstance(other, EcmSketch):
            raise MergeError(f"an inner product of an EcmSketch and a {type(other).__name__}", remedy="give two EcmSketches")
        _check_comparable(self._shape, other._shape)
        ages = self._range(last, between)
        times = [t for t in (self._now, other._now) if t is not None]
        now = max(times) if times and self._window.kind != "arrivals" else None
        return self._view(SketchCells(self, ages, now)).inner_product(other._view(SketchCells(other, ages, now)))

    def in_range(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> EcmView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self._view(SketchCells(self, self._range(last, between)))

    def _view(self, counts: CellCounts) -> EcmView:
        return EcmView(self._shape, self._rows, counts, self._key_types)

    def _view_of(self, extract: Extract) -> EcmView:
        return self._view(extract)

    def _extract_since(self, age: int) -> Extract:
        counts = SketchCells(self, (age, None))
        return Extract(self.fingerprint, counts.cell_bounds(), counts.total_bounds(), sums=counts.dithered())

    def extract(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> CountMin:
        """The plain Count-Min of a range: width·depth numbers, which add up over sites without any merge error.

        Each number is within ``CountMin.error`` of the true one, relatively. A range in the past is a difference of two
        estimates, which has no such bound, so ``between`` needs exact counters.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        array, exact = self._parts[0], self.counter == "exact"
        if self.counter == "shared":
            raise QueryError(
                "extract() states a relative error of each number, which the cells of shared waves do not have",
                remedy="build the sketch with counter='wave', or ask in_range() of the sketch itself",
            )
        if between is not None and not exact:
            raise QueryError(
                "extract(between=…) cannot state a relative error", remedy="ask the sketch itself, or extract(last=…)"
            )
        values = self._cells_in_range(None, self._range(last, between)).value
        growth = array.stretch[0] if array.stretch else (1 + array.eps) ** array.height
        error = 0.0 if exact else min(growth * (1 + array.eps) - 1, 0.999)
        return CountMin._of(self.width, self.depth, self.delta, self._shape.seed, error, values)

    def plot(self, keys: Any, last: Duration | None = None, between: tuple[Any, Any] | None = None, ax: Any = None) -> Any:
        """Draw the counts of these keys as bars, with the bounds as error bars; needs matplotlib. Returns the axes.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        ax
            The axes of matplotlib to draw on; new ones by default.

        >>> from matplotlib.figure import Figure
        >>> sketch = EcmSketch(window=100, eps=0.1, delta=0.1)
        >>> sketch.update(["a", "b", "a"], [10, 20, 30])
        >>> [int(bar.get_width()) for bar in sketch.plot(["a", "b"], ax=Figure().subplots()).patches]
        [2, 1]
        """
        column = key_column(keys)
        ax = plots.bars(column.pick(np.arange(len(column))), self.counts(keys, last, between), ax)
        ax.set_xlabel("count")
        return ax

    # -- bytes ---------------------------------------------------------------------------------------------------------

    @classmethod
    def _read(cls, source: Reader) -> Self:
        base = read_shape(source, shared=True)
        query, seed = _QUERIES[source.choice(0, 1)], source.u64()
        shape = EcmShape(**{field.name: getattr(base, field.name) for field in fields(base)}, query=query, seed=seed)
        cells = math.prod(shape.size)
        source.check(cells <= _MOST_CELLS, f"{cells} cells")
        source.fits(starting_bytes(shape.counter, cells, shape.eps_sw, shape.delta / 2, shape.samples))
        sketch = object.__new__(cls)._begin(shape, _arrays(shape, 0))
        sketch._read_state(source)
        return sketch


def _check_comparable(shape: EcmShape, other: EcmShape) -> None:
    """Refuse two streams whose sketches give no inner product."""
    if "randwave" in (shape.counter, other.counter):
        raise QueryError(
            "randomized waves give no guarantee for self-joins and inner products (ECM-15 section 7.2)",
            remedy="build the sketch with counter='wave' or 'exphist'",
        )
    for name, left, right in (
        ("window", shape.window, other.window),
        ("width", shape.size[0], other.size[0]),
        ("depth", shape.size[1], other.size[1]),
        ("seed", shape.seed, other.seed),
    ):
        if left != right:
            raise MergeError(f"two streams differ in {name}: {left!r} and {right!r}", remedy="build their sketches alike")


def _arrays(shape: EcmShape, salt: int | None) -> tuple[CounterArray, CounterArray]:
    """The cells, and one finer cell for the total."""
    _, delta_sw = plan.deltas(shape.delta, shape.counter)
    if shape.counter == "shared":
        width, depth = shape.size
        rows = SharedWave(width * depth, shape.window.span, shape.eps_sw, range(0, width * depth, width))
        return rows, Wave(1, shape.window.span, shape.before_merges(total_error(shape.eps)))
    cells = counter_array(
        shape.counter, math.prod(shape.size), shape.window.span, shape.eps_sw, delta=delta_sw, samples=shape.samples, salt=salt
    )
    family = "exact" if shape.counter == "exact" else "wave"
    return cells, counter_array(family, 1, shape.window.span, plan.total_error(shape.eps_sw))


def _merged_eps(options: Options) -> float:
    """The eps of sketches that are merged in one step: the error of their counters then, by the theorem for the query."""
    if options.get("counter") in (None, "shared") and options.get("query", "point") == "point":
        return round(merged_error(float(options["eps"]), float(options["delta"]), 1), 6)
    eps_cm, eps_sw = plan.split(float(options["eps"]), options.get("query", "point"))
    counters = 1 + plan.merged_error(eps_sw, 1)
    factor = counters if options.get("query", "point") == "point" else counters**2
    return round(max(factor - 1, eps_cm * factor), 6)


KIND = SketchKind(
    "ecm",
    EcmSketch,
    questions={
        "count": Suitability(0, 0, ROWS),
        "self-join": Suitability(1, 2),
        "inner-product": Suitability(1, 0),
        "total": Suitability(0, 0),
    },
    purposes={
        "inner": {
            "count": Suitability(0, 2, ROWS),
            "self-join": Suitability(0, 0, SQUARE_OF_ROWS),
            "inner-product": Suitability(0, 0, PRODUCT_OF_ROWS),
            "total": Suitability(0, 1),
        }
    },
    guarantee=("eps", "delta", "query"),
    merged_eps=_merged_eps,
)
