"""A Fast-AMS sketch whose cells count over a window: second moments and joins of recent arrivals.

A cell is a pair of window counters, one for the keys whose sign is plus and one for those whose sign is minus:

    key ──> uint64 ──> row · 2·width + 2·bucket + (0 for plus, 1 for minus) ──> counters ──> plus - minus ──> as Fast-AMS

The counters of a row are shared waves (``counters.shared``); ``dithered`` has what can be proved of them. The other families
count in each cell on its own. What can be proved of those: let x be a row of exact differences, c that of exact sums
(plus + minus), and y the row that counters give which are each off by at most s of their count. Then |y - x| ≤ s·c cell by
cell and |x| ≤ c, so the row's self-join is off by

    | |y|² - |x|² | = |(y - x)·(y + x)| ≤ s|c|·(2|x| + s|c|) ≤ (2s + s²)·|c|²

Half of eps goes to the table and half to the counters, 2s + s² = eps/2. A median moves no further than the row that moves
most, so an answer about the most recent period is off by at most eps/2·F2 + eps/2·|c|² with probability 1 - delta, where F2
is the second moment and |c|² the largest of the rows'; a row's is F2 + (N² - F2)/width on average, with N arrivals. In the
same way an inner product is off by at most eps/2·|a||b| + eps/2·|c_a||c_b|. A range in the past is a difference of two counts:
there c is the arrivals since it began plus those since it ended.

The bounds of an answer state its actual error. A counter of its own has certain bounds, and interval arithmetic makes certain
bounds of each exact row from them. If low_r ≤ x_r ≤ high_r in every row, then median(low) ≤ median(x) ≤
median(high), because a median does not fall when any of its numbers grows. Only the distance of the
median of exact rows from the truth is a matter of probability, as in Fast-AMS.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lately.core import plan
from lately.core.arguments import check_probability, check_word
from lately.core.codec import Reader, Writer, storable
from lately.core.durations import Duration, arrivals
from lately.core.errors import MergeError, ParameterError
from lately.core.estimate import Estimate
from lately.core.keys import SEED, Hashes, Keys, all_hashes, key_column
from lately.core.plain_values import plain_key
from lately.core.plan import SAMPLES, Counter
from lately.core.splitmix64 import random_words
from lately.counters.base import Bounds, CounterArray, Counts, Stamps
from lately.counters.families import counter_array, starting_bytes
from lately.counters.shared import SharedWave
from lately.ingest.shape import Shape, read_shape, window_and_lateness
from lately.sketches.ams import MOST_CELLS, FastAmsSketch
from lately.sketches.dithered import DitheredRows, Noise, level_for
from lately.sketches.extracts import Extract, ExtractableSketch
from lately.sketches.fourwise import polynomials, signed_cells
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.range_view import RangeView
from lately.sketches.scratch import scratch
from lately.sketches.sketch_kind import NORMS, SECOND_MOMENT, SketchKind, Suitability

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The share of eps that the counter of the total takes where the cells are shared waves.
_TENTH = 10
_MOST_SALT = 2**24 - 1


@dataclass(frozen=True, slots=True)
class AmsShape(Shape):
    """The options of a windowed Fast-AMS sketch."""

    seed: int

    @property
    def shared(self) -> bool:
        """Whether the cells of a row share one wave."""
        return self.counter == "shared"

    @property
    def eps_ams(self) -> float:
        """The error of the table, where it is apart from that of the counters."""
        return plan.ams_split(self.eps)[0]

    @property
    def eps_sw(self) -> float:
        return self.before_merges(plan.signed_waves(self.eps, self.delta)[2] if self.shared else plan.ams_split(self.eps)[1])

    @property
    def size(self) -> tuple[int, int]:
        """(width, depth)."""
        return plan.signed_waves(self.eps, self.delta)[:2] if self.shared else plan.ams_size(self.eps_ams, self.delta)

    def write(self, out: Writer) -> None:
        Shape.write(self, out)  # super() does not work in a dataclass with slots
        out.u64(self.seed)


class Rows(NamedTuple):
    """Bounds of ``depth`` rows of ``width`` numbers, or of one number a row."""

    low: Floats
    value: Floats
    high: Floats

    def squared(self) -> "Rows":
        """The squares of each row, added up."""
        ends = self.low**2, self.high**2
        low = np.where((self.low > 0) | (self.high < 0), np.minimum(*ends), 0.0)
        return Rows(low, self.value**2, np.maximum(*ends)).summed()

    def times(self, other: "Rows") -> "Rows":
        """The products with another's, added up in each row."""
        ends = [left * right for left in (self.low, self.high) for right in (other.low, other.high)]
        return Rows(np.minimum.reduce(ends), self.value * other.value, np.maximum.reduce(ends)).summed()

    def summed(self) -> "Rows":
        return Rows(*(part.sum(axis=1) for part in self))

    def medians(self) -> tuple[float, float, float]:
        low, value, high = (float(np.median(part)) for part in self)
        return low, value, high


