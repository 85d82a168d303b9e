"""``WindowCounter``: the number of arrivals in a sliding window, for users who count one thing and need no keys."""

from typing import Any, Self

import numpy as np

from lately.core import plots
from lately.core.arguments import check_integer, check_probability
from lately.core.codec import Reader, storable
from lately.core.durations import Duration, arrivals
from lately.core.estimate import Estimate, Estimates
from lately.core.keys import HashedKeys, Keys
from lately.core.plan import SAMPLES, Counter, check_samples
from lately.counters.base import CounterArray, Counts, Stamps
from lately.counters.families import counter_array, starting_bytes
from lately.ingest.shape import Shape, read_shape, window_and_lateness
from lately.ingest.windowed import Windowed


@storable(1)
class WindowCounter(Windowed[Shape]):
    """Count arrivals over a sliding window to within ``eps``, in a few hundred bytes.

    The bounds of an answer are certain, except with ``counter="randwave"``, where they hold with probability 1 - ``delta``.
    Updates cost O(1), queries O(log n). Papers: ECM-15 sections 3 and 4.2.

    Parameters
    ----------
    window
        Length of the window: a duration such as "1h", an integer for integer times, or ``arrivals(n)``.
    eps
        The largest relative error of a count, between 0 and 1.
    tick
        Time resolution; one second by default, or 1 for integer times.
    counter
        The counter family: "wave" (default), "exphist", "randwave" or "exact".
    delta
        The probability that a bound fails, for "randwave" only; 0.05 by default.
    merge_height
        Levels of merging to come, for which the counter is sized so that ``eps`` still holds; 0 by default.
    lateness
        How late an arrival may come and still be counted. Newer arrivals are held back for as long; none by default.
    samples
        The constant of randomized waves, 1 to 255; 6 by default, as in the paper's experiments.
    salt
        The seed of randomized waves, 64 bits; random by default. Counters that are merged need different salts.

    >>> counter = WindowCounter(window="1h", eps=0.05)
    >>> counter.add(range(0, 7200, 2))            # one arrival every two seconds, for two hours
    >>> answer = counter.count(last="30m")        # truly 900, every other second
    >>> answer
    Estimate(896, 881..912, 100%)
    >>> 900 in answer, 900 in counter.count(between=("1h", "30m"))
    (True, True)
    """

    _parts: tuple[CounterArray]

    def __init__(
        self,
        *,
        window: Duration | arrivals,
        eps: float,
        tick: Duration | None = None,
        counter: Counter = "wave",
        delta: float = 0.05,
        merge_height: int = 0,
        lateness: Duration | None = None,
        samples: int = SAMPLES,
        salt: int | None = None,
    ) -> None:
        check_probability("eps", eps)
        check_probability("delta", delta)
        check_samples(samples)
        shape = Shape(*window_and_lateness(window, tick, lateness), eps, delta, merge_height, counter, samples)
        self._begin(shape, [_array(shape, salt)])

    @property
    def eps(self) -> float:
        """The relative error that it was built for."""
        return self._shape.eps

    @property
    def error(self) -> float:
        """The relative error that it has now, merges included; 0 if it is exact."""
        return 0.0 if self._shape.counter == "exact" else self._parts[0].error

    @classmethod
    def _new_parts(cls, shape: Shape) -> list[CounterArray]:
        return [_array(shape, None)]

    @property
    def _total_counter(self) -> CounterArray:
        return self._parts[0]

    def __repr__(self) -> str:
        family = self._shape.counter
        return (
            f"WindowCounter({self._window!r}, eps={self.eps}, counter={family!r}, merges={self.merges}, nbytes={self.nbytes:_})"
        )

    def add(self, times: Any = None, counts: Any = None) -> None:
        """Count an arrival at each of these times, or ``counts`` arrivals; a scalar is a column of one.

        In a window of arrivals, leave the times out: each count is the weight of one arrival.

        Parameters
        ----------
        times
            A column of instants, or one. In any order, if no older than ``lateness`` allows.
        counts
            Arrivals at each time, 0 or more; one each by default.
        """
        if self._add_waiting(None, times, counts):
            return
        if self._window.kind == "arrivals":
            size = 1 if counts is None else np.size(counts)
        else:
            column = hasattr(times, "__len__") and not isinstance(times, str)
            size = len(times) if column and getattr(times, "ndim", None) != 0 else 1
        self._ingest(HashedKeys(np.zeros(size, np.uint64)), times, counts)

    def _column_of(self, keys: list[Any]) -> Keys:
        return HashedKeys(np.zeros(len(keys), np.uint64))

    def count(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """The number of arrivals in the most recent period, or in a range in the past; in the whole window by default.

        Parameters
        ----------
        last
            Length of the period that ends now, such as "10m".
        between
            Two ages, the older first, such as ("2h", "1h"), or two dates; in place of ``last``.
        """
        (array,) = self._parts
        low, value, high = self._bounds(array, np.zeros(1, np.uint32), self._buffered_since, self._range(last, between))
        return Estimate(int(value[0]), int(low[0]), int(high[0]), 1.0 if array.certain else 1 - self._shape.delta)

    def plot(self, last: Duration | None = None, points: int = 30, ax: Any = None) -> Any:
        """Draw the number of arrivals in the most recent period, for ``points`` lengths of the period; needs matplotlib.

        The curve has the bounds as error bars. Returns the axes.

        Parameters
        ----------
        last
            The longest period; the whole window by default.
        points
            The number of periods, of evenly spaced lengths up to ``last``; 30 by default.
        ax
            The axes of matplotlib to draw on; those of a new figure by default.

        >>> from matplotlib.figure import Figure
        >>> counter = WindowCounter(window=100, eps=0.1)
        >>> counter.add([70, 80, 90])
        >>> counter.plot(last=20, points=2, ax=Figure().subplots()).lines[0].get_xydata().tolist()
        [[10.0, 1.0], [20.0, 2.0]]
        """
        check_integer("points", points, 1)
        (array,), window, (longest, _) = self._parts, self._window, self._range(last, None)
        ages = np.unique(-(-longest * np.arange(1, points + 1) // points))  # rounded up, so that none is 0
        cell = np.zeros(1, np.uint32)
        low, value, high = np.hstack([self._bounds(array, cell, self._buffered_since, (age, None)) for age in ages.tolist()])
        confidence = 1.0 if array.certain else 1 - self._shape.delta
        time = plots.time_unit(longest * window.unit)
        scale, unit = {"time": time, "integer": (1, "units of time"), "arrivals": (1, "arrivals")}[window.kind]
        ax = plots.curve(ages * (window.unit / scale), Estimates(value, low, high, confidence), ax)
        ax.set(xlabel=f"most recent {unit}", ylabel="arrivals")
        return ax

    def _buffered_since(self, tick: int) -> int:
        return int(self._reorder_buffer.counts[self._reorder_buffer.ticks >= tick].sum())

    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        self._parts[0].extend(stamps, counts)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        shape = read_shape(source)
        source.fits(starting_bytes(shape.counter, 1, shape.eps_sw, shape.delta, shape.samples))
        counter = object.__new__(cls)._begin(shape, [_array(shape, 0)])
        counter._read_state(source)
        return counter


def _array(shape: Shape, salt: int | None) -> CounterArray:
    return counter_array(shape.counter, 1, shape.window.span, shape.eps_sw, delta=shape.delta, samples=shape.samples, salt=salt)
