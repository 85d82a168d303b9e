"""What a coordinator announces; ``truth in announced`` tells whether it is right."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Announced:
    """What the coordinator says of a query: the estimate is in ``low..high``, or a message is on its way.

    ``alarm`` tells whether it is above the threshold, where one was given.

    >>> 95.0 in Announced(100.0, 90.0, 110.0)
    True
    """

    value: float
    low: float
    high: float
    alarm: bool | None = None

    def __contains__(self, estimate: float) -> bool:
        slack = 0.0 if math.isnan(self.value) else 1e-9 * abs(self.value)
        return self.low - slack <= estimate <= self.high + slack


#: What is said before all sites have joined.
NOTHING = Announced(math.nan, -math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Listed:
    """The keys that come often, with their counts over all sites as they were last told, and the least they may have.

    >>> {"/": 120} in Listed({"/": 100}, least=90.0)
    True
    """

    counts: dict[Any, int]
    least: float

    def __contains__(self, estimates: dict[Any, int]) -> bool:
        """Whether the listed keys are rightly listed, given what all sites count."""
        return all(estimates.get(key, 0) >= self.least for key in self.counts)
