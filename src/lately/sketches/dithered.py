"""Rows of signed cells on shared waves: estimates that are right on average, and bounds from the known noise of the cells.

A shared wave numbers the arrivals of each cell from a random phase and notes every number that is a multiple of D = 2^level.
For a range that began when a cell was at number b, the notes tell how often the cell passed a multiple of D since, and so

    A = (newest number) - (b, rounded down to a multiple of D) = t + U,      U = b mod D

where t is the cell's true count. U is uniform on 0 .. D-1 whatever t is, because b begins at the random phase: subtractive
dithering. So the noise e = U - (D-1)/2 has mean 0 and the variance v = (D² - 1)/12, which are known, and is independent from
cell to cell. A signed cell is the difference of the A of its two counters, in which the means cancel: s + e⁺ - e⁻.

The level is chosen from the number n of arrivals in the range alone: the first with at most 1/eps_sw notes expected, so that
D ≤ eps_sw·n. If a row does not have it (``plan.MISSING_LEVEL``), its finest is taken. So the choice does not depend on the
phases. If no arrival came before the range, every count is exact.

**One row.** Let F be the second moment of the stream, s the row of exact signed cells, and V the variance of each counter's
noise. Over the hash functions |s|² is F on average with a variance of at most 2/width·F², as in Fast-AMS. Σŝ² - 2·width·V is
right on average, and off by three uncorrelated parts:

    the signs                   variance ≤ 2/width·F²
    2·Σ s·(e⁺ - e⁻)             variance = 8V·F on average over the hash functions
    Σ ((e⁺ - e⁻)² - 2V)         variance ≤ width·(2E e⁴ + 2V²) ≤ 5.6·width·V²   (E e⁴ ≤ 1.8V² where e is uniform)

The product of two rows of independent noise is off by variances of 2/width·F_a·F_b, 2V_a·F_b + 2V_b·F_a, and 4·width·V_a·V_b.

**The answer** is the median of the rows. By Chebyshev's inequality a row is off by more than the root of variance/p with a
probability of at most p; p is such that more than half of the rows are with a probability of at most delta
(``plan.row_odds``). With V ≤ (eps_sw·n)²/12 and the sizes of ``plan.signed_waves`` this proves: with probability 1 - delta the
answer is off by at most eps times the product of both norms, where a norm counts at least as ``plan.LEAST_NORM`` of the
arrivals. (That holds for an inner product too, whose variance is no larger.)

**Its bounds** are all F that the row could belong to: (F̂ - F)² ≤ variance(F)/p, a quadratic inequality, with the V of the
levels that were in fact used. Their medians bound F with probability 1 - delta, as the median of rows is between medians of
bounds unless more than half of the rows fail.

**What is not known as well.** Where the noise is not dithering alone its variance is only known to lie between two numbers,
and the bounds are wider by that:

- *A range in the past* is a difference of two suffixes. Both boundaries are numbers of one cell, so their noises U and U'
  depend on each other. With D' ≤ D (the newer range has fewer arrivals), Var(U - U') = v - v' + c·(D' - c), where c is what
  the count between is modulo D'; so it lies from v - v' to v - v' + D'²/4, and its sum over the cells exceeds that of v - v'
  by at most D' times the arrivals between. The error grows with all arrivals since the range began.
- *Merging* replays notes, which moves a count by at most the ``slack`` of the row, independently of the phases of the result,
  and by 0 on average: a variance of up to slack².
- *Two sketches* have independent phases unless their first arrivals were equal, in key and time (``WindowedAmsSketch`` draws
  them from it, a pipeline from the name of the site). Otherwise the product is off by up to 2·width·σ_a·σ_b more. For a *sum
  over sites* variances add up; if up to m sites may depend on each other, the variance is up to m times that.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core import plan
from lately.counters.base import Counts

Floats = NDArray[np.float64]


class RowBounds(NamedTuple):
    """Bounds and values of one number for each row."""

    low: Floats
    value: Floats
    high: Floats

    def medians(self) -> tuple[float, float, float]:
        """The median of each."""
        low, value, high = (float(np.median(part)) for part in self)
        return low, value, high


def level_for(arrivals: int, eps: float) -> int:
    """The level of notes for a range: the first of which at most 1/eps are expected among this many arrivals.

    Parameters
    ----------
    arrivals
        The arrivals in the range.
    eps
        The error of a cell, as a share of them.

    >>> level_for(1000, 0.001), level_for(3000, 0.001), level_for(5000, 0.001)
    (0, 1, 2)
    """
    return max(0, math.ceil(math.log2(max(arrivals * eps, 1.0))) - 1)


@dataclass(frozen=True, eq=False, slots=True)
class Noise:
    """What is known of the noise of the cells, for each row.

    Parameters
    ----------
    variance
        At most the variance of one counter's noise.
    norm
        At most the fourth root of its fourth moment.
    least, likely, most
        The sum of the variances of all counters of a row: its bounds, and a guess where they differ.
    slack
        The part of the standard deviation that is due to merging.
    draws
        What the phases were drawn from, of each sketch whose noise is not 0. Equal ones have dependent noise.
    """

    variance: Floats
    norm: Floats
    least: Floats
    likely: Floats
    most: Floats
    slack: Floats
    draws: tuple[int, ...]

    @classmethod
    def none(cls, depth: int) -> "Noise":
        """The noise of exact counts."""
        zero = np.zeros(depth)
        return cls(zero, zero, zero, zero, zero, zero, ())

    @classmethod
    def of(cls, levels: NDArray[np.int64], slack: Counts, width: int, draw: int) -> "Noise":
        """The noise of a suffix.

        Parameters
        ----------
        levels
            The level of notes in each row.
        slack
            By how much merges may have moved a count, in each row.
        width
            The pairs of counters in a row.
        draw
            What the phases were drawn from.
        """
        dither, moved = (4.0**levels - 1) / 12, slack.astype(np.float64)
        return cls._with_slack(dither, 1.8**0.25 * np.sqrt(dither), dither, dither, dither, moved, width, draw)

    @classmethod
    def _with_slack(
        cls, variance: Floats, norm: Floats, least: Floats, likely: Floats, most: Floats, moved: Floats, width: int, draw: int
    ) -> "Noise":
        """With the sums of variances given per counter, and what merges moved added to all of them."""
        square, counters = moved**2, 2 * width
        return cls(
            variance + square,
            norm + moved,
            counters * least,
            counters * (likely + square / 12),  # as for a uniform error; all that is known is that it is smaller than slack
            counters * (most + square),
            moved,
            (draw,) if (variance + square).any() else (),
        )

    def less(self, newer: "Noise", levels: NDArray[np.int64], arrivals: float, width: int) -> "Noise":
        """The noise of this suffix less a newer one of the same sketch.

        Parameters
        ----------
        newer
            The noise of the newer suffix.
        levels
            Its levels.
        arrivals
            At most the arrivals between the beginnings of both.
        width
            The pairs of counters in a row.
        """
        if not newer.draws:
            return self
        moved = self.slack + newer.slack
        first, second = self.variance - self.slack**2, newer.variance - newer.slack**2
        norms = self.norm - self.slack + newer.norm - newer.slack
        known = np.where(first > 0, first - second, second)  # nothing is subtracted from exact counts
        free = np.where(first > 0, np.minimum(4.0**levels / 4, arrivals * 2.0**levels / (2 * width)), 0.0)
        free = np.where(levels > 0, free, 0.0)
        likely = known + np.minimum(free, np.where(first > 0, 2 * second, 0.0))
        variance = known + np.where((first > 0) & (levels > 0), 4.0**levels / 4, 0.0)
        return self._with_slack(variance, norms, known, likely, known + free, moved, width, newer.draws[0])

    # -- sums over sites -------------------------------------------------------------------------------------------------

    def parts(self) -> Floats:
        """Integers of a suffix that add up over sites without rounding, from which ``of_parts`` makes the noise of the sum."""
        square = self.slack**2
        return np.concatenate([np.rint(12 * (self.variance - square)), self.slack, square])

    @classmethod
    def of_parts(cls, parts: Floats, width: int, draws: tuple[int, ...]) -> "Noise":
        """The noise of a sum over sites.

        Parameters
        ----------
        parts
            The sum of the ``parts`` of all sites.
        width
            The pairs of counters in a row.
        draws
            The draws of all sites.
        """
        dither, slack, square = parts.reshape(3, -1)
        dither, counters = dither / 12, 2 * width
        if len(draws) <= 1:
            return cls._with_slack(dither, 1.8**0.25 * np.sqrt(dither), dither, dither, dither, slack, width, (*draws, 0)[0])
        # The fourth moment of a sum of independent uniform numbers is at most that of a normal one. If up to ``alike`` parts
        # depend on each other, (Σ x)² ≤ alike·Σ x² among these (Cauchy and Schwarz), and so for the roots of all moments.
        alike = max(Counter(draws).values())
        most = alike * dither
        return cls(
            most + slack**2,
            3**0.25 * np.sqrt(most) + slack,
            counters * (dither if alike == 1 else np.zeros(dither.size)),
            counters * (dither + square / 12),
            counters * (most + slack**2),
            slack,
            draws,
        )


@dataclass(frozen=True, eq=False, slots=True)
class DitheredRows:
    """Signed cells of a range with their noise.

    Parameters
    ----------
    table
        ``depth`` rows of ``width`` signed cells.
    noise
        What is known of their noise.
    delta
        The probability that a bound is wrong.
    """

    table: Floats
    noise: Noise
    delta: float

    @property
    def _width(self) -> int:
        return int(self.table.shape[1])

    @property
    def _odds(self) -> float:
        """How likely the bounds of one row may be wrong."""
        return plan.row_odds(self.table.shape[0], self.delta) - plan.MISSING_LEVEL

    def squares(self) -> RowBounds:
        """The second moment, from each row."""
        noise, odds = self.noise, self._odds
        value = (self.table**2).sum(axis=1) - noise.likely
        # The linear part and the square of noise are uncorrelated where the noise is symmetric, as dithering is.
        apart = np.where(noise.least == noise.most, 1.0, 2.0)
        signs = 2 / (self._width * odds)
        linear = apart * 8 * noise.variance / odds
        constant = apart * self._width * (2 * noise.norm**4 + 2 * noise.variance**2) / odds
        _, high = _roots(value + noise.likely - noise.least, signs, linear, constant)
        low, _ = _roots(value - (noise.most - noise.likely), signs, linear, constant)
        return RowBounds(low, value, high)

    def products(self, other: "DitheredRows", moments: tuple[float, float]) -> RowBounds:
        """The inner product with another stream, from each row.

        Parameters
        ----------
        other
            The cells of the other stream.
        moments
            At most the second moments of both streams.
        """
        mine, its = self.noise, other.noise
        (a, b), width = moments, self._width
        signs = 2 / width * a * b
        value = (self.table * other.table).sum(axis=1)
        shared, slack = bool(set(mine.draws) & set(its.draws)), (mine.slack * its.slack).astype(np.float64)
        if shared or slack.any():
            both = np.sqrt(mine.variance * its.variance)
            bias = 2 * width * (both if shared else slack)
            if shared and np.array_equal(self.table, other.table):  # one stream twice
                value = value - mine.likely
            noise = np.sqrt(2 * mine.variance * b) + np.sqrt(2 * its.variance * a)
            # E (xy)² ≤ the root of E x⁴·E y⁴; of a pair, E (x - x')⁴ ≤ 2E x⁴ + 6V².
            fourths = [2 * part.norm**4 + 6 * part.variance**2 for part in (mine, its)]
            off = np.sqrt((signs + (noise + np.sqrt(width) * (fourths[0] * fourths[1]) ** 0.25) ** 2) / self._odds)
            return RowBounds(value - off - bias, value, value + off + bias)
        variance = signs + 2 * mine.variance * b + 2 * its.variance * a + 4 * width * mine.variance * its.variance
        off = np.sqrt(variance / self._odds)
        return RowBounds(value - off, value, value + off)


def of_vector(table: Floats, delta: float) -> DitheredRows:
    """The cells of a vector that is known exactly.

    Parameters
    ----------
    table
        ``depth`` rows of ``width`` signed cells.
    delta
        The probability that a bound is wrong.
    """
    return DitheredRows(table, Noise.none(table.shape[0]), delta)


def _roots(value: Floats, square: float, linear: Floats, constant: Floats) -> tuple[Floats, Floats]:
    """The least and the largest F of 0 or more with (value - F)² ≤ square·F² + linear·F + constant."""
    value = np.maximum(value, 0.0)  # larger values have larger roots
    half = value + linear / 2
    root = np.sqrt(np.maximum(half**2 - (1 - square) * (value**2 - constant), 0.0))
    return np.maximum((half - root) / (1 - square), 0.0), (half + root) / (1 - square)
