"""Integers beyond 2**53, which floats do not represent exactly: each as a pair of floats whose sum it is.

    real    the nearest float
    imag    the rest, a whole number from -512 to 512

A column is an array of floats while floats represent all its values, and an array of such pairs while it has an integer that no
float is equal to. NumPy and Numba see the pairs as complex numbers; no code multiplies them. Rounding preserves the order, so
pairs sort as their numbers do: by the first part, then by the second. The second part of a float is 0.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.errors import InputError

Floats = NDArray[np.float64]
Numbers = NDArray[Any]  # floats, or pairs of them

#: All integers up to this one are floats without rounding.
EXACT = 2**53

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def is_wide(values: Numbers) -> bool:
    """Whether these are pairs of floats."""
    return values.dtype.kind == "c"


def number(value: Any) -> float | int:
    """A float or a pair as a Python number: an integer only if no float is equal to it."""
    if value.imag == 0 or value != value:
        return float(value.real)
    return int(value.real) + int(value.imag)


def narrowed(values: Numbers) -> Numbers:
    """The same numbers, as floats if floats represent all of them."""
    return values.real.copy() if is_wide(values) and not values.imag.any() else values


def pairs(real: Floats, rest: Any) -> Numbers:
    """Numbers from their two parts; floats if every second part is 0."""
    if not np.any(rest):
        return real
    numbers = np.empty(real.size, np.complex128)
    numbers.real, numbers.imag = real, rest
    return numbers


def of_integers(integers: NDArray[Any], name: str) -> Numbers:
    """A column of integers of any NumPy type."""
    if integers.dtype.kind == "u" and integers.size and int(integers.max()) > _HIGHEST:
        raise _beyond(int(integers.max()), name)
    real = integers.astype(np.float64)
    if not integers.size or (int(integers.min()) >= -EXACT and int(integers.max()) <= EXACT):
        return real
    exact: Ints = integers.astype(np.int64)
    top = real == 2.0**63  # which is no int64
    return pairs(real, np.where(top, exact - _HIGHEST - 1, exact - np.where(top, 0.0, real).astype(np.int64)))


def of_list(values: Sequence[Any], name: str) -> Numbers:
    """A column of Python integers and floats, with None for missing values."""
    for value in values:
        if isinstance(value, int) and not _LOWEST <= value <= _HIGHEST:
            raise _beyond(value, name)
    real = np.array([math.nan if value is None else float(value) for value in values], np.float64)
    large = np.flatnonzero(np.abs(real) >= EXACT)
    if not large.size:
        return real
    rest = np.zeros(real.size)
    rest[large] = [values[i] - int(real[i]) if isinstance(values[i], int) else 0 for i in large.tolist()]
    return pairs(real, rest)


def _beyond(value: int, name: str) -> InputError:
    return InputError(
        f"the column {name!r} has the value {value}, which is not a 64-bit integer (-2**63 to 2**63 - 1)",
        remedy="subtract an offset, or cast it to float if rounding does no harm",
    )


def refuse_wide(values: Numbers, name: str, who: str, remedy: str) -> None:
    """Reject integers that no float is equal to, for ``who`` takes floats only."""
    if is_wide(values):
        value = number(values[np.flatnonzero(values.imag)[0]])
        raise InputError(
            f"the column {name!r} has the value {value}, beyond what a float holds exactly (2**53), and {who} takes floats",
            remedy=f"subtract an offset, cast it to float if rounding does no harm, or {remedy}",
        )
