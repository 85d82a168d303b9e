"""What an index over substreams can do: the filters on one column ask all of it, and know nothing else of it."""

from typing import NamedTuple, Protocol

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.exact.column import Floats


class Matches(NamedTuple):
    """Substreams and the bounds of their aggregates."""

    ids: Ints
    low: Floats
    high: Floats


class SubstreamIndex(Protocol):
    """The aggregates of many substreams over any window that ends now. Substreams are small integers."""

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""

    def set_longest(self, longest: int, now: int | None) -> None:
        """Serve windows of up to ``longest`` ticks; ``now`` is None before the first arrival."""

    def add_range(self, low: float, high: float, now: int | None) -> None:
        """Serve another range of aggregates; ``now`` is None before the first arrival."""

    def remove_range(self, low: float, high: float) -> None:
        """Drop what only this range needs."""

    def update(self, ids: Ints, ticks: Ints, values: Floats | None, /) -> None:
        """Add arrivals in time order; without values if it counts them."""

    def advance(self, now: int) -> None:
        """Move time on."""

    def forget(self, ids: Ints) -> None:
        """Drop these substreams; their numbers may be used again."""

    def renumber(self, alive: Ints) -> None:
        """Renumber: the substream ``alive[i]`` becomes substream i; others are dropped."""

    def lost(self, low: float, high: float) -> int | None:
        """The newest tick of an arrival that is not stored for this range; None if all are."""

    def find(self, since: int, low: float, high: float) -> Matches:
        """The substreams whose aggregate since a tick is in ``low..high``."""

    def values(self, ids: Ints, since: int) -> Floats:
        """The aggregates of these substreams since a tick; NaN where there was no arrival."""

    def write(self, out: Writer, ids: Ints, now: int) -> None:
        """Write the state of these substreams."""

    def read(self, source: Reader, ids: Ints, time: int | None) -> None:
        """Read what ``write`` wrote into an index that serves the same ranges; ``time`` is None before the first arrival."""
