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
from collections.abc import Callable
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
#: The longest gap between two notes that two bytes hold.
_MAX_SHORT_GAP = 2**16 - 1
#: All numbers of three digits from 1e-9 up to 1.
_DIGITS = [float(f"{digits}e-{power}") for power in range(11, 2, -1) for digits in range(100, 1000)]


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
    ((2153, 2), (2153, 1))
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


def fillers(span: int, notes: int) -> int:
    """The most fillers that two-byte gaps need in a window; -1 where they would take more room than gaps of four bytes.

    Parameters
    ----------
    span
        The length of the window, in ticks.
    notes
        How many notes a level must keep.
    """
    most = span // _MAX_SHORT_GAP
    return most if 16 * most <= notes else -1


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


def shared_bytes(eps: float, delta: float, arrivals: int = ARRIVALS, merge_height: int = 0, span: int = 0) -> int:
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
    span
        The length of the window in ticks: gaps between notes take four bytes where it is long; by default two.
    """
    size = shared_size(eps, delta, merge_height)
    notes = shared_capacity(size.eps_sw)
    most = fillers(span, notes)
    note = (2 if most >= 0 else 4) + (2 if size.width < 2**16 else 4)
    row = _CELL * size.width + levels(arrivals, notes) * (20 + note * (notes + max(most, 0)))
    total = wave_capacity(total_error(eps))
    return size.depth * row + 16 + 4 * total * levels(arrivals, total)


def eps_for(nbytes: int, bytes_of: Callable[[float], int]) -> float:
    """The smallest eps, to three digits, of which a sketch takes at most ``nbytes``.

    Parameters
    ----------
    nbytes
        The most bytes, from 1,000.
    bytes_of
        The bytes of a sketch with some eps, which fall as eps grows.

    >>> eps = eps_for(1_000_000, lambda eps: shared_bytes(eps, 0.01))
    >>> eps, shared_bytes(eps, 0.01) <= 1_000_000
    (0.000327, True)
    """
    check_integer("nbytes", nbytes, 1_000, 2**40, remedy="give the most bytes that the sketch may take")
    low, high = 0, len(_DIGITS) - 1
    if bytes_of(_DIGITS[high]) > nbytes:
        raise ParameterError(f"nbytes={nbytes!r} is too small for any eps", remedy="give more bytes, or a larger delta")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bytes_of(_DIGITS[middle]) <= nbytes else (middle + 1, high)
    return _DIGITS[high]
