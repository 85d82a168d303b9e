"""The cell and the sign of a key in each row: 4-wise independent.

A cubic polynomial with random coefficients over the integers modulo 2^61 - 1 is 4-universal (Carter & Wegman). Its lowest
bit is the sign, its upper half selects the cell; the variance of a Fast-AMS row depends on nothing else (Thorup & Zhang).
Every row has a polynomial of its own, so that rows are independent and their median can be trusted.

    cell = row · 2·width  +  2 · bucket  +  (0 for +1, 1 for -1)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import helper, kernel
from lately.core.keys import Hashes
from lately.core.splitmix64 import random_words

PRIME = 2**61 - 1
_P, _LOW, _HALF = np.uint64(PRIME), np.uint64(2**32 - 1), np.uint64(32)
_61, _29, _3, _ONE = np.uint64(61), np.uint64(29), np.uint64(3), np.uint64(1)
_LOW29 = np.uint64(2**29 - 1)


@helper
def _times(a: Any, b: Any) -> Any:
    """a·b modulo 2^61 - 1, not fully reduced: below 2^61 + 8, for a below 2^62 and b below 2^61 + 8."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    middle, low = a0 * b1 + a1 * b0, a0 * b0  # the product is a1·b1·2^64 + middle·2^32 + low, and 2^61 counts as 1
    total = ((a1 * b1) << _3) + (middle >> _29) + ((middle & _LOW29) << _HALF) + (low & _P) + (low >> _61)
    return (total & _P) + (total >> _61)


@helper
def polynomial(key: Any, row: Any, coefficients: Any) -> Any:
    """The value of a row's polynomial, from 0 to 2^61 - 2."""
    x = (key & _P) + (key >> _61)
    value = _times(coefficients[row, 0], x) + coefficients[row, 1]
    value = _times(value, x) + coefficients[row, 2]
    value = _times(value, x) + coefficients[row, 3]
    value = (value & _P) + (value >> _61)
    return value - _P if value >= _P else value


@kernel
def signed_cells(keys: Hashes, row: Any, coefficients: Any, width: Any, out: Any) -> None:
    """The cells of many hashed keys in one row, twice their bucket and one more where the sign is minus."""
    start = np.uint64(row) * width
    for i in range(keys.size):
        value = polynomial(keys[i], row, coefficients)
        out[i] = np.uint32(((((value >> _29) * width) >> _HALF) + start) * np.uint64(2) + (value & _ONE))


def polynomials(seed: int, rows: int) -> NDArray[np.uint64]:
    """Four random coefficients for each row, drawn from the seed."""
    return (random_words(seed, 4 * rows) % _P).reshape(rows, 4)