class AmsView(RangeView):
    """Answers of a ``WindowedAmsSketch`` about one range.

    Parameters
    ----------
    shape
        What the sketch was asked for.
    rows
        The signed cells of the range.
    total
        Bounds of all arrivals.
    """

    def __init__(self, shape: AmsShape, rows: Rows | DitheredRows, total: Bounds) -> None:
        super().__init__(shape.delta)
        self.shape, self.rows, self._total = shape, rows, total

    def total_bounds(self) -> Bounds:
        return self._total

    def self_join(self) -> Estimate:
        """The second moment of the range: the sum of the squares of all frequencies."""
        low, value, high = self._second_moment()
        return Estimate(value, low, high, 1 - self.delta)

    def inner_product(self, other: "AmsView") -> Estimate:
        """The sum over all keys of the product of their frequencies in two streams, over the same range of time."""
        _check_comparable(self.shape, other.shape)
        moments = self._second_moment()[2], other._second_moment()[2]
        most = float(self._total.high[0]) * float(other._total.high[0]) if self.shape.shared else math.inf
        return self._product(other.rows, moments, 1 - 3 * self.delta, 0.0, most)

    def range_sum(self, table: Floats, square: float, least: float) -> Estimate:
        """The inner product with a known vector.

        Parameters
        ----------
        table
            The signed cells of the vector.
        square
            The square of its norm.
        least
            No answer is below this.
        """
        vector: Rows | DitheredRows
        if self.shape.shared:
            vector = DitheredRows(table, Noise.none(len(table)), self.delta)
        else:
            vector = Rows(table, table, table)
        return self._product(vector, (self._second_moment()[2], square), 1 - 2 * self.delta, least, math.inf)

    def _second_moment(self) -> tuple[float, float, float]:
        if isinstance(self.rows, Rows):
            low, value, high = self.rows.squared().medians()
            return low / (1 + self.shape.eps_ams), value, high / (1 - self.shape.eps_ams)
        low, value, high = self.rows.squares().medians()
        # Each arrival is a pair with itself, and at most all are of one key: certain, so it cannot cross the likely bounds
        # unless those are wrong.
        fewest, most = float(self._total.low[0]), float(self._total.high[0]) ** 2
        low, high = min(max(low, fewest), most), max(min(high, most), fewest)
        return low, min(max(value, low), high), high

    def _product(
        self, other: Rows | DitheredRows, moments: tuple[float, float], confidence: float, least: float, most: float
    ) -> Estimate:
        """The median of the rows, with the error of the table around it; ``moments`` are at most those of both."""
        norms = math.sqrt(moments[0] * moments[1])
        if isinstance(self.rows, DitheredRows) and isinstance(other, DitheredRows):
            low, value, high = self.rows.products(other, moments).medians()
            most = min(most, norms * (1 + 1e-12))  # Cauchy and Schwarz
        else:
            assert isinstance(self.rows, Rows)
            assert isinstance(other, Rows)
            off = self.shape.eps_ams * norms
            low, value, high = self.rows.times(other).medians()
            low, high = low - off, high + off
        low, value, high = (min(max(part, least), most) for part in (low, value, high))
        return Estimate(value, low, high, max(confidence, 0.0))


