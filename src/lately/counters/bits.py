"""Positions, the powers of two that divide them, and random ones: what waves are made of."""

from typing import Any

import numpy as np

from lately.core.jit import helper

_ONE = np.uint64(1)

# Trailing zeros by a de Bruijn sequence: isolate the lowest bit, and each of the 64 products has its own top six bits.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_TRAILING = np.zeros(64, np.uint8)
for _bit in range(64):
    _TRAILING[((0x03F79D71B4CB0A89 << _bit) & (2**64 - 1)) >> 58] = _bit


@helper
def trailing_zeros(x: Any) -> Any:
    """How often two divides x, which is not 0."""
    return np.uint64(_TRAILING[((x & (~x + _ONE)) * _DE_BRUIJN) >> np.uint64(58)])


@helper
def newest_odd(n: Any, level: Any) -> Any:
    """How many positions of exactly this level there are up to n; the newest has the index one less."""
    return (n + (_ONE << level)) >> (level + _ONE)
