"""Sizes of sketches whose rows are shared waves: the fewest bytes that keep eps and delta, and the eps that bytes buy.

A row of ``width`` cells adds at most odds/width of the other keys' arrivals to a count, except with probability 1/odds, and a
shared wave of C notes a level at most 1/C of all arrivals. With d rows and odds^d = 1/delta:

    eps   = odds/width + (1 + merging)/C
    bytes = d · (4·width + 4·levels·C)

The bytes are least where both shares of eps are as the roots of their costs. Few rows with many cells win over the textbook's
ln(1/delta) of e/eps cells, as every row takes notes of its own.
"""

import functools
import math
from typing import NamedTuple

from lately.core.arguments import check_integer
from lately.core.errors import ParameterError
from lately.core.plan import levels, shared_capacity, wave_capacity

#: The arrivals in the window for which sizes are chosen: with more of them, a level is added each time they double.
ARRIVALS = 1_000_000
#: A level of merging widens both ends of a bracket by up to one error of the wave, rounded up by a quarter of an octave.
_MERGING = 2 * 2**0.25
#: The smallest error of the counter of all arrivals: below, it would take more than the cells.
_FINEST_TOTAL = 0.0005
_CELL = _NOTE = 4


class SharedSize(NamedTuple):
    """The size of a sketch whose rows are shared waves.

    Parameters
    ----------
    width, depth
        The cells of a row, and the rows.
    odds
        With a probability of 1/odds, a cell holds more than odds/width of the other keys' arrivals.
    eps_sw
        The error of a shared wave, as a share of the arrivals of its row.
    """

    width: int
    depth: int
    odds: float
    eps_sw: float


@functools.lru_cache(4096)
def shared_size(eps: float, delta: float, merge_height: int = 0) -> SharedSize:
    """The size with the fewest bytes at a million arrivals in the window.

    Parameters
    ----------
    eps
        The error of a count, as a share of the arrivals in the range.
    delta
        The probability that a count is off by more.
    merge_height
        The levels of merging to come; 0 by default.

    >>> shared_size(0.01, 0.01)[:2], shared_size(0.01, 0.1)[:2]
    ((2078, 2), (2210, 1))
    """
    check_integer("merge_height", merge_height, 0, 255, remedy="give the number of levels of merging to come")
    merging = 1 + _MERGING * merge_height
    rings = 1 + max(0.0, math.log2(ARRIVALS * eps / 2))
    best = None
    for depth in range(1, max(1, math.floor(math.log(1 / delta))) + 1):
        odds = delta ** (-1 / depth)
        cells, notes = math.sqrt(_CELL * odds), math.sqrt(_NOTE * rings * merging)
        cost = depth * (cells + notes) ** 2
        if best is None or cost < best[0]:
            eps_sw = eps * notes / (cells + notes)
            best = cost, SharedSize(math.ceil(odds / (eps - eps_sw)), depth, odds, eps_sw / merging)
    assert best is not None
    return best[1]


def merged_error(eps: float, delta: float, height: int) -> float:
    """The error of a count, as a share of the arrivals in the range, after this many levels of merging.

    Parameters
    ----------
    eps
        The error that the sketches were built for, without a thought of merging.
    delta
        The probability that a count is off by more.
    height
        The levels of merging.

    >>> round(merged_error(0.01, 0.01, 1), 4)
    0.0227
    """
    return eps + _MERGING * height * shared_size(eps, delta).eps_sw


def total_error(eps: float) -> float:
    """The error of the counter of all arrivals beside shared waves.

    Parameters
    ----------
    eps
        The error of the sketch.
    """
    return max(eps, _FINEST_TOTAL)


def shared_bytes(eps: float, delta: float, arrivals: int = ARRIVALS, merge_height: int = 0) -> int:
    """The bytes of an ``EcmSketch`` of shared waves while at most ``arrivals`` arrivals lie in the window.

    Parameters
    ----------
    eps
        The error of a count, as a share of the arrivals in the range.
    delta
        The probability that a count is off by more.
    arrivals
        The largest number of arrivals in the window; 1,000,000 by default.
    merge_height
        The levels of merging to come; 0 by default.
    """
    size = shared_size(eps, delta, merge_height)
    capacity = shared_capacity(size.eps_sw)
    cell = 2 if size.width < 2**16 else 4
    row = _CELL * size.width + levels(arrivals, capacity) * (20 + (2 + cell) * capacity)
    total = wave_capacity(total_error(eps))
    return size.depth * row + 16 + 4 * total * levels(arrivals, total)


def eps_for(nbytes: int, delta: float, arrivals: int = ARRIVALS, merge_height: int = 0) -> float:
    """The smallest eps, to three digits, whose sketch takes at most ``nbytes``.

    Parameters
    ----------
    nbytes
        The most bytes, from 1,000.
    delta
        The probability that a count is off by more than eps.
    arrivals
        The largest number of arrivals in the window; 1,000,000 by default.
    merge_height
        The levels of merging to come; 0 by default.

    >>> eps_for(1_000_000, 0.01), shared_bytes(eps_for(1_000_000, 0.01), 0.01) <= 1_000_000
    (0.000302, True)
    """
    check_integer("nbytes", nbytes, 1_000, 2**40, remedy="give the most bytes that the sketch may take")
    digits = [round(k * 10.0**-power, power + 2) for power in range(9, 0, -1) for k in (x / 100 for x in range(100, 1000))]
    low, high = 0, len(digits) - 1
    if shared_bytes(digits[high], delta, arrivals, merge_height) > nbytes:
        raise ParameterError(f"nbytes={nbytes!r} is too small for any eps at delta={delta!r}", remedy="give more bytes")
    while low < high:  # bytes fall as eps grows
        middle = (low + high) // 2
        low, high = (low, middle) if shared_bytes(digits[middle], delta, arrivals, merge_height) <= nbytes else (middle + 1, high)
    return digits[high]