def _check_comparable(shape: AmsShape, other: AmsShape) -> None:
    """Refuse two streams whose sketches give no inner product."""
    names = ["window", "eps", "delta", "seed"]
    if shape.shared != other.shared:
        names.append("counter")  # the sizes of shared waves are others
    for name in names:
        left, right = getattr(shape, name), getattr(other, name)
        if left != right:
            raise MergeError(f"two streams differ in {name}: {left!r} and {right!r}", remedy="build their sketches alike")


@storable(15)
class WindowedAmsSketch(ExtractableSketch[AmsShape]):
    """Second moments, inner products and sums over keys, over a sliding window; mergeable across sites.

    With probability 1 - ``delta`` an answer about the most recent period is off by at most ``eps`` times the product of both
    norms (the roots of the second moments), where a norm counts at least as a sixteenth of the arrivals; so a second moment
    is off by at most eps of itself, unless the stream is spread that evenly over its keys. Phases of two sketches must be
    independent for inner products: they are unless the first arrivals of both had the same key and time. The bounds of an
    answer state its actual error, after merges and for ranges in the past too, which ``eps`` does not cover. An ``EcmSketch``
    is off by eps·N² instead, with N arrivals, which says nothing where there are many keys. Memory is
    O(1/eps² · 1/delta + 1/eps · log arrivals), an update costs O(1) for each of at most O(ln 1/delta) rows.

    Other counters than shared waves are built for eps/2 of F2 plus eps/2 of F2 + (N² - F2)/width, the second part an average,
    in O(1/eps³ · ln 1/delta · log arrivals).

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error, as described above.
    delta
        The probability that an answer is off by more.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    counter
        The family of the window counters: "shared" (the default), "wave", "exphist" or "exact".
    merge_height
        How many levels of merging are planned. Counters are built finer; 0 by default. The eps of "wave" and "exphist"
        holds after that many.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = WindowedAmsSketch(window="1h", eps=0.2, delta=0.1)
    >>> sketch.update(["/cart", "/", "/cart"], ["2026-01-01T12:00", "2026-01-01T12:20", "2026-01-01T12:30"])
    >>> sketch.self_join().value, sketch.self_join(last="5m").value
    (5.0, 1.0)
    """

    _parts: tuple[CounterArray, CounterArray]
    _words: Hashes
    _width: np.uint64

    def __init__(
        self,
        *,
        window: Duration | arrivals,
        eps: float,
        delta: float,
        tick: Duration | None = None,
        counter: Counter = "shared",
        merge_height: int = 0,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        check_probability("eps", eps)
        plan.deltas(delta, counter)
        if counter == "randwave":
            raise ParameterError(
                "counter='randwave': randomized waves give no guarantee for self-joins and inner products (ECM-15 section 7.2)",
                remedy="give counter='shared', 'wave', 'exphist' or 'exact'",
            )
        shape = AmsShape(
            *window_and_lateness(window, tick, lateness), eps, delta, merge_height, counter, SAMPLES, check_word("seed", seed)
        )
        if (cells := math.prod(shape.size)) > MOST_CELLS:
            raise ParameterError(f"eps={eps!r}, delta={delta!r} need {cells:,} cells", remedy="give a larger eps")
        self._begin(shape, _arrays(shape))

    # -- what it is made of --------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Cells in a row, each a pair of counters."""
        return int(self._width)

    @property
    def depth(self) -> int:
        """Rows."""
        return int(self._words.shape[0])

    @property
    def counter(self) -> str:
        """The family of the counters."""
        return self._shape.counter

    @property
    def error(self) -> float:
        """The current error of the counters, after h levels of merging: (1 + eps_sw)^(h + 1) - 1; 0 if they are exact.

        That of shared waves is a share of the arrivals, that of others of a counter's own count.
        """
        return 0.0 if self.counter == "exact" else self._parts[0].error

    @classmethod
    def _new_parts(cls, shape: AmsShape) -> tuple[CounterArray, CounterArray]:
        return _arrays(shape)

    def __repr__(self) -> str:
        return (
            f"WindowedAmsSketch({self._window!r}, eps={self.eps}, delta={self.delta}, counter={self.counter!r}, "
            f"width={self.width}, depth={self.depth}, merges={self.merges}, nbytes={self.nbytes:_})"
        )

    def _begin(self, shape: AmsShape, parts: Any) -> Self:
        width, depth = shape.size
        self._words, self._width = polynomials(shape.seed, depth), np.uint64(width)
        return super()._begin(shape, parts)

    # -- write ---------------------------------------------------------------------------------------------------------

    def update(self, keys: Any, times: Any = None, counts: Any = None) -> None:
        """Count a column of keys at their times, ``counts`` times each; as in an ``EcmSketch``.

        Counts are 0 or more: over a window nothing can be subtracted.

        Parameters
        ----------
        keys
            Text, bytes, integers or tuples of these: a list, a NumPy, pandas, polars or Arrow column, or a single key.
        times
            The time of each row: dates, text, or integers if the window is an integer. None in a window of arrivals,
            where each row is one arrival.
        counts
            How often to count each row; once by default.
        """
        if (key := plain_key(keys)) is None or not self._add_waiting(key, times, counts):
            self._ingest(key_column(keys), times, counts)

    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        array, total = self._parts
        hashes, cells = scratch(stamps.size)
        hashes.fill(SEED)
        keys.hash_into(start, hashes)
        if isinstance(array, SharedWave) and not array.salt:
            array.begin_with(_salt(int(hashes[0]), int(stamps[0]) + self._origin))
        for row in range(self.depth):
            signed_cells(hashes, row, self._words, self._width, cells)
            array.add_to_row(row, cells, stamps, counts)
        total.extend(stamps, counts)

    def draw_phases(self, name: str) -> None:
        """Draw the random phases of shared waves from a name instead of the first arrival; before any arrival.

        Sketches with different names have independent errors, as sites should, whatever arrives first.

        Parameters
        ----------
        name
            What the phases are drawn from.

        >>> sites = [WindowedAmsSketch(window=100, eps=0.2, delta=0.1) for _ in range(2)]
        >>> for number, site in enumerate(sites):
        ...     site.draw_phases(f"site {number}")
        """
        array = self._parts[0]
        if self._now is not None:
            raise ParameterError("the sketch has arrivals, whose phases are drawn", remedy="call draw_phases before any update")
        if isinstance(array, SharedWave):
            array.begin_with(_salt(int(all_hashes(key_column([name]))[0]), 0))

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
        self, other: "WindowedAmsSketch", last: Duration | None = None, between: tuple[Any, Any] | None = None
    ) -> Estimate:
        """The sum over all keys of the product of their frequencies in two streams, over the same range of time.

        The bounds hold with probability 1 - 3·delta: the norms of both streams in them are estimates too.

        Parameters
        ----------
        other
            The sketch of the other stream, built with the same options.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        if not isinstance(other, WindowedAmsSketch):
            raise MergeError(
                f"an inner product of a WindowedAmsSketch and a {type(other).__name__}", remedy="give two WindowedAmsSketches"
            )
        _check_comparable(self._shape, other._shape)
        ages = self._range(last, between)
        times = [t for t in (self._now, other._now) if t is not None]
        now = max(times) if times and self._window.kind != "arrivals" else None
        return self._view(ages, now).inner_product(other._view(ages, now))

    def in_range(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> AmsView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self._view(self._range(last, between))

    def range_sum(
        self, keys: Any, *, weights: Any = None, last: Duration | None = None, between: tuple[Any, Any] | None = None
    ) -> Estimate:
        """The sum of the frequencies of these keys, times whole ``weights``; a ``range`` may be long.

        The bounds hold with probability 1 - 2·delta: the norm of the stream in them is an estimate too.

        Parameters
        ----------
        keys
            The keys: a column, or a ``range``, which may be long as it is never expanded.
        weights
            An integer for each key; 1 by default.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.

        >>> sketch = WindowedAmsSketch(window=100, eps=0.2, delta=0.05)
        >>> sketch.update([3, 40, 500], [10, 20, 30], [7, 2, 1])
        >>> sketch.range_sum(range(0, 100)).value, sketch.range_sum(range(0, 100), last=15).value
        (9.0, 2.0)
        """
        view = self.in_range(last, between)
        vector, square = self._plain()._vector(keys, weights)
        least = 0.0 if vector.total() == vector.weight else -math.inf
        return view.range_sum(vector.table.astype(np.float64), square, least)

    def _plain(self) -> FastAmsSketch:
        """An empty sketch without a window that has the same hash functions."""
        shape, table = self._shape, np.zeros(self.width * self.depth, np.int64)
        return FastAmsSketch._of(self.width, self.depth, shape.eps_ams, shape.delta, shape.seed, table, 0, 0)

    def _view(self, ages: tuple[int, int | None], now: int | None = None) -> AmsView:
        total = self._total_in_range(ages, now)
        rows = self._dithered_rows(ages, now, total) if self._shape.shared else Rows(*self._signed_bounds(ages, now))
        return AmsView(self._shape, rows, total)

    def _signed_bounds(self, ages: tuple[int, int | None], now: int | None = None) -> tuple[Floats, Floats, Floats]:
        """Bounds of the signed cells in a range."""
        bounds = self._bounds(self._parts[0], None, self._buffered_by_counter, ages, now)
        low, value, high = (part.reshape(self.depth, self.width, 2) for part in bounds)  # whole numbers, which cancel exactly
        plus, minus = (low[..., 0], value[..., 0], high[..., 0]), (high[..., 1], value[..., 1], low[..., 1])
        signed = [(added - removed).astype(np.float64) for added, removed in zip(plus, minus, strict=True)]
        return signed[0], signed[1], signed[2]

    def _dithered_rows(self, ages: tuple[int, int | None], now: int | None, total: Bounds) -> DitheredRows:
        """The signed cells in a range, with their noise."""
        older, newer = ages
        table, noise, _ = self._suffix(older, now)
        if newer is not None:
            recent, its_noise, levels = self._suffix(newer, now)
            table, noise = table - recent, noise.less(its_noise, levels, float(total.high[0]), self.width)
        return DitheredRows(table.astype(np.float64), noise, self.delta)

    def _suffix(self, age: int, now: int | None = None) -> tuple[Ints, Noise, Ints]:
        """The signed cells of the last ``age`` ticks, their noise, and the level of notes in each row."""
        array, total = self._parts
        assert isinstance(array, SharedWave)
        levels, instant = np.zeros(self.depth, np.int64), now if now is not None else self._now
        if instant is None:
            return np.zeros((self.depth, self.width), np.int64), Noise.none(self.depth), levels
        stamp = self._stamp_at(age, instant)
        snapshot, arrivals = array.at(stamp), total.since(np.zeros(1, np.uint32), stamp)
        if array.height == 0 and arrivals.low[0] >= self._arrived - self._reorder_buffer.counts.sum():
            counts, noise = snapshot.raw_all().high, Noise.none(self.depth)  # all that it ever counted, which is known
        else:
            levels = np.maximum(snapshot.levels, level_for(int(arrivals.high[0]), array.eps))
            counts, noise = snapshot.dithered_at(levels), Noise.of(levels, snapshot.slack, self.width, int(array.draw))
        if self._reorder_buffer.ticks.size:
            counts = counts + self._buffered_by_counter(self._tick_at(age, instant))
        pairs = counts.reshape(self.depth, self.width, 2)
        return pairs[..., 0] - pairs[..., 1], noise, levels

    # -- extracts ------------------------------------------------------------------------------------------------------

    def _extract_since(self, age: int) -> Extract:
        total = self._total_in_range((age, None))
        if self._shape.shared:
            table, noise, _ = self._suffix(age)
            signed = table.ravel()
            return Extract(self.fingerprint, Bounds(signed, signed, signed), total, noise.parts(), draws=noise.draws)
        cells = Bounds(*(part.ravel().astype(np.int64) for part in self._signed_bounds((age, None))))
        return Extract(self.fingerprint, cells, total, np.empty(0))

    def _view_of(self, extract: Extract) -> AmsView:
        low, value, high = (part.reshape(self.depth, self.width).astype(np.float64) for part in extract.cells)
        rows: Rows | DitheredRows = Rows(low, value, high)
        if self._shape.shared:
            rows = DitheredRows(value, Noise.of_parts(extract.spread, self.width, extract.draws), self.delta)
        return AmsView(self._shape, rows, extract.total)

    def _buffered_by_counter(self, tick: int) -> Counts:
        """What the reorder buffer holds since a tick, by counter."""
        table = np.zeros(self._parts[0].cells, np.int64)
        newer = self._reorder_buffer.ticks >= tick
        cells = np.empty(int(newer.sum()), np.uint32)
        for row in range(self.depth):
            signed_cells(self._reorder_buffer.hashes[newer], row, self._words, self._width, cells)
            np.add.at(table, cells, self._reorder_buffer.counts[newer])
        return table

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _write_state(self, out: Writer) -> None:
        array = self._parts[0]
        if isinstance(array, SharedWave):
            out.u64(array.salt)
        super()._write_state(out)

    def _read_state(self, source: Reader) -> None:
        array = self._parts[0]
        if isinstance(array, SharedWave):
            array.salt = source.within(source.u64(), 0, _MOST_SALT)
        super()._read_state(source)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        base = read_shape(source, shared=True)
        shape = AmsShape(**{field.name: getattr(base, field.name) for field in fields(base)}, seed=source.u64())
        source.check(shape.counter != "randwave", "randomized waves, which give no guarantee for signed sums")
        cells = math.prod(shape.size)
        source.check(cells <= MOST_CELLS, f"{cells} cells")
        source.fits(starting_bytes(shape.counter, 2 * cells, shape.eps_sw, shape.delta, shape.samples))
        sketch = object.__new__(cls)._begin(shape, _arrays(shape))
        sketch._read_state(source)
        return sketch


def _arrays(shape: AmsShape) -> tuple[CounterArray, CounterArray]:
    """A pair of counters for each cell, and one finer counter for the total."""
    cells, span = 2 * math.prod(shape.size), shape.window.span
    if shape.shared:
        width, depth = shape.size
        starts = [2 * width * row for row in range(depth)]
        total = counter_array("wave", 1, span, shape.before_merges(shape.eps / _TENTH))
        return SharedWave(cells, span, shape.eps_sw, starts), total
    family = "exact" if shape.counter == "exact" else "wave"
    pairs = counter_array(shape.counter, cells, span, shape.eps_sw)
    return pairs, counter_array(family, 1, span, plan.total_error(shape.eps_sw))


def _salt(key: int, tick: int) -> int:
    """What the phases of a sketch are drawn from: 24 bits, not 0, of its first arrival, so that streams differ in it."""
    return int(random_words(key ^ int(random_words(tick, 1)[0]), 1)[0]) % _MOST_SALT + 1


KIND = SketchKind(
    "ams",
    WindowedAmsSketch,
    questions={
        "self-join": Suitability(0, -1, SECOND_MOMENT),
        "inner-product": Suitability(0, -1, NORMS),
        "total": Suitability(0, 5),
    },
)
