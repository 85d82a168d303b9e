"""Sums, means, variances and standard deviations: running sums (R-INT), and fractions as states."""

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any

import numpy as np

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.exact.aggregate_function import R_INT, AggregateFunction, IndexPlan, WindowPositions, WindowValues
from lately.exact.algebra import Algebra, Moments
from lately.exact.column import MINUS_INFINITY, PLUS_INFINITY, Floats, Index
from lately.exact.running import Running
from lately.exact.stored_numbers import read_fraction, write_fraction
from lately.exact.variances import variances
from lately.exact.wide import EXACT


class _SumFunction(AggregateFunction):
    """What can be computed from the number of values, their sum and the sum of their squares."""

    algorithms = (R_INT,)

    def __init__(self, lower: Callable[[Moments], float | None]) -> None:
        self.algebra = Algebra(lambda value, tick=0: Moments.lift(value), Moments.combine, lower, Moments(), Moments.inverse)

    def state(self, index: Index | None, window: WindowValues) -> Moments:
        assert isinstance(index, Running)
        plus, minus = int((window.values == np.inf).sum()), int((window.values == -np.inf).sum())
        total, squares = index.exact(window.left, window.right)
        unit = Fraction(2) ** index.unit
        return Moments(window.present.size, total * unit, squares * unit * unit, plus, minus)

    def write_state(self, out: Writer, state: Moments, wide: bool) -> None:
        out.u64(state.plus)
        out.u64(state.minus)
        write_fraction(out, state.total)
        write_fraction(out, state.squares)

    def read_state(self, source: Reader, count: int, wide: bool) -> Moments:
        plus, minus = (source.within(source.u64(), 0, count) for _ in range(2))
        return Moments(count, read_fraction(source), read_fraction(source), plus, minus)


class _LinearFunction(_SumFunction):
    """A sum or a mean: running sums without squares."""

    def index_name(self, plan: IndexPlan) -> Hashable:
        return ("sums",)

    def make_index(self, plan: IndexPlan) -> Running:
        return Running()

    def index_bytes(self, number: int, size: int, digits: int) -> int:
        return 16 + digits // 8

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Floats:
        assert isinstance(index, Running)
        column, lefts, rights, counts, _ = windows
        sums = self.from_sums(index, lefts, rights, counts)
        plus, minus = (column.count(kind, lefts, rights) for kind in (PLUS_INFINITY, MINUS_INFINITY))
        if not (isinstance(plus, int) and isinstance(minus, int)):  # a sum with infinities is infinite or undefined
            with np.errstate(invalid="ignore"):
                signs = np.where(np.asarray(plus) > 0, np.inf, 0.0) - np.where(np.asarray(minus) > 0, np.inf, 0.0)
            sums = np.where(signs == 0, sums, signs)
        return np.where(counts > 0, sums, np.nan)

    @abstractmethod
    def from_sums(self, index: Running, lefts: Ints, rights: Ints, counts: Ints) -> Floats:
        """The answers, infinities aside."""


class Sum(_LinearFunction):
    """The exact sum, rounded once; of integers a Python integer."""

    name = "sum"
    keeps_integers = True

    def __init__(self) -> None:
        super().__init__(Moments.sum)

    def answer(self, state: Moments, *, integer: bool) -> Any:
        return state.integer() if integer else super().answer(state, integer=integer)

    def from_sums(self, index: Running, lefts: Ints, rights: Ints, counts: Ints) -> Floats:
        return index.lookup(lefts, rights)

    def exact_integers(self, index: Index | None, windows: WindowPositions, values: Any) -> dict[int, int]:
        large = (np.abs(values) >= EXACT).nonzero()[0]
        if not large.size:
            return {}
        assert isinstance(index, Running)
        return dict(zip(large.tolist(), index.integers(windows.lefts[large], windows.rights[large]), strict=True))


class Average(_LinearFunction):
    """The mean, rounded once."""

    name = "avg"

    def __init__(self) -> None:
        super().__init__(Moments.average)

    def from_sums(self, index: Running, lefts: Ints, rights: Ints, counts: Ints) -> Floats:
        return index.averages(lefts, rights, counts)


class Variance(_SumFunction):
    """The variance over ``n - ddof``."""

    name = "variance"

    def __init__(self, ddof: int) -> None:
        self.parameter = float(ddof)
        self._ddof = ddof
        super().__init__(self._lower)

    def _lower(self, state: Moments) -> float | None:
        return state.variance(self._ddof)

    def arguments(self) -> list[str]:
        return [] if self._ddof == 1 else [f"ddof={self._ddof}"]

    def index_name(self, plan: IndexPlan) -> Hashable:
        return ("squares",)

    def make_index(self, plan: IndexPlan) -> Running:
        return Running(squares=True)

    def index_bytes(self, number: int, size: int, digits: int) -> int:
        return 48 + digits // 2

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Floats:
        assert isinstance(index, Running)
        column, lefts, rights, counts, _ = windows
        values = variances(index, lefts, rights, counts, self._ddof)
        for kind in (PLUS_INFINITY, MINUS_INFINITY):
            infinite = column.count(kind, lefts, rights)
            if not isinstance(infinite, int):
                values = np.where(infinite > 0, np.nan, values)
        return values


class StandardDeviation(Variance):
    """The square root of the variance."""

    name = "stddev"

    def _lower(self, state: Moments) -> float | None:
        variance = super()._lower(state)
        return None if variance is None else math.sqrt(variance)

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Floats:
        values: Floats = np.sqrt(super().evaluate(index, windows))
        return values
