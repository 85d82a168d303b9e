"""An allocator for many small arrays that grow and shrink: chunks of 2**c entries out of one pool.

heads[c]        the first free chunk of 2**c entries, or -1; each free chunk holds the offset of the next in its first entry
heads[TOP]      the first entry of the pool that has never been used
heads[USED]     the number of entries in chunks that are in use
"""

from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.jit import helper

TOP, USED = 48, 49

#: A pool is packed when it is this many times as large as its chunks in use.
SPARE = 8


def no_chunks() -> Ints:
    """The heads of an empty pool."""
    heads = np.full(USED + 1, -1, np.int64)
    heads[TOP] = heads[USED] = 0
    return heads


@helper
def acquire(heads: Ints, size: Any, links: Ints) -> Any:
    """The offset of a chunk of 2**size entries, or -1 if the pool has no room."""
    offset = heads[size]
    if offset >= 0:
        heads[size] = links[offset]
    elif heads[TOP] + (1 << size) <= links.size:
        offset = heads[TOP]
        heads[TOP] += 1 << size
    if offset >= 0:
        heads[USED] += 1 << size
    return offset


@helper
def release(heads: Ints, size: Any, links: Ints, offset: Any) -> None:
    """Give a chunk back."""
    links[offset] = heads[size]
    heads[size] = offset
    heads[USED] -= 1 << size
