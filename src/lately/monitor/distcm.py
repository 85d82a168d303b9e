"""DISTCM (WCM §3.5): sites push their cells when those have moved, and a coordinator adds them up.

The paper pushes after every eps·N arrivals. But cells also move when arrivals leave, and all at once where SIMPLE starts
anew: so a site here compares its cells with those it sent last, and pushes when one is off by more than eps·N. That keeps the
promise of Theorem 7 at all times, and sends less. N is a certain upper bound of the total weight in a site's window. A site
also pushes when its window could hold more than the coordinator assumes.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from lately.core.arguments import check_integer, check_probability
from lately.core.errors import InputError, MergeError, ParameterError
from lately.core.estimate import Estimate, Estimates
from lately.core.keys import all_hashes, key_column, one_key
from lately.counters.base import Counts
from lately.monitor.announcement import Announcement
from lately.monitor.messages import CellsMessage, Message
from lately.sketches.countmin import without_collisions
from lately.sketches.hashing import cells_of
from lately.sketches.wcm import PerfectCountMin, WcmSketch

#: More than what sums of a few thousand floats can be off by.
_ROUNDING = 1e-12


class CountMinSite:
    """A site: counts its own stream, and says what changed enough to matter."""

    def __init__(self, number: int, sketch: WcmSketch, push: float) -> None:
        self.number, self.sketch, self.push = number, sketch, push
        self._sent = np.zeros(sketch.width * sketch.depth, np.int64)
        self._line = 0.0
        self._most = 0.0  # the coordinator's upper bound of the total weight in this window
        self._sequence = 0

    def update(self, keys: Any, times: Any = None, counts: Any = None) -> list[Message]:
        """Count a batch, as the sketch does; returns what to send."""
        self.sketch.update(keys, times, counts)
        return self._news()

    warm = update

    def join(self) -> list[Message]:
        """Sites of this kind need not join."""
        return []

    def advance(self, time: Any) -> list[Message]:
        """Let time pass; returns what to send."""
        self.sketch.advance(time)
        return self._news()

    def receive(self, message: Message) -> list[Message]:
        """A coordinator of this kind never says anything."""
        raise InputError(f"a site was sent a {type(message).__name__}, which only coordinators understand")

    def _news(self) -> list[Message]:
        cells, total = self.sketch.cells(), int(self.sketch.total().high)
        # The cells of a row add up to the total only where they are exact; estimated ones may stay the same while it grows.
        if np.abs(cells - self._sent).max() <= self._line and total <= self._most:
            return []
        window = self.sketch.window
        arrivals = max(total, window.ticks) if window.kind == "arrivals" else total
        self._sent, self._line = cells, self.push * arrivals
        self._most = most_arrivals(arrivals, self._line, self.sketch.width)
        self._sequence += 1
        return [CellsMessage(self.number, self._sequence, arrivals, cells)]


def most_arrivals(arrivals: float, skew: float, width: int) -> float:
    """Upper bound of the total weight in the windows of one site or of all, until a site pushes again."""
    return arrivals + skew * width


class DistributedCountMin:
    """The coordinator of DISTCM: how often keys came at all sites, without asking them.

    ``sketch`` is one built like those of the sites (any of the windowed Count-Mins); ``push`` is the share of a site's window
    by which any of its cells may be off here. A value is within ``skew``, the sum of these, of what the sites' sketches would
    say if they were added up now (WCM Theorem 7), for certain. Bounds on the truth need exact cells, those of a
    ``PerfectCountMin``; where cells are guesses, they are as wide as all arrivals.

    >>> import lately as lt
    >>> everywhere = DistributedCountMin(lt.PerfectCountMin(window=60, eps=0.1, delta=0.1), push=0.1)
    >>> sites = [everywhere.site(number) for number in range(3)]
    >>> for number, site in enumerate(sites):
    ...     for message in site.update(["a"] * (5 + number), 10):
    ...         everywhere.receive(message)
    []
    []
    []
    >>> everywhere.count("a").value, everywhere.messages
    (18, 3)
    """

    def __init__(self, sketch: WcmSketch, push: float = 0.1) -> None:
        if not isinstance(sketch, WcmSketch):
            raise ParameterError(f"a {type(sketch).__name__} where a windowed Count-Min belongs, such as SplitterCountMin")
        check_probability("push", push)
        self._like, self.push = sketch.copy(), push
        self._known: dict[int, CellsMessage] = {}
        #: Messages and bytes that came from the sites, those that were too old included.
        self.messages = self.nbytes = 0

    def site(self, number: int) -> CountMinSite:
        """A new site with an empty sketch, to be run wherever its stream is."""
        check_integer("site", number, 0, 2**32 - 1)
        return CountMinSite(number, self._like._empty(), self.push)

    def receive(self, message: Message) -> list[Message]:
        """Take what a site sent; one that is older than what is known, or known already, changes nothing."""
        if not isinstance(message, CellsMessage):
            raise InputError(f"a {type(message).__name__} where a CellsMessage belongs; it came to the wrong coordinator")
        if message.cells.size != (size := self._like.width * self._like.depth):
            raise MergeError(
                f"site {message.site} sent {message.cells.size} cells, not {size}; build its sketch like the others"
            )
        self.messages += 1
        self.nbytes += message.nbytes
        known = self._known.get(message.site)
        if known is None or known.sequence < message.sequence:
            self._known[message.site] = message
        return []

    def coordinator(self, sites: Sequence[int]) -> Self:
        """A fresh coordinator of the same kind: what ``simulate`` asks a monitor for. Sites need not be known beforehand."""
        return type(self)(self._like, self.push)

    def announcements(self) -> dict[str, Announcement]:
        """The self-join size of the cells; its tolerance is where it would be if no cell is off by more than the skew.

        Bounds of the true one need exact cells, those of a ``PerfectCountMin``: without, there are none.
        """
        like, skew = self._like, self.skew
        table = self.cells().astype(np.float64).reshape(like.depth, like.width)
        edges = (np.maximum(table - skew, 0), table, table + skew)
        least, value, most = (float((edge**2).sum(axis=1).min()) for edge in edges)
        low, high, confidence = 0.0, math.inf, 1.0
        if isinstance(like, PerfectCountMin):
            total = float(edges[2].sum(axis=1).min())
            odds = like.delta ** (-1 / like.depth)
            low, high, confidence = float(without_collisions(least, total * total, like.width, odds)), most, 1 - like.delta
        return {"self_join": Announcement(value, low, high, None, confidence, (least, most))}

    def truth(self, sites: Sequence[CountMinSite]) -> dict[str, float]:
        """The self-join size that the sites' cells would have if they were added up now; for simulations and tests."""
        table = sum((site.sketch.cells() for site in sites), np.zeros(self._like.width * self._like.depth))
        return {"self_join": float((table.reshape(self._like.depth, -1) ** 2).sum(axis=1).min())}

    def __repr__(self) -> str:
        return f"DistributedCountMin({self._like!r}, push={self.push}, sites={len(self._known)}, nbytes={self.nbytes:_})"

    @property
    def sites(self) -> list[int]:
        """The sites that were heard of."""
        return sorted(self._known)

    @property
    def skew(self) -> float:
        """By how much any cell may be off: the sum over the sites of ``push`` times the arrivals in their windows."""
        return sum(self.push * message.arrivals for message in self._known.values())

    def cells(self) -> Counts:
        """The cells of all sites added up."""
        cells = np.zeros(self._like.width * self._like.depth, np.int64)
        for message in self._known.values():
            cells += message.cells
        return cells

    def count(self, key: Any) -> Estimate:
        """How often a key came in the windows of all sites."""
        return self.counts(one_key(key))[0]

    def counts(self, keys: Any) -> Estimates:
        """How often each of many keys came."""
        like, skew = self._like, self.skew * (1 + _ROUNDING)
        value = self.cells()[cells_of(all_hashes(key_column(keys)), like.rows.words, like.width)].min(axis=0)
        total = most_arrivals(sum(message.arrivals for message in self._known.values()), skew, like.width) * (1 + _ROUNDING)
        exact = isinstance(like, PerfectCountMin)
        most = min(int(total), 2**63 - 1)
        high = np.minimum(value + int(skew), most) if exact else np.full_like(value, most)
        value = np.minimum(value, high)
        if not exact:  # the cells are guesses, and their bounds were not sent
            return Estimates(value, np.zeros_like(value), high, 1.0)
        least = without_collisions(np.maximum(value - skew, 0), total, like.width) * (1 - _ROUNDING)
        return Estimates(value, np.minimum(np.ceil(least).astype(np.int64), value), high, 1 - like.delta)
