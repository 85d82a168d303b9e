"""The shape of a distribution, from its heavy part and a bound on everything else.

Given the frequencies of some keys within bounds, the number N of all arrivals, and that no other key was seen more than F
times, the rest (R = N less the heavy part) is pinned down: its second moment lies between R and R·F, its entropy between
R/N·log2(N/F) and R/N·log2(N). All that follows is interval arithmetic.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.durations import Duration
from lately.core.estimate import Estimate, Estimates


class HeavyPart(NamedTuple):
    """What is known of a distribution.

    Parameters
    ----------
    keys
        The counts of the keys that stand out.
    missed
        How often any other key occurred, at most.
    total
        The number of arrivals.
    """

    keys: Estimates
    missed: float
    total: Estimate


class MomentsView(ABC):
    """Questions about the whole distribution in one range, for views that know its heavy part."""

    @abstractmethod
    def heavy_part(self) -> HeavyPart:
        """The keys that stand out, and bounds for all others."""

    def largest(self) -> Estimate:
        """How often the most frequent key occurred."""
        return largest(*self.heavy_part())

    def self_join(self) -> Estimate:
        """The second moment: the sum of the squares of all frequencies."""
        return second_moment(*self.heavy_part())

    def entropy(self) -> Estimate:
        """The empirical entropy of the keys, in bits; see docs/guide.md for what is proved about it."""
        return entropy(*self.heavy_part())


class Moments(ABC):
    """The same questions to a sketch, with the range that they are about."""

    @abstractmethod
    def in_range(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> MomentsView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """

    def largest(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """How often the most frequent key occurred.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).largest()

    def self_join(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """The second moment: the sum of the squares of all frequencies.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).self_join()

    def entropy(self, last: Duration | None = None, between: tuple[Any, Any] | None = None) -> Estimate:
        """The empirical entropy of the keys, in bits; see docs/guide.md for what is proved about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).entropy()


def largest(heavy: Estimates, missed: float, total: Estimate) -> Estimate:
    """The largest frequency."""
    high = min(max(heavy.high.max(initial=0), missed), total.high)
    low = min(max(heavy.low.max(initial=0), 1 if total.low > 0 else 0), high)  # likely bounds may cross
    return Estimate(int(min(max(heavy.value.max(initial=0), low), high)), int(low), int(high), heavy.confidence)


def second_moment(heavy: Estimates, missed: float, total: Estimate) -> Estimate:
    """The sum of the squares of all frequencies."""
    rest_low, rest_high = _rest(heavy, total)
    most = max(1.0, min(missed, rest_high))
    rest = max(float(total.value) - float(heavy.value.sum()), 0.0)
    high = min(float((heavy.high.astype(float) ** 2).sum()) + rest_high * most, float(total.high) ** 2)
    low = min(float((heavy.low.astype(float) ** 2).sum()) + rest_low, high)  # likely bounds may cross
    # The rest is taken as spread evenly between its two extremes, on a scale of ratios.
    value = float((heavy.value.astype(float) ** 2).sum()) + rest * math.sqrt(most)
    return Estimate(min(max(value, low), high), low, high, heavy.confidence)


def entropy(heavy: Estimates, missed: float, total: Estimate) -> Estimate:
    """The empirical entropy in bits: how many are needed to encode the key of an arrival, on average."""
    if total.high <= 0:
        return Estimate(0.0, 0.0, 0.0, heavy.confidence)
    fewest, most = max(float(total.low), 1.0), float(total.high)
    n = max(float(total.value), 1.0)
    rest_low, rest_high = _rest(heavy, total)
    cap = max(1.0, min(missed, rest_high))
    low_share, high_share = np.minimum(heavy.low / most, 1.0), np.minimum(heavy.high / fewest, 1.0)
    ends = np.stack([_surprise(low_share), _surprise(high_share)])
    peak = (low_share <= 1 / math.e) & (high_share >= 1 / math.e)
    highest = np.where(peak, math.log2(math.e) / math.e, ends.max(axis=0))
    low = float(ends.min(axis=0).sum()) + rest_low / most * math.log2(max(fewest / cap, 1.0))
    high = float(highest.sum()) + min(rest_high / fewest, 1.0) * math.log2(most)
    rest = max(1.0 - float(heavy.value.sum()) / n, 0.0)
    value = float(_surprise(heavy.value / n).sum()) + rest * (math.log2(n) - math.log2(cap) / 2)
    high = min(high, math.log2(most))  # no more keys than arrivals
    low = min(low, high)
    return Estimate(min(max(value, low), high), low, high, heavy.confidence)


def _rest(heavy: Estimates, total: Estimate) -> tuple[float, float]:
    """The fewest and the most arrivals that other keys can have."""
    return max(float(total.low) - float(heavy.high.sum()), 0.0), max(float(total.high) - float(heavy.low.sum()), 0.0)


def _surprise(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """What keys of these shares add to the entropy."""
    return np.where(share > 0, -share * np.log2(np.maximum(share, 1e-300)), 0.0)
