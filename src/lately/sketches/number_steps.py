"""Columns of numbers, and the steps into which they are cut: a tree counts integers, the numbers of the steps."""

import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import arrow, is_arrow, refuse_masked
from lately.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Steps:
    """Numbers from ``lo`` to ``hi`` cut into ``number`` steps of ``resolution``."""

    lo: float
    hi: float
    resolution: float
    number: int

    def of(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """The step in which each number lies; a number outside is taken for the nearer end."""
        inside = np.clip(numbers, self.lo, self.hi)
        steps = np.floor((inside - self.lo) / self.resolution).astype(np.int64)
        steps -= self.edge(steps) > inside  # a division may round past the edge that answers will name
        steps += self.edge(steps + 1) <= inside
        return np.minimum(steps, self.number - 1)

    def edge(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where steps begin; the last one ends at ``hi``, and so may be a little longer or shorter."""
        return np.where(steps >= self.number, self.hi, np.minimum(self.lo + steps * self.resolution, self.hi))


def single_number(value: Any) -> float:
    """A single number."""
    numbers = numbers_of(value)
    if numbers.size != 1:
        raise InputError(f"{value!r} are {numbers.size:,} numbers", remedy="ask for one at a time")
    return float(numbers[0])


def numbers_of(values: Any) -> NDArray[np.float64]:
    """A column of numbers; raises an ``InputError`` for anything else."""
    refuse_masked(values, "values")
    if (is_arrow(values) or hasattr(values, "to_arrow")) and (nulls := arrow(values).null_count):
        raise InputError(f"{nulls} of the values are null", remedy="fill or drop them first")
    try:
        column = np.atleast_1d(np.asarray(values))
        if column.dtype.kind in "mM":
            raise TypeError(f"they are of type {column.dtype}")
        if column.dtype.kind not in "iufO" or isinstance(values, list | tuple):
            column = np.atleast_1d(np.asarray(values, object))
        if column.dtype.kind == "O" and column.ndim == 1:
            column = np.array([_float_of(value) for value in column.tolist()], np.float64)
        numbers = column.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"cannot read values: {error}", remedy="give numbers") from error
    if numbers.ndim != 1:
        raise InputError(f"values has {numbers.ndim} dimensions", remedy="give one column")
    if not np.isfinite(numbers).all():
        raise InputError(f"values has the value {numbers[~np.isfinite(numbers)][0]}", remedy="fill or drop it first")
    return numbers


def _float_of(value: Any) -> float:
    """One Python number as a float; None is NaN."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | Decimal | None):
        raise TypeError(f"{value!r} is not a number")
    return math.nan if value is None else float(value)
