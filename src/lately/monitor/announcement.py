"""What a coordinator announces: bounds of the true value, and the tolerance that the estimate is kept within."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the coordinator says of a query; it holds unless a message is on its way.

    - ``value``: the estimate when sites last told their numbers.
    - ``low``, ``high``: bounds of the true value, over all events, with the ``confidence`` given: the error of the sketch is
      in them, and what sites may have counted since. One of them is infinite where an alarm limits only one side.
    - ``alarm``: whether the alarm is firing, where a threshold was given: the estimate is beyond it, above or below as the
      query says; None while that is not known yet.
    - ``confidence``: the true value is between low and high with at least this probability.
    - ``tolerance``: where the estimate is kept, the one that the sketches of all sites would give now if they were added up.
    - ``oldest``, ``newest``: the ticks at which sites told what it rests on; None without a window, or before anybody told.
    - ``awaited``: the sites whose answer is missing. When others have waited for it in vain, ``low`` is what these prove by
      themselves and ``high`` is infinite. More can only raise the value, so an alarm above a line that they prove is raised
      and none is resolved; an alarm below one is resolved if they prove it, and none is raised.

    >>> said = Announcement(100.0, 85.0, 120.0, confidence=0.9, tolerance=(90.0, 110.0))
    >>> 115 in said, said.tolerates(115)
    (True, False)
    """

    value: float
    low: float
    high: float
    alarm: bool | None = None
    confidence: float = 1.0
    tolerance: tuple[float, float] = (-math.inf, math.inf)
    oldest: int | None = None
    newest: int | None = None
    awaited: tuple[int, ...] = ()

    def __contains__(self, truth: float) -> bool:
        """Whether a true value is within the bounds."""
        return self.low <= truth <= self.high

    def tolerates(self, estimate: float) -> bool:
        """Whether an estimate is within the tolerance."""
        slack = 0.0 if math.isnan(self.value) else 1e-9 * abs(self.value)
        low, high = self.tolerance
        return low - slack <= estimate <= high + slack


#: What is said before all sites have joined.
NOTHING = Announcement(math.nan, -math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class FrequentKeys:
    """The keys that come often, with their counts over all sites as they were last told, and the least they may have.

    Counts are those of the sketches, in which keys collide. ``oldest``, ``newest`` and ``awaited`` are as in ``Announcement``:
    while a site is awaited, a key that the others prove to be frequent is listed, and none about which it is asked is taken
    off the list.

    >>> FrequentKeys({"/": 100}, least=90.0).tolerates({"/": 120})
    True
    """

    counts: dict[Any, int]
    least: float
    oldest: int | None = None
    newest: int | None = None
    awaited: tuple[int, ...] = ()

    def tolerates(self, estimates: dict[Any, int]) -> bool:
        """Whether the listed keys are rightly listed, given what all sites count."""
        return all(estimates.get(key, 0) >= self.least for key in self.counts)


def span_of(ticks: list[int | None]) -> tuple[int | None, int | None]:
    """The oldest and the newest of some ticks, those that are known."""
    known = [tick for tick in ticks if tick is not None]
    return (min(known), max(known)) if known else (None, None)
