"""B-INT-QNT: every base interval as a sorted run; any quantile of any window from a few of them (SHARE, section 3.3).

The shortest runs have 16 values; up to 15 values at either end of a window are in no run and are sorted by the lookup. Level l
is the ring ``runs[l - 4]``, with the run of base interval i at slot ``i << l``. An update costs log₂ N merging steps; a
lookup narrows all runs at once around a few pivots. Missing values sort last.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.exact.column import Column, Index, Numbers

_FINEST = 4
_FEW = 48  # so few values are sorted instead of narrowed further

Runs = NDArray[Any]  # floats, or pairs of them


class SortedRuns(Index):
    """The sorted values of every complete base interval: log₂ N values for each position."""

    def __init__(self) -> None:
        self._runs: Runs = np.zeros((0, 1))

    @property
    def nbytes(self) -> int:
        return self._runs.nbytes

    def rebuild(self, column: Column) -> None:
        size = column.values.size
        self._runs = np.zeros((max(size.bit_length() - 1 - _FINEST, 1), size), column.values.dtype)
        self.extend(column, column.first)

    def extend(self, column: Column, start: int) -> None:
        _sort(column.values, self._runs, start, column.end)

    def lookup(self, column: Column, lefts: Ints, rights: Ints, ranks: Ints) -> Numbers:
        """The value of rank ``ranks[i]``, from 0 on, in each window; NaN where the rank is negative."""
        answers = np.full(lefts.size, np.nan, column.values.dtype)
        _select(column.values, self._runs, lefts, rights, ranks, answers)
        return answers


@helper
def _before(a: Any, b: Any) -> Any:
    """Whether a sorts before b or equals it; NaN sorts last."""
    return (a.real <= b.real and (a.imag <= b.imag or a.real < b.real)) or b != b


@kernel
def _sort(values: Numbers, runs: Runs, start: int, end: int) -> None:
    """Sort the base intervals that end in ``start..end``: the shortest by insertion, the others by merging two."""
    mask = values.size - 1
    width = 1 << _FINEST
    for i in range(start >> _FINEST, end >> _FINEST):
        at = (i << _FINEST) & mask
        run = runs[0, at : at + width]
        for j in range(width):
            value = values[at + j]
            k = j
            while k > 0 and not _before(run[k - 1], value):
                run[k] = run[k - 1]
                k -= 1
            run[k] = value
    for level in range(1, runs.shape[0]):
        shift = level + _FINEST
        half = 1 << (shift - 1)
        for i in range(start >> shift, end >> shift):
            at = (i << shift) & mask
            _merge(runs[level - 1, at : at + half], runs[level - 1, at + half : at + 2 * half], runs[level, at : at + 2 * half])


@helper
def _merge(a: Numbers, b: Numbers, out: Numbers) -> None:
    i, j = 0, 0
    for k in range(out.size):
        if j == b.size or (i < a.size and _before(a[i], b[j])):
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1


@kernel
def _select(values: Numbers, runs: Runs, lefts: Ints, rights: Ints, ranks: Ints, out: Numbers) -> None:
    most = 2 * runs.shape[0] + 2
    flat = runs.reshape(runs.size)
    bounds = np.empty((3, most), np.int64)  # of each run: its remaining part, from start to stop, and a cut between
    ends = np.empty(2 << _FINEST, values.dtype)  # the values at either end of the window that are in no run
    few = np.empty(_FEW + (2 << _FINEST), values.dtype)
    for i in range(lefts.size):
        if ranks[i] < 0:
            continue
        count, loose = _decompose(values, runs, (lefts[i], rights[i]), bounds, ends)
        out[i] = _nth(flat, bounds[:, :count], ends[:loose], ranks[i], few)


@helper
def _decompose(values: Numbers, runs: Runs, window: Any, bounds: Ints, ends: Numbers) -> tuple[int, int]:
    """The runs that make up a window; returns their number and that of the values in no run."""
    left, right = window
    mask = values.size - 1
    count, loose = 0, 0
    inner_left = (left + (1 << _FINEST) - 1) >> _FINEST
    inner_right = right >> _FINEST
    if inner_left > inner_right:  # within one finest interval
        inner_left = inner_right
        for position in range(left, right):
            ends[loose] = values[position & mask]
            loose += 1
    else:
        for position in range(left, inner_left << _FINEST):
            ends[loose] = values[position & mask]
            loose += 1
        for position in range(inner_right << _FINEST, right):
            ends[loose] = values[position & mask]
            loose += 1
    level = 0
    a, b = inner_left, inner_right
    while a < b:
        shift = level + _FINEST
        if a & 1:
            at = level * values.size + ((a << shift) & mask)
            bounds[0, count], bounds[1, count] = at, at + (1 << shift)
            count += 1
            a += 1
        if b & 1:
            b -= 1
            at = level * values.size + ((b << shift) & mask)
            bounds[0, count], bounds[1, count] = at, at + (1 << shift)
            count += 1
        a >>= 1
        b >>= 1
        level += 1
    return count, loose


@helper
def _nth(flat: Numbers, bounds: Ints, ends: Numbers, rank: Any, few: Numbers) -> Any:
    """The value of a rank among sorted runs and some unsorted values."""
    starts, stops, cuts = bounds[0], bounds[1], bounds[2]
    loose = 0  # unsorted values that may still be the answer
    for i in range(ends.size):
        few[loose] = ends[i]
        loose += 1
    left = loose
    for i in range(starts.size):
        left += stops[i] - starts[i]
    turn = 0
    while left - loose > _FEW:
        largest = 0
        for i in range(1, starts.size):
            if stops[i] - starts[i] > stops[largest] - starts[largest]:
                largest = i
        width = stops[largest] - starts[largest]
        # Aim a little below the rank, then a little above: the remaining values lie between the two pivots.
        aim = width * (rank + 0.5) / left
        slack = 1.2 * np.sqrt(min(aim, width - aim) + 1.0) if turn < 12 else 0.0
        if turn >= 12:
            aim = width / 2
        place = np.int64(aim - slack) if turn & 1 == 0 else np.int64(aim + slack)
        pivot = flat[starts[largest] + min(max(place, 0), width - 1)]
        below = 0
        for i in range(starts.size):
            cuts[i] = _lower_bound(flat, starts[i], stops[i], pivot)
            below += cuts[i] - starts[i]
        for i in range(loose):
            below += _less(few[i], pivot)
        if rank < below:
            for i in range(starts.size):
                stops[i] = cuts[i]
            loose = _keep_below(few, loose, pivot)
            left = below
        else:
            not_above = 0
            for i in range(starts.size):
                cuts[i], starts[i] = _upper_bound(flat, cuts[i], stops[i], pivot), cuts[i]
                not_above += cuts[i] - starts[i]
            for i in range(loose):
                not_above += few[i] == pivot
            if rank < below + not_above:
                return pivot
            rank -= below + not_above
            for i in range(starts.size):
                starts[i] = cuts[i]
            loose = _keep_above(few, loose, pivot)
            left -= below + not_above
        turn += 1
    for i in range(starts.size):
        for at in range(starts[i], stops[i]):
            few[loose] = flat[at]
            loose += 1
    few[:loose].sort()
    return few[rank]


@helper
def _less(value: Any, pivot: Any) -> Any:
    """Whether a value sorts before a pivot; NaN comes last."""
    less = value.real < pivot.real or (value.real == pivot.real and value.imag < pivot.imag)
    return less or (pivot != pivot and value == value)


@helper
def _lower_bound(flat: Numbers, start: Any, stop: Any, pivot: Any) -> Any:
    """The place of the first value that is not below the pivot."""
    base, width = start, stop - start
    while width > 0:
        half = (width + 1) >> 1
        base += (
            half if _less(flat[base + half - 1], pivot) else 0
        )  # without a branch, which would be mispredicted half of the time
        width -= half
    return base


@helper
def _upper_bound(flat: Numbers, start: Any, stop: Any, pivot: Any) -> Any:
    """The place of the first value above the pivot, by galloping: usually it is close to the start."""
    base = start
    step = 1
    while base + step <= stop and flat[base + step - 1] == pivot:
        base += step
        step *= 2
    width = min(step - 1, stop - base)
    while width > 0:
        half = (width + 1) >> 1
        base += half if flat[base + half - 1] == pivot else 0
        width -= half
    return base


@helper
def _keep_below(few: Numbers, count: Any, pivot: Any) -> Any:
    remaining = 0
    for i in range(count):
        if _less(few[i], pivot):
            few[remaining] = few[i]
            remaining += 1
    return remaining


@helper
def _keep_above(few: Numbers, count: Any, pivot: Any) -> Any:
    remaining = 0
    for i in range(count):
        if not _before(few[i], pivot):
            few[remaining] = few[i]
            remaining += 1
    return remaining
