"""From a wanted guarantee to the sizes that give it: the theorems of the papers, as functions.

ECM-15 Theorems 1 to 3 split eps between the Count-Min array and its counters; section 5.1 sizes counters that will be
merged. Nothing here builds anything. ``shared_sizes.py`` has the sizes of shared waves, ``sketch_plan.py`` what a sketch costs.
"""

import functools
import math
from typing import Literal, get_args

from lately.core.arguments import check_choice, check_integer, check_probability

Query = Literal["point", "inner"]
Counter = Literal["wave", "exphist", "randwave", "exact", "shared"]

#: The constant of the randomized wave: 36 is what its proof needs, 6 is what the paper measured with.
SAMPLES = 6

#: Signed cells on shared waves promise eps of the norms of streams whose norm is at least this share of their arrivals.
LEAST_NORM = 1 / 16
#: How often a row of shared waves may lack the level of notes that the number of arrivals calls for; see ``signed_waves``.
MISSING_LEVEL = 0.002


def split(eps: float, query: str) -> tuple[float, float]:
    """(eps_cm, eps_sw) that together give eps: ECM-15 Theorem 1 for point queries, Theorem 2 for inner products.

    Parameters
    ----------
    eps
        The error of the sketch, between 0 and 1.
    query
        What eps is promised for: "point" or "inner".
    """
    check_probability("eps", eps)
    check_choice("query", query, get_args(Query))
    if query == "point":
        return eps / (1 + eps), eps
    return eps / (1 + eps), math.sqrt(1 + eps) - 1


def deltas(delta: float, counter: str) -> tuple[float, float]:
    """(delta_cm, delta_sw): only randomized counters need a share of delta (Theorem 3).

    Parameters
    ----------
    delta
        The failure probability of the sketch, between 0 and 1.
    counter
        The family of the window counters.
    """
    check_probability("delta", delta)
    check_choice("counter", counter, get_args(Counter))
    return (delta / 2, delta / 2) if counter == "randwave" else (delta, 0.0)


def count_min_size(eps_cm: float, delta_cm: float) -> tuple[int, int]:
    """(width, depth) of a Count-Min array: ⌈e/eps⌉ and ⌈ln 1/delta⌉.

    Parameters
    ----------
    eps_cm
        Its error, as a share of all arrivals.
    delta_cm
        The probability that an answer is off by more.
    """
    return math.ceil(math.e / eps_cm), max(1, math.ceil(math.log(1 / delta_cm)))


def ams_split(eps: float) -> tuple[float, float]:
    """(eps_ams, eps_sw) of Fast-AMS over a window: half for the signs, and s with 2s + s² = eps/2 for each counter.

    Parameters
    ----------
    eps
        The error of the sketch, as a share of the product of both norms.
    """
    return eps / 2, math.sqrt(1 + eps / 2) - 1


def ams_size(eps: float, delta: float) -> tuple[int, int]:
    """(width, depth) of an AMS or Fast-AMS array: the fewest cells whose median is off by eps with probability delta.

    A row's variance is at most 2/width of |a|²|b|², so it is off by more than eps·|a||b| with probability 2/(width·eps²)
    at most (Chebyshev), and the median of an odd number of rows only if more than half of them are.

    Parameters
    ----------
    eps
        The error, as a share of the product of both norms.
    delta
        The probability that an answer is off by more.

    >>> ams_size(0.1, 0.01), ams_size(0.1, 0.3)
    ((1894, 5), (667, 1))
    """
    sizes = ((math.ceil(2 / (row_odds(depth, delta) * eps * eps)), depth) for depth in range(1, 64, 2))
    return min(sizes, key=math.prod)


def ams_error(width: int, depth: int, delta: float) -> float:
    """The eps that an AMS or Fast-AMS array of this size keeps with probability 1 - delta; above 1 it promises nothing.

    Parameters
    ----------
    width, depth
        The cells of a row, and the rows, an odd number.
    delta
        The probability that an answer is off by more.

    >>> round(ams_error(1894, 5, 0.01), 4)
    0.1
    """
    return math.sqrt(2 / (width * row_odds(depth, delta)))


