"""What every counter family is: an array of independent cells that count arrivals by stamp.

A stamp is a uint32 tick number; 0 means "before any window".
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.plan import merged_error

Stamps = NDArray[np.uint32]
Cells = NDArray[np.uint32]
Counts = NDArray[np.int64]

#: Given to kernels for counts that are all one.
NO_COUNTS = np.empty(0, np.int64)

MAX_COUNT = 2**62

#: No arrival bears this stamp: asking since then finds nothing.
MAX_STAMP = 2**32 - 1


class Bounds(NamedTuple):
    """For each cell asked: the truth lies in ``low..high``, and ``value`` is within the family's error of it."""

    low: Counts
    value: Counts
    high: Counts


class Dithered(NamedTuple):
    """For each cell asked: its count plus a remainder, which is evenly spread from 0 to ``remainder`` whatever the count.

    ``value`` is that sum for the arrivals as they were counted. Merging may have moved them: the sum is in ``low..high``.
    """

    low: Counts
    value: Counts
    high: Counts
    remainder: Counts


class Part(ABC):
    """Something that a sketch over a window is made of: it moves, merges and is stored with the sketch."""

    #: How many ticks before an arrival still lie inside the window.
    span: int
    #: How many levels of merging the oldest of its arrivals went through.
    height: int
    #: Whether two may share what must not be merged twice: ``check_apart`` knows.
    shares: ClassVar[bool] = False

    def live_from(self, now: int) -> int:
        """The first stamp inside the window that ends at ``now``, which may lie beyond what a stamp can hold."""
        return min(max(1, now - self.span), MAX_STAMP)

    def begin(self, origin: int) -> None:  # noqa: B027  most need not know
        """The first tick was seen: stamps count from ``origin``."""

    def forget(self) -> None:  # noqa: B027  most keep nothing
        """Drop what was kept to answer the next question faster."""

    @abstractmethod
    def rebase(self, shift: int) -> None:
        """Move the origin of the stamps ``shift`` ticks on; what falls before it has left every window."""

    def is_extended(self, now: int) -> bool:
        """Whether bytes need the extended fields to hold its state at ``now``."""
        return False

    def check_apart(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> None:  # noqa: B027
        """Raise ``MergeError`` where ``merged`` could not keep its guarantee for these inputs."""

    @abstractmethod
    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        """A new instance with the arrivals of ``self`` and the others.

        ``shifts[i]`` (self first) is what to add to the stamps of input i to put all on one origin; in those stamps
        nothing before ``live_from`` is in the window any more.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""

    @abstractmethod
    def copy(self) -> Self:
        """An independent copy."""

    @abstractmethod
    def write(self, out: Writer, now: int) -> None:
        """Write the state; stamps go out as ages before ``now``, and what has left the window is not written."""

    @abstractmethod
    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        """Read the state into a new instance of the same shape.

        No arrival can have been stamped after ``newest``, and no cell can have counted more than ``most``.
        """


class CounterArray(Part):
    """An array of sliding-window counters of one family.

    Parameters
    ----------
    cells
        The number of counters.
    span
        The age of the oldest tick inside the window, in ticks; the newest has age 0.
    eps
        The relative error of a count before any merging.
    """

    family: ClassVar[str]
    #: Whether low and high are certain, rather than likely.
    certain: ClassVar[bool] = True

    def __init__(self, cells: int, span: int, eps: float) -> None:
        self.cells, self.span, self.eps = cells, span, eps
        self.height = 0
        #: What to divide the upper end of a count by, and the lower, where levels of merging had different errors.
        self.stretch: tuple[float, float] | None = None

    @abstractmethod
    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        """Count arrivals; the stamps of a cell must not decrease from one arrival to the next, nor from call to call.

        Parameters
        ----------
        cells
            The cell of each arrival.
        stamps
            The stamp of each, in ticks since the origin.
        counts
            How often each arrived; by default once.
        """

    def add_to_row(self, row: int, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        """``add`` to cells of one row of a sketch; families whose cells share a row's room need to know which."""
        self.add(cells, stamps, counts)

    def extend(self, stamps: Stamps, counts: Counts | None = None) -> None:
        """``add`` to cell 0; families that can do better with a whole run do."""
        self.add(np.zeros(stamps.size, np.uint32), stamps, counts)

    def since(self, cells: Cells, stamp: int) -> Bounds:
        """How many arrivals each of these cells counted at ``stamp`` or later.

        Parameters
        ----------
        cells
            The cells to ask.
        stamp
            The first stamp of the range.
        """
        bounds = self._since(cells, np.uint32(max(stamp, 1)))
        return _widened(bounds, *self.stretched) if self.height else bounds

    def dithered_since(self, stamp: int, cells: Cells | None = None) -> "Dithered | None":
        """What cells counted since a stamp, with the random remainder that the family leaves; None if it leaves none.

        Parameters
        ----------
        stamp
            The first stamp of the range.
        cells
            The cells to ask; by default all.
        """
        return None

    def all_since(self, stamp: int) -> Bounds:
        """``since`` for every cell: the plain Count-Min array that a range leaves."""
        return self.since(np.arange(self.cells, dtype=np.uint32), stamp)

    @abstractmethod
    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds: ...

    @property
    @abstractmethod
    def merge_error(self) -> float:
        """The largest share of a range's arrivals that merging this array into another can move across its start."""

    @property
    def stretched(self) -> tuple[float, float]:
        """(upper, lower): all levels of merging together left at most ``upper`` and at least ``lower`` times the true count.

        A merge turns x into x' with |x' - x| ≤ error·x (ECM-15 Lemma 5), so (1 - error)·x ≤ x' ≤ (1 + error)·x, and again for
        each level. The paper adds the levels up; multiplied, the bounds hold for any height.
        """
        return self.stretch or ((1 + self.merge_error) ** self.height, (1 - self.merge_error) ** self.height)

    @property
    def error(self) -> float:
        """The largest relative error of a value, merges included."""
        return merged_error(self.eps, self.height) if self.stretch is None else self.stretch[0] * (1 + self.eps) - 1


def _widened(bounds: Bounds, upper: float, lower: float) -> Bounds:
    """Bounds on the true count from bounds on a count that merging left between ``lower`` and ``upper`` times of it."""
    slack = 1e-12  # more than the rounding of the products and of the two divisions
    low = np.ceil(bounds.low / upper * (1 - slack)).astype(np.int64)
    high = np.floor(np.minimum(bounds.high / lower * (1 + slack), MAX_COUNT)).astype(np.int64)
    return Bounds(low, bounds.value, high)
