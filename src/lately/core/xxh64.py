"""XXH64 over columns, in place: ``out`` comes in holding the seeds and goes out holding the hashes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_ZERO, _ONE, _FOUR, _EIGHT, _32 = np.uint64(0), np.uint64(1), np.uint64(4), np.uint64(8), np.uint64(32)


@helper
def _rotate(x: Any, by: int) -> Any:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@helper
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _P2, 31) * _P1


@helper
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> _32)


@helper
def _word4(data: Any, i: Any) -> Any:
    return (
        np.uint64(data[i])
        | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
    )


@helper
def word8(data: Any, i: Any) -> Any:
    """Eight bytes as one little-endian word."""
    # Written byte by byte so that any alignment is legal; LLVM folds it into one load.
    return (
        np.uint64(data[i])
        | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)
    )


@kernel
def hash_integers(values: Ints, out: NDArray[np.uint64]) -> None:
    """Each integer as its eight little-endian bytes."""
    for i in range(values.size):
        h = out[i] + _P5 + _EIGHT
        h ^= _round(_ZERO, np.uint64(values[i]))
        out[i] = _avalanche(_rotate(h, 27) * _P1 + _P4)


@kernel
def hash_bytes(data: Any, offsets: Any, out: NDArray[np.uint64]) -> None:
    """Each stretch of a buffer, from its offset to the next."""
    for i in range(out.size):
        at, end, seed = np.uint64(offsets[i]), np.uint64(offsets[i + 1]), out[i]
        size = end - at
        if size >= _32:
            a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while at + _32 <= end:
                a = _round(a, word8(data, at))
                b = _round(b, word8(data, at + np.uint64(8)))
                c = _round(c, word8(data, at + np.uint64(16)))
                d = _round(d, word8(data, at + np.uint64(24)))
                at += _32
            h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
            h = (h ^ _round(_ZERO, a)) * _P1 + _P4
            h = (h ^ _round(_ZERO, b)) * _P1 + _P4
            h = (h ^ _round(_ZERO, c)) * _P1 + _P4
            h = (h ^ _round(_ZERO, d)) * _P1 + _P4
        else:
            h = seed + _P5
        h += size
        while at + _EIGHT <= end:
            h = _rotate(h ^ _round(_ZERO, word8(data, at)), 27) * _P1 + _P4
            at += _EIGHT
        if at + _FOUR <= end:
            h = _rotate(h ^ (_word4(data, at) * _P1), 23) * _P2 + _P3
            at += _FOUR
        while at < end:
            h = _rotate(h ^ (np.uint64(data[at]) * _P5), 11) * _P1
            at += _ONE
        out[i] = _avalanche(h)