@functools.lru_cache(4096)
def signed_waves(eps: float, delta: float) -> tuple[int, int, float]:
    """(width, depth, eps_sw) of signed cells on shared waves: the fewest bytes for a promised error.

    A cell's noise has a variance of at most u·n² with u = eps_sw²·``LEAST_NORM``^-2/12, where n is the norm of the stream, or
    ``LEAST_NORM`` of its arrivals if that is more. A row's variance is at most (2/width + 8u + 5.6·width·u²)·n⁴ then (the
    proof is in ``sketches.dithered``), and may be p·eps²·n⁴ for an odds p of each row that makes the median's odds delta
    (Chebyshev, ``row_odds``). ``MISSING_LEVEL`` of p is for rows in which the level of notes with at most 1/eps_sw of them
    expected has overflowed all the same: the notes of a level are a sum of independent parts, whose variance is at most what
    is expected, and there is room for four deviations more (Bernstein). The arrivals themselves are known to within eps/10.

    The bytes are those of the cells and of ten levels of notes, where a million arrivals end up. Stored sketches are read with
    the sizes that this gives, so it cannot change.

    Parameters
    ----------
    eps
        The error, as a share of the product of both norms.
    delta
        The probability that an answer is off by more.

    >>> signed_waves(0.1, 0.05)[:2], round(1 / signed_waves(0.1, 0.05)[2])
    ((5990, 1), 1141)
    """
    best = (math.inf, 0, 0, 0.0)
    for depth in range(1, 64, 2):
        room = (row_odds(depth, delta) - MISSING_LEVEL) * eps * eps
        if room <= 0:
            continue
        for step in range(1, 65):
            width = math.ceil(2 / room * (1 + step / 16))
            left = room - 2 / width
            u = 2 * left / (8 + math.sqrt(64 + 22.4 * width * left))  # the root of 5.6·width·u² + 8u = left
            eps_sw = min(math.sqrt(12 * u) * LEAST_NORM / (1 + eps / 5), 0.5)
            size = depth * (16 * width + 80 * shared_capacity(eps_sw))
            best = min(best, (size, width, depth, eps_sw))
    return best[1:]


