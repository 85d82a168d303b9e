"""The cell of a key in each row.

Row hashes come from the pair-multiply-shift family: with a key's halves x and y and random 64-bit a, b, c, the upper half of
(a + x)(b + y) + c is strongly universal over 32 bits (Dietzfelbinger; Thorup), which is what Count-Min's proof asks for, and
costs one multiplication. A second one scales it to the width.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import helper, kernel
from lately.core.keys import Hashes
from lately.core.splitmix64 import random_words

#: Two sketches built alike must be mergeable, so the default never changes.
DEFAULT_SEED = 20_120_615

_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


@helper
def cell_of(key: Any, row: Any, coefficients: Any, width: Any) -> Any:
    """The cell of a hashed key, counted over all rows."""
    mixed = (coefficients[row, 0] + (key >> _HALF)) * (coefficients[row, 1] + (key & _LOW)) + coefficients[row, 2]
    return (((mixed >> _HALF) * width) >> _HALF) + np.uint64(row) * width


@kernel
def row_cells(keys: Hashes, row: Any, coefficients: Any, width: Any, out: Any) -> None:
    """The cells of many hashed keys in one row."""
    a, b, c = coefficients[row, 0], coefficients[row, 1], coefficients[row, 2]
    start = np.uint64(row) * width
    for i in range(keys.size):
        mixed = (a + (keys[i] >> _HALF)) * (b + (keys[i] & _LOW)) + c
        out[i] = np.uint32((((mixed >> _HALF) * width) >> _HALF) + start)


def coefficients(seed: int, depth: int) -> NDArray[np.uint64]:
    """Three random words for each row, drawn from the seed."""
    return random_words(seed, 3 * depth).reshape(depth, 3)


def cells_of(keys: Hashes, table: NDArray[np.uint64], width: int) -> NDArray[np.uint32]:
    """The cells of hashed keys, one row of the result for each row of the sketch."""
    out = np.empty((table.shape[0], keys.size), np.uint32)
    for row in range(table.shape[0]):
        row_cells(keys, row, table, np.uint64(width), out[row])
    return out
