"""Variances from running sums: n·Σx² − (Σx)², computed with integers, so that no digits cancel.

The difference is exact, and only the division rounds. A mean of 10¹² with a deviation of 0.001 loses no digits.
"""

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import kernel
from lately.exact.column import Floats
from lately.exact.fixed_point import Words, rounded, subtract
from lately.exact.running import Running

_0, _1, _SIGN = np.uint64(0), np.uint64(1), np.uint64(63)
_32, _LOW = np.uint64(32), np.uint64(2**32 - 1)
_APART = 128


def variances(running: Running, lefts: Ints, rights: Ints, counts: Ints, ddof: int) -> Floats:
    """The variances of windows with ``counts[i]`` values; NaN where a window has too few."""
    assert running.squares is not None
    spreads, n = np.empty(lefts.size), counts.astype(np.float64)
    _spreads(running.words, running.squares, (lefts, rights, counts), 2 * running.unit, spreads)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = spreads / n / (n - ddof)
        if np.isinf(spreads).any():  # n² · variance is beyond the range of floats: divide first
            _spreads(running.words, running.squares, (lefts, rights, counts), 2 * running.unit - _APART, spreads)
            values = np.where(np.isinf(values), np.ldexp(spreads / n / (n - ddof), _APART), values)
    return np.where(counts > ddof, values, np.nan)


@kernel
def _spreads(words: Words, squares: Words, windows: tuple[Ints, Ints, Ints], unit: int, out: Floats) -> None:
    """n·Σx² − (Σx)² of each window; squares are integer multiples of 2**unit."""
    lefts, rights, counts = windows
    size = max(2 * words.shape[1], squares.shape[1] + 1)
    total, total_of_squares = np.empty(words.shape[1], np.uint64), np.empty(squares.shape[1], np.uint64)
    room = np.empty(size, np.uint64)
    limbs, product = np.empty(2 * words.shape[1], np.uint64), np.empty(2 * size, np.uint64)
    for i in range(lefts.size):
        subtract(words, lefts[i], rights[i], total)
        subtract(squares, lefts[i], rights[i], total_of_squares)
        if total[total.size - 1] >> _SIGN != _0:
            carry = _1
            for j in range(total.size):
                total[j] = ~total[j] + carry
                carry &= np.uint64(total[j] == _0)
        # Half words, so that the product of two and a carry fit into one word.
        for j in range(total.size):
            limbs[2 * j], limbs[2 * j + 1] = total[j] & _LOW, total[j] >> _32
        product[:] = _0
        for j in range(limbs.size):
            carry = _0
            for k in range(limbs.size):
                if j + k < product.size:
                    carry += product[j + k] + limbs[j] * limbs[k]
                    product[j + k] = carry & _LOW
                    carry >>= _32
            if j + limbs.size < product.size:
                product[j + limbs.size] = carry
        carry, borrow = _0, _0
        for j in range(size):
            word = total_of_squares[j] if j < total_of_squares.size else _0
            low = (word & _LOW) * np.uint64(counts[i]) + carry
            high = (word >> _32) * np.uint64(counts[i]) + (low >> _32)
            carry = high >> _32
            word = (low & _LOW) | (high << _32)
            square = product[2 * j] | (product[2 * j + 1] << _32)
            result = word - square
            over = np.uint64(word < square)
            room[j] = result - borrow
            borrow = over | np.uint64(result < borrow)
        out[i] = rounded(room, unit)