@functools.lru_cache(4096)
def row_odds(depth: int, delta: float) -> float:
    """How likely each of ``depth`` independent rows may be wrong so that their median is with probability delta.

    The largest p, up to 1/2, for which a binomial of depth and p reaches (depth + 1)/2 with probability at most delta.

    Parameters
    ----------
    depth
        The number of rows, which is odd.
    delta
        The probability that their median is wrong.

    >>> row_odds(1, 0.25), round(row_odds(3, 0.104), 4)         # 3·p²(1 - p) + p³ = 0.104
    (0.25, 0.2)
    """
    low, high = 0.0, 0.5
    for _ in range(60):
        p = (low + high) / 2
        wrong = sum(math.comb(depth, k) * p**k * (1 - p) ** (depth - k) for k in range(depth // 2 + 1, depth + 1))
        low, high = (p, high) if wrong <= delta else (low, p)
    return low


def fewest_rows(delta: float) -> tuple[float, int]:
    """(odds, depth) with odds^-depth = delta: as few rows as a width of odds/eps allows without taking more cells.

    The textbook's e^-depth rounds the depth up; a little wider and one row less is faster, and no larger.

    Parameters
    ----------
    delta
        The probability that an answer is off by more than eps, between 0 and 1.
    """
    depth = max(1, math.floor(math.log(1 / delta)))
    return delta ** (-1 / depth), depth


def merged_error(eps_sw: float, height: int) -> float:
    """The relative error of a counter after ``height`` levels of merging: (1 + eps)^(h + 1) - 1.

    A level of merging moves at most a share of eps of what the level before left, and the counter itself is off by eps of that.
    ECM-15 §5.1 adds the levels up to h·eps(1 + eps) + eps, which drops the terms of higher order from the second level on.

    Parameters
    ----------
    eps_sw
        The relative error that the counters are built with.
    height
        The levels of merging; 0 for none.

    >>> round(merged_error(0.1, 1), 4), round(merged_error(0.1, 2), 4)
    (0.21, 0.331)
    """
    return eps_sw if height == 0 else math.expm1((height + 1) * math.log1p(eps_sw))


def premerge_error(eps_sw: float, height: int, additive: bool = False) -> float:
    """The error to build counters with so that ``height`` levels of merging end at eps_sw: ``merged_error`` inverted.

    Parameters
    ----------
    eps_sw
        The relative error that is wanted after merging.
    height
        The levels of merging to come, from 0 to 255.
    additive
        Whether to invert the sum of ECM-15 §5.1 instead, which gives the sizes in bytes without extended fields; False by
        default. Up to one level both are the same.
    """
    check_integer("merge_height", height, 0, 255, remedy="give the number of levels of merging to come")
    if height == 0:
        return eps_sw
    if height == 1 or additive:
        # (√(1 + 2h + h² + 4h·eps) - 1 - h) / 2h, written so that small numbers do not cancel
        return 2 * eps_sw / (math.sqrt((1 + height) ** 2 + 4 * height * eps_sw) + 1 + height)
    return math.expm1(math.log1p(eps_sw) / (height + 1))


def total_error(eps_sw: float) -> float:
    """The stream's total has one cell of its own, twice as fine: it costs little and tightens every answer.

    Parameters
    ----------
    eps_sw
        The relative error of the other counters.
    """
    return eps_sw / 2


def wave_capacity(eps: float) -> int:
    """Entries per level of a wave: (1/eps + 1)/2 of them, rounded up to a power of two so that an index is a mask.

    At least two: with one, merging could move all of a range's arrivals out of it.

    Parameters
    ----------
    eps
        The relative error of one counter, between 0 and 1.
    """
    return max(2, 1 << (math.ceil((1 / eps + 1) / 2) - 1).bit_length())


def shared_capacity(eps: float) -> int:
    """Notes per level of a row of shared waves: 1/eps, and four times its root more for the unevenness of random phases.

    Parameters
    ----------
    eps
        The error of a cell, as a share of its row's arrivals.
    """
    return math.ceil(1 / eps + 4 * math.sqrt(1 / eps))


def exphist_capacity(eps: float) -> int:
    """k of an exponential histogram: at least k buckets of each size, 2k - 1 of size one, keep invariant 1.

    Parameters
    ----------
    eps
        The relative error of one counter, between 0 and 1.
    """
    return math.ceil(1 / (2 * eps))


def randwave_capacity(eps: float, delta: float, samples: int) -> tuple[int, int]:
    """(samples per level, repetitions) of a randomized wave: c/eps² and c·ln(1/delta), the latter odd for the median.

    Parameters
    ----------
    eps
        The relative error of one counter, between 0 and 1.
    delta
        The probability that a count is off by more.
    samples
        The constant c, from 1 to 255.
    """
    check_samples(samples)
    return math.ceil(samples / eps**2), math.ceil(samples * math.log(1 / delta)) | 1


def levels(arrivals: int, capacity: int) -> int:
    """How many levels hold a window of ``arrivals`` arrivals when each holds ``capacity`` times twice the one below.

    Parameters
    ----------
    arrivals
        The arrivals in the window.
    capacity
        The entries of a level.
    """
    return 1 + max(0, math.ceil(math.log2(arrivals / capacity)))


def counter_bytes(counter: str, eps: float, delta: float, arrivals: int, samples: int) -> int:
    """The most bytes that one cell takes while ``arrivals`` arrivals lie in its window.

    Parameters
    ----------
    counter
        The family of the counter.
    eps
        The relative error of one counter, between 0 and 1.
    delta
        The probability that a count is off by more; only randomized waves use it.
    arrivals
        The most arrivals in the window.
    samples
        The constant of randomized waves, from 1 to 255; only they use it.
    """
    if counter == "wave":
        capacity = wave_capacity(eps)
        return 16 + 4 * capacity * levels(arrivals, capacity)
    if counter == "exphist":
        k = exphist_capacity(eps)
        return 16 + 2 * 4 * k + (2 + 4 * (k + 1)) * (1 + levels(arrivals, k + 1))
    if counter == "randwave":
        capacity, repetitions = randwave_capacity(eps, delta, samples)
        # Two levels more than on average: the largest of many random samples decides how many there are.
        return 8 + repetitions * (capacity + (4 + 4 * capacity) * (2 + levels(arrivals, capacity)))
    return 4 * 16 * arrivals  # exact: sixteen bytes an arrival, and room to append and to expire in bulk


def check_samples(samples: object) -> int:
    """The constant of the randomized wave is a small whole number.

    Parameters
    ----------
    samples
        The constant that a user gave; ``ParameterError`` if it is not an integer from 1 to 255.
    """
    return check_integer("samples", samples, 1, 255, remedy="the proof of the randomized wave needs 36; 6 is the default")
