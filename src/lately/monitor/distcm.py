"""DISTCM (WCM §3.5): sites push their cells when these have changed, and a coordinator adds them up.

The paper pushes after every eps·N arrivals. But cells also change when arrivals leave the window, and all at once where SIMPLE
restarts. So a site here compares its cells with those it sent last, and pushes when one differs by more than eps·N. That keeps
the promise of Theorem 7 at all times and sends less. N is a certain upper bound of the total weight in a site's window. A site
also pushes when its window may contain more than the coordinator assumes.
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

#: More than the rounding error of sums of a few thousand floats.
_ROUNDING = 1e-12


class CountMinSite:
    """A site: counts its own stream, and pushes its cells when they have changed enough.

    Parameters
    ----------
    number
        The number of the site.
    sketch
        Its windowed Count-Min, still empty.
    push
        The share of its window by which a cell may differ from the last push.
    """

    def __init__(self, number: int, sketch: WcmSketch, push: float) -> None:
        self.number, self.sketch, self.push = number, sketch, push
        self._sent = np.zeros(sketch.width * sketch.depth, np.int64)
        self._max_change = 0.0
        self._max_arrivals = 0.0  # the coordinator's upper bound of the total weight in this window
        self._sequence = 0

    def update(self, keys: Any, times: Any = None, counts: Any = None) -> list[Message]:
        """Count a batch; returns the messages to send.

        Parameters
        ----------
        keys, times, counts
            Columns as for the sketch.
        """
        self.sketch.update(keys, times, counts)
        return self._push_if_changed()

    warm = update

    def join(self) -> list[Message]:
        """Return no messages: sites of this kind do not join."""
        return []

    def advance(self, time: Any) -> list[Message]:
        """Let time pass; returns the messages to send.

        Parameters
        ----------
        time
            The time that the stream has reached.
        """
        self.sketch.advance(time)
        return self._push_if_changed()

    def receive(self, message: Message) -> list[Message]:
        """Raise ``InputError``: a coordinator of this kind never sends messages."""
        raise InputError(f"a {type(message).__name__} came to a site of DISTCM", remedy="carry it to the coordinator")

    def _push_if_changed(self) -> list[Message]:
        cells, total = self.sketch.cells(), int(self.sketch.total().high)
        # Only exact cells of a row add up to the total; estimated cells may stay the same while it grows.
        if np.abs(cells - self._sent).max() <= self._max_change and total <= self._max_arrivals:
            return []
        window = self.sketch.window
        arrivals = max(total, window.ticks) if window.kind == "arrivals" else total
        self._sent, self._max_change = cells, self.push * arrivals
        self._max_arrivals = most_arrivals(arrivals, self._max_change, self.sketch.width)
        self._sequence += 1
        return [CellsMessage(self.number, self._sequence, arrivals, cells)]


def most_arrivals(arrivals: float, skew: float, width: int) -> float:
    """The upper bound of the total weight in the windows of one or all sites until the next push."""
    return arrivals + skew * width


class DistributedCountMin:
    """The coordinator of DISTCM: how often keys arrived at all sites, without asking them.

    A value is within ``skew`` of what the sites' sketches would give if they were added up now (WCM Theorem 7), for certain.
    Bounds of the truth need the exact cells of a ``PerfectCountMin``; if cells are estimated, they are as wide as all arrivals.

    Parameters
    ----------
    sketch
        A windowed Count-Min, built like those of the sites.
    push
        The share of a site's window by which each of its cells may be off here, between 0 and 1; 0.1 by default.

    >>> import lately as lt
    >>> coordinator = DistributedCountMin(lt.PerfectCountMin(window=60, eps=0.1, delta=0.1), push=0.1)
    >>> sites = [coordinator.site(number) for number in range(3)]
    >>> for number, site in enumerate(sites):
    ...     for message in site.update(["a"] * (5 + number), 10):
    ...         coordinator.receive(message)
    []
    []
    []
    >>> coordinator.count("a").value, coordinator.messages
    (18, 3)
    """

    def __init__(self, sketch: WcmSketch, push: float = 0.1) -> None:
        if not isinstance(sketch, WcmSketch):
            raise ParameterError(
                f"a {type(sketch).__name__} is not a windowed Count-Min", remedy="give one such as SplitterCountMin"
            )
        check_probability("push", push)
        self._template, self.push = sketch.copy(), push
        self._latest: dict[int, CellsMessage] = {}
        #: Messages and bytes from the sites, outdated ones included.
        self.messages = self.nbytes = 0

    def site(self, number: int) -> CountMinSite:
        """A new site with an empty sketch, to be run where its stream is.

        Parameters
        ----------
        number
            The number of the site, 0 to 2**32 - 1.
        """
        check_integer("site", number, 0, 2**32 - 1)
        return CountMinSite(number, self._template._empty(), self.push)

    def receive(self, message: Message) -> list[Message]:
        """Take a message of a site; outdated and repeated ones change nothing. Returns no messages.

        Parameters
        ----------
        message
            A decoded message.
        """
        if not isinstance(message, CellsMessage):
            raise InputError(f"a {type(message).__name__} came to a DistributedCountMin", remedy="carry it to its coordinator")
        if message.cells.size != (size := self._template.width * self._template.depth):
            raise MergeError(
                f"site {message.site} sent {message.cells.size} cells, not {size}", remedy="build its sketch like the others"
            )
        self.messages += 1
        self.nbytes += message.nbytes
        before = self._latest.get(message.site)
        if before is None or before.sequence < message.sequence:
            self._latest[message.site] = message
        return []

    def coordinator(self, sites: Sequence[int]) -> Self:
        """A new coordinator of the same kind, for ``simulate``. Sites need not be known beforehand."""
        return type(self)(self._template, self.push)

    def announcements(self) -> dict[str, Announcement]:
        """The self-join size of the cells, and where it can be if no cell is off by more than the skew.

        It has bounds of the true value only for the exact cells of a ``PerfectCountMin``.
        """
        template, skew = self._template, self.skew
        table = self.cells().astype(np.float64).reshape(template.depth, template.width)
        edges = (np.maximum(table - skew, 0), table, table + skew)
        least, value, most = (float((edge**2).sum(axis=1).min()) for edge in edges)
        low, high, confidence = 0.0, math.inf, 1.0
        if isinstance(template, PerfectCountMin):
            total = float(edges[2].sum(axis=1).min())
            odds = template.delta ** (-1 / template.depth)
            low, high, confidence = (
                float(without_collisions(least, total * total, template.width, odds)),
                most,
                1 - template.delta,
            )
        return {"self_join": Announcement(value, low, high, None, confidence, (least, most))}

    def truth(self, sites: Sequence[CountMinSite]) -> dict[str, float]:
        """The self-join size of the sites' cells added up now; for simulations and tests."""
        table = sum((site.sketch.cells() for site in sites), np.zeros(self._template.width * self._template.depth))
        return {"self_join": float((table.reshape(self._template.depth, -1) ** 2).sum(axis=1).min())}

    def __repr__(self) -> str:
        return f"DistributedCountMin({self._template!r}, push={self.push}, sites={len(self._latest)}, nbytes={self.nbytes:_})"

    @property
    def sites(self) -> list[int]:
        """The sites that have sent messages."""
        return sorted(self._latest)

    @property
    def skew(self) -> float:
        """By how much any cell may be off: the sum over the sites of ``push`` times the arrivals in their windows."""
        return sum(self.push * message.arrivals for message in self._latest.values())

    def cells(self) -> Counts:
        """The cells of all sites added up."""
        cells = np.zeros(self._template.width * self._template.depth, np.int64)
        for message in self._latest.values():
            cells += message.cells
        return cells

    def count(self, key: Any) -> Estimate:
        """How often a key arrived within the windows of all sites.

        Parameters
        ----------
        key
            The key.
        """
        return self.counts(one_key(key))[0]

    def counts(self, keys: Any) -> Estimates:
        """How often each of many keys arrived.

        Parameters
        ----------
        keys
            A column of keys.
        """
        template, skew = self._template, self.skew * (1 + _ROUNDING)
        value = self.cells()[cells_of(all_hashes(key_column(keys)), template.rows.words, template.width)].min(axis=0)
        total = most_arrivals(sum(message.arrivals for message in self._latest.values()), skew, template.width) * (
            1 + _ROUNDING
        )
        exact = isinstance(template, PerfectCountMin)
        most = min(int(total), 2**63 - 1)
        high = np.minimum(value + int(skew), most) if exact else np.full_like(value, most)
        value = np.minimum(value, high)
        if not exact:  # the cells are estimates, and their bounds were not sent
            return Estimates(value, np.zeros_like(value), high, 1.0)
        least = without_collisions(np.maximum(value - skew, 0), total, template.width) * (1 - _ROUNDING)
        return Estimates(value, np.minimum(np.ceil(least).astype(np.int64), value), high, 1 - template.delta)
