"""What a coordinator announces: bounds of the true value, and the tolerance within which the estimate is kept."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the coordinator announces about a query. It holds unless a message is on its way.

    Parameters
    ----------
    value
        The estimate when sites last sent their updates; NaN before all sites have joined.
    low, high
        Bounds of the true value over all events. They include the error of the sketch and what sites may have counted since
        their last updates. Where an alarm limits only one side, the other is infinite.
    alarm
        Whether the alarm is firing; None without a threshold, or while that is not known yet.
    confidence
        The true value is between ``low`` and ``high`` with at least this probability.
    tolerance
        Where the estimate is kept: the one that the sketches of all sites would give now if they were added up.
    oldest, newest
        The ticks of the oldest and newest updates that it rests on; None without a window, or before the first update.
    awaited
        The sites whose answer is missing. When the others have waited for some batches, ``low`` is what these others prove
        and ``high`` is infinite. More events can only raise the value, so an alarm ``above`` then fires if they prove it and
        is never resolved; an alarm ``below`` is resolved if they prove it and never starts to fire.

    >>> announced = Announcement(100.0, 85.0, 120.0, confidence=0.9, tolerance=(90.0, 110.0))
    >>> 115 in announced, announced.tolerates(115)
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


#: The announcement before all sites have joined.
NO_ANNOUNCEMENT = Announcement(math.nan, -math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class FrequentKeys:
    """The frequent keys, with the counts over all sites that were last sent.

    Counts are those of the sketches, in which keys collide.

    Parameters
    ----------
    counts
        The listed keys and their counts, the most frequent first.
    min_count
        The least count that a listed key can have in the sketches of all sites.
    oldest, newest
        The ticks of the oldest and newest counts, as in ``Announcement``.
    awaited
        The sites whose answer is missing. Until they answer, a key that the others prove to be frequent is listed, and
        a listed key that is being asked about stays listed.

    >>> FrequentKeys({"/": 100}, min_count=90.0).tolerates({"/": 120})
    True
    """

    counts: dict[Any, int]
    min_count: float
    oldest: int | None = None
    newest: int | None = None
    awaited: tuple[int, ...] = ()

    def tolerates(self, estimates: dict[Any, int]) -> bool:
        """Whether the listed keys may be listed, given the counts of all sites."""
        return all(estimates.get(key, 0) >= self.min_count for key in self.counts)


def oldest_and_newest(ticks: list[int | None]) -> tuple[int | None, int | None]:
    """The smallest and the largest tick of those that are not None."""
    known_ticks = [tick for tick in ticks if tick is not None]
    return (min(known_ticks), max(known_ticks)) if known_ticks else (None, None)
