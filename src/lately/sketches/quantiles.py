"""Quantiles of numbers: latencies, prices, delays."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lately.core.answers import Answers, QuantileAt
from lately.core.arguments import check_integer
from lately.core.codec import Reader, Writer, storable
from lately.core.columns import Ints
from lately.core.durations import Duration, arrivals
from lately.core.errors import InputError, ParameterError, RangeError
from lately.core.estimate import Estimate, Estimates
from lately.core.keys import HashedKeys, Keys
from lately.core.plain_values import plain_number
from lately.ingest.shape import window_and_lateness
from lately.sketches.extracts import Extract
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.number_steps import Steps, numbers_of, single_number
from lately.sketches.ranks import check_shares, round_to_estimate
from lately.sketches.sketch_kind import ROWS, ROWS_IN_TIME, Options, SketchKind, Suitability
from lately.sketches.tree import TreeShape, merged_eps, read_tree_shape, tree_arrays, tree_shape
from lately.sketches.windowed_tree import TreeView, WindowedTree

#: The quantiles that pipeline files, the command line and the HTTP API answer where none are given.
DEFAULT_QUANTILES = (0.5, 0.9, 0.99)

Between = tuple[Any, Any]
_MOST_BINS = 2**52  # so that floating point can distinguish neighbouring steps
_LARGEST = 1e300  # so that differences are finite too


@dataclass(frozen=True, slots=True)
class QuantilesShape(TreeShape):
    """The options: numbers from ``lo`` to ``hi`` in steps of ``resolution``."""

    lo: float
    hi: float
    resolution: float
    clip: bool

    @property
    def steps(self) -> Steps:
        """How numbers are cut into steps, which are the keys of the tree."""
        return Steps(self.lo, self.hi, self.resolution, self.universe)

    def write(self, out: Writer) -> None:
        TreeShape.write(self, out)
        out.f64(self.lo)
        out.f64(self.hi)
        out.f64(self.resolution)
        out.u8(self.clip)


class QuantilesView(TreeView):
    """Answers of a ``Quantiles`` about one range; its methods are described there."""

    shape: QuantilesShape

    def quantile(self, q: Any) -> Any:
        """The number below which a share of ``q`` of the arrivals lies; for several shares, a row for each."""
        shares, steps = check_shares(q), self.shape.steps
        low, value, high = self.tree.quantile(shares)
        lowest, highest = steps.edge(low), steps.edge(high + 1)
        middle = (steps.edge(value) + steps.edge(value + 1)) / 2
        answers = Answers(QuantileAt, [shares.tolist(), Estimates(middle, lowest, highest, 1 - self.delta)])
        return answers[0].value if np.ndim(q) == 0 else answers

    def rank(self, x: float) -> Estimate:
        """How many arrivals were at most ``x``; those in the same step as ``x`` are in the bounds."""
        number, shape = single_number(x), self.shape
        if not shape.clip and not shape.lo <= number < shape.hi:  # nothing lies beyond the ends
            return self.total() if number >= shape.hi else Estimate(0, 0, 0, 1.0)
        at = int(shape.steps.of(np.array([number]))[0])
        return self._between_steps((0, at - 1), (0, at))

    def count_range(self, lo: float, hi: float) -> Estimate:
        """How many arrivals were from ``lo`` to ``hi``; those in the same step as either are in the bounds."""
        first, final, shape = single_number(lo), single_number(hi), self.shape
        if first > final:
            raise RangeError(f"count_range({lo}, {hi}) runs backwards", remedy="give the smaller number first")
        if not shape.clip and (final < shape.lo or first > shape.hi):
            return Estimate(0, 0, 0, 1.0)
        a, b = (int(x) for x in shape.steps.of(np.array([first, final])))
        # A step inside the range counts for certain; so does the step at lo or hi, if nothing was clipped there.
        open_ends = shape.clip
        sure_from = 0 if first <= shape.lo and not open_ends else a + 1
        sure_to = shape.universe - 1 if final >= shape.hi and not open_ends else b - 1
        return self._between_steps((sure_from, sure_to), (a, b))

    def _between_steps(self, sure: tuple[int, int], possible: tuple[int, int]) -> Estimate:
        """How many arrivals there were from one step to another, where those at the ends may be inside or not."""
        outer = self.count_between(*possible)
        inner = self.count_between(*sure) if sure[0] <= sure[1] else (0.0, 0.0, 0.0)
        return round_to_estimate((min(inner[0], outer[2]), (inner[1] + outer[1]) / 2, outer[2]), 1 - self.delta)


@storable(5)
class Quantiles(WindowedTree):
    """Quantiles and ranks of numbers from ``lo`` to ``hi`` over a sliding window; mergeable across sites.

    Numbers are distinguished in steps of ``resolution``, which the bounds of every answer include. The rank of a quantile over
    the most recent period is within ``eps`` of the share that was asked for, with probability 1 - ``delta``. Bounds of
    quantiles are never beyond ``lo`` and ``hi``: with ``outside="clip"``, a bound of ``hi`` means ``hi`` or anything above it,
    a bound of ``lo`` anything below.

    Parameters
    ----------
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error of ranks, as a share of the arrivals in the range that is asked for.
    lo
        The smallest number.
    hi
        The largest number.
    resolution
        The length of a step: numbers that are closer may not be distinguished.
    delta
        The probability that an answer is off by more; 0.01 by default.
    outside
        How numbers beyond ``lo`` and ``hi`` are treated: "reject" (the default) raises an error, "clip" counts them at
        the nearer end.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    merge_height
        How many levels of merging are planned. Counters are built finer, so that eps holds after that many; 0 by
        default.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> latency = Quantiles(window="1h", eps=0.01, lo=0, hi=60, resolution=0.001)
    >>> latency.update([0.0121, 0.2504, 0.0134, 1.5], [0, 10, 20, 30])
    >>> latency.quantile(0.5)
    Estimate(0.0135, 0.013..0.014, 99%)
    """

    _shape: QuantilesShape

    def __init__(
        self,
        *,
        window: Duration | arrivals,
        eps: float,
        lo: float,
        hi: float,
        resolution: float,
        delta: float = 0.01,
        outside: Literal["reject", "clip"] = "reject",
        tick: Duration | None = None,
        merge_height: int = 0,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        lo, hi, resolution = _finite("lo", lo), _finite("hi", hi), _finite("resolution", resolution)
        if not lo < hi or not 0 < resolution <= hi - lo:
            raise ParameterError(
                f"lo={lo:g}, hi={hi:g}, resolution={resolution:g}", remedy="give lo < hi and a resolution of at most hi - lo"
            )
        if outside not in ("reject", "clip"):
            raise ParameterError(f"outside={outside!r}", remedy="give 'reject' or 'clip'")
        if (steps := (hi - lo) / resolution) > _MOST_BINS:
            raise ParameterError(
                f"resolution={resolution:g} makes {steps:.3g} steps from {lo:g} to {hi:g}", remedy="give a coarser one"
            )
        bins = _bins(lo, hi, resolution)
        base = tree_shape(window_and_lateness(window, tick, lateness), eps, delta, merge_height, bins, seed)
        shape = _quantiles_shape(base, lo, hi, resolution, outside == "clip")
        self._begin(shape, tree_arrays(shape))

    @property
    def lo(self) -> float:
        """The smallest number that is counted as it is."""
        return self._shape.lo

    @property
    def hi(self) -> float:
        """The largest number that is counted as it is."""
        return self._shape.hi

    @property
    def resolution(self) -> float:
        """The length of a step: numbers closer than this may not be distinguished."""
        return self._shape.resolution

    def __repr__(self) -> str:
        return (
            f"Quantiles({self._window!r}, eps={self.eps}, lo={self.lo:g}, hi={self.hi:g}, resolution={self.resolution:g}, "
            f"delta={self.delta}, merges={self.merges}, nbytes={self.nbytes:_})"
        )

    def update(self, values: Any, times: Any = None, counts: Any = None) -> None:
        """Count a column of numbers at their times, ``counts`` times each.

        Parameters
        ----------
        values
            Numbers: a list, a NumPy, pandas, polars or Arrow column, or a single number.
        times
            The time of each row: dates, text, or integers if the window is an integer. None in a window of arrivals,
            where each row is one arrival.
        counts
            How often to count each row; once by default.
        """
        number = plain_number(values)
        inside = number is not None and (self._shape.clip or self.lo <= number <= self.hi)
        if inside and self._add_waiting(number, times, counts):
            return
        numbers = numbers_of(values)
        if not self._shape.clip and numbers.size and not (numbers.min() >= self.lo and numbers.max() <= self.hi):
            odd = numbers[(numbers < self.lo) | (numbers > self.hi)][0]
            raise InputError(
                f"the value {odd:g} lies outside of {self.lo:g}..{self.hi:g}",
                remedy="filter it, or build with outside='clip'",
            )
        self._ingest(self._column_of(numbers), times, counts)

    def _column_of(self, keys: list[float] | NDArray[np.float64]) -> Keys:
        return HashedKeys(self._shape.steps.of(np.asarray(keys, np.float64)).astype(np.uint64))

    # -- read ----------------------------------------------------------------------------------------------------------

    def quantile(self, q: Any, last: Duration | None = None, between: Between | None = None) -> Any:
        """The number below which a share of ``q`` of the arrivals lies; for a list of shares, a row for each.

        Parameters
        ----------
        q
            A share from 0 to 1, or several.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.

        >>> latency = Quantiles(window=100, eps=0.1, lo=0, hi=10, resolution=0.5)
        >>> latency.update([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1)
        >>> latency.quantile([0.1, 0.5]).value.low.tolist()
        [1.0, 5.0]
        """
        return self.in_range(last, between).quantile(q)

    def rank(self, x: float, last: Duration | None = None, between: Between | None = None) -> Estimate:
        """How many arrivals were at most ``x``; those in the same step as ``x`` are within the bounds.

        Parameters
        ----------
        x
            The number.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).rank(x)

    def count_range(self, lo: float, hi: float, last: Duration | None = None, between: Between | None = None) -> Estimate:
        """How many arrivals were from ``lo`` to ``hi``; those in the same step as either are within the bounds.

        Parameters
        ----------
        lo
            The lower end, included.
        hi
            The upper end, included.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).count_range(lo, hi)

    def plot(self, last: Duration | None = None, between: Between | None = None, points: int = 50, ax: Any = None) -> Any:
        """Draw the quantiles with the bounds as error bars; needs matplotlib. Returns the axes.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        points
            How many quantiles, from 2 to 10,000; 50 by default.
        ax
            The axes of matplotlib to draw on; new ones by default.
        """
        check_integer("points", points, 2, 10_000)
        shares = np.linspace(0.5 / points, 1 - 0.5 / points, points)
        return self.quantile(shares, last, between).plot(ax)

    # -- inside --------------------------------------------------------------------------------------------------------

    def in_range(self, last: Duration | None = None, between: Between | None = None) -> QuantilesView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return QuantilesView(self._shape, self._tree_in_range(last, between))

    def _view_of(self, extract: Extract) -> QuantilesView:
        return QuantilesView(self._shape, self._tree_of(extract))

    @classmethod
    def _read_shape(cls, source: Reader) -> QuantilesShape:
        base = read_tree_shape(source)
        lo, hi, resolution = source.f64(), source.f64(), source.f64()
        source.check(all(abs(number) <= _LARGEST for number in (lo, hi, resolution)), "numbers out of range")
        source.check(lo < hi and 0 < resolution <= hi - lo, "numbers out of order")
        source.check((hi - lo) / resolution <= _MOST_BINS, "too many steps")
        source.check(_bins(lo, hi, resolution) == base.universe, "steps that do not fit")
        return _quantiles_shape(base, lo, hi, resolution, source.choice(0, 1) == 1)


def _quantiles_shape(base: TreeShape, lo: float, hi: float, resolution: float, clip: bool) -> QuantilesShape:
    guarantee = base.window, base.lateness, base.eps, base.delta, base.merge_height
    return QuantilesShape(*guarantee, base.universe, base.seed, lo, hi, resolution, clip, additive=base.additive)


def _finite(name: str, number: object) -> float:
    """Check one of ``lo``, ``hi`` and ``resolution``."""
    try:
        value = float(number) if isinstance(number, Real) and not isinstance(number, bool) else math.nan
    except OverflowError:
        value = math.inf
    if not abs(value) <= _LARGEST:
        raise ParameterError(f"{name}={number!r}", remedy=f"give a finite number, of at most {_LARGEST:g}")
    return value


def _bins(lo: float, hi: float, resolution: float) -> int:
    """How many steps there are; ``hi`` itself is in the last one."""
    return max(2, math.ceil((hi - lo) / resolution * (1 - 1e-12)))


def _example_keys(keys: Ints, options: Options) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = options["lo"] + keys / 100_000 * (options["hi"] - options["lo"])
    return numbers


KIND = SketchKind(
    "quantiles",
    Quantiles,
    key_encoding="number",
    questions={"quantiles": Suitability(0, 0, ROWS), "range": Suitability(1, 0, ROWS_IN_TIME), "total": Suitability(0, 4)},
    guarantee=("eps", "delta", "lo", "hi", "resolution"),
    merged_eps=merged_eps,
    example_keys=_example_keys,
)
