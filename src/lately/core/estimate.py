"""Answers: a value, the bounds around it, and how sure the bounds are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer with its bounds: the truth lies in ``low..high`` with probability ``confidence`` or more.

    >>> answer = Estimate(4812, 4790, 4815, 0.99)
    >>> answer
    Estimate(4_812, 4_790..4_815, 99%)
    >>> 4800 in answer, int(answer)
    (True, 4812)
    """

    value: int | float
    low: int | float
    high: int | float
    confidence: float

    def __contains__(self, truth: float) -> bool:
        return self.low <= truth <= self.high

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        sure = f"{self.confidence:.4%}".rstrip("%").rstrip("0").rstrip(".")
        return f"Estimate({_number(self.value)}, {_number(self.low)}..{_number(self.high)}, {sure}%)"


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Many answers of one question as columns: ``value``, ``low`` and ``high`` are NumPy arrays.

    >>> import numpy as np
    >>> answers = Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0)
    >>> answers[0]
    Estimate(7, 6..8, 100%)
    >>> len(answers), answers.high.tolist(), answers[answers.value > 8].low.tolist()
    (2, [8, 9], [9])
    """

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    confidence: float

    def __len__(self) -> int:
        return int(self.value.size)

    @overload
    def __getitem__(self, i: int) -> Estimate: ...

    @overload
    def __getitem__(self, i: slice | NDArray[Any]) -> "Estimates": ...

    def __getitem__(self, i: int | slice | NDArray[Any]) -> "Estimate | Estimates":
        if isinstance(i, SupportsIndex) and getattr(i, "ndim", 0) == 0:
            return Estimate(self.value[i].item(), self.low[i].item(), self.high[i].item(), self.confidence)
        return Estimates(self.value[i], self.low[i], self.high[i], self.confidence)

    def __iter__(self) -> Iterator[Estimate]:
        return (self[i] for i in range(len(self)))


def _number(x: int | float) -> str:
    if isinstance(x, int):
        return f"{x:_}"
    return f"{x:_.0f}" if abs(x) >= 100 else f"{x:.4g}"
