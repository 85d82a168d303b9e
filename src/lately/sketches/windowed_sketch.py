"""What the sketches over a window share: a guarantee, and a counter of their own for all arrivals."""

from typing import Any, TypeVar

import numpy as np

from lately.core.durations import Duration
from lately.core.estimate import Estimate
from lately.counters.base import Bounds, CounterArray
from lately.ingest.shape import WindowShape
from lately.ingest.windowed import Windowed

S = TypeVar("S", bound=WindowShape)


class WindowedSketch(Windowed[S]):
    """Base of the sketches; the second of its parts counts all arrivals."""

    @property
    def eps(self) -> float:
        """The error that the sketch was built for."""
        return self._shape.eps

    @property
    def delta(self) -> float:
        """The probability that the sketch was built for that an answer is off by more."""
        return self._shape.delta

    @property
    def _total_counter(self) -> CounterArray:
        total = self._parts[1]
        assert isinstance(total, CounterArray)
        return total

    def total(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """The number of arrivals in the most recent period, or in a range of the past; its bounds are certain.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        low, value, high = self._total_in_range(self._range(last, between))
        return Estimate(int(value[0]), int(low[0]), int(high[0]), 1.0)

    def _total_in_range(self, ages: tuple[int, int | None], now: int | None = None) -> Bounds:
        buffer, total = self._reorder_buffer, self._total_counter
        return self._bounds(total, np.zeros(1, np.uint32), lambda t: buffer.counts[buffer.ticks >= t].sum(), ages, now)
